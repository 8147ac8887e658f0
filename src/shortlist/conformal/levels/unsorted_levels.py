"""Levels of dense scores, computed with as little sorting as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from shortlist._utils.cached_property import CachedProperty
from shortlist._utils.ordering import prefix_labels, sort_values
from shortlist.conformal.levels.protocol import Nested
from shortlist.conformal.levels.sorted_levels import Levels
from shortlist.ranking import Ranking

MIN_DEPTH = 64
"""Sets are searched among this many best labels, or an eighth of all labels if that is more. All
labels are searched only if a set is larger."""


class UnsortedScore(Protocol):
    """The methods of a `ProbabilityScore` that its levels need."""

    def noise(self, ranking: Ranking) -> Tensor | float:
        """Return the random number of each row."""

    def sorted_levels(self, p: Tensor, u: Tensor | float) -> Tensor:
        """Return the levels of each row's first labels."""

    def label_levels(self, p: Tensor, index: Tensor, rank: Tensor, u: Tensor | float) -> Tensor:
        """Return the level of one label of each row."""


class UnsortedLevels:
    """Levels of a `ProbabilityScore`.

    The level of a single label is computed from counts and sums over its row, without sorting. For
    sets, only the values are sorted, not the labels, and levels are computed only for the highest
    values.

    Parameters
    ----------
    score : UnsortedScore
        The score.
    ranking : Ranking
        Rows that are ranked completely.
    always : bool, default=False
        Whether the first label is in the set at every threshold.
    """

    def __init__(self, score: UnsortedScore, ranking: Ranking, *, always: bool = False) -> None:
        self.score, self.ranking, self.always = score, ranking, always

    def never_empty(self) -> UnsortedLevels:
        """Return levels of sets that are never empty; see `NestedLevels.never_empty`."""
        return UnsortedLevels(self.score, self.ranking, always=True)

    def within(self, listed: Tensor) -> UnsortedLevels:
        """Return levels of sets of limited sizes; see `NestedLevels.within`."""
        return self  # Every label is ranked.

    @CachedProperty
    def _p(self) -> Tensor:
        return self.ranking.column_proba()

    @CachedProperty
    def _rising(self) -> Tensor:
        """Probabilities in increasing order: the same numbers as those of `_p`."""
        if self.ranking.has_proba:  # The noise is computed from the same sorted scores.
            return self.ranking.ascending_scores().to(self._p.dtype)
        return sort_values(self._p)

    @CachedProperty
    def _noise(self) -> Tensor | float:
        return self.score.noise(self.ranking)

    def _to(self, depth: int, rows: Tensor | slice = slice(None)) -> tuple[Levels, Tensor]:
        """Return the levels of some rows' first labels, and their probabilities."""
        if depth < self._p.shape[1] and self._p.is_cuda:
            p = torch.topk(self._p[rows], depth).values
        else:
            p = self._rising[rows, -depth:].flip(1)
        u = self._noise  # Computed after the sort, whose result it reuses.
        values = self.score.sorted_levels(p, u[rows] if isinstance(u, Tensor) else u)
        return Levels(values, torch.arange(1, depth + 1, device=p.device), self.always), p

    def _whole(self) -> Levels:
        return self._to(self._p.shape[1])[0]

    def of_labels(self, ranked: Ranking, index: Tensor, *, lowest: bool = False) -> Tensor:
        """Return the level of each row's label; see `NestedLevels.of_labels`."""
        rank = ranked.last_rank_of(index) if lowest else ranked.rank_of(index)
        level = self.score.label_levels(self._p, index, rank, self._noise)[:, 0].to(torch.float64)
        return torch.where(rank == 0, torch.inf, level) if self.always else level

    def totals(self, rising: Tensor) -> Tensor:
        """Return total sizes at increasing thresholds; see `NestedLevels.totals`."""
        return self._whole().totals(rising)

    def by_rank(self, depth: int) -> Tensor:
        """Return the levels of the first labels; see `NestedLevels.by_rank`."""
        return self._whole().by_rank(depth)

    def sizes_at_each(self, thresholds: Tensor) -> Tensor:
        """Return sizes at several thresholds; see `NestedLevels.sizes_at_each`."""
        return self._sizes_and_last(thresholds.expand(len(self._p), thresholds.shape[-1]))[0]

    def _sizes_and_last(self, thresholds: Tensor) -> tuple[Tensor, Tensor]:
        """Return sizes at thresholds, and the probability of the last label of the largest set."""
        n = self._p.shape[1]
        depth = min(n, max(MIN_DEPTH, n // 8))
        levels, p = self._to(depth)
        sizes = levels.sizes_at_each(thresholds)
        last = p.gather(1, (sizes.amax(dim=1, keepdim=True) - 1).clamp_(min=0))
        if depth < n:
            longer = (levels.values[:, -1] >= thresholds.amin(dim=1)).nonzero()[:, 0]
            if len(longer):
                levels, p = self._to(n, longer)
                sizes[longer] = larger = levels.sizes_at_each(thresholds[longer])
                last[longer] = p.gather(1, (larger.amax(dim=1, keepdim=True) - 1).clamp_(min=0))
        return sizes, last

    def sets_at(self, ranked: Ranking, thresholds: Sequence[Tensor]) -> Nested:
        """Return the sets at several thresholds; see `NestedLevels.sets_at`."""
        lengths, last = self._sizes_and_last(torch.stack(list(thresholds), dim=1))
        longest = lengths.amax(dim=1)
        labels = prefix_labels(self._p, last, ranked.scores_of(slice(None)), longest)
        return labels, longest, list(lengths.unbind(dim=1))
