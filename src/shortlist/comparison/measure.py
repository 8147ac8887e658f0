"""One method, fitted and measured."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.base import clone

from shortlist.comparison.result import Comparison, Fitted, Measured, Part, Rows
from shortlist.conformal.quantiles import UnreachableError
from shortlist.frontier import Frontier
from shortlist.metrics import class_accuracy, single_share, size_stratified_violation
from shortlist.predictors import PlugInSelector, SetPredictor, Shortlister
from shortlist.predictors.conformal import SplitConformal


def measure(
    name: str,
    method: SetPredictor,
    accuracies: Sequence[float],
    learned: Rows,
    kept: Rows | None,
    judged: Rows,
) -> Part:
    """Fit a method, and measure it at every accuracy."""
    curves: list[Frontier] = []
    found: list[Measured] = []
    fitted = Fitted({}, {}, judged)
    for accuracy in accuracies:
        if not curves or _is_tuned(method):
            begun = time.monotonic()
            model = _fitted(method, accuracy, learned, kept)
            seconds = time.monotonic() - begun
            curve = model.frontier(*judged)
            curves.append(curve)
        fitted.models[accuracy], fitted.curves[accuracy] = model, curve
        guaranteed = kept is not None and _can_guarantee(model)
        found.append(measured_at(name, model, accuracy, curve, judged, guaranteed, seconds))
    whole = curves[0] if len(curves) == 1 else _union(curves, name)
    return Part(name, found, model, whole, fitted)


def _is_tuned(method: SetPredictor) -> bool:
    """Whether a method is fitted for one accuracy."""
    return isinstance(method, SplitConformal) and method.score in ("raps", "saps")


def _fitted(
    method: SetPredictor, accuracy: float, learned: Rows, kept: Rows | None
) -> SetPredictor:
    model: SetPredictor = clone(method)
    if "calibration" in model.get_params():
        model.set_params(calibration=None)
    if _is_tuned(method):
        model.set_params(accuracy=accuracy)
    model.fit(*learned)
    if kept is not None and _can_guarantee(model):
        model.calibrate(*kept)
    return model


def _can_guarantee(model: SetPredictor) -> bool:
    """Whether a fitted method can be calibrated; the plug-in rule can if its sets are nested."""
    if isinstance(model, PlugInSelector):
        return model.family_.nested
    return hasattr(model, "calibrate")


def measured_at(
    name: str,
    model: SetPredictor,
    accuracy: float,
    curve: Frontier,
    judged: Rows,
    guaranteed: bool,
    seconds: float,
) -> Measured:
    """A fitted model at one accuracy, with what it guarantees if it is calibrated."""
    size = float(curve.size_at(accuracy))
    begun = time.monotonic()
    try:
        if not guaranteed:
            raise UnreachableError("nothing is guaranteed")
        sets = model.predict_set(judged[0], judged[2], accuracy=accuracy)  # type: ignore[call-arg]
    except UnreachableError:
        nan = math.nan
        return Measured(name, accuracy, size, nan, nan, nan, nan, nan, seconds, nan)
    spent = time.monotonic() - begun
    y = judged[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        worst = float(np.nanmin(class_accuracy(sets, y)))
    return Measured(
        name,
        accuracy,
        size,
        sets.accuracy(y),
        sets.mean_size,
        size_stratified_violation(sets, y, accuracy),
        worst,
        single_share(sets),
        seconds,
        spent,
    )


def _union(curves: Sequence[Frontier], name: str) -> Frontier:
    """The points of several curves as one."""
    return Frontier(
        np.concatenate([c.accuracy for c in curves]),
        np.concatenate([c.mean_size for c in curves]),
        np.concatenate([c.parameter for c in curves]),
        curves[0].parameter_name,
        name,
    )


def add_rescored(
    found: Comparison, learned: Rows, kept: Rows | None, judged: Rows, scores: Sequence[str]
) -> None:
    """LAC and others on re-scored probabilities, if there are any."""
    model = found.models.get("Shortlister")
    if not isinstance(model, Shortlister) or not model.rescored_:
        return

    def rescored(rows: Rows) -> Rows:
        return model.rescored(rows[0], rows[2]), rows[1], None

    # The rows that the Shortlister learned from have no part in their own scores.
    own: Rows = (model.out_of_fold(learned[0], learned[2]), learned[1], None)
    others = None if kept is None else rescored(kept), rescored(judged)
    for score in scores:
        method = SplitConformal(
            score,
            temperature=None,
            randomized=score != "lac",
            random_state=model.random_state,
        )
        name = f"{score.upper()}, re-scored"
        found.add(measure(name, method, found.accuracies, own, *others))
