"""The training loop, compared with simple reference loops."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_training import (
    OVERFITTING,
    SETTINGS,
    WEIGHTS,
    Recorder,
    assert_close,
    data,
    differ,
    member_loss,
    network,
    reference_loop,
    stack_loss,
    weighted_loss,
)
from torch import Tensor, nn

from shortlist.learning import training
from shortlist.learning.networks import Stack
from shortlist.learning.settings import (
    build_with_seed,
    resolve_device,
    resolve_seed,
)
from shortlist.learning.training import train

# Steps of the optimizer


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_training_is_adam_with_l2(weight_decay: float) -> None:
    settings = replace(SETTINGS, weight_decay=weight_decay, validation_fraction=0.0)
    x, y, ids = data()
    trained, reference, recorder = network(), network(), Recorder()
    train(trained, x, [y, ids], recorder, settings)
    reference_loop(reference, recorder.batches, settings)
    assert_close(trained, reference)
    assert differ(trained, network())


def test_decoupled_weight_decay_is_adamw() -> None:
    settings = replace(
        SETTINGS, weight_decay=0.5, validation_fraction=0.0, decoupled_weight_decay=True
    )
    x, y, ids = data()
    trained, reference, coupled, recorder = network(), network(), network(), Recorder()
    train(trained, x, [y, ids], recorder, settings)
    reference_loop(reference, recorder.batches, settings)
    assert_close(trained, reference)
    reference_loop(coupled, recorder.batches, replace(settings, decoupled_weight_decay=False))
    with pytest.raises(AssertionError):
        assert_close(coupled, reference, 1e-2)


class TwoInputs(nn.Module):
    """A network with two inputs."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        out: Tensor = self.inner(torch.cat([left, right], dim=1))
        return out


def test_several_inputs_are_passed_as_arguments() -> None:
    x, y, _ = data()
    whole, parts = network(), TwoInputs(network())
    train(whole, x, [y], weighted_loss, SETTINGS)
    train(parts, [x[:, :1], x[:, 1:]], [y], weighted_loss, SETTINGS)
    assert not differ(whole, parts.inner)


def test_every_epoch_contains_every_row_once_in_another_order() -> None:
    x, y, ids = data()
    recorder = Recorder()
    train(network(), x, [y, ids], recorder, replace(SETTINGS, validation_fraction=0.0))
    sizes = [len(b) for b in recorder.batches]
    assert max(sizes) == 16
    epochs = torch.cat(recorder.batches).view(4, 130)
    assert all(torch.equal(e.sort().values, ids) for e in epochs)
    assert not torch.equal(epochs[0], epochs[1])


def test_the_history_contains_the_mean_loss_of_the_rows() -> None:
    x, y, ids = data()
    batch_losses: list[tuple[float, int]] = []

    def objective(outputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        loss = weighted_loss(outputs, labels)
        batch_losses.append((loss.item(), len(rows)))
        return loss

    settings = replace(SETTINGS, max_epochs=1, validation_fraction=0.0)
    history = train(network(), x, [y, ids], objective, settings)
    expected = sum(loss * rows for loss, rows in batch_losses) / len(x)
    assert history.loss == [[pytest.approx(expected, rel=1e-12)]]
    assert len(history) == 1
    assert history.seconds > 0


def test_clipping_scales_the_gradient_down_to_the_maximum_norm() -> None:
    settings = replace(SETTINGS, clip_norm=0.15, validation_fraction=0.0)
    x, y, ids = data()
    trained, reference, recorder = network(), network(), Recorder()
    train(trained, x, [y, ids], recorder, settings)
    norms = reference_loop(reference, recorder.batches, settings)
    assert min(norms) < 0.15 < max(norms)  # Some are clipped, and some are not.
    assert_close(trained, reference)
    unclipped = network()
    reference_loop(unclipped, recorder.batches, replace(settings, clip_norm=None))
    assert differ(unclipped, reference)


def test_the_gradient_of_each_member_of_a_stack_is_clipped() -> None:
    settings = replace(SETTINGS, clip_norm=0.15, validation_fraction=0.0)
    x, y, ids = data()
    stack, recorder = Stack(network(), 3), Recorder(stack_loss)
    train(stack, x, [y, ids], recorder, settings, members=["a", "b", "c"])
    for i, weight in enumerate(WEIGHTS):
        alone = network()
        norms = reference_loop(alone, recorder.batches, settings, member_loss(weight))
        assert max(norms) > 0.15
        assert_close(stack.member(i), alone)


# Threads


@pytest.mark.parametrize("is_small", [True, False])
def test_small_steps_use_one_thread(is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A barrier of all threads would take longer than an operation of a small network."""
    x, y, _ = data()
    threads: set[int] = set()

    def objective(outputs: Tensor, labels: Tensor) -> Tensor:
        threads.add(torch.get_num_threads())
        return weighted_loss(outputs, labels)

    if not is_small:
        monkeypatch.setattr(training, "MIN_PARALLEL_PRODUCTS", 16)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train(network(), x, [y], objective, SETTINGS)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == {1 if is_small else 2}


# Random seeds


def dropout(seed: int = 0) -> nn.Sequential:
    def build() -> nn.Sequential:
        layers = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)]
        return nn.Sequential(*layers).double()

    return build_with_seed(build, seed)


@pytest.mark.parametrize("make", [network, dropout])
def test_the_same_seed_gives_the_same_weights_bit_for_bit(make: Callable[[], nn.Module]) -> None:
    x, y, _ = data()
    first, second, other = make(), make(), make()
    torch.manual_seed(1)
    a = train(first, x, [y], weighted_loss, SETTINGS)
    torch.manual_seed(2)  # The global random state has no effect.
    b = train(second, x, [y], weighted_loss, SETTINGS)
    assert not differ(first, second)
    assert (a.loss, a.validation_loss) == (b.loss, b.validation_loss)
    train(other, x, [y], weighted_loss, replace(SETTINGS, seed=6))
    assert differ(first, other)


def test_the_global_random_states_are_restored() -> None:
    x, y, _ = data()
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    train(dropout(), x, [y], weighted_loss, SETTINGS)
    network(3)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert random.getstate() == states[2]


def test_build_with_seed_depends_on_the_seed_alone() -> None:
    assert not differ(network(7), network(7))
    assert differ(network(7), network(8))


def test_random_states_of_scikit_learn_are_accepted() -> None:
    assert resolve_seed(3) == 3 == resolve_seed(np.int64(3))
    assert resolve_seed(np.random.RandomState(4)) == resolve_seed(np.random.RandomState(4))
    assert 0 <= resolve_seed(None) < 2**31
    with pytest.raises(ValueError, match="got -1"):
        resolve_seed(-1)
    with pytest.raises(ValueError, match="'abc'"):
        resolve_seed("abc")


def test_auto_is_the_device_of_the_inputs() -> None:
    assert resolve_device("auto", torch.zeros(1, device="meta")) == torch.device("meta")
    assert resolve_device("cpu", torch.zeros(1, device="meta")) == torch.device("cpu")


# Early stopping


def test_early_stopping_keeps_the_weights_with_the_lowest_validation_loss() -> None:
    x, y, ids = data()
    trained, recorder = network(), Recorder()
    history = train(trained, x, [y, ids], recorder, OVERFITTING)
    held_out, rows = recorder.validated[0], torch.cat(recorder.batches).unique()
    assert len(held_out) == 39
    assert torch.equal(torch.cat([held_out, rows]).sort().values, ids)
    losses = [loss for (loss,) in history.validation_loss]
    best = history.best_epoch[0]
    assert losses[best] == min(losses)
    assert 0 < best < len(history) - 1
    assert len(history) == best + 1 + OVERFITTING.patience < OVERFITTING.max_epochs
    with torch.no_grad():
        assert float(weighted_loss(trained(x[held_out]), y[held_out])) == pytest.approx(min(losses))
    # Training for only that number of epochs gives the same weights.
    stopped = network()
    train(stopped, x, [y, ids], weighted_loss, replace(OVERFITTING, max_epochs=best + 1))
    assert not differ(trained, stopped)
    assert not trained.training


def test_each_member_of_a_stack_stops_as_if_it_were_trained_alone() -> None:
    x, y, ids = data()
    stack = Stack(network(), 3)
    stack_history = train(stack, x, [y], stack_loss, OVERFITTING, members=["a", "b", "c"])
    ends = set()
    for i, weight in enumerate(WEIGHTS):
        alone = network()
        history = train(alone, x, [y, ids], member_loss(weight), OVERFITTING)
        assert_close(stack.member(i), alone, 1e-8)
        assert stack_history.best_epoch[i] == history.best_epoch[0]
        for name in ("loss", "validation_loss"):
            own = [losses[i] for losses in getattr(stack_history, name)[: len(history)]]
            np.testing.assert_allclose(own, np.ravel(getattr(history, name)), rtol=1e-8)
        ends.add(len(history))
    assert len(ends) > 1  # The members end at different epochs.
    assert len(stack_history) == max(ends)


def test_fewer_than_ten_validation_rows_are_used_for_training() -> None:
    x, y, ids = data(94)
    recorder = Recorder()
    history = train(network(), x, [y, ids], recorder, replace(SETTINGS, patience=1))
    assert not recorder.validated
    assert len(torch.cat(recorder.batches).unique()) == 94
    assert history.validation_loss == []
    assert len(history) == SETTINGS.max_epochs
    assert history.best_epoch == [SETTINGS.max_epochs - 1]


def test_at_least_one_row_is_used_for_training() -> None:
    x, y, ids = data(30)
    recorder = Recorder()
    train(network(), x, [y, ids], recorder, replace(SETTINGS, validation_fraction=0.999))
    assert len(torch.cat(recorder.batches).unique()) == 1


def test_batch_norm_keeps_the_statistics_of_the_best_epoch() -> None:
    x, y, ids = data()
    trained, recorder = dropout(), Recorder()
    history = train(trained, x, [y, ids], recorder, OVERFITTING)
    held_out = recorder.validated[0]
    with torch.no_grad():
        loss = float(weighted_loss(trained(x[held_out]), y[held_out]))
    assert loss == pytest.approx(min(loss for (loss,) in history.validation_loss))


@pytest.mark.parametrize("rows", [17, 33])
def test_a_last_batch_of_one_row_is_merged_with_the_previous_one(rows: int) -> None:
    x, y, ids = data(rows)
    recorder = Recorder()  # Batch norm raises an error for a batch of one row.
    train(dropout(), x, [y, ids], recorder, replace(SETTINGS, max_epochs=1))
    assert sorted(torch.cat(recorder.batches).tolist()) == list(range(rows))
    assert min(len(b) for b in recorder.batches) > 1


def test_one_row_is_sufficient() -> None:
    x, y, _ = data(1)
    history = train(network(), x, [y], weighted_loss, SETTINGS)
    assert history.loss[-1][0] < history.loss[0][0]


# Averages of weights


def test_without_validation_rows_the_average_is_kept() -> None:
    settings = replace(SETTINGS, validation_fraction=0.0, ema_decay=0.9)
    x, y, ids = data()
    trained, reference, recorder = network(), network(), Recorder()
    train(trained, x, [y, ids], recorder, settings)
    average = [p.detach().clone() for p in reference.parameters()]
    kept: list[float] = []

    def after() -> None:
        steps = len(kept) + 1
        kept.append(min(0.9, (1 + steps) / (10 + steps)))
        for mean, p in zip(average, reference.parameters(), strict=True):
            mean.copy_(kept[-1] * mean + (1 - kept[-1]) * p.detach())

    reference_loop(reference, recorder.batches, settings, after=after)
    assert len(kept) == 36
    assert kept[0] == 2 / 11
    assert kept[-1] == (1 + 36) / (10 + 36) < 0.9  # The decay increases over the steps.
    for p, mean, last in zip(trained.parameters(), average, reference.parameters(), strict=True):
        torch.testing.assert_close(p.detach(), mean, rtol=1e-10, atol=1e-10)
        assert not torch.allclose(p, last, rtol=1e-3)


def test_after_the_first_steps_the_decay_is_constant() -> None:
    settings = replace(SETTINGS, validation_fraction=0.0, ema_decay=0.3)
    x, y, ids = data()
    trained, reference, recorder = network(), network(), Recorder()
    train(trained, x, [y, ids], recorder, settings)
    states: list[list[Tensor]] = []

    def after() -> None:
        states.append([p.detach().clone() for p in reference.parameters()])

    reference_loop(reference, recorder.batches, settings, after=after)
    shares = 0.7 * 0.3 ** torch.arange(
        len(states), dtype=torch.float64
    )  # The last step comes first.
    for i, p in enumerate(trained.parameters()):
        path = torch.stack([state[i] for state in reversed(states)])
        mean = (path * shares.view(-1, *[1] * (path.ndim - 1))).sum(dim=0)
        torch.testing.assert_close(p.detach(), mean, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("members", [None, ["a", "b", "c"]])
def test_averaged_weights_are_evaluated_and_kept_and_do_not_affect_training(
    members: list[str] | None,
) -> None:
    x, y, ids = data()
    objective = weighted_loss if members is None else stack_loss

    def fresh() -> nn.Module:
        return network() if members is None else Stack(network(), 3)

    averaged, usual, recorder = fresh(), fresh(), Recorder(objective)
    settings = replace(OVERFITTING, ema_decay=0.9)
    history = train(averaged, x, [y, ids], recorder, settings, members=members)
    other = train(usual, x, [y, ids], Recorder(objective), OVERFITTING, members=members)
    common = min(len(history), len(other))
    assert history.loss[:common] == other.loss[:common]
    assert history.validation_loss[0] != other.validation_loss[0]
    held_out = recorder.validated[0]
    with torch.no_grad():
        losses = objective(averaged(x[held_out]), y[held_out]).reshape(-1)
    best = np.min(history.validation_loss, axis=0)
    np.testing.assert_allclose(losses.numpy(), best, rtol=1e-12)


def test_an_error_during_validation_restores_the_weights() -> None:
    x, y, ids = data()
    recorder = Recorder()

    def objective(outputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            raise KeyboardInterrupt
        return recorder(outputs, labels, rows)

    trained, reference, settings = network(), network(), replace(OVERFITTING, ema_decay=0.9)
    with pytest.raises(KeyboardInterrupt):
        train(trained, x, [y, ids], objective, settings)
    reference_loop(reference, recorder.batches, settings)
    assert_close(trained, reference)
