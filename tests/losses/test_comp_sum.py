"""Comp-sum losses: the definition Phi(sum exp(differences)), its properties, and precision."""

from __future__ import annotations

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_definitions import COMP_SUM, definition, score_tables
from torch import Tensor

from shortlist.losses import comp_sum, cost_sensitive_comp_sum, get_loss

Q = 0.7


def exact(row: list[float], k: int, name: str, q: float = Q) -> mpmath.mpf:
    """Return Phi(sum_{k' != k} exp(r_k' - r_k)) with enough digits for any float input."""
    u = mpmath.fsum(
        mpmath.exp(mpmath.mpf(r) - mpmath.mpf(row[k])) for j, r in enumerate(row) if j != k
    )
    return definition(name).phi(u, mpmath.mpf(q))


@pytest.fixture(autouse=True)
def _digits():
    # 1 - (1 + u)^-q and 1 + u must be precise for u = e^-400 and u = e^400.
    with mpmath.workdps(400):
        yield


@pytest.mark.parametrize("name", COMP_SUM)
@settings(deadline=None, max_examples=30)
@given(table=score_tables(classes=2), q=st.floats(0.01, 0.99))
def test_label_loss_is_phi_of_the_sum(name, table, q):
    scores, labels, _ = table
    expected = [
        float(exact(r, k, name, q)) for r, k in zip(scores.tolist(), labels.tolist(), strict=True)
    ]
    actual = comp_sum(scores, labels, name, q=q, reduction="none")
    assert actual.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("name", COMP_SUM)
@settings(deadline=None, max_examples=30)
@given(table=score_tables())
def test_cost_sensitive_loss_is_the_weighted_sum(name, table):
    scores, _, costs = table
    expected = [
        float(mpmath.fsum((1 - mpmath.mpf(c)) * exact(row, k, name) for k, c in enumerate(cs)))
        for row, cs in zip(scores.tolist(), costs.tolist(), strict=True)
    ]
    actual = cost_sensitive_comp_sum(scores, costs, name, reduction="none")
    # Rounding 1 - c to 0 or 1 changes a term by at most 1e-16 Phi.
    assert actual.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("cost_sensitive", [False, True])
@pytest.mark.parametrize("name", COMP_SUM)
def test_gradients_of_both_orders(name, cost_sensitive):
    torch.manual_seed(0)
    scores = torch.randn(2, 1, 4, dtype=torch.float64, requires_grad=True)
    labels, costs = torch.randint(4, (2, 1)), torch.rand(2, 1, 4, dtype=torch.float64)
    costs[0, 0, 0] = 1.0

    def loss(s: Tensor) -> Tensor:
        if cost_sensitive:
            return cost_sensitive_comp_sum(s, costs, name, reduction="none")
        return comp_sum(s, labels, name, reduction="none")

    assert torch.autograd.gradcheck(loss, (scores,))
    assert torch.autograd.gradgradcheck(loss, (scores,))


@pytest.mark.parametrize("name", COMP_SUM)
def test_gradient_at_a_tie(name):
    scores = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: comp_sum(s, torch.tensor([1]), name), (scores,))
    costs = torch.tensor([[0.1, 0.5, 0.9]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda s: cost_sensitive_comp_sum(s, costs, name), (scores,))


def test_closed_forms_on_two_classes():
    gap = torch.linspace(-20, 20, 41, dtype=torch.float64)  # h_y - h_other
    scores, labels = torch.stack([torch.zeros_like(gap), gap], -1), torch.ones(41).long()
    forms = {
        "log": torch.nn.functional.softplus(-gap, threshold=100),
        "exp": torch.exp(-gap),
        "mae": torch.sigmoid(-gap),
        "gce": (1 - torch.sigmoid(gap) ** Q) / Q,
    }
    for name, expected in forms.items():
        actual = comp_sum(scores, labels, name, reduction="none")
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-15)


def test_gce_lies_between_log_and_mae():
    torch.manual_seed(0)
    scores, labels = 3 * torch.randn(20, 4, dtype=torch.float64), torch.randint(4, (20,))

    def gce(q: float) -> Tensor:
        return comp_sum(scores, labels, "gce", q=q, reduction="none")

    log, mae = (comp_sum(scores, labels, name, reduction="none") for name in ("log", "mae"))
    torch.testing.assert_close(gce(1e-9), log, rtol=1e-7, atol=0)
    torch.testing.assert_close(gce(1 - 1e-9), mae, rtol=1e-7, atol=0)
    values = torch.stack([log, gce(0.2), gce(0.5), gce(0.8), mae])
    assert (values.diff(dim=0) < 0).all()


@pytest.mark.parametrize("name", COMP_SUM)
def test_a_single_choice_has_a_sum_of_zero(name):
    scores = torch.tensor([[3.0], [-1e4]], requires_grad=True)
    loss = cost_sensitive_comp_sum(scores, torch.tensor([[0.3], [0.0]]), name, reduction="none")
    at_zero = float(definition(name).phi(mpmath.mpf(0), mpmath.mpf(Q)))  # 0 for the paper's losses.
    assert loss.tolist() == pytest.approx([0.7 * at_zero, at_zero])
    loss.sum().backward()
    assert scores.grad.tolist() == [[0.0], [0.0]]


# Precision. All scores are exact in float32; each row is tested with every label.
ROWS = [
    [1e4, -1e4, 0.0],
    [-1e4, -1e4, 1e4],
    [1e4, 1e4 - 1, 1e4 - 20],
    [1e4, 9950.0, 9930.0],
    [20.0, 0.0, -30.0],
    [80.0, 0.0, 1.0],
    [0.0, -100.0, -88.0],
    [1e4, 1e4, 1e4],
]


def exact_gradient(row: list[float], k: int, name: str) -> list[mpmath.mpf]:
    """Return d Phi(u) / d r_j = Phi'(u) (1 + u) (S_j - [j = k])."""
    powers = [mpmath.exp(mpmath.mpf(r) - mpmath.mpf(row[k])) for r in row]
    total = mpmath.fsum(powers)  # 1 + u.
    slope = definition(name).slope(total - 1, mpmath.mpf(Q)) * total
    return [
        slope * (p / total if j != k else -mpmath.fsum(powers[:k] + powers[k + 1 :]) / total)
        for j, p in enumerate(powers)
    ]


@pytest.mark.parametrize("name", COMP_SUM)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_float32_keeps_values_and_gradients(name, row):
    largest = torch.finfo(torch.float32).max
    for k in range(len(row)):
        scores = torch.tensor([row], requires_grad=True)
        loss = comp_sum(scores, torch.tensor([k]), name)
        value = exact(row, k, name)
        if value > largest:
            assert loss.item() == torch.inf
            continue
        # e^t has the absolute error of t as relative error; abs= is for subnormal numbers.
        assert loss.item() == pytest.approx(float(value), rel=1e-5, abs=1e-37)
        loss.backward()
        expected = [float(g) for g in exact_gradient(row, k, name)]
        tiny = 1e-37 * max(1.0, *map(abs, expected))
        assert scores.grad[0].tolist() == pytest.approx(expected, rel=1e-5, abs=tiny)


@pytest.mark.parametrize("name", COMP_SUM)
def test_only_exponential_losses_overflow(name):
    loss = comp_sum(torch.tensor([[1e4, -1e4]]), torch.tensor([1]), name).item()
    if get_loss(name).exponential:
        assert loss == torch.inf
    else:
        assert loss == pytest.approx(float(exact([1e4, -1e4], 1, name)), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "limit"), [("log", 2e4), ("exp", torch.inf), ("gce", 1 / Q), ("mae", 1.0)]
)
def test_limits(name, limit):
    loss = comp_sum(torch.tensor([[1e4, -1e4]]), torch.tensor([1]), name).item()
    assert loss == pytest.approx(limit, rel=1e-6)


@pytest.mark.parametrize("name", COMP_SUM)
def test_zero_weight_suppresses_an_overflow(name):
    scores = torch.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    loss = cost_sensitive_comp_sum(scores, torch.tensor([[0.25, 1.0, 1.0]]), name)
    loss.backward()
    at_zero = float(definition(name).phi(mpmath.mpf(0), mpmath.mpf(Q)))
    assert loss.item() == pytest.approx(0.75 * at_zero)  # The largest score has u = 0.
    assert scores.grad.tolist() == [[0.0, 0.0, 0.0]]


def test_zero_weight_does_not_change_the_other_terms():
    scores = torch.tensor([[1e4, 1e4 - 1, -1e4]], requires_grad=True)
    loss = cost_sensitive_comp_sum(scores, torch.tensor([[0.0, 0.5, 1.0]]), "exp")
    loss.backward()
    e = float(mpmath.e)
    assert loss.item() == pytest.approx(1 / e + 0.5 * e, rel=1e-6)
    slope = 1 / e - 0.5 * e
    assert scores.grad[0].tolist() == pytest.approx([-slope, slope, 0.0], rel=1e-6)


def test_a_tiny_weight_times_an_overflowing_term_is_finite():
    cost = torch.tensor([[1.0, 1.0 - 2.0**-24]])  # The largest float32 below 1.
    scores = torch.tensor([[100.0, 0.0]], requires_grad=True)  # e^100 overflows float32.
    loss = cost_sensitive_comp_sum(scores, cost, "exp")
    loss.backward()
    expected = float(mpmath.exp(100) * mpmath.mpf(2) ** -24)
    assert loss.item() == pytest.approx(expected, rel=2e-5)
    assert scores.grad[0].tolist() == pytest.approx([expected, -expected], rel=2e-5)


def test_costs_in_float64_keep_their_weight_in_float32():
    cost = torch.tensor([[1.0, 1.0 - 2.0**-40]], dtype=torch.float64)
    loss = cost_sensitive_comp_sum(torch.tensor([[60.0, 0.0]]), cost, "exp")
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(float(mpmath.exp(60) * mpmath.mpf(2) ** -40), rel=1e-5)


def test_a_score_of_minus_infinity_removes_a_class():
    """A score of -inf removes a class that is not the label, or that has weight 0."""
    scores = torch.tensor([[1.0, 2.0, -torch.inf]], requires_grad=True)
    expected = comp_sum(torch.tensor([[1.0, 2.0]]), torch.tensor([0])).item()
    for loss in (
        comp_sum(scores, torch.tensor([0])),
        cost_sensitive_comp_sum(scores, torch.tensor([[0.0, 1.0, 1.0]])),
    ):
        assert loss.item() == pytest.approx(expected)
        (gradient,) = torch.autograd.grad(loss, scores)
        assert gradient[0, 2] == 0
        assert gradient[0, 0] == -gradient[0, 1] != 0
