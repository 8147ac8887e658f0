"""Formats of conformity scores and calibrators, which are found by their registered names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from shortlist._utils.labels import Classes
from shortlist.conformal.calibrators import CALIBRATORS, Calibrator
from shortlist.conformal.scores import SCORES, ConformityScore
from shortlist.io.fields import (
    COUNT,
    FLAG,
    FRACTION,
    NONE,
    PLAIN,
    SCALE,
    TEXT,
    WEIGHT,
    Field,
    ensure,
    instance_of,
    integer,
)
from shortlist.io.format import Format, check_fields
from shortlist.io.formats.families import FAMILY, check_family
from shortlist.io.formats.parameters import check_parameters, saved_parameters
from shortlist.io.persistence import ModelFileError
from shortlist.learning.networks import Ensemble
from shortlist.predictors.plug_in import PlugInScore
from shortlist.predictors.retrained import RetrainedScore
from shortlist.predictors.shortlister.rank_model import Buckets, RankModel
from shortlist.predictors.shortlister.rescoring import Rescorer
from shortlist.predictors.shortlister.score import ShortlisterScore

PLAIN_DATA = Field(
    "a number, a string, a list of them, or an array",
    lambda value: (
        PLAIN.accepts(value)
        or isinstance(value, np.ndarray | Tensor)
        or (isinstance(value, list) and all(map(PLAIN.accepts, value)))
    ),
)
"""What `fit` of a user's score may learn, if models with the score are saved."""


@dataclass(frozen=True)
class LearnedFields:
    """What `fit` of a conformity score learns.

    Parameters
    ----------
    fields : mapping of str to Field
        Attributes of a fitted score, and what each may be.
    check : callable, optional
        Raises if a fitted score does not agree with the classes of its model.
    """

    fields: Mapping[str, Field] = field(default_factory=dict)
    check: Callable[[Any, Classes], None] | None = None


def _check_plug_in(score: PlugInScore, classes: Classes) -> None:
    check_family(score.family_, classes.n)


def _check_shortlister(score: ShortlisterScore, classes: Classes) -> None:
    buckets, rescorer, rank_model = score.buckets_, score.rescorer_, score.rank_model_
    n, n_features, largest = classes.n, score.n_features_, score.buckets_.sizes[-1]
    ensure(largest <= n, f"Buckets has sizes up to {largest}, but there are {n} classes")
    ensure(score.dense_ or buckets.outside, "Buckets has no mass outside of the candidates")
    ensure(not (score.dense_ and score.outside_), "outside_ is for candidates alone")
    if rescorer is not None:
        taken = len(rescorer.standardize.mean)
        ensure(taken == n_features, f"Rescorer takes {taken} features, but fit saw {n_features}")
        ensure(rescorer.n_classes == n, f"Rescorer knows {rescorer.n_classes} of {n} classes")
        for opinion in rescorer.opinions:
            n_columns = opinion.n_columns
            expected = n + int(not score.dense_)
            same = n_columns in (None, expected)
            ensure(same, f"{type(opinion).__name__} has {n_columns} columns, not {expected}")
    if rank_model is not None:
        same = rank_model.buckets.sizes == buckets.sizes
        ensure(same, "RankModel has other sizes than the model")
        ensure(rank_model.buckets.outside == buckets.outside, "RankModel has other buckets")
        taken = len(rank_model.network.standardize.mean)
        expected = (n_features or 0) + 2 * rank_model.depth
        ensure(taken == expected, f"RankModel takes {taken} inputs, but there are {expected}")


def _check_retrained(score: RetrainedScore, classes: Classes) -> None:
    network, n_features = score.network_, score.n_features_
    taken = len(network.standardize.mean)
    ensure(taken == n_features, f"Ensemble takes {taken} features, but fit saw {n_features}")
    n_outputs = network.stack.weights[-1].shape[2]
    ensure(n_outputs == classes.n, f"Ensemble has {n_outputs} outputs for {classes.n} classes")


LEARNED: Mapping[str, LearnedFields] = {
    "lac": LearnedFields(),
    "aps": LearnedFields(),
    "raps": LearnedFields({"penalty_": WEIGHT, "k_reg_": integer()}),
    "saps": LearnedFields({"penalty_": WEIGHT}),
    "topk": LearnedFields(),
    "margin": LearnedFields(),
    "plug-in": LearnedFields({"family_": FAMILY}, _check_plug_in),
    "retrained": LearnedFields(
        {"network_": instance_of(Ensemble), "scale_": SCALE, "n_features_": COUNT},
        _check_retrained,
    ),
    "shortlister": LearnedFields(
        {
            "history_": instance_of(dict),
            "rescorer_": instance_of(Rescorer) | NONE,
            "rank_model_": instance_of(RankModel) | NONE,
            "buckets_": instance_of(Buckets),
            "dense_": FLAG,
            "outside_": Field("a fraction below 1", lambda v: FRACTION.accepts(v) and v != 1),
            "n_features_": COUNT | NONE,
            "wide_features_": FLAG,
        },
        _check_shortlister,
    ),
}
"""What the scores of this package learn, by name. Other scores learn plain data."""
INTERNAL: Mapping[str, type[ConformityScore]] = {
    PlugInScore.name: PlugInScore,
    RetrainedScore.name: RetrainedScore,
    ShortlisterScore.name: ShortlisterScore,
}
"""Scores of predictors of their own, which cannot be used by name."""


def check_score(score: ConformityScore, classes: Classes) -> None:
    """Raise a `ModelFileError` if a fitted score does not agree with the classes of its model.

    Parameters
    ----------
    score : ConformityScore
        The fitted score.
    classes : Classes
        Classes of the model.
    """
    known = LEARNED.get(score.name)
    if known is None:
        return
    if known.check is not None or score.needs_fit():
        missing = sorted(known.fields.keys() - vars(score).keys())
        ensure(not missing, f"the score {score.name!r} lacks {missing[:3]}, which fit learns")
    if known.check is not None:
        known.check(score, classes)


def _score_class(name: str) -> type[ConformityScore] | None:
    return INTERNAL.get(name, SCORES.get(name))


def _pack_score(score: ConformityScore) -> Mapping[str, object]:
    cls = type(score)
    if _score_class(score.name) is not cls:
        raise ValueError(
            f"the score {cls.__name__} cannot be saved: give it a name and register it with "
            "@shortlist.conformal.register_score; import the module that registers it before load"
        )
    learned = {name: value for name, value in vars(score).items() if _is_learned(name)}
    for name, value in learned.items():
        if score.name not in LEARNED and not PLAIN_DATA.accepts(value):
            raise ValueError(
                f"the score {cls.__name__} cannot be saved: {name} is a {type(value).__name__}; "
                f"what fit learns must be {PLAIN_DATA.description}"
            )
    return {"name": score.name, "parameters": saved_parameters(score), "fitted": learned}


def _is_learned(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _make_score(
    name: str, parameters: dict[str, object], fitted: dict[str, object]
) -> ConformityScore:
    cls = _score_class(name)
    if cls is None:
        raise ModelFileError(
            f"it uses the score {name[:60]!r}, which is not registered; import the module that "
            "registers it first"
        )
    check_parameters(name, cls, parameters)
    score = cls(**parameters)
    known = LEARNED.get(name)
    fields = dict.fromkeys(fitted, PLAIN_DATA) if known is None else known.fields
    if fitted:  # A score that was not fitted has no fields.
        check_fields(name, fitted, fields)
    for attribute, value in fitted.items():
        is_valid = attribute.isidentifier() and _is_learned(attribute)
        ensure(is_valid, f"{attribute[:60]!r} is no fitted attribute of a score")
        setattr(score, attribute, value)
    return score


def _pack_calibrator(calibrator: Calibrator) -> Mapping[str, object]:
    cls = type(calibrator)
    if CALIBRATORS.get(cls.name) is not cls:
        raise ValueError(
            f"the calibrator {cls.__name__} cannot be saved: give it a name and register it with "
            "@shortlist.conformal.register_calibrator; import the module that registers it before "
            "load"
        )
    return {"name": cls.name, "parameters": saved_parameters(calibrator)}


def _make_calibrator(name: str, parameters: dict[str, Any]) -> Calibrator:
    cls = CALIBRATORS.get(name)
    if cls is None:
        raise ModelFileError(
            f"it uses the calibrator {name[:60]!r}, which is not registered; import the module "
            "that registers it first"
        )
    check_parameters(name, cls, parameters)
    return cls(**parameters)


SCORE_FORMATS = (
    Format(
        ConformityScore,
        {"name": TEXT, "parameters": instance_of(dict), "fitted": instance_of(dict)},
        name="SavedScore",
        pack=_pack_score,
        make=_make_score,
        subclasses=True,
    ),
    Format(
        Calibrator,
        {"name": TEXT, "parameters": instance_of(dict)},
        name="SavedCalibrator",
        pack=_pack_calibrator,
        make=_make_calibrator,
        subclasses=True,
    ),
)
