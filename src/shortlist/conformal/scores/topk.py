"""Top-k as a conformity score: sets of one size."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from shortlist.conformal.scores.base import register_score
from shortlist.conformal.scores.probability import LabelTerms, ProbabilityScore


@register_score
class TopKScore(ProbabilityScore):
    """Score a label by its rank.

    The level of the label of rank j is ``-(j - 1 + u)``. All sets have the same size, the smallest
    one with the requested accuracy.

    Parameters
    ----------
    randomized : bool, default=False
        Add a random share to the rank, so that sets of two sizes are mixed.
    random_state : int, RandomState instance or None, default=0
        Seed of the random shares.

    Examples
    --------
    >>> from shortlist import Ranking
    >>> TopKScore().levels(Ranking.from_scores([[0.25, 0.5, 0.25]])).tolist()
    [[-1.0, -2.0, -3.0]]
    """

    name = "topk"

    def formula(self, terms: LabelTerms) -> Tensor:
        """Return the levels of labels from their terms."""
        return -(terms.rank - 1 + terms.u)

    def onnx_formula(self, rows: Any, u: Any) -> Any:
        """Return `formula` for sorted probabilities in an ONNX graph."""
        return -(rows.sorted_proba * 0.0 + (rows.ranks - 1) + u)
