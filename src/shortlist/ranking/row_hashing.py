"""Hash rows to integers that look random and depend on the row alone."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist._utils.blocks import CACHED_ELEMENTS
from shortlist.ranking.ranked_rows import RankedRows

HASHED_SCORES = 8
"""Number of best scores that the hash of a row depends on."""

FACTOR = 0x2C1B3C6D
"""Odd factor of the bits of a score."""


def row_keys(rows: RankedRows, seed: int = 0) -> Tensor:
    """Return a hash of each row's best scores.

    The scores are hashed as float32, best first. Equal rows have the same hash in every batch, on
    every device, and for every numbering of the classes.

    Parameters
    ----------
    rows : RankedRows
        Scores, such as a ranking.
    seed : int, default=0
        Seed of the hash.

    Returns
    -------
    int64 Tensor of shape (n_rows,)
        Hashes.
    """
    # The depth of the ranking would depend on the batch: it is the largest number of candidates.
    scores = rows.top_scores(min(HASHED_SCORES, rows.n_classes))
    bits = (scores.to(torch.float32) + 0.0).contiguous().view(torch.int32).to(torch.int64)
    state = torch.full((len(bits),), seed, dtype=torch.int64, device=bits.device)
    for column in bits.unbind(dim=1):
        state = _mix(state ^ column)
    return state


def row_fingerprints(rows: RankedRows) -> Tensor:
    """Return a hash of all scores of each row, to recognize equal rows.

    It is much faster than `row_keys`, because the scores are hashed one by one and added instead
    of sorted. Equal rows have the same hash in every batch, on every device, and for every
    numbering of the classes. Candidates are hashed by `row_keys`.

    Parameters
    ----------
    rows : RankedRows
        Scores, such as a ranking.

    Returns
    -------
    int64 Tensor of shape (n_rows,)
        Hashes.

    Examples
    --------
    >>> from shortlist import Ranking
    >>> a, b, c = row_fingerprints(Ranking.from_scores([[0.2, 0.8], [0.8, 0.2], [0.3, 0.7]]))
    >>> bool(a == b), bool(a == c)
    (True, False)
    """
    if not rows.is_dense:
        return row_keys(rows)
    keys = torch.empty(len(rows), dtype=torch.int64, device=rows.device)

    def add(part: slice) -> None:
        bits = (rows.scores_of(part).to(torch.float32) + 0.0).view(torch.int32)
        bits.bitwise_xor_(bits >> 16)  # The last bits of rounded scores are zeros.
        bits.mul_(FACTOR)  # Integers wrap, here and in the sum.
        bits.bitwise_xor_(bits >> 15)
        keys[part] = _mix(bits.sum(dim=1, dtype=torch.int32).to(torch.int64))

    rows.map_blocks(add, CACHED_ELEMENTS)
    return keys


def _shift_right(x: Tensor, by: int) -> Tensor:
    """Shift integers to the right, filling with zeros."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _mix(x: Tensor) -> Tensor:
    """Apply the finalizer of splitmix64, in integers that wrap around."""
    x = x + (0x9E3779B97F4A7C15 - (1 << 64))
    x = (x ^ _shift_right(x, 30)) * (0xBF58476D1CE4E5B9 - (1 << 64))
    x = (x ^ _shift_right(x, 27)) * (0x94D049BB133111EB - (1 << 64))
    return x ^ _shift_right(x, 31)
