"""Decisions: the member of a family that was chosen for each row, and what they amount to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import Array, ArrayLike, to_array_type, to_tensor
from shortlist._utils.validation import check_non_negative
from shortlist.costs import Cost, cost_table
from shortlist.families import Family
from shortlist.predictors.cardinality.member_costs import (
    GivenCosts,
    cost_table_of,
    is_table,
    other_costs,
)
from shortlist.sets import PredictionSets


class Decisions:
    """Who answers each row: a set of labels, or another member of a :class:`Deferral`.

    :meth:`CardinalitySelector.decide` returns them.

    Parameters
    ----------
    family : Family
        Family that the members are chosen from.
    choice : Tensor of shape (n_rows,)
        Index of the chosen member of each row.
    sets : PredictionSets
        Sets of the chosen members.

    Attributes
    ----------
    sets : PredictionSets
        Prediction sets, which are empty in the rows that are deferred.

    Examples
    --------
    >>> import torch, shortlist as sl
    >>> family = sl.Deferral(sl.TopK([1, 2]), ["expert", "abstain"])
    >>> ranking = sl.Ranking.from_scores([[0.7, 0.2, 0.1], [0.4, 0.3, 0.3], [0.4, 0.4, 0.2]])
    >>> choice = torch.tensor([0, 2, 3])
    >>> decisions = Decisions(family, choice, family.select(ranking, choice))
    >>> decisions.members.tolist(), decisions.sets.labels()
    (['set 0', 'expert', 'abstain'], [[0], [], []])
    >>> round(decisions.deferred_share, 4)
    0.6667
    >>> round(decisions.accuracy([0, 2, 1], answers={"expert": [1, 2, 1]}), 4)
    0.6667
    >>> decisions.accuracy([0, 2, 1], answers={"expert": [1, 2, 1]}, answered_only=True)
    1.0
    """

    def __init__(self, family: Family, choice: Tensor, sets: PredictionSets) -> None:
        self.family = family
        self.sets = sets
        self._choice = choice

    def __len__(self) -> int:
        return len(self._choice)

    @property
    def choice(self) -> Array:
        """Index of the chosen member of each row: the sets come first."""
        return to_array_type(self._choice, self.sets._array_type)

    @property
    def members(self) -> NDArray[np.str_]:
        """Name of the chosen member of each row; see `Family.member_names`."""
        return np.array(self.family.member_names)[self._index()]

    @property
    def deferred(self) -> NDArray[np.bool_]:
        """Whether each row is deferred: its member is not a set."""
        return self._index() >= len(self.family) - len(self.family.others)

    @property
    def deferred_share(self) -> float:
        """Fraction of the rows that are deferred."""
        return float(self.deferred.mean())

    def shares(self) -> dict[str, float]:
        """Return the fraction of the rows of each member, by name.

        Returns
        -------
        dict of str to float
        """
        counts = np.bincount(self._index(), minlength=len(self.family))
        shares = (counts / len(self)).tolist()
        return dict(zip(self.family.member_names, shares, strict=True))

    def correct(
        self, y: ArrayLike, answers: Mapping[str, ArrayLike] | None = None
    ) -> NDArray[np.bool_]:
        """Return whether each row has a right answer: its set, or the answer of its member.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            True labels.
        answers : mapping of str to array-like of shape (n_rows,), optional
            Answers of members without a set, by name: one label for each row, of which those of
            the rows that are deferred to the member are used. Members that are not in `answers`
            give no answer.

        Returns
        -------
        bool array of shape (n_rows,)
            False where a set or an answer is wrong, and where there is no answer.
        """
        classes = self.sets._classes
        index = classes.encode(y, rows=len(self)).cpu().numpy()
        correct = to_tensor(self.sets.contains(y), "hits").cpu().numpy().copy()
        for name, labels in self._check_answers(answers).items():
            answer = classes.encode(labels, rows=len(self), name=f"answers[{name!r}]")
            own = self.members == name
            correct[own] = answer.cpu().numpy()[own] == index[own]
        return correct

    def accuracy(
        self,
        y: ArrayLike,
        answers: Mapping[str, ArrayLike] | None = None,
        *,
        answered_only: bool = False,
    ) -> float:
        """Return the accuracy of the system: the fraction of rows with a right answer.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            True labels.
        answers : mapping of str to array-like of shape (n_rows,), optional
            Answers of members without a set; see `correct`.
        answered_only : bool, default=False
            Whether to leave out the rows of members that give no answer, such as "abstain". By
            default, they count as misses.

        Returns
        -------
        float
            NaN if no row counts.
        """
        correct = self.correct(y, answers)
        if answered_only:
            silent = [name for name in self.family.others if name not in (answers or {})]
            correct = correct[~np.isin(self.members, silent)]
        return float(correct.mean()) if len(correct) else float("nan")

    def mean_cost(
        self,
        y: ArrayLike,
        costs: GivenCosts | None = None,
        *,
        cost: Cost = "log",
        cost_weight: float = 0.05,
    ) -> float:
        """Return the mean cost of the decisions, not normalized.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            True labels.
        costs : mapping or array-like of shape (n_rows, n_members), optional
            Costs of these rows, as in :meth:`CardinalitySelector.fit`. With a table, `y`, `cost`
            and `cost_weight` have no effect.
        cost : {"log", "linear"}, sequence, dict or callable, default="log"
            Cost of a set size.
        cost_weight : float, default=0.05
            Lambda: the cost of a unit of size in units of accuracy.

        Returns
        -------
        float
            Mean of the costs of the chosen members. The cost of a set is
            ``1[y not in set] + cost_weight * cost(size)``.
        """
        rows, chosen, n = np.arange(len(self)), self._index(), len(self)
        if costs is not None and is_table(costs):
            return float(cost_table_of(costs, self.family, n).cpu().numpy()[rows, chosen].mean())
        weight = check_non_negative(cost_weight, "cost_weight")
        others = other_costs(costs, self.family, n)
        sizes = to_tensor(self.sets.sizes, "sizes").cpu()
        size_costs = cost_table(cost, set(sizes.tolist()))[sizes].numpy()
        misses = ~to_tensor(self.sets.contains(y), "hits").cpu().numpy()
        values = misses + weight * size_costs
        if others is not None:
            n_sets = len(self.family) - len(self.family.others)
            given = others.numpy()[rows, np.maximum(chosen - n_sets, 0)]
            values = np.where(self.deferred, given, values)
        return float(values.mean())

    def _index(self) -> NDArray[np.int64]:
        index: NDArray[np.int64] = self._choice.cpu().numpy()
        return index

    def _check_answers(self, answers: Mapping[str, ArrayLike] | None) -> Mapping[str, ArrayLike]:
        """Return the answers; raise unless they are those of members without a set."""
        given = {} if answers is None else answers
        if not isinstance(given, Mapping):
            raise ValueError(
                "answers are given by the names of members, such as {'expert': labels}; got "
                f"{type(given).__name__}"
            )
        unknown = [name for name in given if name not in self.family.others]
        if unknown:
            raise ValueError(
                f"answers has an entry {unknown[0]!r}, but the members of {self.family} without a "
                f"set are {list(self.family.others)}"
            )
        return given

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.shares().items())
        return f"Decisions: {len(self):,} rows ({shares})"
