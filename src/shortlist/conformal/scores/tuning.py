"""Choose the parameters of a score that give the shortest sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TypeVar

import torch
from torch import Tensor

from shortlist._utils.threads import map_in_threads
from shortlist._utils.validation import check_choice
from shortlist.conformal.levels import Levels
from shortlist.conformal.ranks import quantile_rank
from shortlist.conformal.scores.base import ConformityScore
from shortlist.ranking import Ranking

PENALTIES = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Candidate values of a penalty."""
TUNING_ROWS = 5000
"""Maximum number of rows used to choose parameters."""
SCREENING_ROWS = 2000
"""Number of rows used to choose the finalists of a long grid."""
FINALISTS = 8

AnyScore = TypeVar("AnyScore", bound=ConformityScore)


def check_auto(value: object, name: str) -> object | None:
    """Return a parameter, or None if it is "auto"; raise for any other string."""
    if isinstance(value, str):
        check_choice(value, name, ("auto",))
        return None
    return value


def tuning_rows(ranking: Ranking, y: Tensor) -> tuple[Ranking, Tensor]:
    """Return at most `TUNING_ROWS` rows, evenly spaced, and the ranks of their labels."""
    step = math.ceil(len(ranking) / TUNING_ROWS)
    sample = ranking[::step]
    return sample, sample.rank_of(y[::step])


def shortest(
    score: AnyScore,
    grid: Sequence[Mapping[str, object]],
    ranking: Ranking,
    rank: Tensor,
    accuracy: float,
) -> AnyScore:
    """Set attributes of a score to the values of a grid with the smallest mean set size.

    A long grid is tried on `SCREENING_ROWS` rows first, and the best of it on all rows.
    """
    step = len(ranking) // SCREENING_ROWS
    if len(grid) > FINALISTS and step > 1:
        sizes = _mean_sizes(score, grid, ranking[::step], rank[::step], accuracy)
        grid = [
            grid[i] for i in sorted(sorted(range(len(grid)), key=sizes.__getitem__)[:FINALISTS])
        ]
    sizes = _mean_sizes(score, grid, ranking, rank, accuracy)
    _set(score, grid[sizes.index(min(sizes))])
    return score


def _mean_sizes(
    score: ConformityScore,
    grid: Sequence[Mapping[str, object]],
    ranking: Ranking,
    rank: Tensor,
    accuracy: float,
) -> list[float]:
    """Return the mean size of the sets with each of the values."""

    def mean_size(values: Mapping[str, object]) -> float:
        own = copy(score)
        _set(own, values)
        return _mean_size(own, ranking, rank, accuracy)

    n_elements = len(ranking) * ranking.depth * len(grid)
    return map_in_threads(mean_size, grid, size=0 if rank.is_cuda else n_elements)


def _set(score: ConformityScore, values: Mapping[str, object]) -> None:
    """Set attributes of a score."""
    for name, value in values.items():
        setattr(score, name, value)


def _mean_size(score: ConformityScore, ranking: Ranking, rank: Tensor, accuracy: float) -> float:
    """Return the mean size of the non-empty sets with a given accuracy on these rows."""
    levels = torch.empty(0)
    for rows in ranking.blocks():
        part = score.levels(ranking[rows])
        if not len(levels):  # Joining all parts at the end would take twice the memory.
            levels = part.new_empty((len(ranking), part.shape[1]))
        levels[rows] = part
    sizes = torch.arange(1, ranking.depth + 1, device=ranking.device)
    nested = Levels(levels, sizes).within(ranking.lengths()).never_empty()
    own = nested.of_rank(rank).sort().values
    at = own[max(quantile_rank(len(own), accuracy), 1) - 1]
    return float(nested.sizes_at(at).to(torch.float64).mean())
