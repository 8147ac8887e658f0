"""Validation of scores and labels, against the classes and columns that `fit` saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sklearn.exceptions import NotFittedError
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.frames import are_numbered, column_order
from shortlist._utils.labels import Classes
from shortlist._utils.warnings import warn
from shortlist.predictors.training_rows import TrainingRows
from shortlist.ranking import Ranking, as_ranking
from shortlist.ranking.class_names import name_classes, with_equal_classes
from shortlist.ranking.score_types import ScoreType, check_score_type, infer_score_type

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ScoreValidationMixin:
    """Give a set predictor the validation of scores and labels, for `fit` and for prediction."""

    score_type: str
    classes_: NDArray[np.generic]
    score_type_: ScoreType
    _classes: Classes
    _training_rows: TrainingRows | None = None
    """Rows that `fit` learned from."""
    _score_columns: list[str] | None
    """Names of the score columns, if `fit` saw a frame."""

    def _validate_fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        classes: ArrayLike | None,
        *,
        unknown: str = "raise",
    ) -> tuple[Ranking, Tensor, ScoreType]:
        """Return the ranking, the label indices and the score type of the rows of a fit.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores.
        y : array-like of shape (n_rows,)
            Labels.
        classes : array-like or None
            Names of the score columns.
        unknown : {"raise", "some"}, default="raise"
            What to do about labels of unknown classes: raise an error, or return the index -1 if
            only some are unknown.
        """
        ranking = name_classes(as_ranking(scores), y, classes)
        index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device, unknown=unknown)
        return ranking, index, infer_score_type(ranking, self.score_type)

    def _finalize_fit(self, ranking: Ranking, score_type: ScoreType) -> None:
        """Store what fit saw. Call it last, so that a fit that fails leaves no fitted model."""
        self._classes, self.score_type_ = ranking.classes, score_type
        self.classes_ = ranking.classes.array()
        columns = ranking.columns
        has_names = columns is not None and not are_numbered(columns)
        self._score_columns = [str(name) for name in columns or []] if has_names else None

    def _validate_scores(self, scores: ArrayLike | Ranking) -> Ranking:
        """Return the ranking of rows to predict, validated against what fit saw."""
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
        return with_equal_classes(ranking, self._classes)

    def _validate_labeled(
        self, scores: ArrayLike | Ranking, y: ArrayLike, *, unknown: str = "any"
    ) -> tuple[Ranking, Tensor]:
        """Return the ranking and the label indices of rows to calibrate with or to measure on.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores.
        y : array-like of shape (n_rows,)
            Labels.
        unknown : {"some", "any"}, default="any"
            How many labels may be of unknown classes, which get the index -1; see
            `Classes.encode`.
        """
        ranking = self._validate_scores(scores)
        index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device, unknown=unknown)
        return ranking, index

    def _in_order_of_fit(self, ranking: Ranking) -> Ranking:
        """Return the ranking with its columns in the order of fit, if they have names."""
        if ranking.columns is None:
            return ranking
        names = getattr(self, "_score_columns", None)
        expected = self._classes.array().tolist() if names is None else names
        order = column_order(ranking.columns, expected, "scores", strict=names is not None)
        return ranking if order is None else ranking.with_columns(order)

    def _warn_if_trained_on(self, ranking: Ranking) -> None:
        """Warn if calibration rows are among those that fit learned from."""
        count = 0 if self._training_rows is None else self._training_rows.count_in(ranking)
        if count:
            warn(
                f"{count:,} of {len(ranking):,} calibration rows are among those that fit learned "
                "from, so that the guarantee may not hold; calibrate with rows that fit has not "
                "seen"
            )
