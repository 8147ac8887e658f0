"""Conformal prediction: conformity scores, calibrators, exact ranks and bounds."""

from shortlist.conformal.bounds import accuracy_bound, fixed_sequence, miscoverage
from shortlist.conformal.calibrators import (
    CALIBRATORS,
    Calibrator,
    ClassConditional,
    GroupConditional,
    Marginal,
    Thresholds,
    register_calibrator,
)
from shortlist.conformal.families import Conformal, DenisHebiri
from shortlist.conformal.quantiles import UnreachableError, p_values, threshold
from shortlist.conformal.ranks import (
    LISTING_ERROR,
    listed_rank,
    max_accuracy,
    min_calibration_size,
    quantile_rank,
)
from shortlist.conformal.scores import (
    APS,
    LAC,
    RAPS,
    SAPS,
    SCORES,
    ConformityScore,
    Margin,
    TopKScore,
    register_score,
)

__all__ = [
    "ConformityScore",
    "register_score",
    "SCORES",
    "LAC",
    "APS",
    "RAPS",
    "SAPS",
    "TopKScore",
    "Margin",
    "Calibrator",
    "Marginal",
    "ClassConditional",
    "GroupConditional",
    "Thresholds",
    "register_calibrator",
    "CALIBRATORS",
    "Conformal",
    "DenisHebiri",
    "UnreachableError",
    "LISTING_ERROR",
    "accuracy_bound",
    "fixed_sequence",
    "listed_rank",
    "max_accuracy",
    "min_calibration_size",
    "miscoverage",
    "p_values",
    "quantile_rank",
    "threshold",
]
