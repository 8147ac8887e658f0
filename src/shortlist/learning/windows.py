"""Mini-batches of data larger than memory: a shuffling window that moves over them.

RowIndex that lie together are read together, in chunks whose order is drawn anew for each pass. As
many chunks as fit make a window, which is read into memory; its rows are shuffled, and batches are
taken from it. So a disk is read by chunks and not by rows, while the rows of a batch come from all
over the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist._utils import scratch as _scratch
from shortlist._utils.lazy import LazyMatrix, Matrix, RowIndex

WINDOW = 1 << 26
"""So many bytes of examples are in memory at a time."""
CHUNK = 1 << 18
"""So many bytes, of rows that lie together, are read together."""


@dataclass(frozen=True)
class Examples:
    """What a network learns from: inputs, targets, and the fold of each row, if there are any."""

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
        return self.inputs[0].device

    @property
    def row_bytes(self) -> int:
        """How many bytes a row has, of inputs and targets."""
        return sum(_row_bytes(x) for x in (*self.inputs, *self.targets))

    @property
    def windowed(self) -> bool:
        """Whether they are too large to be read in any order."""
        held = not any(isinstance(x, LazyMatrix) for x in (*self.inputs, *self.targets))
        small = len(self) * self.row_bytes <= _scratch.IN_MEMORY
        return self.device.type == "cpu" and not (held and small)

    def window_rows(self, batch: int) -> int:
        """How many rows a window has: whole batches, and one of them at least."""
        return max(1, WINDOW // max(1, self.row_bytes) // batch) * batch

    def at_hand(self, rows: Tensor) -> tuple[Examples, Tensor]:
        """Examples in memory, these rows among them, and where each of the rows is in them."""
        if not self.windowed:
            return self, rows
        # Read from the first to the last, as they lie.
        rising, order = torch.sort(rows)
        return self[rising], torch.argsort(order)

    def order(self, rows: int, batch: int, generator: torch.Generator) -> list[Tensor]:
        """The order of so many of the rows in a pass, a window after the other."""
        if not self.windowed:
            return [torch.randperm(rows, generator=generator)]
        chunk = max(1, CHUNK // max(1, self.row_bytes))
        return windows(rows, chunk, self.window_rows(batch), generator)


def windows(rows: int, chunk: int, window: int, generator: torch.Generator) -> list[Tensor]:
    """The numbers 0 to `rows` - 1 in windows: chunks are shuffled, and the rows of each window.

    >>> found = windows(10, 2, 6, torch.Generator().manual_seed(0))
    >>> [len(one) for one in found], torch.cat(found).sort().values.tolist()
    ([6, 4], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    first = chunk * torch.randperm(-(-rows // chunk), generator=generator)
    numbers = (first[:, None] + torch.arange(chunk)).flatten()
    parts = numbers[numbers < rows].split(window)  # type: ignore[no-untyped-call]
    return [part[torch.randperm(len(part), generator=generator)] for part in parts]


def _row_bytes(x: Matrix) -> int:
    width = x.shape[1] if len(x.shape) > 1 else 1
    return width * x.dtype.itemsize
