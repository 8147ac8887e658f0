"""Prediction sets for any scikit-learn classifier."""

from shortlist.predictors.classifier.estimator import ShortlistClassifier

__all__ = ["ShortlistClassifier"]
