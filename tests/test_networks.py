"""Networks: a stack is its members, nothing more; standardised inputs are what they say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from shortlist.networks import Stack, Standardize, perceptron


def perturbed(stack: Stack, seed: int = 0) -> Stack:
    """Members that differ from one another."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return stack


def by_hand(stack: Stack, member: int, x: torch.Tensor) -> torch.Tensor:
    """A member evaluated from its weights alone."""
    h = x
    for i, (weight, bias) in enumerate(zip(stack.weights, stack.biases, strict=True)):
        h = (h if i == 0 else h.clamp(min=0)) @ weight[member] + bias[member]
    return h


@given(
    members=st.integers(1, 4),
    n_in=st.integers(1, 6),
    n_out=st.integers(1, 5),
    width=st.integers(1, 7),
    hidden=st.integers(0, 3),
)
@settings(max_examples=30, deadline=None)
def test_a_new_stack_is_its_prototype_many_times(
    members: int, n_in: int, n_out: int, width: int, hidden: int
) -> None:
    prototype = perceptron(n_in, n_out, width, hidden).double()
    x = torch.randn(9, n_in, dtype=torch.float64)
    out = Stack(prototype, members)(x)
    assert out.shape == (members, 9, n_out)
    for i in range(members):
        torch.testing.assert_close(out[i], prototype(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("hidden", [0, 1, 2])
def test_members_equal_perceptrons_evaluated_alone(hidden: int) -> None:
    stack = perturbed(Stack(perceptron(5, 3, 8, hidden).double(), 4))
    x = torch.randn(11, 5, dtype=torch.float64)
    out = stack(x)
    for i in range(4):
        torch.testing.assert_close(out[i], by_hand(stack, i, x), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(out[i], stack.member(i)(x), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(out[0], out[1])


def test_a_member_goes_out_and_comes_back_unchanged() -> None:
    stack = perturbed(Stack(perceptron(5, 3, 8), 3))
    member = stack.member(1)
    again = Stack(member, 2).member(0)
    assert [type(layer) for layer in member] == [type(layer) for layer in perceptron(5, 3, 8)]
    for a, b in zip(member.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    before = stack(torch.ones(2, 5)).detach()
    with torch.no_grad():
        member[0].weight.zero_()  # a member has weights of its own
    assert torch.equal(stack(torch.ones(2, 5)), before)


def test_a_member_of_uneven_widths() -> None:
    prototype = nn.Sequential(
        nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 2)
    )
    x = torch.randn(3, 4)
    torch.testing.assert_close(Stack(prototype, 2).member(1)(x), prototype(x))


def test_members_do_not_touch_one_another() -> None:
    stack = perturbed(Stack(perceptron(5, 3, 8).double(), 3))
    out = stack(torch.randn(7, 5, dtype=torch.float64))
    out[1].square().sum().backward()
    for parameter in stack.parameters():
        assert parameter.grad is not None
        assert parameter.grad[1].abs().max() > 0
        assert parameter.grad[0].abs().max() == 0
        assert parameter.grad[2].abs().max() == 0


def test_a_member_draws_no_random_numbers() -> None:
    stack = Stack(perceptron(3, 2, 4), 2)
    state = torch.get_rng_state()
    stack.member(0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)],
        [nn.Linear(2, 2), nn.Linear(2, 2)],
        [nn.ReLU(), nn.Linear(2, 2)],
        [nn.Linear(2, 2), nn.ReLU()],
        [nn.Linear(2, 2, bias=False)],
    ],
)
def test_a_stack_refuses_what_it_would_compute_wrongly(layers: list[nn.Module]) -> None:
    with pytest.raises(ValueError, match="a Stack"):
        Stack(nn.Sequential(*layers), 2)


def test_the_papers_perceptron() -> None:
    network = perceptron(10, 4)
    assert [m.out_features for m in network if isinstance(m, nn.Linear)] == [128, 128, 4]
    assert sum(isinstance(m, nn.ReLU) for m in network) == 2
    assert len(perceptron(10, 4, hidden=0)) == 1


def test_standardised_columns_have_mean_0_and_deviation_1() -> None:
    x = torch.randn(500, 3) * torch.tensor([1e-6, 1.0, 1e5]) + torch.tensor([0.0, -4.0, 1e5])
    z = Standardize.of(x)(x).double()
    assert z.mean(0).abs().max() < 1e-5
    assert (z.std(0, unbiased=False) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("value", [0.0, 5.0, 0.1, 1e8, -3e-12])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_constant_column_becomes_zero(value: float, dtype: torch.dtype) -> None:
    x = torch.full((1000, 2), min(value, 6e4) if dtype == torch.float16 else value, dtype=dtype)
    standardize = Standardize.of(x)
    assert standardize(x).abs().max() <= 1e-6 * max(1.0, abs(value))
    assert torch.equal(standardize.scale, torch.ones(2, dtype=standardize.scale.dtype))


def test_float16_features_near_their_limit_do_not_overflow() -> None:
    x = torch.tensor([[6e4, 1.0], [6.5e4, 1.0], [5.5e4, 1.0]], dtype=torch.float16).repeat(2000, 1)
    z = Standardize.of(x)(x)
    assert z.dtype == torch.float32
    assert torch.isfinite(z).all()
    exact = (x.double() - x.double().mean(0))[:, 0] / x.double()[:, 0].std(unbiased=False)
    torch.testing.assert_close(z[:, 0].double(), exact, rtol=1e-5, atol=1e-5)


def test_a_float64_column_that_varies_little_keeps_its_variation() -> None:
    seconds = torch.arange(100, dtype=torch.float64)[:, None] + 1.7e9  # time stamps
    z = Standardize.of(seconds)(seconds)
    assert z.dtype == torch.float32
    exact = (seconds - seconds.mean()) / seconds.std(unbiased=False)
    torch.testing.assert_close(z.double(), exact, rtol=1e-6, atol=1e-6)


def test_new_rows_are_measured_by_the_fit_rows() -> None:
    standardize = Standardize.of(torch.tensor([[0.0], [2.0]]))
    assert standardize(torch.tensor([[5.0]])).item() == 4.0
    assert set(standardize.state_dict()) == {"mean", "scale"}
