"""Bayes selectors against brute force, and against the selector that plugs probabilities in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from by_hand import top
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import as_score_type, draw, in_64ths

import shortlist as sl
from shortlist.theory import bayes_choice, deterministic_choice

few = settings(deadline=None, max_examples=80, derandomize=True)
COSTS: dict[str, Callable[[int], float]] = {
    "log": lambda size: math.log(size) if size else 0.0,
    "linear": float,
    "table": lambda size: [0.0, 0.25, 0.25, 0.5, 2.0, 2.0, 3.0][size],
}
TABLE = [0.25, 0.25, 0.5, 2.0, 2.0, 3.0]


def given_cost(name: str) -> object:
    return TABLE if name == "table" else name


@st.composite
def families(draw: st.DrawFn) -> tuple[list[float], list[list[int]]]:
    """Probabilities in 64ths, and any sets, in any order."""
    n = draw(st.integers(2, 6))
    cuts = sorted(draw(st.lists(st.integers(0, 64), min_size=n - 1, max_size=n - 1)))
    one = st.lists(st.integers(0, n - 1), unique=True, max_size=n)
    sets = draw(st.lists(one, min_size=1, max_size=5))
    return (np.diff([0, *cuts, 64]) / 64).tolist(), sets


def losses(p: Sequence[float], sets: list[list[int]], cost: str, weight: float) -> list[float]:
    """The expected loss of every set, label by label."""
    return [
        math.fsum(p[y] * ((y not in g) + weight * COSTS[cost](len(g))) for y in range(len(p)))
        for g in sets
    ]


@pytest.mark.parametrize("cost", COSTS)
@few
@given(families(), st.sampled_from([0.0, 1 / 64, 1 / 16, 0.25, 1.0, 4.0]))
def test_bayes_choice_is_the_last_of_the_least_expected_losses(cost, family, weight) -> None:
    p, sets = family
    each = losses(p, sets, cost, weight)
    best = max(k for k, loss in enumerate(each) if loss <= min(each) + 1e-11)
    assert bayes_choice(p, sets, given_cost(cost), weight) == best


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("seed", range(10))
def test_sizes_are_sets_of_the_most_probable_labels(cost, seed) -> None:
    rng = np.random.default_rng(seed)
    p = in_64ths(1, 6, seed)[0][0]
    sizes = rng.permutation(np.arange(1, 7))[: rng.integers(1, 7)]
    sets = [top(p, int(size)) for size in sizes]
    for weight in (0.0, 0.03, 0.2, 1.0):
        expected = bayes_choice(p, sets, given_cost(cost), weight)
        for given_sizes in (sizes, sizes.tolist(), tuple(sizes.tolist())):
            assert bayes_choice(p, given_sizes, given_cost(cost), weight) == expected


def test_ties_go_to_the_last_even_if_rounding_says_otherwise() -> None:
    assert bayes_choice([0.5, 0.25, 0.25], [1, 2, 3], "linear", 0.25) == 2
    assert bayes_choice([0.6, 0.3, 0.1], [1, 2, 3], "linear", 0.3) == 1
    assert bayes_choice([0.7, 0.2, 0.1], [1, 2, 3], "linear", 0.1) == 2
    assert bayes_choice([0.5, 0.5], [[0], [1], [0]], "log", 0.1) == 2


def test_a_larger_weight_never_makes_the_set_larger() -> None:
    for seed in range(20):
        p = np.random.default_rng(seed).dirichlet(np.ones(7))
        for cost in ("log", "linear"):
            found = [bayes_choice(p, range(1, 8), cost, w) for w in np.geomspace(1e-4, 10, 40)]
            assert found == sorted(found, reverse=True)
            assert (found[0], found[-1]) == (6, 0)


def test_an_empty_set_is_chosen_where_a_label_costs_more_than_it_holds() -> None:
    sets = [[], [0], [0, 1]]
    assert bayes_choice([0.6, 0.4], sets, "linear", 0.7) == 0
    assert bayes_choice([0.6, 0.4], sets, "linear", 0.5) == 1


@few
@given(families(), st.data(), st.sampled_from(list(COSTS)))
def test_deterministic_choice_is_the_first_of_the_least_losses(family, data, cost) -> None:
    p, sets = family
    y = data.draw(st.integers(0, len(p) - 1))
    for weight in (0.0, 0.01, 0.1, 0.4, 2.0):
        each = [(y not in g) + weight * COSTS[cost](len(g)) for g in sets]
        best = min(k for k, loss in enumerate(each) if loss <= min(each) + 1e-11)
        assert deterministic_choice(y, sets, given_cost(cost), weight) == best


@few
@given(st.permutations(range(6)), st.sets(st.integers(1, 6), min_size=1), st.integers(0, 5))
def test_where_costs_are_at_most_one_it_is_the_smallest_set_that_holds_the_label(
    order, sizes, y
) -> None:
    sets = [order[:size] for size in sorted(sizes)]
    holding = [k for k, g in enumerate(sets) if y in g]
    expected = holding[0] if holding else 0
    assert deterministic_choice(y, sets, "linear", 1 / 6.001) == expected
    assert deterministic_choice(y, sets, "log", 0.3) == expected


def test_a_certain_label_is_the_stochastic_case_with_all_mass_on_it() -> None:
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
        sl.TopK(sizes), given_cost(cost), weight, temperature=None, score_type="proba"
    ).fit(p, y)
    found = model.predict_set(p).labels()
    for row, labels in zip(p, found, strict=True):
        best = bayes_choice(row, sizes, given_cost(cost), weight)
        assert list(labels) == top(row, sizes[best])


def test_plug_in_selector_breaks_ties_as_the_bayes_selector_does() -> None:
    p, y = in_64ths(400, 5, seed=4)
    model = sl.PlugInSelector(
        sl.TopK([1, 2, 3, 4, 5]), "linear", 1 / 16, temperature=None, score_type="proba"
    ).fit(p, y)
    sizes = np.asarray(model.predict_set(p).sizes)
    expected = [bayes_choice(row, [1, 2, 3, 4, 5], "linear", 1 / 16) + 1 for row in p]
    assert sizes.tolist() == expected
    assert len({tuple(row) for row in p[(p == 4 / 64).any(axis=1)]}) > 20  # many rows with a tie


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="sizes must have at least one"):
        bayes_choice([0.5, 0.5], [])
    with pytest.raises(ValueError, match="k = 3 of 2 labels"):
        bayes_choice([0.5, 0.5], [1, 3])
    with pytest.raises(ValueError, match="p must be"):
        bayes_choice([0.5, 0.6], [1])
    for weight in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="cost_weight must be"):
            bayes_choice([0.5, 0.5], [1], "log", weight)
    with pytest.raises(ValueError, match="cost"):
        bayes_choice([0.5, 0.5], [1], "square")
