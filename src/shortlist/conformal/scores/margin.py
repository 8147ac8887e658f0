"""Margin: the distance to the best other label (Johansson and others, 2017)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shortlist.conformal.scores.base import register_score
from shortlist.conformal.scores.probability import LabelTerms, ProbabilityScore


@register_score
class Margin(ProbabilityScore):
    """Score a label by its probability minus the highest one of the other labels.

    Examples
    --------
    >>> from shortlist import Ranking
    >>> Margin().levels(Ranking.from_scores([[0.25, 0.5, 0.25]])).tolist()
    [[0.25, -0.25, -0.25]]
    """

    name = "margin"
    can_randomize = False

    def __init__(self) -> None:
        super().__init__()

    def formula(self, terms: LabelTerms) -> Tensor:
        """Return the levels of labels from their terms."""
        first, best = terms.rank == 1, terms.best
        second = best[:, 1:2] if best.shape[1] > 1 else torch.zeros_like(best)
        return torch.where(first, terms.p - second, terms.p - best[:, :1])

    def onnx_formula(self, rows: Any, u: Any) -> Any:
        """Return `formula` for sorted probabilities in an ONNX graph."""
        p = rows.sorted_proba
        first = p[:, :1]
        second = p[:, 1:2] if rows.depth > 1 else first * 0.0
        return rows.concat([first - second, p[:, 1:] - first])
