"""RAPS: regularized adaptive prediction sets (Angelopoulos, Bates, Malik and Jordan, 2021)."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from shortlist._utils.out_of_core import Matrix
from shortlist._utils.validation import check_count, check_non_negative
from shortlist.conformal.scores.base import register_score
from shortlist.conformal.scores.probability import LabelTerms, ProbabilityScore
from shortlist.conformal.scores.tuning import PENALTIES, check_auto, shortest, tuning_rows
from shortlist.ranking import Ranking


@register_score
class RAPS(ProbabilityScore):
    """Score a label as APS does, minus a penalty for each rank after `k_reg`.

    The level of the label of rank j is that of :class:`APS` minus
    ``penalty * max(0, j - k_reg)``. The penalty keeps sets from becoming long.

    Parameters
    ----------
    penalty : "auto" or float, default="auto"
        Penalty for each rank after `k_reg`. "auto" takes the value with the shortest sets at
        `accuracy`, on rows that are not used for calibration.
    k_reg : "auto" or int, default="auto"
        Rank after which the penalty begins.
    accuracy : float, default=0.95
        Accuracy for which "auto" parameters are chosen.
    randomized : bool, default=False
        Count a random share of the label's own mass.
    random_state : int, RandomState instance or None, default=0
        Seed of the random shares.

    Attributes
    ----------
    penalty_, k_reg_
        Values in use, after `fit`.

    Examples
    --------
    >>> from shortlist import Ranking
    >>> score = RAPS(penalty=0.5, k_reg=2)
    >>> score.levels(Ranking.from_scores([[0.25, 0.5, 0.25]])).tolist()
    [[-0.5, -0.75, -1.5]]
    """

    name = "raps"
    needs_mass = True

    def __init__(
        self,
        *,
        penalty: float | str = "auto",
        k_reg: int | str = "auto",
        accuracy: float = 0.95,
        randomized: bool = False,
        random_state: object = 0,
    ) -> None:
        super().__init__(randomized=randomized, random_state=random_state)
        self.penalty = penalty
        self.k_reg = k_reg
        self.accuracy = accuracy

    def needs_fit(self) -> bool:
        """Return whether a parameter is "auto"."""
        return "auto" in (self.penalty, self.k_reg)

    def fit(self, ranking: Ranking, y: Tensor, features: Matrix | None = None) -> Self:
        """Choose the parameters that are "auto".

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
        penalty, k_reg = check_auto(self.penalty, "penalty"), check_auto(self.k_reg, "k_reg")
        penalties = PENALTIES if penalty is None else (check_non_negative(penalty, "penalty"),)
        starts = [0] if k_reg is None else [check_count(k_reg, "k_reg", minimum=0)]
        self.penalty_, self.k_reg_ = penalties[0], starts[0]
        if not self.needs_fit():
            return self
        ranking, rank = tuning_rows(ranking, y)
        if k_reg is None:
            # The choice of the paper, which is the size that fixed top-k needs, and smaller ones.
            size = float(torch.quantile(rank.clamp(max=ranking.depth), self.accuracy)) + 1
            starts = sorted({0, 1, 2, 5, round(size / 2), round(size)})
        grid = [{"penalty_": a, "k_reg_": b} for a in penalties for b in starts]
        return shortest(self, grid, ranking, rank, self.accuracy)

    def describe(self) -> dict[str, str]:
        """Return the score with its penalty; see `ConformityScore.describe`."""
        penalty, k_reg = self._values()
        return {**super().describe(), "penalty": f"{penalty:g} for each label beyond {k_reg}"}

    def formula(self, terms: LabelTerms) -> Tensor:
        """Return the levels of labels from their terms."""
        penalty, k_reg = self._values()
        return (terms.mass() + penalty * (terms.rank - k_reg).clamp(min=0)).neg_()

    def _values(self) -> tuple[float, int]:
        """Return the parameters in use."""
        if self.needs_fit():
            return self.penalty_, self.k_reg_
        return (
            check_non_negative(self.penalty, "penalty"),
            check_count(self.k_reg, "k_reg", minimum=0),
        )

    def onnx_formula(self, rows: Any, u: Any) -> Any:
        """Return `formula` for sorted probabilities in an ONNX graph."""
        penalty, k_reg = self._values()
        return -(rows.mass(u) + penalty * (rows.ranks - k_reg).clamp(min=0))
