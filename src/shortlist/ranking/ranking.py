"""Rankings: what the library keeps of a classifier's output.

A prediction set is a prefix of its row's ranking, so families, scores and metrics need nothing
else.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import (
    Array,
    ArrayLike,
    ArrayType,
    as_bounded_matrix,
    infer_array_type,
    row_index,
    to_array_type,
)
from shortlist._utils.frames import check_classes, check_distinct, frame_columns, whole_numbers
from shortlist._utils.labels import Classes
from shortlist._utils.ordering import count_true, sort_values
from shortlist._utils.out_of_core import RowView, select_rows
from shortlist._utils.validation import check_count
from shortlist.ranking.candidates import read_candidates
from shortlist.ranking.probabilities import proba_columns, sorted_log_proba
from shortlist.ranking.ranked_rows import RankedRows, TopLabels
from shortlist.ranking.score_types import ScoreType, infer_score_type

MAX_CLASSES = torch.iinfo(torch.int32).max
"""Rankings store labels as int32."""


class Ranking(RankedRows):
    """The labels and scores of each row, in decreasing order of the scores.

    Build a ranking with :meth:`from_scores` from a score for every class, or with
    :meth:`from_candidates` from ranked candidates. A ranking is accepted wherever scores are.
    Nothing is sorted before it is needed, and then only to the depth that is needed.

    Parameters
    ----------
    classes : Classes
        Classes of the columns.
    depth : int
        Number of labels that are ranked in each row.
    array_type : {"numpy", "torch"}
        Type of the arrays that are returned.
    dense : Tensor or RowView of shape (n_rows, n_classes), optional
        A score for every class.
    top : tuple (labels, scores) of Tensor, optional
        Ranked candidates, if not every class has a score.

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
        Type of the scores.
    scale : float
        Inverse temperature, by which log-probabilities are multiplied.
    columns : list or None
        Names of the columns, if the scores were a frame.
    rounding : float
        Bound on the relative difference between two computations of a row's probabilities. It is
        0 for scores that the user gives. Those of networks and of wrapped classifiers depend on
        the batch, the number of threads and the device.
    open_classes : bool
        Whether labels of unknown classes can occur, so that an accuracy can be out of reach.

    Examples
    --------
    >>> ranking = Ranking.from_scores([[0.1, 0.6, 0.3], [0.4, 0.4, 0.2]])
    >>> ranking.labels.tolist()  # Of equal scores, the highest index comes first.
    [[1, 2, 0], [1, 0, 2]]
    >>> ranking.rank([2, 0]).tolist()
    [1.0, 1.0]
    """

    columns: list[object] | None = None
    rounding: float = 0.0
    open_classes: bool = False
    scale: float = 1.0
    _score_type: ScoreType | None = None

    def __init__(
        self,
        *,
        classes: Classes,
        depth: int,
        array_type: ArrayType,
        dense: Tensor | RowView | None = None,
        top: TopLabels | None = None,
    ) -> None:
        super().__init__(classes.n, depth, dense=dense, top=top)
        self.classes = classes
        self.array_type: ArrayType = array_type

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
            Type of the scores. "auto" infers it from their values, when it is needed.

        Returns
        -------
        Ranking

        Raises
        ------
        ValueError
            If the scores are not a matrix of finite numbers with at least two columns, or a
            parameter contradicts them.
        """
        columns = frame_columns(scores)
        if columns is not None:
            check_distinct(columns, "scores")
            if classes is not None:
                check_classes(columns, np.asarray(classes, dtype=object).tolist())
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
        ranking._declare(score_type)
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
            Number of all classes, candidates or not. Needed unless `classes` is given.
        classes : array-like, optional
            Names of the classes. `labels` then contains names, and None pads.
        score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
            Type of the scores.

        Returns
        -------
        Ranking

        Raises
        ------
        ValueError
            If a row has no candidate, a label is unknown or occurs twice in a row, a score is not
            finite, or neither `n_classes` nor `classes` is given.

        Examples
        --------
        >>> r = Ranking.from_candidates([[7, 2], [3, -1]], [[0.5, 0.2], [0.9, 0.0]], n_classes=10)
        >>> r.rank([2, 8]).tolist()  # Label 8 is not among the second row's candidates.
        [1.0, inf]
        """
        if classes is not None:
            n_classes = len(classes) if n_classes is None else n_classes
        if n_classes is None:
            raise ValueError(
                "from_candidates needs n_classes (the number of all classes), or, for labels with "
                "names, classes=[...] (all their names)"
            )
        if check_count(n_classes, "n_classes", minimum=2) > MAX_CLASSES:
            raise ValueError(f"n_classes = {n_classes} is more than the maximum, {MAX_CLASSES}")
        known = Classes(int(n_classes), classes)
        top = read_candidates(labels, scores, known)
        ranking = cls(
            classes=known, depth=top[0].shape[1], array_type=infer_array_type(scores), top=top
        )
        ranking._declare(score_type)
        return ranking

    def _declare(self, score_type: str) -> None:
        """Set the type of the scores, unless it is "auto"."""
        if score_type != "auto":
            self._score_type = infer_score_type(self, score_type)

    @property
    def score_type(self) -> ScoreType:
        """Type of the scores: "logits", "proba" or "log_proba"."""
        if self._score_type is None:
            self._score_type = infer_score_type(self)
        return self._score_type

    @property
    def has_proba(self) -> bool:
        """Whether the scores are the probabilities themselves."""
        return self.score_type == "proba" and self.scale == 1

    @property
    def labels(self) -> Array:
        """Label indices in decreasing order of the scores; -1 after the last candidate."""
        return to_array_type(self.top(self.depth)[0], self.array_type)

    @property
    def scores(self) -> Array:
        """Scores in decreasing order."""
        return to_array_type(self.top(self.depth)[1], self.array_type)

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
        return self._take(row_index(rows, self.n_rows, self.device))

    def view(self, rows: slice | Sequence[int] | Array) -> Ranking:
        """Return the ranking of some rows, whose scores are copied only where they are read.

        It is faster than `ranking[rows]` if every score is read at most once.

        Parameters
        ----------
        rows : slice, sequence of int, or mask
            Rows to select.

        Returns
        -------
        Ranking
        """
        return self._take(row_index(rows, self.n_rows, self.device), max_bytes=0)

    def _take(self, at: slice | Tensor, max_bytes: int | None = None) -> Ranking:
        """Return the ranking of some rows, as a view if a copy would take more memory."""
        top = self._top  # Read once: another thread may rank more labels meanwhile.
        dense = self._dense
        part = self.derive(
            dense=None if dense is None else select_rows(dense, at, max_bytes=max_bytes),
            top=None if top is None else (top[0][at], top[1][at]),
        )
        part.columns = self.columns
        part.known_row_sums = None if self.known_row_sums is None else self.known_row_sums[at]
        part.known_row_maxima = None if self.known_row_maxima is None else self.known_row_maxima[at]
        return part

    def derive(
        self,
        *,
        dense: Tensor | RowView | None = None,
        top: TopLabels | None = None,
        score_type: ScoreType | None = None,
    ) -> Ranking:
        """Return a ranking of other scores with the same classes, depth and array type.

        Parameters
        ----------
        dense : Tensor or RowView of shape (n_rows, n_classes), optional
            A score for every class.
        top : tuple (labels, scores) of Tensor, optional
            Ranked candidates, if `dense` is not given: int32 labels, best first, padded with -1.
        score_type : {"logits", "proba", "log_proba"}, optional
            Type of the new scores, at temperature 1. The default is the type and the temperature
            of this ranking.

        Returns
        -------
        Ranking
        """
        derived = Ranking(
            classes=self.classes,
            depth=self.depth,
            array_type=self.array_type,
            dense=dense,
            top=top,
        )
        derived.rounding, derived.open_classes = self.rounding, self.open_classes
        if score_type is not None:
            derived._score_type = score_type
        else:
            derived._score_type, derived.scale = self._score_type, self.scale
        return derived

    def with_scale(self, score_type: ScoreType, scale: float) -> Ranking:
        """Return the same ranking with a declared score type and another temperature.

        Parameters
        ----------
        score_type : {"logits", "proba", "log_proba"}
            Type of the scores.
        scale : float
            Inverse temperature.

        Returns
        -------
        Ranking
        """
        scaled = copy(self)
        scaled._score_type, scaled.scale = score_type, scale
        return scaled

    @property
    def precision(self) -> str:
        """Type of the scores: "float16", "bfloat16", or "float32", to which float64 is rounded."""
        return {torch.float16: "float16", torch.bfloat16: "bfloat16"}.get(self.dtype, "float32")

    def with_precision(self, name: str) -> Ranking:
        """Return the same ranking with its scores rounded to a floating-point type.

        Parameters
        ----------
        name : str
            Name of a floating-point type of torch. Scores beyond its range are clamped.

        Returns
        -------
        Ranking
        """
        dtype = getattr(torch, name)
        if self._dense is None:
            labels, scores = self.top(self.depth)
            if scores.dtype == dtype:
                return self
            converted = self.derive(top=(labels, _round(scores, dtype)))
        else:
            dense = self._dense
            matrix = dense if isinstance(dense, Tensor) else dense.matrix
            if matrix.dtype == dtype and matrix.is_contiguous():
                return self
            converted = self.derive(dense=_round(self.scores_of(slice(0, self.n_rows)), dtype))
        converted.known_row_sums = self.known_row_sums
        return converted

    def with_classes(self, classes: Classes) -> Ranking:
        """Return the same ranking with other names of the classes.

        Parameters
        ----------
        classes : Classes
            Names of the columns.

        Returns
        -------
        Ranking
        """
        if classes.n != self.n_classes:
            raise ValueError(f"{classes.n} classes cannot name {self.n_classes} columns")
        named = copy(self)
        named.classes = classes
        return named

    def with_columns(self, order: Sequence[int]) -> Ranking:
        """Return the same dense scores with their columns in another order.

        Parameters
        ----------
        order : sequence of int
            Position of each new column among the present ones. The classes keep their order.

        Returns
        -------
        Ranking
        """
        dense = self.dense
        if isinstance(dense, RowView):
            moved = self.derive(dense=RowView(dense.matrix[:, order], dense.rows))
        else:
            moved = self.derive(dense=dense[:, order])
        moved.bounds = self.bounds
        moved.columns = None if self.columns is None else [self.columns[i] for i in order]
        return moved

    def check_depth(self, size: int, what: str) -> None:
        """Raise if a set size exceeds the number of classes or of ranked labels.

        Parameters
        ----------
        size : int
            Largest size that is needed.
        what : str
            Beginning of the error message: what needs this size.

        Raises
        ------
        ValueError
            If the size is too large.
        """
        if size > self.n_classes:
            raise ValueError(f"{what}, but there are only {self.n_classes} classes")
        if size > self.depth:
            raise ValueError(
                f"{what}, but only {self.depth} labels of a row are ranked; "
                f"rank deeper, or ask for at most {self.depth}"
            )

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
        if self.is_complete:
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

        Returns
        -------
        Tensor of shape (n_rows, n_classes)
            Probabilities.
        """
        scores = self.scores_of(slice(None))
        if self.has_proba:
            return proba_columns(scores, "proba")
        p = proba_columns(scores.to(torch.float64), self.score_type, self.scale)
        return p.to(torch.float32)

    def rank(self, y: ArrayLike) -> Array:
        """Return the rank of labels, from 0; infinity for labels that a row does not rank.

        A set of size s contains the label if and only if its rank is below s. Labels that are not
        among the candidates, or of unknown classes, have an infinite rank.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            Labels.

        Returns
        -------
        array of shape (n_rows,)
        """
        index = self.classes.encode(y, rows=self.n_rows, device=self.device, unknown="any")
        ranks = self.rank_of(index.clamp(min=0)).masked_fill(index < 0, torch.inf)
        return to_array_type(ranks, self.array_type)

    def last_rank_of(self, index: Tensor) -> Tensor:
        """Return the last rank that labels can have, given the rounding of the scores.

        Parameters
        ----------
        index : Tensor of shape (n_rows,)
            Label indices.

        Returns
        -------
        float64 Tensor of shape (n_rows,)
            Ranks from 0; infinity for labels that are not among the candidates.
        """
        if not self.rounding:
            return self.rank_of(index)
        ranks = torch.empty(self.n_rows, dtype=torch.float64, device=self.device)

        def count(rows: slice) -> None:
            block, y = self.scores_of(rows), index[rows, None]
            if self.is_dense:
                own = block.gather(1, y)
            else:
                is_label = self._top_block(rows, self.depth)[0] == y
                own = torch.where(is_label, block, torch.inf).amin(dim=1, keepdim=True)
            # A relative difference of probabilities is an absolute one of their logarithms.
            slack = own * self.rounding if self._score_type == "proba" else self.rounding
            last = count_true(block >= own - slack) - 1
            ranks[rows] = torch.where(own[:, 0] < torch.inf, last.to(torch.float64), torch.inf)

        self.map_blocks(count)
        return ranks


def _round(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Return contiguous scores in a floating-point type, clamped to its range."""
    if scores.dtype == dtype:
        return scores.contiguous()
    largest = torch.finfo(dtype).max
    if torch.finfo(scores.dtype).max > largest:
        scores = scores.clamp(-largest, largest)
    return scores.to(dtype, memory_format=torch.contiguous_format)


def as_ranking(scores: ArrayLike | Ranking) -> Ranking:
    """Return a ranking of scores; a ranking is returned unchanged."""
    return scores if isinstance(scores, Ranking) else Ranking.from_scores(scores)
