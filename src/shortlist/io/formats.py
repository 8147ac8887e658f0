"""The file format of models: what each class writes, and back.

Models that were written once must load for ever: a field that is renamed in the code keeps its
name in this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from shortlist import losses
from shortlist._utils.labels import Classes
from shortlist._utils.warnings import warn
from shortlist.conformal import Conformal, DenisHebiri
from shortlist.conformal.calibration import Calibration
from shortlist.conformal.calibrators import Calibrator
from shortlist.conformal.path_calibration import PathCalibration
from shortlist.conformal.row_schema import RowSchema
from shortlist.conformal.scores import ConformityScore
from shortlist.costs import cost_table
from shortlist.families import Threshold, TopK
from shortlist.io.agreement import check_agreement, check_model
from shortlist.io.fields import PLAIN, Field
from shortlist.io.persistence import ModelFileError
from shortlist.io.saved_scores import (
    SavedCalibrator,
    SavedScore,
    pack_calibrator,
    pack_score,
    unpack_calibrator,
    unpack_score,
)
from shortlist.io.state import FITTED_FIELDS, OBJECT_FIELDS, OPTIONAL_FIELDS, PARAMETERS
from shortlist.io.values import Kind
from shortlist.learning.linear import LinearClassifier
from shortlist.learning.networks import Residual, Stack, Standardize
from shortlist.learning.training import History
from shortlist.predictors import (
    CardinalityPath,
    CardinalitySelector,
    ConformalPredictor,
    FixedSelector,
    PlugInSelector,
    Shortlister,
)
from shortlist.predictors.cardinality.fitting import Members
from shortlist.predictors.cardinality.inputs import SelectorInputs
from shortlist.predictors.classifier import ShortlistClassifier
from shortlist.predictors.shortlister.neighbours import Neighbours, Pool
from shortlist.predictors.shortlister.rank_model import Buckets, RankModel
from shortlist.predictors.shortlister.rescoring import Rescorer
from shortlist.predictors.split_conformal import SplitConformal
from shortlist.predictors.training_rows import TrainingRows

Fields: TypeAlias = Mapping[str, object]


MODELS = (
    Shortlister,
    ConformalPredictor,
    SplitConformal,
    PlugInSelector,
    FixedSelector,
    CardinalitySelector,
    CardinalityPath,
    LinearClassifier,
    ShortlistClassifier,
)
FITTED: dict[type, Mapping[str, Field]] = {cls: FITTED_FIELDS[cls.__name__] for cls in MODELS}
"""Which attributes a fitted model has, besides its parameters, and what they hold."""


def is_fitted(model: object) -> bool:
    """Whether a model has all that its fit finds."""
    return all(hasattr(model, name) for name in FITTED[type(model)])


def _check_fields(of: str, fields: Mapping[str, Field], state: Fields) -> None:
    """Raise if a field that is there holds something else than it should."""
    for name, field in fields.items():
        if name in state:
            field.check(f"{of}.{name}", state[name])


def _model(cls: type) -> Kind:
    """A model: its parameters, and what its fit found (nothing if it was not fitted)."""
    fields = FITTED[cls]

    def take(model: BaseEstimator) -> Fields:
        parameters = {
            name: _parameter(model, name, value)
            for name, value in model.get_params(deep=False).items()
        }
        if not is_fitted(model):
            return {"parameters": parameters, "fitted": None}
        fitted = {name: getattr(model, name) for name in fields}
        fitted |= {name: getattr(model, name) for name in OPTIONAL_FIELDS if hasattr(model, name)}
        if cls is ShortlistClassifier and not isinstance(fitted["estimator_"], LinearClassifier):
            fitted["estimator_"] = None  # in a file of its own
        if "score_" in fitted:
            fitted["score_"] = pack_score(model.score_, _parameter, parameters)
        calibration = fitted.get("_calibration")
        if isinstance(calibration, Calibration) and "cost" in calibration.parameters:
            parameters_then = {**calibration.parameters, "cost": parameters["cost"]}
            fitted["_calibration"] = replace(calibration, parameters=parameters_then)
        return {"parameters": parameters, "fitted": fitted}

    def make(state: Fields) -> object:
        parameters, fitted = state["parameters"], state["fitted"]
        if not isinstance(parameters, dict) or not isinstance(fitted, dict | None):
            raise ModelFileError(f"the state of {cls.__name__} is no state")
        known = {name: PARAMETERS.get(name, PLAIN) for name in parameters}
        _check_fields(cls.__name__, known, parameters)
        model = cls(**parameters)
        if fitted is None:
            return model
        _check_fields(cls.__name__, {**fields, **OPTIONAL_FIELDS}, fitted)
        for name in fields:
            setattr(model, name, fitted[name])
        for name in OPTIONAL_FIELDS.keys() & fitted.keys():
            setattr(model, name, fitted[name])
        if hasattr(model, "_classes"):
            model.classes_ = model._classes.array()
        check_model(model)
        return model

    return Kind(cls, take, make)


def _parameter(model: BaseEstimator, name: str, value: object) -> object:
    """A parameter as it can be written."""
    if isinstance(value, np.random.RandomState):
        return None  # The state of a generator is not saved.
    if isinstance(value, ConformityScore):
        return pack_score(value, _parameter)
    if isinstance(value, Calibrator):
        return pack_calibrator(value)
    if name == "cost" and callable(value):
        return _cost_table(model, value)
    if name == "loss" and isinstance(value, nn.Module) and type(value) not in _LOSSES:
        return _forgotten(model, name, value, "log")
    if name == "network" and callable(value) and not isinstance(value, nn.Module):
        return _forgotten(model, name, value, None)
    if isinstance(model, ShortlistClassifier):
        if name == "estimator" and not isinstance(value, LinearClassifier | None):
            return None  # in a file of its own
        if name == "features" and callable(value):
            raise ValueError(
                "features is a function of your own, which a model file does not hold; pickle the "
                "model, or save model.method_, which takes scores and features"
            )
        if name == "cv" and not isinstance(value, int):
            return _forgotten(model, name, value, 5)
    return value


def _forgotten(model: object, name: str, value: object, default: object) -> object:
    """Code of the user's own that only another fit would need: its default, and a warning."""
    warn(
        f"{name} = {value!r} of {type(model).__name__} is code, which a model file does not hold; "
        f"prediction does without it, and the model that is loaded will have {name}={default!r}"
    )
    return default


def _cost_table(model: object, cost: Callable[[int], float]) -> list[float]:
    """A function of the size as the table that it is, for the sizes that can occur."""
    classes = getattr(model, "_classes", None)
    if classes is None:
        raise ValueError(
            "cost is a function, and the model is not fitted: how many sizes are there?"
        )
    table = cost_table(cost, range(1, classes.n + 1))
    values: list[float] = table[1:].tolist()
    return values


_LOSSES: dict[type, str] = {
    losses.CompSumLoss: "q",
    losses.CostSensitiveCompSumLoss: "q",
    losses.ConstrainedLoss: "rho",
    losses.CostSensitiveConstrainedLoss: "rho",
}
"""The loss modules, and the parameter of each."""


def _named(*names: str) -> Callable[[object], Fields]:
    return lambda one: {name: getattr(one, name) for name in names}


def _plain(cls: type, *names: str) -> Kind:
    """A class whose constructor takes what it keeps, under the same names."""
    return Kind(cls, _named(*names), lambda s: cls(**s))


def _conformal(cls: type, *names: str) -> Kind:
    """A family whose thresholds come from data."""

    def take(family: Conformal | DenisHebiri) -> Fields:
        found: dict[str, object] = {n: getattr(family, n) for n in names}
        if family.thresholds is not None:
            fitted = ("thresholds", "score_type_", "scale_")
            found |= {name: getattr(family, name) for name in fitted}
        return found

    def make(state: Fields) -> object:
        family = cls(**{n: state[n] for n in names})
        if "thresholds" in state:
            family.thresholds = state["thresholds"]
            family.score_type_, family.scale_ = state["score_type_"], state["scale_"]
        return family

    return Kind(cls, take, make)


def _make_rescorer(state: Fields) -> Rescorer:
    known = ("network", "folds", "index", "n_classes", "history", "seed")
    model = Rescorer(**{name: state[name] for name in known})  # type: ignore[arg-type]
    model.neighbours, model.pool = state["neighbours"], state["pool"]  # type: ignore[assignment]
    model.network.requires_grad_(False)
    return model


def _make_neighbours(state: Fields) -> Neighbours:
    made = Neighbours(state["standardize"], state["n_classes"])  # type: ignore[arg-type]
    made.root, made.directions, made.index = state["root"], state["directions"], state["index"]  # type: ignore[assignment]
    return made


def _make_residual(state: Fields) -> Residual:
    made = Residual(state["standardize"], state["stack"])  # type: ignore[arg-type]
    made.scale = nn.Parameter(state["scale"])  # type: ignore[arg-type]
    return made.eval()


def _make_inputs(state: Fields) -> SelectorInputs:
    made = SelectorInputs(state["inputs"], state["score_type"], state["score_depth"])  # type: ignore[arg-type]
    made.n_features, made.names = state["n_features"], state["names"]  # type: ignore[assignment]
    return made


def _make_seen(state: Fields) -> TrainingRows:
    made = TrainingRows.__new__(TrainingRows)
    made.keys, made.distinct = state["keys"], state["distinct"]  # type: ignore[assignment]
    made.keys = made.keys.cpu()
    return made


def _make_linear(state: Fields) -> nn.Linear:
    weight, bias = state["weight"], state["bias"]
    assert isinstance(weight, Tensor)
    n_out, n_in = weight.shape
    layer = nn.Linear(n_in, n_out, bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight)
    if isinstance(bias, Tensor):
        layer.bias = nn.Parameter(bias)
    return layer


def _make_standardize(state: Fields) -> Standardize:
    dtypes = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16}
    return Standardize(state["mean"], state["scale"], dtypes[str(state["dtype"])])  # type: ignore[arg-type]


def _make_members(state: Fields) -> nn.Sequential:
    layers = state["layers"]
    assert isinstance(layers, list)
    return nn.Sequential(*layers).eval()


def _guarded(name: str, kind: Kind) -> Kind:
    """The same kind, of fields that are checked alone and together."""
    fields, unguarded = OBJECT_FIELDS.get(name, {}), kind.make

    def make(state: Fields) -> object:
        _check_fields(name, fields, state)
        made = unguarded(state)
        check_agreement(made)
        return made

    return replace(kind, make=make)


_KINDS: dict[str, Kind] = {
    **{cls.__name__: _model(cls) for cls in FITTED},
    "Classes": _plain(Classes, "n", "values"),
    "TopK": Kind(TopK, lambda f: {"sizes": f.k}, lambda s: TopK(s["sizes"])),  # type: ignore[arg-type]
    "Threshold": _plain(Threshold, "thresholds"),
    "Conformal": _conformal(Conformal, "score", "levels", "penalty", "k_reg"),
    "DenisHebiri": _conformal(DenisHebiri, "mean_sizes"),
    "SavedScore": Kind(
        SavedScore,
        _named("name", "parameters", "fitted"),
        lambda s: unpack_score(SavedScore(**s)),  # type: ignore[arg-type]
    ),
    "SavedCalibrator": Kind(
        SavedCalibrator,
        _named("name", "parameters"),
        lambda s: unpack_calibrator(SavedCalibrator(**s)),  # type: ignore[arg-type]
    ),
    "RowSchema": _plain(RowSchema, "dense", "depth", "lengths", "precision"),
    "Calibration": _plain(
        Calibration,
        "levels",
        "y",
        "groups",
        "group_names",
        "thresholds",
        "mean_sizes",
        "parameters",
        "schema",
        "n_given",
        "n_choosing",
        "n_chosen_elsewhere",
        "exhaustive",
    ),
    "PathCalibration": _plain(PathCalibration, "weights", "rows", "hits", "labels"),
    "History": _plain(History, "loss", "validation_loss", "best_epoch", "seconds"),
    "TrainingRows": Kind(TrainingRows, _named("keys", "distinct"), _make_seen),
    "SelectorInputs": Kind(
        SelectorInputs,
        _named("inputs", "score_type", "score_depth", "n_features", "names"),
        _make_inputs,
    ),
    "Buckets": _plain(Buckets, "sizes", "outside"),
    "RankModel": _plain(RankModel, "network", "buckets", "depth", "history"),
    "Rescorer": Kind(
        Rescorer,
        _named(
            "network",
            "folds",
            "index",
            "n_classes",
            "history",
            "seed",
            "neighbours",
            "pool",
        ),
        _make_rescorer,
    ),
    "Neighbours": Kind(
        Neighbours,
        _named("standardize", "n_classes", "root", "directions", "index"),
        _make_neighbours,
    ),
    "Pool": _plain(Pool, "a", "b"),
    "Standardize": Kind(
        Standardize,
        lambda s: {"mean": s.mean, "scale": s.scale, "dtype": str(s.dtype).split(".")[-1]},
        _make_standardize,
    ),
    "Stack": Kind(
        Stack,
        lambda s: {"weights": list(s.weights), "biases": list(s.biases), "dropouts": s.dropouts},
        lambda s: Stack.from_weights(**s),  # type: ignore[arg-type]
    ),
    "Residual": Kind(
        Residual,
        _named("standardize", "stack", "scale"),
        _make_residual,
    ),
    "Sequential": Kind(nn.Sequential, lambda s: {"layers": list(s)}, _make_members),
    "Linear": Kind(nn.Linear, _named("weight", "bias"), _make_linear),
    "ReLU": Kind(nn.ReLU, lambda m: {}, lambda s: nn.ReLU()),
    "Dropout": Kind(nn.Dropout, _named("p"), lambda s: nn.Dropout(**s)),  # type: ignore[arg-type]
    "Members": Kind(
        Members,
        lambda m: {"networks": list(m.networks)},
        lambda s: Members(s["networks"]).eval(),  # type: ignore[arg-type]
    ),
    **{
        cls.__name__: _plain(cls, "loss", parameter, "reduction", "validate")
        for cls, parameter in _LOSSES.items()
    },
}
KINDS = {name: _guarded(name, kind) for name, kind in _KINDS.items()}
