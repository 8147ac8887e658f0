"""The points, files and stored outcomes of the small study."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from small_study import CLASSES, FIGURES, TINY, to_frontier

import shortlist as sl
from shortlist.paper import run, runner, study
from shortlist.paper.figures import LOSSES, make_figures
from shortlist.paper.methods import solve, weak_features
from shortlist.paper.results import COLUMNS
from shortlist.paper.sources import TITLES, Sources

SEEDS = range(TINY.seeds)
LAMBDA = "paper's recipe (features), λ = 0.1"

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


def test_every_panel_shows_lac_and_the_paper_beside_our_variant(report):
    for figure in report.results.figures:
        for panel in figure.panels:
            methods = {curve.task.method for curve in panel.curves}
            assert not panel.curves or {"LAC", "selectors"} <= methods
            if panel.curves and not panel.by_rows:
                selectors = [curve for curve in panel.curves if curve.is_selector]
                assert {curve.task.inputs for curve in selectors} == {"features", "both"}
            for curve in panel.curves:
                if curve.is_selector:
                    name = "paper's recipe" if curve.task.inputs == "features" else "our variant"
                    assert curve.label.startswith(name)


def test_panels_without_data_name_the_missing_file(report):
    figure = report.results.figure("fig1")
    assert [panel.data for panel in figure.panels] == ["cifar100", "imagenet", "cifar10", "svhn"]
    missing = [panel.missing for panel in figure.panels]
    assert missing[0] == missing[2] == ""
    assert "no imagenet.npz in the data folder" in missing[1]
    assert "no svhn.npz in the data folder" in missing[3]


def test_stand_ins_and_second_panels(tmp_path):
    for name in ("cifar100", "cifar100_finetuned", "tinyimagenet", "cifar10", "fashion"):
        (tmp_path / f"{name}.npz").touch()
    panels = Sources(str(tmp_path), 100, 100, 100).panels()
    assert panels == ["cifar100_finetuned", "tinyimagenet", "cifar10", "fashion", "cifar100"]
    assert all("stand-in" in TITLES[name] for name in ("tinyimagenet", "fashion"))


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
    classifier = sl.LinearClassifier(max_epochs=TINY.classifier_epochs, random_state=seed)
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

    recipe = "paper's recipe (features), "
    assert points("fig1", f"{recipe}cost log k") == points("fig2", f"{recipe}cost log k")
    assert points("fig1", f"{recipe}cost log k") != points("fig2", f"{recipe}cost k")
    assert points("fig3", f"{recipe}λ = 0.05") == points("fig4", f"{recipe}cost log k")


def test_points_of_figure_3_double_k_from_one_label(table):
    rows = table[(table.figure == "fig3") & (table.curve == LAMBDA) & (table.seed == 0)]
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
        rows = table[
            (table.figure == "fig2") & (table.curve == f"paper's recipe (features), {curve}")
        ]
        assert set(rows.cost) == {cost}
        assert set(rows.average) == {"single"}
        assert set(TINY.weights(cost)) <= set(rows.parameter)
        assert len(set(rows.parameter)) > TINY.points  # The grid was refined.
        assert set(rows.members) == {"1 2 4 8"}


def test_both_protocols_fit_on_the_same_number_of_rows(table):
    rows = table[(table.figure == "fig1") & (table.method == "selectors")]
    assert set(rows.protocol) == {"held-out", "seen"}
    assert set(rows.rows) == {300}


def test_the_largest_k_has_every_size_of_ten_classes(table):
    rows = table[(table.figure == "wide") & (table.method == "selectors")]
    of_data = rows.groupby("data").members.unique()
    assert of_data["cifar10"].tolist() == ["1 2 3 4 5 6 7 8 9 10"]
    assert of_data["cifar100"].tolist() == ["1 2 4 8 16"]
    assert {"single", "mean"} == set(rows.average)


def test_the_eight_losses_are_trained_alike(folder):
    sizes = {"cifar100": {"fit": 300, "select": 300, "test": 200, "classes": 18}}
    (figure,) = make_figures(["losses"], Sources(str(folder), 300, 300, 300), TINY, sizes)
    tasks = [curve.task for curve in figure.panels[0].curves if curve.is_selector]
    assert [task.loss for task in tasks] == list(LOSSES)
    assert len({replace(task, loss="log") for task in tasks}) == 1


def test_other_settings_change_one_setting_each(folder):
    sizes = {"cifar10": {"fit": 400, "select": 300, "test": 300, "classes": 10}}
    sizes["gaussian-similar"] = sizes["cifar10"]
    (figure,) = make_figures(["settings"], Sources(str(folder), 300, 300, 300), TINY, sizes)
    assert [p.data for p in figure.panels if p.curves] == ["cifar10", "gaussian-similar"]
    panel = next(p for p in figure.panels if p.data == "cifar10")
    base = asdict(next(c for c in panel.curves if c.is_single).task)
    changed = set()
    for curve in panel.curves:
        if curve.is_selector:
            different = {k for k, v in asdict(curve.task).items() if v != base[k]} - {"selectors"}
            assert len(different) <= 1
            changed |= different
    assert changed == {"width", "learning_rate", "initialization", "standardize"}


def test_selectors_of_figures_5_and_6_choose_among_thresholds(table):
    rows = table[table.figure.isin(["fig5", "fig6"]) & (table.method == "selectors")]
    assert set(rows[rows.panel == 0].family) == {"threshold"}
    assert (rows[rows.figure == "fig6"].scoring == "weak").all()


def test_figure_5_shows_both_regimes_and_each_sample_size(table):
    figure = table[table.figure == "fig5"]
    assert figure.groupby("panel").data.first().tolist() == [
        "gaussian-unequal", "gaussian-unequal", "gaussian-equal", "gaussian-equal",
    ]  # fmt: skip
    for panel in (1, 3):
        rows = figure[figure.panel == panel]
        for method in ("LAC", "selectors"):
            assert sorted(set(rows[rows.method == method].rows)) == list(TINY.sample_sizes)


def test_no_method_beats_the_true_probabilities_by_more_than_noise(table):
    for seed in SEEDS:
        rows = table[(table.figure == "fig5") & (table.panel == 2) & (table.seed == seed)]
        bayes = to_frontier(rows[rows.method == "Bayes"])
        for label, group in rows.groupby("curve"):
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
    assert content["seeds"] == [0, 1]


def test_settings_and_every_training_run_are_in_the_json_file(report, output):
    content = json.loads((output / "points.json").read_text())
    for figure in report.results.figures:
        for settings in content["settings"][figure.name]:
            if settings["method"] == "selectors":
                assert settings["learning_rate"] == 1e-3
                assert settings["initialization"] == "zero"
                assert settings["standardize"]
                assert settings["max_epochs"] == TINY.max_epochs
    tasks = {t.key: t for t in report.results.outcomes}
    assert {record["task"] for record in content["trainings"]} == set(tasks)
    for record in content["trainings"]:
        runs = record["runs"]
        assert runs[0]["trained"] == "classifier"
        task = tasks[record["task"]]
        learns = task.method == "selectors" and len(task.members) > 1
        assert learns == (len(runs) > 1)
        for one in runs:
            assert 0 < one["epochs"] <= one["max_epochs"]
            assert 0 <= one["capped"] <= one["members"]
            assert one["steps"] >= 20 * one["epochs"]
        assert {"torch", "device"} <= set(record["versions"])


def test_the_page_says_what_every_figure_was_trained_on(output):
    page = (output / "paper.md").read_text()
    section = page.split("## Settings")[1].split("## Figures")[0]
    assert "learning rate 1e-3, batches of 128 rows and weight decay 1e-5" in section
    assert "128 units" in section
    assert "start at zero" in section
    assert "after 2 epochs without improvement" in section
    row = next(x for x in section.splitlines() if x.startswith("| fig2 | CIFAR-10 | features |"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[3:5] == ["300", "{1, 2, 4, 8}"]
    assert cells[5].endswith("from 0.5 to 0.001")
    assert cells[6].endswith("from 0.3 to 0.0001")
    assert cells[7] == "2"
    assert all(line.count("|") == 13 for line in section.splitlines() if line.startswith("| fig"))
    assert cells[8] == "2"  # Both epochs were run, which is the maximum.
    assert re.fullmatch(r"[1-9]\d* of \d+", cells[11])
    assert "The paper gives the networks" in page.split("\n\n")[1]
    assert page.count("Shortlister") == 1


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
    # Training was capped and artificial rows are few, so that nothing can be claimed.
    assert {finding.verdict for finding in report.findings} == {"no verdict"}
    for name in FIGURES:
        assert f"]({name}.png)" in page
    # One number of a table is computed again.
    rows = table[(table.figure == "fig2") & (table.data == "cifar10") & (table.method == "top-k")]
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
    again = run(folder, output, FIGURES, scale=TINY, workers=1, progress=False)
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
    again = run(folder, output, FIGURES, scale=TINY, workers=1, progress=False)
    assert len(solved_tasks) == 3
    for task in solved_tasks:
        one_process, two_processes = again.results.outcomes[task], report.results.outcomes[task]
        assert replace(one_process, seconds=0) == replace(two_processes, seconds=0)
