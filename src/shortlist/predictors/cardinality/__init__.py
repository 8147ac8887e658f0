"""The paper's cardinality-aware selectors."""

from shortlist.predictors.cardinality.decisions import Decisions
from shortlist.predictors.cardinality.head import Selector
from shortlist.predictors.cardinality.path import CardinalityPath
from shortlist.predictors.cardinality.selector import CardinalitySelector

__all__ = ["CardinalityPath", "CardinalitySelector", "Decisions", "Selector"]
