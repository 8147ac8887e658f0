"""Levels and mean sizes of many rows, a block at a time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.conformal.levels.protocol import Block


def label_levels(blocks: Iterable[Block], index: Tensor, *, lowest: bool = False) -> Tensor:
    """Return the level of each row's label; see `NestedLevels.of_labels` for `lowest`."""
    # One buffer, since small results between large temporaries fragment the memory.
    result = torch.empty(len(index), dtype=torch.float64, device=index.device)
    for rows, ranked, levels in blocks:
        result[rows] = levels.of_labels(ranked, index[rows], lowest=lowest).to(torch.float64)
    return result


def mean_sizes(blocks: Iterable[Block], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean set size of all rows at each of several decreasing thresholds."""
    rising, total, rows = torch.from_numpy(thresholds[::-1].copy()), torch.zeros(()), 0
    for _, ranked, levels in blocks:
        rising, total = rising.to(ranked.device), total.to(ranked.device)
        total = total + levels.totals(rising)
        rows += len(ranked)
    sizes: NDArray[np.float64] = (total / rows).cpu().numpy()[::-1].copy()
    return sizes
