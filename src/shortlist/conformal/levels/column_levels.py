"""Levels by column, in the order of the scores."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shortlist._utils.ordering import labels_at_least, sort_values, top_label
from shortlist._utils.threads import map_blocks
from shortlist.conformal.levels.protocol import Nested
from shortlist.conformal.levels.sorted_levels import Levels
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import ProbaColumns

OVER_HALF = 0.51
"""A share of a sum that is more than half despite rounding, so that no other term is as large."""


class ColumnLevels:
    """Levels that do not depend on ranks, so that only the labels of sets are sorted.

    Attributes
    ----------
    values : Tensor or ProbaColumns of shape (n_rows, n_classes)
        Levels by column, in the order of the scores of the ranking. `ProbaColumns` are computed
        by blocks of rows that stay in the cache, wherever they are needed.
    sums : Tensor, float or None
        Sum of each row, if it is known and no level is negative.
    empty : bool
        Whether sets may be empty.
    """

    def __init__(
        self,
        values: Tensor | ProbaColumns,
        sums: Tensor | float | None = None,
        empty: bool = True,
    ) -> None:
        self.values, self.sums, self.empty = values, sums, empty

    def of_labels(self, ranked: Ranking, index: Tensor, *, lowest: bool = False) -> Tensor:
        """Return the level of each row's label; see `NestedLevels.of_labels`."""
        level = self._of_columns(index)
        if self.empty:
            return level
        if lowest and ranked.rounding:
            return torch.where(ranked.last_rank_of(index) == 0, torch.inf, level)
        untied = None if self.sums is None else level > OVER_HALF * self.sums
        return torch.where(ranked.is_first(index, untied), torch.inf, level)

    def _of_columns(self, index: Tensor) -> Tensor:
        """Return the level of one column of each row, in float64."""
        values = self.values
        if isinstance(values, Tensor):
            return values.gather(1, index[:, None])[:, 0].to(torch.float64)
        levels = torch.empty(len(index), dtype=torch.float64)

        def gather(rows: slice) -> None:
            levels[rows] = values.block(rows).gather(1, index[rows, None])[:, 0].to(torch.float64)

        map_blocks(gather, *values.shape)
        return levels

    def totals(self, rising: Tensor) -> Tensor:
        """Return total sizes at increasing thresholds; see `NestedLevels.totals`."""
        values = self.values[:]
        total = _count_at(values.flatten(), rising)
        if not self.empty:  # Each row's first label is counted at every threshold.
            total += len(values) - _count_at(values.amax(dim=1), rising)
        return total.to(torch.float64)

    def sets_at(self, ranked: Ranking, thresholds: Sequence[Tensor]) -> Nested:
        """Return the sets at several thresholds; see `NestedLevels.sets_at`."""
        lowest = torch.stack(list(thresholds)).amin(dim=0)
        scores = ranked.scores_of(slice(None))
        values = self.values if len(thresholds) == 1 else self.values[:]
        least = _as_values(lowest, values.dtype)[:, None]
        if bool((least == least[0]).all()):
            least = least[:1]  # Comparing with a single value is much faster.
        row, column = labels_at_least(values, least, scores)
        longest = torch.bincount(row, minlength=len(scores))
        nothing = (longest == 0).nonzero()[:, 0]
        if not self.empty and len(nothing):
            row, column = (
                torch.cat([row, nothing]),
                torch.cat([column, top_label(scores[nothing])]),
            )
            row, order = torch.sort(row, stable=True)
            column, longest = column[order], longest.clamp_(min=1)
        labels = column.to(torch.int32)
        if len(thresholds) == 1:
            return labels, longest, [longest]
        return labels, longest, self._lengths(row, values[:][row, column], thresholds)

    def _lengths(self, row: Tensor, values: Tensor, thresholds: Sequence[Tensor]) -> list[Tensor]:
        """Return how many labels of each row are in the sets at each threshold."""
        counts: dict[int, Tensor] = {}
        rows_left, values_left, before = row, values, None
        for k in sorted(range(len(thresholds)), key=lambda k: float(thresholds[k].sum())):
            at = _as_values(thresholds[k], values.dtype)
            if before is not None and bool((at < before).any()):  # Not a subset.
                rows_left, values_left = row, values
            inside = values_left >= at[rows_left]
            rows_left, values_left, before = rows_left[inside], values_left[inside], at
            counts[k] = torch.bincount(rows_left, minlength=len(thresholds[k]))
        lengths = [counts[k] for k in range(len(thresholds))]
        return lengths if self.empty else [one.clamp_(min=1) for one in lengths]

    def _in_order(self) -> Levels:
        """Return the same levels in decreasing order."""
        falling = sort_values(self.values[:]).flip(1)
        every = torch.arange(1, falling.shape[1] + 1, device=falling.device)
        levels = Levels(falling, every)
        return levels if self.empty else levels.never_empty()

    def by_rank(self, depth: int) -> Tensor:
        """Return the levels of the first labels; see `NestedLevels.by_rank`."""
        return self._in_order().by_rank(depth)

    def sizes_at_each(self, thresholds: Tensor) -> Tensor:
        """Return sizes at several thresholds; see `NestedLevels.sizes_at_each`."""
        return self._in_order().sizes_at_each(thresholds)

    def within(self, listed: Tensor) -> ColumnLevels:
        """Return levels of sets of limited sizes; see `NestedLevels.within`."""
        return self  # Every label is ranked.

    def never_empty(self) -> ColumnLevels:
        """Return levels of sets that are never empty; see `NestedLevels.never_empty`."""
        return ColumnLevels(self.values, self.sums, empty=False)


def _as_values(thresholds: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the smallest values of a type that are not below float64 thresholds."""
    values = thresholds.to(dtype)
    above = torch.nextafter(values, torch.full_like(values, torch.inf))
    return torch.where(values.to(torch.float64) < thresholds, above, values)


def _count_at(values: Tensor, rising: Tensor) -> Tensor:
    """Return how many values reach each of several increasing thresholds."""
    # Sorting the values is several times faster than searching for each of them.
    asked = _as_values(rising, values.dtype)
    high = sort_values(values[values >= asked[0]])
    return len(high) - torch.searchsorted(high, asked)
