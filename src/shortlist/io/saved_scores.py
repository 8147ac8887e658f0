"""Conformity scores and calibrators in model files, by their registered names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from shortlist.conformal.calibrators import CALIBRATORS, Calibrator
from shortlist.conformal.scores import SCORES, ConformityScore
from shortlist.io.fields import PLAIN, Field, need
from shortlist.io.persistence import ModelFileError
from shortlist.io.state import PARAMETERS, SCORE_FIELDS
from shortlist.predictors.plug_in import PlugInScore
from shortlist.predictors.shortlister.score import ShortlisterScore

INTERNAL: dict[str, type[ConformityScore]] = {
    PlugInScore.name: PlugInScore,
    ShortlisterScore.name: ShortlisterScore,
}
"""Scores of predictors of their own, which have no use by name."""

PLAIN_DATA = Field(
    "a number, a text, a list of them, or an array",
    lambda v: (
        PLAIN.fits(v)
        or isinstance(v, np.ndarray | Tensor)
        or (isinstance(v, list) and all(map(PLAIN.fits, v)))
    ),
)


@dataclass(frozen=True)
class SavedScore:
    """A conformity score as a model file has it."""

    name: str
    parameters: dict[str, object]
    fitted: dict[str, object]


@dataclass(frozen=True)
class SavedCalibrator:
    """A calibrator as a model file has it."""

    name: str
    parameters: dict[str, object]


def pack_score(
    score: ConformityScore,
    convert: Callable[[object, str, object], object],
    converted: Mapping[str, object] | None = None,
) -> SavedScore:
    """Return what a file keeps of a score.

    `convert` makes a parameter writable; `converted` are those that already are.
    """
    cls = type(score)
    if _score_class(score.name) is not cls:
        raise ValueError(
            f"the score {cls.__name__} cannot be saved: give it a name and register it with "
            "@shortlist.conformal.register_score; import the module that registers it before load"
        )
    converted = converted or {}
    parameters = {
        name: converted[name] if name in converted else convert(score, name, value)
        for name, value in score.get_params(deep=False).items()
    }
    fitted = {
        name: value
        for name, value in vars(score).items()
        if name.endswith("_") and not name.startswith("_")
    }
    for name, value in fitted.items():
        if score.name not in SCORE_FIELDS and not PLAIN_DATA.fits(value):
            raise ValueError(
                f"the score {cls.__name__} cannot be saved: {name} is a {type(value).__name__}; "
                f"what fit learns must be {PLAIN_DATA.words}"
            )
    return SavedScore(score.name, parameters, fitted)


def unpack_score(saved: SavedScore) -> ConformityScore:
    """Return a score as it was saved."""
    cls = _score_class(saved.name)
    if cls is None:
        raise ModelFileError(
            f"it uses the score {saved.name!r}, which is not registered; import the module that "
            "registers it first"
        )
    known = cls._get_param_names()
    _check(saved.name, saved.parameters, {name: PARAMETERS.get(name, PLAIN) for name in known})
    strange = set(saved.parameters) - set(known)
    need(not strange, f"the score {saved.name!r} has no parameter {sorted(map(str, strange))[:3]}")
    score = cls(**saved.parameters)
    fields = SCORE_FIELDS.get(saved.name)
    if fields is None:
        fields = dict.fromkeys(saved.fitted, PLAIN_DATA)
    elif fields.keys() != saved.fitted.keys() and saved.fitted:
        missing = sorted(fields.keys() ^ saved.fitted.keys())
        raise ModelFileError(f"the score {saved.name!r} has other fields: {missing[:3]}")
    for name in saved.fitted:
        right = name.isidentifier() and name.endswith("_") and not name.startswith("_")
        need(right, f"{name[:60]!r} is no fitted attribute of a score")
    _check(saved.name, saved.fitted, fields)
    for name, value in saved.fitted.items():
        setattr(score, name, value)
    return score


def pack_calibrator(calibrator: Calibrator) -> SavedCalibrator:
    """Return what a file keeps of a calibrator."""
    cls = type(calibrator)
    if CALIBRATORS.get(cls.name) is not cls:
        raise ValueError(
            f"the calibrator {cls.__name__} cannot be saved: give it a name and register it with "
            "@shortlist.conformal.register_calibrator; import the module that registers it before "
            "load"
        )
    return SavedCalibrator(cls.name, calibrator.get_params(deep=False))


def unpack_calibrator(saved: SavedCalibrator) -> Calibrator:
    """Return a calibrator as it was saved."""
    cls = CALIBRATORS.get(saved.name)
    if cls is None:
        raise ModelFileError(
            f"it uses the calibrator {saved.name[:60]!r}, which is not registered; import the "
            "module that registers it first"
        )
    known = {name: PARAMETERS.get(name, PLAIN) for name in cls._get_param_names()}
    strange = set(saved.parameters) - set(known)
    need(not strange, f"the calibrator {saved.name!r} has other parameters")
    _check(saved.name, saved.parameters, known)
    return cls(**saved.parameters)  # type: ignore[arg-type]


def _score_class(name: str) -> type[ConformityScore] | None:
    return INTERNAL.get(name, SCORES.get(name))


def _check(of: str, values: Mapping[str, object], fields: Mapping[str, Field]) -> None:
    for name, field in fields.items():
        if name in values:
            field.check(f"{of}.{name}", values[name])
