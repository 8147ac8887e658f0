"""Prediction sets for any scikit-learn classifier: who sees which rows, and what comes out."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
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


def fast(inputs: str = "scores", **parameters: object) -> sl.CardinalitySelector:
    return sl.CardinalitySelector(FAMILY, inputs=inputs, width=8, max_epochs=3, **parameters)  # type: ignore[arg-type]


def wrap(estimator: object = None, **parameters: object) -> sl.ShortlistClassifier:
    base = LogisticRegression(max_iter=500) if estimator is None else estimator
    return sl.ShortlistClassifier(base, **({"method": fast()} | parameters))  # type: ignore[arg-type]


def beyond_its_means(model: sl.ShortlistClassifier) -> dict[str, str]:
    """Checks that a model cannot pass, and why."""
    found = {}
    if model.method is None or hasattr(model.method, "calibrate"):
        for kind in ("dense", "sparse"):
            found[f"check_sample_weight_equivalence_on_{kind}_data"] = (
                "rows that are held out at random are others when some rows are repeated"
            )
    if getattr(model.method, "rescore", None) is True:
        for check in ("tag", "array", "matrix"):
            found[f"check_estimator_sparse_{check}"] = "rescore=True needs dense features"
    return found


@parametrize_with_checks(
    [
        sl.ShortlistClassifier(),
        sl.ShortlistClassifier(
            LogisticRegression(), method=sl.CardinalitySelector(inputs="scores", max_epochs=2)
        ),
        sl.ShortlistClassifier(
            method=sl.Shortlister(
                rescore=True, learn_sizes=True, max_epochs=2, folds=2, width=8, rank_width=8
            )
        ),
    ],
    expected_failed_checks=beyond_its_means,
)
def test_scikit_learns_own_checks(
    estimator: sl.ShortlistClassifier, check: Callable[[sl.ShortlistClassifier], None]
) -> None:
    check(estimator)


# Who sees what


class Memory(ClassifierMixin, BaseEstimator):
    """Knows by heart the rows it was fitted on, and is sure of their labels; else it guesses."""

    seen: ClassVar[list[set[float]]] = []

    def fit(
        self, X: NDArray[np.float64], y: NDArray[np.int64], sample_weight: object = None
    ) -> Memory:
        self.classes_ = np.unique(y)
        self.rows_ = set(X[:, 0].tolist())
        Memory.seen.append(self.rows_)
        self.weights_ = sample_weight
        return self

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        known = np.isin(X[:, 0], list(self.rows_))[:, None]
        n = len(self.classes_)
        guess = np.full((len(X), n), 1 / n)
        sure = np.eye(n)[np.zeros(len(X), int)]
        return np.where(known, sure, guess)

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.int64]:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class Witness(sl.SetPredictor):
    """A set predictor that writes down what it gets."""

    def __init__(self, score_type: str = "auto") -> None:
        self.score_type = score_type

    def fit(self, scores, y, features=None, *, classes=None):  # type: ignore[no-untyped-def]
        self.fitted_ = (np.asarray(scores), np.asarray(y), features, classes)
        return self

    def predict_set(self, scores, features=None, **told):  # type: ignore[no-untyped-def]
        self.told_ = told
        return sl.PredictionSets.from_lists([[0]] * len(scores), n_classes=3)

    def frontier(self, scores, y, features=None):  # type: ignore[no-untyped-def]
        raise NotImplementedError


class Calibrated(Witness):
    """One that can be calibrated."""

    def calibrate(self, scores, y, features=None):  # type: ignore[no-untyped-def]
        given = scores.scores_of(slice(None)).numpy()
        self.calibrated_ = (given, np.asarray(y), features)
        return self


def numbered(rows: int = 60) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows that can be told apart by their first feature."""
    return np.stack([np.arange(rows, dtype=float), np.ones(rows)], axis=1), np.arange(rows) % 3


def test_the_selector_learns_from_scores_of_rows_the_classifier_did_not_see() -> None:
    x, y = numbered()
    Memory.seen.clear()
    model = sl.ShortlistClassifier(Memory(), method=Witness()).fit(x, y)
    scores, labels, features, classes = model.method_.fitted_  # type: ignore[attr-defined]
    np.testing.assert_allclose(scores, 1 / 3)  # a row it had seen would have a one
    assert np.array_equal(labels, y)
    assert np.array_equal(features, x)
    assert classes.tolist() == [0, 1, 2]
    *folds, whole = sorted(Memory.seen, key=len)
    assert whole == set(x[:, 0])  # for prediction: all rows
    assert len(folds) == 5
    assert (model.predict_proba(x).max(axis=1) == 1).all()


@pytest.mark.parametrize("calibration", [0.25, 0.5])
def test_rows_that_calibrate_are_seen_by_neither(calibration: float) -> None:
    x, y = numbered()
    Memory.seen.clear()
    model = sl.ShortlistClassifier(Memory(), method=Calibrated(), calibration=calibration)
    method = model.fit(x, y).method_
    assert isinstance(method, Calibrated)
    scores, labels, held_out = method.calibrated_
    assert len(held_out) == round(60 * calibration)
    held = set(held_out[:, 0])
    assert not any(held & rows for rows in Memory.seen)
    assert not held & set(method.fitted_[2][:, 0])
    assert held | set(method.fitted_[2][:, 0]) == set(x[:, 0])
    np.testing.assert_allclose(scores, 1 / 3)
    assert np.array_equal(labels, held_out[:, 0].astype(int) % 3)  # rows keep their labels
    assert np.array_equal(method.fitted_[1], method.fitted_[2][:, 0].astype(int) % 3)


def test_a_method_without_calibration_gets_every_row() -> None:
    x, y = numbered()
    model = sl.ShortlistClassifier(Memory(), method=Witness(), calibration=0.9).fit(x, y)
    assert len(model.method_.fitted_[1]) == 60  # type: ignore[attr-defined]


def test_sample_weights_are_passed_on_with_their_rows() -> None:
    x, y = numbered()
    weights = x[:, 0] + 0.5

    class Recording(Memory):
        fits: ClassVar[list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = []

        def fit(self, X, y, sample_weight=None):  # type: ignore[no-untyped-def]
            Recording.fits.append((X[:, 0], sample_weight))
            return super().fit(X, y, sample_weight)

    def check(expected: int) -> None:
        assert len(Recording.fits) == expected
        for rows, given in Recording.fits:
            assert np.array_equal(given, rows + 0.5)
        Recording.fits.clear()

    sl.ShortlistClassifier(Recording(), method=Witness()).fit(x, y, sample_weight=weights)
    check(6)
    sl.ShortlistClassifier(Recording(), method=Calibrated()).fit(x, y, sample_weight=list(weights))
    check(6)
    pipeline = Pipeline([("nothing", "passthrough"), ("last", Recording())])
    sl.ShortlistClassifier(pipeline, method=Witness()).fit(x, y, sample_weight=weights)
    check(6)
    search = GridSearchCV(Recording(), {}, cv=2)
    sl.ShortlistClassifier(search, method=Witness()).fit(x, y, sample_weight=weights)
    assert len(Recording.fits) == 18  # two folds and all, six times
    check(18)


def test_sample_weights_matter() -> None:
    weights = np.where(Y == 2, 1e-6, 1.0)
    plain, weighted = wrap().fit(X, Y), wrap().fit(X, Y, sample_weight=weights)
    assert (plain.predict(X) == 2).sum() > 40
    assert (weighted.predict(X) == 2).sum() == 0


def test_the_same_folds_whoever_asks() -> None:
    scores = [
        sl.ShortlistClassifier(
            DecisionTreeClassifier(random_state=0), method=Witness(), n_jobs=jobs, random_state=seed
        )
        .fit(X, Y)
        .method_.fitted_[0]  # type: ignore[attr-defined]
        for jobs, seed in ((None, 0), (2, 0), (None, 1))
    ]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_operating_points_go_to_the_method() -> None:
    x, y = numbered()
    model = sl.ShortlistClassifier(Memory(), method=Witness()).fit(x, y)
    model.predict_set(x, accuracy=0.9)
    assert model.method_.told_ == {"accuracy": 0.9}  # type: ignore[attr-defined]


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
def test_folds_of_every_kind(cv: object) -> None:
    order = np.random.default_rng(0).permutation(150)
    model = sl.ShortlistClassifier(LogisticRegression(max_iter=500), method=Witness(), cv=cv)  # type: ignore[arg-type]
    scores, y, *_ = model.fit(X[order], Y[order]).method_.fitted_  # type: ignore[attr-defined]
    assert np.array_equal(y, Y[order])
    assert (scores.argmax(axis=1) == y).mean() > 0.9


def test_folds_that_leave_rows_out() -> None:
    order = np.random.default_rng(0).permutation(150)
    cv = TimeSeriesSplit(3)
    model = sl.ShortlistClassifier(LogisticRegression(max_iter=500), method=Witness(), cv=cv)
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
def test_folds_that_cannot_be(cv: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrap(cv=cv).fit(X, Y)


def test_a_class_that_is_missing_in_some_folds() -> None:
    rows = np.r_[0:100, 149]  # one row only of the last class
    for base in (LogisticRegression(max_iter=500), LinearSVC(), DecisionTreeClassifier()):
        model = sl.ShortlistClassifier(base, method=Witness()).fit(X[rows], Y[rows])
        scores = model.method_.fitted_[0]  # type: ignore[attr-defined]
        assert scores.shape == (101, 3)
        assert np.isfinite(scores).all()
        assert scores[-1, 2] == scores[-1].min()  # nobody who had seen the class scored its row
        assert wrap(base).fit(X[rows], Y[rows]).predict_set(X).n_classes == 3


@pytest.mark.parametrize("rows", [2, 3, 6])
def test_very_few_rows(rows: int) -> None:
    y = np.arange(rows) % 2
    sets = wrap(DecisionTreeClassifier(), method=fast().set_params(family=sl.TopK([1, 2])))
    sizes = sets.fit(X[:rows], y).predict_set(X[:rows]).sizes
    assert sizes.shape == (rows,)


def test_scores_stand_in_the_columns_of_their_classes() -> None:
    outer = Y != 1  # the class in the middle is missing
    base = LogisticRegression(max_iter=500).fit(X[outer], NAMES[Y[outer]])
    model = sl.ShortlistClassifier(FrozenEstimator(base), method=Witness()).fit(X, NAMES[Y])
    scores = model.method_.fitted_[0]  # type: ignore[attr-defined]
    assert np.array_equal(scores[:, [0, 2]], base.predict_proba(X))
    assert (scores[:, 1] == 0).all()
    assert np.array_equal(model.predict_proba(X), scores)


def test_a_missing_classs_score_depends_on_its_row_alone() -> None:
    svc = FrozenEstimator(LinearSVC().fit(X[:100], Y[:100]))
    multi = FrozenEstimator(LinearSVC().fit(X, Y))
    for base, labels in ((svc, Y), (multi, np.where(np.arange(150) == 7, 5, Y))):
        model = sl.ShortlistClassifier(base, method=Witness()).fit(X, labels)
        scores = model.method_.fitted_[0]  # type: ignore[attr-defined]
        far = X.copy()
        far[0] *= 1e3
        again = sl.ShortlistClassifier(base, method=Witness()).fit(far, labels)
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
        sl.LinearClassifier("exp", max_epochs=40, learning_rate=0.05),
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


def test_a_frozen_classifier_is_used_as_it_is() -> None:
    fitted = LogisticRegression(max_iter=500).fit(X, NAMES[Y])
    model = wrap(FrozenEstimator(fitted)).fit(X[:120], NAMES[Y[:120]])
    assert np.array_equal(model.predict_proba(X), fitted.predict_proba(X))
    some = Y[:120] < 2  # the classifier knows a class that these rows do not show
    model = wrap(FrozenEstimator(fitted)).fit(X[:120][some], NAMES[Y[:120][some]])
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.predict_set(X).n_classes == 3


def test_probabilities_are_the_classifiers() -> None:
    model = wrap().fit(X, Y)
    plain = LogisticRegression(max_iter=500).fit(X, Y)
    assert np.array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert np.array_equal(model.decision_function(X), plain.decision_function(X))
    assert np.array_equal(model.predict(X), plain.predict(X))


def test_a_classifier_that_gives_pairs_of_classes_is_explained() -> None:
    four = np.r_[Y[:-20], np.full(20, 3)]
    with pytest.raises(ValueError, match=r"SVC.*returns 6 scores per row for 4 classes"):
        wrap(SVC(decision_function_shape="ovo")).fit(X, four)


def test_what_has_no_scores_is_explained() -> None:
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
def test_labels_of_every_kind(names: NDArray[np.generic]) -> None:
    model, plain = wrap().fit(X, names[Y]), wrap().fit(X, Y)
    assert model.classes_.tolist() == names.tolist()
    assert np.array_equal(model.predict(X), names[plain.predict(X)])
    assert model.score(X, names[Y]) == plain.score(X, Y)
    expected = [[names[k] for k in row] for row in plain.predict_set(X).labels()]
    assert model.predict_set(X).labels() == expected
    assert model.frontier(X, names[Y]).accuracy == plain.frontier(X, Y).accuracy


def test_booleans() -> None:
    model = wrap(method=sl.FixedSelector(sl.TopK([1]))).fit(X, Y == 0)
    assert model.classes_.tolist() == [False, True]
    assert model.predict_set(X[:1]).labels() == [[True]]
    assert model.predict(X).dtype == bool


@pytest.mark.parametrize("kind", ["frame", "sparse", "list", "float32"])
def test_inputs_that_the_classifier_takes(kind: str) -> None:
    frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(1000, 1150))
    given = {
        "frame": frame,
        "sparse": scipy.sparse.coo_array(X),
        "list": X.tolist(),
        "float32": X.astype(np.float32),
    }[kind]
    y = pd.Series(Y, index=frame.index) if kind == "frame" else Y
    model, plain = wrap().fit(given, y), wrap().fit(X, Y)
    assert (model.predict(given) == plain.predict(X)).mean() > 0.98
    assert (model.predict_set(given).sizes == plain.predict_set(X).sizes).mean() > 0.9
    assert model.n_features_in_ == 4
    if kind == "frame":
        assert model.feature_names_in_.tolist() == list("abcd")
        with pytest.raises(ValueError, match="feature names"):
            model.predict_set(frame[list("dcba")])


def test_frames_of_words_and_numbers() -> None:
    frame = pd.DataFrame(X, columns=list("abcd")).assign(word=np.where(Y == 0, "small", "large"))
    base = make_pipeline(ColumnChoice(["a", "b", "c", "d"]), LogisticRegression(max_iter=500))
    model = sl.ShortlistClassifier(base, method=Witness()).fit(frame, Y)
    assert model.method_.fitted_[2] is None  # type: ignore[attr-defined]
    numbers = sl.ShortlistClassifier(base, method=Witness()).fit(frame.drop(columns="word"), Y)
    assert np.array_equal(numbers.method_.fitted_[2], X)  # type: ignore[attr-defined]


class ColumnChoice(BaseEstimator):
    """Some columns of a frame."""

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


def test_what_the_method_gets_as_features() -> None:
    def given(features: object, x: object = X) -> object:
        model = sl.ShortlistClassifier(
            LogisticRegression(max_iter=500),
            method=Witness(),
            features=features,  # type: ignore[arg-type]
        )
        return model.fit(x, Y).method_.fitted_[2]  # type: ignore[attr-defined]

    assert np.array_equal(given("auto"), X)  # type: ignore[arg-type]
    assert given(None) is None
    assert np.array_equal(given(lambda x: x[:, :1] ** 2), X[:, :1] ** 2)  # type: ignore[arg-type]
    assert given("auto", scipy.sparse.csr_array(X)) is None
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        given(lambda x: x[:7])
    with pytest.raises(ValueError, match="must be \"auto\", None or a function of X; got 'some'"):
        given("some")


def test_the_default_sees_features_and_scores() -> None:
    model = sl.ShortlistClassifier().fit(X - X.mean(axis=0), Y)
    assert isinstance(model.method_, sl.Shortlister)
    assert model.method_.score_.n_features_ == 4
    assert isinstance(model.estimator_, LogisticRegression)
    assert model.method is None
    assert model.predict_set(X - X.mean(axis=0)).accuracy(Y) > 0.95


# In scikit-learn's company


def test_a_grid_of_lambdas_in_a_pipeline() -> None:
    def set_loss(model: Pipeline, x: NDArray[np.float64], y: NDArray[np.int64]) -> float:
        sets = model[-1].predict_set(model[:-1].transform(x))
        return -sl.metrics.cardinality_loss(sets, y, cost_weight=0.02)

    pipeline = Pipeline([("scale", StandardScaler()), ("sets", wrap(method=fast()))])
    grid = {"sets__method__cost_weight": [0.0, 0.02, 5.0], "sets__estimator__C": [0.01, 1.0]}
    search = GridSearchCV(pipeline, grid, scoring=set_loss, cv=3).fit(X, NAMES[Y])
    assert len(search.cv_results_["params"]) == 6
    means = {
        (p["sets__method__cost_weight"], p["sets__estimator__C"]): s
        for p, s in zip(
            search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
        )
    }
    assert means[0.0, 1.0] == pytest.approx(-0.02 * np.log(3))  # every label, always
    assert search.best_score_ > means[0.0, 1.0]
    assert search.best_estimator_.predict(X[:2]).tolist() == ["setosa", "setosa"]


def test_cross_validation() -> None:
    assert cross_val_score(wrap(), X, Y, cv=3).mean() > 0.9


def test_pickle_clone_and_parameters() -> None:
    model = wrap(method=fast("both")).fit(X, NAMES[Y])
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_set(X) == model.predict_set(X)
    fresh = clone(model)
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    assert fresh.set_params(method__cost_weight=0.9).method.cost_weight == 0.9
    assert model.method.cost_weight == 0.05  # type: ignore[union-attr]
    assert not hasattr(model.method, "classes_")  # the method given stays unfitted


def test_parallel_folds_give_the_same_model() -> None:
    alone, together = (wrap(n_jobs=n).fit(X, Y) for n in (None, 2))
    assert alone.predict_set(X) == together.predict_set(X)
    assert alone.method_.history_.loss == together.method_.history_.loss  # type: ignore[attr-defined]


def test_one_row_at_a_time_equals_all_at_once() -> None:
    model = wrap(method=fast("both")).fit(X, Y)
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
def test_unfitted_use(method: str) -> None:
    with pytest.raises(NotFittedError, match="ShortlistClassifier"):
        getattr(wrap(), method)(X)
    with pytest.raises(NotFittedError, match="ShortlistClassifier"):
        wrap().frontier(X, Y)


def test_a_fit_that_fails_leaves_the_model_as_it_was() -> None:
    model = wrap().fit(X, Y)
    before = model.predict_set(X)

    class Failing(Witness):
        def fit(self, scores, y, features=None, *, classes=None):  # type: ignore[no-untyped-def]
            raise KeyboardInterrupt

    model.set_params(method=Failing())
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:100], Y[:100])
    assert model.predict_set(X) == before


def test_a_guarantee_for_each_group() -> None:
    x, y = shuffle(*load_digits(return_X_y=True), random_state=0)  # writers come one by one
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


def test_calibrated_anew() -> None:
    x, y = shuffle(*load_digits(return_X_y=True), random_state=1)
    method = sl.Shortlister(rescore=False, learn_sizes=False)
    h = LogisticRegression(C=0.001, max_iter=300)
    model = wrap(h, method=method).fit(x[:600], y[:600])
    assert "by 150 calibration rows" in str(model.predict_set(x[1400:], accuracy=0.95).guarantee)
    worse = x + 4 * np.random.default_rng(0).normal(size=x.shape)  # the data have changed
    before = model.predict_set(worse[1400:], accuracy=0.95).accuracy(y[1400:])
    assert model.calibrate(worse[600:1400], y[600:1400]) is model
    sets = model.predict_set(worse[1400:], accuracy=0.95)
    assert "by 800 calibration rows" in str(sets.guarantee)
    assert before < 0.91 < sets.accuracy(y[1400:])
    with pytest.raises(ValueError, match="makes no guarantee and cannot be calibrated"):
        wrap().fit(x, y).calibrate(x, y)


def test_parts_that_were_fitted_elsewhere_are_put_together() -> None:
    fit, select, test = sl.datasets.digits().split(300, 700)
    h = sl.LinearClassifier(max_epochs=3).fit(fit.x, fit.y)
    scores = h.predict_proba(select.x)
    for x in (None, select.x):
        method = sl.Shortlister(max_epochs=2, width=8, folds=2).fit(scores, select.y, x)
        model = sl.ShortlistClassifier.from_fitted(h, method)
        given = None if x is None else test.x
        expected = method.predict_set(h.predict_proba(test.x), given).labels()
        assert model.predict_set(test.x).labels() == expected
    other = sl.SplitConformal("lac").fit(scores, select.y + 1, classes=range(1, 11))
    with pytest.raises(ValueError, match="but the method's are"):
        sl.ShortlistClassifier.from_fitted(h, other)
