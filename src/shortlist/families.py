"""Families of set predictors `g_k, k in K`: what a selector chooses from.

A family turns a ranking into a table of sizes, one column for each member, from the smallest sets
to the largest. Members are prefixes of the ranking, so that `hits` needs only the right label's
rank; `Custom` is the door for collections that are not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import Array, ArrayLike, to_array_type, to_tensor
from shortlist._utils.blocks import row_blocks
from shortlist._utils.validation import check_count
from shortlist.guarantee import NO_GUARANTEE, Guarantee
from shortlist.ranking import Ranking, as_ranking
from shortlist.ranking.score_types import ScoreType
from shortlist.sets import PredictionSets, check_distinct


class Family(ABC):
    """A family of set predictors, ordered so that sizes do not decrease.

    To write one of prefixes, subclass and give `__len__`, `sizes_of` and `possible_sizes`.
    """

    @abstractmethod
    def __len__(self) -> int:
        """The number of members, |K|."""

    @abstractmethod
    def sizes_of(self, ranking: Ranking) -> Tensor:
        """The size of each member's set in each row: int32 of shape (rows, |K|)."""

    @abstractmethod
    def possible_sizes(self, ranking: Ranking) -> Iterable[int]:
        """The sizes that can occur in rankings of this kind, whatever the rows hold."""

    nested = True
    """Whether each row's sets are nested, so that a larger one is never less accurate."""
    by_row = True
    """Whether the sets of a row depend on that row alone, so that rows can be split into blocks."""

    @property
    def needs_fit(self) -> bool:
        """Whether the members depend on data that they have not been fitted on."""
        return False

    def fixed_sizes(self, ranking: Ranking) -> list[int] | None:
        """Return the sizes of the members if they are the same in all rows, else None."""
        return None

    def max_size(self, depth: int) -> int:
        """Return the largest possible size in rankings of a depth."""
        return depth

    def is_exhaustive(self, ranking: Ranking) -> bool:
        """Return whether the largest member always contains every class."""
        return False

    def onnx_sizes(self, rows: Any) -> Any:
        """Return `sizes_of` as a value of an ONNX graph, or as an array that all rows share.

        Parameters
        ----------
        rows : shortlist.onnx.ScoreRows
            Scores and probabilities of the rows, as values of the graph.

        Returns
        -------
        shortlist.onnx.Value of shape (n_rows, n_members), or int64 array of shape (n_members,)
            Sizes of the members in each row, or in all.

        Raises
        ------
        ValueError
            By default: a family has no graph unless it implements this method.
        """
        raise ValueError(
            f"the sets of {self!r} cannot be exported to ONNX: {type(self).__name__} does not "
            "implement onnx_sizes(rows)"
        )

    def check(self, ranking: Ranking) -> None:  # noqa: B027 (a family may accept every ranking)
        """Raise if the family does not fit the ranking. Asked at fit, and of dense scores: later
        batches of candidates may be shorter, and are then listed to their end."""

    def fit(self, ranking: Ranking, index: Tensor, kind: ScoreType) -> Family:
        """The family as a selector uses it that is fitted on these rows: itself, unless its
        members depend on data and have not met any."""
        return self

    def hits_of(self, ranking: Ranking, index: Tensor) -> Tensor:
        """Whether each member's set holds the label: bool of shape (rows, |K|)."""
        return ranking.rank_of(index)[:, None] < self.sizes_of(ranking)

    def select(
        self, ranking: Ranking, choice: Tensor, *, guarantee: Guarantee = NO_GUARANTEE
    ) -> PredictionSets:
        """The sets of the member `choice[i]` of each row i."""
        sizes = self.sizes_of(ranking).gather(1, choice[:, None].to(torch.int64))[:, 0]
        return PredictionSets.from_ranking(ranking, sizes, guarantee=guarantee)

    def sizes(self, scores: ArrayLike | Ranking) -> Array:
        """The size of each member's set in each row: (rows, |K|)."""
        ranking = as_ranking(scores)
        if ranking.is_dense:
            self.check(ranking)
        return to_array_type(self.sizes_of(ranking), ranking.array_type)

    def hits(self, scores: ArrayLike | Ranking, y: ArrayLike) -> Array:
        """Whether each member's set holds the label `y`: (rows, |K|)."""
        ranking = as_ranking(scores)
        if ranking.is_dense:
            self.check(ranking)
        index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device)
        return to_array_type(self.hits_of(ranking, index), ranking.array_type)


class TopK(Family):
    """The `k` best labels, for each `k` of `sizes` (increasing).

    >>> family = TopK([1, 2])
    >>> family.hits([[0.1, 0.6, 0.3]], [2]).tolist()
    [[False, True]]
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        if not isinstance(sizes, Iterable):
            raise ValueError(f"TopK takes a list of sizes, such as [1, 2, 4]; got {sizes!r}")
        self.k = [check_count(k, "each size of TopK") for k in sizes]
        if not self.k:
            raise ValueError("TopK needs at least one size; got none")
        if any(a >= b for a, b in zip(self.k, self.k[1:], strict=False)):
            raise ValueError(f"the sizes of TopK must increase; got {self.k}")

    @classmethod
    def dense(cls, n: int) -> TopK:
        """Every size from 1 to n."""
        return cls(range(1, check_count(n, "n") + 1))

    @classmethod
    def doubling(cls, n: int, largest: int = 64) -> TopK:
        """1, 2, 4, 8, … up to `n` classes and at most `largest`: the sizes of the paper."""
        most = min(check_count(n, "n"), check_count(largest, "largest"))
        return cls([1 << i for i in range(most.bit_length())])

    def __len__(self) -> int:
        return len(self.k)

    def possible_sizes(self, ranking: Ranking) -> Iterable[int]:
        # A short list of candidates can hold fewer than k labels.
        return self.k if ranking.is_dense else range(1, self.k[-1] + 1)

    def check(self, ranking: Ranking) -> None:
        ranking.check_depth(self.k[-1], f"TopK goes up to size {self.k[-1]}")

    def fixed_sizes(self, ranking: Ranking) -> list[int] | None:
        return self.k if ranking.is_dense else None

    def max_size(self, depth: int) -> int:
        return min(self.k[-1], depth)

    def is_exhaustive(self, ranking: Ranking) -> bool:
        return ranking.is_complete and self.k[-1] == ranking.n_classes

    def onnx_sizes(self, rows: Any) -> Any:
        sizes, listed = np.array(self.k, dtype=np.int64), rows.lengths()
        return sizes if listed is None else rows.minimum(sizes[None], listed)

    def sizes_of(self, ranking: Ranking) -> Tensor:
        k = torch.tensor(self.k, dtype=torch.int32, device=ranking.device)
        if ranking.is_dense:
            return k.expand(len(ranking), -1)
        return torch.minimum(k, ranking.lengths()[:, None])

    def __repr__(self) -> str:
        dense = self.k == list(range(1, len(self.k) + 1)) and len(self.k) > 8
        return f"TopK.dense({len(self.k)})" if dense else f"TopK({self.k})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopK) and self.k == other.k

    def __hash__(self) -> int:
        return hash(("TopK", *self.k))


class Threshold(Family):
    """The labels whose score exceeds (`>`) a threshold; the best label where none does.

    `thresholds` decrease, so that the sets grow. They are on the scale of the scores given, and
    compared in the scores' own floating-point type.

    >>> Threshold([0.5, 0.3, 0.05]).sizes([[0.1, 0.6, 0.3], [0.4, 0.3, 0.3]]).tolist()
    [[1, 1, 3], [1, 1, 3]]
    """

    def __init__(self, thresholds: Sequence[float]) -> None:
        try:
            values = np.asarray(thresholds, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.empty(0)
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
            raise ValueError(f"Threshold needs a list of finite numbers; got {thresholds!r}")
        self.thresholds: list[float] = values.tolist()
        if (np.diff(values) >= 0).any():
            raise ValueError(
                f"thresholds must decrease, so that the sets grow; got {self.thresholds}"
            )

    def __len__(self) -> int:
        return len(self.thresholds)

    def possible_sizes(self, ranking: Ranking) -> Iterable[int]:
        return range(1, ranking.depth + 1)

    def sizes_of(self, ranking: Ranking) -> Tensor:
        return ranking.count_above(self.thresholds).clamp_(min=1)

    def onnx_sizes(self, rows: Any) -> Any:
        return rows.count_above(self.thresholds).clamp(min=1, max=rows.depth)

    def __repr__(self) -> str:
        return f"Threshold({self.thresholds})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Threshold) and self.thresholds == other.thresholds

    def __hash__(self) -> int:
        return hash(("Threshold", *self.thresholds))


class Custom(Family):
    """Any collection of set predictors, given by what a selector needs to know of it.

    Parameters
    ----------
    n_sets : int
        The number of members, |K|.
    sizes : callable
        `sizes(ranking)` gives the size of each member's set: (rows, |K|), not decreasing in k.
    hits : callable
        `hits(ranking, y)` tells whether each set holds the label index y: (rows, |K|) booleans.
    members : callable
        `members(ranking, choice)` gives for each row i the label indices of member `choice[i]`.

    Examples
    --------
    Sets that grow by whole groups of labels are not prefixes of the ranking:

    >>> group = np.array([[True, True, False, False], [False, False, True, True]])
    >>> def best(ranking): return np.eye(4, dtype=bool)[ranking.labels[:, 0]]
    >>> def family_of_best(ranking): return group[ranking.labels[:, 0] // 2]
    >>> family = Custom.from_masks(best, family_of_best)
    >>> family.hits([[0.1, 0.2, 0.4, 0.3]], [1]).tolist()
    [[False, False]]
    >>> family.select(as_ranking([[0.1, 0.2, 0.4, 0.3]]), torch.tensor([1])).labels()
    [[2, 3]]
    """

    nested = False
    by_row = False  # The callables may have answers ready, for these rows and no others.

    def __init__(
        self,
        n_sets: int,
        *,
        sizes: Callable[[Ranking], ArrayLike],
        hits: Callable[[Ranking, Array], ArrayLike],
        members: Callable[[Ranking, Array], Sequence[Sequence[object]]],
    ) -> None:
        self.n_sets = check_count(n_sets, "n_sets")
        self._sizes, self._hits, self._members = sizes, hits, members

    @classmethod
    def from_masks(cls, *predictors: Callable[[Ranking], ArrayLike]) -> Custom:
        """A family of functions that each give a ranking's sets as a mask (rows, classes)."""
        masks = _Masks(predictors)
        return cls(len(predictors), sizes=masks.sizes, hits=masks.hits, members=masks.members)

    def __len__(self) -> int:
        return self.n_sets

    def possible_sizes(self, ranking: Ranking) -> Iterable[int]:
        return range(ranking.n_classes + 1)

    def _table(self, given: ArrayLike, ranking: Ranking, what: str) -> Tensor:
        table = to_tensor(given, what).to(ranking.device)
        if table.shape != (len(ranking), self.n_sets):
            raise ValueError(
                f"{what} of Custom gave shape {tuple(table.shape)}; "
                f"needed: (rows, sets) = {(len(ranking), self.n_sets)}"
            )
        if table.is_floating_point():
            needed = "integers" if what == "sizes" else "booleans"
            raise ValueError(f"{what} of Custom gave {table.dtype}; needed: {needed}")
        return table

    def sizes_of(self, ranking: Ranking) -> Tensor:
        table = self._table(self._sizes(ranking), ranking, "sizes").to(torch.int32)
        wrong = (table[:, 1:] < table[:, :-1]).any(dim=1)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise ValueError(
                f"the sets of Custom must not shrink; row {row} has sizes {table[row].tolist()}"
            )
        if int(table.min()) < 0 or int(table.max()) > ranking.n_classes:
            raise ValueError(
                f"sizes of Custom run from {int(table.min())} to {int(table.max())}; "
                f"allowed: 0 to {ranking.n_classes}"
            )
        return table

    def hits_of(self, ranking: Ranking, index: Tensor) -> Tensor:
        given = self._hits(ranking, to_array_type(index, ranking.array_type))
        return self._table(given, ranking, "hits").to(torch.bool)

    def select(
        self, ranking: Ranking, choice: Tensor, *, guarantee: Guarantee = NO_GUARANTEE
    ) -> PredictionSets:
        lists = self._members(ranking, to_array_type(choice, ranking.array_type))
        if len(lists) != len(ranking):
            raise ValueError(f"members of Custom gave {len(lists)} sets for {len(ranking)} rows")
        flat = torch.tensor([int(v) for row in lists for v in row], dtype=torch.int64)  # type: ignore[call-overload]
        sizes = torch.tensor([len(row) for row in lists], dtype=torch.int64)
        if len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) < ranking.n_classes:
            raise ValueError(
                f"members of Custom must be label indices 0 to {ranking.n_classes - 1}; "
                f"got {int(flat.min())} to {int(flat.max())}"
            )
        check_distinct(flat, sizes, ranking.classes)
        return PredictionSets(
            flat.to(ranking.device),
            sizes.to(ranking.device),
            ranking.classes,
            array_type=ranking.array_type,
            guarantee=guarantee,
        )

    def __repr__(self) -> str:
        return f"Custom({self.n_sets})"


class _Masks:
    """Sizes, hits and members of set predictors that give boolean masks, a block at a time."""

    def __init__(self, predictors: Sequence[Callable[[Ranking], ArrayLike]]) -> None:
        self.predictors = predictors

    def _blocks(self, ranking: Ranking) -> Iterable[tuple[slice, list[Tensor]]]:
        for rows in row_blocks(len(ranking), ranking.n_classes, ranking.device):
            part = ranking[rows]
            masks = [to_tensor(g(part), "mask").to(ranking.device) for g in self.predictors]
            for k, mask in enumerate(masks):
                if mask.dtype != torch.bool or mask.shape != (len(part), ranking.n_classes):
                    raise ValueError(
                        f"set predictor {k} gave {mask.dtype} of shape {tuple(mask.shape)}; "
                        f"needed: booleans of shape {(len(part), ranking.n_classes)}"
                    )
            yield rows, masks

    def sizes(self, ranking: Ranking) -> Tensor:
        blocks = [torch.stack([m.sum(dim=1) for m in ms], 1) for _, ms in self._blocks(ranking)]
        return torch.cat(blocks)

    def hits(self, ranking: Ranking, y: Array) -> Tensor:
        index = to_tensor(y, "y").to(ranking.device)
        return torch.cat(
            [
                torch.cat([m.gather(1, index[rows, None]) for m in ms], dim=1)
                for rows, ms in self._blocks(ranking)
            ]
        )

    def members(self, ranking: Ranking, choice: Array) -> list[list[object]]:
        picked = to_tensor(choice, "choice").to(ranking.device)
        lists: list[list[object]] = []
        for rows, masks in self._blocks(ranking):
            labels, _ = ranking[rows].top(ranking.depth)
            chosen = torch.stack(masks, 1)[torch.arange(len(labels)), picked[rows]]
            for row, mask in zip(labels.tolist(), chosen, strict=True):
                inside = set(mask.nonzero()[:, 0].tolist())
                listed = [label for label in row if label in inside]  # best first
                lists.append([*listed, *sorted(inside.difference(listed), reverse=True)])
        return lists
