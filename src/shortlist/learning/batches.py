"""Mini-batches of training examples, which can be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist._utils import out_of_core
from shortlist._utils.out_of_core import (
    LazyMatrix,
    Matrix,
    RowIndex,
    bytes_per_row,
    shuffled_windows,
)
from shortlist.learning.process_group import current_group


@dataclass(frozen=True)
class Examples:
    """Training examples: inputs, targets and, for cross-fitting, the fold of each row."""

    inputs: tuple[Matrix, ...]
    targets: tuple[Matrix, ...]
    folds: Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs[0])

    def __getitem__(self, rows: RowIndex) -> Examples:
        return Examples(
            tuple(x[rows] for x in self.inputs),
            tuple(t[rows] for t in self.targets),
            None if self.folds is None else self.folds[rows],
        )

    @property
    def device(self) -> torch.device:
        """Device of the examples."""
        return self.inputs[0].device

    @property
    def row_bytes(self) -> int:
        """Number of bytes of the inputs and targets of one row."""
        return sum(bytes_per_row(x) for x in (*self.inputs, *self.targets))

    @property
    def is_windowed(self) -> bool:
        """Whether the examples are read through windows, because they do not fit in memory."""
        is_lazy = any(isinstance(x, LazyMatrix) for x in (*self.inputs, *self.targets))
        is_large = len(self) * self.row_bytes > out_of_core.MAX_BYTES_IN_MEMORY
        return self.device.type == "cpu" and (is_lazy or is_large)

    def window_rows(self, batch_size: int) -> int:
        """Return the number of rows in a window, which is a multiple of the batch size."""
        return max(1, out_of_core.WINDOW_BYTES // max(1, self.row_bytes) // batch_size) * batch_size

    def shuffle(self, rows: int, batch_size: int, generator: torch.Generator) -> list[Tensor]:
        """Return a random permutation of 0 to rows - 1, split into windows that fit in memory."""
        if not self.is_windowed:
            return [torch.randperm(rows, generator=generator)]
        chunk = max(1, out_of_core.CHUNK_BYTES // max(1, self.row_bytes))
        return shuffled_windows(rows, chunk, self.window_rows(batch_size), generator)

    def load(self, rows: Tensor) -> tuple[Examples, Tensor]:
        """Return examples in memory that contain the given rows, and the positions of the rows."""
        if not self.is_windowed:
            return self, rows
        ascending, order = torch.sort(rows)  # Reading in ascending order is fastest.
        return self[ascending], torch.argsort(order)


class BatchSampler:
    """Draw the mini-batches of each epoch.

    Parameters
    ----------
    examples : Examples
        All examples of this process.
    rows : Tensor of int
        Rows that are used for training.
    batch_size : int
        Number of rows in a batch in this process.
    passes : int
        Number of passes through the rows in an epoch.
    seed : int
        Seed of the order of the rows.

    Attributes
    ----------
    loaded : Examples
        Examples in memory. The row indices of the current batch refer to them.
    """

    def __init__(
        self, examples: Examples, rows: Tensor, batch_size: int, passes: int, seed: int
    ) -> None:
        self.loaded = self._examples = examples
        self._rows, self._batch_size, self._passes, self._seed = rows, batch_size, passes, seed
        self._prefetched: tuple[int, list[Tensor]] | None = None

    def batches(self, epoch: int) -> Iterator[Tensor]:
        """Yield the batches of an epoch as row indices of `loaded`.

        All processes yield the same number of batches.

        Parameters
        ----------
        epoch : int
            Number of the epoch, counted from 0.

        Yields
        ------
        Tensor of int
            Row indices of a batch.
        """
        windows = self._windows(epoch)
        remaining = sum(_count_batches(len(window), self._batch_size) for window in windows)
        remaining = current_group().min(remaining)
        for window in windows:
            self.loaded = self._examples  # Free the previous window before the next one is read.
            rows = self._rows[window.to(self._rows.device)]
            self.loaded, positions = self._examples.load(rows)
            batches = _split_batches(positions, self._batch_size)[:remaining]
            yield from batches
            remaining -= len(batches)
        self.loaded = self._examples

    def prefetch(self, epoch: int) -> None:
        """Draw the random order of an epoch in advance."""
        self._prefetched = epoch, self._windows(epoch)

    def _windows(self, epoch: int) -> list[Tensor]:
        """Return the random order of an epoch as windows of row positions, for all passes.

        The order is drawn on the CPU, so that it is the same on every device.
        """
        if self._prefetched is not None and self._prefetched[0] == epoch:
            return self._prefetched[1]
        generator = random_generator(self._seed, 1 + epoch)
        return [
            window
            for _ in range(self._passes)
            for window in self._examples.shuffle(len(self._rows), self._batch_size, generator)
        ]


def random_generator(seed: int, stream: int) -> torch.Generator:
    """Return a generator that is seeded by the seed, the stream and the rank of the process."""
    return torch.Generator().manual_seed((seed << 20) + stream + (current_group().rank << 54))


def _count_batches(rows: int, size: int) -> int:
    """Return the number of batches that `_split_batches` returns."""
    whole = -(-rows // size)
    return whole - (whole > 1 and rows - (whole - 1) * size == 1)


def _split_batches(rows: Tensor, size: int) -> list[Tensor]:
    """Split rows into batches. A last batch of one row is merged, as batch norm needs two rows."""
    batches: list[Tensor] = list(rows.split(size))  # type: ignore[no-untyped-call]
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches
