"""The base class of everything that predicts sets."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, to_tensor
from shortlist._utils.integrations import PredictorMixin
from shortlist._utils.notebook import DescriptionMixin
from shortlist._utils.tables import summarize_names
from shortlist.conformal.quantiles import UnreachableError
from shortlist.frontier import Frontier
from shortlist.predictors.validation import ScoreValidationMixin
from shortlist.ranking import Ranking, as_ranking
from shortlist.sets import PredictionSets

if TYPE_CHECKING:
    from numpy.typing import NDArray


COMMON_ACCURACIES = (0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
"""Accuracies that a description of a model mentions."""


@dataclass(frozen=True)
class AcceptedRows:
    """The kind of rows that a fitted model accepts.

    Attributes
    ----------
    dense : bool or None
        Whether every class must have a score (True), or rows must be candidates (False). None if
        both are accepted.
    depth : int or None
        Number of labels that are ranked if every class has a score; None if all are.
    candidates : int
        Number of candidates that a row must be able to have.
    """

    dense: bool | None = None
    depth: int | None = None
    candidates: int = 1


class Outcomes(NamedTuple):
    """Hits and sizes of the prediction sets of labeled rows."""

    hits: NDArray[np.bool_]
    """Whether each row's set contains its label."""
    sizes: NDArray[np.integer]
    """Number of labels in each row's set."""


class SetPredictor(ScoreValidationMixin, PredictorMixin, DescriptionMixin, BaseEstimator, ABC):
    """A method that turns scores (and features) into prediction sets.

    To write a method, implement `fit`, `predict_set` and `frontier`. The other members describe
    the method to comparisons, reports and exports; override those that apply.

    Attributes
    ----------
    classes_ : array
        Classes, in the order of the score columns.
    score_type_ : {"logits", "proba", "log_proba"}
        Type of the scores, as decided at fit.
    trains_networks : bool
        Whether `fit` trains networks, so that it needs all rows; otherwise a sample suffices.
    takes_extra_rows : bool
        Whether `fit` has the arguments `extra_features` and `extra_y`: labeled rows without scores.
        If the method re-scores, `out_of_fold` must have them, too.
    has_additive_calibration : bool
        Whether calibrations of parts of the rows can be merged by adding their counts.
    """

    trains_networks: ClassVar[bool] = True
    takes_extra_rows: ClassVar[bool] = False
    has_additive_calibration: ClassVar[bool] = False

    # Fitting and prediction

    @abstractmethod
    def fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
    ) -> Self:
        """Learn from the scores (and features) of labeled rows.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of rows that the classifier was not trained on.
        y : array-like of shape (n_rows,)
            Labels.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows, for methods that use them.
        classes : array-like, optional
            Names of the score columns.

        Returns
        -------
        self
            The fitted predictor.
        """

    @abstractmethod
    def predict_set(
        self, scores: ArrayLike | Ranking, features: ArrayLike | None = None
    ) -> PredictionSets:
        """Return the prediction set of each row.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores, of the type that `fit` saw.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` used them.

        Returns
        -------
        PredictionSets
            Sets, with their guarantee.
        """

    def predict_sets(
        self,
        scores: ArrayLike | Ranking,
        features: ArrayLike | None = None,
        *,
        accuracies: Sequence[float],
        delta: float | None = None,
        by: str | None = None,
        groups: ArrayLike | None = None,
    ) -> list[PredictionSets]:
        """Return the sets at several accuracies.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores, of the type that `fit` saw.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` used them.
        accuracies : sequence of float
            Accuracies to guarantee.
        delta : float, optional
            Probability, over the draw of the calibration rows, that a guarantee may fail.
        by : str, optional
            Calibrator by name, as in `predict_set`.
        groups : array-like of shape (n_rows,), optional
            Group of each row, for guarantees conditional on groups.

        Returns
        -------
        list of PredictionSets
            Sets at each accuracy.
        """
        ranking = self._validate_scores(scores)
        predict: Any = self.predict_set
        given = {"delta": delta, "by": by, "groups": groups}
        options = {name: value for name, value in given.items() if value is not None}
        return [predict(ranking, features, accuracy=a, **options) for a in accuracies]

    @abstractmethod
    def frontier(
        self, scores: ArrayLike | Ranking, y: ArrayLike, features: ArrayLike | None = None
    ) -> Frontier:
        """Return accuracy and mean size at every operating point of the method.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of rows that are used neither to fit nor to calibrate.
        y : array-like of shape (n_rows,)
            Labels.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` used them.

        Returns
        -------
        Frontier
            One point for each operating point.
        """

    # Calibration

    @property
    def can_calibrate(self) -> bool:
        """Whether the fitted model can be calibrated by ``calibrate(scores, y, features)``."""
        return callable(getattr(self, "calibrate", None))

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if `fit` was given features with names."""
        names: list[str] | None = getattr(self, "_feature_names", None)
        return names

    @property
    def n_calibration(self) -> int:
        """Number of calibration rows; 0 if the predictor is not calibrated."""
        return 0

    @property
    def is_calibrated(self) -> bool:
        """Whether there are calibration rows, so that an accuracy can be guaranteed."""
        return self.n_calibration > 0

    @property
    def conditional_on(self) -> str | None:
        """What guarantees are conditional on: "class", "group" or None (all rows together)."""
        return None

    def check_reachable(self, accuracy: float) -> None:
        """Raise if the predictor is calibrated and cannot guarantee an accuracy.

        Parameters
        ----------
        accuracy : float
            Accuracy to guarantee.

        Raises
        ------
        UnreachableError
            If the calibration rows cannot guarantee the accuracy.
        """

    def predict_if_reachable(
        self,
        scores: ArrayLike | Ranking,
        features: ArrayLike | None = None,
        *,
        accuracy: float,
    ) -> PredictionSets | None:
        """Return the sets at an accuracy, or None if the model cannot guarantee it.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores, of the type that `fit` saw.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` used them.
        accuracy : float
            Accuracy to guarantee.

        Returns
        -------
        PredictionSets or None
            Sets, with their guarantee.
        """
        if not self.is_calibrated:
            return None
        predict: Any = self.predict_set
        try:
            sets: PredictionSets = predict(scores, features, accuracy=accuracy)
        except UnreachableError:
            return None
        return sets

    def evaluate(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        accuracies: Sequence[float],
    ) -> list[Outcomes | None]:
        """Return hits and sizes of labeled rows at many guaranteed accuracies.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores, of the type that `fit` saw.
        y : array-like of shape (n_rows,)
            Labels.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` used them.
        accuracies : sequence of float
            Accuracies to guarantee.

        Returns
        -------
        list of Outcomes or None
            Outcomes at each accuracy; None where it cannot be guaranteed.
        """
        ranking = as_ranking(scores)
        results: list[Outcomes | None] = []
        with warnings.catch_warnings():  # A warning would be repeated for each accuracy.
            warnings.simplefilter("ignore", UserWarning)
            for accuracy in accuracies:
                sets = self.predict_if_reachable(ranking, features, accuracy=accuracy)
                results.append(None if sets is None else _outcomes_of_sets(sets, y))
        return results

    def forget_rows(self) -> None:
        """Remove what the model keeps only to score the rows of `fit` once more."""
        return

    # Description of the method

    def describe(self) -> dict[str, str]:
        """Return what is known about the fitted model, by topic. Notebooks show it.

        Returns
        -------
        dict of str to str
            Classes, scores, features, calibration rows and the accuracies that they guarantee.
            Some methods add what they learned.
        """
        names = self.feature_names
        return {
            "classes": summarize_names(np.asarray(self.classes_).tolist()),
            "scores": getattr(self, "score_type_", "any"),
            **self._describe_fit(),
            **({} if names is None else {"feature names": summarize_names(names)}),
            "calibration rows": f"{self.n_calibration:,}",
            "guarantees": self._describe_guarantees(),
            **self._describe_sizes(),
        }

    def _describe_fit(self) -> dict[str, str]:
        """Return what `fit` learned, by topic."""
        return {}

    def _describe_sizes(self) -> dict[str, str]:
        """Return mean sizes that are known from the calibration rows, by topic."""
        return {}

    def _reachable_accuracies(self) -> list[float]:
        """Return the common accuracies that can be guaranteed."""
        reachable = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for accuracy in COMMON_ACCURACIES if self.is_calibrated else ():
                try:
                    self.check_reachable(accuracy)
                except ValueError:  # Such as a parameter that was changed after `fit`.
                    break
                reachable.append(accuracy)
        return reachable

    def _describe_guarantees(self) -> str:
        """Return which common accuracies can be guaranteed."""
        if not self.is_calibrated:
            return "none: not calibrated"
        reachable = self._reachable_accuracies()
        if not reachable:
            try:
                self.check_reachable(COMMON_ACCURACIES[0])
            except UnreachableError:
                pass
            except ValueError as error:
                return f"none: {error}"
            return f"no accuracy of {COMMON_ACCURACIES[0]} or more"
        whom = "" if self.conditional_on is None else f" for each {self.conditional_on}"
        beyond = COMMON_ACCURACIES[len(reachable) :][:1]
        return f"accuracies up to {reachable[-1]}{whom}" + "".join(f", not {a}" for a in beyond)

    @property
    def uses_features(self) -> bool:
        """Whether features can be given to a fitted predictor."""
        return True

    @property
    def can_use_features(self) -> bool:
        """Whether a fit can learn from features."""
        return True

    @property
    def needs_features(self) -> bool:
        """Whether a fit without features is an error."""
        return False

    @property
    def sets_are_prefixes(self) -> bool:
        """Whether every set of the fitted model is a prefix of one ranking of the row's labels."""
        return False

    @property
    def is_tuned(self) -> bool:
        """Whether `fit` tunes something for one accuracy, given as a parameter `accuracy`."""
        return False

    def accepted_rows(self) -> AcceptedRows:
        """Return the kind of rows that the fitted model accepts.

        Returns
        -------
        AcceptedRows
            Rows of any kind by default.
        """
        return AcceptedRows()

    def ablations(self) -> dict[str, SetPredictor]:
        """Return unfitted copies of the method that lack one stage.

        Returns
        -------
        dict of str to SetPredictor
            Copies by the name of the missing stage. Empty by default.
        """
        return {}

    def _learns(self) -> bool:
        """Return whether a fit learns anything from its rows."""
        return True

    # Re-scoring

    @property
    def rescored_(self) -> bool:
        """Whether the fitted model ranks labels by other probabilities; see `rescored`."""
        return False

    def rescored(self, scores: ArrayLike | Ranking, features: ArrayLike | None = None) -> Ranking:
        """Return the rows with the probabilities that the model ranks labels by.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores, of the type that `fit` saw.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` used them.

        Returns
        -------
        Ranking
            By default the rows unchanged.
        """
        return self._validate_scores(scores)

    def out_of_fold(
        self, scores: ArrayLike | Ranking, features: ArrayLike | None = None
    ) -> Ranking:
        """Return `rescored` for the rows of `fit`, each computed without its own label.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the rows that `fit` learned from, in the same order.
        features : array-like of shape (n_rows, n_features), optional
            Features of the same rows.

        Returns
        -------
        Ranking
            By default `rescored`.
        """
        return self.rescored(scores, features)

    def _prefix_rankings(
        self, ranking: Ranking, features: Tensor | None
    ) -> Iterator[tuple[slice, Ranking]]:
        """Yield the rankings that sets are prefixes of, a block of rows at a time."""
        yield slice(0, len(ranking)), ranking

    # Export

    def onnx_sets(self, graph: Any, point: Any) -> Any:
        """Return the prediction sets as outputs of an ONNX graph.

        Implement it so that :func:`shortlist.export_onnx` can export the model.

        Parameters
        ----------
        graph : shortlist.onnx.ModelGraph
            The graph. Its methods return sets at thresholds, or those of members of a family.
        point : shortlist.onnx.OperatingPoint
            The operating point that `export_onnx` was given.

        Returns
        -------
        shortlist.onnx.GraphSets
            Labels and sizes, with their guarantee.

        Raises
        ------
        ValueError
            By default: a model has no graph unless it implements this method.
        """
        name = type(self).__name__
        raise ValueError(
            f"{name} cannot be exported to ONNX: it does not implement onnx_sets(graph, point); "
            "see `shortlist.SetPredictor.onnx_sets`"
        )


def _outcomes_of_sets(sets: PredictionSets, y: ArrayLike) -> Outcomes:
    """Return whether each set contains its row's label, and its size."""
    hits, sizes = to_tensor(sets.contains(y), "hits"), to_tensor(sets.sizes, "sizes")
    return Outcomes(hits.cpu().numpy(), sizes.cpu().numpy())
