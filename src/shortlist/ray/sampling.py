"""Random samples of the rows of a table, which every worker can determine by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shortlist.datasets import Rows
from shortlist.datasets.bad_rows import warn_if_skipped
from shortlist.ray.cluster import run_tasks
from shortlist.ray.table import Block, Piece, Table

SAMPLE_ROWS = 200_000
"""Number of rows to sample where more rows would change little."""


class RowSelection(Protocol):
    """Some rows of a table."""

    def contains(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of the row numbers that are selected."""


@dataclass(frozen=True)
class RandomRows:
    """A random selection of rows. Whether a row is selected depends on its number alone.

    Attributes
    ----------
    share : float
        Expected fraction of the rows.
    seed : int
        Seed of the selection.

    Examples
    --------
    >>> mask = RandomRows(0.25, 0).contains(np.arange(100_000))
    >>> bool(abs(mask.mean() - 0.25) < 0.01)
    True
    """

    share: float
    seed: int

    def contains(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of the row numbers that are selected."""
        if self.share >= 1:
            return np.ones(len(numbers), dtype=bool)
        # A hash of the number: the generator SplitMix64.
        with np.errstate(over="ignore"):
            x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            x += np.uint64((0x632BE59BD9B4E019 * (self.seed + 1)) % 2**64)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x ^= x >> np.uint64(31)
        return np.asarray((x >> np.uint64(11)) < np.uint64(int(self.share * 2**53)))


@dataclass(frozen=True)
class ListedRows:
    """Rows whose numbers are listed."""

    numbers: NDArray[np.int64]

    def contains(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of the row numbers that are selected."""
        return np.isin(numbers, self.numbers)


def select_rows(block: Block, selection: RowSelection | None) -> tuple[NDArray[np.int64], Rows]:
    """Return the selected rows of a block, all if there is no selection, and their numbers."""
    if selection is None or not len(block.table_numbers):
        return block.table_numbers, block.rows
    mask = selection.contains(block.table_numbers)
    return block.table_numbers[mask], block.rows[mask]


def sample_rows(
    table: Table,
    n_rows: int,
    classes: NDArray[np.generic] | None,
    seed: int,
    workers: int | None,
    threads: int,
    *,
    held_out: RandomRows | None = None,
) -> Rows:
    """Read a random sample of rows.

    Parameters
    ----------
    table : Table
        Table to sample.
    n_rows : int
        Expected number of rows. A table with fewer rows is read completely.
    classes : array of shape (n_classes,), optional
        All classes, if they are known.
    seed : int
        Seed of the sample.
    workers, threads : int
        Number of processes, and of threads of each.
    held_out : RandomRows, optional
        Rows to leave out.

    Returns
    -------
    Rows
        The sample, in the order of the table.
    """
    available = table.n_rows * (1.0 if held_out is None else 1 - held_out.share)
    sample = RandomRows(min(1.0, n_rows / available), seed + 2000)
    task = SampleTask(table, sample, held_out, classes)
    results = dict(run_tasks(task, table.pieces, "sampling", workers=workers, threads=threads))
    warn_if_skipped(sum(n_skipped for _, n_skipped in results.values()))
    parts = [results[i][0] for i in sorted(results) if results[i][0] is not None]
    if not parts:
        raise ValueError("no rows are left to fit on")
    return Rows.concatenate(parts)


@dataclass(frozen=True)
class SampleTask:
    """Read the sampled rows of a piece, and count its bad rows."""

    table: Table
    sample: RandomRows
    held_out: RandomRows | None
    classes: NDArray[np.generic] | None

    def __call__(self, piece: Piece) -> tuple[Rows | None, int]:
        """Return the rows and the count."""
        parts, n_skipped = [], 0
        for block in self.table.read(piece, self.classes):
            n_skipped += block.n_skipped
            mask = self.sample.contains(block.table_numbers)
            if self.held_out is not None:
                mask &= ~self.held_out.contains(block.table_numbers)
            if mask.any():
                parts.append(block.rows[mask])
        return (Rows.concatenate(parts) if parts else None), n_skipped
