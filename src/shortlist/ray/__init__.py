"""Fit, calibrate, predict and compare on a Ray cluster, from Parquet tables of any length.

Models, prediction sets and guarantees are the same as in a single process. The functions connect
to a running cluster, or start one on this machine. They need `pip install 'shortlist[ray]'`.
"""

from __future__ import annotations

from shortlist.ray.calibration import calibrate
from shortlist.ray.comparison import compare
from shortlist.ray.fitting import fit
from shortlist.ray.prediction import PredictionSummary, predict_set

__all__ = ["PredictionSummary", "calibrate", "compare", "fit", "predict_set"]
