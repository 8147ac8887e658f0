"""Who chooses the size of each row's set."""

from shortlist.selectors._base import SetPredictor
from shortlist.selectors.cardinality import CardinalityPath, CardinalitySelector
from shortlist.selectors.fixed import FixedSelector

__all__ = ["SetPredictor", "CardinalitySelector", "CardinalityPath", "FixedSelector"]
