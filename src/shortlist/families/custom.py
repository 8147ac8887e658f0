"""Families that the user defines by functions, whose sets need not be prefixes of a ranking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from shortlist._utils.arrays import Array, ArrayLike, to_array_type, to_tensor
from shortlist._utils.blocks import row_blocks
from shortlist._utils.validation import check_count
from shortlist.families.base import Family
from shortlist.guarantee import NO_GUARANTEE, Guarantee
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets, check_no_repeats


class Custom(Family):
    """Any collection of set predictors, defined by what a selector needs to know of it.

    Parameters
    ----------
    n_sets : int
        Number of members, |K|.
    sizes : callable
        `sizes(ranking)` returns the size of each member's set in each row: integers of shape
        (n_rows, n_sets) that do not decrease along a row.
    hits : callable
        `hits(ranking, y)` returns whether each set contains the label index y: booleans of shape
        (n_rows, n_sets).
    members : callable
        `members(ranking, choice)` returns, for each row i, the label indices of the set of member
        `choice[i]`.

    Examples
    --------
    Sets that grow by whole groups of labels are not prefixes of the ranking:

    >>> import numpy as np
    >>> from shortlist import Ranking
    >>> group = np.array([[True, True, False, False], [False, False, True, True]])
    >>> def best_label(ranking): return np.eye(4, dtype=bool)[ranking.labels[:, 0]]
    >>> def group_of_best(ranking): return group[ranking.labels[:, 0] // 2]
    >>> family = Custom.from_masks(best_label, group_of_best)
    >>> scores = [[0.1, 0.2, 0.4, 0.3]]
    >>> family.hits(scores, [1]).tolist()
    [[False, False]]
    >>> family.select(Ranking.from_scores(scores), torch.tensor([1])).labels()
    [[2, 3]]
    """

    nested = False
    by_row = False  # The functions may return results that were computed for the whole batch.

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
        """Return the family of functions that return sets as masks.

        Parameters
        ----------
        *predictors : callable
            Each takes a ranking, and returns booleans of shape (n_rows, n_classes).

        Returns
        -------
        Custom
        """
        masks = _Masks(predictors)
        return cls(len(predictors), sizes=masks.sizes, hits=masks.hits, members=masks.members)

    def __len__(self) -> int:
        return self.n_sets

    def possible_sizes(self, ranking: Ranking) -> Iterable[int]:
        """Return the sizes that can occur; see `Family.possible_sizes`."""
        return range(ranking.n_classes + 1)

    def sizes_of(self, ranking: Ranking) -> Tensor:
        """Return the size of each member's set in each row; see `Family.sizes_of`."""
        table = self._as_table(self._sizes(ranking), ranking, "sizes").to(torch.int32)
        shrinks = (table[:, 1:] < table[:, :-1]).any(dim=1)
        if bool(shrinks.any()):
            row = int(shrinks.nonzero()[0])
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
        """Return whether each member's set contains the label; see `Family.hits_of`."""
        hits = self._hits(ranking, to_array_type(index, ranking.array_type))
        return self._as_table(hits, ranking, "hits").to(torch.bool)

    def _as_table(self, values: ArrayLike, ranking: Ranking, name: str) -> Tensor:
        """Return the result of a user's function as a tensor of shape (n_rows, n_sets)."""
        table = to_tensor(values, name).to(ranking.device)
        if table.shape != (len(ranking), self.n_sets):
            raise ValueError(
                f"{name} of Custom gave shape {tuple(table.shape)}; "
                f"needed: (rows, sets) = {(len(ranking), self.n_sets)}"
            )
        if table.is_floating_point():
            needed = "integers" if name == "sizes" else "booleans"
            raise ValueError(f"{name} of Custom gave {table.dtype}; needed: {needed}")
        return table

    def select(
        self, ranking: Ranking, choice: Tensor, *, guarantee: Guarantee = NO_GUARANTEE
    ) -> PredictionSets:
        """Return the sets of one chosen member for each row; see `Family.select`."""
        members = self._members(ranking, to_array_type(choice, ranking.array_type))
        if len(members) != len(ranking):
            raise ValueError(f"members of Custom gave {len(members)} sets for {len(ranking)} rows")
        labels = [int(label) for row in members for label in row]  # type: ignore[call-overload]
        flat = torch.tensor(labels, dtype=torch.int64)
        sizes = torch.tensor([len(row) for row in members], dtype=torch.int64)
        if len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) < ranking.n_classes:
            raise ValueError(
                f"members of Custom must be label indices 0 to {ranking.n_classes - 1}; "
                f"got {int(flat.min())} to {int(flat.max())}"
            )
        check_no_repeats(flat, sizes, ranking.classes)
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
    """Sizes, hits and members of functions that return masks, computed by blocks of rows."""

    def __init__(self, predictors: Sequence[Callable[[Ranking], ArrayLike]]) -> None:
        self.predictors = predictors

    def sizes(self, ranking: Ranking) -> Tensor:
        """Return the size of each function's set in each row."""
        return torch.cat([masks.sum(dim=2) for _, masks in self._blocks(ranking)])

    def hits(self, ranking: Ranking, y: Array) -> Tensor:
        """Return whether each function's set contains the label index y."""
        index = to_tensor(y, "y").to(ranking.device)
        return torch.cat(
            [
                masks[torch.arange(len(masks), device=masks.device), :, index[rows]]
                for rows, masks in self._blocks(ranking)
            ]
        )

    def members(self, ranking: Ranking, choice: Array) -> list[list[int]]:
        """Return the label indices of one chosen function for each row, best first."""
        chosen = to_tensor(choice, "choice").to(ranking.device)
        sets: list[list[int]] = []
        for rows, masks in self._blocks(ranking):
            labels, _ = ranking[rows].top(ranking.depth)
            own = masks[torch.arange(len(masks), device=masks.device), chosen[rows]]
            for row, mask in zip(labels.tolist(), own, strict=True):
                inside = set(mask.nonzero()[:, 0].tolist())
                ranked = [label for label in row if label in inside]
                # Labels that are not ranked come last, as after equal scores.
                sets.append([*ranked, *sorted(inside.difference(ranked), reverse=True)])
        return sets

    def _blocks(self, ranking: Ranking) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows with their masks, of shape (n_rows, n_sets, n_classes)."""
        for rows in row_blocks(len(ranking), ranking.n_classes, ranking.device):
            part = ranking[rows]
            masks = [to_tensor(g(part), "mask").to(ranking.device) for g in self.predictors]
            for k, mask in enumerate(masks):
                if mask.dtype != torch.bool or mask.shape != (len(part), ranking.n_classes):
                    raise ValueError(
                        f"set predictor {k} gave {mask.dtype} of shape {tuple(mask.shape)}; "
                        f"needed: booleans of shape {(len(part), ranking.n_classes)}"
                    )
            yield rows, torch.stack(masks, dim=1)
