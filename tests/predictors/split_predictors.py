"""Parameters of split conformal predictors, and comparisons of their sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import shortlist as sl
from shortlist.conformal.ranks import quantile_rank

EASY = {"temperature": None, "penalty": 0.125, "k_reg": 1}  # nothing to learn
LEVELS = [0.5, 0.8, 0.9, 0.95]


def threshold_of(model: sl.SplitConformal, accuracy: float) -> float:
    levels = np.sort(model._calibration.levels)
    return float(levels[quantile_rank(len(levels), accuracy) - 1])


def near(model: sl.SplitConformal, scores: NDArray, accuracy: float, gap: float) -> NDArray:
    """Return which rows have a label whose level is within `gap` of the threshold."""
    levels = model.score_.levels(sl.Ranking.from_scores(scores)).numpy()
    return (np.abs(levels - threshold_of(model, accuracy)) < gap).any(axis=1)


def where_sets_differ(a: sl.PredictionSets, b: sl.PredictionSets) -> NDArray:
    return np.array([set(x) != set(y) for x, y in zip(a, b, strict=True)])
