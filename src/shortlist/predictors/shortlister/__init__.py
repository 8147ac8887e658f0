"""The Shortlister: the shortest sets for an accuracy, learned in two stages."""

from shortlist.predictors.shortlister.shortlister import Shortlister

__all__ = ["Shortlister"]
