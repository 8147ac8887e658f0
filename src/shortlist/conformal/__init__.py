"""Split conformal prediction: the scores, the method, and the families that they make."""

from shortlist.conformal._families import Conformal, DenisHebiri
from shortlist.conformal._scores import NAMES, RANDOMIZED, ConformalScore
from shortlist.conformal._split import SplitConformal

__all__ = ["SplitConformal", "Conformal", "DenisHebiri", "ConformalScore", "NAMES", "RANDOMIZED"]
