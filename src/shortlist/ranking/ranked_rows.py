"""The labels of each row in decreasing order of their scores, as tensors.

Scores are dense (one for every class) or belong to ranked candidates. The two differ only here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from shortlist._utils.blocks import CACHED_ELEMENTS, RANKED_ELEMENTS, row_blocks
from shortlist._utils.ordering import (
    any_ties,
    count_true,
    prefix_labels,
    sort_labels,
    sort_values,
    ties_before,
)
from shortlist._utils.out_of_core import RowView
from shortlist._utils.threads import map_blocks, map_in_threads

Result = TypeVar("Result")
TopLabels = tuple[Tensor, Tensor]
"""Labels of each row (int32, -1 after the last one) and their scores, best first."""


class RankedRows:
    """Rows whose labels are ranked by their scores, only as deep as is needed.

    Parameters
    ----------
    n_classes : int
        Number of classes.
    depth : int
        Number of labels that are ranked in each row.
    dense : Tensor or RowView of shape (n_rows, n_classes), optional
        A score for every class.
    top : tuple (labels, scores) of Tensor, optional
        Ranked candidates, if `dense` is not given. Otherwise the first labels, if known.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    device : torch.device
        Device of the scores.
    bounds : tuple of float, or None
        Lower and upper bound of all scores, if known; see `check_finite`.
    known_row_sums : Tensor or None
        Sum of each row, once computed, if no score is negative.
    known_row_maxima : Tensor or None
        Largest score of each row, once computed.
    """

    bounds: tuple[float, float] | None = None
    known_row_sums: Tensor | None = None
    known_row_maxima: Tensor | None = None

    def __init__(
        self,
        n_classes: int,
        depth: int,
        *,
        dense: Tensor | RowView | None = None,
        top: TopLabels | None = None,
    ) -> None:
        self.n_classes, self.depth = n_classes, depth
        self._dense = dense
        # The first labels and scores, as many as were computed so far. Both are one attribute, so
        # that another thread never sees labels of one depth and scores of another.
        self._top = top
        self._ascending: Tensor | None = None
        rows = dense if dense is not None else top[0] if top is not None else None
        if rows is None:
            raise ValueError("build a Ranking with Ranking.from_scores or Ranking.from_candidates")
        if not len(rows):
            raise ValueError("a ranking needs at least one row; got none")
        self.n_rows, self.device = int(rows.shape[0]), rows.device

    def __len__(self) -> int:
        return self.n_rows

    @property
    def is_dense(self) -> bool:
        """Whether every class has a score, so that every label has a finite rank."""
        return self._dense is not None

    @property
    def is_complete(self) -> bool:
        """Whether every label of every row is ranked."""
        return self.is_dense and self.depth == self.n_classes

    @property
    def dense(self) -> Tensor | RowView:
        """Scores by column, of shape (n_rows, n_classes)."""
        if self._dense is None:
            raise ValueError("a ranking of candidates does not have a score for every class")
        return self._dense

    @property
    def width(self) -> int:
        """Number of scores of a row."""
        return self.n_classes if self.is_dense else self.depth

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of scores of a row."""
        return self.n_rows, self.width

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the scores."""
        return self.scores_of(slice(0, 1)).dtype

    def blocks(self, elements: int = RANKED_ELEMENTS) -> list[slice]:
        """Return slices that cover the rows, of about `elements` scores each on a CPU."""
        limit = elements if self.device.type == "cpu" else None
        return list(row_blocks(self.n_rows, self.width, self.device, elements=limit))

    def map_blocks(
        self, work: Callable[[slice], Result], elements: int = RANKED_ELEMENTS
    ) -> list[Result]:
        """Apply a function to all blocks of rows, on a CPU in threads.

        Parameters
        ----------
        work : callable
            Function of a slice of rows.
        elements : int, optional
            Approximate number of scores in a block on a CPU.

        Returns
        -------
        list
            Results, in the order of the rows.
        """
        blocks = self.blocks(elements)
        if self.device.type != "cpu":
            return [work(rows) for rows in blocks]
        return map_in_threads(work, blocks, size=self.n_rows * self.width)

    def scores_of(self, rows: slice) -> Tensor:
        """Return all scores of some rows: by column if dense, else sorted, -inf for padding."""
        if self._dense is not None:
            return self._dense[rows]
        labels, scores = self._top_block(rows, self.depth)
        return torch.where(labels >= 0, scores, -torch.inf)

    def copy_scores(self, rows: slice, out: Tensor) -> Tensor:
        """Return dense scores of some rows, in `out` if they are not stored one after another."""
        matrix = self.dense
        if isinstance(matrix, Tensor):
            return matrix[rows]
        return torch.index_select(matrix.matrix, 0, matrix.rows[rows], out=out)

    def top(self, depth: int) -> TopLabels:
        """Return the first labels of each row and their scores, and cache them.

        Parameters
        ----------
        depth : int
            Number of labels. Can exceed the number of candidates.

        Returns
        -------
        labels : int32 Tensor of shape (n_rows, depth)
            Label indices, padded with -1.
        scores : Tensor of shape (n_rows, depth)
            Scores, padded with 0.
        """
        if not self.is_dense and depth > self.depth:
            labels, scores = self.top(self.depth)
            wider = (0, depth - self.depth)
            return nn.functional.pad(labels, wider, value=-1), nn.functional.pad(scores, wider)
        top = self._top
        if top is None or top[0].shape[1] < depth:
            blocks = self.map_blocks(lambda rows: self._top_block(rows, depth))
            top = (
                torch.cat([labels for labels, _ in blocks]),
                torch.cat([scores for _, scores in blocks]),
            )
            # Another thread may have ranked more labels meanwhile.
            if self._top is None or self._top[0].shape[1] < depth:
                self._top = top
        return top[0][:, :depth], top[1][:, :depth]

    def _top_block(self, rows: slice, depth: int) -> TopLabels:
        """Return the first labels of some rows and their scores, from the cache if possible."""
        top = self._top
        if top is not None and top[0].shape[1] >= depth:
            return top[0][rows, :depth], top[1][rows, :depth]
        block = self.dense[rows]
        columns = sort_labels(block, depth)
        return columns.to(torch.int32), block.gather(1, columns)

    def top_scores(self, depth: int) -> Tensor:
        """Return the `depth` highest scores of each row, in decreasing order."""
        if self._ascending is not None:
            return self._ascending[:, -depth:].flip(1)
        if not self.is_dense or depth > self.n_classes // 4:
            return self.top(depth)[1]
        return _concatenate(
            self.map_blocks(lambda rows: torch.topk(self.dense[rows], depth).values)
        )

    def ascending_scores(self) -> Tensor:
        """Return dense scores in increasing order, and cache them.

        This is much faster than sorting the labels along with them.
        """
        if self._ascending is None:
            self._ascending = _concatenate(
                self.map_blocks(lambda rows: sort_values(self.dense[rows]))
            )
        return self._ascending

    def lengths(self) -> Tensor:
        """Return the number of labels that each row ranks (int32): its largest possible size."""
        if self.is_dense:
            return torch.full((self.n_rows,), self.depth, dtype=torch.int32, device=self.device)
        return count_true(self.top(self.depth)[0] >= 0)

    def prefix(self, sizes: Tensor) -> Tensor:
        """Return the first labels of each row, concatenated (int32).

        Parameters
        ----------
        sizes : Tensor of shape (n_rows,)
            Number of labels to return for each row.

        Returns
        -------
        Tensor of shape (sizes.sum(),)
            Label indices, one row after another, best first.
        """
        cached_depth = 0 if self._top is None else self._top[0].shape[1]
        if self._ascending is not None and cached_depth < int(sizes.max()):
            place = self.n_classes - sizes.to(torch.int64).clamp(min=1)
            last = self._ascending.gather(1, place[:, None])

            def search(rows: slice) -> Tensor:
                scores = self.dense[rows]
                return prefix_labels(scores, last[rows], scores, sizes[rows])

            return torch.cat(self.map_blocks(search))

        def select(rows: slice) -> Tensor:
            deepest = int(sizes[rows].max())
            labels, _ = self._top_block(rows, deepest)
            return labels[torch.arange(deepest, device=self.device) < sizes[rows, None]]

        return torch.cat(self.map_blocks(select))

    def rank_of(self, index: Tensor) -> Tensor:
        """Return the rank of label indices, by counting higher scores and preceding ties.

        Parameters
        ----------
        index : Tensor of shape (n_rows,)
            Label indices.

        Returns
        -------
        float64 Tensor of shape (n_rows,)
            Ranks from 0; infinity for labels that are not among the candidates.
        """
        if not self.is_dense:
            matches = self.top(self.depth)[0] == index[:, None]
            position = matches.to(torch.int8).argmax(dim=1).to(torch.float64)
            return torch.where(matches.any(dim=1), position, torch.inf)
        ranks = torch.empty(self.n_rows, dtype=torch.float64, device=self.device)

        def count(rows: slice) -> None:
            block, y = self.dense[rows], index[rows, None]
            own = block.gather(1, y)
            before = count_true(block > own) + ties_before(block, own, y)
            ranks[rows] = before.to(torch.float64)

        self.map_blocks(count, CACHED_ELEMENTS)
        return ranks

    def is_first(self, index: Tensor, untied: Tensor | None = None) -> Tensor:
        """Return whether each row's label is its first.

        Parameters
        ----------
        index : Tensor of shape (n_rows,)
            Label indices.
        untied : bool Tensor of shape (n_rows,), optional
            Labels whose score is known to be unique in its row, which saves the search for ties.

        Returns
        -------
        bool Tensor of shape (n_rows,)
        """
        if not self.is_dense:
            return self.rank_of(index) == 0
        first = torch.empty(self.n_rows, dtype=torch.bool, device=self.device)
        if self.known_row_maxima is not None and self.device.type == "cpu":
            return self._is_maximum(index, self.known_row_maxima, untied)

        def compare(rows: slice) -> None:
            block, y = self.dense[rows], index[rows, None]
            own = block.gather(1, y)
            highest = own[:, 0] == block.amax(dim=1)
            if any_ties(block, own, highest if untied is None else highest & ~untied[rows]):
                highest &= ties_before(block, own, y) == 0
            first[rows] = highest

        self.map_blocks(compare)
        return first

    def _is_maximum(self, index: Tensor, maxima: Tensor, untied: Tensor | None) -> Tensor:
        """Return whether each row's label is its first, and read only rows that can have ties."""
        first = self.scores_at(index) == maxima
        uncertain = (first if untied is None else first & ~untied).nonzero()[:, 0]

        def compare(part: slice) -> None:
            rows = uncertain[part]
            block, y = self.dense[rows], index[rows, None]
            own = block.gather(1, y)
            if any_ties(block, own, first[rows]):
                first[rows] = ties_before(block, own, y) == 0

        map_blocks(compare, len(uncertain), self.n_classes)
        return first

    def scores_at(self, index: Tensor) -> Tensor:
        """Return the dense score of one label of each row."""
        matrix = self.dense
        if isinstance(matrix, Tensor):
            return matrix.gather(1, index[:, None])[:, 0]
        return matrix.matrix[matrix.rows, index]

    def count_above(self, thresholds: Sequence[float]) -> Tensor:
        """Count the ranked scores of each row that exceed each threshold.

        Parameters
        ----------
        thresholds : sequence of float
            Thresholds, which are rounded to the floating-point type of the scores.

        Returns
        -------
        int32 Tensor of shape (n_rows, n_thresholds)
        """
        counts = torch.empty((self.n_rows, len(thresholds)), dtype=torch.int32, device=self.device)

        def count(rows: slice) -> None:
            block = self.scores_of(rows)
            limits = torch.tensor(thresholds, dtype=block.dtype, device=self.device)
            for k, limit in enumerate(limits):
                counts[rows, k] = count_true(block > limit)

        self.map_blocks(count)
        return counts.clamp_(max=self.depth)

    def row_sums(self) -> Tensor:
        """Return the sum of the dense scores of each row, cached if no score is negative.

        The largest score of each row is computed in the same pass, and cached.
        """
        if self.known_row_sums is None:
            dtype = torch.promote_types(self.dtype, torch.float32)
            sums = torch.empty(self.n_rows, dtype=dtype, device=self.device)
            maxima = torch.empty(self.n_rows, dtype=self.dtype, device=self.device)

            def reduce(rows: slice) -> None:
                block = self.dense[rows]
                torch.sum(block, dim=1, dtype=dtype, out=sums[rows])
                torch.amax(block, dim=1, out=maxima[rows])

            self.map_blocks(reduce, CACHED_ELEMENTS)
            self.known_row_maxima = maxima
            if self.bounds is None or self.bounds[0] < 0:
                return sums
            self.known_row_sums = sums
        return self.known_row_sums


def _concatenate(blocks: list[Tensor]) -> Tensor:
    """Concatenate blocks of rows, without a copy if there is only one."""
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks)
