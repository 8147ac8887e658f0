"""Hash rows to integers that look random and depend on the row alone."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist.ranking.ranked_rows import RankedRows

HASHED_SCORES = 8
"""Number of best scores that the hash of a row depends on."""


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


def _shift_right(x: Tensor, by: int) -> Tensor:
    """Shift integers to the right, filling with zeros."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _mix(x: Tensor) -> Tensor:
    """Apply the finalizer of splitmix64, in integers that wrap around."""
    x = x + (0x9E3779B97F4A7C15 - (1 << 64))
    x = (x ^ _shift_right(x, 30)) * (0xBF58476D1CE4E5B9 - (1 << 64))
    x = (x ^ _shift_right(x, 27)) * (0x94D049BB133111EB - (1 << 64))
    return x ^ _shift_right(x, 31)
