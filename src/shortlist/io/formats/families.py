"""Formats of classes and of families of set predictors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from shortlist._utils.labels import Classes
from shortlist.conformal import Conformal, DenisHebiri
from shortlist.families import Deferral, Family, Threshold, TopK
from shortlist.io.fields import (
    COUNT,
    FRACTION,
    LABEL,
    LABELS,
    LEVEL,
    NONE,
    SCALE,
    TEXT,
    WEIGHT,
    Field,
    choice,
    ensure,
    instance_of,
    integer,
    number,
    sequence_of,
)
from shortlist.io.format import Format

SCORE_TYPE = choice("logits", "proba", "log_proba")
SETS = instance_of(TopK, Threshold, Conformal, DenisHebiri)
FAMILY = SETS | instance_of(Deferral)
FITTED: Mapping[str, Field] = {
    "thresholds": sequence_of(LEVEL, 1),
    "score_type_": SCORE_TYPE,
    "scale_": SCALE,
}
"""What a conformal family learns from data."""
MIN_CLASSES: Mapping[type, Callable[[Any], int]] = {
    TopK: lambda family: family.k[-1],
    Threshold: lambda family: 1,
    Conformal: lambda family: 1,
    DenisHebiri: lambda family: 1,
    Deferral: lambda family: MIN_CLASSES[type(family.family)](family.family),
}
"""Smallest number of classes that a family can be used with, by its type."""


def check_family(family: Family, n_classes: int, *, sets_only: bool = True) -> None:
    """Raise a `ModelFileError` if a model cannot choose from a family.

    Parameters
    ----------
    family : Family
        Family of a model.
    n_classes : int
        Number of classes of the model, which no set may exceed.
    sets_only : bool, default=True
        Whether every member must be a set.
    """
    size = MIN_CLASSES[type(family)](family)
    name = type(family).__name__
    ensure(not (sets_only and family.others), f"{name} has members without a set")
    ensure(
        size <= n_classes, f"{name} has sets of {size} labels, but there are {n_classes} classes"
    )


def _conformal_format(cls: type, parameters: Mapping[str, Field]) -> Format:
    """Return the format of a family whose thresholds come from data."""

    def pack(family: Conformal | DenisHebiri) -> Mapping[str, object]:
        names = (*parameters, *(() if family.thresholds is None else FITTED))
        return {name: getattr(family, name) for name in names}

    def make(**state: object) -> object:
        family = cls(**{name: state[name] for name in parameters})
        for name in FITTED.keys() & state.keys():
            setattr(family, name, state[name])
        return family

    return Format(
        cls,
        {**parameters, **FITTED},
        optional=frozenset(FITTED),
        pack=pack,
        make=make,
        check=_check_conformal,
    )


def _check_conformal(family: Conformal | DenisHebiri) -> None:
    name, thresholds = type(family).__name__, family.thresholds
    is_fitted = [hasattr(family, attribute) for attribute in ("score_type_", "scale_")]
    ensure(is_fitted == [thresholds is not None] * 2, f"{name} is fitted in part")
    if thresholds is not None:
        n_sets, n_thresholds = len(family), len(thresholds)
        ensure(n_thresholds == n_sets, f"{name} has {n_thresholds} thresholds for {n_sets} sets")
        values = torch.tensor(thresholds)
        ensure((values[1:] <= values[:-1]).all(), f"{name}: thresholds must not increase")


FAMILY_FORMATS = (
    Format(Classes, {"n": COUNT, "values": LABELS | sequence_of(LABEL, 1) | NONE}),
    Format(
        TopK,
        {"sizes": sequence_of(COUNT, 1)},
        pack=lambda family: {"sizes": family.k},
    ),
    Format(Threshold, {"thresholds": sequence_of(number(), 1)}),
    _conformal_format(
        Conformal,
        {
            "score": TEXT,
            "levels": sequence_of(FRACTION, 1),
            "penalty": WEIGHT,
            "k_reg": integer(),
        },
    ),
    _conformal_format(DenisHebiri, {"mean_sizes": sequence_of(number(1), 1)}),
    Format(
        Deferral,
        {"family": SETS, "others": sequence_of(TEXT, 1)},
        pack=lambda family: {"family": family.family, "others": list(family.others)},
    ),
)
