"""Levels in decreasing order along each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from shortlist.conformal.levels.protocol import Nested
from shortlist.ranking import Ranking

MIN_THRESHOLDS_TO_COPY = 4
"""From this number of thresholds on, a copy of the values in increasing order saves time."""


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
        """Return the level of each row's label; see `NestedLevels.of_labels`."""
        return self.of_rank(ranked.last_rank_of(index) if lowest else ranked.rank_of(index))

    def totals(self, rising: Tensor) -> Tensor:
        """Return total sizes at increasing thresholds; see `NestedLevels.totals`."""
        # A set is counted at every threshold up to its level.
        values = self.values.to(torch.float64).flatten().contiguous()
        place = torch.searchsorted(rising, values, right=True)
        if self.always:
            place.view(self.values.shape)[:, 0] = len(rising)
        steps = self.steps().flatten()
        added = torch.bincount(place, weights=steps, minlength=len(rising) + 1)
        return added.flip(0).cumsum(0).flip(0)[1:]

    def sets_at(self, ranked: Ranking, thresholds: Sequence[Tensor]) -> Nested:
        """Return the sets at several thresholds; see `NestedLevels.sets_at`."""
        lengths = self.sizes_at_each(torch.stack(list(thresholds), dim=1))
        longest = lengths.amax(dim=1)
        return ranked.prefix(longest), longest, list(lengths.unbind(dim=1))

    def of_rank(self, rank: Tensor) -> Tensor:
        """Return the level of each row's label of a rank; minus infinity if no set contains it."""
        member = self._member(rank[:, None])[:, 0]
        inside = member < self.values.shape[1]
        level = self.values.gather(1, member.clamp(max=self.values.shape[1] - 1)[:, None])[:, 0]
        level = torch.where(inside, level, -torch.inf)
        return torch.where(member == 0, torch.inf, level) if self.always else level

    def by_rank(self, depth: int) -> Tensor:
        """Return the levels of the first labels; see `NestedLevels.by_rank`."""
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
        """Return sizes at several thresholds; see `NestedLevels.sizes_at_each`."""
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
        """Return levels of sets of limited sizes; see `NestedLevels.within`."""
        if int(self.sizes.max()) <= int(listed.min()):
            return self
        return replace(self, sizes=torch.minimum(self.sizes, listed[:, None]))

    def never_empty(self) -> Levels:
        """Return levels of sets that are never empty; see `NestedLevels.never_empty`."""
        return replace(self, always=True)


def _reaching(falling: Tensor, thresholds: Tensor) -> Tensor:
    """Return how many of each row's decreasing values reach each of its thresholds.

    For few thresholds, all rows are bisected in parallel, since `torch.searchsorted` needs a copy
    of the values in increasing order.
    """
    if thresholds.shape[1] >= MIN_THRESHOLDS_TO_COPY:
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
