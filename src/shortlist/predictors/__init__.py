"""Everything that predicts sets."""

from shortlist.predictors.base import SetPredictor
from shortlist.predictors.cardinality import CardinalityPath, CardinalitySelector, Selector
from shortlist.predictors.classifier import ShortlistClassifier
from shortlist.predictors.conformal import SplitConformal
from shortlist.predictors.fixed import FixedSelector
from shortlist.predictors.plug_in import PlugInSelector
from shortlist.predictors.shortlister import Shortlister

__all__ = [
    "SetPredictor",
    "Shortlister",
    "SplitConformal",
    "PlugInSelector",
    "CardinalitySelector",
    "CardinalityPath",
    "Selector",
    "FixedSelector",
    "ShortlistClassifier",
]
