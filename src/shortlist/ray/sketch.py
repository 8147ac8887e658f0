"""Counts of conformal scores that can be merged: what a calibration needs of rows without number.

A score is a floating-point number. Rounded down to `BITS` binary digits it falls into one of a few
million bins, whose counts add up over any number of workers, in any order. From the counts follow
`LEVELS` scores that stand for all of them, each for as many rows, and none above any that it stands
for.

A guarantee made of these holds for the rows that they stand for: of n rows in N groups of g, the
set at the group's score of rank k holds the right label in at least k g of the n rows, and
k >= a (N + 1) implies k g >= a (n + 1). Sets are longer than need be by at most two groups, that is
2 / N of the rows (0.0002% of accuracy), and by what is between a score and its bin: 2^-BITS of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BITS = 20
"""How many binary digits of a score are kept."""
LEVELS = 1 << 20
"""How many scores stand for all."""
_DROPPED = 52 - BITS


class Sketch:
    """Counts of scores by their bin.

    >>> one, other = Sketch.of(np.array([0.5, 0.25])), Sketch.of(np.array([0.5, -np.inf]))
    >>> merged = one + other
    >>> merged.rows, merged.values().tolist(), merged.counts.tolist()
    (4, [-inf, 0.25, 0.5], [1, 1, 2])
    """

    def __init__(self, bins: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        self.bins, self.counts = bins, counts

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> Sketch:
        """The counts of some scores."""
        bins, counts = np.unique(_bin(scores), return_counts=True)
        return cls(bins, counts.astype(np.int64))

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    def __add__(self, other: Sketch) -> Sketch:
        bins, place = np.unique(np.concatenate([self.bins, other.bins]), return_inverse=True)
        counts = np.concatenate([self.counts, other.counts])
        return Sketch(bins, np.bincount(place, weights=counts).astype(np.int64))

    def values(self) -> NDArray[np.float64]:
        """The least score of each bin, rising."""
        return _value(self.bins)

    def stand_ins(self, most: int = LEVELS) -> NDArray[np.float64]:
        """At most so many scores, rising, each the least of a group of as many rows."""
        group = -(-self.rows // most)
        # Groups are counted from the lowest row; the last ones, too few for a group, are left out.
        first = np.arange(self.rows // group) * group
        return self.values()[np.searchsorted(np.cumsum(self.counts), first, side="right")]


def _bin(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers in the order of the scores, the same for those that differ by little."""
    bits = (np.asarray(scores, dtype=np.float64) + 0.0).view(np.int64)
    # As numbers, negative ones are in the opposite order of their bits; a shift rounds down.
    rising = np.where(bits < 0, np.int64(-(2**63)) - bits - 1, bits)
    return rising >> _DROPPED


def _value(bins: NDArray[np.int64]) -> NDArray[np.float64]:
    """The least score of each bin."""
    rising = bins << _DROPPED
    found = np.where(rising < 0, np.int64(-(2**63)) - rising - 1, rising).view(np.float64)
    return np.where(np.isnan(found), -np.inf, found)  # what lies below minus infinity
