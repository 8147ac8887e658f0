"""What everything that predicts sets has in common: `fit`, `predict_set`, `frontier`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.frames import are_numbered, check_classes, classes_of_columns, column_order
from shortlist._utils.integrations import PredictorMixin
from shortlist._utils.labels import Classes, label_array
from shortlist._utils.warnings import warn
from shortlist.families import Family
from shortlist.frontier import Frontier
from shortlist.predictors.training_rows import TrainingRows
from shortlist.ranking import Ranking, as_ranking
from shortlist.ranking.probabilities import ScoreType, check_score_type, infer_score_type
from shortlist.sets import PredictionSets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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

    @abstractmethod
    def frontier(
        self, scores: ArrayLike | Ranking, y: ArrayLike, features: ArrayLike | None = None
    ) -> Frontier:
        """Accuracy and mean size at every operating point that the method has."""

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

    def _ranking(self, scores: ArrayLike | Ranking) -> Ranking:
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

    def _warn_if_seen(self, ranking: Ranking) -> None:
        """Warn if calibration rows are those of the fit."""
        seen = 0 if self._training_rows is None else self._training_rows.among(ranking)
        if seen:
            warn(
                f"{seen:,} of {len(ranking):,} calibration rows are among those that fit learned "
                "from, so that the accuracy guaranteed may not be kept; calibrate with rows of "
                "their own"
            )

    def _labelled(
        self, scores: ArrayLike | Ranking, y: ArrayLike, *, unknown: str = "raise"
    ) -> tuple[Ranking, Tensor]:
        """The ranking and the label indices; -1 for labels of no known class, if these are to
        count as misses."""
        ranking = self._ranking(scores)
        index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device, unknown=unknown)
        return ranking, index


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
