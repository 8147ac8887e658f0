"""A mergeable summary of conformal scores, for calibration with any number of rows.

A sketch rounds scores down to `MANTISSA_BITS` binary digits and counts how often each rounded score
occurs. There are at most a few million different ones, and counts can be added in any order. From
the counts, at most `MAX_REPRESENTATIVES` scores are derived. Each represents a group of equally
many rows, and is at most as large as the scores of its group.

A guarantee derived from the representatives holds for all rows. Let n rows form N groups of g. The
set at the representative of rank k contains the true label in at least k g of the n rows, and
k >= a (N + 1) implies k g >= a (n + 1). The sets are larger than with exact scores by at most two
groups, which is 2 / N of the rows (0.0002% of accuracy), and by the rounding of a score, which
changes it by at most a factor of 1 - 2^-MANTISSA_BITS.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MANTISSA_BITS = 20
"""Number of binary digits to which scores are rounded down."""
MAX_REPRESENTATIVES = 1 << 20
"""Maximum number of scores that represent all rows."""
_DROPPED_BITS = 52 - MANTISSA_BITS


class Sketch:
    """Number of scores in each bin.

    Parameters
    ----------
    bins : array of shape (n_bins,)
        Bins that contain a score, in increasing order.
    counts : array of shape (n_bins,)
        Number of scores in each of them.

    Examples
    --------
    >>> one, other = Sketch.of(np.array([0.5, 0.25])), Sketch.of(np.array([0.5, -np.inf]))
    >>> merged = one + other
    >>> merged.n_rows, merged.values().tolist(), merged.counts.tolist()
    (4, [-inf, 0.25, 0.5], [1, 1, 2])
    """

    def __init__(self, bins: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        self.bins, self.counts = bins, counts

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> Sketch:
        """Count scores by their bins."""
        bins, counts = np.unique(_bin(scores), return_counts=True)
        return cls(bins, counts.astype(np.int64))

    @property
    def n_rows(self) -> int:
        """Number of scores."""
        return int(self.counts.sum())

    def __add__(self, other: Sketch) -> Sketch:
        bins, place = np.unique(np.concatenate([self.bins, other.bins]), return_inverse=True)
        counts = np.concatenate([self.counts, other.counts])
        return Sketch(bins, np.bincount(place, weights=counts).astype(np.int64))

    def values(self) -> NDArray[np.float64]:
        """Return the smallest score of each bin, in increasing order."""
        return _smallest_score(self.bins)

    def representatives(self, max_count: int = MAX_REPRESENTATIVES) -> NDArray[np.float64]:
        """Return scores in increasing order, each the smallest of a group of equally many rows.

        Parameters
        ----------
        max_count : int, default=MAX_REPRESENTATIVES
            Maximum number of groups.

        Returns
        -------
        array of shape (n_groups,)
            The smallest score of each group.
        """
        group = -(-self.n_rows // max_count)
        # Groups begin with the lowest score. Rows left over at the high end, too few to form a
        # group, are dropped.
        first = np.arange(self.n_rows // group) * group
        return self.values()[np.searchsorted(np.cumsum(self.counts), first, side="right")]


def _bin(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bin of each score. Bins are integers in the order of the scores."""
    bits = (np.asarray(scores, dtype=np.float64) + 0.0).view(np.int64)
    # The bits of negative floats, read as integers, are in decreasing order.
    ordered = np.where(bits < 0, np.int64(-(2**63)) - bits - 1, bits)
    return ordered >> _DROPPED_BITS


def _smallest_score(bins: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the smallest score of each bin."""
    ordered = bins << _DROPPED_BITS
    scores = np.where(ordered < 0, np.int64(-(2**63)) - ordered - 1, ordered).view(np.float64)
    # The bin of minus infinity begins below it, where the bits are those of NaN.
    return np.where(np.isnan(scores), -np.inf, scores)
