"""The methods of the command `fit`, by their names on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shortlist.predictors import SetPredictor

METHODS = ("shortlister", "lac", "aps", "raps", "saps", "topk", "margin", "plug-in", "paper")
COST_WEIGHTS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
"""Values of the paper's lambda; one selector is trained for each."""


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
    from shortlist.predictors import CardinalityPath, PlugInSelector, Shortlister
    from shortlist.predictors.split_conformal import SplitConformal

    check_choice(name, "method", METHODS)
    predictor: SetPredictor
    if name == "shortlister":
        predictor = Shortlister()
    elif name == "plug-in":
        predictor = PlugInSelector(cost_weight=None, calibration=0.25)
    elif name == "paper":
        inputs = "both" if has_features else "scores"
        predictor = CardinalityPath(inputs=inputs, cost_weight=0.05, cost_weights=COST_WEIGHTS)
    else:
        predictor = SplitConformal(name)
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
