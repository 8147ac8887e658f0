"""Inputs of a selector: the features of a row, its sorted log-probabilities, or both."""

from __future__ import annotations

from shortlist._utils.arrays import ArrayLike, as_features
from shortlist._utils.frames import column_names, match_columns
from shortlist._utils.out_of_core import Matrix, hstack, materialize
from shortlist._utils.validation import check_choice, check_count
from shortlist.predictors.row_tables import log_proba_matrix
from shortlist.ranking import Ranking
from shortlist.ranking.score_types import ScoreType

INPUTS = ("features", "scores", "both")


class SelectorInputs:
    """Build the input matrix of a selector, in the same way at fit and at prediction.

    Scores enter as the sorted log-probabilities of the best labels and the log mass of all others.
    They show how large a set must be, and do not depend on which labels are the best ones.

    Parameters
    ----------
    inputs : {"features", "scores", "both"}
        What the matrix consists of.
    score_type : {"logits", "proba", "log_proba"}
        Type of the scores.
    score_depth : int
        Number of log-probabilities.
    """

    def __init__(self, inputs: str, score_type: ScoreType, score_depth: int) -> None:
        self.inputs = check_choice(inputs, "inputs", INPUTS)
        self.score_type: ScoreType = score_type
        self.score_depth = check_count(score_depth, "score_depth")
        self.n_features: int | None = None
        self.names: list[str] | None = None

    def fit(self, ranking: Ranking, features: ArrayLike | None) -> Matrix:
        """Store the names and number of features, and return the inputs of the same rows.

        Parameters
        ----------
        ranking : Ranking
            Rows to learn from.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows.

        Returns
        -------
        matrix of shape (n_rows, n_columns)
        """
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
        """Return the inputs of all rows, on the device of the features if there are any.

        Parameters
        ----------
        ranking : Ranking
            Rows to predict.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows.

        Returns
        -------
        matrix of shape (n_rows, n_columns)
        """
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
