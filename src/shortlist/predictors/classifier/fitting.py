"""Fit a classifier, and a set predictor on its scores of rows that it did not learn from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shortlist.predictors.base import SetPredictor
from shortlist.predictors.classifier.cross_fitting import (
    Classifier,
    FittedClassifier,
    Folds,
    cross_fit,
    fit_classifier,
)
from shortlist.predictors.classifier.rows import LabeledInputs, integers_if_whole
from shortlist.ranking import Ranking


def fit_parts(
    base: Classifier,
    method: SetPredictor,
    rows: LabeledInputs,
    *,
    cv: Folds,
    n_jobs: int | None,
    seed: int,
) -> tuple[FittedClassifier, NDArray[np.generic]]:
    """Cross-fit a classifier, fit a set predictor on its scores, and fit the classifier to all.

    Parameters
    ----------
    base : classifier
        Classifier to clone and fit.
    method : set predictor
        Set predictor, which is fitted in place.
    rows : LabeledInputs
        Rows to learn from.
    cv : int, splitter or iterable of (train, test) rows
        Folds of the cross-fitting.
    n_jobs : int, optional
        Number of folds fitted in parallel.
    seed : int
        Seed of the folds.

    Returns
    -------
    classifier
        Classifier fitted to all rows.
    array of shape (n_classes,)
        Classes.

    Raises
    ------
    ValueError
        If all rows are of one class.
    """
    train_classes = np.unique(rows.y)
    if len(train_classes) < 2:
        raise ValueError(
            f"the {len(rows)} rows to learn from are all of class {rows.y[0]!r}; give more rows, "
            "or a smaller share for calibration"
        )
    alone = rows.with_features(None)  # The classifier takes none, and jobs copy what they get.
    estimator = fit_classifier(base, alone)
    # Classes that only calibration rows have are not included: like a new row of an unknown
    # class, such a calibration row is a miss.
    classes = np.union1d(train_classes, estimator.classes_)
    scores, scored = cross_fit(base, alone, classes, cv=cv, n_jobs=n_jobs, seed=seed)
    unscored = np.delete(np.arange(len(rows)), scored)  # `cv` may leave out rows of all test folds.
    extra = {}
    if len(unscored) and rows.features is not None and getattr(method, "takes_extra_rows", False):
        extra = {
            "extra_features": rows.features_of(unscored),
            "extra_y": integers_if_whole(rows.y[unscored]),
        }
    method.fit(
        scores,
        integers_if_whole(rows.y[scored]),
        rows.features_of(scored),
        classes=integers_if_whole(classes),
        **extra,
    )
    return estimator, classes


def calibrate_method(method: SetPredictor, ranking: Ranking, rows: LabeledInputs) -> None:
    """Calibrate a set predictor with the classifier's scores of rows that no part learned from.

    Parameters
    ----------
    method : set predictor
        Fitted set predictor with the method `calibrate`.
    ranking : Ranking
        Scores of the rows.
    rows : LabeledInputs
        The rows, with features if the method uses them.
    """
    options = {} if rows.groups is None else {"groups": rows.groups}
    method.calibrate(ranking, rows.labels, rows.features, **options)
