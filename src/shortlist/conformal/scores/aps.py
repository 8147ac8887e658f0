"""APS: adaptive prediction sets (Romano, Sesia and Candès, 2020)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from shortlist.conformal.scores.base import register_score
from shortlist.conformal.scores.probability import LabelTerms, ProbabilityScore


@register_score
class APS(ProbabilityScore):
    """Score a label by the mass of all labels ranked before it, plus its own.

    The level of the label of rank j is ``-(p_1 + … + p_{j-1} + u p_j)``. Sets grow until they have
    the requested mass, so that easy and hard rows are covered alike. They are longer than those of
    :class:`LAC` at the same accuracy.

    Parameters
    ----------
    randomized : bool, default=False
        Count a random share of the label's own mass. The share depends on the row and on
        `random_state` alone, never on the batch.
    random_state : int, RandomState instance or None, default=0
        Seed of the random shares.

    Examples
    --------
    >>> from shortlist import Ranking
    >>> APS().levels(Ranking.from_scores([[0.25, 0.5, 0.25]])).tolist()
    [[-0.5, -0.75, -1.0]]
    """

    name = "aps"
    needs_mass = True

    def formula(self, terms: LabelTerms) -> Tensor:
        """Return the levels of labels from their terms."""
        return terms.mass().neg_()

    def onnx_formula(self, rows: Any, u: Any) -> Any:
        """Return `formula` for sorted probabilities in an ONNX graph."""
        return -rows.mass(u)
