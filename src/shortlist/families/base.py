"""The base class of families of set predictors.

A family turns a ranking into a table of sizes, with one column for each member, from the smallest
sets to the largest. The sets are prefixes of the ranking, so that a set contains a label if and
only if the label's rank is below the size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self, overload

from torch import Tensor

from shortlist._utils.arrays import Array, ArrayLike, to_array_type
from shortlist.guarantee import NO_GUARANTEE, Guarantee
from shortlist.ranking import Ranking, as_ranking
from shortlist.ranking.score_types import ScoreType
from shortlist.sets import PredictionSets


class Family(ABC):
    """A family of set predictors, ordered so that sizes do not decrease.

    To define a family of prefixes, implement `__len__`, `sizes_of` and `possible_sizes` in a
    subclass.
    """

    nested = True
    """Whether each row's sets are nested, so that a larger one is never less accurate."""
    by_row = True
    """Whether the sets of a row depend on that row alone, so that rows can be split into blocks."""

    others: tuple[str, ...] = ()
    """Names of members without a set, which come after the sets; see :class:`Deferral`."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of members, |K|."""

    @property
    def member_names(self) -> list[str]:
        """Names of the members: "set 0", "set 1", …, and the names of members without a set."""
        return [f"set {i}" for i in range(len(self))]

    @abstractmethod
    def sizes_of(self, ranking: Ranking) -> Tensor:
        """Return the size of each member's set in each row.

        Parameters
        ----------
        ranking : Ranking
            Rows.

        Returns
        -------
        int32 Tensor of shape (n_rows, n_members)
            Sizes, which do not decrease along a row.
        """

    @abstractmethod
    def possible_sizes(self, ranking: Ranking) -> Iterable[int]:
        """Return all sizes that can occur, whatever the scores.

        Parameters
        ----------
        ranking : Ranking
            Rows whose classes, depth and form of scores (dense or candidates) matter.

        Returns
        -------
        iterable of int
        """

    @property
    def needs_fit(self) -> bool:
        """Whether the members depend on data that they have not been fitted on."""
        return False

    def fit(self, ranking: Ranking, index: Tensor, score_type: ScoreType) -> Self:
        """Return the family with members that are fitted on labeled rows.

        Selectors call this in their own `fit`. The default is to return the family unchanged.

        Parameters
        ----------
        ranking : Ranking
            Rows.
        index : Tensor of shape (n_rows,)
            Label indices.
        score_type : {"logits", "proba", "log_proba"}
            Type of the scores.

        Returns
        -------
        Family
            The family itself, unless its members depend on data.
        """
        return self

    def check(self, ranking: Ranking) -> None:  # noqa: B027 (A family may accept every ranking.)
        """Raise if the family does not fit the ranking. The default is to accept all rankings.

        This is called in `fit` and for dense scores. Later batches of candidates may be shorter:
        their sets contain all candidates.

        Parameters
        ----------
        ranking : Ranking
            Rows.
        """

    def fixed_sizes(self, ranking: Ranking) -> list[int] | None:
        """Return the sizes of the members if they are the same in all rows, else None.

        Parameters
        ----------
        ranking : Ranking
            Rows.

        Returns
        -------
        list of int, or None
        """
        return None

    def max_size(self, depth: int) -> int:
        """Return the largest possible size in rankings of a depth.

        Parameters
        ----------
        depth : int
            Number of labels that are ranked in each row.

        Returns
        -------
        int
        """
        return depth

    def is_exhaustive(self, ranking: Ranking) -> bool:
        """Return whether the largest member always contains every class.

        Parameters
        ----------
        ranking : Ranking
            Rows.

        Returns
        -------
        bool
        """
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

    def hits_of(self, ranking: Ranking, index: Tensor) -> Tensor:
        """Return whether each member's set contains the label of the row.

        Parameters
        ----------
        ranking : Ranking
            Rows.
        index : Tensor of shape (n_rows,)
            Label indices.

        Returns
        -------
        bool Tensor of shape (n_rows, n_members)
        """
        return ranking.rank_of(index)[:, None] < self.sizes_of(ranking)

    def hits_of_known(self, ranking: Ranking, index: Tensor) -> Tensor:
        """Return `hits_of`, where the index -1 of an unknown class is in no set.

        Parameters
        ----------
        ranking : Ranking
            Rows.
        index : Tensor of shape (n_rows,)
            Label indices; -1 for labels of unknown classes.

        Returns
        -------
        bool Tensor of shape (n_rows, n_members)
        """
        return self.hits_of(ranking, index.clamp(min=0)) & (index >= 0)[:, None]

    def select(
        self, ranking: Ranking, choice: Tensor, *, guarantee: Guarantee = NO_GUARANTEE
    ) -> PredictionSets:
        """Return the sets of one chosen member for each row.

        Parameters
        ----------
        ranking : Ranking
            Rows.
        choice : Tensor of shape (n_rows,)
            Index of the chosen member.
        guarantee : Guarantee, optional
            Statement about the accuracy of the sets. None by default.

        Returns
        -------
        PredictionSets
        """
        sizes = self.sizes_of(ranking).gather(1, choice[:, None].long())[:, 0]
        return PredictionSets.from_ranking(ranking, sizes, guarantee=guarantee)

    @overload
    def sizes(self, scores: Tensor) -> Tensor: ...
    @overload
    def sizes(self, scores: ArrayLike | Ranking) -> Array: ...
    def sizes(self, scores: ArrayLike | Ranking) -> Array:
        """Return the size of each member's set in each row.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes), or Ranking
            Scores.

        Returns
        -------
        array of shape (n_rows, n_members)
        """
        ranking = self._as_checked_ranking(scores)
        return to_array_type(self.sizes_of(ranking), ranking.array_type)

    @overload
    def hits(self, scores: Tensor, y: ArrayLike) -> Tensor: ...
    @overload
    def hits(self, scores: ArrayLike | Ranking, y: ArrayLike) -> Array: ...
    def hits(self, scores: ArrayLike | Ranking, y: ArrayLike) -> Array:
        """Return whether each member's set contains the label of the row.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes), or Ranking
            Scores.
        y : array-like of shape (n_rows,)
            Labels. Those of unknown classes are misses.

        Returns
        -------
        bool array of shape (n_rows, n_members)
        """
        ranking = self._as_checked_ranking(scores)
        index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device, unknown="any")
        return to_array_type(self.hits_of_known(ranking, index), ranking.array_type)

    def _as_checked_ranking(self, scores: ArrayLike | Ranking) -> Ranking:
        """Return a ranking of scores, checked by `check` if every class has a score."""
        ranking = as_ranking(scores)
        if ranking.is_dense:
            self.check(ranking)
        return ranking
