"""Shortlisters that train in a second, and their rows."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
from numpy.typing import NDArray

import shortlist as sl
from shortlist.conformal.levels import Levels

N_CLASSES = 8
SMALL: dict[str, object] = {
    "learning_rate": 3e-3,
    "batch_size": 128,
    "width": 32,
    "rank_width": 16,
    "max_epochs": 8,
    "folds": 3,
    "progress": False,
}
"""Parameters of networks that train in a second."""

Rows = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


@cache
def rows(n: int, seed: int, signal: str = "labels") -> Rows:
    """Logits, labels and features.

    The features contain information on the labels that the logits do not have ("labels"), or on
    how reliable the logits are ("reliability"), or no information ("nothing").
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    scores = 2 * rng.normal(size=(n, N_CLASSES))
    truth = {
        "labels": scores + 1.5 * x @ np.random.default_rng(99).normal(size=(4, N_CLASSES)),
        "reliability": scores * np.where(x[:, :1] > 0, 3.0, 0.3),
        "nothing": scores,
    }[signal]
    return scores, (truth + rng.gumbel(size=truth.shape)).argmax(axis=1), x


def shortlister(**parameters: object) -> sl.Shortlister:
    return sl.Shortlister(**(SMALL | parameters))  # type: ignore[arg-type]


@cache
def fitted(signal: str = "labels", n: int = 600, **parameters: object) -> sl.Shortlister:
    scores, y, x = rows(n, 1, signal)
    return shortlister(**parameters).fit(scores, y, features=x)


@cache
def with_both_stages() -> sl.Shortlister:
    """A model with both stages, a size grid that skips sizes, and no calibration."""
    scores, y, x = wide_rows(600, 1)
    model = shortlister(rescore=True, learn_sizes=True, calibration=None, max_epochs=4)
    return model.fit(scores, y, features=x)


@cache
def wide_rows(n: int, seed: int) -> Rows:
    """Rows of forty classes, so that the size grid skips some sizes."""
    rng = np.random.default_rng(seed)
    x, scores = rng.normal(size=(n, 4)), 2 * rng.normal(size=(n, 40))
    truth = scores + x @ np.random.default_rng(98).normal(size=(4, 40))
    return scores, (truth + rng.gumbel(size=truth.shape)).argmax(axis=1), x


def to_candidates(scores: NDArray[np.float64], depth: int, score_type: str = "proba") -> sl.Ranking:
    """The best labels of each row as candidates; every third row has one less."""
    p = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
    labels = np.argsort(-p, axis=1)[:, :depth]
    values = np.take_along_axis({"proba": p, "logits": scores}[score_type], labels, axis=1)
    labels[::3, -1] = -1
    return sl.Ranking.from_candidates(labels, values, n_classes=scores.shape[1])


def levels_of(model: sl.Shortlister, scores: object, x: object) -> Levels:
    ranking, features = model._validate_rows(scores, x)  # type: ignore[arg-type]
    ranked = reranked(model, ranking, features)
    return model._current_score().nested_levels(ranked, features)  # type: ignore[return-value]


def reranked(model: sl.Shortlister, ranking: sl.Ranking, features: object) -> sl.Ranking:
    scaled = ranking.with_scale(model.score_type_, 1 / model.temperature_)
    return model.score_.rerank(scaled, features)  # type: ignore[arg-type]


def coverage(
    model: sl.Shortlister, splits: int, n_calibration: int, accuracy: float, **options: object
) -> NDArray[np.float64]:
    """The accuracy on test rows, for many splits into calibration and test rows."""
    scores, y, x = rows(3000, 5)
    rng = np.random.default_rng(0)
    accuracies = []
    for _ in range(splits):
        order = rng.permutation(len(y))
        a, b = order[:n_calibration], order[n_calibration:]
        model.calibrate(scores[a], y[a], x[a])
        sets = model.predict_set(scores[b], x[b], accuracy=accuracy, **options)  # type: ignore[arg-type]
        accuracies.append(sets.accuracy(y[b]))
    return np.array(accuracies)


@cache
def plain(**parameters: object) -> sl.Shortlister:
    """A model without stages, which is fitted quickly."""
    return fitted(n=300, rescore=False, learn_sizes=False, **parameters)


def copy_of(model: sl.Shortlister) -> sl.Shortlister:
    """Return a copy of a fitted model, so that its parameters can be set."""
    return pickle.loads(pickle.dumps(model))  # type: ignore[no-any-return]
