"""The points, files and stored outcomes of the small study."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from small_study import CLASSES, TINY, to_frontier

import shortlist as sl
from shortlist.paper import FIGURES, run, runner, study
from shortlist.paper.figures import LOSSES
from shortlist.paper.methods import CLASSIFIER_EPOCHS, solve, weak_features
from shortlist.paper.results import COLUMNS

SEEDS = range(TINY.seeds)

# Points


def test_every_figure_has_its_curves_for_every_seed(report, table):
    assert sorted(table.figure.unique()) == sorted(FIGURES)
    for figure in report.results.figures:
        for i, panel in enumerate(figure.panels):
            rows = table[(table.figure == figure.name) & (table.panel == i)]
            assert list(rows.curve.unique()) == [curve.label for curve in panel.curves]
            for curve in panel.curves:
                seeds = rows[rows.curve == curve.label].seed.unique()
                assert sorted(seeds) == list(SEEDS), (figure.name, curve.label)


def test_every_panel_shows_lac_and_the_shortlister(report):
    for figure in report.results.figures:
        for panel in figure.panels:
            methods = {curve.task.method for curve in panel.curves}
            assert not panel.curves or {"LAC", "Shortlister", "cardinality-aware"} <= methods


def test_panels_without_data_name_the_missing_file(report):
    figure = report.results.figure("fig1")
    assert [panel.data for panel in figure.panels] == ["cifar100", "imagenet", "cifar10", "svhn"]
    missing = [panel.missing for panel in figure.panels]
    assert missing[0] == missing[2] == ""
    assert "no imagenet.npz in the data folder" in missing[1]
    assert "no svhn.npz in the data folder" in missing[3]


def test_points_have_sizes_and_accuracies_in_range(table):
    for data, n_classes in CLASSES.items():
        assert table[table.data == data].mean_size.between(1, n_classes).all()
    assert table.accuracy.between(0, 1).all()
    assert (table.seconds > 0).all()


@pytest.mark.parametrize("scoring", ["full", "weak"])
@pytest.mark.parametrize("seed", SEEDS)
def test_accuracy_of_top_k_is_the_fraction_of_ranks_below_k(table, folder, scoring, seed):
    file = sl.datasets.load(folder / "cifar100.npz")
    columns = slice(None)
    if scoring == "weak":
        order = np.random.default_rng(seed).permutation(file.fit.x.shape[1])
        columns = np.sort(order[: weak_features(18)])
        assert len(columns) == 3
    classifier = sl.LinearClassifier(max_epochs=CLASSIFIER_EPOCHS, random_state=seed)
    classifier.fit(file.fit.x[:, columns].astype(np.float32), file.fit.y)
    scores = classifier.decision_function(file.test.x[:, columns].astype(np.float32))
    order = np.argsort(-scores, axis=1)
    rank = (order == file.test.y[:, None]).argmax(axis=1)
    figure = "fig1" if scoring == "full" else "fig6"
    rows = table[(table.figure == figure) & (table.data == "cifar100") & (table.seed == seed)]
    rows = rows[rows.method == "top-k"]
    assert rows.mean_size.tolist() == list(range(1, 19))
    expected = [(rank < k).mean() for k in range(1, 19)]
    np.testing.assert_allclose(rows.accuracy, expected, atol=2 / len(rank))


def test_figures_share_curves(table):
    """Cost log k is the same curve in figures 1 and 2, and λ = 0.05 in figures 3 and 4."""

    def points(figure, curve):
        rows = table[(table.figure == figure) & (table.curve == curve)]
        return rows[["data", "seed", "parameter", "accuracy", "mean_size"]].to_numpy().tolist()

    assert points("fig1", "cardinality-aware") == points("fig2", "cost log k")
    assert points("fig1", "cardinality-aware") != points("fig2", "cost k")
    assert points("fig3", "λ = 0.05") == points("fig4", "cost log k")
    assert points("fig1", "cardinality-aware")[:3] == points("losses", "log")[:3]


def test_points_of_figure_3_double_k_from_one_label(table):
    rows = table[(table.figure == "fig3") & (table.curve == "λ = 0.1") & (table.seed == 0)]
    expected_members = {
        "cifar100": ["1", "1 2", "1 2 4", "1 2 4 8", "1 2 4 8 16"],
        "cifar10": ["1", "1 2", "1 2 4", "1 2 4 8"],
    }
    for data, members in expected_members.items():
        points = rows[rows.data == data]
        assert points.members.tolist() == members
        assert set(points.parameter) == {0.1}
        top_k = table[(table.figure == "fig1") & (table.data == data) & (table.seed == 0)]
        top_1 = top_k[top_k.method == "top-k"].iloc[0]
        assert points.iloc[0].mean_size == 1
        assert points.iloc[0].accuracy == top_1.accuracy
        largest = [float(m.split()[-1]) for m in members]
        assert (points.mean_size <= largest).all()


def test_lambda_varies_within_a_curve(table):
    for cost, curve in (("log", "cost log k"), ("linear", "cost k")):
        rows = table[(table.figure == "fig2") & (table.curve == curve)]
        assert set(rows.cost) == {cost}
        assert sorted(set(rows.parameter), reverse=True) == list(TINY.weights(cost))
        assert set(rows.members) == {"1 2 4 8"}


def test_both_protocols_fit_on_the_same_number_of_rows(table):
    rows = table[(table.figure == "fig1") & (table.method == "cardinality-aware")]
    assert set(rows.protocol) == {"held-out", "seen"}
    assert set(rows.rows) == {300}


def test_the_eight_losses_give_different_curves(table):
    rows = table[(table.figure == "losses") & (table.method == "cardinality-aware")]
    assert list(rows.loss.unique()) == list(LOSSES)
    curves = {tuple(group.accuracy) for _, group in rows.groupby("loss")}
    assert len(curves) > 5


def test_selectors_of_figures_5_and_6_choose_among_thresholds(table):
    rows = table[table.figure.isin(["fig5", "fig6"]) & (table.method == "cardinality-aware")]
    assert set(rows[rows.panel == 0].family) == {"threshold"}
    assert (rows[rows.figure == "fig6"].scoring == "weak").all()


def test_figure_5_shows_each_sample_size(table):
    rows = table[(table.figure == "fig5") & (table.panel == 1)]
    for method in ("LAC", "cardinality-aware"):
        assert sorted(set(rows[rows.method == method].rows)) == list(TINY.sample_sizes)
    assert sorted(set(rows[rows.method == "Shortlister"].rows)) == [100, 200]
    real = table[(table.figure == "fig5") & (table.panel == 2)]
    assert sorted(set(real.rows)) == [100, 200, 300]


def test_no_method_beats_the_true_probabilities_by_more_than_noise(table):
    for seed in SEEDS:
        rows = table[(table.figure == "fig5") & (table.data == "gaussian") & (table.seed == seed)]
        bayes = to_frontier(rows[(rows.method == "Bayes") & (rows.panel == 0)])
        for label, group in rows[rows.panel == 0].groupby("curve"):
            inside = group[group.accuracy.between(bayes.accuracy.min(), bayes.accuracy.max())]
            optimum = np.asarray(bayes.size_at(inside.accuracy.to_numpy()))
            assert (inside.mean_size >= 0.93 * optimum).all(), label


# Files


def test_csv_and_json_files_contain_the_same_points(report, output, table):
    with (output / "points.csv").open() as file:
        rows = list(csv.DictReader(file))
    content = json.loads((output / "points.json").read_text())
    assert len(rows) == len(content["points"]) == len(table)
    assert list(rows[0]) == list(content["points"][0]) == list(COLUMNS)
    for row, point in zip(rows[::50], content["points"][::50], strict=True):
        assert float(row["mean_size"]) == point["mean_size"]
        assert row["curve"] == point["curve"]
    assert content["versions"]["shortlist"] == sl.__version__
    assert {"python", "numpy", "torch", "scikit-learn"} < set(content["versions"])
    assert content["scale"] == json.loads(json.dumps(asdict(TINY)))
    assert content["data"]["cifar100"]["classes"] == 18


def test_every_figure_is_saved_as_png_and_svg(report, output):
    for name in FIGURES:
        assert (output / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        svg = (output / f"{name}.svg").read_text()
        assert "<svg" in svg
    assert {path.name for path in report.files} == {
        *(f"{name}.{ending}" for name in FIGURES for ending in ("png", "svg")),
        "points.csv",
        "points.json",
    }


def test_the_page_has_claims_plots_and_numbers(report, output, table):
    page = (output / "paper.md").read_text()
    assert report.page == output / "paper.md"
    assert len(report.findings) == 7  # The claim about ImageNet needs its feature file.
    for finding in report.findings:
        assert f"| {finding.claim} | {finding.where} | **{finding.verdict}** |" in page
        for line in finding.evidence:
            assert f"- {line}" in page
    for name in FIGURES:
        assert f"]({name}.png)" in page
    # One number of a table is computed again.
    rows = table[(table.figure == "fig1") & (table.data == "cifar10") & (table.method == "top-k")]
    sizes = [float(to_frontier(group).size_at(0.95)) for _, group in rows.groupby("seed")]
    line = next(x for x in page.splitlines() if x.startswith("| CIFAR-10 | top-k |"))
    assert f"{np.mean(sizes):.3f} ± {np.std(sizes):.3f}" in line
    assert "nan" not in re.sub(r"\w*nan\w+", "", page.lower().replace("dominant", ""))


def test_a_page_in_another_folder_links_to_the_plots(folder, output, report, tmp_path):
    page = tmp_path / "docs" / "page.md"
    before = (output / "fig1.svg").read_bytes()
    again = run(folder, output, ["fig1"], scale=TINY, page=page, workers=1, progress=False)
    assert again.page == page
    assert (output / "fig1.svg").read_bytes() == before
    target = re.search(r"\]\((.*fig1\.png)\)", page.read_text()).group(1)
    assert (page.parent / target).resolve() == (output / "fig1.png").resolve()


# Stored outcomes


def test_stored_outcomes_are_not_computed_again(folder, output, report, monkeypatch):
    monkeypatch.setattr(study, "draw", lambda *_: [])
    monkeypatch.setattr(runner, "solve", lambda *_: pytest.fail("computed again"))
    again = run(folder, output, scale=TINY, workers=1, progress=False)
    assert again.results.outcomes == report.results.outcomes


def test_missing_damaged_and_outdated_outcomes_are_computed_again(
    folder, output, report, monkeypatch, tmp_path
):
    solved_tasks = []

    def record_and_solve(task, scored):
        solved_tasks.append(task)
        return solve(task, scored)

    monkeypatch.setattr(study, "draw", lambda *_: [])
    monkeypatch.setattr(runner, "solve", record_and_solve)
    missing, damaged = sorted((output / "kept").glob("cifar10-LAC-0-*.json"))[:2]
    missing.unlink()
    damaged.write_text(damaged.read_text()[:-40])
    outdated = sorted((output / "kept").glob("*top-k-1-*"))[0]
    content = json.loads(outdated.read_text())
    content["identity"]["data"] = "other"
    outdated.write_text(json.dumps(content))
    again = run(folder, output, scale=TINY, workers=1, progress=False)
    assert len(solved_tasks) == 3
    for task in solved_tasks:
        one_process, two_processes = again.results.outcomes[task], report.results.outcomes[task]
        assert replace(one_process, seconds=0) == replace(two_processes, seconds=0)
