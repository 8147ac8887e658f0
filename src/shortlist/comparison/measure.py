"""The measurement of one method."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.base import clone

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.labels import count_unknown_labels
from shortlist.comparison.measurements import Measurement
from shortlist.comparison.result import FittedMethod, MethodResult
from shortlist.comparison.rows import LabeledRows
from shortlist.frontier import Frontier
from shortlist.metrics import class_accuracy, single_share, size_stratified_violation
from shortlist.predictors import SetPredictor
from shortlist.predictors.extra_rows import ExtraRows


def measure(
    name: str,
    method: SetPredictor,
    accuracies: Sequence[float],
    train: LabeledRows,
    calibration: LabeledRows | None,
    test: LabeledRows,
    extra: ExtraRows | None = None,
) -> MethodResult:
    """Fit a method and measure it at every accuracy.

    Parameters
    ----------
    name : str
        Name of the method.
    method : SetPredictor
        The method. It is cloned and stays unfitted.
    accuracies : sequence of float
        Accuracies to measure at.
    train : LabeledRows
        Rows to fit on.
    calibration : LabeledRows or None
        Calibration rows. Without them, no accuracy is guaranteed.
    test : LabeledRows
        Rows to measure on.
    extra : ExtraRows, optional
        More rows to fit on, without scores, for methods that take them.

    Returns
    -------
    MethodResult
        Measurements, curve and fitted models. A method that is tuned has a model for each
        accuracy.
    """
    curves: list[Frontier] = []
    measurements: list[Measurement] = []
    fitted = FittedMethod({}, {}, test)
    for accuracy in accuracies:
        if not curves or method.is_tuned:
            start = time.monotonic()
            model = _fit(method, accuracy, train, calibration, extra)
            seconds = time.monotonic() - start
            with count_unknown_labels():  # The validation of the test rows has warned about them.
                curves.append(model.frontier(*test))
        fitted.models[accuracy], fitted.curves[accuracy] = model, curves[-1]
        measurements.append(measure_at(name, model, accuracy, curves[-1], test, seconds))
    curve = curves[0] if len(curves) == 1 else _concatenate(curves, name)
    return MethodResult(name, measurements, model, curve, fitted)


def _fit(
    method: SetPredictor,
    accuracy: float,
    train: LabeledRows,
    calibration: LabeledRows | None,
    extra: ExtraRows | None,
) -> SetPredictor:
    """Fit a copy of a method, and calibrate it if it can be calibrated."""
    model: SetPredictor = clone(method)
    if "calibration" in model.get_params():
        model.set_params(calibration=None)
    if method.is_tuned:
        # The parameter can be that of a score inside the predictor: ConformalPredictor(RAPS()).
        names = [name for name in model.get_params() if name.split("__")[-1] == "accuracy"]
        model.set_params(**dict.fromkeys(names, accuracy))
    model.fit(*train, **extra_options(model, extra))
    if calibration is not None and model.can_calibrate:
        model.calibrate(*calibration)
        if not model.is_calibrated:
            raise ValueError(
                f"{type(model).__name__}.n_calibration is 0 after calibrate; override the "
                "property so that it returns the number of calibration rows"
            )
    return model


def extra_options(model: SetPredictor, extra: ExtraRows | None) -> dict[str, ArrayLike]:
    """Return extra rows as keyword arguments of a method; none if it does not take them."""
    return {} if extra is None or not model.takes_extra_rows else extra._asdict()


def measure_at(
    name: str,
    model: SetPredictor,
    accuracy: float,
    curve: Frontier,
    test: LabeledRows,
    fit_seconds: float,
) -> Measurement:
    """Measure a fitted model at one accuracy.

    Parameters
    ----------
    name : str
        Name of the method.
    model : SetPredictor
        The fitted model.
    accuracy : float
        Accuracy to reach, and to guarantee if the model is calibrated.
    curve : Frontier
        The model's curve on the test rows.
    test : LabeledRows
        Rows to measure on.
    fit_seconds : float
        Seconds that fitting and calibration took.

    Returns
    -------
    Measurement
        Sizes, accuracies and times at this accuracy.
    """
    size = float(curve.size_at(accuracy))
    start = time.monotonic()
    sets = model.predict_if_reachable(test.ranking, test.features, accuracy=accuracy)
    predict_seconds = time.monotonic() - start
    if sets is None:
        nan = math.nan
        return Measurement(name, accuracy, size, nan, nan, nan, nan, nan, fit_seconds, nan)
    with warnings.catch_warnings(), count_unknown_labels():
        # NumPy warns if every class is NaN.
        warnings.simplefilter("ignore", RuntimeWarning)
        worst_class = float(np.nanmin(class_accuracy(sets, test.y)))
        measured_accuracy = sets.accuracy(test.y)
        violation = size_stratified_violation(sets, test.y, accuracy)
    return Measurement(
        name,
        accuracy,
        size,
        measured_accuracy,
        sets.mean_size,
        violation,
        worst_class,
        single_share(sets),
        fit_seconds,
        predict_seconds,
    )


def _concatenate(curves: Sequence[Frontier], name: str) -> Frontier:
    """Return the points of several curves as one curve."""
    return Frontier(
        np.concatenate([c.accuracy for c in curves]),
        np.concatenate([c.mean_size for c in curves]),
        np.concatenate([c.parameter for c in curves]),
        curves[0].parameter_name,
        name,
    )
