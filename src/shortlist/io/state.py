"""The fields of each kind of object in a saved model, and which of them must go together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn

from shortlist import losses
from shortlist._utils.labels import Classes
from shortlist.conformal import Conformal, DenisHebiri
from shortlist.conformal.calibration import Calibration
from shortlist.conformal.calibrators import CALIBRATORS, Calibrator
from shortlist.conformal.path_calibration import PathCalibration
from shortlist.conformal.row_schema import RowSchema
from shortlist.conformal.scores import ConformityScore
from shortlist.families import Threshold, TopK
from shortlist.io.fields import (
    ANYTHING,
    COUNT,
    FLAG,
    LABEL,
    LEVEL,
    NOTHING,
    PLAIN,
    SCALE,
    SEED,
    SHARE,
    TEXT,
    WEIGHT,
    Field,
    array,
    choice,
    listed,
    number,
    of,
    tensor,
    whole,
)
from shortlist.learning.linear import LinearClassifier
from shortlist.learning.networks import Residual, Stack, Standardize
from shortlist.learning.training import History
from shortlist.predictors import SetPredictor
from shortlist.predictors.cardinality.fitting import Members
from shortlist.predictors.cardinality.inputs import INPUTS, SelectorInputs
from shortlist.predictors.shortlister.neighbours import Neighbours, Pool
from shortlist.predictors.shortlister.rank_model import Buckets, RankModel
from shortlist.predictors.shortlister.rescoring import Rescorer
from shortlist.predictors.training_rows import TrainingRows

Fields = Mapping[str, Field]
KIND = choice("logits", "proba", "log_proba")
FAMILY = of(TopK, Threshold, Conformal, DenisHebiri)
LOSS = of(
    losses.CompSumLoss,
    losses.CostSensitiveCompSumLoss,
    losses.ConstrainedLoss,
    losses.CostSensitiveConstrainedLoss,
)
COST = Field(
    "the name of a cost, or a table of numbers",
    lambda v: (isinstance(v, str) and v in ("log", "linear")) or _is_table(v),
)
SWITCH = FLAG | choice("auto")
NETWORK = of(nn.Sequential, nn.Linear, nn.ReLU, nn.Dropout, Stack, Standardize)
LABELS = Field("an array of labels", lambda v: _are_labels(v))


def _are_labels(values: object) -> bool:
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        return False
    return values.dtype.kind != "O" or all(map(LABEL.fits, values.tolist()))


def _is_table(cost: object) -> bool:
    if isinstance(cost, Mapping):
        return all(map(whole().fits, cost)) and all(map(WEIGHT.fits, cost.values()))
    if isinstance(cost, np.ndarray | Tensor):
        return array("fiu", 1).fits(cost) or tensor("fi", 1).fits(cost)
    return isinstance(cost, list | tuple) and all(map(WEIGHT.fits, cost))


PARAMETERS: Fields = {
    "cost": COST,
    "accuracy": SHARE,
    "cost_weight": WEIGHT | NOTHING,
    "cost_weights": listed(WEIGHT, 1) | listed(WEIGHT, 1, tuple) | array("fi", 1) | NOTHING,
    "calibration": SHARE | NOTHING,
    "by": Field(
        "the name of a registered calibrator", lambda v: isinstance(v, str) and v in CALIBRATORS
    )
    | NOTHING,
    "allow_empty": FLAG,
    "on_unreachable": choice("raise", "all"),
    "rescore": SWITCH,
    "learn_sizes": SWITCH,
    "score": TEXT | of(ConformityScore),
    "calibrator": of(Calibrator) | NOTHING,
    "score_type": KIND | choice("auto"),
    "randomized": FLAG,
    "temperature": SCALE | choice("auto") | NOTHING,
    "penalty": WEIGHT | choice("auto"),
    "k_reg": whole() | choice("auto"),
    "family": FAMILY | NOTHING,
    "index": whole(),
    "loss": TEXT | LOSS,
    "inputs": choice(*INPUTS),
    "network": NETWORK | NOTHING,
    "width": COUNT,
    "rank_width": COUNT,
    "score_depth": COUNT,
    "q": number(),
    "rho": number(),
    "estimator": of(LinearClassifier) | NOTHING,
    "method": of(SetPredictor) | NOTHING,
    "features": choice("auto") | NOTHING,
    "cv": COUNT,
}
"""Parameters that a prediction may look at. All others are numbers or texts for another fit."""
_PREDICTOR: Fields = {
    "_classes": of(Classes),
    "score_type_": KIND,
    "_training_rows": of(TrainingRows) | NOTHING,
}
_CONFORMAL: Fields = {
    **_PREDICTOR,
    "score_": of(ConformityScore),
    "temperature_": SCALE,
    "_calibration": of(Calibration) | NOTHING,
    "_feature_names": listed(TEXT) | NOTHING,
}
SCORE_FIELDS: Mapping[str, Fields] = {
    "lac": {},
    "aps": {},
    "raps": {"penalty_": WEIGHT, "k_reg_": whole()},
    "saps": {"penalty_": WEIGHT},
    "topk": {},
    "margin": {},
    "plug-in": {"family_": FAMILY},
    "shortlister": {
        "history_": of(dict),
        "rescorer_": of(Rescorer) | NOTHING,
        "rank_model_": of(RankModel) | NOTHING,
        "buckets_": of(Buckets),
        "dense_": FLAG,
        "outside_": Field("a fraction below 1", lambda v: SHARE.fits(v) and v != 1),
        "n_features_": COUNT | NOTHING,
        "wide_features_": FLAG,
    },
}
"""What the scores of this package learn."""
_CHOOSING: Fields = {
    **_PREDICTOR,
    "family_": FAMILY,
    "history_": of(History) | listed(of(History)) | NOTHING,
    "_inputs": of(SelectorInputs),
    "_weights": listed(WEIGHT, 1),
    "_network": of(nn.Sequential, Members) | NOTHING,
}
FITTED_FIELDS: Mapping[str, Fields] = {
    "Shortlister": _CONFORMAL,
    "ConformalPredictor": _CONFORMAL,
    "SplitConformal": _CONFORMAL,
    "PlugInSelector": _CONFORMAL,
    "FixedSelector": {**_PREDICTOR, "family_": FAMILY},
    "CardinalitySelector": _CHOOSING,
    "CardinalityPath": {**_CHOOSING, "_path_calibration": of(PathCalibration) | NOTHING},
    "LinearClassifier": {
        "classes_": LABELS,
        "coef_": array("f", 2),
        "intercept_": array("f", 1),
        "history_": of(History),
        "n_features_in_": COUNT,
    },
    "ShortlistClassifier": {
        "classes_": LABELS,
        "method_": of(SetPredictor),
        "estimator_": of(LinearClassifier) | NOTHING,
        "_means": array("f", 1, finite=False) | NOTHING,
        "_open_classes": FLAG,
        "n_features_in_": whole(),
    },
}
OPTIONAL_FIELDS: Fields = {
    "feature_names_in_": LABELS,
    "_score_columns": listed(TEXT) | NOTHING,
}
"""Attributes that are there only if X, or the scores, had named columns."""
_THRESHOLDS = listed(LEVEL, 1)
_LOSS: Fields = {"loss": TEXT, "q": number(), "rho": number(), "reduction": TEXT, "validate": FLAG}
OBJECT_FIELDS: Mapping[str, Fields] = {
    "Classes": {"n": COUNT, "values": LABELS | listed(LABEL, 1) | NOTHING},
    "TopK": {"sizes": listed(COUNT, 1)},
    "Threshold": {"thresholds": listed(number(), 1)},
    "Conformal": {
        "score": TEXT,
        "levels": listed(SHARE, 1),
        "penalty": WEIGHT,
        "k_reg": whole(),
        "thresholds": _THRESHOLDS,
        "score_type_": KIND,
        "scale_": SCALE,
    },
    "DenisHebiri": {
        "mean_sizes": listed(number(1), 1),
        "thresholds": _THRESHOLDS,
        "score_type_": KIND,
        "scale_": SCALE,
    },
    "SavedScore": {"name": TEXT, "parameters": of(dict), "fitted": of(dict)},
    "SavedCalibrator": {"name": TEXT, "parameters": of(dict)},
    "RowSchema": {
        "dense": FLAG,
        "depth": COUNT,
        "lengths": listed(whole(), 2, tuple),
        "precision": choice("float32", "float16", "bfloat16"),
    },
    "Calibration": {
        "levels": array("f", 1, finite=False),
        "y": array("i", 1),
        "groups": array("i", 1) | NOTHING,
        "group_names": listed(LABEL),
        "thresholds": array("f", 1, finite=False),
        "mean_sizes": array("f", 1),
        "parameters": of(dict),
        "schema": of(RowSchema),
        "n_given": whole(0, 2**53) | NOTHING,
        "n_choosing": whole(0, 2**53),
        "n_chosen_elsewhere": whole(0, 2**53),
        "exhaustive": FLAG,
    },
    "PathCalibration": {
        "weights": listed(WEIGHT, 1),
        "rows": whole(1, 2**53),
        "hits": listed(whole(0, 2**53), 1),
        "labels": listed(whole(0, 2**62), 1),
    },
    "History": {
        "loss": listed(listed(ANYTHING)),
        "validation_loss": listed(listed(ANYTHING)),
        "best_epoch": listed(PLAIN),
        "seconds": number(),
    },
    "TrainingRows": {"keys": tensor("i", 1), "distinct": SHARE},
    "SelectorInputs": {
        "inputs": choice(*INPUTS),
        "score_type": KIND,
        "score_depth": COUNT,
        "n_features": COUNT | NOTHING,
        "names": listed(TEXT) | NOTHING,
    },
    "Buckets": {"sizes": listed(COUNT, 1), "outside": FLAG},
    "RankModel": {
        "network": of(Residual),
        "buckets": of(Buckets),
        "depth": COUNT,
        "history": of(History),
    },
    "Rescorer": {
        "network": of(Residual),
        "folds": tensor("i", 1),
        "index": tensor("i", 1),
        "n_classes": COUNT,
        "history": of(History),
        "seed": SEED,
        "neighbours": of(Neighbours),
        "pool": of(Pool),
    },
    "Neighbours": {
        "standardize": of(Standardize),
        "n_classes": COUNT,
        "root": tensor("f", 2) | NOTHING,
        "directions": tensor("f", 2),
        "index": tensor("i", 1),
    },
    "Pool": {"a": number(-1e6, 1e6), "b": number(-1e6, 1e6)},
    "Standardize": {
        "mean": tensor("f", 1),
        "scale": tensor("f", 1),
        "dtype": choice("float16", "float32", "float64"),
    },
    "Stack": {
        "weights": listed(tensor("f", 3), 1),
        "biases": listed(tensor("f", 3), 1),
        "dropouts": listed(SHARE, 1),
    },
    "Residual": {
        "standardize": of(Standardize),
        "stack": of(Stack),
        "scale": tensor("f", 3),
    },
    "Sequential": {"layers": listed(NETWORK, 1)},
    "Linear": {"weight": tensor("f", 2), "bias": tensor("f", 1) | NOTHING},
    "Dropout": {"p": SHARE},
    "Members": {"networks": listed(NETWORK, 1)},
    "CompSumLoss": _LOSS,
    "CostSensitiveCompSumLoss": _LOSS,
    "ConstrainedLoss": _LOSS,
    "CostSensitiveConstrainedLoss": _LOSS,
}


def rising(values: Tensor) -> bool:
    """Whether values never fall."""
    return bool((values[1:] >= values[:-1]).all())


def within(values: Tensor | np.ndarray, n: int) -> bool:
    """Whether all values are from 0 to n - 1."""
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < n)
