"""Every figure end to end on tiny data: tables, plots, and files."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from small_study import CLASSES, TINY, write_feature_files

import shortlist as sl
from shortlist.paper import FIGURES, Report, run, runner
from shortlist.paper.figures import LOSSES
from shortlist.paper.results import COLUMNS
from shortlist.paper.tasks import CLASSIFIER_EPOCHS, ScoredFile, Task, solve, weak_features

SEEDS = range(TINY.seeds)


@pytest.fixture(scope="session")
def table(report: Report):
    return report.results.to_frame()


def frontier(rows):
    return sl.Frontier(rows.accuracy, rows.mean_size, rows.parameter)


# The tables


def test_every_figure_has_its_curves_for_every_seed(report, table):
    assert sorted(table.figure.unique()) == sorted(FIGURES)
    for figure in report.results.figures:
        for i, panel in enumerate(figure.panels):
            own = table[(table.figure == figure.name) & (table.panel == i)]
            assert list(own.curve.unique()) == [curve.label for curve in panel.curves]
            for curve in panel.curves:
                seeds = own[own.curve == curve.label].seed.unique()
                assert sorted(seeds) == list(SEEDS), (figure.name, curve.label)


def test_every_panel_shows_lac_and_the_shortlister_for_reference(report):
    for figure in report.results.figures:
        for panel in figure.panels:
            methods = {curve.task.method for curve in panel.curves}
            assert not panel.curves or {"LAC", "Shortlister", "cardinality-aware"} <= methods


def test_panels_without_data_say_so(report):
    figure = report.results.figure("fig1")
    assert [panel.data for panel in figure.panels] == ["cifar100", "imagenet", "cifar10", "svhn"]
    missing = [panel.missing for panel in figure.panels]
    assert missing[0] == missing[2] == ""
    assert "no imagenet.npz in the data folder" in missing[1]
    assert "no svhn.npz in the data folder" in missing[3]


def test_points_have_sizes_and_accuracies_in_range(table):
    for data, classes in CLASSES.items():
        own = table[table.data == data]
        assert own.mean_size.between(1, classes).all()
    assert table.accuracy.between(0, 1).all()
    assert (table.seconds > 0).all()


@pytest.mark.parametrize("scoring", ["full", "weak"])
@pytest.mark.parametrize("seed", SEEDS)
def test_top_k_is_the_count_of_ranks_below_k(table, folder, scoring, seed):
    file = sl.datasets.load(folder / "cifar100.npz")
    columns = slice(None)
    if scoring == "weak":
        drawn = np.random.default_rng(seed).permutation(file.fit.x.shape[1])
        columns = np.sort(drawn[: weak_features(18)])
        assert len(columns) == 3
    h = sl.LinearClassifier(max_epochs=CLASSIFIER_EPOCHS, random_state=seed)
    h.fit(file.fit.x[:, columns].astype(np.float32), file.fit.y)
    scores = h.decision_function(file.test.x[:, columns].astype(np.float32))
    order = np.argsort(-scores, axis=1)
    rank = (order == file.test.y[:, None]).argmax(axis=1)
    figure = "fig1" if scoring == "full" else "fig6"
    rows = table[(table.figure == figure) & (table.data == "cifar100") & (table.seed == seed)]
    rows = rows[rows.method == "top-k"]
    assert rows.mean_size.tolist() == list(range(1, 19))
    expected = [(rank < k).mean() for k in range(1, 19)]
    np.testing.assert_allclose(rows.accuracy, expected, atol=2 / len(rank))


def test_curves_that_the_paper_says_coincide_do(table):
    """Figure 2's log curve is figure 1's; figure 4's is the λ = 0.05 of figure 3."""

    def points(figure, curve):
        rows = table[(table.figure == figure) & (table.curve == curve)]
        return rows[["data", "seed", "parameter", "accuracy", "mean_size"]].to_numpy().tolist()

    assert points("fig1", "cardinality-aware") == points("fig2", "cost log k")
    assert points("fig1", "cardinality-aware") != points("fig2", "cost k")
    assert points("fig3", "λ = 0.05") == points("fig4", "cost log k")
    assert points("fig1", "cardinality-aware")[:3] == points("losses", "log")[:3]


def test_k_grows_by_doubling_and_begins_with_one_label(table):
    rows = table[(table.figure == "fig3") & (table.curve == "λ = 0.1") & (table.seed == 0)]
    grown = {
        "cifar100": ["1", "1 2", "1 2 4", "1 2 4 8", "1 2 4 8 16"],
        "cifar10": ["1", "1 2", "1 2 4", "1 2 4 8"],
    }
    for data, members in grown.items():
        own = rows[rows.data == data]
        assert own.members.tolist() == members
        assert set(own.parameter) == {0.1}
        top_1 = table[(table.figure == "fig1") & (table.data == data) & (table.seed == 0)]
        top_1 = top_1[top_1.method == "top-k"].iloc[0]
        assert own.iloc[0].mean_size == 1
        assert own.iloc[0].accuracy == top_1.accuracy
        largest = [float(m.split()[-1]) for m in members]
        assert (own.mean_size <= largest).all()


def test_lambda_varies_within_a_curve(table):
    for cost, curve in (("log", "cost log k"), ("linear", "cost k")):
        rows = table[(table.figure == "fig2") & (table.curve == curve)]
        assert set(rows.cost) == {cost}
        assert sorted(set(rows.parameter), reverse=True) == list(TINY.weights(cost))
        assert set(rows.members) == {"1 2 4 8"}


def test_the_protocols_learn_from_as_many_rows_but_not_the_same(table):
    rows = table[(table.figure == "fig1") & (table.method == "cardinality-aware")]
    assert set(rows.protocol) == {"held-out", "seen"}
    assert set(rows.rows) == {300}
    file = sl.datasets.FeatureFile(*sl.datasets.gaussian(900, n_classes=4).split(400, 300))
    scored = ScoredFile(file, "full", 0)
    held = scored.rows(Task("LAC", "x", 100))
    seen = scored.rows(Task("LAC", "x", 100, protocol="seen"))
    assert len(held) == len(seen) == 100
    assert _among(held.x, file.select.x) == 100
    assert _among(held.x, file.fit.x) == 0
    assert _among(seen.x, file.fit.x) == 100
    more = scored.rows(Task("LAC", "x", 200))
    assert np.array_equal(more.x[:100], held.x)  # samples grow, they are not drawn anew


def _among(few, many) -> int:
    known = {row.tobytes() for row in many}
    return sum(row.tobytes() in known for row in few)


def test_all_eight_losses_are_there_and_differ(table):
    rows = table[(table.figure == "losses") & (table.method == "cardinality-aware")]
    assert list(rows.loss.unique()) == list(LOSSES)
    curves = {tuple(own.accuracy) for _, own in rows.groupby("loss")}
    assert len(curves) > 5


def test_thresholds_are_what_figures_5_and_6_choose_among(table):
    rows = table[table.figure.isin(["fig5", "fig6"]) & (table.method == "cardinality-aware")]
    assert set(rows[rows.panel == 0].family) == {"threshold"}
    assert (rows[rows.figure == "fig6"].scoring == "weak").all()


def test_figure_5_grows_with_the_sample(table):
    rows = table[(table.figure == "fig5") & (table.panel == 1)]
    for method in ("LAC", "cardinality-aware"):
        assert sorted(set(rows[rows.method == method].rows)) == list(TINY.sample_sizes)
    assert sorted(set(rows[rows.method == "Shortlister"].rows)) == [100, 200]
    real = table[(table.figure == "fig5") & (table.panel == 2)]
    assert sorted(set(real.rows)) == [100, 200, 300]


def test_no_method_beats_the_true_probabilities_by_more_than_noise(table):
    for seed in SEEDS:
        rows = table[(table.figure == "fig5") & (table.data == "gaussian") & (table.seed == seed)]
        best = frontier(rows[(rows.method == "Bayes") & (rows.panel == 0)])
        for label, own in rows[rows.panel == 0].groupby("curve"):
            inside = own[own.accuracy.between(best.accuracy.min(), best.accuracy.max())]
            floor = np.asarray(best.size_at(inside.accuracy.to_numpy()))
            assert (inside.mean_size >= 0.93 * floor).all(), label


# The pieces


def test_the_bayes_selector_is_the_theorys():
    data = sl.datasets.gaussian(700, n_classes=6, dimension=5, separation=0.8)
    file = sl.datasets.FeatureFile(*data.split(300, 300))
    scored = ScoredFile(file, "full", 0)
    task = Task(
        "Bayes selector", "gaussian", 300, family="threshold", members=(0.4, 0.2, 0.05),
        cost="linear", weights=(0.3, 0.1, 0.01),
    )  # fmt: skip
    outcome = solve(task, scored)
    ranking = sl.Ranking.from_scores(scored.probabilities(file.test))
    sizes = sl.Threshold([0.4, 0.2, 0.05]).sizes(ranking)
    order = np.argsort(-scored.probabilities(file.test), axis=1, kind="stable")
    for i, weight in enumerate(task.weights):
        lengths, hits = [], []
        for row, label in enumerate(file.test.y):
            sets = [order[row, :size].tolist() for size in sizes[row]]
            k = sl.theory.bayes_choice(file.test.posterior[row], sets, "linear", weight)
            lengths.append(len(sets[k]))
            hits.append(label in sets[k])
        assert outcome.mean_size[i] == pytest.approx(np.mean(lengths))
        assert outcome.accuracy[i] == pytest.approx(np.mean(hits))


def test_bayes_needs_the_truth():
    file = sl.datasets.FeatureFile(*sl.datasets.digits().split(300, 300))
    with pytest.raises(ValueError, match="true probabilities"):
        solve(Task("Bayes", "digits", 300), ScoredFile(file, "full", 0))


def test_a_class_that_the_classifier_never_saw_has_probability_zero():
    data = sl.datasets.gaussian(600, n_classes=5, dimension=4, separation=1.0)
    fit, select, test = data.split(200, 200)
    scored = ScoredFile(sl.datasets.FeatureFile(fit[fit.y != 3], select, test), "full", 0)
    p = scored.probabilities(test)
    assert p.shape == (200, 5)
    assert (p[:, 3] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)


# Files


def test_csv_and_json_contain_the_same_points_with_versions_and_seeds(report, output, table):
    with (output / "points.csv").open() as file:
        rows = list(csv.DictReader(file))
    whole = json.loads((output / "points.json").read_text())
    assert len(rows) == len(whole["points"]) == len(table)
    assert list(rows[0]) == list(whole["points"][0]) == list(COLUMNS)
    for row, point in zip(rows[::50], whole["points"][::50], strict=True):
        assert float(row["mean_size"]) == point["mean_size"]
        assert row["curve"] == point["curve"]
    assert whole["versions"]["shortlist"] == sl.__version__
    assert {"python", "numpy", "torch", "scikit-learn"} < set(whole["versions"])
    assert whole["scale"] == json.loads(json.dumps(asdict(TINY)))
    assert whole["data"]["cifar100"]["classes"] == 18


def test_every_figure_is_drawn_as_png_and_svg(report, output):
    for name in FIGURES:
        assert (output / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        svg = (output / f"{name}.svg").read_text()
        assert "<svg" in svg
    assert {path.name for path in report.files} == {
        *(f"{name}.{ending}" for name in FIGURES for ending in ("png", "svg")),
        "points.csv",
        "points.json",
    }


def test_the_page_has_the_claims_the_images_and_the_numbers(report, output, table):
    page = (output / "paper.md").read_text()
    assert report.page == output / "paper.md"
    assert len(report.findings) == 7  # nothing of ImageNet, which is not there
    for finding in report.findings:
        assert f"| {finding.claim} | {finding.where} | **{finding.verdict}** |" in page
        for line in finding.evidence:
            assert f"- {line}" in page
    for name in FIGURES:
        assert f"]({name}.png)" in page
    # A number of the table, computed here again.
    rows = table[(table.figure == "fig1") & (table.data == "cifar10") & (table.method == "top-k")]
    sizes = [float(frontier(own).size_at(0.95)) for _, own in rows.groupby("seed")]
    line = next(x for x in page.splitlines() if x.startswith("| CIFAR-10 | top-k |"))
    assert f"{np.mean(sizes):.3f} ± {np.std(sizes):.3f}" in line
    assert "nan" not in re.sub(r"\w*nan\w+", "", page.lower().replace("dominant", ""))


def test_a_page_elsewhere_finds_its_pictures(folder, output, report, tmp_path):
    page = tmp_path / "docs" / "page.md"
    before = (output / "fig1.svg").read_bytes()
    again = run(folder, output, ["fig1"], scale=TINY, page=page, workers=1, progress=False)
    assert again.page == page
    assert (output / "fig1.svg").read_bytes() == before  # the same points, the same file
    target = re.search(r"\]\((.*fig1\.png)\)", page.read_text()).group(1)
    assert (page.parent / target).resolve() == (output / "fig1.png").resolve()


# Interrupted runs


def test_stored_outcomes_are_not_computed_again(folder, output, report, monkeypatch):
    monkeypatch.setattr(runner, "solve", lambda *_: pytest.fail("computed again"))
    again = run(folder, output, scale=TINY, workers=1, progress=False)
    assert again.results.outcomes == report.results.outcomes


def test_missing_damaged_and_foreign_outcomes_are_computed_again(
    folder, output, report, monkeypatch, tmp_path
):
    kept = sorted((output / "kept").glob("cifar10-LAC-0-*.json"))
    assert kept
    done = []

    def solved(task, scored):
        done.append(task)
        return solve(task, scored)

    monkeypatch.setattr(runner, "solve", solved)
    kept[0].unlink()
    kept[1].write_text(kept[1].read_text()[:-40])
    stranger = json.loads((path := sorted((output / "kept").glob("*top-k-1-*"))[0]).read_text())
    stranger["identity"]["data"] = "other"
    path.write_text(json.dumps(stranger))
    again = run(folder, output, scale=TINY, workers=1, progress=False)
    assert len(done) == 3
    for task in done:
        mine, theirs = again.results.outcomes[task], report.results.outcomes[task]
        assert replace(mine, seconds=0) == replace(theirs, seconds=0)  # one process or two


def test_a_run_that_is_killed_goes_on_to_the_same_points(tmp_path):
    data = write_feature_files(tmp_path / "data", ["cifar10"])
    code = (
        "import sys\nfrom shortlist.paper import run\nfrom small_study import TINY\n"
        "if __name__ == '__main__':\n"
        "    run(sys.argv[1], sys.argv[2], ['fig1'], scale=TINY, workers=1, progress=False)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    out = tmp_path / "out"
    paths = Path(__file__).parent, Path(sl.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, str(script), str(data), str(out)]
    process = subprocess.Popen(command, env=environment)
    until = time.monotonic() + 120
    while not list(out.glob("kept/[!.]*.json")) and time.monotonic() < until:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("kept/[!.]*.json")}
    assert before
    assert not (out / "points.csv").exists()
    outcome = run(data, out, ["fig1"], scale=TINY, workers=1, progress=False)
    for name, moment in before.items():
        assert (out / "kept" / name).stat().st_mtime_ns == moment
    whole = run(data, tmp_path / "afresh", ["fig1"], scale=TINY, workers=1, progress=False)
    strip = [
        {task: replace(outcome, seconds=0) for task, outcome in one.results.outcomes.items()}
        for one in (outcome, whole)
    ]
    assert strip[0] == strip[1]


def test_an_error_in_a_process_is_raised_and_what_was_done_is_kept(folder, tmp_path):
    data = write_feature_files(tmp_path / "data", ["cifar100", "cifar10"])
    broken = dict(np.load(data / "cifar10.npz"))
    broken["x_select"][5, 2] = np.nan
    np.savez(data / "cifar10.npz", **broken)
    with pytest.raises(ValueError, match=r"NaN|finite"):
        run(data, tmp_path / "out", ["fig1"], scale=TINY, workers=2, progress=False)


# Input


def test_unknown_figures_are_named_with_what_there_is(folder, tmp_path):
    with pytest.raises(ValueError, match="no figure 'fig7'; there are: fig1, fig2"):
        run(folder, tmp_path, ["fig1", "fig7"])


def test_a_folder_that_is_not_there_or_empty(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(FileNotFoundError, match=r"cifar100\.npz"):
        run(tmp_path, tmp_path / "out", ["fig1"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", [{"seeds": 0}, {"workers": 0}, {"seeds": 1.5}])
def test_wrong_counts(folder, tmp_path, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        run(folder, tmp_path / "out", ["fig1"], **wrong)
