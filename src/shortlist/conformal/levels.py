"""Levels: the highest threshold at which a set contains a label, for all labels of some rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.ordering import labels_at_least, sort_values, top_label
from shortlist.ranking import Ranking

Sets: TypeAlias = tuple[Tensor, Tensor]
"""Labels of all rows, concatenated, and the size of each row's set."""
Nested: TypeAlias = tuple[Tensor, Tensor, list[Tensor]]
"""Labels of the largest of several nested sets, its sizes, and the sizes of each of the sets."""


class NestedLevels(Protocol):
    """Levels of some rows, however they are stored."""

    def of_labels(self, ranked: Ranking, index: Tensor, *, lowest: bool = False) -> Tensor:
        """Return the level of each row's label.

        With `lowest`, a label counts with the last rank that the rounding of scores can give it.
        """

    def totals(self, rising: Tensor) -> Tensor:
        """Return the total size of all rows' sets at each of several increasing thresholds."""

    def sets_at(self, ranked: Ranking, thresholds: Sequence[Tensor]) -> Nested:
        """Return the sets at several thresholds, each of shape (n_rows,)."""

    def sizes_at_each(self, thresholds: Tensor) -> Tensor:
        """Return the sizes of the sets at several thresholds, of shape (n_rows, n_thresholds).

        `thresholds` has that shape, or (n_thresholds,) if they are the same for all rows.
        """

    def by_rank(self, depth: int) -> Tensor:
        """Return the level of each of the first `depth` labels, of shape (n_rows, depth)."""

    def within(self, listed: Tensor) -> NestedLevels:
        """Return the same levels, with sets limited to the number of ranked labels of each row."""

    def never_empty(self) -> NestedLevels:
        """Return the same levels, with the first set at every threshold."""


@dataclass(frozen=True)
class Levels:
    """Levels of the nested sets of some rows, and the sizes of these sets.

    Attributes
    ----------
    values : Tensor of shape (n_rows, n_sets)
        Levels, non-increasing along each row.
    sizes : Tensor of shape (n_sets,) or (n_rows, n_sets)
        Sizes, non-decreasing.
    always : bool
        Whether the first set is used at every threshold, whatever its level.
    """

    values: Tensor
    sizes: Tensor
    always: bool = False

    def of_labels(self, ranked: Ranking, index: Tensor, *, lowest: bool = False) -> Tensor:
        return self.of_rank(ranked.last_rank_of(index) if lowest else ranked.rank_of(index))

    def totals(self, rising: Tensor) -> Tensor:
        # A member counts at every threshold up to its level.
        values = self.values.to(torch.float64).flatten().contiguous()
        place = torch.searchsorted(rising, values, right=True)
        if self.always:
            place.view(self.values.shape)[:, 0] = len(rising)
        steps = self.steps().flatten()
        added = torch.bincount(place, weights=steps, minlength=len(rising) + 1)
        return added.flip(0).cumsum(0).flip(0)[1:]

    def sets_at(self, ranked: Ranking, thresholds: Sequence[Tensor]) -> Nested:
        lengths = self.sizes_at_each(torch.stack(list(thresholds), dim=1))
        longest = lengths.amax(dim=1)
        return ranked.prefix(longest), longest, list(lengths.unbind(dim=1))

    def of_rank(self, rank: Tensor) -> Tensor:
        """Return the level of the label of each row's `rank`; minus infinity if no set has it."""
        member = self._member(rank[:, None])[:, 0]
        inside = member < self.values.shape[1]
        level = self.values.gather(1, member.clamp(max=self.values.shape[1] - 1)[:, None])[:, 0]
        level = torch.where(inside, level, -torch.inf)
        return torch.where(member == 0, torch.inf, level) if self.always else level

    def by_rank(self, depth: int) -> Tensor:
        ranks = torch.arange(depth, device=self.values.device)
        member = self._member(ranks.expand(len(self.values), -1))
        padded = torch.nn.functional.pad(self.values, (0, 1), value=-torch.inf)
        levels = padded.gather(1, member)
        return levels.masked_fill_(member == 0, torch.inf) if self.always else levels

    def _member(self, ranks: Tensor) -> Tensor:
        """Return the first set that is larger than each rank, of shape (n_rows, n_ranks)."""
        asked = ranks.to(torch.float64).contiguous()
        sizes = self.sizes.to(torch.float64)
        sizes = sizes if sizes.ndim == 1 else sizes.contiguous()
        return torch.searchsorted(sizes, asked, right=True)

    def sizes_at(self, thresholds: Tensor) -> Tensor:
        """Return the sizes at one threshold for all rows, (), or at one for each, (n_rows,)."""
        return self.sizes_at_each(thresholds.view(-1, 1))[:, 0]

    def sizes_at_each(self, thresholds: Tensor) -> Tensor:
        asked = thresholds.to(torch.float64).expand(len(self.values), thresholds.shape[-1])
        count = _reaching(self.values, asked)
        if self.always:
            count.clamp_(min=1)
        sizes = torch.nn.functional.pad(self.sizes.to(torch.int64), (1, 0))
        return sizes.expand(len(count), -1).gather(1, count)

    def steps(self) -> Tensor:
        """Return how many labels each set adds, of shape (n_rows, n_sets)."""
        sizes = self.sizes.to(torch.float64)
        added = torch.diff(sizes, dim=-1, prepend=torch.zeros_like(sizes[..., :1]))
        return added.expand_as(self.values)

    def within(self, listed: Tensor) -> Levels:
        if int(self.sizes.max()) <= int(listed.min()):
            return self
        return replace(self, sizes=torch.minimum(self.sizes, listed[:, None]))

    def never_empty(self) -> Levels:
        return replace(self, always=True)


MANY = 4
"""From this number of thresholds on, a sorted copy of the values is worth its cost."""


def _reaching(falling: Tensor, thresholds: Tensor) -> Tensor:
    """Return how many of each row's decreasing values reach each of its thresholds.

    For few thresholds, all rows are bisected at once: `torch.searchsorted` needs a copy of the
    values in increasing order.
    """
    if thresholds.shape[1] >= MANY:
        rising = falling.to(torch.float64).neg()
        return torch.searchsorted(rising, thresholds.neg().contiguous(), right=True)
    count = torch.zeros(thresholds.shape, dtype=torch.int64, device=falling.device)
    members = falling.shape[1]
    step = 1 << max(members.bit_length() - 1, 0)
    while step:
        further = count + step
        reached = falling.gather(1, (further - 1).clamp(max=members - 1)) >= thresholds
        count = torch.where(reached & (further <= members), further, count)
        step >>= 1
    return count


OVER_HALF = 0.51
"""A share of a rounded sum that is certainly more than half, so that no other term is as large."""


class ColumnLevels:
    """Levels that each label has by itself, so that only the sets themselves are sorted.

    Attributes
    ----------
    values : Tensor of shape (n_rows, n_classes)
        Levels by column, in the order of the scores of the ranking.
    sums : Tensor, float or None
        Sum of each row, if it is known and no level is negative.
    empty : bool
        Whether sets may be empty.
    """

    def __init__(
        self, values: Tensor, sums: Tensor | float | None = None, empty: bool = True
    ) -> None:
        self.values, self.sums, self.empty = values, sums, empty

    def of_labels(self, ranked: Ranking, index: Tensor, *, lowest: bool = False) -> Tensor:
        level = self.values.gather(1, index[:, None])[:, 0].to(torch.float64)
        if self.empty:
            return level
        if lowest and ranked.rounding:
            return torch.where(ranked.last_rank_of(index) == 0, torch.inf, level)
        untied = None if self.sums is None else level > OVER_HALF * self.sums
        return torch.where(ranked.is_first(index, untied), torch.inf, level)

    def totals(self, rising: Tensor) -> Tensor:
        total = _count_at(self.values.flatten(), rising)
        if not self.empty:  # First labels count at every threshold.
            total += len(self.values) - _count_at(self.values.amax(dim=1), rising)
        return total.to(torch.float64)

    def sets_at(self, ranked: Ranking, thresholds: Sequence[Tensor]) -> Nested:
        lowest = torch.stack(list(thresholds)).amin(dim=0)
        scores = ranked.scores_of(slice(None))
        least = _as_values(lowest, self.values.dtype)[:, None]
        if bool((least == least[0]).all()):
            least = least[:1]  # A comparison with one row is much faster.
        row, column = labels_at_least(self.values, least, scores)
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
        return labels, longest, self._lengths(row, self.values[row, column], thresholds)

    def _lengths(self, row: Tensor, values: Tensor, thresholds: Sequence[Tensor]) -> list[Tensor]:
        """Return how many of the given labels are in the sets at each threshold."""
        found: dict[int, Tensor] = {}
        rows_left, values_left, before = row, values, None
        for k in sorted(range(len(thresholds)), key=lambda k: float(thresholds[k].sum())):
            at = _as_values(thresholds[k], values.dtype)
            if before is not None and bool((at < before).any()):  # Not a subset.
                rows_left, values_left = row, values
            inside = values_left >= at[rows_left]
            rows_left, values_left, before = rows_left[inside], values_left[inside], at
            found[k] = torch.bincount(rows_left, minlength=len(self.values))
        lengths = [found[k] for k in range(len(thresholds))]
        return lengths if self.empty else [one.clamp_(min=1) for one in lengths]

    def _in_order(self) -> Levels:
        """Return the same levels in decreasing order."""
        falling = sort_values(self.values).flip(1)
        every = torch.arange(1, falling.shape[1] + 1, device=falling.device)
        levels = Levels(falling, every)
        return levels if self.empty else levels.never_empty()

    def by_rank(self, depth: int) -> Tensor:
        return self._in_order().by_rank(depth)

    def sizes_at_each(self, thresholds: Tensor) -> Tensor:
        return self._in_order().sizes_at_each(thresholds)

    def within(self, listed: Tensor) -> ColumnLevels:
        return self  # Every label is ranked.

    def never_empty(self) -> ColumnLevels:
        return ColumnLevels(self.values, self.sums, empty=False)


def _as_values(thresholds: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the smallest values of a type that are not below float64 thresholds."""
    values = thresholds.to(dtype)
    above = torch.nextafter(values, torch.full_like(values, torch.inf))
    return torch.where(values.to(torch.float64) < thresholds, above, values)


def _count_at(values: Tensor, rising: Tensor) -> Tensor:
    """Return how many values reach each of several increasing thresholds."""
    asked = _as_values(rising, values.dtype)
    place = torch.bucketize(values[values >= asked[0]], asked, right=True)
    return torch.bincount(place, minlength=len(asked) + 1).flip(0).cumsum(0).flip(0)[1:]


Block: TypeAlias = tuple[slice, Ranking, NestedLevels]
"""Rows, their ranking, and the levels of its labels."""


def label_levels(blocks: Iterable[Block], index: Tensor, *, lowest: bool = False) -> Tensor:
    """Return the level of each row's label; see `NestedLevels.of_labels` for `lowest`."""
    # One buffer: small results between large temporaries would keep memory from being returned.
    found = torch.empty(len(index), dtype=torch.float64, device=index.device)
    for rows, ranked, levels in blocks:
        found[rows] = levels.of_labels(ranked, index[rows], lowest=lowest).to(torch.float64)
    return found


def mean_sizes(blocks: Iterable[Block], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean size at each of several decreasing thresholds."""
    rising, total, rows = torch.from_numpy(thresholds[::-1].copy()), torch.zeros(()), 0
    for _, ranked, levels in blocks:
        rising, total = rising.to(ranked.device), total.to(ranked.device)
        total = total + levels.totals(rising)
        rows += len(ranked)
    sizes: NDArray[np.float64] = (total / rows).cpu().numpy()[::-1].copy()
    return sizes
