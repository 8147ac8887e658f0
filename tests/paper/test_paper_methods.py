"""The methods that need true probabilities, and the rows and classes of each task."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist as sl
from shortlist.paper.methods import ScoredFile, solve
from shortlist.paper.reading import size_at
from shortlist.paper.tasks import Task


def test_the_bayes_selector_is_that_of_the_theory():
    data = sl.datasets.gaussian(700, n_classes=6, dimension=5, separation=0.8)
    file = sl.datasets.FeatureFile(*data.split(300, 300))
    scored = ScoredFile(file, "full", 0)
    task = Task(
        "Bayes selector", "gaussian", 300, family="threshold", members=(0.4, 0.2, 0.05),
        costs=("linear",), weights=((0.3, 0.1, 0.01),),
    )  # fmt: skip
    (trace,) = solve(task, scored).traces
    ranking = sl.Ranking.from_scores(scored.probabilities(file.test))
    sizes = sl.Threshold([0.4, 0.2, 0.05]).sizes(ranking)
    order = np.argsort(-scored.probabilities(file.test).numpy(), axis=1, kind="stable")
    for i, weight in enumerate(task.weights[0]):
        chosen_sizes, hits = [], []
        for row, label in enumerate(file.test.y):
            sets = [order[row, :size].tolist() for size in sizes[row]]
            k = sl.theory.bayes_choice(file.test.posterior[row], sets, "linear", weight)
            chosen_sizes.append(len(sets[k]))
            hits.append(label in sets[k])
        assert trace.mean_size[i] == pytest.approx(np.mean(chosen_sizes))
        assert trace.accuracy[i] == pytest.approx(np.mean(hits))


def test_bayes_needs_the_true_probabilities():
    file = sl.datasets.FeatureFile(*sl.datasets.digits().split(300, 300))
    with pytest.raises(ValueError, match="true probabilities"):
        solve(Task("Bayes", "digits", 300), ScoredFile(file, "full", 0))


def test_a_class_without_training_rows_has_probability_zero():
    data = sl.datasets.gaussian(600, n_classes=5, dimension=4, separation=1.0)
    fit, select, test = data.split(200, 200)
    scored = ScoredFile(sl.datasets.FeatureFile(fit[fit.y != 3], select, test), "full", 0)
    p = scored.probabilities(test)
    assert p.shape == (200, 5)
    assert (p[:, 3] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)


def test_an_unknown_method():
    file = sl.datasets.FeatureFile(*sl.datasets.gaussian(90, n_classes=4).split(40, 30))
    with pytest.raises(ValueError, match="method must be"):
        solve(Task("selector", "x", 30), ScoredFile(file, "full", 0, 1))


def test_an_outcome_records_the_training_of_the_classifier():
    file = sl.datasets.FeatureFile(*sl.datasets.gaussian(900, n_classes=4).split(400, 300))
    outcome = solve(Task("top-k", "x", 300), ScoredFile(file, "full", 0, 2))
    (record,) = outcome.trainings
    assert (record.trained, record.rows, record.epochs, record.max_epochs) == (
        "classifier", 400, 2, 2,
    )  # fmt: skip
    assert record.capped == 1
    assert outcome.capped
    assert outcome.versions["device"] == "cpu"


def test_top_k_can_be_read_between_its_sizes():
    file = sl.datasets.FeatureFile(*sl.datasets.gaussian(900, n_classes=4).split(400, 300))
    (trace,) = solve(Task("top-k", "x", 300), ScoredFile(file, "full", 0, 2)).traces
    curve = sl.Frontier(trace.accuracy, trace.mean_size, trace.parameter, trace.parameter_name)
    assert size_at(curve, sum(trace.accuracy[:2]) / 2) == pytest.approx(1.5)


def test_held_out_and_seen_rows():
    file = sl.datasets.FeatureFile(*sl.datasets.gaussian(900, n_classes=4).split(400, 300))
    scored = ScoredFile(file, "full", 0, 1)
    held_out = scored.rows(Task("LAC", "x", 100))
    seen = scored.rows(Task("LAC", "x", 100, protocol="seen"))
    assert len(held_out) == len(seen) == 100
    assert _count_common_rows(held_out.x, file.select.x) == 100
    assert _count_common_rows(held_out.x, file.fit.x) == 0
    assert _count_common_rows(seen.x, file.fit.x) == 100
    more = scored.rows(Task("LAC", "x", 200))
    assert np.array_equal(more.x[:100], held_out.x)


def _count_common_rows(rows, others) -> int:
    known = {row.tobytes() for row in others}
    return sum(row.tobytes() in known for row in rows)
