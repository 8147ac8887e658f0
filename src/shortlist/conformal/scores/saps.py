"""SAPS: sorted adaptive prediction sets (Huang, Xi, Zhang, Yao, Qiu and Wei, 2024)."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from shortlist._utils.out_of_core import Matrix
from shortlist._utils.validation import check_non_negative
from shortlist.conformal.scores.base import register_score
from shortlist.conformal.scores.probability import LabelTerms, ProbabilityScore
from shortlist.conformal.scores.tuning import PENALTIES, check_auto, shortest, tuning_rows
from shortlist.ranking import Ranking


@register_score
class SAPS(ProbabilityScore):
    """Score a label by the highest probability of its row and by its rank.

    The level of the first label is ``-u p_1``, that of the label of rank j
    ``-(p_1 + (j - 2 + u) penalty)``. The other probabilities, whose estimates are often poor, are
    not used.

    Parameters
    ----------
    penalty : "auto" or float, default="auto"
        Weight of the rank. "auto" takes the value with the shortest sets at `accuracy`, on rows
        that are not used for calibration.
    accuracy : float, default=0.95
        Accuracy for which "auto" is chosen.
    randomized : bool, default=False
        Count a random share of the label's last step.
    random_state : int, RandomState instance or None, default=0
        Seed of the random shares.

    Attributes
    ----------
    penalty_ : float
        Value in use, after `fit`.

    Examples
    --------
    >>> from shortlist import Ranking
    >>> SAPS(penalty=0.25).levels(Ranking.from_scores([[0.25, 0.5, 0.25]])).tolist()
    [[-0.5, -0.75, -1.0]]
    """

    name = "saps"

    def __init__(
        self,
        *,
        penalty: float | str = "auto",
        accuracy: float = 0.95,
        randomized: bool = False,
        random_state: object = 0,
    ) -> None:
        super().__init__(randomized=randomized, random_state=random_state)
        self.penalty = penalty
        self.accuracy = accuracy

    def needs_fit(self) -> bool:
        """Return whether the penalty is "auto"."""
        return self.penalty == "auto"

    def fit(self, ranking: Ranking, y: Tensor, features: Matrix | None = None) -> Self:
        """Choose the penalty, if it is "auto".

        Parameters
        ----------
        ranking : Ranking
            Rows that are not used for calibration.
        y : Tensor of shape (n_rows,)
            Label indices.
        features : matrix, optional
            Ignored.

        Returns
        -------
        self
            The fitted score.
        """
        penalty = check_auto(self.penalty, "penalty")
        if penalty is not None:
            self.penalty_ = check_non_negative(penalty, "penalty")
            return self
        ranking, rank = tuning_rows(ranking, y)
        grid = [{"penalty_": penalty} for penalty in PENALTIES]
        return shortest(self, grid, ranking, rank, self.accuracy)

    def describe(self) -> dict[str, str]:
        """Return the score with its penalty; see `ConformityScore.describe`."""
        return {**super().describe(), "penalty": f"{self._penalty():g}"}

    def formula(self, terms: LabelTerms) -> Tensor:
        """Return the levels of labels from their terms."""
        later = terms.best[:, :1] + (terms.rank - 2 + terms.u) * self._penalty()
        return -torch.where(terms.rank == 1, terms.u * terms.p, later)

    def _penalty(self) -> float:
        return self.penalty_ if self.needs_fit() else check_non_negative(self.penalty, "penalty")

    def onnx_formula(self, rows: Any, u: Any) -> Any:
        """Return `formula` for sorted probabilities in an ONNX graph."""
        first = rows.sorted_proba[:, :1]
        later = first + (rows.ranks[:, 1:] - 2 + u) * self._penalty()
        return -rows.concat([first * u, later])
