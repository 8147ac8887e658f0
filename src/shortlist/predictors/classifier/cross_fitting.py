"""Fit scikit-learn classifiers, and score rows with classifiers that were not fitted on them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from inspect import signature
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_regressor
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from shortlist._utils.sklearn_inputs import take_table_rows
from shortlist._utils.validation import check_count
from shortlist.predictors.classifier.rows import LabeledInputs, Rows

MIN_SUM_ERROR, MAX_SUM_ERROR = 1e-4, 0.05
"""Rows of probabilities whose sum differs from one by an amount between these are normalized."""
MISSING_MARGIN = 10.0
"""Difference between the smallest decision value of a row and that of a class that the classifier
does not know."""


class Classifier(Protocol):
    """A scikit-learn classifier, fitted or not."""

    @property
    def fit(self) -> Callable[..., Any]:
        """Method that fits the classifier. It may take `sample_weight`."""
        ...


class FittedClassifier(Classifier, Protocol):
    """A fitted scikit-learn classifier."""

    @property
    def classes_(self) -> NDArray[np.generic]:
        """Classes, in the order of the columns of the scores."""
        ...


class Splitter(Protocol):
    """A scikit-learn splitter, such as `KFold`."""

    def split(self, X: object, y: object) -> Iterator[tuple[Rows, Rows]]:
        """Yield the training and test rows of each fold."""
        ...


Folds: TypeAlias = int | Splitter | Iterable[tuple[Rows, Rows]]


def cross_fit(
    estimator: Classifier,
    rows: LabeledInputs,
    classes: NDArray[np.generic],
    *,
    cv: Folds,
    n_jobs: int | None,
    seed: int,
) -> tuple[NDArray[np.floating], Rows]:
    """Score each row with a classifier that was fitted on other folds.

    Parameters
    ----------
    estimator : classifier
        Classifier to clone and fit.
    rows : LabeledInputs
        Rows to fit and score.
    classes : array of shape (n_classes,)
        Sorted classes, in the order of the columns of the result.
    cv : int, splitter or iterable of (train, test) rows
        Folds.
    n_jobs : int, optional
        Number of folds fitted in parallel.
    seed : int
        Seed of the folds if `cv` is an integer.

    Returns
    -------
    scores : array of shape (n_scored, n_classes)
        Scores of the rows that are in a test fold.
    scored : array of shape (n_scored,)
        Indices of these rows, increasing.
    """
    folds = list(_folds(cv, rows, seed))
    scored = np.concatenate([test for _, test in folds])
    order = np.argsort(scored, kind="stable")
    if (np.diff(scored[order]) == 0).any():
        raise ValueError(f"cv = {cv!r} tests a row in two folds; each row may be in one only")

    def score_fold(train: Rows, test: Rows) -> NDArray[np.floating]:
        fitted = fit_classifier(estimator, rows.take(train))
        return class_scores(fitted, take_table_rows(rows.x, test), classes)

    scores = Parallel(n_jobs=n_jobs)(delayed(score_fold)(train, test) for train, test in folds)
    return np.concatenate(scores)[order], scored[order]


def _folds(cv: Folds, rows: LabeledInputs, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Yield the training and test rows of each fold."""
    y = rows.y
    if not isinstance(cv, int | np.integer):
        yield from check_cv(cv, y, classifier=True).split(rows.x, y)
        return
    n_folds = min(check_count(cv, "cv", minimum=2), len(y))
    largest_class = int(np.unique(y, return_counts=True)[1].max())
    splitter = StratifiedKFold if largest_class >= n_folds else KFold
    with warnings.catch_warnings():  # Classes with fewer rows than folds are supported.
        warnings.filterwarnings("ignore", message="The least populated class")
        yield from splitter(n_folds, shuffle=True, random_state=seed % 2**32).split(y, y)


def fit_classifier(estimator: Classifier, rows: LabeledInputs) -> FittedClassifier:
    """Return a fitted clone of a classifier.

    Parameters
    ----------
    estimator : classifier
        Classifier to clone.
    rows : LabeledInputs
        Rows to learn from. A pipeline passes their weights on to its last step.

    Returns
    -------
    classifier
    """
    fresh: Classifier = clone(estimator)
    if is_regressor(fresh):
        raise ValueError(f"{fresh!r} is a regressor; a classifier is needed")
    weights: dict[str, object] = {}
    if rows.weights is not None:
        name = "sample_weight"
        if isinstance(fresh, Pipeline):
            name = f"{fresh.steps[-1][0]}__sample_weight"
        elif not takes_argument(fresh.fit, name):
            raise ValueError(f"{fresh!r} takes no sample_weight; fit without it")
        weights[name] = rows.weights
    fitted: FittedClassifier = fresh.fit(rows.x, rows.y, **weights)
    return fitted


def takes_argument(function: Callable[..., object], name: str) -> bool:
    """Return whether a function has a parameter of this name, or takes any keyword."""
    parameters = signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def class_scores(
    fitted: FittedClassifier, X: object, classes: NDArray[np.generic]
) -> NDArray[np.floating]:
    """Return the probabilities or decision values of a classifier, by the columns of `classes`.

    Parameters
    ----------
    fitted : classifier
        Fitted classifier.
    X : table with n_rows rows
        Inputs.
    classes : array of shape (n_classes,)
        Sorted classes. The classifier may not know some of them, which get the smallest score.

    Returns
    -------
    array of shape (n_rows, n_classes)
    """
    if hasattr(fitted, "predict_proba"):
        scores = _normalize(np.asarray(fitted.predict_proba(X)))
        missing = np.zeros((len(scores), 1))
    elif hasattr(fitted, "decision_function"):
        scores = np.asarray(fitted.decision_function(X))
        if scores.ndim == 1:
            scores = np.stack([-scores / 2, scores / 2], axis=1)
        # The score depends on its own row alone, so that a set does not depend on other rows.
        missing = scores.min(axis=1, keepdims=True) - MISSING_MARGIN
    else:
        raise ValueError(f"{fitted!r} has neither predict_proba nor decision_function")
    if scores.shape[1] != len(fitted.classes_):
        raise ValueError(
            f"{fitted!r} returns {scores.shape[1]} scores per row for {len(fitted.classes_)} "
            "classes; one score for each class is needed"
        )
    if len(fitted.classes_) == len(classes):
        return scores
    full = np.repeat(missing.astype(scores.dtype), len(classes), axis=1)
    full[:, np.searchsorted(classes, fitted.classes_)] = scores
    return full


def _normalize(proba: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return probabilities whose rows sum to one.

    Classifiers that compute in float32 can be wrong by a percent: the scores would be taken for
    logits. Rows that are no probabilities stay as they are.
    """
    sums = proba.sum(axis=-1, keepdims=True, dtype=np.float64)
    error = np.abs(sums - 1)
    is_off = (error > MIN_SUM_ERROR) & (error < MAX_SUM_ERROR) & (proba.min(-1, keepdims=True) >= 0)
    return np.asarray(np.where(is_off, proba / np.where(is_off, sums, 1), proba))
