"""Bayes selectors agree with enumeration, and with the plug-in selector."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import top
from synthetic import as_score_type, draw, in_64ths

import shortlist as sl
from shortlist.theory import bayes_choice, deterministic_choice

few = settings(deadline=None, max_examples=40, derandomize=True)
COSTS: dict[str, Callable[[int], float]] = {
    "log": lambda size: math.log(size) if size else 0.0,
    "linear": float,
    "table": lambda size: [0.0, 0.25, 0.25, 0.5, 2.0, 2.0, 3.0][size],
}
TABLE = [0.25, 0.25, 0.5, 2.0, 2.0, 3.0]


def cost_argument(name: str) -> object:
    return TABLE if name == "table" else name


@st.composite
def families(draw: st.DrawFn) -> tuple[list[float], list[list[int]]]:
    """Draw probabilities that are multiples of 1/64, and a family of sets."""
    n = draw(st.integers(2, 6))
    cuts = sorted(draw(st.lists(st.integers(0, 64), min_size=n - 1, max_size=n - 1)))
    one = st.lists(st.integers(0, n - 1), unique=True, max_size=n)
    sets = draw(st.lists(one, min_size=1, max_size=5))
    return (np.diff([0, *cuts, 64]) / 64).tolist(), sets


def losses(p: Sequence[float], sets: list[list[int]], cost: str, weight: float) -> list[float]:
    """Return the expected loss of every set, as a sum over labels."""
    return [
        math.fsum(p[y] * ((y not in g) + weight * COSTS[cost](len(g))) for y in range(len(p)))
        for g in sets
    ]


@pytest.mark.parametrize("cost", COSTS)
@few
@given(families(), st.sampled_from([0.0, 1 / 64, 1 / 16, 0.25, 1.0, 4.0]))
def test_bayes_choice_is_the_last_set_with_the_smallest_expected_loss(cost, family, weight) -> None:
    p, sets = family
    each = losses(p, sets, cost, weight)
    best = max(k for k, loss in enumerate(each) if loss <= min(each) + 1e-11)
    assert bayes_choice(p, sets, cost_argument(cost), weight) == best


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("seed", range(10))
def test_sizes_stand_for_sets_of_the_most_probable_labels(cost, seed) -> None:
    rng = np.random.default_rng(seed)
    p = in_64ths(1, 6, seed)[0][0]
    sizes = rng.permutation(np.arange(1, 7))[: rng.integers(1, 7)]
    sets = [top(p, int(size)) for size in sizes]
    for weight in (0.0, 0.03, 0.2, 1.0):
        expected = bayes_choice(p, sets, cost_argument(cost), weight)
        for sequence in (sizes, sizes.tolist(), tuple(sizes.tolist())):
            assert bayes_choice(p, sequence, cost_argument(cost), weight) == expected


def test_ties_go_to_the_last_set_despite_rounding() -> None:
    assert bayes_choice([0.5, 0.25, 0.25], [1, 2, 3], "linear", 0.25) == 2
    assert bayes_choice([0.6, 0.3, 0.1], [1, 2, 3], "linear", 0.3) == 1
    assert bayes_choice([0.7, 0.2, 0.1], [1, 2, 3], "linear", 0.1) == 2
    assert bayes_choice([0.5, 0.5], [[0], [1], [0]], "log", 0.1) == 2


def test_a_larger_weight_never_gives_a_larger_set() -> None:
    for seed in range(20):
        p = np.random.default_rng(seed).dirichlet(np.ones(7))
        for cost in ("log", "linear"):
            result = [bayes_choice(p, range(1, 8), cost, w) for w in np.geomspace(1e-4, 10, 40)]
            assert result == sorted(result, reverse=True)
            assert (result[0], result[-1]) == (6, 0)


def test_an_empty_set_is_chosen_if_labels_cost_more_than_their_probability() -> None:
    sets = [[], [0], [0, 1]]
    assert bayes_choice([0.6, 0.4], sets, "linear", 0.7) == 0
    assert bayes_choice([0.6, 0.4], sets, "linear", 0.5) == 1


@few
@given(families(), st.data(), st.sampled_from(list(COSTS)))
def test_deterministic_choice_is_the_first_set_with_the_smallest_loss(family, data, cost) -> None:
    p, sets = family
    y = data.draw(st.integers(0, len(p) - 1))
    for weight in (0.0, 0.01, 0.1, 0.4, 2.0):
        each = [(y not in g) + weight * COSTS[cost](len(g)) for g in sets]
        best = min(k for k, loss in enumerate(each) if loss <= min(each) + 1e-11)
        assert deterministic_choice(y, sets, cost_argument(cost), weight) == best


@few
@given(st.permutations(range(6)), st.sets(st.integers(1, 6), min_size=1), st.integers(0, 5))
def test_with_costs_of_at_most_one_it_is_the_smallest_set_with_the_label(order, sizes, y) -> None:
    sets = [order[:size] for size in sorted(sizes)]
    containing = [k for k, g in enumerate(sets) if y in g]
    expected = containing[0] if containing else 0
    assert deterministic_choice(y, sets, "linear", 1 / 6.001) == expected
    assert deterministic_choice(y, sets, "log", 0.3) == expected


def test_for_a_certain_label_both_choices_agree() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        order = rng.permutation(5).tolist()
        sets = [order[:size] for size in (1, 2, 4)]
        y = int(rng.integers(5))
        assert deterministic_choice(y, sets, "log", 0.1) == bayes_choice(
            np.eye(5)[y], sets, "log", 0.1
        )


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("weight", [0.01, 0.05, 0.2])
def test_plug_in_selector_with_the_true_probabilities_is_the_bayes_selector(cost, weight) -> None:
    logits, y = draw(300, 6, seed=3)
    p, sizes = as_score_type(logits, "proba"), [1, 2, 4, 6]
    model = sl.PlugInSelector(
        sl.TopK(sizes), cost_argument(cost), weight, temperature=None, score_type="proba"
    ).fit(p, y)
    result = model.predict_set(p).labels()
    for row, labels in zip(p, result, strict=True):
        best = bayes_choice(row, sizes, cost_argument(cost), weight)
        assert list(labels) == top(row, sizes[best])


def test_plug_in_selector_breaks_ties_as_the_bayes_selector_does() -> None:
    p, y = in_64ths(400, 5, seed=4)
    model = sl.PlugInSelector(
        sl.TopK([1, 2, 3, 4, 5]), "linear", 1 / 16, temperature=None, score_type="proba"
    ).fit(p, y)
    sizes = np.asarray(model.predict_set(p).sizes)
    expected = [bayes_choice(row, [1, 2, 3, 4, 5], "linear", 1 / 16) + 1 for row in p]
    assert sizes.tolist() == expected
    assert len({tuple(row) for row in p[(p == 4 / 64).any(axis=1)]}) > 20  # Many rows have a tie.


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="sizes must contain at least one"):
        bayes_choice([0.5, 0.5], [])
    with pytest.raises(ValueError, match="k = 3 must be at most the number of labels, 2"):
        bayes_choice([0.5, 0.5], [1, 3])
    with pytest.raises(ValueError, match="p must be"):
        bayes_choice([0.5, 0.6], [1])
    for weight in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="cost_weight must be"):
            bayes_choice([0.5, 0.5], [1], "log", weight)
    with pytest.raises(ValueError, match="cost"):
        bayes_choice([0.5, 0.5], [1], "square")
