"""Rows of a table drawn at random, the same ones whoever asks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist.datasets import Rows
from shortlist.ray.bad_rows import warn_of_bad_rows
from shortlist.ray.cluster import spread
from shortlist.ray.table import Piece, Table

SAMPLE = 200_000
"""Number of rows to sample where more would change little."""


@dataclass(frozen=True)
class Drawn:
    """Rows of a table that are drawn: a random share, told by a row's number in it alone."""

    share: float
    seed: int

    def of(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some rows are drawn.

        >>> bool(abs(Drawn(0.25, 0).of(np.arange(100_000)).mean() - 0.25) < 0.01)
        True
        """
        if self.share >= 1:
            return np.ones(len(numbers), dtype=bool)
        with np.errstate(over="ignore"):
            x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            x += np.uint64((0x632BE59BD9B4E019 * (self.seed + 1)) % 2**64)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x ^= x >> np.uint64(31)
        return np.asarray((x >> np.uint64(11)) < np.uint64(int(self.share * 2**53)))


def draw(
    table: Table,
    rows: int,
    classes: NDArray[np.generic] | None,
    seed: int,
    workers: int | None,
    threads: int,
    *,
    without: Drawn | None = None,
) -> Rows:
    """Return about `rows` random rows of a table, in its order, or all if it has fewer.

    Rows that are drawn for another purpose, `without`, are left out.
    """
    left = table.rows * (1.0 if without is None else 1 - without.share)
    drawn = Drawn(min(1.0, rows / left), seed + 2000)
    work = TakeRows(table, drawn, without, classes)
    found = dict(spread(work, table.pieces, "drawing rows", workers=workers, threads=threads))
    skipped = sum(left_out for _, left_out in found.values())
    warn_of_bad_rows(skipped)
    parts = [found[at][0] for at in sorted(found) if found[at][0] is not None]
    if not parts:
        raise ValueError("no row is left to learn from")
    return Rows.concatenate(parts)


@dataclass(frozen=True)
class TakeRows:
    """The work of one task: rows of a piece that are drawn, and how many were bad."""

    table: Table
    drawn: Drawn
    without: Drawn | None
    classes: NDArray[np.generic] | None

    def __call__(self, piece: Piece) -> tuple[Rows | None, int]:
        found, skipped = [], 0
        for block in self.table.read(piece, self.classes):
            skipped += block.skipped
            numbers = block.numbers - piece.first + piece.start
            mask = self.drawn.of(numbers)
            if self.without is not None:
                mask &= ~self.without.of(numbers)
            if mask.any():
                found.append(block.rows[mask])
        return (Rows.concatenate(found) if found else None), skipped
