"""The scikit-learn estimator: a classifier and a set predictor, fitted on the same rows."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import MetaEstimatorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.integrations import ClassifierExportMixin
from shortlist._utils.notebook import DescriptionMixin
from shortlist._utils.sklearn_inputs import take_table_rows
from shortlist._utils.validation import check_choice, check_probability
from shortlist.learning.settings import resolve_seed
from shortlist.predictors.base import SetPredictor
from shortlist.predictors.classifier.cross_fitting import Classifier, FittedClassifier, Folds
from shortlist.predictors.classifier.feature_encoder import FeatureEncoder
from shortlist.predictors.classifier.features import FeatureChoice, FeatureSource
from shortlist.predictors.classifier.fitting import calibrate_method, fit_parts
from shortlist.predictors.classifier.inputs import MethodInputs
from shortlist.predictors.classifier.method import check_groups, unfitted_method, with_parameters
from shortlist.predictors.classifier.prediction import SetClassifier
from shortlist.predictors.classifier.rows import LabeledInputs, Rows
from shortlist.predictors.splitting import hold_out


class ShortlistClassifier(
    ClassifierExportMixin, DescriptionMixin, MetaEstimatorMixin, SetClassifier
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

    _encoder: FeatureEncoder | None
    _open_classes: bool

    def __init__(
        self,
        estimator: Classifier | None = None,
        *,
        method: SetPredictor | None = None,
        features: FeatureChoice = "auto",
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
        default: Classifier = LogisticRegression()
        return default if self.estimator is None else self.estimator

    @property
    def _source(self) -> FeatureSource:
        """How features are computed, with the current parameter."""
        # Methods of `from_fitted` with features were fitted with X itself.
        return FeatureSource(
            self.features,
            self._encoder,
            is_input=self.features == "auto" and self.method_.uses_features,
        )

    @property
    def _inputs(self) -> MethodInputs:
        check_is_fitted(self, "method_")
        names = getattr(self, "feature_names_in_", None)
        return MethodInputs(self.estimator_, self.classes_, self._source, names, self._open_classes)

    @property
    def feature_summary_(self) -> str:
        """Columns of X that are features of the method, and those that are left out."""
        check_is_fitted(self, "method_")
        return self._source.describe(self.method_)

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
        rows = LabeledInputs.validate(X, y, sample_weight, groups)
        validate_data(self, X, skip_check_array=True)
        seed = resolve_seed(self.random_state)
        method = self._make_method(seed)
        if groups is not None:
            check_groups(method)
        train, held_out = self._hold_out(len(rows), method, seed)
        # Means and categories are learned, and therefore computed from training rows alone.
        source = FeatureSource.fit(self.features, take_table_rows(X, train))
        features = source.compute(X)
        source.check(features, X, method)
        rows = rows.with_features(features)
        learning = rows.take(train)
        estimator, classes = fit_parts(
            self._base(), method, learning, cv=self.cv, n_jobs=self.n_jobs, seed=seed
        )
        if len(held_out):
            inputs = MethodInputs(estimator, classes, source, open_classes=learning.open_classes)
            calibration = rows.take(held_out)
            calibrate_method(method, inputs.ranking(calibration.x), calibration)
        self.classes_, self.estimator_, self.method_ = classes, estimator, method
        self._encoder, self._open_classes = source.encoder, learning.open_classes
        source.warn_if_incomplete(method)
        return self

    def _make_method(self, seed: int) -> SetPredictor:
        """Return an unfitted set predictor with the parameters that are given here."""
        method = unfitted_method(self.method, seed)
        method = with_parameters(method, {"max_epochs": self.max_epochs})
        with_parameters(method, self._live_parameters())  # Raises if there is none of these names.
        return method

    def _live_parameters(self) -> dict[str, object]:
        """Return the parameters of the method that can be set after `fit`."""
        if self.on_unreachable is not None:
            check_choice(self.on_unreachable, "on_unreachable", ("raise", "all"))
        return {"on_unreachable": self.on_unreachable, "by": self.by}

    def _current_method(self) -> SetPredictor:
        return with_parameters(self.method_, self._live_parameters())

    def _hold_out(self, rows: int, method: SetPredictor, seed: int) -> tuple[Rows, Rows]:
        """Return rows to learn from, and rows to calibrate with if the method is calibrated."""
        if not hasattr(method, "calibrate"):
            return np.arange(rows), np.arange(0)
        return hold_out(rows, check_probability(self.calibration, "calibration"), seed)

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
        inputs = self._inputs
        ranking = inputs.ranking(X)
        rows = LabeledInputs.validate_calibration(X, y, groups)
        if not hasattr(self.method_, "calibrate"):
            raise ValueError(
                f"the method {self.method_!r} makes no guarantee and cannot be calibrated"
            )
        calibrate_method(self.method_, ranking, rows.with_features(inputs.features(X)))
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._base()).input_tags
        return tags
