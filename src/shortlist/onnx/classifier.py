"""Write a classifier together with its set predictor: one graph from X to prediction sets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from shortlist._utils.atomic_write import check_target
from shortlist._utils.extras import require
from shortlist._utils.sklearn_inputs import as_numeric_matrix
from shortlist._utils.validation import check_choice
from shortlist._utils.warnings import warn
from shortlist.onnx.export import onnx_graph
from shortlist.onnx.file import write
from shortlist.onnx.graph import IR_VERSION, OPSET, require_package
from shortlist.predictors.classifier import ShortlistClassifier
from shortlist.predictors.classifier.inputs import CLASSIFIER_ROUNDING

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

PREFIX = "classifier_"
"""Prefix of the names of the classifier's part of the graph."""
MAX_CHECKED = 1000
"""Number of rows on which the graph is compared with the classifier."""
ALONE = (
    "export_onnx(path) without X writes the set predictor alone, from scores (and features) to sets"
)


def export_classifier(
    model: ShortlistClassifier,
    path: str | os.PathLike[str],
    X: object = None,
    *,
    dtype: str = "float32",
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Write a fitted `ShortlistClassifier` as one ONNX graph, from X to prediction sets.

    The classifier is converted by skl2onnx: ``pip install 'shortlist[onnx,skl2onnx]'``.

    Parameters
    ----------
    model : ShortlistClassifier
        Fitted model.
    path : path-like
        File to write. It appears when it is complete.
    X : table of numbers with n_rows rows, optional
        Some rows like those of `fit`. The scores that the graph computes for them are compared
        with those of the classifier. Without X, the set predictor is written alone: a graph from
        the scores of the classifier (and features) to sets, which does not need skl2onnx. A
        warning says so if the features are columns of X that were encoded, such as categories.
    dtype : {"float32", "float64"}, default="float32"
        Type of the inputs.
    overwrite : bool, default=False
        Whether to replace an existing file.
    **options
        Operating point, as in :func:`shortlist.export_onnx`.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If the classifier cannot be converted, or if the graph computes other scores than the
        classifier.
    FileExistsError
        If the file exists and `overwrite` is False.

    Notes
    -----
    The graph has the input `X`, of shape (n_rows, n_features_in_), in place of `scores` and
    `features`. All else is as in :func:`shortlist.export_onnx`.

    skl2onnx 1.20 with scikit-learn 1.9 converts logistic regression, naive Bayes, support vector
    machines, random forests, gradient boosting, perceptrons, and pipelines of them with numeric
    steps. It does not convert `HistGradientBoostingClassifier`, and trees need float32.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn.datasets import load_iris
    >>> import shortlist as sl
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = sl.ShortlistClassifier(method=sl.SplitConformal("lac")).fit(X, y)
    >>> with TemporaryDirectory() as folder:
    ...     path = clf.export_onnx(f"{folder}/sets.onnx", accuracy=0.9)  # from scores to sets
    """
    check_is_fitted(model, "method_")
    require_package("onnx")
    if X is not None:
        require("skl2onnx", "export_onnx(path, X)")
    check_choice(dtype, "dtype", ("float32", "float64"))
    check_target(path, overwrite=overwrite, example="model.onnx")
    if X is None:
        sets = onnx_graph(model.method_, dtype=dtype, **options)
        if _has_features(sets):
            _warn_about_encoded_features(model)
        return write(sets, path)
    rows = _check_rows(model, X)[:MAX_CHECKED].astype(dtype)
    classifier = _convert(model, rows)
    sets = onnx_graph(model.method_, dtype=dtype, **options)
    if _has_features(sets):
        _check_features(model, rows)
    joined = _join(classifier, sets, model, rows)
    _compare(joined, model, rows)
    return write(joined, path)


def _warn_about_encoded_features(model: ShortlistClassifier) -> None:
    """Warn if the features that the set predictor alone needs are computed from X in Python."""
    encoder = model._encoder
    if encoder is not None and encoder.others:
        warn(
            "besides the scores, the graph has the input `features`, which fit encoded from X "
            f"({encoder.describe()}): it needs the same numbers. For a graph from scores alone, "
            "fit with features=None"
        )


def _check_rows(model: ShortlistClassifier, X: object) -> NDArray[np.generic]:
    """Return X as a matrix of numbers; raise if it is none, or has other columns than in `fit`."""
    matrix = as_numeric_matrix(model._inputs.match_columns(X))
    if matrix is None or not len(matrix):
        raise ValueError(
            f"X must be a dense table of numbers with at least one row to be the input of a graph; "
            f"got {type(X).__name__} of shape {getattr(X, 'shape', '?')}. {ALONE}"
        )
    if matrix.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {matrix.shape[1]} columns, but fit saw {model.n_features_in_}; give rows like "
            "those of fit"
        )
    return matrix


def _convert(model: ShortlistClassifier, rows: NDArray[np.generic]) -> ModelProto:
    """Return the classifier as a graph, whose second output are the scores."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    fitted: Any = model.estimator_
    if isinstance(fitted, FrozenEstimator):
        fitted = fitted.estimator
    if len(fitted.classes_) != len(model.classes_):
        raise ValueError(
            f"the classifier knows {len(fitted.classes_)} of {len(model.classes_)} classes, so "
            f"that its scores are completed in Python. {ALONE}"
        )
    tensor = FloatTensorType if rows.dtype == np.float32 else DoubleTensorType
    has_proba = hasattr(fitted, "predict_proba")
    try:
        graph: ModelProto = to_onnx(
            fitted,
            initial_types=[("X", tensor([None, rows.shape[1]]))],
            options=None if has_proba else {"raw_scores": True},
            target_opset={"": OPSET, "ai.onnx.ml": 3},
        )
    except Exception as error:  # skl2onnx raises errors of many types, with long messages.
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"skl2onnx cannot convert the classifier {type(fitted).__name__}: {reason}. {ALONE}"
        ) from error
    return graph


def _has_features(sets: ModelProto) -> bool:
    """Return whether the set predictor uses features."""
    return "features" in [value.name for value in sets.graph.input]


def _check_features(model: ShortlistClassifier, rows: NDArray[np.generic]) -> None:
    """Raise unless the features are X itself, with missing values replaced."""
    features = model._inputs.features(rows)
    known = np.isfinite(rows)
    plain = None if features is None else np.asarray(features)
    if plain is None or plain.shape != rows.shape or (plain != rows)[known].any():
        raise ValueError(f"the features of the set predictor are computed in Python. {ALONE}")


Part: TypeAlias = "tuple[list[NodeProto], list[TensorProto]]"
"""Nodes of a graph, and their constants."""


def _join(
    classifier: ModelProto,
    sets: ModelProto,
    model: ShortlistClassifier,
    rows: NDArray[np.generic],
) -> ModelProto:
    """Return one graph, in which X is the input of the classifier and of the set predictor."""
    from onnx import compose, helper

    first, second = compose.add_prefix_graph(classifier.graph, PREFIX), sets.graph
    start = helper.make_tensor_value_info(
        "X", helper.np_dtype_to_tensor_dtype(rows.dtype), ["rows", rows.shape[1]]
    )
    kept = [value for value in second.input if value.name not in ("scores", "features")]
    element = next(v for v in second.input if v.name == "scores").type.tensor_type.elem_type
    nodes, constants = _score_part(first, model, rows.dtype, element)
    if _has_features(sets):
        more_nodes, more_constants = _feature_part(model, rows)
        nodes, constants = nodes + more_nodes, constants + more_constants
    graph = helper.make_graph(
        [*nodes, *second.node],
        second.name,
        [start, *kept],
        list(second.output),
        initializer=[*constants, *first.initializer, *second.initializer],
    )
    versions = {opset.domain: opset.version for opset in classifier.opset_import}
    versions |= {opset.domain: opset.version for opset in sets.opset_import}
    joined = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(domain, n) for domain, n in versions.items()],
        ir_version=IR_VERSION,
        producer_name=sets.producer_name,
        producer_version=sets.producer_version,
    )
    helper.set_model_props(joined, {entry.key: entry.value for entry in sets.metadata_props})
    return joined


def _score_part(
    classifier: GraphProto, model: ShortlistClassifier, dtype: np.dtype[Any], element: int
) -> Part:
    """Return the part that computes "scores" of the type `element` from "X"."""
    from onnx import helper, numpy_helper

    nodes, scores = list(classifier.node), classifier.output[1].name
    for node in classifier.node:
        if node.op_type == "ZipMap":  # It makes dictionaries of the scores.
            scores = node.input[0]
            nodes.remove(node)
    nodes.insert(0, helper.make_node("Identity", ["X"], [classifier.input[0].name]))
    constants = []
    if not hasattr(model.estimator_, "predict_proba") and len(model.classes_) == 2:
        # The decision value s of two classes gives the scores -s/2 and s/2.
        halves = np.array([[-0.5, 0.5]], dtype=dtype)
        constants.append(numpy_helper.from_array(np.array([-1]), "last_column"))
        constants.append(numpy_helper.from_array(halves, "halves"))
        nodes.append(helper.make_node("Gather", [scores, "last_column"], ["decision"], axis=1))
        nodes.append(helper.make_node("Mul", ["decision", "halves"], ["both_decisions"]))
        scores = "both_decisions"
    nodes.append(helper.make_node("Cast", [scores], ["scores"], to=element))
    return nodes, constants


def _feature_part(model: ShortlistClassifier, rows: NDArray[np.generic]) -> Part:
    """Return the part that computes "features" from "X", without missing values."""
    from onnx import helper, numpy_helper

    encoder = model._encoder
    means = np.zeros(rows.shape[1]) if encoder is None else encoder.means
    filled = ["missing_features", "feature_means", "X"]
    nodes = [
        helper.make_node("IsNaN", ["X"], ["missing_features"]),
        helper.make_node("Where", filled, ["features"]),
    ]
    return nodes, [numpy_helper.from_array(means.astype(rows.dtype), "feature_means")]


def _compare(graph: ModelProto, model: ShortlistClassifier, rows: NDArray[np.generic]) -> None:
    """Raise if the graph computes other scores than the classifier, or cannot be run."""
    import onnx
    import onnxruntime  # type: ignore[import-untyped]

    checked = onnx.ModelProto()
    checked.CopyFrom(graph)
    checked.graph.ClearField("output")
    element = onnx.helper.np_dtype_to_tensor_dtype(rows.dtype)
    checked.graph.output.append(onnx.helper.make_tensor_value_info("scores", element, None))
    name = type(model.estimator_).__name__
    try:
        session = onnxruntime.InferenceSession(checked.SerializeToString())
        (scores,) = session.run(["scores"], {"X": rows, **_unused_inputs(session)})
    except Exception as error:  # The errors of onnxruntime have no common type.
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"onnxruntime cannot run the {name}: {reason}. {ALONE}") from error
    expected = model._inputs.scores(rows)
    shape = np.shape(scores)
    if shape != expected.shape:
        raise ValueError(
            f"the graph of the {name} returns scores of shape {shape} in place of "
            f"{expected.shape}. {ALONE}"
        )
    # A difference of decision values is a relative difference of probabilities.
    is_proba = hasattr(model.estimator_, "predict_proba")
    scale = np.maximum(expected, CLASSIFIER_ROUNDING) if is_proba else 1.0
    wrong = np.abs(scores - expected) > CLASSIFIER_ROUNDING * scale
    if wrong.any():
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        largest = float(np.abs(scores - expected).max())
        raise ValueError(
            f"the graph of the {name} computes other scores than the classifier (row {row} of X; "
            f"largest difference {largest:.2g}). Try dtype='float64' or 'float32', or a "
            f"classifier that skl2onnx computes exactly. {ALONE}"
        )


def _unused_inputs(session: Any) -> dict[str, NDArray[np.generic]]:
    """Return values for the inputs of the set predictor, which the scores do not depend on."""
    types = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(double)": np.float64}
    return {
        value.name: np.zeros([1] * len(value.shape), dtype=types[value.type])
        for value in session.get_inputs()
        if value.name != "X"
    }
