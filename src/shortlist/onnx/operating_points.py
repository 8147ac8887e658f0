"""The operating point of a graph: fixed when it is written, or one of its inputs."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import Any

from shortlist.conformal.calibration import Conditional
from shortlist.conformal.quantiles import UnreachableError
from shortlist.predictors import (
    CardinalityPath,
    CardinalitySelector,
    FixedSelector,
    SetPredictor,
)
from shortlist.predictors.cost_weighted import PricedSelector
from shortlist.predictors.nested import NestedSelector
from shortlist.sets import NO_GUARANTEE

ACCURACIES = (*(round(0.5 + 0.01 * i, 2) for i in range(50)), 0.995, 0.998, 0.999)
"""Accuracies whose thresholds a graph brings along, if its threshold is an input."""


@dataclass(frozen=True)
class Asked:
    """What the caller asked for; nothing: the operating point is an input."""

    accuracy: float | None = None
    delta: float | None = None
    mean_size: float | None = None
    cost_weight: float | None = None
    by: str | None = None

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def only(self, model: SetPredictor, *allowed: str) -> None:
        """Raise if anything else than this was asked for."""
        strange = [
            f"{name} = {value!r}" for name, value in self.given().items() if name not in allowed
        ]
        if strange:
            takes = ", ".join(allowed) or "no operating point: it has one, that of its fit"
            raise ValueError(f"{' and '.join(strange)}: a {type(model).__name__} takes {takes}")

    def check_point(self) -> None:
        """Raise if there is a `delta` or `by`, but no accuracy that it could go with."""
        given = self.given()
        if given and not given.keys() & {"accuracy", "mean_size", "cost_weight"}:
            shown = " and ".join(f"{name} = {value!r}" for name, value in given.items())
            raise ValueError(f"{shown} goes with an accuracy; give accuracy=... too")


@dataclass(frozen=True)
class Point:
    """An operating point: a threshold (one, or those of classes or groups), or a member."""

    guarantee: str
    threshold: float | Conditional | None = None
    member: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def point_of(model: SetPredictor, asked: Asked) -> Point:
    """The operating point of a model, and what the file says of it."""
    if isinstance(model, NestedSelector):
        return _of_nested(model, asked)
    if isinstance(model, CardinalityPath):
        return _of_path(model, asked)
    asked.only(model)
    if isinstance(model, FixedSelector):
        guarantee = f"member {model.index} of {model.family_}; {NO_GUARANTEE}"
        return Point(guarantee, metadata={"operating_point": {"member": model.index}})
    assert isinstance(model, CardinalitySelector)
    weight = model._weights[0]
    guarantee = f"cost_weight = {weight:g}; {NO_GUARANTEE}"
    return Point(guarantee, member=0, metadata={"operating_point": {"cost_weight": weight}})


def chosen_point(model: NestedSelector, asked: Asked) -> tuple[float | Conditional, str]:
    """The threshold that a model takes for what is asked, and the guarantee in words."""
    if isinstance(model, PricedSelector):
        return model._choose_point(**vars(asked))
    asked.only(model, "accuracy", "delta", "mean_size", "by")
    return model._operating_point(asked.accuracy, asked.delta, asked.mean_size, asked.by)


def _of_nested(model: NestedSelector, asked: Asked) -> Point:
    asked.check_point()
    if asked.given():
        at, guarantee = chosen_point(model, asked)
        known: dict[str, Any] = dict(asked.given())
        metadata: dict[str, Any] = {"operating_point": known}
        if isinstance(at, Conditional):
            known["by"] = at.by
            if at.by == "group":
                metadata["groups"] = at.group_names
        else:
            known["threshold"] = _plain(at)
        return Point(guarantee, threshold=at, metadata=metadata)
    if model.by is not None:
        raise ValueError(
            f"by = {model.by!r} makes a threshold for each {model.by}, which is no single input; "
            f"give accuracy=..., or set_params(by=None)"
        )
    table = _table(model)
    guarantee = "those of `thresholds` guarantee an accuracy" if table else NO_GUARANTEE
    return Point(
        f"that of the input threshold; {guarantee}",
        metadata={"operating_point": {"input": "threshold"}, "thresholds": table},
    )


def _table(model: NestedSelector) -> list[list[float]]:
    """Accuracies that can be guaranteed, and their thresholds."""
    found: list[list[float]] = []
    if model._calibration is None:
        return found
    for accuracy in ACCURACIES:
        try:
            at, _ = model._operating_point(accuracy, None, None, None)
        except UnreachableError:
            break  # nor can any that is higher
        number = None if isinstance(at, Conditional) else _plain(at)
        if number is None:
            break
        found.append([accuracy, number])
    return found


def _plain(threshold: float) -> float | None:
    """As JSON has it, which knows no infinity: nothing reaches the largest number either."""
    return None if threshold == -math.inf else min(threshold, sys.float_info.max)


def _of_path(model: CardinalityPath, asked: Asked) -> Point:
    asked.only(model, "accuracy", "delta", "cost_weight")
    asked.check_point()
    if not asked.given():
        if model._network is None:  # all members are alike
            return Point(NO_GUARANTEE, member=0, metadata={"operating_point": {}})
        return Point(
            f"that of the input member; {NO_GUARANTEE}",
            metadata={
                "operating_point": {"input": "member"},
                "cost_weights": list(model._weights),
            },
        )
    delta = 0.05 if asked.delta is None else asked.delta
    member, guarantee = model._chosen(asked.cost_weight, asked.accuracy, delta)
    known = {**asked.given(), "cost_weight": model._weights[member]}
    return Point(guarantee, member=member, metadata={"operating_point": known})
