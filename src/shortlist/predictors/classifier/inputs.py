"""What a set predictor takes, scores and features, from inputs of a fitted classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.frames import column_names, match_columns
from shortlist._utils.validation import check_unmasked
from shortlist.predictors.classifier.cross_fitting import FittedClassifier, class_scores
from shortlist.predictors.classifier.features import FeatureSource
from shortlist.ranking import Ranking

CLASSIFIER_ROUNDING = 2.0**-12
"""Bound on the relative difference between two computations of a classifier's probabilities for a
row, in batches or with numbers of threads that differ. A matrix product in float32 with logits up
to a few hundred stays below it."""


@dataclass(frozen=True)
class MethodInputs:
    """The way from inputs of a fitted classifier to those of a set predictor.

    Parameters
    ----------
    estimator : classifier
        Fitted classifier, which validates the inputs.
    classes : array of shape (n_classes,)
        Sorted classes, in the order of the columns of the scores.
    source : FeatureSource
        How features are computed.
    names : sequence of str, optional
        Names of the columns in `fit`, if they have any.
    open_classes : bool, default=False
        Whether new rows may have unknown classes.
    """

    estimator: FittedClassifier
    classes: NDArray[np.generic]
    source: FeatureSource
    names: Sequence[object] | None = None
    open_classes: bool = False

    def match_columns(self, X: object) -> object:
        """Return X with its columns in the order of fit, if they have names."""
        given = column_names(X)
        if self.names is None or given is None or given == list(self.names):
            return X
        # If the classifier rejects columns in another order, as those of scikit-learn do, so does
        # this one.
        class_scores(self.estimator, X, self.classes)
        return match_columns(X, [str(name) for name in self.names], "X")

    def scores(self, X: object) -> NDArray[np.floating]:
        """Return the classifier's scores of X. The classifier validates X."""
        check_unmasked(X, "X")
        return class_scores(self.estimator, self.match_columns(X), self.classes)

    def ranking(self, X: object) -> Ranking:
        """Return the scores as a ranking, which may be rounded differently in another batch."""
        ranking = Ranking.from_scores(self.scores(X))
        ranking.rounding, ranking.open_classes = CLASSIFIER_ROUNDING, self.open_classes
        return ranking

    def features(self, X: object) -> ArrayLike | None:
        """Return the features of rows to predict or to calibrate with."""
        return self.source.compute(self.match_columns(X))
