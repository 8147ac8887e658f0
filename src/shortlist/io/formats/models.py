"""Formats of set predictors and of the linear classifier."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shortlist._utils.labels import Classes
from shortlist.conformal.calibration import Calibration
from shortlist.conformal.path_calibration import PathCalibration
from shortlist.conformal.scores import ConformityScore
from shortlist.io.fields import (
    COUNT,
    FLAG,
    LABELS,
    NONE,
    SCALE,
    TEXT,
    WEIGHT,
    Field,
    array,
    choice,
    ensure,
    instance_of,
    sequence_of,
)
from shortlist.io.format import Format, check_fields
from shortlist.io.formats.calibrations import is_index
from shortlist.io.formats.families import FAMILY, SCORE_TYPE, check_family
from shortlist.io.formats.networks import SELECTOR_NETWORK, outputs_of
from shortlist.io.formats.parameters import check_parameters, save_cost, saved_parameters
from shortlist.io.formats.scores import check_score
from shortlist.learning.linear import LinearClassifier
from shortlist.learning.training import History
from shortlist.predictors import (
    CardinalityPath,
    CardinalitySelector,
    ConformalPredictor,
    FixedSelector,
    PlugInSelector,
    Shortlister,
)
from shortlist.predictors.cardinality.inputs import INPUTS, SelectorInputs
from shortlist.predictors.retrained import RetrainedClassifier
from shortlist.predictors.split_conformal import SplitConformal
from shortlist.predictors.training_rows import TrainingRows
from shortlist.ranking.score_types import ScoreType

STATE: Mapping[str, Field] = {"parameters": instance_of(dict), "fitted": instance_of(dict) | NONE}
OPTIONAL: Mapping[str, Field] = {
    "feature_names_in_": LABELS,
    "_score_columns": sequence_of(TEXT) | NONE,
    "_costs_are_table": FLAG,
}
"""Attributes that a fitted model may lack: names of columns, and how a selector was fitted."""


class ModelFormat(Format):
    """How a model is written: its parameters, and the attributes that `fit` set.

    `fields` are the attributes of a fitted model, and `check` is called for fitted models alone.
    """

    def is_fitted(self, model: object) -> bool:
        """Return whether a model has all attributes that `fit` sets."""
        return all(hasattr(model, name) for name in self.fields)

    def predictor(self, model: Any) -> object:
        """Return the part of a model that computes sets from scores."""
        return model

    def describe(self, model: Any) -> dict[str, object]:
        """Return what a file says about a model, besides what it says about every model."""
        return {}

    def check_packages(self, model: Any) -> None:
        """Raise an ImportError if `dump_files` needs a package that is not installed."""

    def dump_files(self, model: Any) -> dict[str, bytes]:
        """Return the files that a model needs besides its tensors, by name."""
        return {}

    def load_files(self, model: Any, files: Mapping[str, bytes], trusted: frozenset[str]) -> None:
        """Complete a model with what `dump_files` returned.

        Parameters
        ----------
        model : object
            The model, without what is in the files.
        files : mapping of str to bytes
            All files of the model, by name.
        trusted : frozenset of str
            Names of types and functions that the user trusts.
        """

    def parameters_of(self, model: Any) -> dict[str, object]:
        """Return the parameters of a model as they can be saved."""
        return saved_parameters(model)

    def write(self, value: Any) -> Mapping[str, object]:
        """Return the parameters of a model, and its attributes if it is fitted."""
        parameters = self.parameters_of(value)
        if not self.is_fitted(value):
            return {"parameters": parameters, "fitted": None}
        names = [*self.fields, *(name for name in OPTIONAL if hasattr(value, name))]
        return {"parameters": parameters, "fitted": {name: getattr(value, name) for name in names}}

    def read(self, state: Mapping[str, object]) -> object:
        """Make a model; see `Format.read`."""
        check_fields(self.name, state, STATE)
        parameters: Any = state["parameters"]
        fitted: Any = state["fitted"]
        check_parameters(self.name, self.cls, parameters)
        model = self.cls(**parameters)
        if fitted is None:
            return model
        fields = {**self.fields, **OPTIONAL}
        check_fields(self.name, fitted, fields, optional=frozenset(OPTIONAL))
        for name, value in fitted.items():
            setattr(model, name, value)
        if "_classes" in fitted:
            model.classes_ = fitted["_classes"].array()
        if self.check is not None:
            self.check(model)
        return model


class ConformalFormat(ModelFormat):
    """How a conformal predictor is written: a cost that is a function becomes a table."""

    def write(self, value: Any) -> Mapping[str, object]:
        """Return the parameters of a model, and its attributes if it is fitted."""
        state = dict(super().write(value))
        fitted: Any = state["fitted"]
        if fitted is not None:
            score, calibration = fitted["score_"], fitted["_calibration"]
            if "cost" in score.get_params(deep=False):
                score = copy.copy(score)
                score.cost = save_cost(value, score.cost)
            if calibration is not None and "cost" in calibration.parameters:
                cost = save_cost(value, calibration.parameters["cost"])
                known = {**calibration.parameters, "cost": cost}
                calibration = replace(calibration, parameters=known)
            state["fitted"] = {**fitted, "score_": score, "_calibration": calibration}
        return state


def _check_conformal(model: ConformalPredictor) -> None:
    calibration, classes = model._calibration, model._classes
    check_score(model.score_, classes)
    if calibration is None:
        return
    if not calibration.n_chosen_elsewhere:  # The labels of counted rows are not known.
        # -1 stands for a label of an unknown class.
        known = is_index(calibration.y + 1, classes.n + 1)
        ensure(known, "Calibration has a label that is no class")
    depth = calibration.schema.depth
    ensure(depth <= classes.n, f"RowSchema has depth {depth}, but there are {classes.n} classes")
    unknown = set(calibration.parameters) - set(model.get_params(deep=False))
    ensure(not unknown, f"Calibration has parameters {str(sorted(map(str, unknown)))[:60]}")


def _check_fixed(model: FixedSelector) -> None:
    check_family(model.family_, model._classes.n)


def _check_selector(model: CardinalitySelector | CardinalityPath) -> None:
    family, inputs, network, n = model.family_, model._inputs, model._network, model._classes.n
    check_family(family, n, sets_only=False)
    uses_features = inputs.inputs != "scores"
    same = uses_features == (inputs.n_features is not None)
    ensure(same, "SelectorInputs has features that it does not use, or lacks them")
    depth = inputs.score_depth
    ensure(depth <= n, f"SelectorInputs has a depth of {depth}, but there are {n} classes")
    if network is None:
        return
    n_inputs = (inputs.n_features or 0) + (depth + 1 if inputs.inputs != "features" else 0)
    members, n_outputs, _ = outputs_of(network, n_inputs)
    members = 1 if members is None else members
    ensure(members == len(model._weights), f"the network has {members} members")
    same = n_outputs == len(family)
    ensure(same, f"the network has {n_outputs} outputs for {len(family)} sets")
    ensure(any(True for _ in network.state_dict()), "the network has no weights")


def _check_path(model: CardinalityPath) -> None:
    _check_selector(model)
    calibration = model._path_calibration
    same = calibration is None or list(calibration.cost_weights) == model._weights
    ensure(same, "PathCalibration has other cost weights than the path")


def _check_linear(model: LinearClassifier) -> None:
    n, n_columns = model.coef_.shape
    distinct = len(set(model.classes_.tolist()))
    same = distinct == len(model.classes_) == n > 1
    ensure(same, f"LinearClassifier has {n} rows of coefficients")
    ensure(len(model.intercept_) == n, "LinearClassifier has another number of intercepts")
    same = model.n_features_in_ == n_columns
    ensure(same, f"LinearClassifier has {n_columns} columns of coefficients")
    check_feature_names(model, n_columns)


def check_feature_names(model: object, n_columns: int) -> None:
    """Raise a `ModelFileError` unless a model has a name for each column or for none."""
    names = getattr(model, "feature_names_in_", None)
    same = names is None or len(names) == n_columns
    ensure(same, "feature_names_in_ has another length")


def _make_inputs(
    inputs: str,
    score_type: ScoreType,
    score_depth: int,
    n_features: int | None,
    names: list[str] | None,
) -> SelectorInputs:
    selector_inputs = SelectorInputs(inputs, score_type, score_depth)
    selector_inputs.n_features, selector_inputs.names = n_features, names
    return selector_inputs


PREDICTOR: Mapping[str, Field] = {
    "_classes": instance_of(Classes),
    "score_type_": SCORE_TYPE,
    "_training_rows": instance_of(TrainingRows) | NONE,
}
CONFORMAL: Mapping[str, Field] = {
    **PREDICTOR,
    "score_": instance_of(ConformityScore),
    "temperature_": SCALE,
    "_calibration": instance_of(Calibration) | NONE,
    "_feature_names": sequence_of(TEXT) | NONE,
}
SELECTOR: Mapping[str, Field] = {
    **PREDICTOR,
    "family_": FAMILY,
    "history_": instance_of(History) | sequence_of(instance_of(History)) | NONE,
    "_inputs": instance_of(SelectorInputs),
    "_weights": sequence_of(WEIGHT, 1),
    "_network": SELECTOR_NETWORK | NONE,
}
INPUTS_FORMAT = Format(
    SelectorInputs,
    {
        "inputs": choice(*INPUTS),
        "score_type": SCORE_TYPE,
        "score_depth": COUNT,
        "n_features": COUNT | NONE,
        "names": sequence_of(TEXT) | NONE,
    },
    make=_make_inputs,
)
PREDICTOR_FORMATS = (
    ConformalFormat(Shortlister, CONFORMAL, check=_check_conformal),
    ConformalFormat(ConformalPredictor, CONFORMAL, check=_check_conformal),
    ConformalFormat(SplitConformal, CONFORMAL, check=_check_conformal),
    ConformalFormat(RetrainedClassifier, CONFORMAL, check=_check_conformal),
    ConformalFormat(PlugInSelector, CONFORMAL, check=_check_conformal),
    ModelFormat(FixedSelector, {**PREDICTOR, "family_": FAMILY}, check=_check_fixed),
    ModelFormat(CardinalitySelector, SELECTOR, check=_check_selector),
    ModelFormat(
        CardinalityPath,
        {**SELECTOR, "_path_calibration": instance_of(PathCalibration) | NONE},
        check=_check_path,
    ),
    ModelFormat(
        LinearClassifier,
        {
            "classes_": LABELS,
            "coef_": array("f", 2),
            "intercept_": array("f", 1),
            "history_": instance_of(History),
            "n_features_in_": COUNT,
        },
        check=_check_linear,
    ),
)
