"""Scores in; out comes the shortest list of labels that still holds the right one.

Names are loaded when they are first used: `import shortlist` pulls in neither torch nor
scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from shortlist._version import __version__

if TYPE_CHECKING:
    from shortlist import (
        conformal,
        costs,
        datasets,
        export,
        guarantee,
        losses,
        metrics,
        paper,
        ray,
        theory,
    )
    from shortlist.comparison import Comparison, compare
    from shortlist.conformal import Conformal, DenisHebiri, SplitConformal
    from shortlist.estimator import ShortlistClassifier
    from shortlist.families import Custom, Family, Threshold, TopK
    from shortlist.frontier import Frontier
    from shortlist.linear import LinearClassifier
    from shortlist.ranking import Ranking
    from shortlist.saving import load, save
    from shortlist.selectors import (
        CardinalityPath,
        CardinalitySelector,
        FixedSelector,
        PlugInSelector,
        Selector,
        SetPredictor,
        Shortlister,
    )
    from shortlist.sets import PredictionSets
    from shortlist.temperature import fit_temperature

__all__ = [
    "Ranking",
    "PredictionSets",
    "Family",
    "TopK",
    "Threshold",
    "Custom",
    "Conformal",
    "DenisHebiri",
    "SetPredictor",
    "Shortlister",
    "SplitConformal",
    "PlugInSelector",
    "FixedSelector",
    "CardinalitySelector",
    "CardinalityPath",
    "Selector",
    "LinearClassifier",
    "ShortlistClassifier",
    "Frontier",
    "compare",
    "Comparison",
    "fit_temperature",
    "save",
    "load",
    "conformal",
    "costs",
    "datasets",
    "export",
    "guarantee",
    "losses",
    "metrics",
    "paper",
    "ray",
    "theory",
    "__version__",
]

_MODULES = (
    "conformal",
    "costs",
    "datasets",
    "export",
    "guarantee",
    "losses",
    "metrics",
    "paper",
    "ray",
    "theory",
)
_HOME = {
    "Ranking": "ranking",
    "PredictionSets": "sets",
    "Family": "families",
    "TopK": "families",
    "Threshold": "families",
    "Custom": "families",
    "Conformal": "conformal",
    "DenisHebiri": "conformal",
    "SplitConformal": "conformal",
    "SetPredictor": "selectors",
    "Shortlister": "selectors",
    "PlugInSelector": "selectors",
    "FixedSelector": "selectors",
    "CardinalitySelector": "selectors",
    "CardinalityPath": "selectors",
    "Selector": "selectors",
    "LinearClassifier": "linear",
    "ShortlistClassifier": "estimator",
    "Frontier": "frontier",
    "compare": "comparison",
    "Comparison": "comparison",
    "fit_temperature": "temperature",
    "save": "saving",
    "load": "saving",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"shortlist.{name}")
    if name in _HOME:
        value = getattr(import_module(f"shortlist.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'shortlist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
