"""The methods of a comparison: those of the user, or the default ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sklearn.base import clone

from shortlist._utils.validation import check_count
from shortlist.predictors import (
    CardinalityPath,
    PlugInSelector,
    RetrainedClassifier,
    SetPredictor,
    Shortlister,
)
from shortlist.predictors.split_conformal import SplitConformal


def default_methods(
    has_features: bool, seed: int = 0, *, is_dense: bool = True
) -> dict[str, SetPredictor]:
    """Return the methods that `compare` measures by default.

    APS, RAPS and SAPS get ``temperature="size"``, because the likelihood temperature of the others
    lengthens the sets of APS.

    Parameters
    ----------
    has_features : bool
        Whether the rows have features.
    seed : int, default=0
        Random state of every method.
    is_dense : bool, default=True
        Whether every class has a score, rather than a few candidates.

    Returns
    -------
    dict of str to SetPredictor
        Unfitted methods by name.
    """
    retrained: dict[str, SetPredictor] = {
        "networks, retrained": RetrainedClassifier("networks", random_state=seed),
        "logistic, retrained": RetrainedClassifier("logistic", random_state=seed),
    }
    return {
        "Shortlister": Shortlister(random_state=seed),
        **(retrained if has_features and is_dense else {}),
        "top-k": SplitConformal("topk", random_state=seed),
        "LAC": SplitConformal("lac", random_state=seed),
        **{
            name.upper(): SplitConformal(
                name, randomized=True, temperature="size", random_state=seed
            )
            for name in ("aps", "raps", "saps")
        },
        "plug-in, log cost": PlugInSelector(cost="log", random_state=seed),
        **{name: _path(inputs, seed) for name, inputs in _PATHS[has_features].items()},
    }


_PATHS = {
    True: {"paper's selectors": "features", "paper's selectors, with scores": "both"},
    False: {"paper's selectors, on scores": "scores"},
}
"""Inputs of the selectors by their names, with and without features. Those of the paper see only
the features; the others are a variant."""


def _path(inputs: str, seed: int) -> CardinalityPath:
    """Return the selectors of the paper for 20 cost weights."""
    weights = np.geomspace(1, 0.001, 20).tolist()
    return CardinalityPath(inputs=inputs, cost_weights=weights, random_state=seed)


def choose_methods(
    methods: Mapping[str, SetPredictor] | None,
    has_features: bool,
    is_dense: bool,
    stages: bool,
    max_epochs: int | None,
    seed: int,
) -> dict[str, SetPredictor]:
    """Return the methods to measure, by name: the given or default ones, and their ablations."""
    if methods is not None:
        _check_methods(methods)
    chosen = (
        default_methods(has_features, seed, is_dense=is_dense) if methods is None else dict(methods)
    )
    if max_epochs is not None:
        epochs = check_count(max_epochs, "max_epochs")
        chosen = {name: _limit_epochs(method, epochs) for name, method in chosen.items()}
    if stages and has_features:
        for name, method in list(chosen.items()):
            for description, variant in method.ablations().items():
                chosen[f"{name}, {description}"] = variant
    return chosen


def _check_methods(methods: object) -> None:
    """Raise unless methods are a mapping of names to set predictors."""
    example = '{"LAC": SplitConformal("lac")}'
    if not isinstance(methods, Mapping):
        raise ValueError(f"methods must map names to set predictors, as {example}; got {methods!r}")
    if not methods:
        raise ValueError(f"methods must contain at least one set predictor; got {methods!r}")
    for name, method in methods.items():
        if not isinstance(method, SetPredictor):
            raise ValueError(
                f"methods[{name!r}] must be a set predictor, as in {example}; got {method!r}"
            )


def _limit_epochs(method: SetPredictor, epochs: int) -> SetPredictor:
    """Return a copy that trains for at most `epochs` epochs."""
    parameters = method.get_params()
    names = [name for name in parameters if name.split("__")[-1] == "max_epochs"]
    copy: SetPredictor = clone(method)
    return copy.set_params(**{name: min(epochs, parameters[name]) for name in names})  # type: ignore[no-any-return]
