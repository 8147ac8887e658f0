"""Load models and data for the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shortlist.datasets import Rows
    from shortlist.io.models import Model
    from shortlist.predictors import SetPredictor
    from shortlist.sets import PredictionSets


class LoadedModel:
    """A saved set predictor, with or without a classifier that computes the scores.

    Parameters
    ----------
    model : Model
        Model that was loaded.
    """

    def __init__(self, model: Model) -> None:
        from shortlist.learning.linear import LinearClassifier
        from shortlist.predictors.classifier import ShortlistClassifier

        if isinstance(model, LinearClassifier):
            raise ValueError(
                "the model is a LinearClassifier, which predicts no sets; save a set predictor"
            )
        self.model = model
        self.classifier = model if isinstance(model, ShortlistClassifier) else None
        method = model.method_ if isinstance(model, ShortlistClassifier) else model
        self.method: SetPredictor = method

    @classmethod
    def open(cls, path: Path) -> LoadedModel:
        """Load a model from its folder."""
        from shortlist.io.models import load

        return cls(load(path))

    def match(self, rows: Rows) -> Rows:
        """Return rows with their columns in the order of the model.

        Raises
        ------
        ValueError
            If the rows have no scores, or no features, and the model needs them.
        """
        if self.classifier is None and rows.scores is None:
            raise ValueError(
                f"{rows.name} has no scores, which the model takes; fit a model on a feature file"
            )
        if self.classifier is not None and rows.features is None:
            raise ValueError(f"{rows.name} has no features, which the model takes")
        try:
            return rows.match_columns(self.method.classes_, self.method.feature_names)
        except ValueError as error:
            raise ValueError(
                f"{error}. Name columns that are not scores with --id, --keep, --ignore or --label"
            ) from None

    def set_on_unreachable(self, choice: str) -> None:
        """Set what to do about an accuracy that cannot be guaranteed."""
        from shortlist._utils.validation import check_choice
        from shortlist.predictors.classifier.method import with_parameters

        check_choice(choice, "--on-unreachable", ("raise", "all"))
        self.method = with_parameters(self.method, {"on_unreachable": choice})
        if self.classifier is None:
            self.model = self.method
        else:
            self.classifier.set_params(on_unreachable=choice)

    def predict_set(self, rows: Rows, **operating_point: Any) -> PredictionSets:
        """Predict the sets of rows whose columns are in the order of the model."""
        from shortlist.predictors.classifier.method import check_operating_point

        check_operating_point(self.method.predict_set, operating_point)
        if self.classifier is not None:
            return self.classifier.predict_set(rows.features, **operating_point)
        if rows.groups is not None:
            operating_point["groups"] = rows.groups
        ranking = rows.ranking(self.method.classes_)
        return self.method.predict_set(ranking, rows.features, **operating_point)

    def calibrate(self, rows: Rows) -> None:
        """Replace the calibration rows by rows whose columns are in the order of the model."""
        if rows.y is None:
            raise ValueError(f"{rows.name} has no labels, which a calibration needs; add y")
        if self.classifier is not None:
            self.classifier.calibrate(rows.features, rows.y)
        else:
            method: Any = self.method
            options = group_options(method.calibrate, rows)
            ranking = rows.ranking(self.method.classes_)
            method.calibrate(ranking, rows.y, rows.features, **options)


def calibration_size(method: SetPredictor) -> int | None:
    """Return the number of calibration rows; None if there are none."""
    return method.n_calibration or None


def group_options(method: Callable[..., object], rows: Rows) -> dict[str, Any]:
    """Return the groups of rows as arguments of a method of a predictor.

    Raises
    ------
    ValueError
        If the method takes no groups.
    """
    from shortlist.predictors.classifier.cross_fitting import takes_argument

    if rows.groups is None:
        return {}
    if not takes_argument(method, "groups"):
        raise ValueError("this method makes no guarantee by group; leave --groups out")
    return {"groups": rows.groups}
