"""Minimizability gaps, and the examples for top-2 and for max losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from loss_definitions import losses_with
from numpy.typing import NDArray
from reference import phi
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


def random_data(seed: int, inputs: int = 3, features: int = 1, n: int = 3) -> FiniteDistribution:
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
    """Return three inputs with one certain label each. The third feature is constant."""
    return FiniteDistribution.of([[1, 0, 1], [0, 1, 1], [-1, -1, 1]], np.eye(3))


@pytest.mark.parametrize("loss", losses_with("infimum"))
@pytest.mark.parametrize("seed", range(4))
def test_gap_lies_between_zero_and_the_approximation_error(loss, seed) -> None:
    data = random_data(seed)
    result = minimizability_gap(loss, data, starts=3)
    everything = float(data.weights @ [surrogate_infimum(loss, p) for p in data.p])
    assert result.conditional == pytest.approx(everything)
    assert -1e-9 <= result.gap <= result.approximation + 1e-12
    assert result.gap == pytest.approx(result.least - everything)
    assert result.least == pytest.approx(expected_error(loss, data, result.weights))
    at_zero = expected_error(loss, data, np.zeros((1, 3)))
    assert result.least <= at_zero + 1e-12


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_no_linear_predictor_has_a_smaller_error(loss) -> None:
    rng = np.random.default_rng(0)
    data = random_data(5)
    least = minimizability_gap(loss, data, starts=12).least
    others = [
        expected_error(loss, data, rng.normal(size=(1, 3)) * rng.choice([0.2, 1.0, 5.0]))
        for _ in range(200)
    ]
    assert min(others) >= least - 1e-9


@pytest.mark.parametrize("loss", ["log", "exp", "constrained_exp", "squared_hinge"])
def test_the_smallest_error_of_a_convex_loss_does_not_depend_on_the_start(loss) -> None:
    data = random_data(6, inputs=4, features=2)
    one = minimizability_gap(loss, data, starts=1).least
    assert minimizability_gap(loss, data, starts=4, seed=9).least == pytest.approx(one, abs=1e-8)


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_gap_of_all_functions_is_zero(loss) -> None:
    result = minimizability_gap(loss, random_data(1), hypotheses="all")
    assert result.gap == 0
    assert result.weights is None


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_gap_of_the_input_zero_is_zero(loss) -> None:
    """All linear predictors have the scores zero there, and therefore the same error."""
    data = FiniteDistribution.of([[0.0]], [[0.7, 0.3]])
    result = minimizability_gap(loss, data, starts=2)
    at_zero = surrogate_error(loss, [0.7, 0.3], [0.0, 0.0])
    assert result.gap == pytest.approx(0, abs=1e-12)
    assert result.least == result.conditional == pytest.approx(at_zero)
    assert result.approximation == pytest.approx(at_zero - surrogate_infimum(loss, [0.7, 0.3]))
    assert result.approximation > 0.05


def test_approximation_error_of_log_at_the_input_zero_is_the_difference_of_entropies() -> None:
    result = minimizability_gap("log", FiniteDistribution.of([[0.0]], [[0.7, 0.3]]))
    entropy = -0.7 * math.log(0.7) - 0.3 * math.log(0.3)
    assert result.gap == 0
    assert result.approximation == pytest.approx(math.log(2) - entropy)


@pytest.mark.parametrize("loss", ["log", "exp", "constrained_exp", "squared_hinge"])
def test_gap_with_the_input_zero_counts_the_other_inputs_only(loss) -> None:
    """The scores at zero do not depend on the weights, so that they contribute no gap."""
    x, p = [[1.0], [-1.0]], [[0.9, 0.1], [0.8, 0.2]]
    two = minimizability_gap(loss, FiniteDistribution.of(x, p), starts=1)
    with_zero = FiniteDistribution.of([*x, [0.0]], [*p, [0.6, 0.4]], [0.25, 0.25, 0.5])
    three = minimizability_gap(loss, with_zero, starts=1)
    assert two.gap > 0.1
    assert three.gap == pytest.approx(two.gap / 2, abs=1e-9)
    assert three.approximation > three.gap + 1e-3


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_gap_of_one_input_is_zero(loss) -> None:
    data = FiniteDistribution.of([[1.0]], [[0.2, 0.45, 0.35]])
    gap = minimizability_gap(loss, data, starts=12).gap
    assert gap == pytest.approx(0, abs=1e-3 if loss in ("mae", "hinge", "margin") else 1e-7)


@pytest.mark.parametrize("loss", ["log", "exp", "constrained_exp", "squared_hinge"])
def test_gap_is_zero_if_every_input_has_its_own_feature(loss) -> None:
    rng = np.random.default_rng(2)
    data = FiniteDistribution.of(np.eye(3), rng.dirichlet(np.full(3, 5.0), size=3))
    assert minimizability_gap(loss, data, starts=1).gap == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("loss", losses_with("infimum"))
def test_separable_data_have_almost_no_gap_and_no_error(loss) -> None:
    data = separable()
    result = minimizability_gap(loss, data, starts=6)
    assert result.conditional == 0
    assert 0 <= result.gap < 1e-3
    assert data.top_k_error(result.weights, 1) == 0


@pytest.mark.parametrize("hypotheses", ["linear", "all"])
def test_equal_inputs_are_one_input_with_the_mean_probabilities(hypotheses) -> None:
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    mixed = 0.25 * p[0] + 0.75 * p[1]
    for x in ([[1.0], [1.0]], [[0.0], [-0.0]]):
        data = FiniteDistribution.of(x, p, [0.25, 0.75])
        one = FiniteDistribution.of(x[:1], [mixed])
        for loss in ("log", "exp", "constrained_exp", "squared_hinge"):
            result = minimizability_gap(loss, data, hypotheses=hypotheses, starts=1)
            expected = minimizability_gap(loss, one, hypotheses=hypotheses, starts=1)
            assert result.gap == pytest.approx(0, abs=1e-8)
            assert result.conditional == pytest.approx(expected.conditional)
            assert result.approximation == pytest.approx(expected.approximation, abs=1e-8)


def test_inputs_of_probability_zero_do_not_matter() -> None:
    data = FiniteDistribution.of([[1.0], [2.0]], [[0.9, 0.1], [0.2, 0.8]], [1.0, 0.0])
    assert minimizability_gap("log", data).gap == pytest.approx(0, abs=1e-8)


def test_top_k_error_of_a_linear_predictor_is_the_mean_over_inputs() -> None:
    rng = np.random.default_rng(3)
    data = random_data(7, inputs=5, features=2, n=4)
    weights = rng.normal(size=(2, 4))
    for k in (1, 2, 3, 4):
        each = [top_k_error(p, x @ weights, k) for x, p in zip(data.x, data.p, strict=True)]
        assert data.top_k_error(weights, k) == pytest.approx(data.weights @ each)


def test_inputs_are_equally_likely_by_default() -> None:
    data = FiniteDistribution.of([[1.0], [2.0], [3.0], [4.0]], [[0.5, 0.5]] * 4)
    assert data.weights.tolist() == [0.25] * 4


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="x has 1 inputs, p has 2"):
        FiniteDistribution.of([[1.0]], [[0.5, 0.5]] * 2)
    with pytest.raises(ValueError, match="and weights has 3"):
        FiniteDistribution.of([[1.0]] * 2, [[0.5, 0.5]] * 2, [0.2, 0.3, 0.5])
    with pytest.raises(ValueError, match="p must be"):
        FiniteDistribution.of([[1.0]] * 2, [[0.5, 0.6]] * 2)
    with pytest.raises(ValueError, match="hypotheses must be one of"):
        minimizability_gap("log", random_data(0), hypotheses="networks")
    with pytest.raises(ValueError, match="loss must be one of"):
        minimizability_gap("max", random_data(0))


# Data that are realizable for top-2, on which surrogate minimizers have a top-2 error


def two_example_error(loss: str, weights: torch.Tensor, e: float, q: float) -> torch.Tensor:
    """Return the expected loss. At x = -1 the label is 1; at x = 1 it is 1 with probability e."""
    module = from_name(loss, q=q, cost_sensitive=False, reduction="none")
    at_minus_one, at_one = -weights[None], weights[None]
    one, zero = torch.tensor([1]), torch.tensor([0])
    loss_at_one = (1 - e) * module(at_one, zero) + e * module(at_one, one)
    return (0.5 * module(at_minus_one, one) + 0.5 * loss_at_one).sum()


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
def test_minimizers_of_convex_losses_have_an_error_on_the_top_two_example(loss, e) -> None:
    data, _ = top_two_example(e)
    result = minimizability_gap(loss, data, starts=1)
    assert data.top_k_error(result.weights, 2) == pytest.approx(e / 2)
    weights = torch.tensor(result.weights[0], requires_grad=True)
    error = two_example_error(loss, weights, e, 0.7)
    (slope,) = torch.autograd.grad(error, weights)
    assert slope.abs().max() < 1e-4
    assert error.item() == pytest.approx(result.least)
    bound = top_k_bound(loss, result.gap, n=3, k=2)  # The top-2 regret that the gap allows.
    assert e / 2 <= bound


@pytest.mark.parametrize("q", [0.3, 0.5, 0.7])
def test_the_gap_of_gce_allows_the_top_two_error(q) -> None:
    data, _ = top_two_example(0.1)
    result = minimizability_gap("gce", data, q=q)
    assert result.gap > 1e-4
    assert data.top_k_error(result.weights, 2) == pytest.approx(0.05)
    assert top_k_bound("gce", result.gap, n=3, k=2, q=q) >= 0.05


@pytest.mark.parametrize("e", [0.05, 0.1, 0.2])
def test_mae_has_a_top_two_error_without_a_gap(e) -> None:
    """No bound explains this error by the gap, because mae is not consistent for k = 2."""
    data, _ = top_two_example(e)
    result = minimizability_gap("mae", data, starts=12)
    assert result.gap == pytest.approx(0, abs=1e-6)
    assert data.top_k_error(result.weights, 2) == pytest.approx(e / 2)
    assert top_k_bound("mae", 0.0, n=3, k=2) == math.inf


@pytest.mark.parametrize("loss", losses_with("infimum", family="comp_sum"))
@pytest.mark.parametrize("q", [0.3, 0.7])
def test_no_predictor_without_top_two_error_is_near_the_smallest_loss(loss, q) -> None:
    e = 0.1
    data, _ = top_two_example(e)
    result = minimizability_gap(loss, data, starts=12, q=q)
    assert data.top_k_error(result.weights, 2) == pytest.approx(e / 2)
    # Weights without top-2 error rank label 1 between the two others.
    best = math.inf
    for steps in np.random.default_rng(0).exponential(3.0, size=(400, 2)) * np.array([1, 0.5]):
        for a, c in ((steps[0], -steps[1]), (-steps[0], steps[1])):
            h = np.array([a, 0.0, c])
            error = 0.5 * phi(loss, -h, q)[1] + 0.5 * (phi(loss, h, q) @ [1 - e, e, 0])
            best = min(best, float(error))
    assert best > result.least + 0.02


@pytest.mark.parametrize("loss", ["mae", "gce"])
def test_a_sequence_of_weights_tends_to_the_smallest_loss_and_has_a_top_two_error(loss) -> None:
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


def test_max_loss_example_agrees_with_a_linear_programme() -> None:
    p, scores, surrogate, target = max_loss_example()
    n = len(p)
    # Minimize over h and t_y >= max(0, 1 - h_y + h_z) for all z != y.
    rows = []
    for y in range(n):
        for z in range(n):
            if z != y:
                row = np.zeros(2 * n)
                row[y], row[z], row[n + y] = -1, 1, -1
                rows.append(row)
    program = linprog(
        np.r_[np.zeros(n), p],
        np.array(rows),
        -np.ones(len(rows)),
        bounds=[(None, None)] * n + [(0, None)] * n,
    )

    def error(h: NDArray[np.float64]) -> float:
        return sum(
            p[y] * max(0.0, *(1 - h[y] + h[z] for z in range(n) if z != y)) for y in range(n)
        )

    assert program.fun == pytest.approx(error(scores)) == pytest.approx(1)
    assert surrogate == 0
    assert target == pytest.approx(top_k_error(p, scores, 1) - (1 - p.max()))
    assert target > 0.05
