"""Training with losses that are not finite, and with invalid input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_training import (
    SETTINGS,
    assert_close,
    data,
    differ,
    network,
    stack_loss,
    weighted_loss,
)
from torch import Tensor, nn

from shortlist.learning.networks import Stack
from shortlist.learning.settings import (
    TrainingSettings,
)
from shortlist.learning.training import train

# Losses that are not finite


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_names_the_member(value: float) -> None:
    x, y, _ = data()
    calls = []

    def objective(outputs: Tensor, labels: Tensor) -> Tensor:
        calls.append(1)
        broken = torch.tensor([1.0, value if len(calls) > 20 else 1.0, 1.0])
        return stack_loss(outputs, labels) * broken

    with pytest.raises(FloatingPointError, match=r"of the b became (nan|inf).* 0\.01") as caught:
        train(Stack(network(), 3), x, [y], objective, SETTINGS, members=["a", "b", "c"])
    assert "clip_norm" in str(caught.value)
    assert "epoch 2" in str(
        caught.value
    )  # 20 calls are two epochs of eight batches and one validation.


def test_a_loss_that_is_not_finite_names_the_network() -> None:
    x, y, _ = data()
    with pytest.raises(FloatingPointError, match="of the selector became nan in epoch 0"):
        train(
            network(),
            x,
            [y],
            lambda o, t: weighted_loss(o, t) * torch.nan,
            SETTINGS,
            name="selector",
        )


def test_a_validation_loss_that_is_not_finite_raises() -> None:
    x, y, _ = data()

    def objective(outputs: Tensor, labels: Tensor) -> Tensor:
        return weighted_loss(outputs, labels) * (1 if torch.is_grad_enabled() else torch.inf)

    with pytest.raises(FloatingPointError, match="validation loss of the network became inf"):
        train(network(), x, [y], objective, SETTINGS)


def test_weights_that_are_not_finite_after_the_last_step_raise() -> None:
    x, y, _ = data(10)

    def steep(outputs: Tensor, labels: Tensor) -> Tensor:
        return (
            (outputs - outputs.detach()).abs().sqrt().sum()
        )  # The value is 0, and the gradient is infinite.

    with pytest.raises(FloatingPointError, match="norm of weights of the network became nan"):
        train(network(), x, [y], steep, replace(SETTINGS, max_epochs=1))


def test_a_member_that_has_stopped_does_not_affect_the_others() -> None:
    x, y, _ = data()
    epochs = []

    def objective(outputs: Tensor, labels: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            epochs.append(1)
        # The second member does not improve, stops after `patience` epochs, and then becomes NaN.
        flat = outputs[1].sum() * (torch.nan if len(epochs) > 5 else 0.0)
        return torch.stack([weighted_loss(outputs[0], labels), flat])

    stack, settings = Stack(network(), 2), replace(SETTINGS, max_epochs=10, patience=3)
    history = train(stack, x, [y], objective, settings, members=["a", "b"])
    assert np.isnan(history.loss[-1][1])
    assert history.best_epoch[1] == 0
    alone = network()
    train(alone, x, [y], weighted_loss, settings)
    assert_close(stack.member(0), alone, 1e-8)
    assert all(torch.isfinite(p).all() for p in stack.parameters())


# Invalid input


def test_no_rows_raise() -> None:
    with pytest.raises(ValueError, match="no rows"):
        train(network(), torch.zeros(0, 4), [torch.zeros(0)], weighted_loss, SETTINGS)


def test_no_parameters_raise() -> None:
    x, y, _ = data()
    with pytest.raises(ValueError, match=r"Tanh.*requires a gradient"):
        train(nn.Tanh(), x, [y], weighted_loss, SETTINGS)


def test_frozen_layers_do_not_change() -> None:
    x, y, _ = data()
    half_frozen = network()
    half_frozen[0].requires_grad_(False)
    before = half_frozen[0].weight.clone()
    train(half_frozen, x, [y], weighted_loss, SETTINGS)
    assert torch.equal(half_frozen[0].weight, before)
    assert differ(half_frozen, network())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("weight_decay", -0.1),
        ("batch_size", 0),
        ("batch_size", 12.5),
        ("max_epochs", 0),
        ("patience", -1),
        ("validation_fraction", 1.0),
        ("validation_fraction", -0.1),
        ("clip_norm", 0.0),
        ("ema_decay", 1.0),
        ("ema_decay", -0.5),
    ],
)
def test_invalid_settings_raise(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"{name} must .*; got {value}"):
        replace(SETTINGS, **{name: value})


def test_an_epoch_of_few_rows_takes_the_minimum_number_of_steps() -> None:
    batch_sizes: list[int] = []

    def objective(outputs: Tensor, y: Tensor) -> Tensor:
        batch_sizes.append(len(y))
        return (outputs[:, 0] - y).square().mean()

    x, y = torch.randn(25, 3), torch.randn(25)
    settings = TrainingSettings(
        batch_size=10, min_steps_per_epoch=8, max_epochs=1, validation_fraction=0
    )
    history = train(nn.Linear(3, 1), x, [y], objective, settings)
    assert settings.passes(25) == 3  # Each pass has three batches.
    assert batch_sizes == [10, 10, 5] * 3
    assert len(history) == 1
