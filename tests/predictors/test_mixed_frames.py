"""Frames with numbers, categories, dates and text in the scikit-learn wrapper."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from typer.testing import CliRunner

import shortlist as sl
from shortlist.cli import app
from shortlist.predictors.splitting import hold_out

RNG = np.random.default_rng(0)
N = 900
GROUP = RNG.integers(6, size=N)
Y = RNG.integers(6, size=N)
# The label shows in the angle alone once the group is known, which no linear classifier can use.
ANGLE = (Y + GROUP) % 6 + RNG.normal(scale=0.15, size=N)
NUMBERS = pd.DataFrame({"angle": ANGLE, "noise": RNG.normal(size=N), "group": GROUP})
TEXTS = NUMBERS.assign(group=np.array([f"group {k}" for k in range(6)])[GROUP])
TEXT_ONLY = TEXTS.assign(note=[f"note {i}" for i in range(N)])
METHOD = sl.Shortlister(max_epochs=15, folds=2, width=32, learn_sizes=False)
LAC = sl.SplitConformal("lac")


def linear() -> object:
    return make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), ["group"]), (StandardScaler(), ["angle"])
        ),
        LogisticRegression(),
    )


def test_a_column_of_text_gives_sets_as_small_as_one_of_numbers() -> None:
    """An informative column makes sets as small if it is given as text."""
    sizes = {}
    for name, x in (("numbers", NUMBERS), ("texts", TEXTS), ("none", TEXTS)):
        features = None if name == "none" else "auto"
        model = sl.ShortlistClassifier(linear(), method=METHOD, features=features)  # type: ignore[arg-type]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(x[:700], Y[:700])
        sizes[name] = model.predict_set(x[700:], accuracy=0.9).mean_size
    assert sizes["none"] > 1.5 * sizes["numbers"]
    assert sizes["texts"] < 1.2 * sizes["numbers"]


class Recording(sl.FixedSelector):
    """A method that records its features."""

    can_use_features = True  # type: ignore[assignment]

    def fit(self, scores, y, features=None, *, classes=None):  # type: ignore[no-untyped-def]
        self.features_ = features
        return super().fit(scores, y, classes=classes)

    def predict_set(self, scores, features=None):  # type: ignore[no-untyped-def]
        self.new_ = features
        return super().predict_set(scores)

    def calibrate(self, scores, y, features=None):  # type: ignore[no-untyped-def]
        self.calibration_features_ = features
        return self


def test_rows_of_a_calibration_never_change_the_encoder() -> None:
    x = TEXT_ONLY.assign(size=RNG.normal(size=N))
    learning, held_out = hold_out(N, 0.25, 0)
    model = sl.ShortlistClassifier(linear(), method=Recording(sl.TopK([1])))

    def encoder_of(frame: pd.DataFrame, y: np.ndarray) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            encoder = model.fit(frame, y)._encoder
        assert encoder is not None
        return encoder.means.tolist(), encoder.others

    before = encoder_of(x, Y)
    changed = x.copy()
    changed["size"] = changed["size"].astype(object)
    rows = changed.index[held_out]
    changed.loc[rows, "size"] = RNG.choice(["huge", "1e9", ""], size=len(rows))
    changed.loc[rows, "group"] = "another group"
    changed.loc[rows, "note"] = "group 1"
    shuffled = Y.copy()
    shuffled[held_out] = RNG.permutation(Y[held_out])
    assert encoder_of(changed, shuffled) == before
    changed.loc[changed.index[learning[:20]], "group"] = "another group"
    assert encoder_of(changed, shuffled) != before


def test_columns_are_matched_by_name() -> None:
    model = sl.ShortlistClassifier(linear(), method=Recording(sl.TopK([1, 6]))).fit(TEXTS, Y)
    method = model.method_
    assert isinstance(method, Recording)
    assert np.shape(method.features_)[1] == 8
    model.predict_set(TEXTS)
    expected = method.new_
    try:
        model.predict_set(TEXTS[["group", "noise", "angle"]])
    except ValueError as error:
        assert "feature names" in str(error)  # noqa: PT017 (The classifier may refuse them.)
    assert np.array_equal(method.new_, expected)


def test_what_is_not_used_is_said_once() -> None:
    model = sl.ShortlistClassifier(linear(), method=Recording(sl.TopK([1])))
    frame = TEXT_ONLY.assign(day=pd.Timestamp("2024-02-03"))
    with pytest.warns(UserWarning, match="features for the prediction sets") as caught:
        model.fit(frame, Y)
    expected = (
        "features for the prediction sets: 2 numbers, 1 category ('group'); left out: 'note' (free "
        "text with 675 different values), 'day' (dates). To use more, give features=..., a "
        "function that computes numbers from X; to use none, features=None"
    )
    assert [str(w.message) for w in caught] == [expected]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.fit(TEXTS, Y).feature_summary_ == "2 numbers, 1 category ('group')"
        model.set_params(features=None).fit(frame, Y)
        assert model.feature_summary_ == "none (features=None)"
        model.set_params(features=lambda x: x[["noise"]].to_numpy()).fit(frame, Y)
        assert model.feature_summary_ == "computed from X by a function"
        model.set_params(features="auto", method=LAC).fit(frame, Y)
        assert model.feature_summary_ == "none: the method uses scores alone"


def test_a_table_without_usable_columns_warns() -> None:
    notes = TEXT_ONLY[["note"]]
    base = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
    model = sl.ShortlistClassifier(base, method=sl.Shortlister(max_epochs=1))
    with pytest.warns(UserWarning, match=r"none; left out: 'note' \(free text"):
        model.fit(notes, Y)
    assert len(model.predict_set(notes[:9], accuracy=0.9)) == 9
    sparse = scipy.sparse.csr_array(np.eye(6)[GROUP])
    with pytest.warns(UserWarning, match="none: X is not a dense table with columns"):
        sl.ShortlistClassifier(method=sl.Shortlister(max_epochs=1)).fit(sparse, Y)
    for method in (sl.Shortlister(rescore=True), sl.CardinalitySelector()):
        with pytest.raises(ValueError, match="but they are none; left out: 'note'"):
            sl.ShortlistClassifier(base, method=method).fit(notes, Y)


def test_a_model_with_categories_is_saved_and_inspected(tmp_path: Path) -> None:
    pytest.importorskip("skops")
    method = sl.Shortlister(max_epochs=1, folds=2, width=8, learn_sizes=False)
    model = sl.ShortlistClassifier(linear(), method=method)
    with pytest.warns(UserWarning, match="left out"):
        model.fit(TEXT_ONLY, Y)
    loaded = sl.load(model.save(tmp_path / "model"))
    assert isinstance(loaded, sl.ShortlistClassifier)
    new = TEXT_ONLY[:50]
    assert loaded.predict_set(new, accuracy=0.9) == model.predict_set(new, accuracy=0.9)
    assert loaded.feature_summary_ == model.feature_summary_
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "model")])
    assert f"features: {model.feature_summary_}" in result.output
    document = tmp_path / "model" / "model.json"
    text = document.read_text()
    assert re.search(r'"kind": ?"category"', text)
