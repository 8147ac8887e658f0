"""The operating point of a graph: fixed at export, or an input of the graph."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from shortlist.conformal.calibrators import Thresholds
from shortlist.conformal.quantiles import UnreachableError
from shortlist.guarantee import Guarantee
from shortlist.predictors import ConformalPredictor

ACCURACIES = (*(round(0.5 + 0.01 * i, 2) for i in range(50)), 0.995, 0.998, 0.999)
"""Accuracies whose thresholds are in the metadata if the threshold is an input."""
GOALS = {"accuracy", "mean_size", "cost_weight"}


@dataclass(frozen=True)
class OperatingPoint:
    """Operating point of `export_onnx`. If nothing is given, it is an input of the graph.

    Parameters
    ----------
    accuracy, delta, mean_size, cost_weight : float, optional
        As in `predict_set`.
    by : str, optional
        As in `predict_set`.

    Examples
    --------
    >>> OperatingPoint(accuracy=0.9).given
    {'accuracy': 0.9}
    """

    accuracy: float | None = None
    delta: float | None = None
    mean_size: float | None = None
    cost_weight: float | None = None
    by: str | None = None

    @property
    def given(self) -> dict[str, object]:
        """The parameters that were given."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def check(self, model: object, *allowed: str) -> None:
        """Raise if a model does not have a parameter, or if `delta` or `by` is given alone.

        Parameters
        ----------
        model : object
            The model, for the message.
        *allowed : str
            Names of the parameters that the model has.

        Raises
        ------
        ValueError
            If another parameter was given, or `delta` or `by` without an operating point.
        """
        given = {name: f"{name} = {value!r}" for name, value in self.given.items()}
        unknown = [text for name, text in given.items() if name not in allowed]
        if unknown:
            known = ", ".join(allowed) or "no operating point"
            raise ValueError(f"{' and '.join(unknown)}: a {type(model).__name__} takes {known}")
        if given and not given.keys() & GOALS:
            raise ValueError(
                f"{' and '.join(given.values())} needs an accuracy; give accuracy=... too"
            )


@dataclass(frozen=True)
class ResolvedPoint:
    """Thresholds of a model at an operating point.

    Attributes
    ----------
    thresholds : Thresholds or None
        None if the threshold is an input of the graph.
    guarantee : Guarantee
        What the sets guarantee.
    metadata : mapping of str to object
        What the file says about the operating point.
    """

    thresholds: Thresholds | None
    guarantee: Guarantee
    metadata: Mapping[str, object]


def resolve(model: ConformalPredictor, point: OperatingPoint) -> ResolvedPoint:
    """Return the thresholds of a conformal predictor at an operating point."""
    point.check(model, "accuracy", "delta", "mean_size", "cost_weight", "by")
    if not point.given:
        return _as_input(model)
    thresholds = model.thresholds(**vars(point))
    known, metadata = dict(point.given), dict[str, object]()
    if thresholds.per == "set":
        known["threshold"] = _json_number(float(thresholds.values))
    else:
        known["by"] = thresholds.per
    if thresholds.per == "group":
        metadata["groups"] = list(thresholds.groups)
    return ResolvedPoint(thresholds, thresholds.guarantee, {"operating_point": known, **metadata})


def _as_input(model: ConformalPredictor) -> ResolvedPoint:
    """Return the point of a graph whose threshold is an input."""
    per = model.conditional_on
    if per is not None:
        raise ValueError(
            f"by = {per!r} needs a threshold for each {per}, which cannot be an input; "
            "give accuracy=..., or fit with by=None"
        )
    table = _table(model)
    note = "thresholds that guarantee an accuracy are in the metadata" if table else ""
    guarantee = Guarantee("none", operating_point="the threshold is an input").with_note(note)
    metadata = {"operating_point": {"input": "threshold"}, "thresholds": table}
    return ResolvedPoint(None, guarantee, metadata)


def _table(model: ConformalPredictor) -> list[list[float]]:
    """Return the accuracies that can be guaranteed, each with its threshold."""
    table: list[list[float]] = []
    for accuracy in ACCURACIES if model.is_calibrated else ():
        try:
            thresholds = model.thresholds(accuracy=accuracy)
        except UnreachableError:
            break  # Higher accuracies cannot be guaranteed either.
        number = _json_number(float(thresholds.values)) if thresholds.per == "set" else None
        if number is None:
            break
        table.append([accuracy, number])
    return table


def _json_number(threshold: float) -> float | None:
    """Return a threshold as JSON can express it: minus infinity becomes None."""
    return None if threshold == -math.inf else min(threshold, sys.float_info.max)
