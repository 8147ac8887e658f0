"""Prediction sets at one or several thresholds, from levels that are computed once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist.conformal.calibrators import Thresholds
from shortlist.conformal.levels import Block, LevelBlocks, Nested, NestedLevels, Sets
from shortlist.guarantee import Guarantee
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

WINDOW_BLOCKS = 256
"""Number of blocks whose sets are in memory besides the buffers of all sets."""
SPARE = 1.1
"""Factor by which a buffer is larger than its expected content."""


def predict_sets(
    ranking: Ranking,
    blocks: LevelBlocks,
    points: Sequence[Thresholds],
    groups: ArrayLike | None,
) -> list[PredictionSets]:
    """Return the sets of all rows at each of several thresholds.

    Parameters
    ----------
    ranking : Ranking
        All rows.
    blocks : LevelBlocks
        Rankings and levels of the rows, a block at a time.
    points : sequence of Thresholds
        Operating points.
    groups : array-like, optional
        Group of each row.

    Returns
    -------
    list of PredictionSets
        Sets at each of the thresholds.
    """
    resolved = [point.for_rows(len(ranking), groups) for point in points]
    thresholds = [values.to(ranking.device) for values, _ in resolved]
    guarantees = [guarantee for _, guarantee in resolved]
    by_class = [point.per == "class" for point in points]
    # Sets that are not prefixes, or contain labels that are not ranked, cannot share labels.
    separate = [
        by_class[k] or bool((thresholds[k] == -torch.inf).any()) for k in range(len(points))
    ]
    nested = [k for k in range(len(points)) if not separate[k]]
    nested_sets = _NestedSets(ranking, len(nested))
    buffers = {k: _SetBuffer(ranking) for k in range(len(points)) if separate[k]}

    def compute(block: Block) -> tuple[slice, Nested | None, dict[int, Sets]]:
        rows, ranked, levels = block
        at_each = [thresholds[k][rows] for k in nested]
        own = {
            k: class_sets(ranked, levels, thresholds[k])
            if by_class[k]
            else _sets_with_all(ranked, levels, thresholds[k][rows])
            for k in buffers
        }
        return rows, levels.sets_at(ranked, at_each) if nested else None, own

    for start in range(0, len(blocks), WINDOW_BLOCKS):
        for rows, shared, own in blocks[start : start + WINDOW_BLOCKS].map(compute):
            if shared is not None:
                nested_sets.add_nested(rows, *shared)
            for k, buffer in buffers.items():
                buffer.add(rows, *own[k])
    sets = dict(zip(nested, nested_sets.each(guarantees[k] for k in nested), strict=True))
    sets |= {k: buffer.sets(guarantees[k]) for k, buffer in buffers.items()}
    return [sets[k] for k in range(len(points))]


class _SetBuffer:
    """Collects the sets of blocks of rows.

    Labels are written into one growing buffer, since many small results between large temporaries
    fragment the memory.
    """

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking
        dtype = torch.int16 if ranking.n_classes <= 2**15 - 1 else torch.int32
        rows, device = len(ranking), ranking.device
        self.flat = torch.empty(2 * rows, dtype=dtype, device=device)
        self.sizes = torch.empty(rows, dtype=torch.int64, device=device)
        self.used = 0

    def add(self, rows: slice, labels: Tensor, sizes: Tensor) -> None:
        """Append the sets of a block of rows. Blocks must come in order."""
        end = self.used + len(labels)
        if end > len(self.flat):
            expected = math.ceil(SPARE * end * len(self.ranking) / rows.stop)
            wider = self.flat.new_empty(max(end, expected))
            wider[: self.used] = self.flat[: self.used]
            self.flat = wider
        self.flat[self.used : end] = labels
        self.sizes[rows] = sizes.to(torch.int64)
        self.used = end

    def labels(self) -> Tensor:
        """Return all labels, without the unused part of the buffer if that is large."""
        labels = self.flat[: self.used]
        return labels if len(self.flat) <= SPARE * self.used else labels.clone()

    def sets(self, guarantee: Guarantee) -> PredictionSets:
        """Return the sets of all rows."""
        ranking = self.ranking
        return PredictionSets(
            self.labels(),
            self.sizes,
            ranking.classes,
            array_type=ranking.array_type,
            guarantee=guarantee,
        )


class _NestedSets(_SetBuffer):
    """Collects nested sets at several thresholds, which share the labels of the largest sets."""

    def __init__(self, ranking: Ranking, n_thresholds: int) -> None:
        super().__init__(ranking)
        self.lengths = torch.empty(
            (n_thresholds, len(ranking)), dtype=torch.int64, device=ranking.device
        )

    def add_nested(
        self, rows: slice, labels: Tensor, longest: Tensor, lengths: Sequence[Tensor]
    ) -> None:
        """Append the sets of a block of rows at all thresholds."""
        self.add(rows, labels, longest)
        for stored, new in zip(self.lengths, lengths, strict=True):
            stored[rows] = new

    def each(self, guarantees: Iterable[Guarantee]) -> Iterator[PredictionSets]:
        """Yield the sets at each threshold."""
        ranking, flat = self.ranking, self.labels()
        for lengths, guarantee in zip(self.lengths, guarantees, strict=True):
            yield PredictionSets(
                flat,
                lengths,
                ranking.classes,
                array_type=ranking.array_type,
                guarantee=guarantee,
                stored_sizes=None if len(self.lengths) == 1 else self.sizes,
            )


def class_sets(ranked: Ranking, levels: NestedLevels, thresholds: Tensor) -> Sets:
    """Return sets with a threshold for each class. They are not prefixes of the ranking."""
    labels, _ = ranked.top(ranked.depth)
    own = thresholds[labels.clamp(min=0).to(torch.int64)]
    inside = (levels.by_rank(ranked.depth) >= own) & (labels >= 0)
    every = thresholds == -torch.inf
    if bool(every.any()):
        return _with_unranked(ranked, inside, every[None])
    return labels[inside], inside.sum(dim=1)


def _sets_with_all(ranked: Ranking, levels: NestedLevels, thresholds: Tensor) -> Sets:
    """Return sets with a threshold for each row; minus infinity stands for all classes."""
    every = thresholds[:, None] == -torch.inf
    inside = levels.by_rank(ranked.depth) >= thresholds[:, None]
    return _with_unranked(ranked, inside | every, every)


def _with_unranked(ranked: Ranking, inside: Tensor, others: Tensor) -> Sets:
    """Return the ranked labels that are `inside`, and those of `others` that are not ranked."""
    n, rows = ranked.n_classes, len(ranked)
    labels, _ = ranked.top(ranked.depth)
    unranked = torch.ones((rows, n + 1), dtype=torch.bool, device=ranked.device)
    unranked.scatter_(1, torch.where(labels >= 0, labels, n).to(torch.int64), False)
    every = torch.arange(n, device=ranked.device, dtype=labels.dtype).expand(rows, -1)
    picked = torch.cat([inside & (labels >= 0), unranked[:, :n] & others], dim=1)
    return torch.cat([labels, every], dim=1)[picked], picked.sum(dim=1)
