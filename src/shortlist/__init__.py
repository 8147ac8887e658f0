"""Prediction sets from the scores of any classifier, as short as possible, with a guarantee.

Names are loaded when they are first used: `import shortlist` imports neither torch nor
scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from shortlist._version import __version__

if TYPE_CHECKING:
    from shortlist import conformal, costs, datasets, losses, metrics, onnx, paper, ray, theory
    from shortlist.comparison import Comparison, compare
    from shortlist.conformal import Conformal, DenisHebiri
    from shortlist.families import Custom, Deferral, Family, Threshold, TopK
    from shortlist.frontier import Frontier
    from shortlist.guarantee import Guarantee
    from shortlist.html_report import plot_guarantee, report
    from shortlist.io.models import load, save
    from shortlist.learning.linear import LinearClassifier
    from shortlist.learning.temperature import fit_temperature
    from shortlist.onnx import export_onnx
    from shortlist.predictors import (
        CardinalityPath,
        CardinalitySelector,
        ConformalPredictor,
        Decisions,
        FixedSelector,
        PlugInSelector,
        Selector,
        SetPredictor,
        ShortlistClassifier,
        Shortlister,
        SplitConformal,
    )
    from shortlist.ranking import Ranking
    from shortlist.sets import PredictionSets

_MODULES = ("conformal", "costs", "datasets", "losses", "metrics", "onnx", "paper", "ray", "theory")
_HOME = {
    "Ranking": "ranking",
    "PredictionSets": "sets",
    "Family": "families",
    "TopK": "families",
    "Threshold": "families",
    "Custom": "families",
    "Deferral": "families",
    "Conformal": "conformal",
    "DenisHebiri": "conformal",
    "SetPredictor": "predictors",
    "Shortlister": "predictors",
    "ConformalPredictor": "predictors",
    "SplitConformal": "predictors",
    "RetrainedClassifier": "predictors",
    "Guarantee": "guarantee",
    "PlugInSelector": "predictors",
    "FixedSelector": "predictors",
    "CardinalitySelector": "predictors",
    "CardinalityPath": "predictors",
    "Selector": "predictors",
    "Decisions": "predictors",
    "ShortlistClassifier": "predictors",
    "LinearClassifier": "learning.linear",
    "fit_temperature": "learning.temperature",
    "Frontier": "frontier",
    "compare": "comparison",
    "Comparison": "comparison",
    "save": "io.models",
    "load": "io.models",
    "export_onnx": "onnx",
    "report": "html_report",
    "plot_guarantee": "html_report",
}

__all__ = [
    "Ranking",
    "PredictionSets",
    "Family",
    "TopK",
    "Threshold",
    "Custom",
    "Deferral",
    "Decisions",
    "Conformal",
    "DenisHebiri",
    "SetPredictor",
    "Shortlister",
    "ConformalPredictor",
    "SplitConformal",
    "RetrainedClassifier",
    "Guarantee",
    "PlugInSelector",
    "FixedSelector",
    "CardinalitySelector",
    "CardinalityPath",
    "Selector",
    "ShortlistClassifier",
    "LinearClassifier",
    "fit_temperature",
    "Frontier",
    "compare",
    "Comparison",
    "save",
    "load",
    "export_onnx",
    "report",
    "plot_guarantee",
    "conformal",
    "costs",
    "datasets",
    "losses",
    "metrics",
    "onnx",
    "paper",
    "ray",
    "theory",
    "__version__",
]


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
