"""Everything that predicts sets."""

from shortlist.predictors.base import SetPredictor
from shortlist.predictors.cardinality import (
    CardinalityPath,
    CardinalitySelector,
    Decisions,
    Selector,
)
from shortlist.predictors.classifier import ShortlistClassifier
from shortlist.predictors.conformal import ConformalPredictor
from shortlist.predictors.fixed import FixedSelector
from shortlist.predictors.plug_in import PlugInSelector
from shortlist.predictors.retrained import RetrainedClassifier
from shortlist.predictors.shortlister import Shortlister
from shortlist.predictors.split_conformal import SplitConformal

__all__ = [
    "SetPredictor",
    "Shortlister",
    "ConformalPredictor",
    "SplitConformal",
    "RetrainedClassifier",
    "PlugInSelector",
    "CardinalitySelector",
    "CardinalityPath",
    "Selector",
    "Decisions",
    "FixedSelector",
    "ShortlistClassifier",
]
