"""Models as ONNX graphs: from scores (and features) to prediction sets, in any runtime."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sklearn.exceptions import NotFittedError

from shortlist._arrays import check_choice, check_count
from shortlist.export._file import check_target, model_of, write
from shortlist.export._graph import F32, F64, Graph, require
from shortlist.export._models import Rows, cardinality, check_model, fixed, nested
from shortlist.export._points import Asked, Point, chosen_point, point_of
from shortlist.selectors import FixedSelector, SetPredictor, Shortlister
from shortlist.selectors._calibration import Conditional
from shortlist.selectors._learning import CardinalityBase
from shortlist.selectors._promise import NestedSelector

__all__ = ["export_onnx", "threshold_for"]


def export_onnx(
    model: SetPredictor,
    path: str | os.PathLike[str],
    *,
    accuracy: float | None = None,
    delta: float | None = None,
    mean_size: float | None = None,
    cost_weight: float | None = None,
    by: str | None = None,
    candidates: int | None = None,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Path:
    """Write a fitted model as one ONNX graph; see `SetPredictor.export_onnx`."""
    require("onnx")
    check_choice(dtype, "dtype", ("float32", "float64"))
    check_target(path, overwrite)
    if not hasattr(model, "_classes"):
        raise NotFittedError(
            f"this {type(model).__name__} is not fitted yet; call fit(scores, y) first"
        )
    check_model(model)
    point = point_of(model, Asked(accuracy, delta, mean_size, cost_weight, by))
    listed = _list_length(model, candidates)
    n = model._classes.n
    depth = _depth(model) if listed is None else listed
    graph = Graph()
    rows = Rows(graph, n, listed, F64 if dtype == "float64" else F32)
    if isinstance(model, NestedSelector):
        chosen = nested(model, rows, point, depth)
    elif isinstance(model, FixedSelector):
        chosen = fixed(model, rows, depth)
    else:
        assert isinstance(model, CardinalityBase)
        chosen = cardinality(model, rows, point, depth)
    name = type(model).__name__
    return write(model_of(graph, chosen, _metadata(model, point, name), name), path)


def _metadata(model: SetPredictor, point: Point, name: str) -> dict[str, Any]:
    return {
        "model": name,
        "promise": point.promise,
        "classes": model.classes_.tolist(),
        "score_type": model.score_type_,
        **point.metadata,
    }


def _depth(model: SetPredictor) -> int:
    """How many labels of a row with a score for every class are ranked."""
    kept = getattr(model, "_calibration", None)
    return model._classes.n if kept is None else int(kept.shape.depth)


def _list_length(model: SetPredictor, asked: int | None) -> int | None:
    """How long lists of candidates are at most; None for rows with a score for every class."""
    kept = getattr(model, "_calibration", None)
    dense = None if kept is None else kept.shape.dense
    least = 1 if kept is None or dense else kept.shape.lengths[1]
    if isinstance(model, Shortlister):
        dense = model._dense if dense is None else dense
        least = max(least, model._buckets.sizes[-1])
    if isinstance(model, CardinalityBase) and model._inputs.inputs != "features":
        least = model._inputs.score_depth
    if asked is None:
        return least if dense is False else None
    if check_count(asked, "candidates") > model._classes.n:
        raise ValueError(f"candidates = {asked} is more than the {model._classes.n} classes")
    if dense:
        raise ValueError(
            f"candidates = {asked}, but this {type(model).__name__} learned from rows with a score "
            "for every class; leave candidates out, or fit with lists of candidates"
        )
    if asked < least:
        raise ValueError(
            f"candidates = {asked}, but fit saw lists of up to {least}; give at least that "
            "(shorter lists are padded with -1)"
        )
    return asked


def threshold_for(
    model: NestedSelector,
    *,
    accuracy: float | None = None,
    delta: float | None = None,
    mean_size: float | None = None,
    cost_weight: float | None = None,
) -> float:
    """The number to give a graph's input `threshold` for an operating point.

    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(3000)
    >>> model = sl.SplitConformal("topk").fit(data.posterior, data.y)
    >>> threshold_for(model, accuracy=0.9)          # five labels
    -5.0
    """
    at, _ = chosen_point(model, Asked(accuracy, delta, mean_size, cost_weight))
    if isinstance(at, Conditional):
        raise ValueError(
            f"by = {at.by!r} makes a threshold for each {at.by}, not one; "
            "export with accuracy=..., or set_params(by=None)"
        )
    return at
