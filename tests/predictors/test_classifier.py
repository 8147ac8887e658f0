"""Prediction sets for scikit-learn classifiers: the rows that each part sees, and the sets."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from joblib import parallel_config
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    PredefinedSplit,
    ShuffleSplit,
    TimeSeriesSplit,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import shuffle
from sklearn.utils.estimator_checks import parametrize_with_checks

import shortlist as sl

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
FAMILY = sl.TopK([1, 2, 3])


def small_selector(inputs: str = "scores", **parameters: object) -> sl.CardinalitySelector:
    return sl.CardinalitySelector(FAMILY, inputs=inputs, width=8, max_epochs=3, **parameters)  # type: ignore[arg-type]


def wrap(estimator: object = None, **parameters: object) -> sl.ShortlistClassifier:
    base = LogisticRegression(max_iter=500) if estimator is None else estimator
    return sl.ShortlistClassifier(base, **({"method": small_selector()} | parameters))  # type: ignore[arg-type]


def expected_failures(model: sl.ShortlistClassifier) -> dict[str, str]:
    """Return the checks that a model cannot pass, with the reasons."""
    reasons = {}
    if model.method is None or hasattr(model.method, "calibrate"):
        for kind in ("dense", "sparse"):
            reasons[f"check_sample_weight_equivalence_on_{kind}_data"] = (
                "other rows are held out at random if some rows are repeated"
            )
    if getattr(model.method, "rescore", None) is True:
        for check in ("tag", "array", "matrix"):
            reasons[f"check_estimator_sparse_{check}"] = "rescore=True needs dense features"
    return reasons


@parametrize_with_checks(
    [
        sl.ShortlistClassifier(),
        sl.ShortlistClassifier(
            LogisticRegression(), method=sl.CardinalitySelector(inputs="scores", max_epochs=2)
        ),
        sl.ShortlistClassifier(
            method=sl.Shortlister(
                rescore=True, learn_sizes=True, effort="fast", max_epochs=2, folds=2, width=8
            )
        ),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_estimator_checks(
    estimator: sl.ShortlistClassifier, check: Callable[[sl.ShortlistClassifier], None]
) -> None:
    if estimator.method is None and getattr(check, "keywords", {}):
        # The check has passed without these keywords, which are about the rows that are given.
        estimator.set_params(method=sl.Shortlister(effort="fast", max_epochs=2))
    check(estimator)


# The rows that each part sees


class Memory(ClassifierMixin, BaseEstimator):
    """A classifier that is certain about the rows it was fitted on, and guesses for others."""

    fitted_rows: ClassVar[list[set[float]]] = []

    def fit(
        self, X: NDArray[np.float64], y: NDArray[np.int64], sample_weight: object = None
    ) -> Memory:
        self.classes_ = np.unique(y)
        self.rows_ = set(X[:, 0].tolist())
        Memory.fitted_rows.append(self.rows_)
        self.weights_ = sample_weight
        return self

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        known = np.isin(X[:, 0], list(self.rows_))[:, None]
        n = len(self.classes_)
        guess = np.full((len(X), n), 1 / n)
        certain = np.eye(n)[np.zeros(len(X), int)]
        return np.where(known, certain, guess)

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.int64]:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class RecordingMethod(sl.SetPredictor):
    """A set predictor that records its arguments."""

    def __init__(self, score_type: str = "auto") -> None:
        self.score_type = score_type

    def fit(self, scores, y, features=None, *, classes=None):  # type: ignore[no-untyped-def]
        self.fitted_ = (np.asarray(scores), np.asarray(y), features, classes)
        return self

    def predict_set(self, scores, features=None, **options):  # type: ignore[no-untyped-def]
        self.options_ = options
        return sl.PredictionSets.from_lists([[0]] * len(scores), n_classes=3)

    def frontier(self, scores, y, features=None):  # type: ignore[no-untyped-def]
        raise NotImplementedError


class RecordingCalibrated(RecordingMethod):
    """A recording set predictor with `calibrate`."""

    def calibrate(self, scores, y, features=None):  # type: ignore[no-untyped-def]
        array = scores.scores_of(slice(None)).numpy()
        self.calibrated_ = (array, np.asarray(y), features)
        return self


def numbered_rows(rows: int = 60) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows whose first feature is the number of the row."""
    return np.stack([np.arange(rows, dtype=float), np.ones(rows)], axis=1), np.arange(rows) % 3


def test_the_selector_learns_from_scores_of_rows_the_classifier_did_not_see() -> None:
    x, y = numbered_rows()
    Memory.fitted_rows.clear()
    model = sl.ShortlistClassifier(Memory(), method=RecordingMethod()).fit(x, y)
    scores, labels, features, classes = model.method_.fitted_  # type: ignore[attr-defined]
    np.testing.assert_allclose(scores, 1 / 3)  # A fitted row would have a probability of one.
    assert np.array_equal(labels, y)
    assert np.array_equal(features, x)
    assert classes.tolist() == [0, 1, 2]
    *folds, whole = sorted(Memory.fitted_rows, key=len)
    assert whole == set(x[:, 0])  # The classifier for prediction is fitted on all rows.
    assert len(folds) == 5
    assert (model.predict_proba(x).max(axis=1) == 1).all()


@pytest.mark.parametrize("calibration", [0.25, 0.5])
def test_calibration_rows_are_seen_by_neither_classifier_nor_method(calibration: float) -> None:
    x, y = numbered_rows()
    Memory.fitted_rows.clear()
    model = sl.ShortlistClassifier(Memory(), method=RecordingCalibrated(), calibration=calibration)
    method = model.fit(x, y).method_
    assert isinstance(method, RecordingCalibrated)
    scores, labels, held_out = method.calibrated_
    assert len(held_out) == round(60 * calibration)
    held = set(held_out[:, 0])
    assert not any(held & rows for rows in Memory.fitted_rows)
    assert not held & set(method.fitted_[2][:, 0])
    assert held | set(method.fitted_[2][:, 0]) == set(x[:, 0])
    np.testing.assert_allclose(scores, 1 / 3)
    assert np.array_equal(labels, held_out[:, 0].astype(int) % 3)  # Rows keep their labels.
    assert np.array_equal(method.fitted_[1], method.fitted_[2][:, 0].astype(int) % 3)


def test_a_method_without_calibration_gets_every_row() -> None:
    x, y = numbered_rows()
    model = sl.ShortlistClassifier(Memory(), method=RecordingMethod(), calibration=0.9).fit(x, y)
    assert len(model.method_.fitted_[1]) == 60  # type: ignore[attr-defined]


def test_sample_weights_belong_to_their_rows() -> None:
    x, y = numbered_rows()
    weights = x[:, 0] + 0.5

    class Recording(Memory):
        fits: ClassVar[list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = []

        def fit(self, X, y, sample_weight=None):  # type: ignore[no-untyped-def]
            Recording.fits.append((X[:, 0], sample_weight))
            return super().fit(X, y, sample_weight)

    def check(expected: int) -> None:
        assert len(Recording.fits) == expected
        for rows, fit_weights in Recording.fits:
            assert np.array_equal(fit_weights, rows + 0.5)
        Recording.fits.clear()

    sl.ShortlistClassifier(Recording(), method=RecordingMethod()).fit(x, y, sample_weight=weights)
    check(6)
    sl.ShortlistClassifier(Recording(), method=RecordingCalibrated()).fit(
        x, y, sample_weight=list(weights)
    )
    check(6)
    pipeline = Pipeline([("nothing", "passthrough"), ("last", Recording())])
    sl.ShortlistClassifier(pipeline, method=RecordingMethod()).fit(x, y, sample_weight=weights)
    check(6)
    search = GridSearchCV(Recording(), {}, cv=2)
    sl.ShortlistClassifier(search, method=RecordingMethod()).fit(x, y, sample_weight=weights)
    assert len(Recording.fits) == 18  # Two folds and all rows, six times.
    check(18)


def test_sample_weights_matter() -> None:
    weights = np.where(Y == 2, 1e-6, 1.0)
    plain, weighted = wrap().fit(X, Y), wrap().fit(X, Y, sample_weight=weights)
    assert (plain.predict(X) == 2).sum() > 40
    assert (weighted.predict(X) == 2).sum() == 0


def test_folds_depend_on_the_seed_only() -> None:
    def scores(n_jobs: int | None, seed: int) -> NDArray[np.float64]:
        base, method = DecisionTreeClassifier(random_state=0), RecordingMethod()
        model = sl.ShortlistClassifier(base, method=method, n_jobs=n_jobs, random_state=seed)
        return model.fit(X, Y).method_.fitted_[0]  # type: ignore[attr-defined,no-any-return]

    with parallel_config(backend="threading"):  # Threads start faster than processes.
        assert np.array_equal(scores(None, 0), scores(2, 0))
    assert not np.array_equal(scores(None, 0), scores(None, 1))


def test_operating_points_are_passed_to_the_method() -> None:
    x, y = numbered_rows()
    model = sl.ShortlistClassifier(Memory(), method=RecordingMethod()).fit(x, y)
    model.predict_set(x, accuracy=0.9)
    assert model.method_.options_ == {"accuracy": 0.9}  # type: ignore[attr-defined]


# Splits


@pytest.mark.parametrize(
    "cv",
    [
        2,
        KFold(3),
        PredefinedSplit(np.arange(150) % 4),
        [(np.arange(75), np.arange(75, 150)), (np.arange(75, 150), np.arange(75))],
    ],
)
def test_splitters_of_every_type(cv: object) -> None:
    order = np.random.default_rng(0).permutation(150)
    model = sl.ShortlistClassifier(
        LogisticRegression(max_iter=500), method=RecordingMethod(), cv=cv
    )  # type: ignore[arg-type]
    scores, y, *_ = model.fit(X[order], Y[order]).method_.fitted_  # type: ignore[attr-defined]
    assert np.array_equal(y, Y[order])
    assert (scores.argmax(axis=1) == y).mean() > 0.9


def test_folds_that_leave_rows_out() -> None:
    order = np.random.default_rng(0).permutation(150)
    cv = TimeSeriesSplit(3)
    model = sl.ShortlistClassifier(
        LogisticRegression(max_iter=500), method=RecordingMethod(), cv=cv
    )
    scores, y, features, _ = model.fit(X[order], Y[order]).method_.fitted_  # type: ignore[attr-defined]
    tested = np.concatenate([test for _, test in cv.split(X)])
    assert np.array_equal(y, Y[order][tested])
    assert np.array_equal(features, X[order][tested])
    assert len(scores) == len(tested) < 150


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (1, "cv must be an integer of at least 2; got 1"),
        (True, "got True"),
        ("five", "five"),
        (ShuffleSplit(4, random_state=0), r"ShuffleSplit.*tests a row in two folds"),
    ],
)
def test_invalid_folds_are_refused(cv: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrap(cv=cv).fit(X, Y)


def test_a_class_that_is_missing_in_some_folds() -> None:
    rows = np.r_[0:100, 149]  # The last class has one row.
    for base in (LogisticRegression(max_iter=500), LinearSVC(), DecisionTreeClassifier()):
        model = sl.ShortlistClassifier(base, method=RecordingMethod()).fit(X[rows], Y[rows])
        scores = model.method_.fitted_[0]  # type: ignore[attr-defined]
        assert scores.shape == (101, 3)
        assert np.isfinite(scores).all()
        assert (
            scores[-1, 2] == scores[-1].min()
        )  # No classifier that knows the class scored its row.
        assert wrap(base).fit(X[rows], Y[rows]).predict_set(X).n_classes == 3


@pytest.mark.parametrize("rows", [2, 3, 6])
def test_very_few_rows(rows: int) -> None:
    y = np.arange(rows) % 2
    sets = wrap(
        DecisionTreeClassifier(), method=small_selector().set_params(family=sl.TopK([1, 2]))
    )
    sizes = sets.fit(X[:rows], y).predict_set(X[:rows]).sizes
    assert sizes.shape == (rows,)


def test_scores_are_in_the_columns_of_their_classes() -> None:
    outer = Y != 1  # The second class is missing.
    base = LogisticRegression(max_iter=500).fit(X[outer], NAMES[Y[outer]])
    model = sl.ShortlistClassifier(FrozenEstimator(base), method=RecordingMethod()).fit(X, NAMES[Y])
    scores = model.method_.fitted_[0]  # type: ignore[attr-defined]
    assert np.array_equal(scores[:, [0, 2]], base.predict_proba(X))
    assert (scores[:, 1] == 0).all()
    assert np.array_equal(model.predict_proba(X), scores)


def test_the_score_of_an_unknown_class_depends_on_its_row_alone() -> None:
    svc = FrozenEstimator(LinearSVC().fit(X[:100], Y[:100]))
    multi = FrozenEstimator(LinearSVC().fit(X, Y))
    for base, labels in ((svc, Y), (multi, np.where(np.arange(150) == 7, 5, Y))):
        model = sl.ShortlistClassifier(base, method=RecordingMethod()).fit(X, labels)
        scores = model.method_.fitted_[0]  # type: ignore[attr-defined]
        far = X.copy()
        far[0] *= 1e3
        again = sl.ShortlistClassifier(base, method=RecordingMethod()).fit(far, labels)
        assert np.array_equal(again.method_.fitted_[0][1:], scores[1:])  # type: ignore[attr-defined]
        assert (scores.argmin(axis=1) == scores.shape[1] - 1).all()


# Classifiers


@pytest.mark.parametrize(
    "base",
    [
        LogisticRegression(max_iter=500),
        make_pipeline(StandardScaler(), LogisticRegression()),
        LinearSVC(),
        SVC(),
        DecisionTreeClassifier(max_depth=2),
        sl.LinearClassifier("exp", max_epochs=10, learning_rate=0.1),
        FrozenEstimator(LogisticRegression(max_iter=500).fit(X, Y)),
    ],
    ids=lambda base: type(base).__name__,
)
def test_any_classifier(base: object) -> None:
    model = wrap(base).fit(X, Y)
    sets = model.predict_set(X)
    first = np.array([labels[0] for labels in sets.labels()])
    assert np.array_equal(model.predict(X), first)
    assert model.score(X, Y) == (first == Y).mean() > 0.9
    assert sets.accuracy(Y) >= model.score(X, Y)
    assert hasattr(model, "predict_proba") == hasattr(base, "predict_proba")
    assert hasattr(model, "decision_function") == hasattr(base, "decision_function")


def test_two_classes_with_a_decision_function_only() -> None:
    two = Y < 2
    model = wrap(LinearSVC(), method=sl.CardinalitySelector(inputs="scores", max_epochs=2))
    model.fit(X[two], NAMES[Y[two]])
    assert model.score(X[two], NAMES[Y[two]]) == 1
    assert model.predict_set(X[two]).n_classes == 2
    assert model.decision_function(X[two]).shape == (100,)


def test_a_frozen_classifier_is_not_fitted_again() -> None:
    fitted = LogisticRegression(max_iter=500).fit(X, NAMES[Y])
    model = wrap(FrozenEstimator(fitted)).fit(X[:120], NAMES[Y[:120]])
    assert np.array_equal(model.predict_proba(X), fitted.predict_proba(X))
    two = Y[:120] < 2  # The classifier knows a class that these rows do not have.
    model = wrap(FrozenEstimator(fitted)).fit(X[:120][two], NAMES[Y[:120][two]])
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.predict_set(X).n_classes == 3


def test_probabilities_are_those_of_the_classifier() -> None:
    model = wrap().fit(X, Y)
    plain = LogisticRegression(max_iter=500).fit(X, Y)
    assert np.array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert np.array_equal(model.decision_function(X), plain.decision_function(X))
    assert np.array_equal(model.predict(X), plain.predict(X))


def test_one_versus_one_decision_functions_are_refused() -> None:
    four = np.r_[Y[:-20], np.full(20, 3)]
    with pytest.raises(ValueError, match=r"SVC.*returns 6 scores per row for 4 classes"):
        wrap(SVC(decision_function_shape="ovo")).fit(X, four)


def test_a_classifier_without_scores_is_refused() -> None:
    class Mute(ClassifierMixin, BaseEstimator):
        def fit(self, X: object, y: NDArray[np.int64]) -> Mute:
            self.classes_ = np.unique(y)
            return self

    with pytest.raises(ValueError, match=r"Mute.*neither predict_proba nor decision_function"):
        wrap(Mute()).fit(X, Y)
    with pytest.raises(ValueError, match=r"Mute.*takes no sample_weight"):
        wrap(Mute()).fit(X, Y, sample_weight=np.ones(150))


# Labels and inputs


@pytest.mark.parametrize(
    "names",
    [
        NAMES,
        NAMES.astype(object),
        np.array([10, 20, 30]),
        np.array([-1, 0, 7]),
        np.array([1.0, 2.0, 3.0]),
    ],
    ids=lambda names: f"{names.dtype}-{names[0]}",
)
def test_labels_of_every_type(names: NDArray[np.generic]) -> None:
    model, plain = wrap().fit(X, names[Y]), wrap().fit(X, Y)
    assert model.classes_.tolist() == names.tolist()
    assert np.array_equal(model.predict(X), names[plain.predict(X)])
    assert model.score(X, names[Y]) == plain.score(X, Y)
    expected = [[names[k] for k in row] for row in plain.predict_set(X).labels()]
    assert model.predict_set(X).labels() == expected
    assert model.frontier(X, names[Y]).accuracy == plain.frontier(X, Y).accuracy


def test_boolean_labels() -> None:
    model = wrap(method=sl.FixedSelector(sl.TopK([1]))).fit(X, Y == 0)
    assert model.classes_.tolist() == [False, True]
    assert model.predict_set(X[:1]).labels() == [[True]]
    assert model.predict(X).dtype == bool


@pytest.mark.parametrize("input_type", ["frame", "sparse", "list", "float32"])
def test_inputs_of_every_type(input_type: str) -> None:
    frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(1000, 1150))
    inputs = {
        "frame": frame,
        "sparse": scipy.sparse.coo_array(X),
        "list": X.tolist(),
        "float32": X.astype(np.float32),
    }[input_type]
    y = pd.Series(Y, index=frame.index) if input_type == "frame" else Y
    model, plain = wrap().fit(inputs, y), wrap().fit(X, Y)
    assert (model.predict(inputs) == plain.predict(X)).mean() > 0.98
    assert (model.predict_set(inputs).sizes == plain.predict_set(X).sizes).mean() > 0.9
    assert model.n_features_in_ == 4
    if input_type == "frame":
        assert model.feature_names_in_.tolist() == list("abcd")
        with pytest.raises(ValueError, match="feature names"):
            model.predict_set(frame[list("dcba")])


def test_frames_with_text_columns() -> None:
    frame = pd.DataFrame(X, columns=list("abcd")).assign(word=np.where(Y == 0, "small", "large"))
    base = make_pipeline(ColumnChoice(["a", "b", "c", "d"]), LogisticRegression(max_iter=500))
    model = sl.ShortlistClassifier(base, method=RecordingMethod()).fit(frame, Y)
    features = np.column_stack([X, Y != 0, Y == 0])  # The two words.
    assert np.array_equal(model.method_.fitted_[2], features)  # type: ignore[attr-defined]
    numbers = sl.ShortlistClassifier(base, method=RecordingMethod()).fit(
        frame.drop(columns="word"), Y
    )
    assert np.array_equal(numbers.method_.fitted_[2], X)  # type: ignore[attr-defined]


class ColumnChoice(BaseEstimator):
    """A transformer that selects columns of a frame."""

    def __init__(self, columns: list[str]) -> None:
        self.columns = columns

    def fit(self, X: object, y: object = None) -> ColumnChoice:
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        return X[self.columns]


def test_texts() -> None:
    rng = np.random.default_rng(0)
    words = np.array(["river boat water fish", "road car wheel fuel", "sky cloud wing bird"])
    y = rng.integers(3, size=90)
    texts = [" ".join(rng.permutation(words[k].split())[:2]) for k in y]
    model = wrap(make_pipeline(CountVectorizer(), MultinomialNB())).fit(texts, NAMES[y])
    assert model.score(texts, NAMES[y]) > 0.95
    assert model.predict_set(["boat fish", "bird"]).labels()[0][0] == "setosa"
    default = sl.ShortlistClassifier(make_pipeline(CountVectorizer(), MultinomialNB()))
    assert isinstance(default.fit(texts, y).method_, sl.Shortlister)
    assert default.method_.score_.n_features_ is None
    assert default.predict_set(texts).accuracy(y) > 0.95


def test_missing_values_where_the_classifier_takes_them() -> None:
    holed = X.copy()
    holed[::7, 2] = np.nan
    model = sl.ShortlistClassifier(HistGradientBoostingClassifier(max_iter=5)).fit(holed, Y)
    assert model.method_.score_.n_features_ == 4  # type: ignore[attr-defined]
    assert model.predict_set(holed).accuracy(Y) > 0.9


def test_features_of_the_method() -> None:
    def features_for(features: object, x: object = X) -> object:
        model = sl.ShortlistClassifier(
            LogisticRegression(max_iter=500),
            method=RecordingMethod(),
            features=features,  # type: ignore[arg-type]
        )
        return model.fit(x, Y).method_.fitted_[2]  # type: ignore[attr-defined]

    assert np.array_equal(features_for("auto"), X)  # type: ignore[arg-type]
    assert features_for(None) is None
    assert np.array_equal(features_for(lambda x: x[:, :1] ** 2), X[:, :1] ** 2)  # type: ignore[arg-type]
    assert features_for("auto", scipy.sparse.csr_array(X)) is None
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        features_for(lambda x: x[:7])
    with pytest.raises(ValueError, match="must be \"auto\", None or a function of X; got 'some'"):
        features_for("some")


def test_the_default_method_uses_features_and_scores() -> None:
    model = sl.ShortlistClassifier().fit(X - X.mean(axis=0), Y)
    assert isinstance(model.method_, sl.Shortlister)
    assert model.method_.score_.n_features_ == 4
    assert isinstance(model.estimator_, LogisticRegression)
    assert model.method is None
    assert model.predict_set(X - X.mean(axis=0)).accuracy(Y) > 0.95


# Use with scikit-learn


def test_a_grid_of_lambdas_in_a_pipeline() -> None:
    def set_loss(model: Pipeline, x: NDArray[np.float64], y: NDArray[np.int64]) -> float:
        sets = model[-1].predict_set(model[:-1].transform(x))
        return -sl.metrics.cardinality_loss(sets, y, cost_weight=0.02)

    pipeline = Pipeline([("scale", StandardScaler()), ("sets", wrap(method=small_selector()))])
    grid = {"sets__method__cost_weight": [0.0, 0.02, 5.0], "sets__estimator__C": [0.01, 1.0]}
    search = GridSearchCV(pipeline, grid, scoring=set_loss, cv=3).fit(X, NAMES[Y])
    assert len(search.cv_results_["params"]) == 6
    means = {
        (p["sets__method__cost_weight"], p["sets__estimator__C"]): s
        for p, s in zip(
            search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
        )
    }
    assert means[0.0, 1.0] == pytest.approx(-0.02 * np.log(3))  # Sets of all labels.
    assert search.best_score_ > means[0.0, 1.0]
    assert search.best_estimator_.predict(X[:2]).tolist() == ["setosa", "setosa"]


def test_cross_validation() -> None:
    assert cross_val_score(wrap(), X, Y, cv=3).mean() > 0.9


def test_pickle_clone_and_parameters() -> None:
    model = wrap(method=small_selector("both")).fit(X, NAMES[Y])
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_set(X) == model.predict_set(X)
    fresh = clone(model)
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    assert fresh.set_params(method__cost_weight=0.9).method.cost_weight == 0.9
    assert model.method.cost_weight == 0.05  # type: ignore[union-attr]
    assert not hasattr(model.method, "classes_")  # The given method stays unfitted.


def test_parallel_folds_give_the_same_model() -> None:
    alone, together = (wrap(n_jobs=n).fit(X, Y) for n in (None, 2))
    assert alone.predict_set(X) == together.predict_set(X)
    assert alone.method_.history_.loss == together.method_.history_.loss  # type: ignore[attr-defined]


def test_sets_do_not_depend_on_the_batch() -> None:
    model = wrap(method=small_selector("both")).fit(X, Y)
    alone = [model.predict_set(X[i : i + 1]).labels()[0] for i in range(0, 150, 5)]
    assert alone == model.predict_set(X[::5]).labels()


def test_the_frontier_of_a_path() -> None:
    path = sl.CardinalityPath(FAMILY, cost_weights=[1.0, 0.01, 0.0], inputs="both", max_epochs=5)
    model = wrap(method=path).fit(X, NAMES[Y])
    curve = model.frontier(X, NAMES[Y])
    assert curve.mean_size[-1] == 3
    sets = model.predict_set(X, cost_weight=0.01)
    assert curve.accuracy[1] == pytest.approx(sets.accuracy(NAMES[Y]))


@pytest.mark.parametrize("method", ["predict", "predict_set", "predict_proba", "decision_function"])
def test_an_unfitted_model_is_refused(method: str) -> None:
    with pytest.raises(NotFittedError, match="ShortlistClassifier"):
        getattr(wrap(), method)(X)
    with pytest.raises(NotFittedError, match="ShortlistClassifier"):
        wrap().frontier(X, Y)


def test_a_failed_fit_does_not_change_the_model() -> None:
    model = wrap().fit(X, Y)
    before = model.predict_set(X)

    class Failing(RecordingMethod):
        def fit(self, scores, y, features=None, *, classes=None):  # type: ignore[no-untyped-def]
            raise KeyboardInterrupt

    model.set_params(method=Failing())
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:100], Y[:100])
    assert model.predict_set(X) == before


def test_a_guarantee_for_each_group() -> None:
    x, y = shuffle(*load_digits(return_X_y=True), random_state=0)  # Rows are sorted by writer.
    odd = np.where(y % 2 == 1, "odd", "even")
    method = sl.Shortlister(rescore=False, learn_sizes=False)
    model = wrap(GaussianNB(), method=method).fit(x[:1200], y[:1200], groups=odd[:1200])
    sets = model.predict_set(x[1200:], accuracy=0.9, by="group", groups=odd[1200:])
    assert str(sets.guarantee).startswith("accuracy >= 0.9 guaranteed for each group by 300")
    for group in ("odd", "even"):
        rows = odd[1200:] == group
        assert sets[np.flatnonzero(rows)].accuracy(y[1200:][rows]) > 0.86
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(x, y, groups=odd[:-1])
    with pytest.raises(ValueError, match="makes no guarantee by group; leave groups out"):
        wrap().fit(x, y, groups=odd)


def test_calibrate_replaces_the_calibration() -> None:
    x, y = shuffle(*load_digits(return_X_y=True), random_state=1)
    method = sl.Shortlister(rescore=False, learn_sizes=False)
    h = LogisticRegression(C=0.001, max_iter=300)
    model = wrap(h, method=method).fit(x[:600], y[:600])
    assert "by 150 calibration rows" in str(model.predict_set(x[1400:], accuracy=0.95).guarantee)
    worse = x + 4 * np.random.default_rng(0).normal(size=x.shape)  # The distribution has changed.
    before = model.predict_set(worse[1400:], accuracy=0.95).accuracy(y[1400:])
    assert model.calibrate(worse[600:1400], y[600:1400]) is model
    sets = model.predict_set(worse[1400:], accuracy=0.95)
    assert "by 800 calibration rows" in str(sets.guarantee)
    assert before < 0.91 < sets.accuracy(y[1400:])
    with pytest.raises(ValueError, match="makes no guarantee and cannot be calibrated"):
        wrap().fit(x, y).calibrate(x, y)


def test_fitted_parts_can_be_combined() -> None:
    fit, select, test = sl.datasets.digits().split(300, 700)
    h = sl.LinearClassifier(max_epochs=3).fit(fit.x, fit.y)
    scores = h.predict_proba(select.x)
    for x in (None, select.x):
        method = sl.Shortlister(max_epochs=2, width=8, folds=2).fit(scores, select.y, x)
        model = sl.ShortlistClassifier.from_fitted(h, method)
        x_test = None if x is None else test.x
        expected = method.predict_set(h.predict_proba(test.x), x_test).labels()
        assert model.predict_set(test.x).labels() == expected
    other = sl.SplitConformal("lac").fit(scores, select.y + 1, classes=range(1, 11))
    with pytest.raises(ValueError, match="but the method's are"):
        sl.ShortlistClassifier.from_fitted(h, other)
