"""What a method's sets are at many accuracies: as guaranteed, or else as read off its curve."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import to_tensor
from shortlist.comparison import Fitted
from shortlist.conformal.calibration import Conditional
from shortlist.conformal.quantiles import UnreachableError
from shortlist.frontier import Frontier
from shortlist.predictors import CardinalityPath, PlugInSelector, SetPredictor
from shortlist.predictors.base import outcomes
from shortlist.predictors.nested import NestedSelector
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

Outcome: TypeAlias = tuple[NDArray[np.bool_], NDArray[np.integer]]
"""Whether each row's set holds the label, and its size."""
DELTA = 0.05
"""With which a path of selectors guarantees unless it is told otherwise."""


def _targets() -> tuple[float, ...]:
    """From a half to almost all, denser and denser, each of few decimals."""
    steps = ((500, 800, 20), (800, 900, 5), (900, 980, 2), (980, 1000, 1))
    return tuple(k / 1000 for a, b, step in steps for k in range(a, b, step))


TARGETS = _targets()
"""Accuracies that can be asked for."""


@dataclass(frozen=True)
class Points:
    """A method's sets of the test rows, at each of some accuracies.

    Attributes
    ----------
    hits, sizes : (rows, accuracies)
        Whether a row's set holds its label, and how many labels it holds.
    guaranteed, known : (accuracies,)
        Whether the sets are those for which the accuracy was guaranteed; and whether there are any:
        where nothing is guaranteed, they are the shortest of the curve that reach the accuracy on
        these rows, if the curve reaches it and has kept what each row contributes.
    """

    hits: NDArray[np.bool_]
    sizes: NDArray[np.int32]
    guaranteed: NDArray[np.bool_]
    known: NDArray[np.bool_]


def points_of(fitted: Fitted, accuracies: Sequence[float]) -> Points:
    """A method's sets of the test rows at each of the accuracies, by the model for it."""
    ranking, y, x = fitted.judged
    index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device)
    found: list[Outcome | None] = [None] * len(accuracies)
    for model, at in _by_model(fitted, accuracies):
        made = guaranteed(model, ranking, index, x, [accuracies[i] for i in at])
        for i, outcome in zip(at, made, strict=True):
            found[i] = outcome
    is_guaranteed = np.array([outcome is not None for outcome in found])
    for i, accuracy in enumerate(accuracies):
        if found[i] is None:
            found[i] = _on_curve(fitted.curves[fitted.nearest(accuracy)], accuracy)
    known = np.array([outcome is not None for outcome in found])
    hits = np.zeros((len(ranking), len(accuracies)), dtype=np.bool_)
    sizes = np.zeros((len(ranking), len(accuracies)), dtype=np.int32)
    for i, outcome in enumerate(found):
        if outcome is not None:
            hits[:, i], sizes[:, i] = outcome
    return Points(hits, sizes, is_guaranteed, known)


def _by_model(fitted: Fitted, accuracies: Sequence[float]) -> list[tuple[SetPredictor, list[int]]]:
    """Each model, and which of the accuracies it is used for."""
    parts: dict[int, tuple[SetPredictor, list[int]]] = {}
    for i, accuracy in enumerate(accuracies):
        model = fitted.model(accuracy)
        parts.setdefault(id(model), (model, []))[1].append(i)
    return list(parts.values())


def can_guarantee(model: SetPredictor) -> bool:
    """Whether a model is calibrated."""
    if isinstance(model, CardinalityPath):
        return getattr(model, "_path_calibration", None) is not None
    if isinstance(model, PlugInSelector) and not model.family_.nested:
        return False
    if isinstance(model, NestedSelector):
        return getattr(model, "_calibration", None) is not None
    return hasattr(model, "calibrate")


def guaranteed(
    model: SetPredictor,
    ranking: Ranking,
    index: Tensor,
    features: Tensor | None,
    accuracies: Sequence[float],
) -> list[Outcome | None]:
    """What the sets hold for which each accuracy is guaranteed; None where it cannot be.

    The same as `predict_set(..., accuracy=a)` for each of them, in one pass where that can be.
    """
    if not can_guarantee(model):
        return [None] * len(accuracies)
    if isinstance(model, CardinalityPath):
        return _of_path(model, ranking, index, features, accuracies)
    if isinstance(model, NestedSelector) and model.by is None:
        return _of_thresholds(model, ranking, index, features, accuracies)
    return [_predicted(model, ranking, index, features, accuracy) for accuracy in accuracies]


def _of_thresholds(
    model: NestedSelector,
    ranking: Ranking,
    index: Tensor,
    features: Tensor | None,
    accuracies: Sequence[float],
) -> list[Outcome | None]:
    thresholds = np.full(len(accuracies), np.nan)
    for i, accuracy in enumerate(accuracies):
        try:
            point, _ = model._operating_point(accuracy, None, None, None)
        except UnreachableError:
            continue
        assert not isinstance(point, Conditional)
        thresholds[i] = point
    ranking, features = model._rows(ranking, features)
    ranking = model._calibrated().shape.matched(ranking)
    asked = torch.from_numpy(thresholds[~np.isnan(thresholds)]).to(ranking.device)
    parts = []
    for rows, ranked, levels in model._blocks(ranking, features):
        own = levels.of_labels(ranked, index[rows]).to(torch.float64)
        parts.append((own[:, None] >= asked, levels.sizes_at_each(asked)))
    hits, sizes = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    every = np.isneginf(asked.cpu().numpy())  # every label there is, listed or not
    hits[:, every], sizes[:, every] = True, ranking.n_classes
    columns = iter(zip(hits.T, sizes.T, strict=True))
    return [None if np.isnan(q) else next(columns) for q in thresholds]


def _of_path(
    model: CardinalityPath,
    ranking: Ranking,
    index: Tensor,
    features: Tensor | None,
    accuracies: Sequence[float],
) -> list[Outcome | None]:
    assert model._path_calibration is not None
    ranking = model._ranking(ranking)
    choices = list(model._choices(ranking, features))
    hits, sizes = (t.cpu().numpy() for t in outcomes(model.family_, ranking, index, choices))
    found: list[Outcome | None] = []
    for accuracy in accuracies:
        try:
            member = model._path_calibration.member(accuracy, DELTA)
            found.append((hits[:, member], sizes[:, member]))
        except UnreachableError:
            found.append(None)
    return found


def _predicted(
    model: SetPredictor,
    ranking: Ranking,
    index: Tensor,
    features: Tensor | None,
    accuracy: float,
) -> Outcome | None:
    sets = sets_guaranteed(model, ranking, features, accuracy)
    if sets is None:
        return None
    y = ranking.classes.decode(index.cpu().numpy())
    held, sizes = to_tensor(sets.contains(y), "hits"), to_tensor(sets.sizes, "sizes")
    return held.cpu().numpy(), sizes.cpu().numpy()


def sets_guaranteed(
    model: SetPredictor, ranking: Ranking, features: Tensor | None, accuracy: float
) -> PredictionSets | None:
    """The sets for which an accuracy is guaranteed, if it can be."""
    if not can_guarantee(model):
        return None
    with warnings.catch_warnings():  # asked at many accuracies, it would warn as many times
        warnings.simplefilter("ignore", UserWarning)
        try:
            return model.predict_set(ranking, features, accuracy=accuracy)  # type: ignore[call-arg]
        except UnreachableError:
            return None


def _on_curve(curve: Frontier, accuracy: float) -> Outcome | None:
    """The shortest sets of the curve that reach an accuracy on its own rows."""
    best = np.flatnonzero(curve.accuracy >= accuracy)
    if curve.rows is None or not len(best):
        return None
    at = best[np.lexsort((-curve.accuracy[best], curve.mean_size[best]))[0]]
    hits, sizes = curve.rows
    return hits[:, at], sizes[:, at].round().astype(np.int64)
