"""Write a fitted model as an ONNX file."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sklearn.exceptions import NotFittedError

from shortlist._utils.atomic_write import check_target
from shortlist._utils.validation import check_choice, check_count
from shortlist.onnx.file import onnx_model, write
from shortlist.onnx.graph import F32, F64, require_package
from shortlist.onnx.model_graph import ModelGraph
from shortlist.onnx.operating_points import OperatingPoint
from shortlist.onnx.overrides import PREDICTION, check_overrides
from shortlist.onnx.sets import GraphSets
from shortlist.predictors import ConformalPredictor, SetPredictor

if TYPE_CHECKING:
    from onnx import ModelProto


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
    """Write a fitted model as one ONNX graph, from scores (and features) to prediction sets.

    Needs ``pip install 'shortlist[onnx]'``. The graph does not validate scores.

    Parameters
    ----------
    model : SetPredictor
        Fitted model. A model of your own must implement :meth:`SetPredictor.onnx_sets`, a
        conformity score :meth:`ConformityScore.onnx_levels`, and a family
        :meth:`Family.onnx_sizes`.
    path : path-like
        File to write. It appears when it is complete.
    accuracy, delta, mean_size, cost_weight : float, optional
        Operating point, as in `predict_set`. If none is given, it is an input of the graph:
        `threshold`, or `member` for a `CardinalityPath`. The input is the threshold, not the
        accuracy, because the quantile rank of an accuracy needs exact arithmetic.
        :func:`shortlist.onnx.threshold_for` returns the threshold of an operating point, and the
        metadata contain a table of common accuracies.
    by : str, optional
        What the guarantee is conditional on, as in `predict_set`.
    candidates : int, optional
        Largest number of candidates of a row, if rows are candidates. The default is known if the
        model was calibrated with candidates, or if a Shortlister was fitted on them.
    dtype : {"float32", "float64"}, default="float32"
        Type of the inputs `scores` and `features`.
    overwrite : bool, default=False
        Whether to replace an existing file.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If the model, its score or its family has no graph, or the operating point is invalid.
    FileExistsError
        If the file exists and `overwrite` is False.

    Notes
    -----
    The inputs of the graph are those of the following that the model uses:

    ============  ========  ===============================  =====================================
    name          type      shape                            content
    ============  ========  ===============================  =====================================
    `candidates`  int64     (rows, candidates)               label indices, padded with -1
    `scores`      `dtype`   (rows, classes or candidates)    scores, of the type that `fit` saw
    `features`    `dtype`   (rows, columns)                  features, in the order of `fit`
    `groups`      int64     (rows,)                          index into `groups` of the metadata;
                                                             -1 for unknown groups
    `noise`       float64   (rows,)                          for randomized scores: uniform in
                                                             (0, 1]
    `threshold`   float64   ()                               without an operating point; it is
                                                             lambda for scores whose levels are
                                                             cost weights
    `member`      int64     ()                               for a path: index into
                                                             `cost_weights` of the metadata
    ============  ========  ===============================  =====================================

    There are three outputs. `labels`, int64 (rows, largest size), are label indices, best first,
    padded with -1. `sizes` is int64 (rows,). `index`, int64 (rows,), is the chosen member of the
    family; it is ``sizes - 1`` if every size is a member (`Shortlister`, `SplitConformal`) or if
    sets belong to no member (``by="class"``).

    The metadata have `classes` (JSON), `guarantee` (a sentence), `guarantee_fields` (JSON),
    `operating_point` (JSON), `score_type`, `model`, `format` and `shortlist_version`.

    The sets are those of `predict_set`, except for rounding: a level within a few millionths of
    the threshold may be on its other side. Thresholds are lowered where that could break the
    guarantee.

    The graph does not split batches. A Shortlister that re-scores needs memory for the number of
    rows times the number of neighbors (at most 50,000), so batches of about a thousand rows are
    best.

    The guarantee holds for any random numbers that are given as `noise`. `predict_set` derives
    them from the row.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np, onnxruntime, shortlist as sl
    >>> data = sl.datasets.gaussian(3000)
    >>> model = sl.SplitConformal("lac").fit(data.posterior, data.y)
    >>> with TemporaryDirectory() as folder:
    ...     path = sl.export_onnx(model, f"{folder}/model.onnx", accuracy=0.9)
    ...     session = onnxruntime.InferenceSession(path)
    >>> labels, sizes, index = session.run(None, {"scores": np.float32(data.posterior[:1])})
    >>> sets = model.predict_set(data.posterior[:1], accuracy=0.9)
    >>> labels[0, : sizes[0]].tolist() == sets.labels()[0]
    True
    """
    require_package("onnx")
    check_target(path, overwrite=overwrite, example="model.onnx")
    graph = onnx_graph(
        model,
        accuracy=accuracy,
        delta=delta,
        mean_size=mean_size,
        cost_weight=cost_weight,
        by=by,
        candidates=candidates,
        dtype=dtype,
    )
    return write(graph, path)


def onnx_graph(
    model: SetPredictor,
    *,
    accuracy: float | None = None,
    delta: float | None = None,
    mean_size: float | None = None,
    cost_weight: float | None = None,
    by: str | None = None,
    candidates: int | None = None,
    dtype: str = "float32",
) -> ModelProto:
    """Return the graph of a fitted model; see `export_onnx`."""
    check_choice(dtype, "dtype", ("float32", "float64"))
    if hasattr(model, "method_"):
        raise ValueError(
            f"a {type(model).__name__} takes X, not scores; call its method export_onnx(path, X), "
            "or export its attribute method_"
        )
    if not hasattr(model, "_classes"):
        raise NotFittedError(
            f"this {type(model).__name__} is not fitted yet; call fit(scores, y) first"
        )
    check_overrides(model, SetPredictor, "onnx_sets", PREDICTION)
    point = OperatingPoint(accuracy, delta, mean_size, cost_weight, by)
    n_candidates = _n_candidates(model, candidates)
    depth = n_candidates or model.accepted_rows().depth or model._classes.n
    graph = ModelGraph(model._classes.n, depth, n_candidates, F64 if dtype == "float64" else F32)
    sets: GraphSets = model.onnx_sets(graph, point)
    metadata = {
        "model": type(model).__name__,
        "guarantee": str(sets.guarantee),
        "guarantee_fields": asdict(sets.guarantee),
        "classes": model.classes_.tolist(),
        "score_type": model.score_type_,
        **sets.metadata,
    }
    return onnx_model(graph.graph, sets, metadata, type(model).__name__)


def _n_candidates(model: SetPredictor, given: int | None) -> int | None:
    """Return the largest number of candidates of a row; None if every class has a score."""
    accepted = model.accepted_rows()
    if given is None:
        return accepted.candidates if accepted.dense is False else None
    if check_count(given, "candidates") > model._classes.n:
        raise ValueError(f"candidates = {given} is more than the {model._classes.n} classes")
    if accepted.dense:
        raise ValueError(
            f"candidates = {given}, but this {type(model).__name__} learned from rows with a score "
            "for every class; leave candidates out, or fit with candidates"
        )
    if given < accepted.candidates:
        raise ValueError(
            f"candidates = {given}, but fit saw up to {accepted.candidates} in a row; give at "
            "least that many (rows with fewer are padded with -1)"
        )
    return given


def threshold_for(
    model: ConformalPredictor,
    *,
    accuracy: float | None = None,
    delta: float | None = None,
    mean_size: float | None = None,
    cost_weight: float | None = None,
) -> float:
    """Return the value of a graph's input `threshold` for an operating point.

    Parameters
    ----------
    model : ConformalPredictor
        The model that was exported.
    accuracy, delta, mean_size, cost_weight : float, optional
        Operating point, as in `predict_set`.

    Returns
    -------
    float
        The threshold.

    Raises
    ------
    ValueError
        If the model has a threshold for each class or group, or the operating point is invalid.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(3000)
    >>> model = sl.SplitConformal("topk").fit(data.posterior, data.y)
    >>> threshold_for(model, accuracy=0.9)  # Sets of five labels.
    -5.0
    """
    thresholds = model.thresholds(
        accuracy=accuracy, delta=delta, mean_size=mean_size, cost_weight=cost_weight
    )
    if thresholds.per != "set":
        raise ValueError(
            f"by = {thresholds.per!r} has a threshold for each {thresholds.per}, not one; "
            "export with accuracy=..., or set_params(by=None)"
        )
    return float(thresholds.values)
