"""Regrets agree with enumeration, and infima with a numerical minimizer."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_definitions import COMP_SUM, LOSSES, definition, losses_with, with_exponents
from numpy.typing import NDArray
from reference import minimal_error, phi, top

from shortlist.theory import (
    best_top_k_error,
    cardinality_regret,
    expected_costs,
    hypothesis_definitions,
    surrogate_error,
    surrogate_infimum,
    surrogate_regret,
    top_k_error,
    top_k_regret,
)
from shortlist.theory.regret import distribution, top_k

few = settings(deadline=None, max_examples=25, derandomize=True)


@st.composite
def rows(draw: st.DrawFn) -> tuple[NDArray[np.float64], list[float], int]:
    """Draw probabilities that are multiples of 1/64, scores with ties, and k."""
    n = draw(st.integers(2, 6))
    cuts = sorted(draw(st.lists(st.integers(0, 64), min_size=n - 1, max_size=n - 1)))
    p = np.diff([0, *cuts, 64]) / 64
    scores = draw(st.lists(st.integers(-2, 2).map(float), min_size=n, max_size=n))
    return p, scores, draw(st.integers(1, n))


def random_distribution(seed: int, n: int, floor: float = 0.02) -> NDArray[np.float64]:
    """Draw a distribution without labels that are too rare for a numerical minimizer."""
    p = np.random.default_rng(seed).dirichlet(np.ones(n)) + floor
    return p / p.sum()


def random_costs(seed: int, members: int, n: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).uniform(0.05, 0.95, size=(members, n))


def weights(loss: str, p: NDArray[np.float64], costs=None) -> NDArray[np.float64]:
    """Return the weights of phi in the conditional error."""
    q = 1 - p if costs is None else costs @ p
    return 1 - q if loss in COMP_SUM else q


# The target losses


@few
@given(rows())
def test_ties_of_top_k_go_to_the_highest_index(row) -> None:
    _, scores, k = row
    assert top_k(scores, k).tolist() == top(scores, k)


@few
@given(rows())
def test_top_k_error_and_regret_agree_with_enumeration(row) -> None:
    p, scores, k = row
    errors = {kept: 1 - sum(p[list(kept)]) for kept in itertools.combinations(range(len(p)), k)}
    error = errors[tuple(sorted(top(scores, k)))]
    assert top_k_error(p, scores, k) == error  # Sums of multiples of 1/64 are exact.
    assert best_top_k_error(p, k) == min(errors.values())
    assert top_k_regret(p, scores, k) == error - min(errors.values())


@few
@given(rows(), st.floats(0.01, 100), st.floats(-50, 50))
def test_top_k_regret_depends_only_on_the_order_of_scores(row, scale, shift) -> None:
    p, scores, k = row
    moved = [scale * s + shift for s in scores]
    assert top_k_regret(p, moved, k) == top_k_regret(p, scores, k)


@pytest.mark.parametrize("seed", range(20))
def test_top_k_regret_does_not_depend_on_the_order_of_labels(seed) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    p, scores, k = random_distribution(seed, n), rng.normal(size=n), int(rng.integers(1, n + 1))
    order = rng.permutation(n)
    again = top_k_regret(p[order], scores[order], k)
    assert again == pytest.approx(top_k_regret(p, scores, k), abs=1e-15)


def test_the_set_of_all_labels_has_no_error() -> None:
    assert top_k_error([0.5, 0.25, 0.25], [0.0, 0.0, 0.0], 3) == 0
    assert top_k_regret([0.5, 0.25, 0.25], [3.0, 1.0, 2.0], 3) == 0


@pytest.mark.parametrize("seed", range(20))
def test_cardinality_regret_agrees_with_enumeration(seed) -> None:
    rng = np.random.default_rng(seed)
    n, members = int(rng.integers(2, 7)), int(rng.integers(1, 6))
    p, costs = random_distribution(seed, n), 3 * rng.random((members, n))  # Not normalized.
    errors = [math.fsum(p[y] * costs[k, y] for y in range(n)) for k in range(members)]
    assert expected_costs(p, costs) == pytest.approx(errors)
    result = [cardinality_regret(p, costs, choice) for choice in range(members)]
    assert result == pytest.approx([e - min(errors) for e in errors], abs=1e-12)
    assert min(result) == 0


# Errors of the surrogate losses


@pytest.mark.parametrize("loss", LOSSES)
@few
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=5), st.floats(0.05, 0.95), st.floats(0.1, 3))
def test_surrogate_error_is_the_expectation_of_the_loss(loss, scores, q, rho) -> None:
    n = len(scores)
    p = random_distribution(n, n)
    each = phi(loss, scores, q, rho)
    if loss in COMP_SUM:
        expected = sum(p[y] * each[y] for y in range(n))
    else:
        expected = sum(p[y] * sum(each[z] for z in range(n) if z != y) for y in range(n))
    assert surrogate_error(loss, p, scores, q=q, rho=rho) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@few
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=5), st.floats(0.05, 0.95), st.floats(0.1, 3))
def test_cost_sensitive_error_is_the_expectation_of_the_weighted_sum(loss, scores, q, rho) -> None:
    members = len(scores)
    p, costs = random_distribution(members, 3), random_costs(members, members, 3)
    each = phi(loss, scores, q, rho)
    weight = 1 - costs if loss in COMP_SUM else costs
    expected = sum(p[y] * sum(weight[k, y] * each[k] for k in range(members)) for y in range(3))
    result = surrogate_error(loss, p, scores, costs=costs, q=q, rho=rho)
    assert result == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_a_label_equals_a_cost_of_one_for_all_others(loss) -> None:
    p, scores, costs = random_distribution(0, 4), [0.3, -1.0, 2.0, 0.1], 1 - np.eye(4)
    for function, more in ((surrogate_error, (scores,)), (surrogate_infimum, ())):
        with_costs = function(loss, p, *more, costs=costs)
        assert with_costs == pytest.approx(function(loss, p, *more))


@pytest.mark.parametrize("loss", losses_with("infimum"))
@pytest.mark.parametrize("seed", range(5))
def test_errors_do_not_depend_on_a_shift_or_the_order_of_labels(loss, seed) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    p, scores, order = random_distribution(seed, n), rng.normal(size=n), rng.permutation(n)
    error, least = surrogate_error(loss, p, scores), surrogate_infimum(loss, p)
    assert surrogate_error(loss, p, scores + 7.0) == pytest.approx(error)
    assert surrogate_error(loss, p[order], scores[order]) == pytest.approx(error)
    assert surrogate_infimum(loss, p[order]) == pytest.approx(least)
    costs = random_costs(seed, 4, n)
    again = surrogate_infimum(loss, p, costs=costs[[2, 0, 3, 1]])
    assert again == pytest.approx(surrogate_infimum(loss, p, costs=costs))


# Infima


@pytest.mark.parametrize(("loss", "q"), with_exponents(losses_with("infimum"), (0.3, 0.7)))
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_infimum_agrees_with_a_minimizer(loss, n, q) -> None:
    for seed in range(3):
        p = random_distribution(seed, n)
        result = minimal_error(loss, weights(loss, p), q=q)
        assert surrogate_infimum(loss, p, q=q) == pytest.approx(result, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("loss", losses_with("infimum"))
@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_cost_sensitive_infimum_agrees_with_a_minimizer(loss, members) -> None:
    for seed in range(3):
        p, costs = random_distribution(seed, 3), random_costs(seed, members, 3)
        result = minimal_error(loss, weights(loss, p, costs))
        least = surrogate_infimum(loss, p, costs=costs)
        assert least == pytest.approx(result, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_the_best_scores_attain_the_infimum_or_approach_it(loss) -> None:
    for seed in range(10):
        p, q = random_distribution(seed, 2 + seed % 4, floor=0.0), 0.1 + 0.08 * seed
        regrets = [
            surrogate_regret(loss, p, definition(loss).best_scores(p, far, q), q=q)
            for far in (5.0, 10.0, 40.0)
        ]
        assert regrets[-1] == pytest.approx(0, abs=1e-12)
        if loss == "mae":
            assert regrets[0] > regrets[1] > 1e-6


@pytest.mark.parametrize("loss", losses_with("infimum"))
@few
@given(
    st.lists(st.floats(1e-6, 1), min_size=2, max_size=6),
    st.floats(0.02, 0.98),
    st.floats(0.1, 5),
    st.integers(0, 10**6),
)
def test_no_scores_have_an_error_below_the_infimum(loss, raw, q, rho, seed) -> None:
    p = np.array(raw) / sum(raw)
    rng = np.random.default_rng(seed)
    costs = random_costs(seed, 4, len(p))
    for scale in (0.1, 1.0, 5.0):
        scores = scale * rng.normal(size=len(p))
        assert surrogate_regret(loss, p, scores, q=q, rho=rho) >= -1e-12
        scores = scale * rng.normal(size=4)
        assert surrogate_regret(loss, p, scores, costs=costs, q=q, rho=rho) >= -1e-12


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_a_certain_label_has_infimum_zero(loss) -> None:
    assert surrogate_infimum(loss, [0.0, 1.0, 0.0]) == 0
    assert surrogate_infimum(loss, [0.5, 0.5], costs=[[1, 1], [0, 0]]) == 0


@pytest.mark.parametrize("loss", losses_with("infimum", family="comp_sum"))
def test_costs_of_one_have_infimum_zero(loss) -> None:
    assert surrogate_infimum(loss, [0.5, 0.5], costs=np.ones((3, 2))) == 0


def test_gce_lies_between_log_and_mae() -> None:
    p = random_distribution(3, 4)
    near_log, near_mae = surrogate_infimum("gce", p, q=1e-7), surrogate_infimum("gce", p, q=0.99)
    assert near_log == pytest.approx(surrogate_infimum("log", p), rel=1e-5)
    assert near_mae == pytest.approx(surrogate_infimum("mae", p), rel=0.02)


@pytest.mark.parametrize("loss", losses_with("infimum", family="constrained"))
def test_constrained_infima_are_homogeneous_in_the_costs(loss) -> None:
    p, costs = random_distribution(1, 3), random_costs(1, 4, 3)
    half = surrogate_infimum(loss, p, costs=costs / 2)
    assert half == pytest.approx(surrogate_infimum(loss, p, costs=costs) / 2)


# Invalid input


@pytest.mark.parametrize(
    "p",
    [
        [1.0],
        [],
        0.5,
        [[0.5, 0.5]],
        [0.5, 0.6],
        [1.2, -0.2],
        [0.5, math.nan],
        [0.3, 0.3],
        [0.5, 0.500001],
    ],
    ids=str,
)
def test_invalid_distributions_are_rejected(p) -> None:
    for function in (
        lambda: top_k_regret(p, [1.0, 0.0], 1),
        lambda: surrogate_error("log", p, [1.0, 0.0]),
        lambda: surrogate_infimum("hinge", p),
        lambda: expected_costs(p, [[0.0, 1.0]]),
    ):
        with pytest.raises(ValueError, match="p must be"):
            function()


@pytest.mark.parametrize("k", [0, 4, -1, 1.5, True])
def test_invalid_k_is_rejected(k) -> None:
    with pytest.raises(ValueError, match="k"):
        top_k_error([0.5, 0.3, 0.2], [1.0, 2.0, 3.0], k)


def test_costs_of_the_wrong_shape_are_rejected() -> None:
    for costs in ([0.0, 1.0], [[0.0, 1.0, 0.5]], np.zeros((2, 2, 2))):
        for function in (
            lambda costs=costs: expected_costs([0.5, 0.5], costs),
            lambda costs=costs: surrogate_infimum("log", [0.5, 0.5], costs=costs),
            lambda costs=costs: surrogate_error("log", [0.5, 0.5], [0.0, 1.0], costs=costs),
        ):
            with pytest.raises(ValueError, match="costs must have a row for each member"):
                function()


def test_costs_above_one_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"not in \[0, 1\]"):
        surrogate_error("log", [0.5, 0.5], [0.0, 1.0], costs=[[0, 2], [1, 1]])


def test_too_few_scores_are_rejected() -> None:
    with pytest.raises(ValueError, match="scores"):
        surrogate_error("log", [0.5, 0.5], [0.0])
    with pytest.raises(ValueError, match="labels"):
        surrogate_error("log", [0.5, 0.3, 0.2], [0.0, 1.0])


def test_an_unknown_loss_is_rejected_with_a_suggestion() -> None:
    for function in (
        lambda: surrogate_error("hing", [0.5, 0.5], [0.0, 1.0]),
        lambda: surrogate_infimum("hing", [0.5, 0.5]),
        lambda: surrogate_regret("hing", [0.5, 0.5], [0.0, 1.0]),
    ):
        with pytest.raises(ValueError, match="did you mean 'hinge'"):
            function()


def test_hypothesis_definitions_returns_a_copy() -> None:
    definitions = hypothesis_definitions()
    assert set(definitions) == {
        "regular",
        "symmetric",
        "complete",
        "closed under scaling",
        "realizable",
    }
    definitions.clear()
    assert hypothesis_definitions()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_probabilities_in_low_precision_are_rescaled(dtype):
    p = np.random.default_rng(0).dirichlet(np.ones(50), 20).astype(dtype)
    for row in p:
        result = distribution(row)
        assert abs(result.sum() - 1) < 1e-12
        np.testing.assert_allclose(result, row.astype(float), rtol=50 * np.finfo(dtype).eps)
    with pytest.raises(ValueError, match="sum to 1"):
        distribution((p[0] * 1.5).astype(dtype))
    with pytest.raises(ValueError, match="sum to 1"):
        distribution(np.array([0.5, 0.5 + 1e-6]))  # This is an error in double precision.
