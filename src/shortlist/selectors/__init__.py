"""Who chooses the size of each row's set."""

from shortlist.selectors._base import SetPredictor
from shortlist.selectors.cardinality import CardinalityPath, CardinalitySelector
from shortlist.selectors.fixed import FixedSelector
from shortlist.selectors.head import Selector
from shortlist.selectors.plug_in import PlugInSelector
from shortlist.selectors.shortlister import Shortlister

__all__ = [
    "SetPredictor",
    "Shortlister",
    "PlugInSelector",
    "CardinalitySelector",
    "CardinalityPath",
    "FixedSelector",
    "Selector",
]
