"""Rankings: the labels of each row, best first. Ties are settled here and nowhere else.

A prediction set is a prefix of its row's ranking, so a ranking is all that families, selectors
and metrics need to know of a classifier's scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shortlist._arrays import (
    RANKED_ELEMENTS,
    Array,
    ArrayLike,
    Kind,
    Picked,
    as_bounded_matrix,
    blocks_to_read,
    check_count,
    in_threads,
    kind_of,
    pick,
    row_blocks,
    row_index,
    sort_values,
    to_kind,
)
from shortlist._candidates import read_candidates
from shortlist._labels import Classes

OVER_HALF = 0.51
"""Of a sum of probabilities, rounded: more than half of it for certain."""


def order(scores: Tensor, depth: int) -> Tensor:
    """Columns of the `depth` best scores of each row, best first; among ties the highest index.

    The one place that settles ties. Rows without ties take the fast partial sort, whose order
    among equal scores is arbitrary; rows with ties, inside the prefix or across its end, are
    sorted again with a stable sort of the reversed columns.

    >>> order(torch.tensor([[0.2, 0.4, 0.4, 0.0]]), depth=3).tolist()
    [[2, 1, 0]]
    """
    n = scores.shape[1]
    if depth > n // 4:
        return _stable_order(scores)[:, :depth]
    values, columns = torch.topk(scores, depth + 1, dim=1)
    tied = (values[:, 1:] == values[:, :-1]).any(dim=1)
    columns = columns[:, :depth]
    if bool(tied.any()):
        columns[tied] = _stable_order(scores[tied])[:, :depth]
    return columns


def _stable_order(scores: Tensor) -> Tensor:
    reversed_columns = torch.sort(scores.flip(1), dim=1, descending=True, stable=True).indices
    return scores.shape[1] - 1 - reversed_columns


def reaching(values: Tensor, least: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the values (rows, classes) that reach their row's `least`, (rows, 1) or
    (1, 1) for all, one row after the other, each in the order of its scores, best first.

    >>> values, scores = torch.tensor([[0.3, 0.3, 0.1, 0.3]]), torch.zeros(1, 4)
    >>> reaching(values, torch.tensor([[0.2]]), scores)[1].tolist()
    [3, 1, 0]
    """
    wide = (torch.float32, torch.float64)
    if not values.is_cuda and values.dtype in wide and scores.dtype == torch.float32:
        found = _reaching(values.numpy(), least.numpy(), scores.numpy())
        return torch.from_numpy(found[0]), torch.from_numpy(found[1])
    row, column = (values >= least).nonzero(as_tuple=True)
    picked = scores[row, column]
    if picked.dtype == torch.float64:
        # Backwards: of what is equal a stable sort then leaves the last column first.
        last = torch.arange(len(row) - 1, -1, -1, device=row.device)
        last = last[torch.sort(picked[last], descending=True, stable=True).indices]
        last = last[torch.sort(row[last], stable=True).indices]
        return row[last], column[last]
    bits = (picked.to(torch.float32) + 0.0).view(torch.int32).to(torch.int64)
    falling = torch.where(bits < 0, -(bits + (1 << 31)), bits).neg_().add_(1 << 31)
    return _unpack(sort_values(_pack(row, falling, column, scores.shape[1])), scores.shape[1])


def _reaching(
    values: NDArray[Any], least: NDArray[Any], scores: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same in NumPy, which is faster at it."""
    n = scores.shape[1]

    def sorted_keys(rows: slice) -> NDArray[np.int64]:
        flat = np.flatnonzero(values[rows] >= (least if len(least) == 1 else least[rows]))
        row = flat // n
        bits = (scores[rows].reshape(-1)[flat] + np.float32(0)).view(np.int32).astype(np.int64)
        falling = (1 << 31) - np.where(bits < 0, -(bits + (1 << 31)), bits)
        keys: NDArray[np.int64] = _pack(row + rows.start, falling, flat - row * n, n)
        _sort_few(keys, np.searchsorted(row, row[SORTED_TOGETHER::SORTED_TOGETHER]))
        return keys

    # To compare with one number is too quick a work for threads.
    size = 0 if len(least) == 1 else values.size
    parts = in_threads(sorted_keys, len(values), size)
    return _unpack(parts[0] if len(parts) == 1 else np.concatenate(parts), n)


def _sort_few(keys: NDArray[np.int64], ends: NDArray[np.intp]) -> None:
    """Sort keys that are in order but for what is between each of some rising ends and the next."""
    for start, end in pairwise([0, *ends.tolist(), len(keys)]):
        keys[start:end].sort()


SORTED_TOGETHER = 200
"""About so many whole numbers are sorted at a time: several times faster than thousands."""

Integers = TypeVar("Integers", Tensor, "NDArray[np.int64]")


def _pack(row: Integers, falling: Integers, column: Integers, n: int) -> Integers:
    """One whole number for row, score from the best down, and column from the last."""
    return ((((row << 33) + falling) << n.bit_length()) + (n - 1)) - column


def _unpack(keys: Integers, n: int) -> tuple[Integers, Integers]:
    """The row and the column that were packed."""
    return keys >> (33 + n.bit_length()), n - 1 - (keys & ((1 << n.bit_length()) - 1))


def prefix_to(values: Tensor, last: Tensor, scores: Tensor, sizes: Tensor) -> Tensor:
    """The first `sizes[i]` labels of every row i, one row after the other (int32).

    `values` (rows, classes) rank no two labels otherwise than the scores do, though they may make
    ties of them, and `last` (rows, 1) is the value of the last label wanted.

    >>> v = torch.tensor([[0.5, 0.2, 0.3]])
    >>> prefix_to(v, torch.tensor([[0.3]]), v, torch.tensor([2])).tolist()
    [0, 2]
    """
    row, column = reaching(values, torch.where(sizes[:, None] > 0, last, torch.inf), scores)
    if len(column) == int(sizes.sum()):
        return column.to(torch.int32)
    # More than wanted, where the last ones tie.
    begin = torch.searchsorted(row, torch.arange(len(sizes), device=row.device))
    place = torch.arange(len(row), device=row.device) - begin[row]
    return column[place < sizes[row]].to(torch.int32)


def best(scores: Tensor) -> Tensor:
    """Index of the largest value along the last axis; among ties the highest index.

    >>> best(torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]])).tolist()
    [2, 1]
    """
    return scores.shape[-1] - 1 - scores.flip(-1).argmax(dim=-1)


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

    _masses: Tensor | None = None
    """The sum of each row, where no score is negative."""

    def __init__(
        self,
        *,
        classes: Classes,
        depth: int,
        kind: Kind,
        dense: Tensor | Picked | None = None,
        listed: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.classes = classes
        self.depth = depth
        self.kind: Kind = kind
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
        """
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
            classes=Classes(n, classes), depth=depth or n, kind=kind_of(scores), dense=dense
        )
        ranking.bounds = bounds
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
        known = Classes(check_count(n_classes, "n_classes", least=2), classes)
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
        return cls(classes=known, depth=depth, kind=kind_of(scores), listed=listed)

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
        return to_kind(self.top(self.depth)[0], self.kind)

    @property
    def scores(self) -> Array:
        return to_kind(self.top(self.depth)[1], self.kind)

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
        some = Ranking(
            classes=self.classes,
            depth=self.depth,
            kind=self.kind,
            dense=None if self._dense is None else pick(self._dense, at),
            listed=None if self._listed is None else (self._listed[0][at], self._listed[1][at]),
        )
        some._masses = None if self._masses is None else self._masses[at]
        return some

    def with_classes(self, classes: Classes) -> Ranking:
        """The same ranking with the columns named."""
        if classes.n != self.n_classes:
            raise ValueError(f"{classes.n} classes do not name {self.n_classes} columns")
        named = copy(self)
        named.classes = classes
        return named

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
        if self._listed is None or self._listed[0].shape[1] < depth:
            blocks = [self._top_block(rows, depth) for rows in self.blocks()]
            self._listed = (
                torch.cat([labels for labels, _ in blocks]),
                torch.cat([scores for _, scores in blocks]),
            )
        return self._listed[0][:, :depth], self._listed[1][:, :depth]

    def _top_block(self, rows: slice, depth: int) -> tuple[Tensor, Tensor]:
        if self._listed is not None and self._listed[0].shape[1] >= depth:
            return self._listed[0][rows, :depth], self._listed[1][rows, :depth]
        assert self._dense is not None
        block = self._dense[rows]
        columns = order(block, depth)
        return columns.to(torch.int32), block.gather(1, columns)

    def blocks(self) -> list[slice]:
        """Slices of rows to work on one after the other."""
        width = self.depth if self._dense is None else self.n_classes
        few = RANKED_ELEMENTS if self.device.type == "cpu" else None
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
        if self._masses is None:
            dtype = torch.promote_types(self.scores_of(slice(0, 1)).dtype, torch.float32)
            found = torch.empty(self.n_rows, dtype=dtype, device=self.device)
            for rows in blocks_to_read(self.n_rows, self.n_classes, self.device):
                torch.sum(self._dense[rows], dim=1, dtype=dtype, out=found[rows])
            if self.bounds is None or self.bounds[0] < 0:
                return found
            self._masses = found
        return self._masses

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
        return to_kind(self.rank_of(index), self.kind)

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
            before = _count(block > own) + _ties_before(block, own, y)
            ranks[rows] = before.to(torch.float64)
        return ranks

    def is_first(self, index: Tensor) -> Tensor:
        """Whether each row's label is its first. For that, nothing has to be counted."""
        if self._dense is None:
            return self.rank_of(index) == 0
        first = torch.empty(self.n_rows, dtype=torch.bool, device=self.device)
        for rows in self.blocks():
            block, y = self._dense[rows], index[rows, None]
            own = block.gather(1, y)
            found = own[:, 0] == block.amax(dim=1)
            # Nothing ties with more than half of the row.
            mass = torch.inf if self._masses is None else self._masses[rows]
            if _any_ties(block, own, found & (own[:, 0] <= OVER_HALF * mass)):
                found &= _ties_before(block, own, y) == 0
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


def _any_ties(block: Tensor, own: Tensor, among: Tensor) -> bool:
    """Whether any of some rows (a mask) has two scores that equal its `own`."""
    if block.dtype not in (torch.float32, torch.float64) or block.is_cuda:
        return True  # it could be
    at = among.numpy().nonzero()[0]
    return int(np.count_nonzero(block.numpy()[at] == own.numpy()[at])) > len(at)


def _ties_before(block: Tensor, own: Tensor, y: Tensor) -> Tensor:
    """How many scores equal each row's `own`, that of the label `y`, and go before it."""
    columns = torch.arange(block.shape[1], device=block.device)
    if block.is_cuda or torch.compiler.is_compiling():  # without a look at the values
        return _count((block == own) & (columns > y))
    # Which rows have ties at all is told faster by differences, of which those that are not zero
    # are counted, than by what is equal.
    others = (block - own).sign_().abs_().sum(dim=1, dtype=torch.float32)
    ties = torch.zeros(len(block), dtype=torch.int32)
    several = (others < block.shape[1] - 1).nonzero()[:, 0]
    if len(several):
        equal = block[several] == own[several]
        ties[several] = _count(equal & (columns > y[several]))
    return ties


def _count(inside: Tensor) -> Tensor:
    """How many of each row are true. As whole numbers of the same width as what was compared,
    which is faster than as long ones."""
    return inside.sum(dim=1, dtype=torch.int32)


def as_ranking(scores: ArrayLike | Ranking) -> Ranking:
    """A ranking of whatever stands for scores."""
    return scores if isinstance(scores, Ranking) else Ranking.from_scores(scores)


KEY_DEPTH = 8
"""Of how many best scores a row's key is made."""


def row_keys(ranking: Ranking, seed: int = 0) -> Tensor:
    """A whole number (int64) for each row that depends on seed and row alone.

    A hash of the row's best scores (as float32, in order): the same row gets the same number in
    every batch, on every device, and however the classes are numbered.
    """
    # Not to the depth of the ranking, which for lists of candidates is that of the longest.
    scores = ranking.best_scores(min(KEY_DEPTH, ranking.n_classes))
    bits = (scores.to(torch.float32) + 0.0).contiguous().view(torch.int32).to(torch.int64)
    state = torch.full((len(bits),), seed, dtype=torch.int64, device=bits.device)
    for column in bits.unbind(dim=1):
        state = _mix(state ^ column)
    return state


def _shift(x: Tensor, by: int) -> Tensor:
    """A shift to the right that brings in zeros."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64, in integers that wrap around."""
    x = x + (0x9E3779B97F4A7C15 - (1 << 64))
    x = (x ^ _shift(x, 30)) * (0xBF58476D1CE4E5B9 - (1 << 64))
    x = (x ^ _shift(x, 27)) * (0x94D049BB133111EB - (1 << 64))
    return x ^ _shift(x, 31)
