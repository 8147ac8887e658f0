"""Models as ONNX graphs: from scores (and features) to prediction sets, in any runtime."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sklearn.exceptions import NotFittedError

from shortlist._utils.arrays import check_choice, check_count
from shortlist.conformal.calibration import Conditional
from shortlist.onnx.file import check_target, model_of, write
from shortlist.onnx.graph import F32, F64, Graph, require
from shortlist.onnx.models import Rows, cardinality, check_model, fixed, nested
from shortlist.onnx.operating_points import Asked, Point, chosen_point, point_of
from shortlist.predictors import FixedSelector, SetPredictor, Shortlister
from shortlist.predictors.cardinality.fitting import CardinalityBase
from shortlist.predictors.nested import NestedSelector

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
    """Write the fitted model as one ONNX graph, from scores (and features) to sets.

    Needs `pip install 'shortlist[onnx]'`. Scores are not checked in the graph.

    Parameters
    ----------
    path : path
        The file to write. It appears whole or not at all.
    accuracy, delta, mean_size, cost_weight, by
        The operating point, as in `predict_set`. None of them: it is an input of the graph,
        `threshold`, or `member` of a `CardinalityPath`. It is the threshold, not the accuracy,
        since the rank of an accuracy among the calibration rows is counted in exact
        arithmetic, which a graph has not; `shortlist.onnx.threshold_for(model, accuracy=…)`
        translates, and the file brings a table of common accuracies along.
    candidates : int, optional
        For lists of candidates, the length of the longest. Known, and not needed, if the
        model was calibrated with, or a Shortlister fitted on, such lists.
    dtype : "float32" or "float64"
        Type of the inputs `scores` and `features`.
    overwrite : bool
        Whether a file of this name may be replaced.

    Returns
    -------
    Path

    Notes
    -----
    Inputs, each only where the model has a use for it:

    | name | type | shape | |
    |---|---|---|---|
    | candidates | int64 | (rows, candidates) | label indices of lists, padded with -1 |
    | scores | `dtype` | (rows, classes or candidates) | of the kind that fit saw |
    | features | `dtype` | (rows, columns) | in the order that fit saw |
    | groups | int64 | (rows,) | by="group": place in `groups` of the metadata; -1: none |
    | noise | float64 | (rows,) | of randomized scores: uniform in (0, 1] |
    | threshold | float64 | () | without an operating point; of `cost_weight`, lambda itself |
    | member | int64 | () | of a path: place in `cost_weights` of the metadata |

    Outputs are `labels`, int64 (rows, longest set), label indices, best first, padded with -1;
    `sizes`, int64 (rows,); and `index`, int64 (rows,): the member of the family that was
    chosen. Where every size is a member (`Shortlister`, `SplitConformal`), or sets are no
    member's (by="class"), it is `sizes - 1`. The metadata have `classes` (JSON), `guarantee`,
    `operating_point` (JSON), `score_type`, `model`, `format` and `shortlist_version`.

    Sets are those of `predict_set`, but for rounding: thresholds are lowered by a few
    millionths, so that labels whose level is the threshold itself stay in their sets, however
    another runtime rounds it. The guarantee holds.

    A batch is worked on at once: a Shortlister that re-scores takes memory for rows times
    neighbours (50,000 at most), so that batches of a thousand rows or so are best.

    `noise` may be any random numbers: the guarantee holds. `predict_set` makes them of the row
    itself.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np, onnxruntime, shortlist as sl
    >>> data = sl.datasets.gaussian(3000)
    >>> model = sl.SplitConformal("lac").fit(data.posterior, data.y)
    >>> with TemporaryDirectory() as folder:
    ...     path = model.export_onnx(f"{folder}/model.onnx", accuracy=0.9)
    ...     session = onnxruntime.InferenceSession(path)
    >>> labels, sizes, index = session.run(None, {"scores": np.float32(data.posterior[:1])})
    >>> sets = model.predict_set(data.posterior[:1], accuracy=0.9)
    >>> labels[0, : sizes[0]].tolist() == sets.labels()[0]
    True
    """
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
        "guarantee": point.guarantee,
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
