"""How good sets are, against a loop over rows."""

from __future__ import annotations

import math

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


def test_lambda_zero_is_the_error_alone():
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


def test_no_rows_have_no_loss():
    none = PredictionSets.from_lists([], n_classes=3)
    assert math.isnan(metrics.cardinality_loss(none, [], cost_weight=0.5))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cost_weight": -0.5}, "cost_weight must be finite and not negative; got -0.5"),
        ({"cost_weight": math.nan}, "got nan"),
        ({"cost_weight": "small"}, "cost_weight must be a number; got 'small'"),
        ({"cost_weight": 1, "cost": "cubic"}, "got 'cubic'"),
        ({"cost_weight": 1, "cost": [3.0, 1.0]}, "cost(1) = 3, but cost(2) = 1"),
        ({"cost_weight": 1, "cost": {1: 1.0}}, "no entry for size 2"),
    ],
)
def test_weights_and_costs_that_are_refused(options, said):
    sets = PredictionSets.from_lists([[0], [1, 2]], n_classes=3)
    for ask in (metrics.loss_terms, metrics.cardinality_loss):
        with pytest.raises(ValueError, match="cost") as error:
            ask(sets, [0, 0], **options)
        assert said in str(error.value)


def test_labels_that_are_refused():
    sets = PredictionSets.from_lists([[0], [1, 2]], n_classes=3)
    for y, said in [([0], "y has 1 labels"), ([0, 3], r"y\[1\] = 3"), ([0.5, 1.5], "first: 0.5")]:
        with pytest.raises(ValueError, match=said):
            metrics.accuracy(sets, y)
        with pytest.raises(ValueError, match=said):
            metrics.cardinality_loss(sets, y, cost_weight=0.1)
