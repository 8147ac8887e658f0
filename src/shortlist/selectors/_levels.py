"""Levels: from which threshold on a nested set holds a label."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.ranking import Ranking


@dataclass(frozen=True)
class Levels:
    """Levels of some rows' nested sets, and the sizes of the sets.

    `values` (rows, members) do not increase; `sizes` (members,) or (rows, members) do not decrease.
    """

    values: Tensor
    sizes: Tensor

    def of_rank(self, rank: Tensor) -> Tensor:
        """The level of the label at each row's `rank`: that of the first set that holds it; minus
        infinity if none does."""
        member = self._member(rank[:, None])[:, 0]
        inside = member < self.values.shape[1]
        level = self.values.gather(1, member.clamp(max=self.values.shape[1] - 1)[:, None])[:, 0]
        return torch.where(inside, level, -torch.inf)

    def by_rank(self, depth: int) -> Tensor:
        """The level of each of the first `depth` labels: (rows, depth)."""
        ranks = torch.arange(depth, device=self.values.device)
        member = self._member(ranks.expand(len(self.values), -1))
        padded = torch.nn.functional.pad(self.values, (0, 1), value=-torch.inf)
        return padded.gather(1, member)

    def _member(self, ranks: Tensor) -> Tensor:
        """The first member whose set is longer than a rank: (rows, ranks)."""
        asked = ranks.to(torch.float64).contiguous()
        sizes = self.sizes.to(torch.float64)
        sizes = sizes if sizes.ndim == 1 else sizes.contiguous()
        return torch.searchsorted(sizes, asked, right=True)

    def sizes_at(self, thresholds: Tensor) -> Tensor:
        """The size of the set at one threshold for all rows, (), or at one for each, (rows,)."""
        inside = self.values >= thresholds.view(-1, 1)
        count = inside.sum(dim=1, keepdim=True)
        sizes = torch.nn.functional.pad(self.sizes.to(torch.int64), (1, 0))
        return sizes.expand(len(count), -1).gather(1, count)[:, 0]

    def sizes_at_each(self, thresholds: Tensor) -> Tensor:
        """The sizes of the sets at each of several thresholds: (rows, thresholds)."""
        asked = -thresholds.to(torch.float64).expand(len(self.values), -1)
        rising = -self.values.to(torch.float64)
        count = torch.searchsorted(rising.contiguous(), asked.contiguous(), right=True)
        sizes = torch.nn.functional.pad(self.sizes.to(torch.int64), (1, 0))
        return sizes.expand(len(count), -1).gather(1, count)

    def steps(self) -> Tensor:
        """How many labels each member adds: (rows, members)."""
        sizes = self.sizes.to(torch.float64)
        added = torch.diff(sizes, dim=-1, prepend=torch.zeros_like(sizes[..., :1]))
        return added.expand_as(self.values)

    def within(self, listed: Tensor) -> Levels:
        """The same sets, none longer than its row's list, of `listed` labels: (rows,)."""
        if int(self.sizes.max()) <= int(listed.min()):
            return self
        return Levels(self.values, torch.minimum(self.sizes, listed[:, None]))

    def never_empty(self) -> Levels:
        """The first set at every threshold."""
        values = self.values.clone()
        values[:, 0] = torch.inf
        return Levels(values, self.sizes)


Block: TypeAlias = tuple[slice, Ranking, Levels]
"""Some rows, their ranking, and the levels of its labels."""


def label_levels(blocks: Iterable[Block], index: Tensor) -> Tensor:
    """The level of each row's label: its conformal score."""
    return torch.cat(
        [
            levels.of_rank(ranked.rank_of(index[rows])).to(torch.float64)
            for rows, ranked, levels in blocks
        ]
    )


def mean_sizes(blocks: Iterable[Block], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean size at each of some decreasing thresholds."""
    rising, added, rows = torch.from_numpy(thresholds[::-1].copy()), torch.zeros(()), 0
    for _, _, levels in blocks:
        # A member counts at every threshold up to its level.
        values = levels.values.to(torch.float64).flatten().contiguous()
        rising, added = rising.to(values.device), added.to(values.device)
        place = torch.searchsorted(rising, values, right=True)
        steps = levels.steps().flatten()
        added = added + torch.bincount(place, weights=steps, minlength=len(rising) + 1)
        rows += len(levels.values)
    total = added.flip(0).cumsum(0).flip(0)[1:]
    sizes: NDArray[np.float64] = (total / rows).cpu().numpy()[::-1].copy()
    return sizes
