"""Prediction sets for any scikit-learn classifier."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import signature
from pathlib import Path
from typing import Protocol, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    clone,
    is_regressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, check_consistent_length, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor

from shortlist._utils.arrays import Array, ArrayLike
from shortlist._utils.frames import column_names, match_columns
from shortlist._utils.integrations import SavingMixin
from shortlist._utils.labels import label_array
from shortlist._utils.ordering import top_label
from shortlist._utils.sklearn_inputs import (
    as_numeric_matrix,
    column_means,
    fill_missing,
    take_table_rows,
)
from shortlist._utils.validation import (
    check_count,
    check_present,
    check_probability,
    check_unmasked,
)
from shortlist.frontier import Frontier
from shortlist.learning.settings import resolve_seed
from shortlist.predictors.base import SetPredictor
from shortlist.predictors.cardinality.inputs import feature_names_of
from shortlist.predictors.conformal import hold_out
from shortlist.predictors.shortlister.shortlister import Shortlister
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

Rows: TypeAlias = NDArray[np.intp]

COMPUTED = 2.0**-12
"""Bound on the relative difference between a classifier's probabilities for the same row, computed
in another batch or number of threads: a matrix product in float32 with logits up to a few hundred
differs by less."""


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


class ShortlistClassifier(SavingMixin, MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Any scikit-learn classifier, with prediction sets.

    The classifier is cross-fitted, so that the set predictor learns from scores of rows that the
    classifier did not see; then it is fitted once more on all of them, for prediction.

    Parameters
    ----------
    estimator : classifier, optional
        With `predict_proba` or `decision_function`. Default: `LogisticRegression()`.
    method : set predictor, optional
        Anything with `fit(scores, y, features=..., classes=...)` and `predict_set`. Default:
        `Shortlister()`, which guarantees an accuracy.
    features : "auto", None or callable
        What the method gets as features: "auto" is X where that is a dense table of numbers
        (what is missing in it becomes its column's mean), None is nothing, a callable makes them
        of X.
    cv : int, splitter or iterable of (train, test) rows
        Folds of the cross-fitting. (`FrozenEstimator` wraps a classifier that is fitted already.)
    calibration : float
        Share of the rows kept to calibrate a guarantee, if the method makes one (has `calibrate`);
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
    _means: NDArray[np.floating] | None
    _open_classes: bool

    def __init__(
        self,
        estimator: Classifier | None = None,
        *,
        method: SetPredictor | None = None,
        features: str | Callable[[object], ArrayLike] | None = "auto",
        cv: int | Splitter | Iterable[tuple[Rows, Rows]] = 5,
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

    @classmethod
    def of(cls, estimator: Classifier, method: SetPredictor) -> ShortlistClassifier:
        """A classifier and a set predictor that were fitted elsewhere, put together.

        The method must have been fitted on what the classifier gives as `predict_proba` (or, if it
        has none, `decision_function`); X are the features, if it was fitted with any.

        >>> import shortlist as sl
        >>> fit, select, test = sl.datasets.digits().split(300, 700)
        >>> h = sl.LinearClassifier(max_epochs=5).fit(fit.x, fit.y)
        >>> method = sl.SplitConformal("lac").fit(h.predict_proba(select.x), select.y)
        >>> print(ShortlistClassifier.of(h, method).predict_set(test.x[:2]).guarantee)
        accuracy >= 0.95 guaranteed by 525 calibration rows
        """
        check_is_fitted(estimator)
        check_is_fitted(method, "classes_")
        saw_none = not method.uses_features
        model = cls(estimator, method=method, features=None if saw_none else "auto")
        classes = np.asarray(estimator.classes_)
        if classes.tolist() != np.asarray(method.classes_).tolist():
            raise ValueError(
                f"the classifier's classes are {classes.tolist()}, but the method's "
                f"{np.asarray(method.classes_).tolist()}; fit the method on the classifier's scores"
            )
        model.classes_, model.estimator_, model.method_ = classes, estimator, method
        model._means, model._open_classes = None, False
        model.n_features_in_ = int(getattr(estimator, "n_features_in_", 0))
        names = getattr(estimator, "feature_names_in_", feature_names_of(method))
        if names is not None:
            model.feature_names_in_ = np.asarray(names, dtype=object)
        return model

    def _base(self) -> Classifier:
        default: Classifier = LogisticRegression()
        return default if self.estimator is None else self.estimator

    def fit(
        self,
        X: object,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> ShortlistClassifier:
        """Cross-fit the classifier, fit the set predictor on its scores, calibrate it if it can be.

        `sample_weight` is passed on to the classifier; `groups`, the group of each row, to the
        calibration, for guarantees `by="group"`.
        """
        check_unmasked(X, "X")
        check_present(y, "y")
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        validate_data(self, X, skip_check_array=True)
        check_consistent_length(X, labels)
        distinct = np.unique(labels)
        if len(distinct) < 2:
            held = (
                f"one class only ({distinct[0]!r}, {len(labels)} times)" if len(labels) else "none"
            )
            raise ValueError(f"y must hold labels of at least two classes; it holds {held}")
        weights = None if sample_weight is None else _check_weights(sample_weight, len(labels))
        features = self._features(X)
        if features is not None:
            check_consistent_length(X, features)
        seed = resolve_seed(self.random_state)
        method = self._method(seed)
        if groups is not None:
            check_consistent_length(X, groups)
            if not _takes(getattr(method, "calibrate", len), "groups"):
                raise ValueError(f"{method!r} makes no guarantee by group; leave groups out")
        if features is None and getattr(method, "inputs", "scores") != "scores":
            raise ValueError(
                f"{method!r} needs features, but there are none: X ({type(X).__name__}) is not a "
                'dense table of numbers, or features=None. Use inputs="scores", or give '
                "ShortlistClassifier a function that makes features of X: features=..."
            )
        learning, held_out = self._hold_out(len(labels), method, seed)
        # X may lack values where the classifier copes with that; a network needs them all. What
        # fills them in is learned, and so comes from the learning rows alone.
        means = None
        if features is not None and self.features == "auto":
            means = column_means(cast(ArrayLike, take_table_rows(features, learning)))
            features = fill_missing(features, means)

        x, y_learn = take_table_rows(X, learning), labels[learning]
        w = None if weights is None else weights[learning]
        learned = np.unique(y_learn)
        if len(learned) < 2:
            raise ValueError(
                f"the {len(learning)} rows to learn from, of {len(labels)}, are all of class "
                f"{y_learn[0]!r}; give more rows, or a smaller share for calibration"
            )
        estimator = _fit(self._base(), x, y_learn, w)
        # Of the learning rows only: a calibration row of another class is a miss, as a new row is.
        classes = np.union1d(learned, estimator.classes_)
        scores, scored = self._cross_fit(x, y_learn, w, classes, seed)

        def features_of(rows: Rows) -> ArrayLike | None:
            return None if features is None else cast(ArrayLike, take_table_rows(features, rows))

        rows = learning[scored]
        method.fit(scores, _plain(labels[rows]), features_of(rows), classes=_plain(classes))
        # A class with a single learning row tells that new rows may be of unknown classes.
        open_classes = bool((np.unique(y_learn, return_counts=True)[1] == 1).any())
        if len(held_out):
            scores = _scores(estimator, take_table_rows(X, held_out), classes)
            given = {} if groups is None else {"groups": label_array(groups, "groups")[held_out]}
            ranking = _computed_ranking(scores, open_classes)
            method.calibrate(ranking, _plain(labels[held_out]), features_of(held_out), **given)
        self.classes_, self.estimator_, self.method_ = classes, estimator, method
        self._means, self._open_classes = means, open_classes
        return self

    def calibrate(
        self, X: object, y: ArrayLike, *, groups: ArrayLike | None = None
    ) -> ShortlistClassifier:
        """Calibrate with these rows, which `fit` did not see, in place of those it kept aside."""
        scores = _computed_ranking(self._checked(X), self._open_classes)
        check_present(y, "y")
        if not hasattr(self.method_, "calibrate"):
            raise ValueError(f"{self.method_!r} makes no guarantee, and cannot be calibrated")
        given = {} if groups is None else {"groups": label_array(groups, "groups")}
        self.method_.calibrate(scores, _plain(column_or_1d(y)), self._filled(X), **given)
        return self

    def _method(self, seed: int) -> SetPredictor:
        if self.method is not None:
            if not (hasattr(self.method, "fit") and hasattr(self.method, "predict_set")):
                raise ValueError(
                    "method must be a set predictor, such as Shortlister(accuracy=0.98); "
                    f"got {self.method!r}"
                )
            method: SetPredictor = clone(self.method)
            if "calibration" in method.get_params():
                method.set_params(calibration=None)  # rows are held out here, from both
            return method
        return Shortlister(calibration=None, random_state=seed)

    def _hold_out(self, rows: int, method: SetPredictor, seed: int) -> tuple[Rows, Rows]:
        """Rows to learn from, and rows to calibrate with if the method can be calibrated."""
        if not hasattr(method, "calibrate"):
            return np.arange(rows), np.arange(0)
        return hold_out(rows, check_probability(self.calibration, "calibration"), seed)

    def _cross_fit(
        self,
        X: object,
        y: NDArray[np.generic],
        w: NDArray[np.generic] | None,
        classes: NDArray[np.generic],
        seed: int,
    ) -> tuple[NDArray[np.floating], Rows]:
        """Scores of the rows by classifiers that did not see them, and which rows have them."""
        folds = list(self._folds(X, y, seed))
        rows = np.concatenate([test for _, test in folds])
        order = np.argsort(rows, kind="stable")
        if (np.diff(rows[order]) == 0).any():
            raise ValueError(f"cv = {self.cv!r} tests a row in two folds; each may be in one only")

        def score_fold(learn: Rows, test: Rows) -> NDArray[np.floating]:
            fold_weights = None if w is None else w[learn]
            fitted = _fit(self._base(), take_table_rows(X, learn), y[learn], fold_weights)
            return _scores(fitted, take_table_rows(X, test), classes)

        parts = Parallel(n_jobs=self.n_jobs)(delayed(score_fold)(a, b) for a, b in folds)
        return np.concatenate(parts)[order], rows[order]

    def _folds(self, X: object, y: NDArray[np.generic], seed: int) -> Iterator[tuple[Rows, Rows]]:
        if not isinstance(self.cv, int | np.integer):
            yield from check_cv(self.cv, y, classifier=True).split(X, y)
            return
        n = min(check_count(self.cv, "cv", minimum=2), len(y))
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
        return as_numeric_matrix(X)

    def _filled(self, X: object) -> ArrayLike | None:
        """The features of rows to predict, with what is missing filled in as at fit."""
        return fill_missing(self._features(self._in_order_of_fit(X)), self._means)

    def _in_order_of_fit(self, X: object) -> object:
        """X with its columns in the order of fit, if they have names."""
        known = getattr(self, "feature_names_in_", None)
        given = column_names(X)
        if known is None or given is None or given == list(known):
            return X
        # The classifier has the first word: those of scikit-learn refuse columns in another order.
        _scores(self.estimator_, X, self.classes_)
        return match_columns(X, [str(name) for name in known], "X")

    def _checked(self, X: object) -> NDArray[np.floating]:
        """The scores of X. What is wrong with X, the classifier says."""
        check_is_fitted(self, "method_")
        check_unmasked(X, "X")
        return _scores(self.estimator_, self._in_order_of_fit(X), self.classes_)

    def _rescored(self, X: object) -> Tensor | None:
        """Log-probabilities for each class, if the method re-scores the classifier's scores."""
        check_is_fitted(self, "method_")
        if not getattr(self.method_, "rescored_", False):
            return None
        ranking: Ranking = self.method_.rescored(self._checked(X), self._filled(X))
        return ranking.scores_of(slice(0, len(ranking)))

    def predict(self, X: object) -> NDArray[np.generic]:
        """The first label of each row's set: the one with the largest score."""
        scores = torch.from_numpy(np.ascontiguousarray(self._checked(X)))
        better = self._rescored(X)
        labels: NDArray[np.generic] = self.classes_[
            top_label(scores if better is None else better).numpy()
        ]
        return labels

    def predict_set(self, X: object, **operating_point: object) -> PredictionSets:
        """The prediction set of each row; arguments go to the method's `predict_set`."""
        scores = self._checked(X)
        return self.method_.predict_set(scores, self._filled(X), **operating_point)

    def predict_sets(
        self, X: object, *, accuracies: Sequence[float], **how: object
    ) -> list[PredictionSets]:
        """Return the sets at each of several accuracies."""
        scores = self._checked(X)
        return self.method_.predict_sets(scores, self._filled(X), accuracies=accuracies, **how)  # type: ignore[arg-type]

    def frontier(self, X: object, y: ArrayLike) -> Frontier:
        """Accuracy and mean size at every operating point of the method."""
        scores = self._checked(X)
        check_present(y, "y")
        return self.method_.frontier(scores, _plain(np.asarray(y)), self._filled(X))

    def report(
        self,
        X: object,
        y: ArrayLike,
        path: str | os.PathLike[str] = "report.html",
        **options: object,
    ) -> Path:
        """Write what the model does on these rows, which `fit` did not see, as one page for a
        browser; see `SetPredictor.report` for `title`, `examples` and `overwrite`."""
        check_present(y, "y")
        scores, labels = self._checked(X), _plain(column_or_1d(y))
        return self.method_.report(scores, labels, self._filled(X), path, **options)

    @available_if(_base_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: object) -> Array:
        """The probabilities that the sets are made of: the classifier's, or, where the method
        re-scores, its own."""
        better = self._rescored(X)
        return self._checked(X) if better is None else better.exp().numpy()

    @available_if(_base_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: object) -> Array:
        """The classifier's decision function, or, where the method re-scores, log-probabilities
        (of two classes, their difference)."""
        check_is_fitted(self, "method_")
        better = self._rescored(X)
        if better is None:
            ordered = self._in_order_of_fit(X)
            return np.asarray(self.estimator_.decision_function(ordered))  # type: ignore[attr-defined]
        log_p = better.numpy()
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._base()).input_tags
        return tags


def _computed_ranking(scores: NDArray[np.floating], open_classes: bool) -> Ranking:
    """Return a ranking of scores that another batch would round differently."""
    ranking = Ranking.from_scores(scores)
    ranking.rounding, ranking.open_classes = COMPUTED, open_classes
    return ranking


def _check_weights(weights: ArrayLike, rows: int) -> NDArray[np.generic]:
    check_present(weights, "sample_weight")
    array = np.asarray(weights)
    if array.shape != (rows,):
        raise ValueError(f"sample_weight must have shape ({rows},); got shape {array.shape}")
    return array


def _plain(labels: NDArray[np.generic]) -> NDArray[np.generic]:
    """Labels as set predictors take them: whole numbers that came as floats are integers."""
    if labels.dtype.kind != "f":
        return labels
    whole = labels.astype(np.int64)
    return whole if np.array_equal(whole, labels) else labels


def _fit(
    estimator: Classifier, X: object, y: NDArray[np.generic], w: NDArray[np.generic] | None
) -> Classifier:
    fresh: Classifier = clone(estimator)
    if is_regressor(fresh):
        raise ValueError(f"{fresh!r} is a regressor; a classifier is needed")
    if w is None:
        return fresh.fit(X, y)
    name = "sample_weight"
    if isinstance(fresh, Pipeline):
        name = f"{fresh.steps[-1][0]}__sample_weight"  # as a pipeline names its last step's
    elif not _takes(fresh.fit, name):
        raise ValueError(f"{fresh!r} takes no sample_weight; fit without it")
    return fresh.fit(X, y, **{name: w})


def _takes(function: Callable[..., object], name: str) -> bool:
    """Whether a function has a parameter of this name, or passes on whatever it gets."""
    parameters = signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _scores(fitted: Classifier, X: object, classes: NDArray[np.generic]) -> NDArray[np.floating]:
    """A classifier's scores with a column for each of `classes`, also those it did not see."""
    if hasattr(fitted, "predict_proba"):
        scores = np.asarray(fitted.predict_proba(X))
        unseen = np.zeros((len(scores), 1))
    elif hasattr(fitted, "decision_function"):
        scores = np.asarray(fitted.decision_function(X))
        if scores.ndim == 1:
            scores = np.stack([-scores / 2, scores / 2], axis=1)
        # Of this row alone: a row's set may not depend on the others.
        unseen = scores.min(axis=1, keepdims=True) - 10.0
    else:
        raise ValueError(f"{fitted!r} has neither predict_proba nor decision_function")
    if scores.shape[1] != len(fitted.classes_):
        raise ValueError(
            f"{fitted!r} gives {scores.shape[1]} scores a row for {len(fitted.classes_)} classes; "
            "one for each is needed"
        )
    if len(fitted.classes_) == len(classes):
        return scores
    full = np.repeat(unseen.astype(scores.dtype), len(classes), axis=1)
    full[:, np.searchsorted(classes, fitted.classes_)] = scores
    return full
