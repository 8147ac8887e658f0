"""Rankings: the labels of each row in the order of their scores.

A prediction set is a prefix of its row's ranking, so families, scores and metrics need nothing
else of a classifier's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import torch
from torch import Tensor, nn

from shortlist._utils.arrays import (
    Array,
    ArrayLike,
    ArrayType,
    as_bounded_matrix,
    infer_array_type,
    row_index,
    to_array_type,
)
from shortlist._utils.blocks import RANKED_ELEMENTS, read_blocks, row_blocks
from shortlist._utils.frames import check_classes, check_distinct, frame_columns, whole_numbers
from shortlist._utils.labels import Classes
from shortlist._utils.ordering import (
    any_ties,
    count_true,
    prefix_labels,
    sort_labels,
    sort_values,
    ties_before,
)
from shortlist._utils.out_of_core import RowView, select_rows
from shortlist._utils.validation import check_count
from shortlist.ranking.candidates import read_candidates
from shortlist.ranking.probabilities import (
    ScoreType,
    infer_score_type,
    proba_columns,
    sorted_log_proba,
)

MAX_CLASSES = torch.iinfo(torch.int32).max
"""Rankings store labels as int32."""


class Ranking:
    """The labels and scores of each row, in decreasing order of the scores.

    Build a ranking with :meth:`from_scores` from a score for every class, or with
    :meth:`from_candidates` from ranked candidates. A ranking is accepted wherever scores are.
    Nothing is sorted before it is needed, and then only to the depth that is needed.

    Attributes
    ----------
    labels, scores : array of shape (n_rows, depth)
        Label indices (-1 after a row's last candidate) and their scores, of the array type that
        was given. Equal scores are ordered by decreasing label index, as in the paper.
    n_classes : int
        Number of classes.
    depth : int
        Number of labels that are ranked in each row.
    score_type : {"logits", "proba", "log_proba"}
        What the scores are.
    scale : float
        Inverse temperature, by which log-probabilities are multiplied.

    Examples
    --------
    >>> ranking = Ranking.from_scores([[0.1, 0.6, 0.3], [0.4, 0.4, 0.2]])
    >>> ranking.labels.tolist()  # the tie goes to the highest index
    [[1, 2, 0], [1, 0, 2]]
    >>> ranking.rank([2, 0]).tolist()
    [1.0, 1.0]
    """

    columns: list[object] | None = None
    """Names of the columns, if the scores were a frame."""
    known_masses: Tensor | None = None
    """Sum of each row, once computed, if no score is negative."""
    rounding: float = 0.0
    """Bound on the relative difference between two computations of a row's probabilities.

    Scores that the user gives are exact. Those of networks and of wrapped classifiers depend on
    the batch, the number of threads and the device.
    """
    open_classes: bool = False
    """Whether labels of unknown classes may occur, so that an accuracy may be out of reach."""
    scale: float = 1.0
    bounds: tuple[float, float] | None = None
    """Smallest and largest score, if known."""
    _score_type: ScoreType | None = None

    def __init__(
        self,
        *,
        classes: Classes,
        depth: int,
        array_type: ArrayType,
        dense: Tensor | RowView | None = None,
        listed: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.classes = classes
        self.depth = depth
        self.array_type: ArrayType = array_type
        self._dense = dense  # Scores by column, (n_rows, n_classes), if every class has one.
        self._listed = listed  # The deepest labels and scores computed so far.
        self._rising: Tensor | None = None  # Dense scores in increasing order, without labels.
        first = dense if dense is not None else listed[0] if listed is not None else None
        if first is None:
            raise ValueError("build a Ranking with Ranking.from_scores or Ranking.from_candidates")
        if not len(first):
            raise ValueError("a ranking needs at least one row; got none")
        self.n_rows: int = first.shape[0]
        self.device = first.device

    @classmethod
    def from_scores(
        cls,
        scores: ArrayLike,
        *,
        depth: int | None = None,
        classes: ArrayLike | None = None,
        score_type: str = "auto",
    ) -> Ranking:
        """Rank a score for every class.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes)
            NumPy array, tensor or frame, of any floating type and on any device. The matrix is
            not copied. Columns of a frame that are named 0, 1, 2, … are put in order; other names
            are kept, and `fit` and `predict_set` match them.
        depth : int, optional
            Number of labels to rank in each row. All by default.
        classes : array-like, optional
            Names of the columns.
        score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
            What the scores are. "auto" decides by their values, when it is needed.

        Returns
        -------
        Ranking
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
            classes=Classes(n, classes),
            depth=depth or n,
            array_type=infer_array_type(scores),
            dense=dense,
        )
        ranking.bounds, ranking.columns = bounds, columns
        if score_type != "auto":
            ranking._score_type = infer_score_type(ranking, score_type)
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
        score_type: str = "auto",
    ) -> Ranking:
        """Rank candidates, such as the answers of a hosted model or of a retrieval service.

        Parameters
        ----------
        labels, scores : array-like of shape (n_rows, depth), or nested lists
            Candidates and their scores. Shorter rows are padded with the label -1, whose score is
            ignored, or given as lists of unequal lengths. Rows are sorted by their scores; equal
            scores keep their order.
        n_classes : int, optional
            Number of classes, listed or not. Needed unless `classes` is given.
        classes : array-like, optional
            Names of the classes. `labels` then contains names, and None pads.
        score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
            What the scores are.

        Returns
        -------
        Ranking

        Examples
        --------
        >>> r = Ranking.from_candidates([[7, 2], [3, -1]], [[0.5, 0.2], [0.9, 0.0]], n_classes=10)
        >>> r.rank([2, 8]).tolist()  # 8 is not among the second row's candidates
        [1.0, inf]
        """
        if classes is not None:
            n_classes = len(classes) if n_classes is None else n_classes
        if n_classes is None:
            raise ValueError(
                "from_candidates needs n_classes (how many classes there are in all), or, for "
                "labels with names, classes=[...] (all their names)"
            )
        if check_count(n_classes, "n_classes", minimum=2) > MAX_CLASSES:
            raise ValueError(f"n_classes = {n_classes} is more than labels can be, {MAX_CLASSES}")
        known = Classes(int(n_classes), classes)
        columns, values = read_candidates(labels, scores, known)
        # A stable sort keeps the order of ties. Padding goes last.
        by_score = torch.where(columns >= 0, values, -torch.inf)
        depth = int((columns >= 0).sum(dim=1).max())
        if bool((by_score[:, 1:] > by_score[:, :-1]).any()):
            position = torch.sort(by_score, dim=1, descending=True, stable=True).indices
            columns, values = columns.gather(1, position), values.gather(1, position)
        columns, values = columns[:, :depth], values[:, :depth]
        listed = (columns.to(torch.int32), torch.where(columns >= 0, values, 0))
        ranking = cls(
            classes=known, depth=depth, array_type=infer_array_type(scores), listed=listed
        )
        if score_type != "auto":
            ranking._score_type = infer_score_type(ranking, score_type)
        return ranking

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.classes.n

    @property
    def is_dense(self) -> bool:
        """Whether every class has a score, so that every label has a finite rank."""
        return self._dense is not None

    @property
    def is_whole(self) -> bool:
        """Whether every label of every row is ranked."""
        return self.is_dense and self.depth == self.n_classes

    @property
    def score_type(self) -> ScoreType:
        """What the scores are: "logits", "proba" or "log_proba"."""
        if self._score_type is None:
            self._score_type = infer_score_type(self)
        return self._score_type

    @property
    def labels(self) -> Array:
        """Label indices in decreasing order of the scores; -1 after the last candidate."""
        return to_array_type(self.top(self.depth)[0], self.array_type)

    @property
    def scores(self) -> Array:
        """Scores in decreasing order."""
        return to_array_type(self.top(self.depth)[1], self.array_type)

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        source = "scores" if self.is_dense else "candidates"
        return (
            f"Ranking({self.n_rows:,} rows of {source}, {self.n_classes:,} classes, "
            f"depth {self.depth:,})"
        )

    def __getitem__(self, rows: slice | Sequence[int] | Array) -> Ranking:
        """Return the ranking of some rows: a slice, indices or a boolean mask."""
        if isinstance(rows, int | np.integer):
            raise TypeError(f"ranking[{rows}] is one row; for a ranking of it: ranking[[{rows}]]")
        at = row_index(rows, self.n_rows, self.device)
        listed = self._listed  # Read once: another thread may rank more labels meanwhile.
        part = self.derive(
            dense=None if self._dense is None else select_rows(self._dense, at),
            listed=None if listed is None else (listed[0][at], listed[1][at]),
        )
        part.columns = self.columns
        part.known_masses = None if self.known_masses is None else self.known_masses[at]
        return part

    def derive(
        self,
        *,
        dense: Tensor | RowView | None = None,
        listed: tuple[Tensor, Tensor] | None = None,
        score_type: ScoreType | None = None,
    ) -> Ranking:
        """Return a ranking of other scores with the same classes, depth and array type.

        If `score_type` is given, the new scores are of that type, at temperature 1. Otherwise the
        type and temperature of this ranking are kept.
        """
        derived = Ranking(
            classes=self.classes,
            depth=self.depth,
            array_type=self.array_type,
            dense=dense,
            listed=listed,
        )
        derived.rounding, derived.open_classes = self.rounding, self.open_classes
        if score_type is not None:
            derived._score_type = score_type
        else:
            derived._score_type, derived.scale = self._score_type, self.scale
        return derived

    def with_scale(self, score_type: ScoreType, scale: float) -> Ranking:
        """Return the same ranking with its scores declared, and an inverse temperature."""
        scaled = copy(self)
        scaled._score_type, scaled.scale = score_type, scale
        return scaled

    @property
    def precision(self) -> str:
        """Type of the scores: "float16", "bfloat16", or "float32", to which float64 is rounded."""
        assert self._dense is not None or self._listed is not None
        some = self._listed[1] if self._listed is not None else self.scores_of(slice(0, 1))
        return {torch.float16: "float16", torch.bfloat16: "bfloat16"}.get(some.dtype, "float32")

    def with_precision(self, name: str) -> Ranking:
        """Return the same rows with their scores rounded to a floating type."""
        dtype = getattr(torch, name)
        largest = torch.finfo(dtype).max

        def rounded(scores: Tensor) -> Tensor:
            if scores.dtype == dtype:
                return scores.contiguous()
            if torch.finfo(scores.dtype).max > largest:
                scores = scores.clamp(-largest, largest)
            return scores.to(dtype, memory_format=torch.contiguous_format)

        if self._dense is None:
            assert self._listed is not None
            labels, scores = self._listed
            if scores.dtype == dtype:
                return self
            converted = self.derive(listed=(labels, rounded(scores)))
        else:
            dense = self._dense
            if isinstance(dense, Tensor) and dense.dtype == dtype and dense.is_contiguous():
                return self
            converted = self.derive(dense=rounded(self.scores_of(slice(0, self.n_rows))))
        converted.known_masses = self.known_masses
        return converted

    def with_classes(self, classes: Classes) -> Ranking:
        """Return the same ranking with its columns named."""
        if classes.n != self.n_classes:
            raise ValueError(f"{classes.n} classes do not name {self.n_classes} columns")
        named = copy(self)
        named.classes = classes
        return named

    def with_columns(self, order: Sequence[int]) -> Ranking:
        """Return the same scores with their columns in another order; classes keep their order."""
        assert self._dense is not None
        if isinstance(self._dense, RowView):
            dense: Tensor | RowView = RowView(self._dense.matrix[:, order], self._dense.rows)
        else:
            dense = self._dense[:, order]
        moved = self.derive(dense=dense)
        moved.bounds = self.bounds
        moved.columns = None if self.columns is None else [self.columns[i] for i in order]
        return moved

    def check_depth(self, size: int, what: str) -> None:
        """Raise if sets of `size` labels are larger than what is ranked."""
        if size > self.n_classes:
            raise ValueError(f"{what}, but there are only {self.n_classes} classes")
        if size > self.depth:
            raise ValueError(
                f"{what}, but the ranking lists only {self.depth} labels a row; "
                f"rank deeper, or ask for at most {self.depth}"
            )

    def top(self, depth: int) -> tuple[Tensor, Tensor]:
        """Return the first `depth` labels (int32, padded with -1) and scores, and cache them."""
        if self._dense is None and depth > self.depth:
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
        """Return slices of rows to work on one after the other, on a CPU of `elements` scores."""
        width = self.depth if self._dense is None else self.n_classes
        limit = elements if self.device.type == "cpu" else None
        return list(row_blocks(self.n_rows, width, self.device, elements=limit))

    def scores_of(self, rows: slice) -> Tensor:
        """Return all scores of some rows: by column if dense, else sorted, -inf for padding."""
        if self._dense is not None:
            return self._dense[rows]
        labels, scores = self._top_block(rows, self.depth)
        return torch.where(labels >= 0, scores, -torch.inf)

    def sorted_proba(self, depth: int | None = None) -> Tensor:
        """Return the probabilities of each row's first labels, in decreasing order.

        They are computed from the scores, their type and the temperature.

        Parameters
        ----------
        depth : int, optional
            Number of labels; by default all that are ranked.

        Returns
        -------
        Tensor of shape (n_rows, depth)
            Probabilities; zero after a row's last candidate.

        Examples
        --------
        >>> Ranking.from_scores([[0.25, 0.5, 0.25]]).sorted_proba()
        tensor([[0.5000, 0.2500, 0.2500]], dtype=torch.float64)
        """
        depth = self.depth if depth is None else min(depth, self.depth)
        if self.is_whole:
            return sort_values(self.column_proba()).flip(1)[:, :depth]
        labels, scores = self.top(depth)
        if self.has_proba:
            p = scores.to(torch.promote_types(scores.dtype, torch.float32))
        else:
            wide = self.with_precision("float64")
            p = sorted_log_proba(wide, self.score_type, depth, self.scale)[:, :-1]
            p = p.exp_().to(torch.float32)
        return p if self.is_dense else torch.where(labels >= 0, p, 0)

    def column_proba(self) -> Tensor:
        """Return the probabilities of all classes of a dense ranking, by column.

        They are computed in float64 and rounded once, so that they are the same numbers on every
        device. Probabilities that were given are returned unchanged.
        """
        scores = self.scores_of(slice(None))
        if self.has_proba:
            return proba_columns(scores, "proba")
        p = proba_columns(scores.to(torch.float64), self.score_type, self.scale)
        return p.to(torch.float32)

    @property
    def has_proba(self) -> bool:
        """Whether the scores are the probabilities themselves."""
        return self.score_type == "proba" and self.scale == 1

    def rising_scores(self) -> Tensor:
        """Return the scores of a dense ranking in increasing order, and cache them.

        This is much faster than sorting the labels along with them.
        """
        assert self._dense is not None
        if self._rising is None:
            blocks = [sort_values(self._dense[rows]) for rows in self.blocks()]
            self._rising = blocks[0] if len(blocks) == 1 else torch.cat(blocks)
        return self._rising

    def sorted_scores(self) -> Tensor:
        """Return the scores of a dense ranking in decreasing order."""
        return self.rising_scores().flip(1)

    def masses(self) -> Tensor:
        """Return the sum of each row of a dense ranking; cached if no score is negative."""
        assert self._dense is not None
        if self.known_masses is None:
            dtype = torch.promote_types(self.scores_of(slice(0, 1)).dtype, torch.float32)
            sums = torch.empty(self.n_rows, dtype=dtype, device=self.device)
            for rows in read_blocks(self.n_rows, self.n_classes, self.device):
                torch.sum(self._dense[rows], dim=1, dtype=dtype, out=sums[rows])
            if self.bounds is None or self.bounds[0] < 0:
                return sums
            self.known_masses = sums
        return self.known_masses

    def best_scores(self, depth: int) -> Tensor:
        """Return the `depth` highest scores of each row, in decreasing order."""
        if self._rising is not None:
            return self._rising[:, -depth:].flip(1)
        if self._dense is None or depth > self.n_classes // 4:
            return self.top(depth)[1]
        blocks = [torch.topk(self._dense[rows], depth).values for rows in self.blocks()]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks)

    def prefix(self, sizes: Tensor) -> Tensor:
        """Return the first ``sizes[i]`` labels of every row i, concatenated (int32)."""
        listed = 0 if self._listed is None else self._listed[0].shape[1]
        if self._rising is not None and listed < int(sizes.max()):
            assert self._dense is not None
            place = self.n_classes - sizes.to(torch.int64).clamp(min=1)
            last = self._rising.gather(1, place[:, None])
            blocks = [(self._dense[rows], last[rows], sizes[rows]) for rows in self.blocks()]
            return torch.cat(
                [prefix_labels(block, at, block, wanted) for block, at, wanted in blocks]
            )
        parts = []
        for rows in self.blocks():
            deepest = int(sizes[rows].max())
            labels, _ = self._top_block(rows, deepest)
            inside = torch.arange(deepest, device=self.device) < sizes[rows, None]
            parts.append(labels[inside])
        return torch.cat(parts)

    def listed(self) -> Tensor:
        """Return the number of labels that each row ranks (int32): the largest possible size."""
        if self._dense is not None:
            return torch.full((self.n_rows,), self.depth, dtype=torch.int32, device=self.device)
        return (self.top(self.depth)[0] >= 0).sum(dim=1, dtype=torch.int32)

    def rank(self, y: ArrayLike) -> Array:
        """Return the rank of labels, from 0; infinity if a label is not among the candidates.

        A set of size s contains the label if and only if its rank is below s.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            Labels.

        Returns
        -------
        array of shape (n_rows,)
        """
        index = self.classes.encode(y, rows=self.n_rows, device=self.device)
        return to_array_type(self.rank_of(index), self.array_type)

    def rank_of(self, index: Tensor) -> Tensor:
        """Return the rank of label indices, by counting higher scores and preceding ties."""
        if self._dense is None:
            matches = self.top(self.depth)[0] == index[:, None]
            position = matches.to(torch.int8).argmax(dim=1).to(torch.float64)
            return torch.where(matches.any(dim=1), position, torch.inf)
        ranks = torch.empty(self.n_rows, dtype=torch.float64, device=self.device)
        for rows in self.blocks():
            block, y = self._dense[rows], index[rows, None]
            own = block.gather(1, y)
            before = count_true(block > own) + ties_before(block, own, y)
            ranks[rows] = before.to(torch.float64)
        return ranks

    def last_rank_of(self, index: Tensor) -> Tensor:
        """Return the last rank that labels can have, given the rounding of the scores."""
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
            # A relative difference of probabilities is an absolute one of their logarithms.
            slack = own * self.rounding if self._score_type == "proba" else self.rounding
            last = count_true(block >= own - slack) - 1
            ranks[rows] = torch.where(own[:, 0] < torch.inf, last.to(torch.float64), torch.inf)
        return ranks

    def is_first(self, index: Tensor, untied: Tensor | None = None) -> Tensor:
        """Return whether each row's label is its first.

        `untied` marks labels whose score is known to be unique, so that no tie is looked for.
        """
        if self._dense is None:
            return self.rank_of(index) == 0
        first = torch.empty(self.n_rows, dtype=torch.bool, device=self.device)
        for rows in self.blocks():
            block, y = self._dense[rows], index[rows, None]
            own = block.gather(1, y)
            highest = own[:, 0] == block.amax(dim=1)
            if any_ties(block, own, highest if untied is None else highest & ~untied[rows]):
                highest &= ties_before(block, own, y) == 0
            first[rows] = highest
        return first

    def count_above(self, thresholds: Sequence[float]) -> Tensor:
        """Return how many ranked scores of each row exceed each threshold (strictly).

        Scores are compared in their own floating type.
        """
        counts = torch.empty((self.n_rows, len(thresholds)), dtype=torch.int32, device=self.device)
        for rows in self.blocks():
            block = self.scores_of(rows)
            limits = torch.tensor(thresholds, dtype=block.dtype, device=self.device)
            for k, limit in enumerate(limits):
                counts[rows, k] = (block > limit).sum(dim=1, dtype=torch.int32)
        return counts.clamp_(max=self.depth)


def as_ranking(scores: ArrayLike | Ranking) -> Ranking:
    """Return a ranking of scores; a ranking is returned unchanged."""
    return scores if isinstance(scores, Ranking) else Ranking.from_scores(scores)
