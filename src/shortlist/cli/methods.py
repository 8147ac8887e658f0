"""The methods of the command `fit`, by their names on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shortlist.predictors import SetPredictor

COST_WEIGHTS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
"""Values of the paper's lambda; one selector is trained for each."""


def _shortlister(has_features: bool) -> SetPredictor:
    from shortlist.predictors import Shortlister

    return Shortlister()


def _plug_in(has_features: bool) -> SetPredictor:
    from shortlist.predictors import PlugInSelector

    return PlugInSelector(cost_weight=None, calibration=0.25)


def _paper(has_features: bool) -> SetPredictor:
    from shortlist.predictors import CardinalityPath

    inputs = "both" if has_features else "scores"
    return CardinalityPath(inputs=inputs, cost_weight=0.05, cost_weights=COST_WEIGHTS)


METHODS: dict[str, Callable[[bool], SetPredictor]] = {
    "shortlister": _shortlister,
    "plug-in": _plug_in,
    "paper": _paper,
}
"""Builders of the methods that are not named after a conformity score."""


def method_names() -> list[str]:
    """Return the names of all methods: those of `METHODS` and of the registered scores."""
    from shortlist.conformal.scores import SCORES

    return [*METHODS, *SCORES]


def build_method(
    name: str,
    has_features: bool,
    *,
    accuracy: float = 0.95,
    calibration: float | None = None,
    score_type: str = "auto",
    max_epochs: int | None = None,
    seed: int = 0,
) -> SetPredictor:
    """Return an unfitted set predictor; parameters that it does not have are ignored."""
    from shortlist._utils.validation import check_choice
    from shortlist.predictors.split_conformal import SplitConformal

    check_choice(name, "method", method_names())
    predictor = METHODS[name](has_features) if name in METHODS else SplitConformal(name)
    known = predictor.get_params()
    options: dict[str, object] = {
        "accuracy": accuracy,
        "calibration": calibration,
        "score_type": score_type,
        "random_state": seed,
        "max_epochs": max_epochs,
    }
    predictor.set_params(**{k: v for k, v in options.items() if k in known and v is not None})
    if calibration == 0 and "calibration" in known:
        predictor.set_params(calibration=None)
    return predictor
