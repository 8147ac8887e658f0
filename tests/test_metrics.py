"""Metrics against loops over rows."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist import metrics
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

COSTS = {
    "log": lambda size: math.log(size) if size else 0.0,
    "linear": float,
    "squares": lambda size: float(size**2),
}


def brute_terms(lists, y, cost, weight) -> tuple[float, float]:
    """Return the two terms of the target loss."""
    misses = [0 if label in row else 1 for row, label in zip(lists, y, strict=True)]
    sizes = [weight * cost(len(row)) for row in lists]
    return sum(misses) / len(lists), sum(sizes) / len(lists)


cases = st.lists(
    st.tuples(st.lists(st.integers(0, 5), unique=True, max_size=6), st.integers(0, 5)),
    min_size=1,
    max_size=10,
)


@given(cases, st.sampled_from(list(COSTS)), st.floats(0, 5))
@settings(max_examples=80, deadline=None)
def test_the_target_loss_is_a_mean_over_rows(rows, name, weight):
    lists, y = [row for row, _ in rows], [label for _, label in rows]
    sets = PredictionSets.from_lists(lists, n_classes=6)
    miss, size = brute_terms(lists, y, COSTS[name], weight)
    cost = name if name in ("log", "linear") else COSTS[name]
    terms = metrics.loss_terms(sets, y, cost=cost, cost_weight=weight)
    assert terms.miss == pytest.approx(miss)
    assert terms.size == pytest.approx(size)
    loss = metrics.cardinality_loss(sets, y, cost=cost, cost_weight=weight)
    assert loss == terms.miss + terms.size
    assert metrics.accuracy(sets, y) == pytest.approx(1 - miss)
    assert metrics.mean_size(sets) == pytest.approx(sum(map(len, lists)) / len(lists))


def test_the_loss_is_log_cost_by_default():
    sets = PredictionSets.from_lists([[0, 1, 2], [1]], n_classes=4)
    assert metrics.cardinality_loss(sets, [0, 0], cost_weight=0.5) == pytest.approx(
        0.5 + 0.5 * math.log(3) / 2
    )


def test_with_lambda_zero_the_loss_is_the_error():
    sets = PredictionSets.from_lists([[0, 1], [1], [2]], n_classes=4)
    assert metrics.loss_terms(sets, [0, 0, 0], cost_weight=0) == (pytest.approx(2 / 3), 0.0)


def test_numpy_torch_and_names_agree():
    scores = np.random.default_rng(0).random((20, 5))
    sizes, y = np.arange(20) % 6, np.arange(20) % 5
    names = np.array(list("abcde"))
    values = [
        metrics.cardinality_loss(
            PredictionSets.from_ranking(ranking, sizes), labels, cost_weight=0.3
        )
        for ranking, labels in [
            (Ranking.from_scores(scores), y),
            (Ranking.from_scores(torch.from_numpy(scores)), torch.from_numpy(y)),
            (Ranking.from_scores(scores, classes=names), names[y]),
        ]
    ]
    assert values[0] == values[1] == values[2] > 0


def test_the_loss_of_no_rows_is_nan():
    empty = PredictionSets.from_lists([], n_classes=3)
    assert math.isnan(metrics.cardinality_loss(empty, [], cost_weight=0.5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost_weight": -0.5}, "cost_weight must be finite and not negative; got -0.5"),
        ({"cost_weight": math.nan}, "got nan"),
        ({"cost_weight": "small"}, "cost_weight must be a number; got 'small'"),
        ({"cost_weight": 1, "cost": "cubic"}, "got 'cubic'"),
        ({"cost_weight": 1, "cost": [3.0, 1.0]}, "cost(1) = 3, but cost(2) = 1"),
        ({"cost_weight": 1, "cost": {1: 1.0}}, "no entry for size 2"),
    ],
)
def test_invalid_weights_and_costs_raise(options, message):
    sets = PredictionSets.from_lists([[0], [1, 2]], n_classes=3)
    for metric in (metrics.loss_terms, metrics.cardinality_loss):
        with pytest.raises(ValueError, match="cost") as error:
            metric(sets, [0, 0], **options)
        assert message in str(error.value)


def test_invalid_labels_raise():
    sets = PredictionSets.from_lists([[0], [1, 2]], n_classes=3)
    for y, message in [
        ([0], "y has 1 labels"),
        ([0.5, 1.5], "first: 0.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            metrics.accuracy(sets, y)
        with pytest.raises(ValueError, match=message):
            metrics.cardinality_loss(sets, y, cost_weight=0.1)


# Strata and classes


def brute_violation(lists, y, accuracy, bins, min_rows) -> float:
    """Return the largest gap of a stratum with enough rows."""
    gaps = []
    for low, high in zip([-1, *bins], [*bins, math.inf], strict=True):
        inside = [
            label in row for row, label in zip(lists, y, strict=True) if low < len(row) <= high
        ]
        if len(inside) >= min_rows:
            gaps.append(abs(sum(inside) / len(inside) - accuracy))
    return max(gaps, default=math.nan)


@given(
    cases,
    st.floats(0.01, 0.99),
    st.lists(st.integers(0, 7), unique=True, max_size=4).map(sorted),
    st.integers(1, 4),
    st.randoms(),
)
@settings(max_examples=120, deadline=None)
def test_the_violation_by_brute_force_in_any_order(rows, accuracy, bins, min_rows, random):
    lists, y = [row for row, _ in rows], [label for _, label in rows]
    options = {"bins": bins, "min_rows": min_rows}
    sets = PredictionSets.from_lists(lists, n_classes=6)
    got = metrics.size_stratified_violation(sets, y, accuracy, **options)
    assert got == pytest.approx(brute_violation(lists, y, accuracy, bins, min_rows), nan_ok=True)
    order = random.sample(range(len(y)), len(y))
    shuffled = metrics.size_stratified_violation(
        sets[order], [y[i] for i in order], accuracy, **options
    )
    assert shuffled == got or math.isnan(got)


def sets_of_sizes(sizes, n_classes=200) -> PredictionSets:
    """Return sets of the first labels."""
    return PredictionSets.from_lists([range(size) for size in sizes], n_classes=n_classes)


@pytest.mark.parametrize(
    ("size", "stratum"),
    [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (10, 2), (11, 3), (100, 3), (101, 4), (199, 4)],
)
def test_the_strata_are_those_of_the_paper(size, stratum):
    """A miss is averaged with three hits of another size only in the same stratum."""
    for other, other_size in enumerate([1, 3, 10, 100, 150]):
        sets = sets_of_sizes([size, other_size, other_size, other_size])
        got = metrics.size_stratified_violation(sets, [199, 0, 0, 0], 0.75, min_rows=1)
        assert got == (0.0 if other == stratum else 0.75)


def test_strata_with_few_rows_are_ignored():
    sets, y = sets_of_sizes([1] * 30 + [5] * 29), [0] * 27 + [199] * 32
    assert metrics.size_stratified_violation(sets, y, 0.9) == pytest.approx(0)
    assert metrics.size_stratified_violation(sets, y, 0.9, min_rows=29) == pytest.approx(0.9)
    assert math.isnan(metrics.size_stratified_violation(sets, y, 0.9, min_rows=31))


def test_a_surplus_counts_as_much_as_a_shortfall():
    sets = sets_of_sizes([1] * 40)
    assert metrics.size_stratified_violation(sets, [0] * 40, 0.9) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accuracy": 1.5}, "accuracy must lie strictly between 0 and 1; got 1.5"),
        ({"bins": [3, 1]}, "bins must increase; got [3, 1]"),
        ({"bins": [1, 1]}, "bins must increase; got [1, 1]"),
        ({"bins": [0.5]}, "each size of bins must be an integer of at least 0; got 0.5"),
        ({"min_rows": 0}, "min_rows must be an integer of at least 1; got 0"),
        ({"y": [0]}, "y has 1 labels"),
    ],
)
def test_invalid_strata_raise(options, message):
    arguments = {"y": [0, 0], "accuracy": 0.9} | options
    with pytest.raises(ValueError, match=re.escape(message)):
        metrics.size_stratified_violation(sets_of_sizes([1, 2]), **arguments)


@given(cases, st.randoms())
@settings(max_examples=80, deadline=None)
def test_accuracy_by_class_by_brute_force_in_any_order(rows, random):
    lists, y = [row for row, _ in rows], [label for _, label in rows]
    sets = PredictionSets.from_lists(lists, n_classes=6)
    got = metrics.class_accuracy(sets, y)
    assert got.shape == (6,)
    for label in range(6):
        hits = [label in row for row, true in zip(lists, y, strict=True) if true == label]
        assert got[label] == pytest.approx(sum(hits) / len(hits) if hits else math.nan, nan_ok=True)
    order = random.sample(range(len(y)), len(y))
    np.testing.assert_array_equal(metrics.class_accuracy(sets[order], [y[i] for i in order]), got)
    weights = np.bincount(y, minlength=6) / len(y)
    assert np.nansum(got * weights) == pytest.approx(metrics.accuracy(sets, y))


def test_accuracy_by_class_is_in_the_order_of_the_classes():
    names = np.array(["b", "a", "c"])
    ranking = Ranking.from_scores(torch.eye(3), classes=names)
    sets = PredictionSets.from_ranking(ranking, torch.tensor([1, 1, 1]))
    got = metrics.class_accuracy(sets, ["b", "b", "c"])
    np.testing.assert_array_equal(got, [0.5, np.nan, 1.0])
    assert dict(zip(sets.classes.tolist(), got, strict=True))["c"] == 1.0


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_the_share_of_sets_with_one_label(sizes):
    got = metrics.single_share(sets_of_sizes(sizes, 5))
    assert got == pytest.approx(sizes.count(1) / len(sizes))
    assert metrics.single_share(sets_of_sizes(sorted(sizes), 5)) == got


def test_metrics_of_no_rows_are_nan():
    empty = PredictionSets.from_lists([], n_classes=3)
    assert math.isnan(metrics.single_share(empty))
    assert math.isnan(metrics.size_stratified_violation(empty, [], 0.9))
    assert np.isnan(metrics.class_accuracy(empty, [])).tolist() == [True] * 3
