"""Train ensembles: on a CPU, each member in one thread.

In one process on a CPU, the members of all ensembles are trained by threads that take one member
after the other and do not wait for each other. Otherwise the members of an ensemble are trained
together by `train`: on a GPU, in a process group, with checkpoints, and with rows that do not fit
in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from shortlist._utils.out_of_core import Matrix
from shortlist._utils.progress import Show, Step, track
from shortlist._utils.threads import map_in_threads, multi_threaded
from shortlist.learning.batches import Examples
from shortlist.learning.networks import Ensemble
from shortlist.learning.process_group import current_group
from shortlist.learning.settings import TrainingSettings
from shortlist.learning.training import History, TrainingRun, train
from shortlist.learning.validation import count_folds, split_rows

RowLosses = Callable[[Tensor, Tensor], Tensor]
"""Function from the outputs of all members and the targets to losses of shape (members, rows)."""


@dataclass(frozen=True)
class EnsembleFit:
    """An ensemble, and the rows to train it on.

    If it is cross-fitted, a member learns from the rows outside its own fold, and stops early on
    the rows of its fold. Otherwise all members learn from the same rows, and stop early on the same
    validation rows, which are those of `split_rows`.

    Parameters
    ----------
    name : str
        Name of the members in messages.
    title : str
        Description of the training, for the progress bar.
    network : Ensemble
        Networks, which are trained in place.
    inputs : sequence of matrix
        Arguments of the network.
    target : Tensor of shape (n_rows,)
        Columns of the true labels.
    folds : Tensor of shape (n_rows,), optional
        Fold of each row, if the ensemble is cross-fitted. Rows whose fold is the number of members
        train all members.
    """

    name: str
    title: str
    network: Ensemble
    inputs: Sequence[Matrix]
    target: Tensor
    folds: Tensor | None = None

    @property
    def members(self) -> list[str]:
        """Names of the members."""
        return [f"{self.name} {j}" for j in range(self.network.stack.members)]

    @property
    def can_train_apart(self) -> bool:
        """Whether the members can be trained by threads."""
        group = current_group()
        is_alone = group.world_size == 1 and group.store(self.title) is None
        rows = self.examples
        return is_alone and rows.device.type == "cpu" and not rows.is_windowed

    @property
    def examples(self) -> Examples:
        """The rows to train on."""
        return Examples(tuple(self.inputs), (self.target,))

    def split(self, position: int, settings: TrainingSettings) -> tuple[Tensor, Tensor]:
        """Return the training rows and the validation rows of a member.

        Parameters
        ----------
        position : int
            Number of the member.
        settings : TrainingSettings
            Fraction of the validation rows, and seed.

        Returns
        -------
        tuple of two Tensor
        """
        if self.folds is None:
            return split_rows(self.examples, settings)
        is_own = self.folds == position
        return (~is_own).nonzero()[:, 0], is_own.nonzero()[:, 0]

    def settings_of(self, position: int, settings: TrainingSettings) -> TrainingSettings:
        """Return the settings of the training of a member.

        Parameters
        ----------
        position : int
            Number of the member.
        settings : TrainingSettings
            Settings of the ensemble.

        Returns
        -------
        TrainingSettings
        """
        if self.folds is None:  # The rows are the same, but their order is not.
            return replace(settings, seed=settings.seed + position)
        # As many steps in an epoch as if the batches had rows of all folds.
        share = int((self.folds != position).sum()) / len(self.folds)
        return replace(settings, batch_size=max(1, round(settings.batch_size * share)))


def train_ensembles(
    fits: Sequence[EnsembleFit], losses: RowLosses, settings: TrainingSettings, progress: Show
) -> list[History]:
    """Train several ensembles in place; see `train`.

    Parameters
    ----------
    fits : sequence of EnsembleFit
        Ensembles.
    losses : callable
        Function from the outputs of all members and the targets to the loss of each member and
        row.
    settings : TrainingSettings
        Optimizer, epochs and seed.
    progress : bool or "auto"
        Whether to show progress bars.

    Returns
    -------
    list of History
        Losses of each ensemble. Members that have stopped repeat their last loss.

    Raises
    ------
    ValueError
        If a fold is empty.
    FloatingPointError
        If a loss or a weight is not finite.
    """
    if all(fit.can_train_apart for fit in fits):
        return _train_apart(fits, losses, settings, progress)
    with multi_threaded():
        return [_train_together(fit, losses, settings, progress) for fit in fits]


def _train_together(
    fit: EnsembleFit, losses: RowLosses, settings: TrainingSettings, progress: Show
) -> History:
    """Train the members of an ensemble in the same steps."""

    def mean_losses(outputs: Tensor, target: Tensor) -> Tensor:
        return losses(outputs, target).mean(dim=1)

    return train(
        fit.network,
        fit.inputs,
        [fit.target],
        mean_losses if fit.folds is None else losses,
        settings,
        members=fit.members,
        folds=fit.folds,
        use_cuda_graph=True,
        progress=progress,
        name=fit.title,
    )


@dataclass(frozen=True)
class _Member:
    """One member to train."""

    fit: EnsembleFit
    position: int
    step: Step

    @property
    def cost(self) -> int:
        """Number of parameters, to which the time of the training is proportional."""
        return sum(parameter[0].numel() for parameter in self.fit.network.parameters())


def _train_apart(
    fits: Sequence[EnsembleFit], losses: RowLosses, settings: TrainingSettings, progress: Show
) -> list[History]:
    """Train the members of all ensembles in threads."""
    for fit in fits:
        if fit.folds is not None:
            count_folds(fit.folds, len(fit.members))
    lock, cancelled = threading.Lock(), threading.Event()

    def locked(step: Step) -> Step:
        def report(note: str, count: int = 1) -> None:
            with lock:
                step(note, count)

        return report

    def work(member: _Member) -> tuple[History, float]:
        try:
            return _train_member(member, losses, settings, cancelled), time.monotonic()
        except BaseException:
            cancelled.set()
            raise

    with ExitStack() as bars:
        members = []
        for fit in fits:
            total = len(fit.members) * settings.max_epochs
            step = locked(bars.enter_context(track(fit.title, total, progress)))
            members += [_Member(fit, j, step) for j in range(len(fit.members))]
        # The largest first, so that all threads finish at about the same time.
        order = sorted(range(len(members)), key=lambda i: -members[i].cost)
        try:
            results = map_in_threads(work, [members[i] for i in order])
        finally:
            cancelled.set()  # Let members that still train stop, if this thread was interrupted.
    by_member = dict(zip(order, results, strict=True))
    histories, first = [], 0
    for fit in fits:
        own = [by_member[i] for i in range(first, first + len(fit.members))]
        first += len(fit.members)
        fit.network.eval()
        histories.append(_join(own))
    return histories


def _train_member(
    member: _Member, losses: RowLosses, settings: TrainingSettings, cancelled: threading.Event
) -> History:
    """Train one member on its own training rows."""
    fit = member.fit
    # A copy, because PyTorch counts the changes of all slices of a tensor together, so that members
    # that share the memory of the ensemble cannot be trained at the same time.
    network = deepcopy(fit.network.select_member(member.position))
    # The global generator would depend on what other threads draw from it.
    network.stack.generator = generator = torch.Generator()
    run = TrainingRun(
        network,
        fit.examples,
        lambda outputs, target: losses(outputs, target).mean(dim=1),
        fit.settings_of(member.position, settings),
        [fit.members[member.position]],
        use_cuda_graph=False,
        name=fit.title,
        split=fit.split(member.position, settings),
        generator=generator,
    )
    while run.should_continue() and not cancelled.is_set():
        run.epoch()
        member.step(run.note())
    run.finish()
    with torch.no_grad():
        for values, own in zip(fit.network.parameters(), network.parameters(), strict=True):
            values[member.position] = own[0]
    return run.history


def _join(results: Sequence[tuple[History, float]]) -> History:
    """Join the losses of members, each with the time when its training ended."""
    members = [history for history, _ in results]
    epochs = max(len(history) for history in members)

    def table(name: str) -> list[list[float]]:
        columns = [[values[0] for values in getattr(history, name)] for history in members]
        padded = [column + column[-1:] * (epochs - len(column)) for column in columns]
        return [list(row) for row in zip(*padded, strict=True)]

    started = min(end - history.seconds for history, end in results)
    return History(
        loss=table("loss"),
        validation_loss=table("validation_loss"),
        best_epoch=[history.best_epoch[0] for history in members],
        seconds=max(end for _, end in results) - started,
    )
