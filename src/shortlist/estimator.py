"""Prediction sets for any scikit-learn classifier."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, check_consistent_length, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
    validate_data,
)

from shortlist._arrays import Array, ArrayLike, check_count, check_probability
from shortlist.frontier import Frontier
from shortlist.ranking import best
from shortlist.selectors import CardinalitySelector, SetPredictor
from shortlist.sets import PredictionSets
from shortlist.training import seed_of

Rows: TypeAlias = NDArray[np.intp]


class Classifier(Protocol):
    """A scikit-learn classifier, as far as it is used here."""

    classes_: NDArray[np.generic]

    def fit(self, X: object, y: object, **parameters: object) -> Classifier: ...


class Splitter(Protocol):
    def split(self, X: object, y: object) -> Iterator[tuple[Rows, Rows]]: ...


def _base_has(name: str) -> Callable[[ShortlistClassifier], bool]:
    def check(model: ShortlistClassifier) -> bool:
        getattr(getattr(model, "estimator_", model._base()), name)  # its AttributeError is ours
        return True

    return check


class ShortlistClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Any scikit-learn classifier, with prediction sets.

    The classifier is cross-fitted, so that the set predictor learns from scores of rows that the
    classifier did not see; then it is fitted once more on all of them, for prediction.

    Parameters
    ----------
    estimator : classifier, optional
        With `predict_proba` or `decision_function`. Default: `LogisticRegression()`.
    method : set predictor, optional
        Anything with `fit(scores, y, features=..., classes=...)` and `predict_set`. Default: the
        paper's `CardinalitySelector`, on features and scores where features are numbers, else on
        scores alone.
    features : "auto", None or callable
        What the method gets as features: "auto" is X where that is a dense table of numbers,
        None is nothing, a callable makes them of X.
    cv : int or splitter
        Folds of the cross-fitting. (`FrozenEstimator` wraps a classifier that is fitted already.)
    calibration : float
        Share of the rows kept to calibrate a promise, if the method makes one (has `calibrate`);
        neither the classifier nor the selector sees them.
    n_jobs : int, optional
        Folds fitted at the same time.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_, estimator_, method_, n_features_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = ShortlistClassifier(LogisticRegression(max_iter=1000)).fit(X, y)
    >>> clf.predict_set(X[:3]).labels()
    [[0], [0], [0]]
    """

    classes_: NDArray[np.generic]
    estimator_: Classifier
    method_: SetPredictor

    def __init__(
        self,
        estimator: Classifier | None = None,
        *,
        method: SetPredictor | None = None,
        features: str | Callable[[object], ArrayLike] | None = "auto",
        cv: int | Splitter = 5,
        calibration: float = 0.25,
        n_jobs: int | None = None,
        random_state: object = 0,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.features = features
        self.cv = cv
        self.calibration = calibration
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _base(self) -> Classifier:
        default: Classifier = LogisticRegression()
        return default if self.estimator is None else self.estimator

    def fit(
        self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> ShortlistClassifier:
        """Cross-fit the classifier, fit the set predictor on its scores, calibrate it if it can be.

        `sample_weight` is passed on to the classifier.
        """
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        validate_data(self, X, skip_check_array=True)
        check_consistent_length(X, labels)
        distinct = np.unique(labels)
        if len(distinct) < 2:
            raise ValueError(
                f"y holds one class only ({distinct[0]!r}, {len(labels)} times); "
                "a classifier needs at least two"
            )
        weights = None if sample_weight is None else _check_weights(sample_weight, len(labels))
        seed = seed_of(self.random_state)
        method = self._method(X, seed)
        learning, held = self._hold_out(len(labels), method, seed)

        x, y_learn = take(X, learning), labels[learning]
        w = None if weights is None else weights[learning]
        self.estimator_ = _fit(self._base(), x, y_learn, w)
        self.classes_ = np.union1d(distinct, self.estimator_.classes_)
        scores, scored = self._cross_fit(x, y_learn, w, seed)
        self.method_ = method.fit(
            scores, y_learn[scored], self._features(take(x, scored)), classes=self.classes_
        )
        if len(held):
            x = take(X, held)
            self.method_.calibrate(
                self._scores(self.estimator_, x), labels[held], self._features(x)
            )
        return self

    def _method(self, X: object, seed: int) -> SetPredictor:
        if self.method is not None:
            method: SetPredictor = clone(self.method)
            return method
        inputs = "scores" if self._features(X) is None else "both"
        return CardinalitySelector(inputs=inputs, random_state=seed)

    def _hold_out(self, rows: int, method: SetPredictor, seed: int) -> tuple[Rows, Rows]:
        """Rows to learn from, and rows to calibrate with if the method can be calibrated."""
        if not hasattr(method, "calibrate"):
            return np.arange(rows), np.arange(0)
        share = check_probability(self.calibration, "calibration")
        order = np.random.default_rng(seed).permutation(rows)
        held = round(share * rows)
        return np.sort(order[held:]), np.sort(order[:held])

    def _cross_fit(
        self, X: object, y: NDArray[np.generic], w: NDArray[np.generic] | None, seed: int
    ) -> tuple[NDArray[np.floating], Rows]:
        """Scores of the rows by classifiers that did not see them, and which rows have them."""
        folds = list(self._folds(X, y, seed))

        def score_fold(learn: Rows, test: Rows) -> NDArray[np.floating]:
            fold_weights = None if w is None else w[learn]
            fitted = _fit(self._base(), take(X, learn), y[learn], fold_weights)
            return self._scores(fitted, take(X, test))

        parts = Parallel(n_jobs=self.n_jobs)(delayed(score_fold)(a, b) for a, b in folds)
        rows = np.concatenate([test for _, test in folds])
        order = np.argsort(rows, kind="stable")
        if (np.diff(rows[order]) == 0).any():
            raise ValueError(f"cv = {self.cv!r} tests a row in two folds; each may be in one only")
        return np.concatenate(parts)[order], rows[order]

    def _folds(self, X: object, y: NDArray[np.generic], seed: int) -> Iterator[tuple[Rows, Rows]]:
        if not isinstance(self.cv, int | np.integer):
            yield from self.cv.split(X, y)
            return
        n = min(check_count(self.cv, "cv", least=2), len(y))
        most = int(np.unique(y, return_counts=True)[1].max())
        kind = StratifiedKFold if most >= n else KFold
        with warnings.catch_warnings():  # classes with fewer rows than folds are fine here
            warnings.filterwarnings("ignore", message="The least populated class")
            yield from kind(n, shuffle=True, random_state=seed % 2**32).split(y, y)

    def _features(self, X: object) -> ArrayLike | None:
        if self.features is None:
            return None
        if callable(self.features):
            return self.features(X)
        if self.features != "auto":
            raise ValueError(
                f'features must be "auto", None or a function of X; got {self.features!r}'
            )
        if get_tags(self._base()).input_tags.allow_nan:
            return None  # rows to come may lack values, and a network cannot do without
        return dense_numbers(X)

    def _scores(self, fitted: Classifier, X: object) -> NDArray[np.floating]:
        """The classifier's scores with a column for every class, also those it did not see."""
        if hasattr(fitted, "predict_proba"):
            scores, least = np.asarray(fitted.predict_proba(X)), 0.0
        elif hasattr(fitted, "decision_function"):
            scores = np.asarray(fitted.decision_function(X))
            if scores.ndim == 1:
                scores = np.stack([-scores / 2, scores / 2], axis=1)
            least = float(scores.min()) - 10.0
        else:
            raise ValueError(f"{fitted!r} has neither predict_proba nor decision_function")
        if len(fitted.classes_) == len(self.classes_):
            return scores
        full = np.full((len(scores), len(self.classes_)), least, dtype=scores.dtype)
        full[:, np.searchsorted(self.classes_, fitted.classes_)] = scores
        return full

    def _checked(self, X: object) -> NDArray[np.floating]:
        check_is_fitted(self, "method_")
        validate_data(self, X, reset=False, skip_check_array=True)
        return self._scores(self.estimator_, X)

    def predict(self, X: object) -> NDArray[np.generic]:
        """The first label of each row's set: the one with the largest score."""
        scores = torch.from_numpy(np.ascontiguousarray(self._checked(X)))
        labels: NDArray[np.generic] = self.classes_[best(scores).numpy()]
        return labels

    def predict_set(self, X: object, **operating_point: object) -> PredictionSets:
        """The prediction set of each row; arguments go to the method's `predict_set`."""
        return self.method_.predict_set(self._checked(X), self._features(X), **operating_point)

    def frontier(self, X: object, y: ArrayLike) -> Frontier:
        """Accuracy and mean size at every operating point of the method."""
        return self.method_.frontier(self._checked(X), y, self._features(X))

    @available_if(_base_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: object) -> Array:
        """The classifier's probabilities: the scores that the sets are made of."""
        return self._checked(X)

    @available_if(_base_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: object) -> Array:
        """The classifier's decision function."""
        check_is_fitted(self, "method_")
        validate_data(self, X, reset=False, skip_check_array=True)
        return np.asarray(self.estimator_.decision_function(X))  # type: ignore[attr-defined]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._base()).input_tags
        return tags


def take(X: object, rows: Rows) -> object:
    """Some rows of whatever X is: array, sparse matrix, frame or list.

    >>> take(["a", "b", "c"], np.array([2, 0]))
    ['c', 'a']
    """
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    if isinstance(X, list | tuple):
        return [X[i] for i in rows]
    return X[rows]  # type: ignore[index]


def dense_numbers(X: object) -> NDArray[np.generic] | None:
    """X as a dense matrix of numbers, or None if it is something else."""
    if hasattr(X, "tocsr"):
        return None
    array = np.asarray(X)
    if array.ndim != 2:
        return None
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            return None
    return array if array.dtype.kind in "iuf" else None


def _check_weights(weights: ArrayLike, rows: int) -> NDArray[np.generic]:
    array = np.asarray(weights)
    if array.shape != (rows,):
        raise ValueError(f"sample_weight must have shape ({rows},); got shape {array.shape}")
    return array


def _fit(
    estimator: Classifier, X: object, y: NDArray[np.generic], w: NDArray[np.generic] | None
) -> Classifier:
    fresh: Classifier = clone(estimator)
    if w is None:
        return fresh.fit(X, y)
    name = "sample_weight"
    if isinstance(fresh, Pipeline):
        name = f"{fresh.steps[-1][0]}__sample_weight"  # as a pipeline names its last step's
    elif not has_fit_parameter(fresh, name):
        raise ValueError(f"{fresh!r} takes no sample_weight")
    return fresh.fit(X, y, **{name: w})
