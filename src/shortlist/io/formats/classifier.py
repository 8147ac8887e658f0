"""Format of a `ShortlistClassifier`, whose classifier is in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.base import BaseEstimator

from shortlist._utils.extras import require
from shortlist.io.estimators import dump_estimator, load_estimator
from shortlist.io.fields import (
    FLAG,
    LABELS,
    NONE,
    TEXT,
    array,
    choice,
    ensure,
    instance_of,
    integer,
    sequence_of,
)
from shortlist.io.format import Format
from shortlist.io.formats.models import ModelFormat, check_feature_names
from shortlist.io.formats.parameters import CONVERSIONS, leave_out, saved_parameters
from shortlist.io.model_folder import ESTIMATOR
from shortlist.learning.linear import LinearClassifier
from shortlist.predictors import SetPredictor
from shortlist.predictors.classifier import ShortlistClassifier
from shortlist.predictors.classifier.feature_encoder import KINDS, Column, FeatureEncoder

INLINE = (LinearClassifier, type(None))
"""Types of classifiers that are in the document. All others are written with skops."""


def _save_features(model: BaseEstimator, features: object) -> object:
    if callable(features):
        raise ValueError(
            "features is a function of your own, which a model file cannot contain; pickle the "
            "model, or save model.method_, which takes scores and features"
        )
    return features


CLASSIFIER_CONVERSIONS = {
    **CONVERSIONS,
    "estimator": lambda model, value: value if type(value) in INLINE else None,
    "features": _save_features,
    "cv": lambda model, value: (
        value if isinstance(value, int) else leave_out(model, "cv", value, 5)
    ),
}


class ClassifierFormat(ModelFormat):
    """How a `ShortlistClassifier` is written."""

    def predictor(self, model: Any) -> object:
        """Return the part of a model that computes sets from scores."""
        return model.method_

    def describe(self, model: Any) -> dict[str, object]:
        """Return the classifier in words, and the type of the set predictor."""
        return {
            "estimator": repr(model.estimator_),
            "method": type(model.method_).__name__,
            "features": model.feature_summary_,
        }

    def check_packages(self, model: Any) -> None:
        """Raise an ImportError without skops, unless the classifier is in the document."""
        if type(model.estimator_) not in INLINE:
            require(
                "skops", f"saving the scikit-learn classifier {type(model.estimator_).__name__}"
            )

    def dump_files(self, model: Any) -> dict[str, bytes]:
        """Return the classifier in the skops format, unless it is in the document."""
        return {} if type(model.estimator_) in INLINE else {ESTIMATOR: dump_estimator(model)}

    def load_files(self, model: Any, files: Mapping[str, bytes], trusted: frozenset[str]) -> None:
        """Read the classifier, if it is in a file of its own."""
        if ESTIMATOR in files:
            load_estimator(model, files[ESTIMATOR], trusted)
        ensure(model.estimator_ is not None, "it contains no classifier")

    def parameters_of(self, model: Any) -> dict[str, object]:
        """Return the parameters of a model as they can be saved."""
        return saved_parameters(model, CLASSIFIER_CONVERSIONS)

    def write(self, value: Any) -> Mapping[str, object]:
        """Return the parameters of a model, and its attributes if it is fitted."""
        state = dict(super().write(value))
        fitted: Any = state["fitted"]
        if fitted is not None and type(value.estimator_) not in INLINE:
            state["fitted"] = {**fitted, "estimator_": None}
        return state


def _check_column(column: Column) -> None:
    distinct = len(set(column.values)) == len(column.values)
    ensure(distinct, "Column has a value twice")
    is_used = column.kind == "category"
    ensure(is_used == bool(column.values), f"Column has values, but holds {column.kind!r}")


def _check_encoder(encoder: FeatureEncoder) -> None:
    known = all(
        isinstance(i, int) and 0 <= i < encoder.n_columns and isinstance(column, Column)
        for i, column in encoder.others.items()
    )
    ensure(known, "FeatureEncoder has columns that do not exist")


def _check_classifier(model: ShortlistClassifier) -> None:
    method: Any = model.method_
    ensure(hasattr(method, "_classes"), "the method is not fitted")
    classes = model.classes_.tolist()
    ensure(classes == method._classes.array().tolist(), "the method has other classes")
    estimator: Any = model.estimator_
    if estimator is not None:  # Otherwise it is in a file of its own.
        ensure(hasattr(estimator, "coef_"), "the classifier is not fitted")
        unknown = set(estimator.classes_.tolist()) - set(classes)
        ensure(not unknown, "the classifier has other classes")
    n_columns, encoder = model.n_features_in_, model._encoder
    if encoder is not None:
        n = encoder.n_columns
        ensure(n == n_columns, f"FeatureEncoder has {n} columns for {n_columns}")
    check_feature_names(model, n_columns)


COLUMN_FORMAT = Format(
    Column,
    {
        "name": TEXT,
        "kind": choice(*KINDS),
        "values": sequence_of(TEXT | NONE, container=tuple),
        "n_distinct": integer(),
    },
    check=_check_column,
)
ENCODER_FORMAT = Format(
    FeatureEncoder,
    {"means": array("f", 1), "others": instance_of(dict)},
    check=_check_encoder,
)
CLASSIFIER_FORMAT = ClassifierFormat(
    ShortlistClassifier,
    {
        "classes_": LABELS,
        "method_": instance_of(SetPredictor),
        "estimator_": instance_of(LinearClassifier) | NONE,
        "_encoder": instance_of(FeatureEncoder) | NONE,
        "_open_classes": FLAG,
        "n_features_in_": integer(),
    },
    check=_check_classifier,
)
