"""What a selector sees of a row: its features, its sorted log-probabilities, or both."""

from __future__ import annotations

from shortlist._utils.arrays import ArrayLike, as_features
from shortlist._utils.frames import column_names, match_columns
from shortlist._utils.out_of_core import Matrix, hstack, materialize
from shortlist._utils.validation import check_choice, check_count
from shortlist.predictors.row_tables import log_proba_matrix
from shortlist.ranking import Ranking
from shortlist.ranking.score_types import ScoreType


def feature_names_of(model: object) -> list[str] | None:
    """The names of the features that a model was fitted with, whichever method it is."""
    inputs = getattr(model, "_inputs", None)
    names: list[str] | None = getattr(model, "_feature_names", None)
    return getattr(inputs, "names", names)


INPUTS = ("features", "scores", "both")


class SelectorInputs:
    """Builds the input matrix of a selector, in the same way at fit and at prediction.

    "scores" are the log-probabilities of the `score_depth` best labels, best first, and the log
    mass of all others: what matters for the length of a list, whatever the labels' names.
    """

    def __init__(self, inputs: str, score_type: ScoreType, score_depth: int) -> None:
        self.inputs = check_choice(inputs, "inputs", INPUTS)
        self.score_type: ScoreType = score_type
        self.score_depth = check_count(score_depth, "score_depth")
        self.n_features: int | None = None
        self.names: list[str] | None = None

    def fit(self, ranking: Ranking, features: ArrayLike | None) -> Matrix:
        self.score_depth = min(self.score_depth, ranking.depth)
        if self.inputs == "scores":
            self.n_features = None
        elif features is None:
            raise ValueError(
                f'inputs = "{self.inputs}" needs features: fit(scores, y, features=X); '
                'with scores alone, use inputs="scores"'
            )
        else:
            self.n_features = as_features(features, rows=len(ranking)).shape[1]
            self.names = column_names(features)
        return self(ranking, features)

    def __call__(self, ranking: Ranking, features: ArrayLike | None) -> Matrix:
        """The inputs of all rows: (rows, columns), on the features' device if there are any."""
        parts: list[Matrix] = []
        if self.inputs != "scores":
            if features is None:
                raise ValueError(
                    f"features are missing: fit saw {self.n_features} of them; "
                    "give features=... here too"
                )
            matched = match_columns(features, self.names, "features")
            parts.append(as_features(matched, rows=len(ranking), columns=self.n_features))
        if self.inputs != "features":
            parts.append(materialize(log_proba_matrix(ranking, self.score_type, self.score_depth)))
        return parts[0] if len(parts) == 1 else hstack(*parts)
