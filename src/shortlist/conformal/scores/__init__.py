"""Conformity scores, one to a file."""

from shortlist.conformal.scores.aps import APS
from shortlist.conformal.scores.base import SCORES, ConformityScore, register_score, score_class
from shortlist.conformal.scores.lac import LAC
from shortlist.conformal.scores.margin import Margin
from shortlist.conformal.scores.raps import RAPS
from shortlist.conformal.scores.saps import SAPS
from shortlist.conformal.scores.topk import TopKScore

__all__ = [
    "ConformityScore",
    "register_score",
    "score_class",
    "SCORES",
    "LAC",
    "APS",
    "RAPS",
    "SAPS",
    "TopKScore",
    "Margin",
]
