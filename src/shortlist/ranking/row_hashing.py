"""Numbers that tell rows apart: what looks random, and depends on the row alone."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist.ranking import Ranking

KEY_DEPTH = 8
"""Of how many best scores a row's key is made."""


def row_keys(ranking: Ranking, seed: int = 0) -> Tensor:
    """A whole number (int64) for each row that depends on seed and row alone.

    A hash of the row's best scores (as float32, in order): the same row gets the same number in
    every batch, on every device, and however the classes are numbered.
    """
    # Not to the depth of the ranking, which for lists of candidates is that of the longest.
    scores = ranking.best_scores(min(KEY_DEPTH, ranking.n_classes))
    bits = (scores.to(torch.float32) + 0.0).contiguous().view(torch.int32).to(torch.int64)
    state = torch.full((len(bits),), seed, dtype=torch.int64, device=bits.device)
    for column in bits.unbind(dim=1):
        state = _mix(state ^ column)
    return state


def _shift(x: Tensor, by: int) -> Tensor:
    """A shift to the right that brings in zeros."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64, in integers that wrap around."""
    x = x + (0x9E3779B97F4A7C15 - (1 << 64))
    x = (x ^ _shift(x, 30)) * (0xBF58476D1CE4E5B9 - (1 << 64))
    x = (x ^ _shift(x, 27)) * (0x94D049BB133111EB - (1 << 64))
    return x ^ _shift(x, 31)
