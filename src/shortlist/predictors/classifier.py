"""Prediction sets for any scikit-learn classifier."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Tags, check_consistent_length, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from shortlist._utils.arrays import Array, ArrayLike
from shortlist._utils.frames import column_names, match_columns
from shortlist._utils.integrations import ClassifierExportMixin, SavingMixin
from shortlist._utils.labels import label_array
from shortlist._utils.notebook import DescriptionMixin
from shortlist._utils.ordering import top_label
from shortlist._utils.sklearn_inputs import as_numeric_matrix, take_table_rows
from shortlist._utils.validation import (
    check_choice,
    check_present,
    check_probability,
    check_unmasked,
)
from shortlist._utils.warnings import warn
from shortlist.frontier import Frontier
from shortlist.learning.settings import resolve_seed
from shortlist.predictors.base import SetPredictor
from shortlist.predictors.cross_fitting import (
    Classifier,
    FittedClassifier,
    Folds,
    Rows,
    class_scores,
    cross_fit,
    fit_classifier,
    takes_argument,
)
from shortlist.predictors.feature_encoder import FeatureEncoder
from shortlist.predictors.method_options import check_operating_point, with_parameters
from shortlist.predictors.shortlister.shortlister import Shortlister
from shortlist.predictors.splitting import hold_out
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

CLASSIFIER_ROUNDING = 2.0**-12
"""Bound on the relative difference between two computations of a classifier's probabilities for a
row, in batches or with numbers of threads that differ. A matrix product in float32 with logits up
to a few hundred stays below it."""


def _base_has(name: str) -> Callable[[ShortlistClassifier], bool]:
    """Return a check that the classifier has a method; `available_if` needs its AttributeError."""

    def check(model: ShortlistClassifier) -> bool:
        getattr(getattr(model, "estimator_", model._base()), name)
        return True

    return check


class ShortlistClassifier(
    SavingMixin,
    ClassifierExportMixin,
    DescriptionMixin,
    MetaEstimatorMixin,
    ClassifierMixin,
    BaseEstimator,
):
    """Add prediction sets to any scikit-learn classifier.

    The classifier is cross-fitted, so that the set predictor learns from scores of rows that the
    classifier was not fitted on. The classifier is then fitted once more on all training rows, for
    prediction.

    Parameters
    ----------
    estimator : classifier, optional
        Classifier with `predict_proba` or `decision_function`. By default,
        ``LogisticRegression()``. Wrap a fitted classifier in scikit-learn's `FrozenEstimator`.
    method : set predictor, optional
        Any object with ``fit(scores, y, features, classes=...)`` and `predict_set`. By default,
        ``Shortlister()``, which guarantees an accuracy.
    features : "auto", None or callable, default="auto"
        Features for the method. "auto" uses the columns of X, if it is a table: numbers, with
        missing values replaced by the mean of their column, and categories, with one column for
        each frequent value. Dates and free text are left out with a warning. None uses no
        features. A callable computes them from X.
    cv : int, splitter or iterable of (train, test) rows, default=5
        Folds of the cross-fitting. Rows that are in no test fold are extra rows of the method, if
        it takes any and there are features.
    calibration : float, default=0.25
        Fraction of the rows that calibrate the method, if it has `calibrate`. Neither the
        classifier nor the method learns from them.
    n_jobs : int, optional
        Number of folds fitted in parallel.
    on_unreachable : {"raise", "all"}, optional
        What to do about an accuracy that cannot be guaranteed: raise an error, or return sets of
        all labels. By default, the method decides. Can be set after `fit`.
    by : str, optional
        "class" or "group" guarantees the accuracy for each class or each group. By default, the
        method decides. Can be set after `fit`.
    max_epochs : int, optional
        Maximum number of epochs of the method's training. By default, the method decides.
    random_state : int, RandomState instance or None, default=0
        Seed of the splits, and of the default method.

    Attributes
    ----------
    classes_ : array
        Classes.
    estimator_ : classifier
        Classifier fitted on all training rows.
    method_ : set predictor
        Fitted set predictor.
    n_features_in_ : int
        Number of columns of X.

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
    estimator_: FittedClassifier
    method_: SetPredictor
    _encoder: FeatureEncoder | None
    _open_classes: bool

    def __init__(
        self,
        estimator: Classifier | None = None,
        *,
        method: SetPredictor | None = None,
        features: str | Callable[[object], ArrayLike] | None = "auto",
        cv: Folds = 5,
        calibration: float = 0.25,
        n_jobs: int | None = None,
        on_unreachable: str | None = None,
        by: str | None = None,
        max_epochs: int | None = None,
        random_state: object = 0,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.features = features
        self.cv = cv
        self.calibration = calibration
        self.n_jobs = n_jobs
        self.on_unreachable = on_unreachable
        self.by = by
        self.max_epochs = max_epochs
        self.random_state = random_state

    @classmethod
    def from_fitted(cls, estimator: FittedClassifier, method: SetPredictor) -> Self:
        """Combine a fitted classifier and a fitted set predictor.

        Parameters
        ----------
        estimator : classifier
            Fitted classifier.
        method : set predictor
            Set predictor, fitted on the classifier's `predict_proba` (or, if it has none,
            `decision_function`). If it was fitted with features, they were the classifier's X.

        Returns
        -------
        ShortlistClassifier

        Examples
        --------
        >>> import shortlist as sl
        >>> fit, select, test = sl.datasets.digits().split(300, 700)
        >>> h = sl.LinearClassifier(max_epochs=5).fit(fit.x, fit.y)
        >>> method = sl.SplitConformal("lac").fit(h.predict_proba(select.x), select.y)
        >>> model = ShortlistClassifier.from_fitted(h, method)
        >>> print(model.predict_set(test.x[:2]).guarantee)
        accuracy >= 0.95 guaranteed by 525 calibration rows
        """
        check_is_fitted(estimator)
        check_is_fitted(method, "classes_")
        model = cls(estimator, method=method, features="auto" if method.uses_features else None)
        classes = np.asarray(estimator.classes_)
        if classes.tolist() != np.asarray(method.classes_).tolist():
            raise ValueError(
                f"the classifier's classes are {classes.tolist()}, but the method's are "
                f"{np.asarray(method.classes_).tolist()}; fit the method on the classifier's scores"
            )
        model.classes_, model.estimator_, model.method_ = classes, estimator, method
        model._encoder, model._open_classes = None, False
        model.n_features_in_ = int(getattr(estimator, "n_features_in_", 0))
        names = getattr(estimator, "feature_names_in_", method.feature_names)
        if names is not None:
            model.feature_names_in_ = np.asarray(names, dtype=object)
        return model

    def _base(self) -> Classifier:
        """Return the unfitted classifier."""
        default: Classifier = LogisticRegression()
        return default if self.estimator is None else self.estimator

    def describe(self) -> dict[str, str]:
        """Return what is known about the fitted model, by topic. Notebooks show it.

        Returns
        -------
        dict of str to str
            The classifier, the method, and what the method says about itself.
        """
        check_is_fitted(self, "method_")
        return {
            "classifier": " ".join(repr(self.estimator_).split()),
            "method": type(self.method_).__name__,
            **self.method_.describe(),
        }

    def fit(
        self,
        X: object,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Cross-fit the classifier, fit the set predictor on its scores, and calibrate it.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.
        y : array-like of shape (n_rows,)
            Labels.
        sample_weight : array-like of shape (n_rows,), optional
            Weights of the rows, for the classifier.
        groups : array-like of shape (n_rows,), optional
            Group of each row, for guarantees with ``by="group"``.

        Returns
        -------
        self
        """
        labels = self._validate_fit(X, y)
        weights = None if sample_weight is None else _check_weights(sample_weight, len(labels))
        seed = resolve_seed(self.random_state)
        method = self._make_method(X, groups, seed)
        train, held_out = self._hold_out(len(labels), method, seed)
        # Means and categories are learned, and therefore computed from training rows alone.
        encoder = self._fit_encoder(take_table_rows(X, train))
        features = self._features(X, encoder)
        if features is not None:
            check_consistent_length(X, features)
        elif getattr(method, "needs_features", False):
            raise ValueError(
                f"{method!r} needs features, but they are {self._summary(encoder, method)}; got "
                f"{type(X).__name__}. Use a method that takes scores alone, or give "
                "ShortlistClassifier a function that computes features from X: features=..."
            )

        x, y_train = take_table_rows(X, train), labels[train]
        train_weights = None if weights is None else weights[train]
        train_classes, counts = np.unique(y_train, return_counts=True)
        if len(train_classes) < 2:
            raise ValueError(
                f"the {len(train)} rows to learn from, of {len(labels)}, are all of class "
                f"{y_train[0]!r}; give more rows, or a smaller share for calibration"
            )
        estimator = fit_classifier(self._base(), x, y_train, train_weights)
        # Classes that only calibration rows have are not included: like a new row of an unknown
        # class, such a calibration row is a miss.
        classes = np.union1d(train_classes, estimator.classes_)
        scores, scored = cross_fit(
            self._base(),
            x,
            y_train,
            train_weights,
            classes,
            cv=self.cv,
            n_jobs=self.n_jobs,
            seed=seed,
        )

        def features_of(rows: Rows) -> ArrayLike | None:
            return None if features is None else cast(ArrayLike, take_table_rows(features, rows))

        rows = train[scored]
        plain_classes = _integers_if_whole(classes)
        unscored = np.delete(train, scored)  # `cv` may leave out rows of all test folds.
        extra = {}
        if len(unscored) and features is not None and getattr(method, "takes_extra_rows", False):
            extra = {
                "extra_features": features_of(unscored),
                "extra_y": _integers_if_whole(labels[unscored]),
            }
        method.fit(
            scores,
            _integers_if_whole(labels[rows]),
            features_of(rows),
            classes=plain_classes,
            **extra,
        )
        # A class with a single training row suggests that new rows may have unknown classes.
        open_classes = bool((counts == 1).any())
        if len(held_out):
            scores = class_scores(estimator, take_table_rows(X, held_out), classes)
            options = {} if groups is None else {"groups": label_array(groups, "groups")[held_out]}
            ranking = _as_ranking(scores, open_classes)
            y_held_out = _integers_if_whole(labels[held_out])
            method.calibrate(ranking, y_held_out, features_of(held_out), **options)
        self.classes_, self.estimator_, self.method_ = classes, estimator, method
        self._encoder, self._open_classes = encoder, open_classes
        if self.features == "auto" and getattr(method, "can_use_features", True):
            self._warn_about_features(encoder)
        return self

    def _fit_encoder(self, X: object) -> FeatureEncoder | None:
        """Return an encoder of X as features, learned from these rows; None if there is none."""
        if self.features is None or callable(self.features):
            return None
        if self.features != "auto":
            raise ValueError(
                f'features must be "auto", None or a function of X; got {self.features!r}'
            )
        return FeatureEncoder.fit(X)

    @property
    def feature_summary_(self) -> str:
        """Columns of X that are features of the method, and those that are left out."""
        check_is_fitted(self, "method_")
        return self._summary(self._encoder, self.method_)

    def _summary(self, encoder: FeatureEncoder | None, method: SetPredictor) -> str:
        """Return what the features of a method are."""
        if not getattr(method, "can_use_features", True):
            return "none: the method uses scores alone"
        if self.features is None:
            return "none (features=None)"
        if callable(self.features):
            return "computed from X by a function"
        if encoder is not None:
            return encoder.describe()
        is_given = hasattr(self, "method_") and self.method_.uses_features  # By `from_fitted`.
        return "X" if is_given else "none: X is not a dense table with columns"

    def _warn_about_features(self, encoder: FeatureEncoder | None) -> None:
        """Warn if something in X is not used as a feature."""
        if encoder is None or encoder.left_out:
            summary = self._summary(encoder, self.method_)
            warn(
                f"features for the prediction sets: {summary}. To use more, give "
                "features=..., a function that computes numbers from X; to use none, features=None"
            )

    def _validate_fit(self, X: object, y: ArrayLike) -> NDArray[np.generic]:
        """Return the labels, after a check of X and y."""
        check_unmasked(X, "X")
        check_present(y, "y")
        _check_objects(y)
        labels: NDArray[np.generic] = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        validate_data(self, X, skip_check_array=True)
        check_consistent_length(X, labels)
        distinct = np.unique(labels)
        if len(distinct) < 2:
            given = (
                f"one class only ({distinct[0]!r}, {len(labels)} times)" if len(labels) else "none"
            )
            raise ValueError(f"y must hold labels of at least two classes; it holds {given}")
        return labels

    def calibrate(self, X: object, y: ArrayLike, *, groups: ArrayLike | None = None) -> Self:
        """Calibrate the method again, with rows that `fit` did not see.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.
        y : array-like of shape (n_rows,)
            Labels.
        groups : array-like of shape (n_rows,), optional
            Group of each row, for guarantees with ``by="group"``.

        Returns
        -------
        self
        """
        scores = _as_ranking(self._scores_of(X), self._open_classes)
        check_present(y, "y")
        if not hasattr(self.method_, "calibrate"):
            raise ValueError(
                f"the method {self.method_!r} makes no guarantee and cannot be calibrated"
            )
        options = {} if groups is None else {"groups": label_array(groups, "groups")}
        labels = _integers_if_whole(column_or_1d(y))
        self.method_.calibrate(scores, labels, self._features_of(X), **options)
        return self

    def _make_method(self, X: object, groups: ArrayLike | None, seed: int) -> SetPredictor:
        """Return an unfitted set predictor that can be fitted with the given data."""
        if self.method is None:
            method: SetPredictor = Shortlister(calibration=None, random_state=seed)
        elif hasattr(self.method, "fit") and hasattr(self.method, "predict_set"):
            method = clone(self.method)
            if "calibration" in method.get_params():
                # The rows are held out from the classifier and the method together.
                method.set_params(calibration=None)
        else:
            raise ValueError(
                "method must be a set predictor, such as Shortlister(accuracy=0.98); "
                f"got {self.method!r}"
            )
        method = with_parameters(method, {"max_epochs": self.max_epochs})
        with_parameters(method, self._live_parameters())  # Raises if there is none of these names.
        if groups is not None:
            check_consistent_length(X, groups)
            if not takes_argument(getattr(method, "calibrate", len), "groups"):
                raise ValueError(f"{method!r} makes no guarantee by group; leave groups out")
        return method

    def _live_parameters(self) -> dict[str, object]:
        """Return the parameters of the method that can be set after `fit`."""
        if self.on_unreachable is not None:
            check_choice(self.on_unreachable, "on_unreachable", ("raise", "all"))
        return {"on_unreachable": self.on_unreachable, "by": self.by}

    def _current_method(self) -> SetPredictor:
        """Return the fitted method with the current values of the live parameters."""
        return with_parameters(self.method_, self._live_parameters())

    def _hold_out(self, rows: int, method: SetPredictor, seed: int) -> tuple[Rows, Rows]:
        """Return rows to learn from, and rows to calibrate with if the method is calibrated."""
        if not hasattr(method, "calibrate"):
            return np.arange(rows), np.arange(0)
        return hold_out(rows, check_probability(self.calibration, "calibration"), seed)

    def _features(self, X: object, encoder: FeatureEncoder | None) -> ArrayLike | None:
        """Return the features of X, without missing values if they are not computed by a function.

        Some classifiers accept missing values, but networks do not.
        """
        if callable(self.features):
            return self.features(X)
        return None if encoder is None else encoder.transform(X)

    def _features_of(self, X: object) -> ArrayLike | None:
        """Return the features of rows to predict."""
        matched = self._match_columns(X)
        if self.features == "auto" and self._encoder is None and self.method_.uses_features:
            return as_numeric_matrix(matched)  # As `from_fitted` expects it.
        return self._features(matched, self._encoder)

    def _match_columns(self, X: object) -> object:
        """Return X with its columns in the order of fit, if they have names."""
        known = getattr(self, "feature_names_in_", None)
        given = column_names(X)
        if known is None or given is None or given == list(known):
            return X
        # If the classifier rejects columns in another order, as those of scikit-learn do, so does
        # this one.
        class_scores(self.estimator_, X, self.classes_)
        return match_columns(X, [str(name) for name in known], "X")

    def _scores_of(self, X: object) -> NDArray[np.floating]:
        """Return the classifier's scores of X. The classifier validates X."""
        check_is_fitted(self, "method_")
        check_unmasked(X, "X")
        return class_scores(self.estimator_, self._match_columns(X), self.classes_)

    def _rescored(self, X: object) -> Tensor | None:
        """Return log-probabilities by the method, or None if it does not re-score."""
        check_is_fitted(self, "method_")
        if not getattr(self.method_, "rescored_", False):
            return None
        ranking: Ranking = self.method_.rescored(self._scores_of(X), self._features_of(X))
        return ranking.scores_of(slice(0, len(ranking)))

    def predict(self, X: object) -> NDArray[np.generic]:
        """Return the label with the largest score, which is the first label of the set.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.

        Returns
        -------
        array of shape (n_rows,)
        """
        scores = torch.from_numpy(np.ascontiguousarray(self._scores_of(X)))
        log_p = self._rescored(X)
        best = top_label(scores if log_p is None else log_p)
        labels: NDArray[np.generic] = self.classes_[best.numpy()]
        return labels

    def predict_set(self, X: object, **operating_point: object) -> PredictionSets:
        """Return the prediction set of each row.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.
        **operating_point
            Options of the method's `predict_set`, such as ``accuracy=0.95``.

        Returns
        -------
        PredictionSets
        """
        scores, method = self._scores_of(X), self._current_method()
        check_operating_point(method.predict_set, operating_point)
        return method.predict_set(scores, self._features_of(X), **operating_point)

    def predict_sets(
        self, X: object, *, accuracies: Sequence[float], **options: object
    ) -> list[PredictionSets]:
        """Return the sets at each of several accuracies.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.
        accuracies : sequence of float
            Accuracies to guarantee.
        **options
            Options of the method's `predict_sets`, such as ``delta=0.05``.

        Returns
        -------
        list of PredictionSets
        """
        scores, features = self._scores_of(X), self._features_of(X)
        method = self._current_method()
        check_operating_point(method.predict_sets, options)
        return method.predict_sets(scores, features, accuracies=accuracies, **options)  # type: ignore[arg-type]

    def frontier(self, X: object, y: ArrayLike) -> Frontier:
        """Return accuracy and mean size at every operating point of the method.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.
        y : array-like of shape (n_rows,)
            Labels.

        Returns
        -------
        Frontier
        """
        scores = self._scores_of(X)
        check_present(y, "y")
        return self.method_.frontier(
            scores, _integers_if_whole(np.asarray(y)), self._features_of(X)
        )

    def report(
        self,
        X: object,
        y: ArrayLike,
        path: str | os.PathLike[str] = "report.html",
        **options: object,
    ) -> Path:
        """Write a report on rows that `fit` did not see, as an HTML page.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.
        y : array-like of shape (n_rows,)
            Labels.
        path : path, default="report.html"
            File to write.
        **options
            Options of :meth:`shortlist.SetPredictor.report`: `title`, `examples`, `overwrite`.

        Returns
        -------
        Path
            The file.
        """
        check_present(y, "y")
        scores, labels = self._scores_of(X), _integers_if_whole(column_or_1d(y))
        method = self._current_method()
        return method.report(scores, labels, self._features_of(X), path, **options)

    @available_if(_base_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: object) -> Array:
        """Return the probabilities from which the sets are computed.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.

        Returns
        -------
        array of shape (n_rows, n_classes)
            Probabilities of the classifier or, if the method re-scores, of the method.
        """
        log_p = self._rescored(X)
        return self._scores_of(X) if log_p is None else log_p.exp().numpy()

    @available_if(_base_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: object) -> Array:
        """Return decision values of the classifier or, if the method re-scores, of the method.

        Parameters
        ----------
        X : table with n_rows rows
            Inputs that the classifier accepts.

        Returns
        -------
        array of shape (n_rows, n_classes), or (n_rows,) for two classes
            The method's decision values are log-probabilities; for two classes, their difference.
        """
        check_is_fitted(self, "method_")
        log_p_tensor = self._rescored(X)
        if log_p_tensor is None:
            matched = self._match_columns(X)
            return np.asarray(self.estimator_.decision_function(matched))  # type: ignore[attr-defined]
        log_p = log_p_tensor.numpy()
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._base()).input_tags
        return tags


def _as_ranking(scores: NDArray[np.floating], open_classes: bool) -> Ranking:
    """Return a ranking of scores that may be rounded differently in another batch."""
    ranking = Ranking.from_scores(scores)
    ranking.rounding, ranking.open_classes = CLASSIFIER_ROUNDING, open_classes
    return ranking


def _check_objects(y: ArrayLike) -> None:
    """Raise if labels that are Python objects are missing, or cannot be sorted.

    NumPy would turn a missing label in a list of texts into the text "nan".
    """
    is_list = isinstance(y, list | tuple)
    if not is_list and getattr(y, "dtype", None) != np.dtype(object):
        return
    objects = list(cast(list[object], y)) if is_list else np.asarray(y).ravel().tolist()
    for row, label in enumerate(objects):
        if label is None or (isinstance(label, float) and label != label):
            raise ValueError(f"y is missing in row {row}; leave such rows out")
    types = sorted({type(label).__name__ for label in objects})
    if len(types) > 1 and "str" in types:
        raise ValueError(
            f"y holds labels of types that cannot be sorted: {', '.join(types)}; convert them to "
            "one type"
        )


def _check_weights(weights: ArrayLike, n_rows: int) -> NDArray[np.generic]:
    """Return sample weights as an array, or raise if their shape is wrong."""
    check_present(weights, "sample_weight")
    array = np.asarray(weights)
    if array.shape != (n_rows,):
        raise ValueError(f"sample_weight must have shape ({n_rows},); got shape {array.shape}")
    return array


def _integers_if_whole(labels: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return floating-point labels as integers if they all are whole numbers."""
    if labels.dtype.kind != "f":
        return labels
    whole = labels.astype(np.int64)
    return whole if np.array_equal(whole, labels) else labels
