"""The training loop, compared with simple reference loops."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shortlist.learning import training, validation
from shortlist.learning.networks import Stack, perceptron
from shortlist.learning.settings import (
    TrainingSettings,
    build_with_seed,
    resolve_device,
    resolve_seed,
)
from shortlist.learning.training import train

SETTINGS = TrainingSettings(learning_rate=0.01, batch_size=16, max_epochs=4, seed=5)
WEIGHTS = [1.0, 0.2, 3.0]
"""Weight of the second class in the loss of each member of a stack."""


def data(rows: int = 130) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, labels that depend on them, and row numbers."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] + 0.5 * x[:, 1] ** 2 + noise > 0.4).long(), torch.arange(rows)


def network(seed: int = 0) -> nn.Sequential:
    return build_with_seed(lambda: perceptron(4, 2, 8).double(), seed)


def weighted_loss(outputs: Tensor, y: Tensor, *ids: Tensor, weight: float = 1.0) -> Tensor:
    share = torch.where(y == 1, weight, 1.0)
    return (nn.functional.cross_entropy(outputs, y, reduction="none") * share).mean()


def stack_loss(outputs: Tensor, y: Tensor, *ids: Tensor) -> Tensor:
    return torch.stack(
        [weighted_loss(o, y, weight=w) for o, w in zip(outputs, WEIGHTS, strict=True)]
    )


def member_loss(weight: float) -> Callable[..., Tensor]:
    return lambda outputs, y, *ids: weighted_loss(outputs, y, weight=weight)


class Recorder:
    """An objective that records the training rows and the validation rows."""

    def __init__(self, objective: Callable[..., Tensor] = weighted_loss) -> None:
        self.objective = objective
        self.batches: list[Tensor] = []
        self.validated: list[Tensor] = []

    def __call__(self, outputs: Tensor, y: Tensor, ids: Tensor) -> Tensor:
        (self.batches if torch.is_grad_enabled() else self.validated).append(ids)
        return self.objective(outputs, y)


def reference_loop(
    module: nn.Module,
    batches: Sequence[Tensor],
    settings: TrainingSettings,
    objective: Callable[..., Tensor] = weighted_loss,
    after: Callable[[], None] = lambda: None,
) -> list[float]:
    """Train by a simple loop with Adam. Return the norms of the gradients before clipping."""
    x, y, _ = data()
    adam = (torch.optim.AdamW if settings.decoupled_weight_decay else torch.optim.Adam)(
        module.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=False,
        foreach=False,
    )
    norms = []
    for rows in batches:
        adam.zero_grad()
        objective(module(x[rows]), y[rows], rows).backward()
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        norms.append(float(torch.cat([g.flatten() for g in grads]).norm()))
        if settings.clip_norm is not None:
            for grad in grads:
                grad.mul_(min(1.0, settings.clip_norm / norms[-1]))
        adam.step()
        after()
    return norms


def assert_close(a: nn.Module, b: nn.Module, tolerance: float = 1e-10) -> None:
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


def differ(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return any(not torch.equal(p, q) for p, q in pairs)


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

OVERFITTING = TrainingSettings(
    learning_rate=0.05, batch_size=16, max_epochs=40, patience=3, validation_fraction=0.3
)


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


# Cross-fitting

in_fold = torch.arange(130)[torch.randperm(130, generator=torch.Generator().manual_seed(2))] % 3
NAMES = ["a", "b", "c"]


def by_row(outputs: Tensor, y: Tensor, *ids: Tensor) -> Tensor:
    """Return the loss of each member and row."""
    each = y.expand(outputs.shape[:2])  # Members share the rows or have their own.
    losses = [
        nn.functional.cross_entropy(o, t, reduction="none")
        for o, t in zip(outputs, each, strict=True)
    ]
    return torch.stack(losses)


def cross_fit_stack() -> Stack:
    return Stack([network(j) for j in range(3)])


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
@pytest.mark.parametrize("member", [0, 1, 2])
def test_a_member_is_never_trained_on_its_own_fold(member: int, ema_decay: float) -> None:
    # The weights of the only epoch are kept, whatever the validation loss is.
    settings = replace(SETTINGS, max_epochs=1, min_steps_per_epoch=40, ema_decay=ema_decay)
    x, y, _ = data()
    own = in_fold == member
    changed_x, changed_y = x.clone(), y.clone()
    changed_x[own] *= -7
    changed_y[own] = 1 - changed_y[own]
    original, changed = cross_fit_stack(), cross_fit_stack()
    train(original, x, [y], by_row, settings, members=NAMES, folds=in_fold)
    train(changed, changed_x, [changed_y], by_row, settings, members=NAMES, folds=in_fold)
    for j in range(3):
        assert differ(original.member(j), changed.member(j)) == (j != member)
        assert differ(original.member(j), network(j))


def test_every_row_is_in_the_training_rows_of_all_members_but_one() -> None:
    x, y, ids = data()
    recorder = Recorder(by_row)
    train(cross_fit_stack(), x, [y, ids], recorder, SETTINGS, members=NAMES, folds=in_fold)
    epochs = torch.cat(recorder.batches).view(4, 130)
    assert all(torch.equal(e.sort().values, ids) for e in epochs)
    # Each member is validated on its own fold. Shorter folds repeat their last row.
    validated = recorder.validated[0]
    assert validated.shape == (3, 44)
    for j in range(3):
        assert torch.equal(validated[j].unique(), ids[in_fold == j])


def test_the_validation_loss_does_not_depend_on_its_batch_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y, _ = data()
    uneven = (torch.arange(130) > 20).long() + (torch.arange(130) > 90)
    losses = []
    for max_rows in (8192, 7, 3):
        monkeypatch.setitem(validation.EVALUATION_ROWS, "cpu", max_rows)
        history = train(cross_fit_stack(), x, [y], by_row, SETTINGS, members=NAMES, folds=uneven)
        losses.append(history.validation_loss)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-12)
    np.testing.assert_allclose(losses[2], losses[0], rtol=1e-12)


def test_a_member_stops_early_on_its_own_fold() -> None:
    x, y, _ = data()
    stack = cross_fit_stack()
    history = train(stack, x, [y], by_row, OVERFITTING, members=NAMES, folds=in_fold)
    assert len(set(history.best_epoch)) > 1
    assert len(history) == max(history.best_epoch) + 1 + OVERFITTING.patience
    for j in range(3):
        own = in_fold == j
        with torch.no_grad():
            loss = float(weighted_loss(stack.member(j)(x[own]), y[own]))
        own_loss = [losses[j] for losses in history.validation_loss]
        assert own_loss[history.best_epoch[j]] == min(own_loss[: history.best_epoch[j] + 4])
        assert loss == pytest.approx(own_loss[history.best_epoch[j]], rel=1e-10)


def test_with_one_batch_a_member_equals_a_network_trained_alone_on_the_other_folds() -> None:
    settings = replace(SETTINGS, batch_size=130, max_epochs=30, learning_rate=0.05)
    x, y, _ = data()
    stack = cross_fit_stack()
    history = train(stack, x, [y], by_row, settings, members=NAMES, folds=in_fold)
    for j in range(3):
        alone, others = network(j), in_fold != j
        assert history.best_epoch[j] > 0
        until = replace(settings, max_epochs=history.best_epoch[j] + 1, validation_fraction=0.0)
        alone_history = train(alone, x[others], [y[others]], weighted_loss, until)
        assert_close(stack.member(j), alone, 1e-8)
        own_loss = [losses[j] for losses in history.loss[: len(alone_history)]]
        np.testing.assert_allclose(own_loss, np.ravel(alone_history.loss), rtol=1e-8)


def test_in_batches_a_member_takes_the_steps_of_its_training_rows() -> None:
    settings = replace(SETTINGS, max_epochs=1, clip_norm=0.2)
    x, y, ids = data()
    stack, recorder = cross_fit_stack(), Recorder(by_row)
    train(stack, x, [y, ids], recorder, settings, members=NAMES, folds=in_fold)
    for j in range(3):

        def member(outputs: Tensor, labels: Tensor, rows: Tensor, j: int = j) -> Tensor:
            others, share = in_fold[rows] != j, (in_fold != j).double().mean()
            total = nn.functional.cross_entropy(outputs[others], labels[others], reduction="sum")
            return total / (len(rows) * share)

        alone = network(j)
        reference_loop(alone, recorder.batches, settings, member)
        assert_close(stack.member(j), alone)


@pytest.mark.parametrize(
    ("folds", "counts"),
    [
        ([0, 0, 1, 1], r"\[2, 2, 0\]"),
        ([0, 1, 2, 4], r"\[1, 1, 1\]"),
        ([0, 0, 3, 3], r"\[2, 0, 0\]"),
    ],
)
def test_every_member_needs_a_fold(folds: list[int], counts: str) -> None:
    x, y, _ = data(4)
    with pytest.raises(ValueError, match=rf"3 members need rows in each.*{counts}"):
        train(cross_fit_stack(), x, [y], by_row, SETTINGS, members=NAMES, folds=torch.tensor(folds))


def test_rows_of_no_fold_train_all_members_and_validate_none() -> None:
    settings = replace(SETTINGS, batch_size=130, max_epochs=30, learning_rate=0.05)
    x, y, _ = data()
    folds = torch.where(torch.arange(len(x)) % 4 == 0, 3, in_fold)
    stack, recorder = cross_fit_stack(), Recorder(by_row)
    ids = torch.arange(len(x))
    history = train(stack, x, [y, ids], recorder, settings, members=NAMES, folds=folds)
    for j in range(3):
        alone, others = network(j), folds != j
        until = replace(settings, max_epochs=history.best_epoch[j] + 1, validation_fraction=0.0)
        alone_history = train(alone, x[others], [y[others]], weighted_loss, until)
        assert_close(stack.member(j), alone, 1e-8)
        own_loss = [losses[j] for losses in history.loss[: len(alone_history)]]
        np.testing.assert_allclose(own_loss, np.ravel(alone_history.loss), rtol=1e-8)
        with torch.no_grad():
            own = nn.functional.cross_entropy(stack.member(j)(x[folds == j]), y[folds == j])
        best = history.validation_loss[history.best_epoch[j]][j]
        assert best == pytest.approx(float(own), rel=1e-6)


def test_a_member_needs_rows_of_other_folds() -> None:
    x, y, _ = data(4)
    with pytest.raises(ValueError, match=r"1 members need.*\[4\]"):
        train(
            Stack(network(), 1), x, [y], by_row, SETTINGS, members=["a"], folds=torch.zeros(4).int()
        )


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
