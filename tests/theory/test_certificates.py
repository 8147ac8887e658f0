"""Counter-examples in exact arithmetic: they are valid, and other cases are rejected."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from loss_definitions import COMP_SUM
from reference import top

from shortlist.losses import get_loss
from shortlist.theory import (
    Certificate,
    certificate,
    gce_threshold,
    inconsistency_example,
    surrogate_infimum,
    surrogate_regret,
    top_k_bound,
    top_k_regret,
)
from shortlist.theory.exact_losses import FAILING

F = Fraction
CASES = [
    *((loss, 0.7) for loss in ("mae", "hinge", "margin", "constrained_exp", "squared_hinge")),
    *(("gce", q) for q in (0.51, 0.55, 0.6, 0.7, 0.9)),
]


@pytest.fixture(scope="module")
def certificates() -> dict[tuple[str, float], Certificate]:
    return {(loss, q): certificate(loss, q) for loss, q in CASES}


def scores_of(one: Certificate) -> np.ndarray:
    """Return the scores in the form that the losses take."""
    values = np.array([float(x) for x in one.scores])
    return np.log(values) if one.loss in (*COMP_SUM, "constrained_exp") else values


def as_floats(one: Certificate) -> tuple[np.ndarray, np.ndarray]:
    return np.array([float(x) for x in one.p]), scores_of(one)


@pytest.mark.parametrize(("loss", "q"), CASES)
def test_every_certificate_is_valid(certificates, loss, q) -> None:
    one = certificates[loss, q]
    assert one.check()
    assert (one.loss, one.k, len(one.p)) == (loss, 2, 3)
    assert sum(one.p) == 1
    assert one.surrogate_regret().high < one.required_regret().low
    if loss == "gce":
        assert one.q == F(str(q))


@pytest.mark.parametrize(("loss", "q"), CASES)
def test_its_numbers_agree_with_floating_point(certificates, loss, q) -> None:
    one = certificates[loss, q]
    p, scores = as_floats(one)
    # Scores that tie in the certificate also tie after the logarithm.
    assert sorted(top(scores.tolist(), 2)) == one.kept() == [0, 2]
    assert top_k_regret(p, scores, 2) == pytest.approx(float(one.target_regret()), rel=1e-6)
    exact = one.surrogate_regret()
    assert surrogate_regret(loss, p, scores, q=q) == pytest.approx(float(exact.low), abs=1e-14)
    assert float(exact.high - exact.low) <= 1e-30
    assert exact.low >= 0


@pytest.mark.parametrize(("loss", "q"), CASES)
def test_it_violates_the_published_bound_in_floating_point(certificates, loss, q) -> None:
    one = certificates[loss, q]
    target, regret = float(one.target_regret()), float(one.surrogate_regret().high)
    assert target > top_k_bound(loss, regret, n=3, k=2, q=q, published=True) * (1 + 1e-3)
    assert target <= top_k_bound(loss, regret, n=3, k=2, q=q)  # It satisfies the corrected bound.


@pytest.mark.parametrize(("loss", "q"), CASES)
def test_at_the_required_regret_the_published_bound_equals_the_target_regret(
    certificates, loss, q
) -> None:
    one = certificates[loss, q]
    target, required = float(one.target_regret()), one.required_regret()
    assert float(required.high) == pytest.approx(float(required.low), rel=1e-9, abs=0)
    bound = top_k_bound(loss, float(required.low), n=3, k=2, q=q, published=True)
    assert bound == pytest.approx(target, rel=1e-6, abs=0)


@pytest.mark.parametrize("q", [0.1, 0.3, 0.45, 0.5])
def test_gce_has_no_certificate_for_q_up_to_one_half(q) -> None:
    assert certificate("gce", q) is None


@pytest.mark.parametrize("loss", ["log", "exp", "nothing"])
def test_losses_whose_theorem_holds_are_rejected(loss) -> None:
    with pytest.raises(ValueError, match="loss must be one of"):
        certificate(loss)


def test_the_failing_losses_are_those_with_a_certificate(certificates) -> None:
    assert set(FAILING) == {loss for loss, _ in certificates}
    for loss, q in CASES:
        assert not get_loss(loss, q=q).published_top_k_bound.holds


# Cases that are not counter-examples


@pytest.mark.parametrize(("loss", "q"), CASES)
def test_invalid_distributions_are_no_certificates(certificates, loss, q) -> None:
    one = certificates[loss, q]
    a, b, c = one.p
    for p in ((a + F(1, 10**60), b, c), (a * 2, b * 2, c * 2), (a + b + 2 * c, F(0), -c)):
        assert not dataclasses.replace(one, p=p).check()


@pytest.mark.parametrize(("loss", "q"), CASES)
def test_scores_that_violate_the_constraint_are_no_certificates(certificates, loss, q) -> None:
    one = certificates[loss, q]
    a, b, c = one.scores
    for shift in (F(1, 10**60), -F(1, 10**60)):  # Too small to matter otherwise.
        assert not dataclasses.replace(one, scores=(a + shift, b, c)).check()


def test_a_softmax_with_zeros_is_no_certificate(certificates) -> None:
    for loss, q in (("mae", 0.7), ("gce", 0.7)):
        one = certificates[loss, q]
        assert not dataclasses.replace(one, scores=(F(1), F(0), F(0))).check()


def test_negative_exponentials_with_product_one_are_no_certificate(certificates) -> None:
    one = certificates["constrained_exp", 0.7]
    a, b, c = one.scores
    assert not dataclasses.replace(one, scores=(a, -b, -c)).check()


@pytest.mark.parametrize(("loss", "q"), CASES)
def test_keeping_the_two_most_probable_labels_is_no_certificate(certificates, loss, q) -> None:
    one = certificates[loss, q]
    a, b, c = one.p
    optimal = dataclasses.replace(one, p=(a, c, b))
    assert optimal.target_regret() == 0
    assert not optimal.check()


@pytest.mark.parametrize(("loss", "q"), CASES)
def test_for_k_of_one_the_published_bound_holds(certificates, loss, q) -> None:
    one = certificates[loss, q]
    assert not dataclasses.replace(one, k=1).check()
    worst = dataclasses.replace(one, k=1, p=(one.p[1], one.p[0], one.p[2]))
    assert worst.target_regret() > 0
    assert not worst.check()


@pytest.mark.parametrize("q", [0.51, 0.55, 0.6, 0.7, 0.9])
def test_the_same_case_is_no_certificate_for_gce_with_q_of_one_half(certificates, q) -> None:
    one = certificates["gce", q]
    for exponent in (F(1, 2), F(3, 10)):
        assert not dataclasses.replace(one, q=exponent).check()


@pytest.mark.parametrize("loss", ["constrained_exp", "squared_hinge"])
def test_a_tie_of_frequent_labels_is_no_certificate(loss) -> None:
    p = (F(5, 10), F(4, 10), F(1, 10))
    s = F(9, 10) if loss == "constrained_exp" else F(-1, 10)
    scores = (1 / s**2, s, s) if loss == "constrained_exp" else (-2 * s, s, s)
    one = Certificate(loss, p, scores)
    assert one.kept() == [0, 2]
    assert not one.check()


@pytest.mark.parametrize(("loss", "q"), CASES)
def test_the_exact_infimum_agrees_with_floating_point(loss, q) -> None:
    """The regrets are compared at a distribution where floating point is precise."""
    p = (F(5, 10), F(3, 10), F(2, 10))
    is_comp_sum = loss in COMP_SUM
    scores = {
        True: (F(6, 10), F(1, 10), F(3, 10)),
        False: (F(8, 10), F(-5, 10), F(-3, 10)),
    }[is_comp_sum]
    if loss == "constrained_exp":
        scores = (F(4), F(1, 4), F(1))
    one = Certificate(loss, p, scores, F(str(q)))
    values, h = as_floats(one)
    expected = surrogate_regret(loss, values, h, q=q)
    assert expected > 1e-3
    assert float(one.surrogate_regret().low) == pytest.approx(expected, rel=1e-9)
    assert surrogate_infimum(loss, values, q=q) > 0


# Losses that are not consistent


@pytest.mark.parametrize("loss", ["mae", "hinge", "margin"])
def test_the_surrogate_regret_tends_to_zero_while_the_target_regret_does_not(loss) -> None:
    examples = [inconsistency_example(loss, F(1, 10**j)) for j in (2, 4, 8, 40)]
    assert all(one.target_regret() == F(3, 10) for one in examples)
    assert all(one.check() for one in examples)
    regrets = [one.surrogate_regret().high for one in examples]
    assert regrets == sorted(regrets, reverse=True)
    assert regrets[-1] < F(1, 10**38)
    factors = {"mae": F(9, 10), "hinge": F(1, 2), "margin": F(0)}
    assert regrets == [factors[loss] / 10**j for j in (2, 4, 8, 40)]


def test_consistent_losses_are_rejected() -> None:
    with pytest.raises(ValueError, match="loss must be one of"):
        inconsistency_example("log", F(1, 10))


def test_the_threshold_of_gce_is_one_half() -> None:
    assert gce_threshold() == pytest.approx(0.5, abs=1e-3)
    assert gce_threshold(0.01) == pytest.approx(0.5, abs=0.01)


# Printing


@pytest.mark.parametrize(("loss", "q"), CASES)
def test_a_certificate_prints_its_numbers(certificates, loss, q) -> None:
    one = certificates[loss, q]
    text = str(one)
    assert text.startswith(f"gce, q = {q:g}: p = (" if loss == "gce" else f"{loss}: p = (")
    assert "keeps labels 0, 2" in text
    assert f"top-2 regret {float(one.target_regret()):g}" in text
    scale = "softmax" if loss in COMP_SUM else "scores"
    assert (scale if loss != "constrained_exp" else "exp(scores)") + " = (" in text


def test_a_probability_close_to_one_is_printed_as_a_difference(certificates) -> None:
    assert "1 - 3e-14" in str(certificates["gce", 0.51])
    assert math.isclose(float(1 - certificates["gce", 0.51].p[0]), 3e-14)
