"""Calibrators, one to a file: from the levels of calibration rows to thresholds."""

from shortlist.conformal.calibrators.base import (
    CALIBRATORS,
    Calibrator,
    make_calibrator,
    register_calibrator,
)
from shortlist.conformal.calibrators.class_conditional import ClassConditional
from shortlist.conformal.calibrators.group_conditional import GroupConditional
from shortlist.conformal.calibrators.marginal import Marginal
from shortlist.conformal.calibrators.thresholds import Thresholds

__all__ = [
    "Calibrator",
    "register_calibrator",
    "make_calibrator",
    "CALIBRATORS",
    "Marginal",
    "ClassConditional",
    "GroupConditional",
    "Thresholds",
]
