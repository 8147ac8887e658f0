"""Models that are given on the command line, and whether data is for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shortlist.datasets import FeatureFile
    from shortlist.io.models import Model
    from shortlist.io.rows import Rows
    from shortlist.predictors import SetPredictor


def method_of(predictor: Model) -> SetPredictor:
    """The set predictor, also of a classifier that has one."""
    from shortlist.learning.linear import LinearClassifier
    from shortlist.predictors import SetPredictor
    from shortlist.predictors.classifier import ShortlistClassifier

    if isinstance(predictor, LinearClassifier):
        raise ValueError("a LinearClassifier alone predicts no sets; save a set predictor")
    method = predictor.method_ if isinstance(predictor, ShortlistClassifier) else predictor
    assert isinstance(method, SetPredictor)
    return method


def check_takes(predictor: Model, given: Rows | FeatureFile) -> None:
    """Raise if a model takes scores, and there are features alone, or the other way about."""
    from shortlist.datasets import FeatureFile
    from shortlist.predictors import SetPredictor

    if isinstance(predictor, SetPredictor):
        if isinstance(given, FeatureFile):
            raise ValueError(
                f"{given.name} has features, but the model takes scores; fit one on a feature file"
            )
    elif not isinstance(given, FeatureFile) and given.features is None:
        raise ValueError(f"{given.name} has no features, which is what this model takes")
