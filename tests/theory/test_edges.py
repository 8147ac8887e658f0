"""Extreme parameters and invalid input."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from shortlist import theory


@pytest.mark.parametrize("q", [1e-12, 1e-9, 1e-4, 0.3, 0.7, 0.9995, 0.99999])
@pytest.mark.parametrize("t", [1e-9, 1e-5, 0.999e-3, 2e-3, 0.1, 0.5, 1.0])
def test_psi_of_gce_is_precise_for_every_exponent(q: float, t: float) -> None:
    with mpmath.workdps(60):
        a, x = 1 / (1 - mpmath.mpf(q)), mpmath.mpf(t)
        mean = ((1 + x) ** a + (1 - x) ** a) / 2
        expected = float((mean ** (1 / a) - 1) / (mpmath.mpf(q) * 3 ** mpmath.mpf(q)))
    assert theory.psi("gce", t, n=3, q=q) == pytest.approx(expected, rel=1e-9)
    assert theory.psi_inverse("gce", expected, n=3, q=q) == pytest.approx(t, rel=1e-6)


@pytest.mark.parametrize("loss", ["log", "exp", "gce"])
def test_tiny_regrets_have_bounds(loss: str) -> None:
    result = [theory.psi_inverse(loss, r, n=3) for r in (0.0, 1e-320, 1e-300, 1e-30)]
    assert result[0] == 0
    assert all(a < b for a, b in pairwise(result))
    assert result[3] / result[2] == pytest.approx(1e135, rel=1e-6)


@pytest.mark.parametrize("q", [0.99, 0.9995])
def test_infimum_of_gce_close_to_mae(q: float) -> None:
    p = [0.5, 0.5]
    assert theory.surrogate_regret("gce", p, [0.0, 0.0], q=q) == pytest.approx(0, abs=1e-12)
    assert theory.surrogate_infimum("gce", [1.0, 0.0], q=q) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("q", [2 / 3, Fraction(7, 10), 0.99])
def test_certificates_for_any_exponent(q: float) -> None:
    result = theory.certificate("gce", q)
    assert result is not None
    assert result.check()


def test_rates_of_the_set_of_all_labels_and_of_invalid_arguments() -> None:
    assert theory.rate("log", n=5, k=5)[0] == 0
    for wrong in ({"k": 6}, {"k": 0}, {"k": 2, "q": 1.5}):
        with pytest.raises(ValueError, match=r"[kq]"):
            theory.rate("gce", n=5, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="loss"):
        theory.rate("nope", n=5, k=2)


def test_large_scores_give_large_bounds() -> None:
    assert theory.loss_bound("log", n=3, largest=1000.0) == pytest.approx(2000 + math.log(2))
    assert theory.loss_bound("exp", n=3, largest=1000.0) == math.inf
    assert theory.lipschitz("exp", n=3, largest=1000.0) == math.inf
    assert theory.rademacher_linear("exp", m=10, n=3, norm=30.0, radius=30.0) == math.inf


def test_an_infinite_loss_bound() -> None:
    common = {"m": 100, "rademacher": 0.1, "loss_bound": math.inf, "n": 5}
    assert theory.generalization_bound("log", k=2, **common) == 1  # type: ignore[arg-type]
    assert theory.generalization_bound("log", k=5, **common) == 0  # type: ignore[arg-type]
    assert theory.generalization_bound("hinge", k=2, **common) == math.inf  # type: ignore[arg-type]
    for wrong in ({"rademacher": -5.0}, {"loss_bound": -math.inf}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            theory.generalization_bound("log", k=2, **(common | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.loss_bound("gce", n=3, q=0.0),
        lambda: theory.lipschitz("margin", n=3, rho=-1.0),
        lambda: theory.surrogate_infimum("gce", [0.5, 0.5], q=1.0),
        lambda: theory.surrogate_regret("log", [0.5, 0.5], [0.0, 0.0, 0.0]),
        lambda: theory.surrogate_regret("log", [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]]),
        lambda: theory.top_k_regret([0.5, 0.5], [1.0, 2.0, 3.0], 1),
        lambda: theory.top_k_regret([0.6, 0.4], [math.nan, 1.0], 1),
        lambda: theory.surrogate_infimum("exp", [0.5, 0.5], costs=[[2.0, 0.0]]),
        lambda: theory.cardinality_regret([0.5, 0.5], [[math.nan, 0.0]], 0),
        lambda: theory.cardinality_regret([0.5, 0.5], [[0.5, 0.0]], -1),
        lambda: theory.bayes_choice([0.5, 0.5], [[-1]]),
        lambda: theory.bayes_choice([0.5, 0.5], [[0, 0], [1]]),
        lambda: theory.bayes_choice([0.5, 0.5], [1.0, 2.0]),
        lambda: theory.bayes_choice([0.5, 0.5], 3),
        lambda: theory.bayes_choice([0.5, 0.5], [[5]]),
        lambda: theory.deterministic_choice(1, []),
        lambda: theory.inconsistency_example("mae", Fraction(1, 2)),
        lambda: theory.certificate("gce", 1.0),
        lambda: theory.FiniteDistribution.of([1.0], [[0.5, 0.5]], [0.7]),
    ],
)
def test_invalid_input_is_rejected(call: object) -> None:
    with pytest.raises(ValueError, match=r"must|between|labels|choice|set"):
        call()  # type: ignore[operator]


def test_one_input_and_one_feature() -> None:
    one = theory.FiniteDistribution.of([[1.0]], [[0.9, 0.1]], [1.0])
    assert theory.minimizability_gap("log", one).gap == pytest.approx(0, abs=1e-9)
    flat = theory.FiniteDistribution.of([1.0, -1.0], [[0.9, 0.1], [0.1, 0.9]])
    np.testing.assert_array_equal(flat.x, [[1.0], [-1.0]])
