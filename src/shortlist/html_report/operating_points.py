"""The sets of a method at many accuracies: with a guarantee if possible, or on its curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist.comparison import FittedMethod
from shortlist.frontier import Frontier
from shortlist.guarantee import NO_GUARANTEE, Guarantee
from shortlist.predictors import SetPredictor
from shortlist.predictors.base import Outcomes


def _targets() -> tuple[float, ...]:
    """Return accuracies from 0.5 to 0.999 with three decimals, denser near 1."""
    steps = ((500, 800, 20), (800, 900, 5), (900, 980, 2), (980, 1000, 1))
    return tuple(k / 1000 for a, b, step in steps for k in range(a, b, step))


TARGETS = _targets()
"""Accuracies of the slider."""


@dataclass(frozen=True)
class OperatingPoints:
    """The sets of the test rows at each of several accuracies.

    Attributes
    ----------
    hits, sizes : array of shape (n_rows, n_accuracies)
        Whether the set of each row contains the true label, and its size.
    guaranteed : array of shape (n_accuracies,)
        Whether the accuracy is guaranteed. If not, the sets are the smallest ones on the curve
        that reach the accuracy on the test rows.
    known : array of shape (n_accuracies,)
        Whether the sets are known. They are not if the curve does not reach the accuracy, or does
        not contain the values of each row.
    """

    hits: NDArray[np.bool_]
    sizes: NDArray[np.int32]
    guaranteed: NDArray[np.bool_]
    known: NDArray[np.bool_]


def operating_points(fitted: FittedMethod, accuracies: Sequence[float]) -> OperatingPoints:
    """Return the sets of a method at each of the accuracies."""
    outcomes: list[Outcomes | None] = [None] * len(accuracies)
    for model, columns in _models_in_use(fitted, accuracies):
        asked = [accuracies[i] for i in columns]
        for i, outcome in zip(columns, model.evaluate(*fitted.test, accuracies=asked), strict=True):
            outcomes[i] = outcome
    guaranteed = np.array([outcome is not None for outcome in outcomes])
    for i in np.flatnonzero(~guaranteed).tolist():
        outcomes[i] = _on_curve(fitted.curve(accuracies[i]), accuracies[i])
    shape = len(fitted.test.ranking), len(accuracies)
    hits, sizes = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.int32)
    for i, outcome in enumerate(outcomes):
        if outcome is not None:
            hits[:, i], sizes[:, i] = outcome
    known = np.array([outcome is not None for outcome in outcomes])
    return OperatingPoints(hits, sizes, guaranteed, known)


def _models_in_use(
    fitted: FittedMethod, accuracies: Sequence[float]
) -> list[tuple[SetPredictor, list[int]]]:
    """Return each model, and the indices of the accuracies that it is used for."""
    parts: dict[int, tuple[SetPredictor, list[int]]] = {}
    for i, accuracy in enumerate(accuracies):
        model = fitted.model(accuracy)
        parts.setdefault(id(model), (model, []))[1].append(i)
    return list(parts.values())


def _on_curve(curve: Frontier, accuracy: float) -> Outcomes | None:
    """Return the smallest sets on a curve that reach an accuracy; None if there are none."""
    best = np.flatnonzero(curve.accuracy >= accuracy)
    if curve.rows is None or not len(best):
        return None
    at = best[np.lexsort((-curve.accuracy[best], curve.mean_size[best]))[0]]
    hits, sizes = curve.rows
    return Outcomes(hits[:, at], sizes[:, at].round().astype(np.int64))


def typical_guarantee(
    fitted: FittedMethod, accuracies: Sequence[float], points: OperatingPoints
) -> Guarantee:
    """Return the guarantee of a method at one of the accuracies that it can guarantee."""
    guaranteed = np.flatnonzero(points.guaranteed)
    if not len(guaranteed):
        return NO_GUARANTEE
    accuracy = accuracies[guaranteed[len(guaranteed) // 2]]
    row = fitted.test.take(np.arange(1))
    sets = fitted.model(accuracy).predict_if_reachable(row.ranking, row.features, accuracy=accuracy)
    return NO_GUARANTEE if sets is None else sets.guarantee
