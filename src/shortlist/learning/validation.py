"""Validation rows and their loss, which decide when training stops."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from shortlist.learning.batches import Examples, random_generator
from shortlist.learning.process_group import current_group
from shortlist.learning.settings import TrainingSettings

MIN_VALIDATION_ROWS = 10
"""With fewer validation rows, training uses all rows and does not stop early."""
EVALUATION_ROWS = {"cpu": 8192, "cuda": 131_072}
"""Maximum number of validation rows in a batch, by device."""


def split_rows(examples: Examples, settings: TrainingSettings) -> tuple[Tensor, Tensor]:
    """Return the training rows and the validation rows, which are drawn at random.

    With folds, both are all rows, because each row is a validation row of one member.
    """
    count = len(examples)
    generator = random_generator(settings.seed, 0)
    shuffled = torch.randperm(count, generator=generator).to(examples.device)
    n_validation = min(round(settings.validation_fraction * count), count - 1)
    if current_group().sum(n_validation) < MIN_VALIDATION_ROWS:
        n_validation = 0
    rows, validation_rows = shuffled[n_validation:], shuffled[:n_validation]
    if examples.folds is not None:
        rows = validation_rows = shuffled
    if examples.is_windowed:  # Rows in ascending order are read faster from a disk.
        rows, validation_rows = rows.sort().values, validation_rows.sort().values
    return rows, validation_rows


def count_folds(folds: Tensor, members: int) -> Tensor:
    """Return the number of rows in each fold. Raise if a member has no training rows.

    Rows whose fold is the number of members are training rows of all members.
    """
    counts = current_group().sum(torch.bincount(folds, minlength=members + 1))
    total, counts, n_folds = counts.sum(), counts[:members], len(counts) - 1
    if n_folds != members or not bool(((counts > 0) & (counts < total)).all()):
        raise ValueError(
            f"{members} members need rows in each of the folds 0 to {members - 1}; got "
            f"{counts.tolist()} rows"
        )
    return counts


class Validation:
    """Compute the mean validation loss of each member.

    With folds, the validation rows of a member are the rows of its own fold.

    Parameters
    ----------
    examples : Examples
        All examples of this process.
    rows : Tensor of int
        Validation rows of this process.
    fold_sizes : Tensor of shape (members,), optional
        Number of rows in each fold, in all processes.
    losses : callable
        Function from examples to their mean loss; with folds, to the loss of each member and row.

    Attributes
    ----------
    count : int
        Number of validation rows in all processes.
    """

    def __init__(
        self,
        examples: Examples,
        rows: Tensor,
        fold_sizes: Tensor | None,
        losses: Callable[[Examples], Tensor],
    ) -> None:
        self._examples, self._rows, self._fold_sizes = examples, rows, fold_sizes
        self._losses = losses
        self.count = current_group().sum(len(rows))
        if examples.folds is not None:
            self._rows_by_fold = torch.argsort(examples.folds, stable=True)

    def loss(self, members: int) -> Tensor:
        """Return the mean loss of the validation rows of each member."""
        total = torch.zeros(members, dtype=torch.float64, device=self._examples.device)
        if self._fold_sizes is not None:
            return current_group().sum(self._add_fold_losses(total)) / self._fold_sizes
        for rows in self._rows.split(self._batch_size()):  # type: ignore[no-untyped-call]
            total += self._losses(self._examples[rows]) * len(rows)
        return current_group().sum(total) / self.count

    def _add_fold_losses(self, total: Tensor) -> Tensor:
        """Add the sum of the losses of each member over its own fold.

        Every batch has the same number of rows of each fold. Shorter folds repeat their last row,
        whose repetitions are not counted.
        """
        assert self._examples.folds is not None
        members = len(total)
        sizes = torch.bincount(self._examples.folds, minlength=members)[:members, None]
        ends = sizes.cumsum(dim=0)
        positions = torch.arange(int(sizes.max()), device=sizes.device).expand(len(sizes), -1)
        batch_size = -(-self._batch_size() // len(sizes))
        for position in positions.split(batch_size, dim=1):  # type: ignore[no-untyped-call]
            rows = self._rows_by_fold[torch.minimum(ends - sizes + position, ends - 1)]
            total += (self._losses(self._examples[rows]) * (position < sizes)).sum(dim=1)
        return total

    def _batch_size(self) -> int:
        """Return the number of rows in a batch."""
        rows = EVALUATION_ROWS.get(self._examples.device.type, EVALUATION_ROWS["cpu"])
        if not self._examples.is_windowed:
            return rows
        # A network allocates several tables of the size of its input.
        return min(rows, max(1, self._examples.window_rows(1) // 8))
