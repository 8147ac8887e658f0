"""Stacks whose members are each trained without one fold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_training import (
    OVERFITTING,
    SETTINGS,
    Recorder,
    assert_close,
    data,
    differ,
    network,
    reference_loop,
    weighted_loss,
)
from torch import Tensor, nn

from shortlist.learning import validation
from shortlist.learning.networks import Stack
from shortlist.learning.training import train

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
