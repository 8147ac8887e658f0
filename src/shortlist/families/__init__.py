"""Families of set predictors `g_k, k in K`, from which a selector chooses."""

from shortlist.families.base import Family
from shortlist.families.custom import Custom
from shortlist.families.deferral import Deferral
from shortlist.families.prefixes import Threshold, TopK

__all__ = ["Custom", "Deferral", "Family", "Threshold", "TopK"]
