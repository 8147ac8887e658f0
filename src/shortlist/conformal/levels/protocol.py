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
    """Levels of the labels of some rows, independent of how they are stored or computed."""

    def of_labels(self, ranked: Ranking, index: Tensor, *, lowest: bool = False) -> Tensor:
        """Return the level of each row's label.

        Parameters
        ----------
        ranked : Ranking
            Ranking of the rows.
        index : Tensor of shape (n_rows,)
            Label indices.
        lowest : bool, default=False
            Whether a label has the lowest rank that the rounding of scores can give it.

        Returns
        -------
        Tensor of shape (n_rows,)
            Levels.
        """

    def totals(self, rising: Tensor) -> Tensor:
        """Return the total size of all rows' sets at each of several thresholds.

        Parameters
        ----------
        rising : Tensor of shape (n_thresholds,)
            Thresholds, in increasing order.

        Returns
        -------
        Tensor of shape (n_thresholds,)
            Total sizes.
        """

    def sets_at(self, ranked: Ranking, thresholds: Sequence[Tensor]) -> Nested:
        """Return the sets at several thresholds.

        Parameters
        ----------
        ranked : Ranking
            Ranking of the rows.
        thresholds : sequence of Tensor of shape (n_rows,)
            Thresholds of the rows, several times.

        Returns
        -------
        Nested
            Labels and sizes of the sets.
        """

    def sizes_at_each(self, thresholds: Tensor) -> Tensor:
        """Return the sizes of the sets at several thresholds.

        Parameters
        ----------
        thresholds : Tensor of shape (n_thresholds,) or (n_rows, n_thresholds)
            Thresholds of all rows, or of each row.

        Returns
        -------
        Tensor of shape (n_rows, n_thresholds)
            Sizes.
        """

    def by_rank(self, depth: int) -> Tensor:
        """Return the level of each of the first `depth` labels, of shape (n_rows, depth)."""

    def within(self, listed: Tensor) -> NestedLevels:
        """Return the same levels, with sets limited to the number of ranked labels of each row."""

    def never_empty(self) -> NestedLevels:
        """Return the same levels, with the first set at every threshold."""


Block: TypeAlias = tuple[slice, Ranking, NestedLevels]
"""Rows, their ranking, and the levels of its labels."""
