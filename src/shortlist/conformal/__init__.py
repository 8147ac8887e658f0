"""Conformal prediction: conformity scores, calibration, exact ranks and bounds."""

from shortlist.conformal.families import Conformal, DenisHebiri
from shortlist.conformal.quantiles import (
    LISTING_ERROR,
    UnreachableError,
    accuracy_bound,
    fixed_sequence,
    listed_rank,
    max_accuracy,
    min_calibration_size,
    miscoverage,
    p_values,
    quantile_rank,
    threshold,
)
from shortlist.conformal.scores import NAMES, RANDOMIZED, ConformalScore

__all__ = [
    "Conformal",
    "DenisHebiri",
    "ConformalScore",
    "NAMES",
    "RANDOMIZED",
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
