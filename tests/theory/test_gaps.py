"""Minimizability gaps, and the two examples that are made for a purpose."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from by_hand import phi
from loss_definitions import losses_with
from numpy.typing import NDArray
from scipy.optimize import linprog

from shortlist.losses import from_name
from shortlist.theory import (
    FiniteDistribution,
    max_loss_example,
    minimizability_gap,
    surrogate_error,
    surrogate_infimum,
    top_k_bound,
    top_k_error,
    top_two_example,
)


def drawn(seed: int, inputs: int = 3, features: int = 1, n: int = 3) -> FiniteDistribution:
    rng = np.random.default_rng(seed)
    return FiniteDistribution.of(
        rng.normal(size=(inputs, features)),
        rng.dirichlet(np.ones(n), size=inputs),
        rng.dirichlet(np.ones(inputs)),
    )


def expected_error(loss: str, data: FiniteDistribution, weights: NDArray[np.float64]) -> float:
    each = [surrogate_error(loss, p, x @ weights) for x, p in zip(data.x, data.p, strict=True)]
    return float(data.weights @ each)


def separable() -> FiniteDistribution:
    """Three labels at three inputs, each certain; a constant is a feature."""
    return FiniteDistribution.of([[1, 0, 1], [0, 1, 1], [-1, -1, 1]], np.eye(3))


@pytest.mark.parametrize("loss", losses_with("infimum"))
@pytest.mark.parametrize("seed", range(4))
def test_gap_lies_between_zero_and_the_approximation_error(loss, seed) -> None:
    data = drawn(seed)
    found = minimizability_gap(loss, data, starts=3)
    everything = float(data.weights @ [surrogate_infimum(loss, p) for p in data.p])
    assert found.conditional == pytest.approx(everything)
    assert -1e-9 <= found.gap <= found.approximation + 1e-12
    assert found.gap == pytest.approx(found.least - everything)
    assert found.least == pytest.approx(expected_error(loss, data, found.weights))
    at_zero = expected_error(loss, data, np.zeros((1, 3)))
    assert found.least <= at_zero + 1e-12


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_no_linear_predictor_has_less_than_the_least(loss) -> None:
    rng = np.random.default_rng(0)
    data = drawn(5)
    least = minimizability_gap(loss, data, starts=12).least
    others = [
        expected_error(loss, data, rng.normal(size=(1, 3)) * rng.choice([0.2, 1.0, 5.0]))
        for _ in range(200)
    ]
    assert min(others) >= least - 1e-9


@pytest.mark.parametrize("loss", ["log", "exp", "constrained_exp", "squared_hinge"])
def test_least_error_of_a_convex_loss_does_not_depend_on_the_start(loss) -> None:
    data = drawn(6, inputs=4, features=2)
    one = minimizability_gap(loss, data, starts=1).least
    assert minimizability_gap(loss, data, starts=4, seed=9).least == pytest.approx(one, abs=1e-8)


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_gap_of_all_functions_is_zero(loss) -> None:
    found = minimizability_gap(loss, drawn(1), hypotheses="all")
    assert found.gap == 0
    assert found.weights is None


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_gap_of_one_input_is_zero(loss) -> None:
    data = FiniteDistribution.of([[1.0]], [[0.2, 0.45, 0.35]])
    gap = minimizability_gap(loss, data, starts=12).gap
    assert gap == pytest.approx(0, abs=1e-3 if loss in ("mae", "hinge", "margin") else 1e-7)


@pytest.mark.parametrize("loss", ["log", "exp", "constrained_exp", "squared_hinge"])
def test_gap_is_zero_where_every_input_has_a_feature_of_its_own(loss) -> None:
    rng = np.random.default_rng(2)
    data = FiniteDistribution.of(np.eye(3), rng.dirichlet(np.full(3, 5.0), size=3))
    assert minimizability_gap(loss, data, starts=1).gap == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_realizable_data_have_next_to_no_gap_and_no_error(loss) -> None:
    data = separable()
    found = minimizability_gap(loss, data, starts=6)
    assert found.conditional == 0
    assert 0 <= found.gap < 1e-3
    assert data.top_k_error(found.weights, 1) == 0


def test_gap_is_that_of_the_best_constant_where_inputs_cannot_be_told_apart() -> None:
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    data = FiniteDistribution.of([[1.0], [1.0]], p, [0.25, 0.75])
    mixed = 0.25 * p[0] + 0.75 * p[1]
    for loss in ("log", "exp", "constrained_exp", "squared_hinge"):
        expected = surrogate_infimum(loss, mixed) - sum(
            w * surrogate_infimum(loss, row) for w, row in zip((0.25, 0.75), p, strict=True)
        )
        assert minimizability_gap(loss, data, starts=1).gap == pytest.approx(expected, abs=1e-8)


def test_top_k_error_of_a_linear_predictor_is_the_mean_over_inputs() -> None:
    rng = np.random.default_rng(3)
    data = drawn(7, inputs=5, features=2, n=4)
    weights = rng.normal(size=(2, 4))
    for k in (1, 2, 3, 4):
        each = [top_k_error(p, x @ weights, k) for x, p in zip(data.x, data.p, strict=True)]
        assert data.top_k_error(weights, k) == pytest.approx(data.weights @ each)


def test_inputs_are_equally_likely_if_nothing_is_said() -> None:
    data = FiniteDistribution.of([[1.0], [2.0], [3.0], [4.0]], [[0.5, 0.5]] * 4)
    assert data.weights.tolist() == [0.25] * 4


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="x has 1 inputs, p 2"):
        FiniteDistribution.of([[1.0]], [[0.5, 0.5]] * 2)
    with pytest.raises(ValueError, match="and weights 3"):
        FiniteDistribution.of([[1.0]] * 2, [[0.5, 0.5]] * 2, [0.2, 0.3, 0.5])
    with pytest.raises(ValueError, match="p must be"):
        FiniteDistribution.of([[1.0]] * 2, [[0.5, 0.6]] * 2)
    with pytest.raises(ValueError, match="hypotheses must be one of"):
        minimizability_gap("log", drawn(0), hypotheses="networks")
    with pytest.raises(ValueError, match="loss must be one of"):
        minimizability_gap("max", drawn(0))


# Realizable for top-2, and yet the surrogates' minimisers err


def two_example_error(loss: str, weights: torch.Tensor, e: float, q: float) -> torch.Tensor:
    """At x = -1 always label 1; at x = 1 label 0, or label 1 with probability e."""
    module = from_name(loss, q=q, cost_sensitive=False, reduction="none")
    left, right = -weights[None], weights[None]
    one, zero = torch.tensor([1]), torch.tensor([0])
    wrong = (1 - e) * module(right, zero) + e * module(right, one)
    return (0.5 * module(left, one) + 0.5 * wrong).sum()


@pytest.mark.parametrize("e", [0.02, 0.1, 0.3])
def test_top_two_example_is_realizable_for_two_labels(e) -> None:
    data, weights = top_two_example(e)
    assert data.p.tolist() == [[0, 1, 0], [1 - e, e, 0]]
    assert data.weights.tolist() == [0.5, 0.5]
    assert data.top_k_error(weights, 2) == 0
    for x, p in zip(data.x, data.p, strict=True):
        scores = (x @ weights).tolist()
        third = sorted(scores)[0]
        assert all(scores[y] > third for y in range(3) if p[y] > 0)


@pytest.mark.parametrize("e", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("loss", ["log", "exp"])
def test_minimisers_of_convex_losses_err_on_the_top_two_example(loss, e) -> None:
    data, _ = top_two_example(e)
    found = minimizability_gap(loss, data, starts=1)
    assert data.top_k_error(found.weights, 2) == pytest.approx(e / 2)
    weights = torch.tensor(found.weights[0], requires_grad=True)
    error = two_example_error(loss, weights, e, 0.7)
    (slope,) = torch.autograd.grad(error, weights)
    assert slope.abs().max() < 1e-4
    assert error.item() == pytest.approx(found.least)
    bound = top_k_bound(loss, found.gap, n=3, k=2)  # what the gap allows
    assert e / 2 <= bound


@pytest.mark.parametrize("loss", losses_with("infimum", family="comp_sum"))
@pytest.mark.parametrize("q", [0.3, 0.7])
def test_no_predictor_right_for_two_labels_comes_near_the_least_error(loss, q) -> None:
    e = 0.1
    data, _ = top_two_example(e)
    found = minimizability_gap(loss, data, starts=12, q=q)
    assert data.top_k_error(found.weights, 2) == pytest.approx(e / 2)
    # Those that are right have label 1 between the two others.
    best = math.inf
    for steps in np.random.default_rng(0).exponential(3.0, size=(400, 2)) * np.array([1, 0.5]):
        for a, c in ((steps[0], -steps[1]), (-steps[0], steps[1])):
            h = np.array([a, 0.0, c])
            error = 0.5 * phi(loss, -h, q)[1] + 0.5 * (phi(loss, h, q) @ [1 - e, e, 0])
            best = min(best, float(error))
    assert best > found.least + 0.02


@pytest.mark.parametrize("loss", ["mae", "gce"])
def test_an_explicit_sequence_reaches_the_least_error_and_errs(loss) -> None:
    e, q = 0.1, 0.9
    data, _ = top_two_example(e)
    least = minimizability_gap(loss, data, starts=12, q=q).least
    sequence = [np.array([[far, -far, 0.0]]) for far in (2.0, 8.0, 20.0)]
    errors = [
        float(
            data.weights
            @ [surrogate_error(loss, p, x @ w, q=q) for x, p in zip(data.x, data.p, strict=True)]
        )
        for w in sequence
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] == pytest.approx(least, abs=1e-3)
    for w in sequence:
        assert data.top_k_error(w, 2) == pytest.approx(e / 2)


# Max losses


def test_max_loss_example_by_a_linear_programme() -> None:
    p, scores, surrogate, target = max_loss_example()
    n = len(p)
    # Over h and t_y >= max(0, 1 - h_y + h_z) for all z != y.
    rows = []
    for y in range(n):
        for z in range(n):
            if z != y:
                row = np.zeros(2 * n)
                row[y], row[z], row[n + y] = -1, 1, -1
                rows.append(row)
    programme = linprog(
        np.r_[np.zeros(n), p],
        np.array(rows),
        -np.ones(len(rows)),
        bounds=[(None, None)] * n + [(0, None)] * n,
    )

    def error(h: NDArray[np.float64]) -> float:
        return sum(
            p[y] * max(0.0, *(1 - h[y] + h[z] for z in range(n) if z != y)) for y in range(n)
        )

    assert programme.fun == pytest.approx(error(scores)) == pytest.approx(1)
    assert surrogate == 0
    assert target == pytest.approx(top_k_error(p, scores, 1) - (1 - p.max()))
    assert target > 0.05
