"""Sets at thresholds: one for all rows, for each group, or for each class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist.conformal.calibration import Conditional
from shortlist.conformal.levels import AnyLevels, Block, Sets
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

Point: TypeAlias = "tuple[float | Conditional, str]"
"""A threshold, or one for each class or group, and the guarantee in words."""


SPARE = 1.1
"""By how much more room is made than seems to be needed."""


class Lists:
    """Sets that come a block of rows at a time, written where they stay: small results between
    large temporaries keep memory from going back."""

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking
        dtype = torch.int16 if ranking.n_classes <= 2**15 - 1 else torch.int32
        rows, device = len(ranking), ranking.device
        self.flat = torch.empty(2 * rows, dtype=dtype, device=device)
        self.sizes = torch.empty(rows, dtype=torch.int64, device=device)
        self.used = 0

    def add(self, rows: slice, labels: Tensor, lengths: Tensor) -> None:
        end = self.used + len(labels)
        if end > len(self.flat):  # room for all, if rows go on like this
            expected = math.ceil(SPARE * end * len(self.ranking) / rows.stop)
            wider = self.flat.new_empty(max(end, expected))
            wider[: self.used] = self.flat[: self.used]
            self.flat = wider
        self.flat[self.used : end] = labels
        self.sizes[rows] = lengths.to(torch.int64)
        self.used = end

    def labels(self) -> Tensor:
        """All that were added; without the rest of the room, if that is large."""
        found = self.flat[: self.used]
        return found if len(self.flat) <= SPARE * self.used else found.clone()

    def sets(self, guarantee: str) -> PredictionSets:
        ranking = self.ranking
        return PredictionSets(
            self.labels(), self.sizes, ranking.classes, kind=ranking.kind, guarantee=guarantee
        )


class NestedLists(Lists):
    """The sets at several thresholds: the longest lists, which all of them share."""

    def __init__(self, ranking: Ranking, thresholds: list[Tensor]) -> None:
        super().__init__(ranking)
        self.thresholds = thresholds
        self.lengths = torch.empty(
            (len(thresholds), len(ranking)), dtype=torch.int64, device=ranking.device
        )

    def add_block(self, rows: slice, ranked: Ranking, levels: AnyLevels) -> None:
        labels, longest, lengths = levels.sets_at(ranked, [at[rows] for at in self.thresholds])
        self.add(rows, labels, longest)
        for kept, found in zip(self.lengths, lengths, strict=True):
            kept[rows] = found

    def each(self, guarantees: Iterable[str]) -> Iterator[PredictionSets]:
        ranking, flat = self.ranking, self.labels()
        for lengths, guarantee in zip(self.lengths, guarantees, strict=True):
            yield PredictionSets(
                flat,
                lengths,
                ranking.classes,
                kind=ranking.kind,
                guarantee=guarantee,
                within=None if len(self.lengths) == 1 else self.sizes,
            )


def thresholds_at(
    point: float | Conditional, rows: int, groups: ArrayLike | None
) -> tuple[Tensor, str]:
    """The threshold of each row, or of each class, and what the guarantee leaves out, in words."""
    by = point.by if isinstance(point, Conditional) else None
    if groups is not None and by != "group":
        raise ValueError('groups came, but the guarantee is not by group; say by="group"')
    if not isinstance(point, Conditional):
        return torch.full((rows,), point, dtype=torch.float64), ""
    if by == "class":
        return point.thresholds[:-1], ""
    if groups is None:
        raise ValueError('by = "group" needs the group of each row: groups=...')
    return point.of_rows(groups, rows)


def sets_at_points(
    ranking: Ranking, blocks: Iterable[Block], points: Sequence[Point], groups: ArrayLike | None
) -> list[PredictionSets]:
    """The sets of all rows at each of some operating points, from levels that are made once."""
    asked = [
        (*thresholds_at(point, len(ranking), groups), guarantee) for point, guarantee in points
    ]
    thresholds = [at.to(ranking.device) for at, _, _ in asked]
    guarantees = [guarantee + words for _, words, guarantee in asked]
    others = {
        k: by_class if isinstance(point, Conditional) and point.by == "class" else _with_all
        for k, (point, _) in enumerate(points)
        if bool((thresholds[k] == -torch.inf).any())
        or (isinstance(point, Conditional) and point.by == "class")
    }
    nested = [k for k in range(len(points)) if k not in others]
    shared = NestedLists(ranking, [thresholds[k] for k in nested])
    own = {k: Lists(ranking) for k in others}
    for rows, ranked, levels in blocks:
        if nested:
            shared.add_block(rows, ranked, levels)
        for k, find in others.items():
            at = thresholds[k] if find is by_class else thresholds[k][rows]
            own[k].add(rows, *find(ranked, levels, at))
    found = dict(zip(nested, shared.each(guarantees[k] for k in nested), strict=True))
    found |= {k: lists.sets(guarantees[k]) for k, lists in own.items()}
    return [found[k] for k in range(len(points))]


def _with_all(ranked: Ranking, levels: AnyLevels, thresholds: Tensor) -> Sets:
    """The sets at one threshold for each row; all labels there are at -infinity."""
    every = thresholds[:, None] == -torch.inf
    inside = levels.by_rank(ranked.depth) >= thresholds[:, None]
    return _with_unlisted(ranked, inside | every, every)


def by_class(ranked: Ranking, levels: AnyLevels, thresholds: Tensor) -> Sets:
    """Each label by the threshold of its own class, (classes,): not a prefix."""
    labels, _ = ranked.top(ranked.depth)
    own = thresholds[labels.clamp(min=0).to(torch.int64)]
    inside = (levels.by_rank(ranked.depth) >= own) & (labels >= 0)
    every = thresholds == -torch.inf
    if bool(every.any()):
        return _with_unlisted(ranked, inside, every[None])
    return labels[inside], inside.sum(dim=1)


def _with_unlisted(ranked: Ranking, inside: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Some of the listed labels, best first, and those `others` (1 or rows, 1 or classes) that a
    row does not list."""
    n, rows = ranked.n_classes, len(ranked)
    labels, _ = ranked.top(ranked.depth)
    unlisted = torch.ones((rows, n + 1), dtype=torch.bool, device=ranked.device)
    unlisted.scatter_(1, torch.where(labels >= 0, labels, n).to(torch.int64), False)
    every = torch.arange(n, device=ranked.device, dtype=labels.dtype).expand(rows, -1)
    picked = torch.cat([inside & (labels >= 0), unlisted[:, :n] & others], dim=1)
    return torch.cat([labels, every], dim=1)[picked], picked.sum(dim=1)
