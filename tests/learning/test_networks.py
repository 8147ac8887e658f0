"""Networks: a stack equals its members, and inputs are standardized."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from shortlist.learning.networks import (
    Residual,
    Stack,
    Standardize,
    dropout_mask,
    perceptron,
    zero_last_layer,
)


def perturbed(stack: Stack, seed: int = 0) -> Stack:
    """Add noise to the parameters, so that the members differ."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return stack


def evaluate_member(stack: Stack, member: int, x: torch.Tensor) -> torch.Tensor:
    """Evaluate a member from its weights."""
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
def test_members_of_a_new_stack_equal_the_prototype(
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
        torch.testing.assert_close(out[i], evaluate_member(stack, i, x), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(out[i], stack.member(i)(x), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(out[0], out[1])


def test_a_member_can_be_extracted_and_stacked_again() -> None:
    stack = perturbed(Stack(perceptron(5, 3, 8), 3))
    member = stack.member(1)
    again = Stack(member, 2).member(0)
    assert [type(layer) for layer in member] == [type(layer) for layer in perceptron(5, 3, 8)]
    for a, b in zip(member.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    before = stack(torch.ones(2, 5)).detach()
    with torch.no_grad():
        member[0].weight.zero_()  # The member has a copy of the weights.
    assert torch.equal(stack(torch.ones(2, 5)), before)


def test_a_member_of_uneven_widths() -> None:
    prototype = nn.Sequential(
        nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 2)
    )
    x = torch.randn(3, 4)
    torch.testing.assert_close(Stack(prototype, 2).member(1)(x), prototype(x))


def test_members_do_not_affect_each_other() -> None:
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
        [nn.Linear(2, 2), nn.Dropout(0.5), nn.ReLU(), nn.Linear(2, 2)],
        [nn.Linear(2, 2), nn.Dropout(0.5)],
        [nn.Dropout(0.5), nn.Dropout(0.5), nn.Linear(2, 2)],
        [nn.Dropout(0.5)],
        [],
    ],
)
def test_a_stack_rejects_unsupported_layers(layers: list[nn.Module]) -> None:
    with pytest.raises(ValueError, match="a Stack"):
        Stack(nn.Sequential(*layers), 2)


def test_each_member_starts_as_its_prototype() -> None:
    each = [perceptron(5, 3, 8).double() for _ in range(3)]
    stack = Stack(each)
    x = torch.randn(7, 5, dtype=torch.float64)
    assert stack.members == 3
    for i, prototype in enumerate(each):
        torch.testing.assert_close(stack(x)[i], prototype(x), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(stack(x)[0], stack(x)[1])


@pytest.mark.parametrize(
    "other",
    [
        perceptron(4, 4, 4, hidden=2),
        perceptron(4, 4, 5, hidden=1),
        perceptron(4, 4, 4, hidden=1, dropout=0.5),
    ],
)
def test_prototypes_of_different_shapes_raise(other: nn.Sequential) -> None:
    with pytest.raises(ValueError, match="same shape; prototype 1 is Sequential"):
        Stack([perceptron(4, 4, 4, hidden=1), other])


def test_widest_is_the_total_width_of_all_members() -> None:
    assert Stack(perceptron(5, 3, 8), 4).widest == 32
    assert Stack(perceptron(5, 30, 8), 4).widest == 120
    assert Stack(perceptron(5, 3, hidden=0), 2).widest == 6


# Dropout


def with_dropout() -> nn.Sequential:
    return perceptron(6, 3, 8, dropout=0.5, input_dropout=0.25).double()


def test_dropout_is_disabled_in_evaluation() -> None:
    stack = perturbed(Stack(with_dropout(), 3))
    x = torch.randn(11, 6, dtype=torch.float64)
    assert not torch.allclose(stack(x), stack(x))
    stack.eval()
    for i in range(3):
        torch.testing.assert_close(
            stack(x)[i], evaluate_member(stack, i, x), rtol=1e-12, atol=1e-12
        )
        torch.testing.assert_close(stack(x)[i], stack.member(i)(x), rtol=1e-12, atol=1e-12)


def test_a_member_with_dropout_can_be_extracted_and_stacked_again() -> None:
    stack = perturbed(Stack(with_dropout(), 3))
    member = stack.member(1)
    assert [repr(layer) for layer in member] == [repr(layer) for layer in with_dropout()]
    assert all(layer.training for layer in member)
    assert not any(layer.training for layer in stack.eval().member(1))
    again = Stack(member, 2)
    assert again.dropouts == stack.dropouts == [0.25, 0.5, 0.5]
    for a, b in zip(member.parameters(), again.member(0).parameters(), strict=True):
        assert torch.equal(a, b)


def test_all_members_share_a_dropout_mask() -> None:
    stack = Stack(with_dropout(), 2)
    x = torch.randn(50, 6, dtype=torch.float64)
    out = stack(x)
    torch.testing.assert_close(
        out[0], out[1]
    )  # The members are equal, so that only different masks would change the outputs.
    twice = stack(torch.cat([x, x]))
    assert not torch.allclose(twice[0, :50], twice[0, 50:])  # Every row has its own mask.


@pytest.mark.parametrize("where", ["input_dropout", "dropout"])
def test_dropout_does_not_change_the_expected_output(where: str) -> None:
    torch.manual_seed(1)  # With these weights every output varies.
    hidden = 0 if where == "input_dropout" else 1  # The output is linear in the dropped units.
    prototype = perceptron(6, 3, 8, hidden, **{where: 0.4}).double()  # type: ignore[arg-type]
    stack = perturbed(Stack(prototype, 2))
    x = torch.randn(6, dtype=torch.float64).expand(20_000, -1)
    torch.manual_seed(0)
    with torch.no_grad():
        outputs = stack(x)
        expected = stack.eval()(x[:1])
    error = outputs.std(dim=1) / 20_000**0.5
    assert (outputs.std(dim=1) > 0.1).all()
    assert ((outputs.mean(dim=1) - expected[:, 0]).abs() < 5 * error).all()


def test_dropout_drops_the_given_fraction() -> None:
    stack = Stack(perceptron(1, 1, hidden=0, input_dropout=0.3), 1)
    with torch.no_grad():
        stack.weights[0].fill_(1.0)
        stack.biases[0].zero_()
        out = stack(torch.ones(10_000, 1)).flatten()
    assert 0.28 < float((out == 0).double().mean()) < 0.32
    assert out.unique().tolist() == pytest.approx(
        [0, 256 / (256 - 77)]
    )  # 0.3 is rounded to 77 / 256.


@pytest.mark.parametrize("share", [0.002, 0.2, 0.5, 0.999])
def test_a_dropout_mask_keeps_the_mean(share: float) -> None:
    torch.manual_seed(0)
    mask = dropout_mask((500, 1001), share, torch.empty(0, dtype=torch.float64))
    assert mask.shape == (500, 1001)
    assert mask.dtype == torch.float64
    dropped = min(round(256 * share), 255) / 256
    error = (dropped * (1 - dropped) / mask.numel()) ** 0.5
    assert abs(float((mask == 0).double().mean()) - dropped) < 4 * error
    assert mask.max() == 1 / (1 - dropped)
    # Rows, columns and neighboring bytes are uncorrelated.
    kept = (mask > 0).double() - (1 - dropped)
    for a, b in ((kept[1:], kept[:-1]), (kept[:, 1:], kept[:, :-1]), (kept[:, 8:], kept[:, :-8])):
        assert abs(float((a * b).mean())) < 4 * dropped * (1 - dropped) / a.numel() ** 0.5


def test_a_dropout_mask_follows_the_global_seed() -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return dropout_mask((3, 7), 0.5, torch.empty(0))

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_members_can_have_different_rows() -> None:
    stack = Stack([perceptron(5, 3, 8, hidden) for hidden in (2, 2, 2)])
    x = torch.randn(3, 11, 5)
    outputs = stack(x)
    assert outputs.shape == (3, 11, 3)
    for j in range(3):
        torch.testing.assert_close(outputs[j], stack.member(j)(x[j]))
        torch.testing.assert_close(outputs[j], stack(x[j])[j])


# Residual networks


def residual(scale: float = 1.0) -> tuple[Residual, torch.Tensor, torch.Tensor]:
    x, prior = torch.randn(9, 5), torch.randn(9, 4)
    each = [zero_last_layer(perceptron(5, 4, 8)) for _ in range(3)]
    return Residual(Standardize.from_data(x), Stack(each), scale), x, prior


def test_the_initial_output_of_a_residual_is_the_scaled_prior() -> None:
    network, x, prior = residual(0.5)
    assert torch.equal(network(x, prior), (0.5 * prior).expand(3, -1, -1))


def test_a_residual_adds_the_outputs_of_each_member_to_its_scaled_prior() -> None:
    network, x, prior = residual()
    perturbed(network.stack)
    with torch.no_grad():
        network.scale.copy_(torch.tensor([1.0, 2.0, -1.0]).view(3, 1, 1))
    standardized = (x - x.mean(dim=0)) / x.std(dim=0, unbiased=False)
    for i, scale in enumerate((1.0, 2.0, -1.0)):
        expected = scale * prior + network.stack.member(i)(standardized)
        torch.testing.assert_close(network(x, prior)[i], expected)


def test_columns_select_outputs() -> None:
    network, x, prior = residual()
    perturbed(network.stack)
    columns = torch.stack([torch.randperm(4) for _ in range(9)])[:, :2]
    columns[3] = 2  # An output can be in several columns.
    outputs = network.stack(network.standardize(x))
    result = network(x, prior[:, :2], columns)
    assert result.shape == (3, 9, 2)
    for member in range(3):
        for row in range(9):
            expected = outputs[member, row, columns[row]]
            torch.testing.assert_close(result[member, row], prior[row, :2] + expected)


def test_members_of_a_residual_do_not_affect_each_other() -> None:
    network, x, prior = residual()
    perturbed(network.stack)
    network(x, prior)[1].square().sum().backward()
    for parameter in network.parameters():
        assert parameter.grad is not None
        assert parameter.grad[1].abs().max() > 0
        assert parameter.grad[[0, 2]].abs().max() == 0


def test_the_default_perceptron_is_that_of_the_paper() -> None:
    network = perceptron(10, 4)
    assert [m.out_features for m in network if isinstance(m, nn.Linear)] == [128, 128, 4]
    assert sum(isinstance(m, nn.ReLU) for m in network) == 2
    assert len(perceptron(10, 4, hidden=0)) == 1


def test_standardized_columns_have_mean_0_and_deviation_1() -> None:
    x = torch.randn(500, 3) * torch.tensor([1e-6, 1.0, 1e5]) + torch.tensor([0.0, -4.0, 1e5])
    z = Standardize.from_data(x)(x).double()
    assert z.mean(0).abs().max() < 1e-5
    assert (z.std(0, unbiased=False) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("value", [0.0, 5.0, 0.1, 1e8, -3e-12])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_constant_column_becomes_zero(value: float, dtype: torch.dtype) -> None:
    x = torch.full((1000, 2), min(value, 6e4) if dtype == torch.float16 else value, dtype=dtype)
    standardize = Standardize.from_data(x)
    assert standardize(x).abs().max() <= 1e-6 * max(1.0, abs(value))
    assert torch.equal(standardize.scale, torch.ones(2, dtype=standardize.scale.dtype))


def test_float16_features_near_their_limit_do_not_overflow() -> None:
    x = torch.tensor([[6e4, 1.0], [6.5e4, 1.0], [5.5e4, 1.0]], dtype=torch.float16).repeat(2000, 1)
    z = Standardize.from_data(x)(x)
    assert z.dtype == torch.float32
    assert torch.isfinite(z).all()
    exact = (x.double() - x.double().mean(0))[:, 0] / x.double()[:, 0].std(unbiased=False)
    torch.testing.assert_close(z[:, 0].double(), exact, rtol=1e-5, atol=1e-5)


def test_a_float64_column_that_varies_little_keeps_its_variation() -> None:
    seconds = torch.arange(100, dtype=torch.float64)[:, None] + 1.7e9  # Time stamps.
    z = Standardize.from_data(seconds)(seconds)
    assert z.dtype == torch.float32
    exact = (seconds - seconds.mean()) / seconds.std(unbiased=False)
    torch.testing.assert_close(z.double(), exact, rtol=1e-6, atol=1e-6)


def test_new_rows_are_standardized_with_the_statistics_of_fit() -> None:
    standardize = Standardize.from_data(torch.tensor([[0.0], [2.0]]))
    assert standardize(torch.tensor([[5.0]])).item() == 4.0
    assert set(standardize.state_dict()) == {"mean", "scale"}
