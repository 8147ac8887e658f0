"""Rows and set predictors that are small enough to be fitted many times."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from synthetic import draw, ragged

import shortlist as sl

N_CLASSES = 5
SMALL_NETWORKS: dict[str, object] = {
    "learning_rate": 3e-3,
    "batch_size": 128,
    "width": 16,
    "rank_width": 8,
    "max_epochs": 3,
    "folds": 3,
    "progress": False,
}
GUARANTEED_FIELDS = [
    "guaranteed_accuracy",
    "guaranteed_size",
    "size_stratified_violation",
    "worst_class",
    "single_share",
    "predict_seconds",
]
"""Fields of a measurement that are NaN if the accuracy cannot be guaranteed."""
Part = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]
"""Scores, labels and features."""


def draw_rows(n: int, seed: int) -> Part:
    """Return logits, labels, and features that add information about the labels.

    The first feature is only a row number: 0, 2, 4, … for seed 1, and 1, 3, 5, … for seed 2.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    scores = 2 * rng.normal(size=(n, N_CLASSES))
    logits = scores + 2 * x @ np.random.default_rng(9).normal(size=(3, N_CLASSES))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return scores, y, np.column_stack([2 * np.arange(n) + seed - 1, x])


def draw_candidates(n: int, depth: int) -> tuple[sl.Ranking, NDArray[np.int64]]:
    """Return candidates of 8 classes, at most `depth` for each row, and labels."""
    scores, y = draw(n, n=8)
    proba = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return sl.Ranking.from_candidates(**ragged(proba, depth)), y  # type: ignore[arg-type]


def take_rows(part: Part, index: NDArray[np.integer]) -> Part:
    return part[0][index], part[1][index], part[2][index]


def shortlister(**settings: object) -> sl.Shortlister:
    return sl.Shortlister(**(SMALL_NETWORKS | settings))  # type: ignore[arg-type]


def path() -> sl.CardinalityPath:
    return sl.CardinalityPath(
        cost_weights=[0.5, 0.05, 0.005], inputs="both", width=8, max_epochs=2, progress=False
    )


def conformal(score: str = "lac", **settings: object) -> sl.SplitConformal:
    return sl.SplitConformal(score, **settings)  # type: ignore[arg-type]


def two_methods() -> dict[str, sl.SetPredictor]:
    """Return a method that learns from features, and one that is tuned for each accuracy."""
    return {"Shortlister": shortlister(), "RAPS": conformal("raps", randomized=True)}


def only_lac() -> dict[str, sl.SetPredictor]:
    return {"LAC": conformal()}


def assert_same_results(first: sl.Comparison, second: sl.Comparison) -> None:
    """Assert that all measurements but the times are equal."""
    assert first.summary == second.summary
    seconds = ["fit_seconds", "predict_seconds"]
    frames = (comparison.to_frame().drop(columns=seconds) for comparison in (first, second))
    pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert list(first.curves) == list(second.curves)
    for name, curve in first.curves.items():
        np.testing.assert_array_equal(curve.mean_size, second.curves[name].mean_size)
