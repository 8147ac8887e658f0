"""Constrained losses: the sum of Phi(-r) over centered scores, its properties, and precision."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_definitions import CONSTRAINED, definition, score_tables
from torch import Tensor

from shortlist.losses import constrained, cost_sensitive_constrained, get_loss


def phi(r: mpmath.mpf, name: str, rho: float = 1.0) -> mpmath.mpf:
    """Return Phi(-r) by the paper's definition."""
    return definition(name).phi(r, mpmath.mpf(rho))


def center(row: list[float]) -> list[mpmath.mpf]:
    """Return the scores minus their mean, so that they sum to zero."""
    mean = mpmath.fsum(row) / len(row)
    return [mpmath.mpf(r) - mean for r in row]


def exact(row: list[float], costs: list[float], name: str, rho: float = 1.0) -> float:
    """Return sum_k c_k Phi(-r_k) with enough digits for any float input."""
    with mpmath.workdps(60):
        terms = (mpmath.mpf(c) * phi(r, name, rho) for r, c in zip(center(row), costs, strict=True))
        return float(mpmath.fsum(terms))


def costs_of_label(label: int, n: int) -> list[float]:
    return [float(k != label) for k in range(n)]


# Near a kink, the absolute error of Phi is that of the centered scores, 30 * 1e-16.
CLOSE = {"rel": 1e-12, "abs": 1e-12}


@pytest.mark.parametrize("name", CONSTRAINED)
@settings(deadline=None, max_examples=30)
@given(table=score_tables(classes=2), rho=st.floats(0.1, 10))
def test_label_loss_is_the_sum_over_the_wrong_labels(name, table, rho):
    scores, labels, _ = table
    n = scores.shape[1]
    expected = [
        exact(row, costs_of_label(label, n), name, rho)
        for row, label in zip(scores.tolist(), labels.tolist(), strict=True)
    ]
    actual = constrained(scores, labels, name, rho=rho, reduction="none")
    assert actual.tolist() == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize("name", CONSTRAINED)
@settings(deadline=None, max_examples=30)
@given(table=score_tables(), rho=st.floats(0.1, 10))
def test_cost_sensitive_loss_is_the_weighted_sum(name, table, rho):
    scores, _, costs = table
    expected = [
        exact(row, cs, name, rho) for row, cs in zip(scores.tolist(), costs.tolist(), strict=True)
    ]
    actual = cost_sensitive_constrained(scores, costs, name, rho=rho, reduction="none")
    assert actual.tolist() == pytest.approx(expected, **CLOSE)


def test_a_large_common_offset_does_not_reduce_precision():
    scores = torch.tensor([[0.5, -1.25, 2.0]])
    offset = scores + 2.0**13  # Exact in float32, but the mean is not.
    costs = torch.tensor([[0.3, 1.0, 0.7]])
    expected = exact(scores[0].tolist(), costs[0].tolist(), "constrained_exp")
    for s in (scores, offset):
        assert cost_sensitive_constrained(s, costs, "constrained_exp").item() == pytest.approx(
            expected, rel=1e-6
        )


@pytest.mark.parametrize("cost_sensitive", [False, True])
@pytest.mark.parametrize("name", CONSTRAINED)
def test_gradients_of_both_orders(name, cost_sensitive):
    torch.manual_seed(0)
    scores = 2 * torch.randn(2, 1, 4, dtype=torch.float64)
    centered = scores - scores.mean(-1, keepdim=True)
    rho = 1.5
    for kink in (-1.0, -rho, 0.0):
        assert (centered - kink).abs().min() > 1e-3
    scores.requires_grad_()
    labels, costs = torch.randint(4, (2, 1)), torch.rand(2, 1, 4, dtype=torch.float64)
    costs[0, 0, 0] = 0.0

    def loss(s: Tensor) -> Tensor:
        if cost_sensitive:
            return cost_sensitive_constrained(s, costs, name, rho=rho, reduction="none")
        return constrained(s, labels, name, rho=rho, reduction="none")

    assert torch.autograd.gradcheck(loss, (scores,))
    assert torch.autograd.gradgradcheck(loss, (scores,))


@pytest.mark.parametrize("name", CONSTRAINED)
def test_the_gradient_at_zero_scores_is_not_zero(name):
    """At r = 0, a kink of the margin loss, the gradient must not be zero."""
    scores = torch.zeros(1, 3, requires_grad=True)
    constrained(scores, torch.tensor([1]), name).backward()
    assert scores.grad[0, 1] < 0 < scores.grad[0, 0] == scores.grad[0, 2]


def test_closed_forms_on_two_classes():
    """The centered score of the other label is minus half the gap h_y - h_other."""
    gap = torch.linspace(-20, 20, 41, dtype=torch.float64)
    scores, labels = torch.stack([torch.zeros_like(gap), gap], -1), torch.ones(41).long()
    forms = {
        "constrained_exp": torch.exp(-gap / 2),
        "squared_hinge": torch.relu(1 - gap / 2) ** 2,
        "hinge": torch.relu(1 - gap / 2),
        "margin": (1 - gap / 6).clamp(0, 1),
    }
    for name, expected in forms.items():
        actual = constrained(scores, labels, name, rho=3.0, reduction="none")
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-15)


def test_margin_tends_to_the_zero_one_loss_of_each_score():
    scores, labels = torch.tensor([[1.0, -3.0, 0.5, 1.5]]), torch.tensor([0])
    # The scores are centered. Two of the three wrong labels have a positive score.
    assert constrained(scores, labels, "margin", rho=1e-6).item() == 2.0


@pytest.mark.parametrize("name", CONSTRAINED)
def test_a_single_choice_has_the_score_zero(name):
    loss = cost_sensitive_constrained(torch.tensor([[7.0]]), torch.tensor([[0.25]]), name)
    # Phi(0) is 1 for the paper's losses.
    assert loss.item() == pytest.approx(0.25 * float(phi(mpmath.mpf(0), name)))


ROWS = [
    [1e4, -1e4, 0.0],
    [-1e4, -1e4, 1e4, 1e4],
    [1e4, 1e4 - 1, 1e4 - 20],
    [1e4, 9950.0, 9930.0],
    [80.0, -80.0],
    [0.0, -100.0, -88.0],
    [1e4, 1e4, 1e4],
]


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_float32_keeps_values_and_gradients(name, row):
    n = len(row)
    for label in range(n):
        scores = torch.tensor([row], requires_grad=True)
        loss = constrained(scores, torch.tensor([label]), name)
        value = exact(row, costs_of_label(label, n), name)
        if value > torch.finfo(torch.float32).max:
            assert get_loss(name).exponential
            assert loss.item() == torch.inf
            continue
        # The centered score r has an error of about 1e-6, which is the relative error of e^r.
        assert loss.item() == pytest.approx(value, rel=1e-5, abs=1e-37)
        loss.backward()
        slopes = [
            0.0 if k == label else float(definition(name).slope(r, mpmath.mpf(1)))
            for k, r in enumerate(center(row))
        ]
        mean = math.fsum(slopes) / n
        expected = [slope - mean for slope in slopes]
        largest = max(map(abs, slopes))
        assert scores.grad[0].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6 * largest)


@pytest.mark.parametrize("name", CONSTRAINED)
def test_zero_cost_suppresses_an_overflow(name):
    scores = torch.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    loss = cost_sensitive_constrained(scores, torch.tensor([[0.0, 0.0, 0.9]]), name)
    loss.backward()
    assert loss.item() == 0.0
    assert scores.grad.tolist() == [[0.0, 0.0, 0.0]]


def test_zero_cost_does_not_change_the_other_terms():
    scores = torch.tensor([[200.0, -1.0, -199.0]], requires_grad=True)
    loss = cost_sensitive_constrained(scores, torch.tensor([[0.0, 0.5, 1.0]]), "constrained_exp")
    loss.backward()
    value = 0.5 * math.exp(-1)
    assert loss.item() == pytest.approx(value, rel=1e-6)
    expected = [-value / 3, 2 * value / 3, -value / 3]
    assert scores.grad[0].tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("score", "cost"), [(100.0, 1e-10), (120.0, 1e-30), (180.0, 1e-42)])
def test_a_tiny_cost_times_an_overflowing_term_is_finite(score, cost):
    costs = torch.tensor([[cost, 0.0]])
    scores = torch.tensor([[score, -score]], requires_grad=True)
    assert torch.exp(scores.detach()[0, 0]) == torch.inf
    loss = cost_sensitive_constrained(scores, costs, "constrained_exp")
    loss.backward()
    expected = math.exp(score) * costs[0, 0].item()
    assert loss.item() == pytest.approx(expected, rel=3e-5)
    assert scores.grad[0].tolist() == pytest.approx([expected / 2, -expected / 2], rel=3e-5)


def test_both_ways_to_weight_an_exponential_agree():
    """The loss is continuous where w * e^r is replaced by e^(r + log w)."""
    r = torch.linspace(39.9, 40.1, 21, dtype=torch.float64)
    loss = cost_sensitive_constrained(
        torch.stack([r, -r], -1),
        torch.tensor([[0.3, 0.0]]).expand(21, 2),
        "constrained_exp",
        reduction="none",
    )
    weight = torch.tensor(0.3).double()
    torch.testing.assert_close(loss, weight * torch.exp(r), rtol=1e-13, atol=0)
