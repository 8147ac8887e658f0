"""p-values, frontiers and outcomes from the levels of rows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.out_of_core import Matrix
from shortlist.conformal.level_function import LevelFunction
from shortlist.conformal.levels import Block, LevelBlocks
from shortlist.conformal.quantiles import p_values
from shortlist.frontier import Frontier
from shortlist.ranking import Ranking

BAND_VALUES = 1 << 25
"""Maximum number of levels, and of sizes for its bands, that a frontier keeps in memory. With
more rows, levels are computed again, and there are no bands."""


def p_value_table(
    ranking: Ranking, blocks: LevelBlocks, calibration_levels: NDArray[np.float64]
) -> Tensor:
    """Return the p-value of every class in every row, of shape (n_rows, n_classes)."""
    rising = np.sort(calibration_levels)
    unranked = float(p_values(rising, np.array([-np.inf]))[0])
    shape = (len(ranking), ranking.n_classes)
    table = torch.full(shape, unranked, dtype=torch.float64, device=ranking.device)

    def fill(block: Block) -> None:
        rows, ranked, nested = block
        labels, _ = ranked.top(ranked.depth)
        levels = nested.by_rank(ranked.depth).to(torch.float64).cpu().numpy()
        values = torch.from_numpy(p_values(rising, levels)).to(ranking.device)
        listed = labels >= 0
        at = torch.arange(len(labels), device=labels.device)[:, None].expand_as(labels)
        table[rows][at[listed], labels[listed].to(torch.int64)] = values[listed]

    blocks.map(fill)
    return table


def level_frontier(
    function: LevelFunction, ranking: Ranking, index: Tensor, features: Matrix | None, name: str
) -> Frontier:
    """Return the frontier of labeled rows, with a point for each threshold that matters."""
    blocks = function.blocks(ranking, features)
    if len(ranking) * ranking.depth <= BAND_VALUES:
        blocks = blocks.keep()
    levels = blocks.label_levels(index.clamp(min=0)).masked_fill(index < 0, -torch.inf)
    rising = np.sort(levels.cpu().numpy())
    thresholds = _frontier_thresholds(rising)
    hits = len(rising) - np.searchsorted(rising, thresholds, side="left")
    points = hits / len(rising), blocks.mean_sizes(thresholds), thresholds
    rows = None
    if len(rising) * len(thresholds) <= BAND_VALUES:
        at = torch.from_numpy(thresholds).to(ranking.device)
        sizes = blocks.map(lambda block: block[2].sizes_at_each(at))
        rows = (levels[:, None] >= at).cpu().numpy(), torch.cat(sizes).cpu().numpy()
    parameter = "cost_weight" if function.score.levels_are_cost_weights else "threshold"
    return Frontier(*points, parameter, name, rows=rows)


def _frontier_thresholds(rising: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return at most a few hundred decreasing thresholds, densest where few labels are missed."""
    finite = rising[rising > -np.inf]
    if not len(finite):
        return np.array([np.inf])
    missed = np.concatenate([np.linspace(0, 1, 200), np.geomspace(1 / len(finite), 1, 300)])
    places = np.unique((missed * (len(finite) - 1)).round().astype(np.int64))
    return np.unique(finite[places])[::-1].copy()


def outcomes_at(
    ranking: Ranking, blocks: LevelBlocks, index: Tensor, thresholds: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return hits and sizes at several thresholds, each of shape (n_rows, n_thresholds).

    The index -1 stands for a label of an unknown class, which no set contains.
    """
    at = torch.from_numpy(thresholds).to(ranking.device)

    def evaluate(block: Block) -> tuple[Tensor, Tensor]:
        rows, ranked, nested = block
        levels = nested.of_labels(ranked, index[rows].clamp(min=0)).to(torch.float64)
        return levels[:, None] >= at, nested.sizes_at_each(at)

    parts = blocks.map(evaluate)
    hits, sizes = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    with_all = np.isneginf(thresholds)  # All classes, ranked or not.
    hits[:, with_all], sizes[:, with_all] = True, ranking.n_classes
    hits[(index < 0).cpu().numpy()] = False  # Even these miss labels of unknown classes.
    return hits, sizes
