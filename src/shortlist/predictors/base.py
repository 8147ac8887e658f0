"""What everything that predicts sets has in common: `fit`, `predict_set`, `frontier`."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, to_tensor
from shortlist._utils.frames import are_numbered, check_classes, classes_of_columns, column_order
from shortlist._utils.integrations import PredictorMixin
from shortlist._utils.labels import Classes, label_array
from shortlist._utils.warnings import warn
from shortlist.conformal.quantiles import UnreachableError
from shortlist.families import Family
from shortlist.frontier import Frontier
from shortlist.predictors.training_rows import TrainingRows
from shortlist.ranking import Ranking, as_ranking
from shortlist.ranking.score_types import ScoreType, check_score_type, infer_score_type
from shortlist.sets import PredictionSets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class AcceptedRows:
    """What kind of rows a fitted model accepts.

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
    """Hits and sizes of the prediction sets of labelled rows."""

    hits: NDArray[np.bool_]
    """Whether each row's set contains its label."""
    sizes: NDArray[np.integer]
    """Number of labels in each row's set."""


class SetPredictor(PredictorMixin, BaseEstimator, ABC):
    """A method that turns scores (and features) into prediction sets.

    Attributes
    ----------
    classes_ : the user's classes, in the order of the score columns
    score_type_ : "logits", "proba" or "log_proba", as decided at fit
    """

    score_type: str
    classes_: NDArray[np.generic]
    score_type_: ScoreType
    _classes: Classes
    _training_rows: TrainingRows | None = None
    """The rows that were learned from."""
    _score_columns: list[str] | None
    """The names of the score columns, if fit saw a frame."""

    @abstractmethod
    def fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
    ) -> SetPredictor:
        """Learn from the scores (and features) of labelled rows."""

    @abstractmethod
    def predict_set(
        self, scores: ArrayLike | Ranking, features: ArrayLike | None = None
    ) -> PredictionSets:
        """The prediction set of each row."""

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
        scores, features
            As in `predict_set`.
        accuracies : sequence of float
            Accuracies to guarantee.
        delta, by, groups
            As in `predict_set`.

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

    trains_networks: ClassVar[bool] = True
    """Whether `fit` trains networks, so that it needs all rows; otherwise a sample suffices."""
    has_additive_calibration: ClassVar[bool] = False
    """Whether calibrations of parts of the rows can be merged by adding their counts."""

    @property
    def uses_features(self) -> bool:
        """Whether features can be given to a fitted predictor."""
        return True

    @property
    def n_calibration(self) -> int:
        """Number of calibration rows; 0 if the predictor is not calibrated."""
        return 0

    @property
    def is_calibrated(self) -> bool:
        """Whether there are calibration rows, so that an accuracy can be guaranteed."""
        return self.n_calibration > 0

    def check_reachable(self, accuracy: float) -> None:
        """Raise if the calibration rows cannot guarantee an accuracy; do nothing without any."""

    def accepted_rows(self) -> AcceptedRows:
        """Return what kind of rows the fitted model accepts. By default any.

        Returns
        -------
        AcceptedRows
        """
        return AcceptedRows()

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

    def _learns(self) -> bool:
        """Return whether a fit learns anything from its rows."""
        return True

    @abstractmethod
    def frontier(
        self, scores: ArrayLike | Ranking, y: ArrayLike, features: ArrayLike | None = None
    ) -> Frontier:
        """Accuracy and mean size at every operating point that the method has."""

    # What comparisons and reports ask of a method. A method of your own overrides what applies.

    @property
    def can_calibrate(self) -> bool:
        """Whether the fitted model can be calibrated by ``calibrate(scores, y, features)``."""
        return callable(getattr(self, "calibrate", None))

    @property
    def conditional_on(self) -> str | None:
        """What guarantees are conditional on: "class", "group" or None (all rows together)."""
        return None

    @property
    def sets_are_prefixes(self) -> bool:
        """Whether every set of the fitted model is a prefix of one ranking of the row's labels."""
        return False

    @property
    def is_tuned(self) -> bool:
        """Whether `fit` tunes something for one accuracy, given as a parameter `accuracy`."""
        return False

    @property
    def rescored_(self) -> bool:
        """Whether the fitted model ranks labels by probabilities of its own, as `rescored` has."""
        return False

    def rescored(self, scores: ArrayLike | Ranking, features: ArrayLike | None = None) -> Ranking:
        """Return the rows with the probabilities that the model ranks labels by.

        Parameters
        ----------
        scores, features
            As in `predict_set`.

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
        scores, features
            The rows that `fit` learned from, in the same order.

        Returns
        -------
        Ranking
        """
        return self.rescored(scores, features)

    def ablations(self) -> dict[str, SetPredictor]:
        """Return unfitted copies of the method that lack one stage, by what they lack.

        Returns
        -------
        dict of str to SetPredictor
            Empty by default.
        """
        return {}

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
        scores, features
            As in `predict_set`.
        accuracy : float
            Accuracy to guarantee.

        Returns
        -------
        PredictionSets or None
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
        """Return hits and sizes of labelled rows at many guaranteed accuracies.

        Parameters
        ----------
        scores, features
            As in `predict_set`.
        y : array-like of shape (n_rows,)
            Labels.
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

    def _prefix_rankings(
        self, ranking: Ranking, features: Tensor | None
    ) -> Iterator[tuple[slice, Ranking]]:
        """Yield the rankings that sets are prefixes of, a block of rows at a time."""
        yield slice(0, len(ranking)), ranking

    def _validate_fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        classes: ArrayLike | None,
        *,
        unknown: str = "raise",
    ) -> tuple[Ranking, Tensor, ScoreType]:
        """Begin a fit: the ranking, the label indices, and what the scores are."""
        ranking = as_ranking(scores)
        if classes is not None:
            given = Classes(ranking.n_classes, classes)
            if ranking.columns is not None:
                check_classes(ranking.columns, given.array().tolist())
            ranking = self._named(ranking, given)
        elif ranking.classes.values is None:
            columns = ranking.columns
            named = None if columns is None else classes_of_columns(columns, label_array(y))
            ranking = ranking.with_classes(Classes.infer(y, ranking.n_classes, named))
        index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device, unknown=unknown)
        return ranking, index, infer_score_type(ranking, self.score_type)

    def _finalize_fit(self, ranking: Ranking, kind: ScoreType) -> None:
        """End a fit: called last, so that a fit that fails leaves no half-fitted model."""
        self._classes, self.score_type_ = ranking.classes, kind
        self.classes_ = ranking.classes.array()
        columns = ranking.columns
        named = columns is not None and not are_numbered(columns)
        self._score_columns = [str(name) for name in columns or []] if named else None

    def _validate_scores(self, scores: ArrayLike | Ranking) -> Ranking:
        """The ranking of rows to predict, checked against what fit saw."""
        if not hasattr(self, "_classes"):
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet; call fit(scores, y) first"
            )
        ranking = self._in_order_of_fit(as_ranking(scores))
        if ranking.n_classes != self._classes.n:
            raise ValueError(
                f"scores have {ranking.n_classes} classes, but fit saw {self._classes.n}; "
                "give a column for each, in the same order"
            )
        check_score_type(ranking, getattr(self, "score_type_", "logits"))
        return self._named(ranking, self._classes)

    def _in_order_of_fit(self, ranking: Ranking) -> Ranking:
        """The ranking with its columns in the order of fit, if they have names."""
        if ranking.columns is None:
            return ranking
        known = getattr(self, "_score_columns", None)
        seen = self._classes.array().tolist() if known is None else known
        order = column_order(ranking.columns, seen, "scores", strict=known is not None)
        return ranking if order is None else ranking.with_columns(order)

    def _named(self, ranking: Ranking, classes: Classes) -> Ranking:
        """The ranking with its columns named, unless it names them otherwise itself."""
        if ranking.classes.values is not None and ranking.classes != classes:
            raise ValueError(
                f"the ranking names its columns {ranking.classes.array().tolist()}, but the "
                f"classes are {classes.array().tolist()}; give columns in one order"
            )
        return ranking.with_classes(classes)

    def _warn_if_trained_on(self, ranking: Ranking) -> None:
        """Warn if calibration rows are those of the fit."""
        seen = 0 if self._training_rows is None else self._training_rows.among(ranking)
        if seen:
            warn(
                f"{seen:,} of {len(ranking):,} calibration rows are among those that fit learned "
                "from, so that the accuracy guaranteed may not be kept; calibrate with rows of "
                "their own"
            )

    def _validate_labelled(
        self, scores: ArrayLike | Ranking, y: ArrayLike, *, unknown: str = "raise"
    ) -> tuple[Ranking, Tensor]:
        """The ranking and the label indices; -1 for labels of no known class, if these are to
        count as misses.
        """
        ranking = self._validate_scores(scores)
        index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device, unknown=unknown)
        return ranking, index


def _outcomes_of_sets(sets: PredictionSets, y: ArrayLike) -> Outcomes:
    """Return whether each set contains its row's label, and its size."""
    hits, sizes = to_tensor(sets.contains(y), "hits"), to_tensor(sets.sizes, "sizes")
    return Outcomes(hits.cpu().numpy(), sizes.cpu().numpy())


def as_family(family: object, default: Family) -> Family:
    """The family to choose from."""
    if family is None:
        return default
    if not isinstance(family, Family):
        raise ValueError(f"family must be a Family, such as TopK([1, 2, 4]); got {family!r}")
    return family


def check_depth(family: Family, ranking: Ranking) -> None:
    """Raise if a dense ranking is too shallow for the family (short candidates are expected)."""
    if ranking.is_dense:
        family.check(ranking)


def outcomes(
    family: Family, ranking: Ranking, index: Tensor, choices: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Whether the set of each choice holds the label, and its size: each (rows, choices)."""
    check_depth(family, ranking)
    sizes, hits = family.sizes_of(ranking), family.hits_of(ranking, index)
    columns = [choice[:, None].to(torch.int64) for choice in choices]
    return (
        torch.cat([hits.gather(1, column) for column in columns], dim=1),
        torch.cat([sizes.gather(1, column) for column in columns], dim=1),
    )


def frontier_of_choices(
    family: Family,
    ranking: Ranking,
    index: Tensor,
    choices: Sequence[Tensor],
    parameter: Sequence[float],
    *,
    parameter_name: str,
    name: str,
) -> Frontier:
    """The curve of several choices among one family's members."""
    hits, sizes = outcomes(family, ranking, index, choices)
    return Frontier(
        (hits.sum(dim=0).to(torch.float64) / len(hits)).tolist(),
        (sizes.sum(dim=0).to(torch.float64) / len(sizes)).tolist(),
        parameter,
        parameter_name,
        name,
        rows=(hits.cpu().numpy(), sizes.cpu().numpy()),
    )
