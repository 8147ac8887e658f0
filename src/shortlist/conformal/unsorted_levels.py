"""Levels of dense scores, of which no more is sorted than is needed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shortlist._utils.arrays import sort_values
from shortlist._utils.lazy import ComputedOnce
from shortlist._utils.ordering import prefix_to
from shortlist.conformal.levels import Levels, Nested
from shortlist.conformal.scores import ConformalScore
from shortlist.ranking import Ranking

LEAST_DEPTH = 64
"""Sets are looked for among so many best labels, or an eighth of all, and only where that is too
few among all of them."""


class UnsortedLevels:
    """Conformal scores as levels.

    The level of one label takes counts and sums of its row, no sort. For sets the values alone are
    sorted, and scores are made only of the best of them.
    """

    def __init__(self, score: ConformalScore, ranking: Ranking, *, always: bool = False) -> None:
        self.score, self.ranking, self.always = score, ranking, always

    def never_empty(self) -> UnsortedLevels:
        return UnsortedLevels(self.score, self.ranking, always=True)

    def within(self, listed: Tensor) -> UnsortedLevels:
        return self  # every label is listed

    @ComputedOnce
    def _p(self) -> Tensor:
        return self.score.by_column(self.ranking)

    @ComputedOnce
    def _rising(self) -> Tensor:
        """Probabilities, best last: of the very numbers that `_p` has."""
        if self.score.plain:  # the noise is made of them too
            return self.ranking.rising_scores().to(self._p.dtype)
        return sort_values(self._p)

    @ComputedOnce
    def _noise(self) -> Tensor | float:
        return self.score.noise(self.ranking)

    def _to(self, depth: int, rows: Tensor | slice = slice(None)) -> tuple[Levels, Tensor]:
        """Levels of some rows' first labels, and their probabilities."""
        if depth < self._p.shape[1] and self._p.is_cuda:
            p = torch.topk(self._p[rows], depth).values
        else:
            p = self._rising[rows, -depth:].flip(1)
        u = self._noise  # after the sort, which it makes use of
        values = self.score.of_sorted(p, u[rows] if isinstance(u, Tensor) else u)
        return Levels(values, torch.arange(1, depth + 1, device=p.device), self.always), p

    def _whole(self) -> Levels:
        return self._to(self._p.shape[1])[0]

    def of_labels(self, ranked: Ranking, index: Tensor, *, least: bool = False) -> Tensor:
        rank = ranked.last_rank_of(index) if least else ranked.rank_of(index)
        level = self.score.of_labels(self._p, index, rank, self._noise)[:, 0].to(torch.float64)
        return torch.where(rank == 0, torch.inf, level) if self.always else level

    def totals(self, rising: Tensor) -> Tensor:
        return self._whole().totals(rising)

    def by_rank(self, depth: int) -> Tensor:
        return self._whole().by_rank(depth)

    def sizes_at_each(self, thresholds: Tensor) -> Tensor:
        return self._sizes_and_last(thresholds.expand(len(self._p), thresholds.shape[-1]))[0]

    def _sizes_and_last(self, thresholds: Tensor) -> tuple[Tensor, Tensor]:
        """Sizes at thresholds (rows, thresholds), and the probability of the last label of each
        row's longest set: (rows, 1)."""
        n = self._p.shape[1]
        depth = min(n, max(LEAST_DEPTH, n // 8))
        levels, p = self._to(depth)
        sizes = levels.sizes_at_each(thresholds)
        last = p.gather(1, (sizes.amax(dim=1, keepdim=True) - 1).clamp_(min=0))
        if depth < n:
            longer = (levels.values[:, -1] >= thresholds.amin(dim=1)).nonzero()[:, 0]
            if len(longer):
                levels, p = self._to(n, longer)
                sizes[longer] = found = levels.sizes_at_each(thresholds[longer])
                last[longer] = p.gather(1, (found.amax(dim=1, keepdim=True) - 1).clamp_(min=0))
        return sizes, last

    def sets_at(self, ranked: Ranking, thresholds: Sequence[Tensor]) -> Nested:
        lengths, last = self._sizes_and_last(torch.stack(list(thresholds), dim=1))
        longest = lengths.amax(dim=1)
        labels = prefix_to(self._p, last, ranked.scores_of(slice(None)), longest)
        return labels, longest, list(lengths.unbind(dim=1))
