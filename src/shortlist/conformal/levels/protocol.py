"""The protocol of levels: the highest threshold at which a set contains a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from torch import Tensor

from shortlist.ranking import Ranking

Sets: TypeAlias = tuple[Tensor, Tensor]
"""Labels of all rows, concatenated, and the size of each row's set."""
Nested: TypeAlias = tuple[Tensor, Tensor, list[Tensor]]
"""Labels of the largest of several nested sets, its sizes, and the sizes of each of the sets."""


class NestedLevels(Protocol):
    """Levels of some rows, however they are stored."""

    def of_labels(self, ranked: Ranking, index: Tensor, *, lowest: bool = False) -> Tensor:
        """Return the level of each row's label.

        With `lowest`, a label counts with the last rank that the rounding of scores can give it.
        """

    def totals(self, rising: Tensor) -> Tensor:
        """Return the total size of all rows' sets at each of several increasing thresholds."""

    def sets_at(self, ranked: Ranking, thresholds: Sequence[Tensor]) -> Nested:
        """Return the sets at several thresholds, each of shape (n_rows,)."""

    def sizes_at_each(self, thresholds: Tensor) -> Tensor:
        """Return the sizes of the sets at several thresholds, of shape (n_rows, n_thresholds).

        `thresholds` has that shape, or (n_thresholds,) if they are the same for all rows.
        """

    def by_rank(self, depth: int) -> Tensor:
        """Return the level of each of the first `depth` labels, of shape (n_rows, depth)."""

    def within(self, listed: Tensor) -> NestedLevels:
        """Return the same levels, with sets limited to the number of ranked labels of each row."""

    def never_empty(self) -> NestedLevels:
        """Return the same levels, with the first set at every threshold."""


Block: TypeAlias = tuple[slice, Ranking, NestedLevels]
"""Rows, their ranking, and the levels of its labels."""
