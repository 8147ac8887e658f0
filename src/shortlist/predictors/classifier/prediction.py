"""Prediction with a fitted classifier and a fitted set predictor."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from shortlist._utils.arrays import Array, ArrayLike
from shortlist._utils.ordering import top_label
from shortlist._utils.validation import check_present
from shortlist.frontier import Frontier
from shortlist.predictors.base import SetPredictor
from shortlist.predictors.classifier.cross_fitting import Classifier, FittedClassifier
from shortlist.predictors.classifier.inputs import MethodInputs
from shortlist.predictors.classifier.method import check_operating_point
from shortlist.predictors.classifier.rows import integers_if_whole
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets


def _classifier_has(name: str) -> Callable[[SetClassifier], bool]:
    """Return a check that the classifier has a method; `available_if` needs its AttributeError."""

    def check(model: SetClassifier) -> bool:
        getattr(getattr(model, "estimator_", model._base()), name)
        return True

    return check


class SetClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier that predicts labels, probabilities and prediction sets.

    A subclass fits the classifier and the set predictor.

    Attributes
    ----------
    classes_ : array
        Classes.
    estimator_ : classifier
        Fitted classifier.
    method_ : set predictor
        Fitted set predictor.
    """

    classes_: NDArray[np.generic]
    estimator_: FittedClassifier
    method_: SetPredictor

    @abstractmethod
    def _base(self) -> Classifier:
        """Return the unfitted classifier."""

    @property
    @abstractmethod
    def _inputs(self) -> MethodInputs:
        """What computes scores and features from X; raises if the model is not fitted."""

    @abstractmethod
    def _current_method(self) -> SetPredictor:
        """Return the fitted method with the current values of the live parameters."""

    def _rescored(self, X: object) -> Tensor | None:
        """Return log-probabilities by the method, or None if it does not re-score."""
        inputs = self._inputs
        if not getattr(self.method_, "rescored_", False):
            return None
        ranking: Ranking = self.method_.rescored(inputs.scores(X), inputs.features(X))
        return ranking.scores_of(slice(0, len(ranking)))

    def predict(self, X: object) -> NDArray[np.generic]:
        """Return the label with the largest score, which is the first label of the set.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.

        Returns
        -------
        array of shape (n_rows,)
        """
        scores = torch.from_numpy(np.ascontiguousarray(self._inputs.scores(X)))
        log_p = self._rescored(X)
        best = top_label(scores if log_p is None else log_p)
        labels: NDArray[np.generic] = self.classes_[best.numpy()]
        return labels

    def predict_set(self, X: object, **operating_point: object) -> PredictionSets:
        """Return the prediction set of each row.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.
        **operating_point
            Options of the method's `predict_set`, such as ``accuracy=0.95``.

        Returns
        -------
        PredictionSets
        """
        scores, method = self._inputs.scores(X), self._current_method()
        check_operating_point(method.predict_set, operating_point)
        return method.predict_set(scores, self._inputs.features(X), **operating_point)

    def predict_sets(
        self, X: object, *, accuracies: Sequence[float], **options: object
    ) -> list[PredictionSets]:
        """Return the sets at each of several accuracies.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.
        accuracies : sequence of float
            Accuracies to guarantee.
        **options
            Options of the method's `predict_sets`, such as ``delta=0.05``.

        Returns
        -------
        list of PredictionSets
        """
        scores, features = self._inputs.scores(X), self._inputs.features(X)
        method = self._current_method()
        check_operating_point(method.predict_sets, options)
        return method.predict_sets(scores, features, accuracies=accuracies, **options)  # type: ignore[arg-type]

    def frontier(self, X: object, y: ArrayLike) -> Frontier:
        """Return accuracy and mean size at every operating point of the method.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.
        y : array-like of shape (n_rows,)
            Labels.

        Returns
        -------
        Frontier
        """
        scores = self._inputs.scores(X)
        check_present(y, "y")
        labels = integers_if_whole(np.asarray(y))
        return self.method_.frontier(scores, labels, self._inputs.features(X))

    def report(
        self,
        X: object,
        y: ArrayLike,
        path: str | os.PathLike[str] = "report.html",
        **options: object,
    ) -> Path:
        """Write a report on rows that `fit` did not see, as an HTML page.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.
        y : array-like of shape (n_rows,)
            Labels.
        path : path, default="report.html"
            File to write.
        **options
            Options of :meth:`shortlist.SetPredictor.report`: `title`, `examples`, `overwrite`.

        Returns
        -------
        Path
            The file.
        """
        check_present(y, "y")
        scores, labels = self._inputs.scores(X), integers_if_whole(column_or_1d(y))
        method = self._current_method()
        return method.report(scores, labels, self._inputs.features(X), path, **options)

    @available_if(_classifier_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: object) -> Array:
        """Return the probabilities from which the sets are computed.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.

        Returns
        -------
        array of shape (n_rows, n_classes)
            Probabilities of the classifier or, if the method re-scores, of the method.
        """
        log_p = self._rescored(X)
        return self._inputs.scores(X) if log_p is None else log_p.exp().numpy()

    @available_if(_classifier_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: object) -> Array:
        """Return decision values of the classifier or, if the method re-scores, of the method.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.

        Returns
        -------
        array of shape (n_rows, n_classes), or (n_rows,) for two classes
            The method's decision values are log-probabilities; for two classes, their difference.
        """
        log_p_tensor = self._rescored(X)
        if log_p_tensor is None:
            matched = self._inputs.match_columns(X)
            return np.asarray(self.estimator_.decision_function(matched))  # type: ignore[attr-defined]
        log_p = log_p_tensor.numpy()
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p
