"""Columns of frames are matched by name with those of fit; unknown ones raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import shortlist as sl

DATA = sl.datasets.gaussian(900, 0.4, n_classes=5, dimension=4)
KNOWN, NEW = DATA.split(600)
P, Q = KNOWN.posterior.astype(float), NEW.posterior.astype(float)
Y = KNOWN.y
NAMES = ["eel", "dog", "cat", "bee", "ant"]  # Not sorted.
ORDER = [3, 0, 4, 2, 1]
FEATURES = ["a", "b", "c", "d"]


@dataclass
class OtherFrame:
    """A frame with the methods of Polars."""

    frame: pd.DataFrame

    @property
    def columns(self) -> list[str]:
        return [str(name) for name in self.frame.columns]

    def select(self, names: list[str]) -> OtherFrame:
        return OtherFrame(self.frame.set_axis(self.columns, axis=1)[names])

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.frame.to_numpy()

    def __len__(self) -> int:
        return len(self.frame)


def arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.table({str(name): frame[name].to_numpy() for name in frame.columns})


def pandas(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


KINDS = pytest.mark.parametrize("kind", [pandas, OtherFrame, arrow], ids=lambda k: k.__name__)
Frame = Callable[[pd.DataFrame], object]


def lac() -> sl.SplitConformal:
    return sl.SplitConformal("lac")


def fixed() -> sl.FixedSelector:
    return sl.FixedSelector(sl.TopK([1, 2, 3]), index=1)


def selector() -> sl.CardinalitySelector:
    return sl.CardinalitySelector(inputs="scores", max_epochs=1, width=8)


METHODS = pytest.mark.parametrize("make", [lac, fixed, selector], ids=lambda m: m.__name__)


# Scores


@KINDS
@METHODS
@pytest.mark.parametrize("names", [NAMES, [0, 1, 2, 3, 4], list("01234")], ids=str)
@pytest.mark.parametrize("labels", ["numbers", "names"])
def test_columns_of_scores_are_put_in_order(
    make: Callable[[], sl.SetPredictor], names: list[object], labels: str, kind: Frame
) -> None:
    frame, new = pd.DataFrame(P, columns=names), pd.DataFrame(Q, columns=names)
    y = Y if labels == "numbers" else np.array([str(name) for name in names])[Y]
    model, moved = make().fit(kind(frame), y), kind(new.iloc[:, ORDER])
    expected = model.predict_set(kind(new))
    assert expected.accuracy(np.asarray(y[:1]).repeat(300)) >= 0  # The classes are those of y.
    assert model.predict_set(moved) == expected
    assert model.predict_set(sl.Ranking.from_scores(moved)) == expected
    curve = model.frontier(kind(new), y[:300])
    assert model.frontier(moved, y[:300]).accuracy.tolist() == curve.accuracy.tolist()


def test_scores_in_another_order_keep_their_accuracy() -> None:
    frame = pd.DataFrame(P, columns=list("01234"))
    new = pd.DataFrame(Q, columns=list("01234")).iloc[:, ORDER]
    for scores in (frame, frame.to_numpy()):
        model = sl.SplitConformal("lac", accuracy=0.8).fit(scores, Y)
        assert model.predict_set(new).accuracy(NEW.y) > 0.75


def test_a_loaded_model_puts_columns_in_order(tmp_path: Path) -> None:
    model = sl.SplitConformal("lac").fit(pd.DataFrame(P, columns=NAMES), Y)
    model.save(tmp_path / "model")
    moved = pd.DataFrame(Q, columns=NAMES).iloc[:, ORDER]
    loaded = sl.load(tmp_path / "model")
    assert isinstance(loaded, sl.SplitConformal)
    assert loaded.predict_set(moved, accuracy=0.9) == model.predict_set(Q, accuracy=0.9)


def test_every_method_of_a_predictor_puts_columns_in_order() -> None:
    frame, new = pd.DataFrame(P, columns=NAMES), pd.DataFrame(Q, columns=NAMES)
    moved = new.iloc[:, ORDER]
    model, other = lac().fit(frame, Y), lac().fit(frame, Y)
    a, b = model.predict_sets(moved, accuracies=[0.8, 0.9])
    assert [a, b] == model.predict_sets(new, accuracies=[0.8, 0.9])
    assert np.array_equal(model.p_values(moved), model.p_values(new))
    model.calibrate(moved, NEW.y)
    other.calibrate(new, NEW.y)
    assert model.predict_set(Q) == other.predict_set(Q)


@pytest.mark.parametrize("labels", ["numbers", "names"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.rename(columns={"cat": "cow"}), ["'cat'", "'cow'"]),
        (lambda f: f.drop(columns="cat"), ["'cat'"]),
        (lambda f: f.assign(y=0.0), ["'y'"]),
        (lambda f: f.iloc[:, [0, 1, 2, 3, 3]], ["'bee'"]),
        (lambda f: f.rename(columns=str.upper), ["'eel'", "'EEL'"]),
    ],
    ids=["renamed", "missing", "extra", "twice", "all renamed"],
)
def test_unknown_columns_of_scores_raise(change, words: list[str], labels: str) -> None:
    y = Y if labels == "numbers" else np.array(NAMES)[Y]
    model = lac().fit(pd.DataFrame(P, columns=NAMES), y)
    new = change(pd.DataFrame(Q, columns=NAMES))
    for call in (
        lambda: model.predict_set(new),
        lambda: model.calibrate(new, y[:300]),
        lambda: model.frontier(new, y[:300]),
        lambda: model.p_values(new),
    ):
        with pytest.raises(ValueError, match="scores") as error:
            call()
        for word in words:
            assert word in str(error.value)


def test_frames_and_arrays_can_be_mixed() -> None:
    frame, new = pd.DataFrame(P, columns=NAMES), pd.DataFrame(Q, columns=NAMES)
    expected = lac().fit(P, Y).predict_set(Q)
    assert lac().fit(frame, Y).predict_set(Q) == expected
    assert lac().fit(P, Y).predict_set(new) == expected  # These names are not labels.
    assert (
        lac().fit(frame, Y).predict_set(pd.DataFrame(Q)) == expected
    )  # Numbered columns are unnamed.


def test_columns_named_after_labels_are_matched_after_a_fit_on_arrays() -> None:
    names = sorted(NAMES)
    model = lac().fit(P, np.array(names)[Y])
    new = pd.DataFrame(Q, columns=names)
    assert model.predict_set(new.iloc[:, ORDER]) == model.predict_set(Q)
    with pytest.raises(ValueError, match="'cow'"):
        model.predict_set(new.rename(columns={"cat": "cow"}))
    numbers = lac().fit(P, Y)
    moved = pd.DataFrame(Q).iloc[:, ORDER]
    assert numbers.predict_set(moved) == numbers.predict_set(Q)
    with pytest.raises(ValueError, match="'7'"):
        numbers.predict_set(pd.DataFrame(Q, columns=[0, 1, 2, 3, 7]))


def test_numbered_columns_in_fit() -> None:
    """The columns [10, 20, …] name the classes; the columns [2, 0, 1] are put in order."""
    moved = pd.DataFrame(P).iloc[:, ORDER]
    model = lac().fit(moved, Y)
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
    assert model.predict_set(Q) == lac().fit(P, Y).predict_set(Q)
    tens = pd.DataFrame(P, columns=[10, 20, 30, 40, 50])
    model = lac().fit(tens, 10 * (Y + 1))
    assert model.classes_.tolist() == [10, 20, 30, 40, 50]
    assert model.predict_set(pd.DataFrame(Q, columns=tens.columns).iloc[:, ORDER]) == (
        model.predict_set(Q)
    )
    with pytest.raises(ValueError, match="3 is not one of the 5 classes: 10, 20"):
        lac().fit(tens, Y)
    words = np.array([str(k) for k in range(12)])
    wide = pd.DataFrame(np.random.default_rng(0).random((36, 12)))
    model = fixed().fit(wide, words[np.arange(36) % 12])
    assert model.classes_.tolist() == words.tolist()  # "10" comes after "9".


def test_boolean_columns() -> None:
    scores = pd.DataFrame({True: [0.9, 0.2], False: [0.1, 0.8]})
    model = fixed().set_params(family=sl.TopK([1]), index=0).fit(scores, np.array([True, False]))
    assert model.predict_set(scores).labels() == [[True], [False]]


def test_classes_that_contradict_the_columns_raise() -> None:
    frame, y = pd.DataFrame(P, columns=NAMES), np.array(NAMES)[Y]
    for classes, words in (
        (NAMES[::-1], "leave classes out"),
        ([*NAMES[:4], "asp"], "'asp'.*leave classes out"),
    ):
        with pytest.raises(ValueError, match=words):
            lac().fit(frame, y, classes=classes)
        with pytest.raises(ValueError, match=words):
            sl.Ranking.from_scores(frame, classes=classes)
    other = [name.upper() for name in NAMES]
    assert lac().fit(frame, np.array(other)[Y], classes=other).classes_.tolist() == other


def test_rankings_of_frames() -> None:
    moved = pd.DataFrame(P).iloc[:, ORDER]
    assert np.array_equal(sl.Ranking.from_scores(moved).labels, sl.Ranking.from_scores(P).labels)
    with pytest.raises(ValueError, match="two columns named 'a'"):
        sl.Ranking.from_scores(pd.DataFrame(P[:, :2], columns=["a", "a"]))
    ranking = sl.Ranking.from_scores(pd.DataFrame(P, columns=NAMES))
    assert lac().fit(ranking, np.array(NAMES)[Y]).classes_.tolist() == NAMES


def test_comparisons_put_columns_in_order() -> None:
    def compare(scores: pd.DataFrame, x: pd.DataFrame) -> list[float]:
        comparison = sl.compare(
            pd.DataFrame(P, columns=NAMES), Y,
            features=pd.DataFrame(KNOWN.x, columns=FEATURES),
            test=(scores, NEW.y, x), methods={"LAC": lac()}, accuracies=[0.9],
        )  # fmt: skip
        return [one.guaranteed_size for one in comparison.measurements]

    scores, x = pd.DataFrame(Q, columns=NAMES), pd.DataFrame(NEW.x, columns=FEATURES)
    assert compare(scores.iloc[:, ORDER], x[list("dbca")]) == compare(scores, x)
    with pytest.raises(ValueError, match=r"test: .*'z'"):
        compare(scores, x.rename(columns={"a": "z"}))


# Features


def shortlister() -> sl.Shortlister:
    return sl.Shortlister(max_epochs=1, calibration=0.4)


def both() -> sl.CardinalitySelector:
    return sl.CardinalitySelector(inputs="both", max_epochs=1, width=8)


@KINDS
@pytest.mark.parametrize("make", [shortlister, both], ids=lambda m: m.__name__)
@pytest.mark.parametrize("names", [FEATURES, [0, 1, 2, 3], [7, 5, 8, 2]], ids=str)
def test_columns_of_features_are_put_in_order(
    make: Callable[[], sl.SetPredictor], names: list[object], kind: Frame
) -> None:
    known, new = pd.DataFrame(KNOWN.x, columns=names), pd.DataFrame(NEW.x, columns=names)
    model = make().fit(P, Y, kind(known))
    expected = model.predict_set(Q, NEW.x)
    assert model.predict_set(Q, kind(new)) == expected
    assert model.predict_set(Q, kind(new.iloc[:, [2, 0, 3, 1]])) == expected
    if names != [0, 1, 2, 3]:
        for other in (new.iloc[:, :3], new.assign(z=0.0), new.iloc[:, [0, 1, 2, 2]],
                      new.set_axis(["a", "b", "c", "z"], axis=1)):  # fmt: skip
            with pytest.raises(ValueError, match="features"):
                model.predict_set(Q, kind(other) if kind is pandas else other)


def test_errors_name_the_columns_that_differ() -> None:
    model = shortlister().fit(P, Y, pd.DataFrame(KNOWN.x, columns=FEATURES))
    new = pd.DataFrame(NEW.x, columns=FEATURES)
    with pytest.raises(ValueError, match=r"features lack 'c', which fit saw, and have 'z'"):
        model.frontier(Q, NEW.y, new.rename(columns={"c": "z"}))
    with pytest.raises(ValueError, match=r"features lack 'd', which fit saw"):
        model.predict_set(Q, new[["a", "b", "c"]])
    with pytest.raises(ValueError, match=r"two columns named 'a'"):
        model.predict_set(Q, new[["a", "a", "b", "c", "d"]])


# Classifiers


class IgnoresNames(TransformerMixin, BaseEstimator):
    """Selects columns by position and ignores their names."""

    def fit(self, X: object, y: object = None) -> IgnoresNames:
        self.fitted_ = True
        return self

    def transform(self, X: object) -> np.ndarray:
        return np.asarray(X)


@pytest.mark.parametrize(
    "first",
    [
        IgnoresNames(),
        FunctionTransformer(np.asarray),
        make_column_transformer(("passthrough", FEATURES)),
    ],
    ids=["ignores names", "function", "by name"],
)
def test_classifiers_that_do_not_check_the_order(first: object) -> None:
    known, new = pd.DataFrame(KNOWN.x, columns=FEATURES), pd.DataFrame(NEW.x, columns=FEATURES)
    base = make_pipeline(first, LogisticRegression())
    model = sl.ShortlistClassifier(base, method=shortlister()).fit(known, Y)
    moved = new[list("dbca")]
    assert model.predict_set(moved) == model.predict_set(new)
    assert np.array_equal(model.predict_proba(moved), model.predict_proba(new))
    assert np.array_equal(model.decision_function(moved), model.decision_function(new))
    for other in (new.rename(columns={"a": "z"}), new[["a", "b", "c"]], new.assign(e=0.0)):
        with pytest.raises(ValueError, match=r"columns|'[a-e]'|features"):
            model.predict_set(other)


def test_classifiers_of_scikit_learn_reject_another_order() -> None:
    known, new = pd.DataFrame(KNOWN.x, columns=FEATURES), pd.DataFrame(NEW.x, columns=FEATURES)
    for model in (sl.ShortlistClassifier(LogisticRegression(), method=fixed()),
                  sl.LinearClassifier(max_epochs=1)):  # fmt: skip
        model.fit(known, Y)
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(new[list("dbca")])


def test_a_classifier_and_a_predictor_are_composed() -> None:
    known, new = pd.DataFrame(KNOWN.x, columns=FEATURES), pd.DataFrame(NEW.x, columns=FEATURES)
    h = make_pipeline(IgnoresNames(), LogisticRegression()).fit(known, Y)
    model = sl.ShortlistClassifier.from_fitted(
        h, shortlister().fit(h.predict_proba(known), Y, known)
    )
    assert model.predict_set(new[list("dbca")]) == model.predict_set(new)
