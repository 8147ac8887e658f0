"""Opinions: the estimates of class probabilities that stage 1 of the Shortlister pools."""

from shortlist.predictors.shortlister.opinions.base import (
    Block,
    FoldedRows,
    Opinion,
    align_columns,
    padding_mask,
    prior_columns,
)
from shortlist.predictors.shortlister.opinions.given import GivenScores, ScaledScores, VectorScaling
from shortlist.predictors.shortlister.opinions.learner import LearnerOpinion
from shortlist.predictors.shortlister.opinions.neighbors import Neighbors
from shortlist.predictors.shortlister.opinions.networks import (
    Architecture,
    NetworkOpinion,
    fit_logistic,
    fit_networks,
)

__all__ = [
    "Architecture",
    "Block",
    "FoldedRows",
    "GivenScores",
    "LearnerOpinion",
    "Neighbors",
    "NetworkOpinion",
    "Opinion",
    "ScaledScores",
    "VectorScaling",
    "align_columns",
    "fit_logistic",
    "fit_networks",
    "padding_mask",
    "prior_columns",
]
