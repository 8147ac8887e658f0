"""The paper's cardinality-aware selectors."""

from shortlist.predictors.cardinality.head import Selector
from shortlist.predictors.cardinality.selectors import CardinalityPath, CardinalitySelector

__all__ = ["CardinalityPath", "CardinalitySelector", "Selector"]
