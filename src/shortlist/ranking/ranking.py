"""Rankings: the labels of each row, best first.

A prediction set is a prefix of its row's ranking, so a ranking is all that families, selectors
and metrics need to know of a classifier's scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import torch
from torch import Tensor, nn

from shortlist._utils.arrays import (
    RANKED_ELEMENTS,
    Array,
    ArrayLike,
    ArrayType,
    RowView,
    array_type_of,
    as_bounded_matrix,
    check_count,
    read_blocks,
    row_blocks,
    row_index,
    select_rows,
    sort_values,
    to_array_type,
)
from shortlist._utils.frames import check_classes, check_distinct, frame_columns, whole_numbers
from shortlist._utils.labels import Classes
from shortlist._utils.ordering import any_ties, count_true, prefix_to, sort_labels, ties_before
from shortlist.ranking.candidates import read_candidates

MOST_CLASSES = torch.iinfo(torch.int32).max
"""Rankings hold labels as int32."""


class Ranking:
    """The labels and scores of each row, best first, only as deep as anyone needs.

    Built with `Ranking.from_scores` from a score for every class, or with
    `Ranking.from_candidates` from ranked lists. A ranking is welcome wherever scores are.

    Attributes
    ----------
    labels, scores : (rows, depth)
        Label indices (-1 where a row's list has ended) and their scores, best first, as the kind
        of array that came in.
    n_classes, depth : int
        How many classes there are, and how many labels of each row are listed.

    Examples
    --------
    >>> r = Ranking.from_scores([[0.1, 0.6, 0.3], [0.4, 0.4, 0.2]])
    >>> r.labels.tolist()          # the tie goes to the highest index
    [[1, 2, 0], [1, 0, 2]]
    >>> r.rank([2, 0]).tolist()
    [1.0, 1.0]
    """

    columns: list[object] | None = None
    """The names of the columns, if the scores were a frame."""
    known_masses: Tensor | None = None
    """The sum of each row, where no score is negative and somebody has asked for it."""
    rounding: float = 0.0
    """By how much two computations of the same score may differ. Scores that came in are what they
    are; those of networks depend on the batch, the number of threads and the device."""

    def __init__(
        self,
        *,
        classes: Classes,
        depth: int,
        kind: ArrayType,
        dense: Tensor | RowView | None = None,
        listed: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.classes = classes
        self.depth = depth
        self.kind: ArrayType = kind
        self._dense = dense  # (rows, n) scores by column, where every class has one
        self._listed = listed  # the deepest (labels, scores) computed so far
        self._rising: Tensor | None = None  # dense scores, best last, without their labels
        self.bounds: tuple[float, float] | None = None
        """The least and the largest score, if they are known."""
        first = dense if dense is not None else listed[0] if listed is not None else None
        if first is None:
            raise ValueError("build a Ranking with Ranking.from_scores or Ranking.from_candidates")
        if not len(first):
            raise ValueError("a ranking of no rows: at least one row is needed")
        self.n_rows: int = first.shape[0]
        self.device = first.device

    @classmethod
    def from_scores(
        cls, scores: ArrayLike, *, depth: int | None = None, classes: ArrayLike | None = None
    ) -> Ranking:
        """Rank a dense score matrix (rows, classes): NumPy or torch, any float type or device.

        Nothing is sorted before it is asked for, and then only to the depth asked for; the matrix
        itself is not copied. `depth` limits how many labels of a row can ever be listed.

        The columns of a frame that are numbers are put in order: 0, 1, 2, … Other names are kept,
        and fit and predict match them.
        """
        columns = frame_columns(scores)
        if columns is not None:
            check_distinct(columns, "scores")
            if classes is not None:
                check_classes(columns, list(classes))
        dense, bounds = as_bounded_matrix(scores, "scores", "classes")
        n = dense.shape[1]
        if n < 2:
            raise ValueError(
                f"scores have shape {tuple(dense.shape)}: one class only; "
                "a choice of labels needs at least two"
            )
        if depth is not None and check_count(depth, "depth") > n:
            raise ValueError(f"depth = {depth} is more than the {n} classes")
        ranking = cls(
            classes=Classes(n, classes), depth=depth or n, kind=array_type_of(scores), dense=dense
        )
        ranking.bounds, ranking.columns = bounds, columns
        numbers = None if columns is None or classes is not None else whole_numbers(columns)
        if numbers is not None and sorted(numbers) == list(range(n)) != numbers:
            return ranking.with_columns(np.argsort(numbers).tolist())
        return ranking

    @classmethod
    def from_candidates(
        cls,
        labels: ArrayLike,
        scores: ArrayLike,
        n_classes: int | None = None,
        *,
        classes: ArrayLike | None = None,
    ) -> Ranking:
        """Rank lists of candidates: what hosted models, retrieval services and top-logprobs give.

        Parameters
        ----------
        labels, scores : (rows, depth)
            Labels and scores, best first. Shorter rows are padded with the label -1 (their scores
            are ignored there), or given as nested lists of unequal lengths. Candidates keep the
            order they came in where scores tie; rows that are not in order are put in order.
        n_classes : int
            How many classes there are in all, listed or not. May be left out if `classes` is given.
        classes : array-like, optional
            Names of the classes; `labels` then holds names, not indices (None pads).

        Examples
        --------
        >>> r = Ranking.from_candidates([[7, 2], [3, -1]], [[0.5, 0.2], [0.9, 0.0]], n_classes=10)
        >>> r.rank([2, 8]).tolist()      # 8 is not among the second row's candidates
        [1.0, inf]
        """
        if classes is not None:
            n_classes = len(classes) if n_classes is None else n_classes
        if n_classes is None:
            raise ValueError(
                "from_candidates needs n_classes (how many classes there are in all), or, for "
                "labels with names, classes=[...] (all their names)"
            )
        if check_count(n_classes, "n_classes", least=2) > MOST_CLASSES:
            raise ValueError(f"n_classes = {n_classes} is more than labels can be, {MOST_CLASSES}")
        known = Classes(int(n_classes), classes)
        columns, values = read_candidates(labels, scores, known)
        # A stable sort keeps the order of ties; padding goes last and is cut off where no row
        # needs it.
        by_score = torch.where(columns >= 0, values, -torch.inf)
        depth = int((columns >= 0).sum(dim=1).max())
        if bool((by_score[:, 1:] > by_score[:, :-1]).any()):
            position = torch.sort(by_score, dim=1, descending=True, stable=True).indices
            columns, values = columns.gather(1, position), values.gather(1, position)
        columns, values = columns[:, :depth], values[:, :depth]
        listed = (columns.to(torch.int32), torch.where(columns >= 0, values, 0))
        return cls(classes=known, depth=depth, kind=array_type_of(scores), listed=listed)

    @property
    def n_classes(self) -> int:
        return self.classes.n

    @property
    def is_dense(self) -> bool:
        """Whether every class has a score, so that every label has a finite rank."""
        return self._dense is not None

    @property
    def is_whole(self) -> bool:
        """Whether every label of every row is listed."""
        return self.is_dense and self.depth == self.n_classes

    @property
    def labels(self) -> Array:
        return to_array_type(self.top(self.depth)[0], self.kind)

    @property
    def scores(self) -> Array:
        return to_array_type(self.top(self.depth)[1], self.kind)

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        source = "scores" if self.is_dense else "candidates"
        return (
            f"Ranking({self.n_rows:,} rows of {source}, {self.n_classes:,} classes, "
            f"depth {self.depth:,})"
        )

    def __getitem__(self, rows: slice | Sequence[int] | Array) -> Ranking:
        """Some of the rows (slice, indices or a boolean mask), as a ranking."""
        if isinstance(rows, int | np.integer):
            raise TypeError(f"ranking[{rows}] is one row; for a ranking of it: ranking[[{rows}]]")
        at = row_index(rows, self.n_rows, self.device)
        listed = self._listed  # Read once: another thread may list more labels meanwhile.
        some = Ranking(
            classes=self.classes,
            depth=self.depth,
            kind=self.kind,
            dense=None if self._dense is None else select_rows(self._dense, at),
            listed=None if listed is None else (listed[0][at], listed[1][at]),
        )
        some.columns = self.columns
        some.known_masses = None if self.known_masses is None else self.known_masses[at]
        some.rounding = self.rounding
        return some

    @property
    def precision(self) -> str:
        """Type of the scores: "float16", "bfloat16", or "float32", which float64 is rounded to."""
        assert self._dense is not None or self._listed is not None
        some = self._listed[1] if self._listed is not None else self.scores_of(slice(0, 1))
        return {torch.float16: "float16", torch.bfloat16: "bfloat16"}.get(some.dtype, "float32")

    def with_precision(self, name: str) -> Ranking:
        """The same rows with their scores rounded to a type, in the order that these have."""
        dtype = getattr(torch, name)
        most = torch.finfo(dtype).max

        def rounded(scores: Tensor) -> Tensor:
            if scores.dtype == dtype:
                return scores.contiguous()
            if torch.finfo(scores.dtype).max > most:  # far larger ones become the largest
                scores = scores.clamp(-most, most)
            return scores.to(dtype, memory_format=torch.contiguous_format)

        if self._dense is None:
            assert self._listed is not None
            labels, scores = self._listed
            if scores.dtype == dtype:
                return self
            listed, dense = (labels, rounded(scores)), None
        else:
            dense = self._dense
            if isinstance(dense, Tensor) and dense.dtype == dtype and dense.is_contiguous():
                return self
            listed, dense = None, rounded(self.scores_of(slice(0, self.n_rows)))
        same = Ranking(
            classes=self.classes, depth=self.depth, kind=self.kind, dense=dense, listed=listed
        )
        same.known_masses, same.rounding = self.known_masses, self.rounding
        return same

    def with_classes(self, classes: Classes) -> Ranking:
        """The same ranking with the columns named."""
        if classes.n != self.n_classes:
            raise ValueError(f"{classes.n} classes do not name {self.n_classes} columns")
        named = copy(self)
        named.classes = classes
        return named

    def with_columns(self, order: Sequence[int]) -> Ranking:
        """The same scores with their columns in another order. Classes stay where they are."""
        assert self._dense is not None
        if isinstance(self._dense, RowView):
            dense: Tensor | RowView = RowView(self._dense.matrix[:, order], self._dense.rows)
        else:
            dense = self._dense[:, order]
        moved = Ranking(classes=self.classes, depth=self.depth, kind=self.kind, dense=dense)
        moved.bounds = self.bounds
        moved.columns = None if self.columns is None else [self.columns[i] for i in order]
        return moved

    def check_depth(self, size: int, what: str) -> None:
        """Raise if a set of `size` labels cannot be listed."""
        if size > self.n_classes:
            raise ValueError(f"{what}, but there are only {self.n_classes} classes")
        if size > self.depth:
            raise ValueError(
                f"{what}, but the ranking lists only {self.depth} labels a row; "
                f"rank deeper, or ask for at most {self.depth}"
            )

    def top(self, depth: int) -> tuple[Tensor, Tensor]:
        """The first `depth` labels (int32; -1 past a row's end) and scores, kept for next time."""
        if self._dense is None and depth > self.depth:  # a batch whose lists are all short
            labels, scores = self.top(self.depth)
            wider = (0, depth - self.depth)
            return nn.functional.pad(labels, wider, value=-1), nn.functional.pad(scores, wider)
        listed = self._listed
        if listed is None or listed[0].shape[1] < depth:
            blocks = [self._top_block(rows, depth) for rows in self.blocks()]
            listed = (
                torch.cat([labels for labels, _ in blocks]),
                torch.cat([scores for _, scores in blocks]),
            )
            if self._listed is None or self._listed[0].shape[1] < depth:
                self._listed = listed
        return listed[0][:, :depth], listed[1][:, :depth]

    def _top_block(self, rows: slice, depth: int) -> tuple[Tensor, Tensor]:
        listed = self._listed
        if listed is not None and listed[0].shape[1] >= depth:
            return listed[0][rows, :depth], listed[1][rows, :depth]
        assert self._dense is not None
        block = self._dense[rows]
        columns = sort_labels(block, depth)
        return columns.to(torch.int32), block.gather(1, columns)

    def blocks(self, elements: int = RANKED_ELEMENTS) -> list[slice]:
        """Slices of rows to work on one after the other: on a CPU of so many scores."""
        width = self.depth if self._dense is None else self.n_classes
        few = elements if self.device.type == "cpu" else None
        return list(row_blocks(self.n_rows, width, self.device, elements=few))

    def scores_of(self, rows: slice) -> Tensor:
        """All scores of some rows: by column if dense, else best first with -inf for padding."""
        if self._dense is not None:
            return self._dense[rows]
        labels, scores = self._top_block(rows, self.depth)
        return torch.where(labels >= 0, scores, -torch.inf)

    def rising_scores(self) -> Tensor:
        """All scores of each row, best last, of a dense ranking; kept for next time.

        Much faster than to sort labels along. Labels can be had from it later, with `prefix`.
        """
        assert self._dense is not None
        if self._rising is None:
            blocks = [sort_values(self._dense[rows]) for rows in self.blocks()]
            self._rising = blocks[0] if len(blocks) == 1 else torch.cat(blocks)
        return self._rising

    def masses(self) -> Tensor:
        """The sum of each row of a dense ranking; kept for next time if no score is negative."""
        assert self._dense is not None
        if self.known_masses is None:
            dtype = torch.promote_types(self.scores_of(slice(0, 1)).dtype, torch.float32)
            found = torch.empty(self.n_rows, dtype=dtype, device=self.device)
            for rows in read_blocks(self.n_rows, self.n_classes, self.device):
                torch.sum(self._dense[rows], dim=1, dtype=dtype, out=found[rows])
            if self.bounds is None or self.bounds[0] < 0:
                return found
            self.known_masses = found
        return self.known_masses

    def sorted_scores(self) -> Tensor:
        """The same, best first."""
        return self.rising_scores().flip(1)

    def best_scores(self, depth: int) -> Tensor:
        """The `depth` best scores of each row, whichever labels have them."""
        if self._rising is not None:
            return self._rising[:, -depth:].flip(1)
        if self._dense is None or depth > self.n_classes // 4:
            return self.top(depth)[1]
        blocks = [torch.topk(self._dense[rows], depth).values for rows in self.blocks()]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks)

    def prefix(self, sizes: Tensor) -> Tensor:
        """The first `sizes[i]` labels of every row i, one row after the other (int32)."""
        listed = 0 if self._listed is None else self._listed[0].shape[1]
        if self._rising is not None and listed < int(sizes.max()):
            assert self._dense is not None
            place = self.n_classes - sizes.to(torch.int64).clamp(min=1)
            last = self._rising.gather(1, place[:, None])
            blocks = [(self._dense[rows], last[rows], sizes[rows]) for rows in self.blocks()]
            return torch.cat([prefix_to(block, at, block, wanted) for block, at, wanted in blocks])
        flat = []
        for rows in self.blocks():
            deepest = int(sizes[rows].max())
            labels, _ = self._top_block(rows, deepest)
            inside = torch.arange(deepest, device=self.device) < sizes[rows, None]
            flat.append(labels[inside])
        return torch.cat(flat)

    def listed(self) -> Tensor:
        """How many labels each row lists (int32): a set can be no longer."""
        if self._dense is not None:
            return torch.full((self.n_rows,), self.depth, dtype=torch.int32, device=self.device)
        return (self.top(self.depth)[0] >= 0).sum(dim=1, dtype=torch.int32)

    def rank(self, y: ArrayLike) -> Array:
        """Rank of the labels `y`, from 0 for the best; infinity outside a row's candidates.

        A count of the scores above and of the ties that go first, not a sort. A set of size s
        holds y if and only if `rank(y) < s`.
        """
        index = self.classes.encode(y, rows=self.n_rows, device=self.device)
        return to_array_type(self.rank_of(index), self.kind)

    def rank_of(self, index: Tensor) -> Tensor:
        """`rank` for label indices that are known to be right."""
        if self._dense is None:
            found = self.top(self.depth)[0] == index[:, None]
            position = found.to(torch.int8).argmax(dim=1).to(torch.float64)
            return torch.where(found.any(dim=1), position, torch.inf)
        ranks = torch.empty(self.n_rows, dtype=torch.float64, device=self.device)
        for rows in self.blocks():
            block, y = self._dense[rows], index[rows, None]
            own = block.gather(1, y)
            before = count_true(block > own) + ties_before(block, own, y)
            ranks[rows] = before.to(torch.float64)
        return ranks

    def last_rank_of(self, index: Tensor) -> Tensor:
        """The last rank that a label may have, however its row's scores are rounded."""
        if not self.rounding:
            return self.rank_of(index)
        ranks = torch.empty(self.n_rows, dtype=torch.float64, device=self.device)
        for rows in self.blocks():
            block, y = self.scores_of(rows), index[rows, None]
            if self._dense is None:
                at = self._top_block(rows, self.depth)[0] == y
                own = torch.where(at, block, torch.inf).amin(dim=1, keepdim=True)
            else:
                own = block.gather(1, y)
            last = count_true(block >= own - self.rounding) - 1
            ranks[rows] = torch.where(own[:, 0] < torch.inf, last.to(torch.float64), torch.inf)
        return ranks

    def is_first(self, index: Tensor, untied: Tensor | None = None) -> Tensor:
        """Whether each row's label is its first. For that, nothing has to be counted; and nothing
        compared where it is known (`untied`) that no other label's score equals its own."""
        if self._dense is None:
            return self.rank_of(index) == 0
        first = torch.empty(self.n_rows, dtype=torch.bool, device=self.device)
        for rows in self.blocks():
            block, y = self._dense[rows], index[rows, None]
            own = block.gather(1, y)
            found = own[:, 0] == block.amax(dim=1)
            if any_ties(block, own, found if untied is None else found & ~untied[rows]):
                found &= ties_before(block, own, y) == 0
            first[rows] = found
        return first

    def count_above(self, thresholds: Sequence[float]) -> Tensor:
        """How many listed scores of each row exceed (`>`) each threshold: (rows, thresholds).

        Compared in the scores' own floating-point type.
        """
        counts = torch.empty((self.n_rows, len(thresholds)), dtype=torch.int32, device=self.device)
        for rows in self.blocks():
            block = self.scores_of(rows)
            levels = torch.tensor(thresholds, dtype=block.dtype, device=self.device)
            for k, level in enumerate(levels):
                counts[rows, k] = (block > level).sum(dim=1, dtype=torch.int32)
        return counts.clamp_(max=self.depth)


def as_ranking(scores: ArrayLike | Ranking) -> Ranking:
    """A ranking of whatever stands for scores."""
    return scores if isinstance(scores, Ranking) else Ranking.from_scores(scores)
