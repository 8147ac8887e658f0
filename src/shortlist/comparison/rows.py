"""Labeled rows, and their split into test rows and other rows."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, as_features, row_index
from shortlist._utils.frames import column_names, match_columns
from shortlist._utils.labels import label_array
from shortlist._utils.validation import check_probability
from shortlist._utils.warnings import warn
from shortlist.predictors import FixedSelector, SetPredictor
from shortlist.predictors.splitting import hold_out
from shortlist.predictors.training_rows import TrainingRows
from shortlist.ranking import Ranking

TestRows: TypeAlias = "float | tuple[ArrayLike | Ranking, ArrayLike, ArrayLike | None]"
"""A fraction of the rows, or rows as (scores, y, features)."""


class LabeledRows(NamedTuple):
    """Rows in the order in which `fit`, `calibrate` and `frontier` take their parts.

    Parameters
    ----------
    ranking : Ranking
        The ranking of each row.
    y : array of shape (n_rows,)
        Labels.
    features : Tensor of shape (n_rows, n_features) or None
        Features, if the rows have any.
    """

    ranking: Ranking
    y: NDArray[np.generic]
    features: Tensor | None

    def take(self, index: NDArray[np.intp]) -> LabeledRows:
        """Return the rows at an index.

        Parameters
        ----------
        index : array of int
            Row numbers.

        Returns
        -------
        LabeledRows
            These rows, in the order of the index.
        """
        x = self.features
        x = None if x is None else x[row_index(index, len(x), x.device)]
        return LabeledRows(self.ranking[index], self.y[index], x)


def split_test_rows(
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None,
    classes: ArrayLike | None,
    test: TestRows,
    seed: int,
) -> tuple[LabeledRows, LabeledRows, NDArray[np.intp] | None]:
    """Return the rows to fit and calibrate, the test rows, and the row numbers of the test rows.

    The row numbers are None if the user gave the test rows.
    """
    validator = FixedSelector()  # Validates scores, labels and names as every predictor does.
    ranking, _, score_type = validator._validate_fit(scores, y, classes)
    validator._finalize_fit(ranking, score_type)
    x = None if features is None else as_features(features, rows=len(ranking))
    rows = LabeledRows(ranking, label_array(y), x)
    if isinstance(test, tuple | list):
        return rows, _validate_test_rows(validator, test, features, x), None
    if not isinstance(test, Real):
        raise ValueError(
            "test must be a fraction of the rows, or (scores, y, features); got a "
            f"{type(test).__name__}"
        )
    known, test_index = hold_out(len(ranking), check_probability(test, "test"), seed + 1)
    return rows.take(known), rows.take(test_index), test_index


def _validate_test_rows(
    validator: SetPredictor,
    test: Sequence[Any],
    features: ArrayLike | None,
    x: Tensor | None,
) -> LabeledRows:
    """Return the test rows that the user gave, validated against the other rows."""
    if len(test) not in (2, 3):
        raise ValueError(
            f"test must be (scores, y) or (scores, y, features); got {len(test)} parts"
        )
    scores, y = test[:2]
    test_features = test[2] if len(test) == 3 else None
    if (features is None) != (test_features is None):
        with_features, without = ("fit", "test") if test_features is None else ("test", "fit")
        raise ValueError(
            f"the {with_features} rows have features, but the {without} rows have none"
        )
    try:
        ranking, _ = validator._validate_labeled(scores, y)
        test_x = None
        if x is not None:
            matched = match_columns(test_features, column_names(features), "features")
            test_x = as_features(matched, rows=len(ranking), columns=x.shape[1])
    except ValueError as error:
        raise ValueError(f"test: {error}") from error
    return LabeledRows(ranking, label_array(y), test_x)


def warn_about_known_test_rows(known: LabeledRows, test: LabeledRows) -> None:
    """Warn if test rows are among the rows to fit and calibrate."""
    count = TrainingRows(known.ranking).count_in(test.ranking)
    if count:
        warn(
            f"{count:,} of {len(test.ranking):,} test rows are also rows to fit or calibrate: the "
            "methods that learn most look better than they are"
        )
