"""Where the features of a set predictor come from: the columns of X, a function, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeAlias

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.sklearn_inputs import as_numeric_matrix
from shortlist._utils.warnings import warn
from shortlist.predictors.base import SetPredictor
from shortlist.predictors.classifier.feature_encoder import FeatureEncoder

FeatureChoice: TypeAlias = str | Callable[[object], ArrayLike] | None


@dataclass(frozen=True)
class FeatureSource:
    """How the features of a set predictor are computed from inputs of the classifier.

    Parameters
    ----------
    choice : "auto", None or callable
        The columns of the inputs, nothing, or a function of the inputs.
    encoder : FeatureEncoder, optional
        Encoder of the columns. "auto" has none if the inputs are not a table.
    is_input : bool, default=False
        Whether the inputs themselves are the features, because the set predictor was fitted with
        them.
    """

    choice: FeatureChoice
    encoder: FeatureEncoder | None
    is_input: bool = False

    @classmethod
    def fit(cls, choice: FeatureChoice, X: object) -> Self:
        """Return a source that has learned means and categories from rows to learn from."""
        if choice is None or callable(choice):
            return cls(choice, None)
        if choice != "auto":
            raise ValueError(f'features must be "auto", None or a function of X; got {choice!r}')
        return cls(choice, FeatureEncoder.fit(X))

    def compute(self, X: object) -> ArrayLike | None:
        """Return the features of X, without missing values if they are not from a function.

        Some classifiers accept missing values, but networks do not.
        """
        if callable(self.choice):
            return self.choice(X)
        if self.encoder is not None:
            return self.encoder.transform(X)
        return as_numeric_matrix(X) if self.is_input else None

    def describe(self, method: SetPredictor) -> str:
        """Return what the features of a set predictor are."""
        if not getattr(method, "can_use_features", True):
            return "none: the method uses scores alone"
        if self.choice is None:
            return "none (features=None)"
        if callable(self.choice):
            return "computed from X by a function"
        if self.encoder is not None:
            return self.encoder.describe()
        return "X" if self.is_input else "none: X is not a dense table with columns"

    def check(self, features: ArrayLike | None, X: object, method: SetPredictor) -> None:
        """Raise if a set predictor needs features, but there are none."""
        if features is None and getattr(method, "needs_features", False):
            raise ValueError(
                f"{method!r} needs features, but they are {self.describe(method)}; got "
                f"{type(X).__name__}. Use a method that takes scores alone, or give "
                "ShortlistClassifier a function that computes features from X: features=..."
            )

    def warn_if_incomplete(self, method: SetPredictor) -> None:
        """Warn if "auto" does not use something in X as a feature, although the method could."""
        if self.choice != "auto" or not getattr(method, "can_use_features", True):
            return
        if self.encoder is None or self.encoder.left_out:
            warn(
                f"features for the prediction sets: {self.describe(method)}. To use more, give "
                "features=..., a function that computes numbers from X; to use none, features=None"
            )
