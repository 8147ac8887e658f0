"""Frames of pandas, Polars and Arrow give the same models and sets."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import shortlist as sl
from shortlist.predictors.classifier.feature_encoder import FeatureEncoder

RNG = np.random.default_rng(0)
N = 400
Y = RNG.choice(["ant", "bee", "cat"], size=N)
SIZE = (Y == "bee") + 2.0 * (Y == "cat") + RNG.normal(scale=0.7, size=N)
COLOR = RNG.choice(["red", "blue"], size=N).tolist()
LAC = sl.SplitConformal("lac")
COLUMNS: dict[str, list[Any]] = {
    "size": [None if i % 50 == 0 else float(v) for i, v in enumerate(SIZE)],
    "color": COLOR,
    "heavy": (RNG.uniform(size=N) < 0.5).tolist(),
    "born": [datetime.date(2020, 1, 1) + datetime.timedelta(days=i) for i in range(N)],
    "note": [f"note {i}" for i in range(N)],
}


@dataclass
class Kind:
    """How a library makes tables, columns, and columns of categories."""

    frame: Callable[[dict[str, list[Any]]], Any]
    column: Callable[[list[Any]], Any]
    categories: Callable[[list[str]], Any]
    take: Callable[[Any, slice], Any]


def pandas_kind() -> Kind:
    return Kind(
        pd.DataFrame,
        pd.Series,
        lambda values: pd.Series(values, dtype="category"),
        lambda frame, rows: frame.iloc[rows],
    )


def polars_kind() -> Kind:
    pl = pytest.importorskip("polars")
    return Kind(
        pl.DataFrame,
        pl.Series,
        lambda values: pl.Series(values, dtype=pl.Categorical),
        lambda frame, rows: frame[rows],
    )


def arrow_kind() -> Kind:
    return Kind(
        pa.table,
        lambda values: pa.chunked_array([values[:7], values[7:]]),
        lambda values: pa.array(values).dictionary_encode(),
        lambda frame, rows: frame[rows],
    )


KINDS = {"pandas": pandas_kind, "polars": polars_kind, "arrow": arrow_kind}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]()


def pipeline() -> object:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    transformer = make_column_transformer((numbers, ["size"]), (OneHotEncoder(), ["color"]))
    return make_pipeline(transformer, LogisticRegression())


def fitted(x: object, y: Any, groups: Any = None) -> sl.ShortlistClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dates and notes are left out.
        return sl.ShortlistClassifier(pipeline(), method=LAC, cv=2).fit(x, y, groups=groups)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def reference() -> sl.PredictionSets:
    return fitted(pd.DataFrame(COLUMNS), Y).predict_set(pd.DataFrame(COLUMNS), accuracy=0.9)


def test_each_frame_gives_the_sets_of_pandas(kind: Kind, reference: sl.PredictionSets) -> None:
    x, y = kind.frame(COLUMNS), kind.column(Y.tolist())
    model = fitted(x, y)
    sets = model.predict_set(x, accuracy=0.9)
    assert sets == reference
    assert sets.accuracy(y) == reference.accuracy(Y)
    assert sets.contains(y).tolist() == reference.contains(Y).tolist()
    assert model.frontier(x, y).size_at(0.9) == model.frontier(x, Y).size_at(0.9)
    assert model.predict(kind.take(x, slice(5))).tolist() == model.predict(x)[:5].tolist()
    again = fitted(x, y).calibrate(kind.take(x, slice(100, 300)), Y[100:300])
    assert again.predict_set(x, accuracy=0.9).guarantee.n_calibration == 200


def test_labels_and_groups_can_be_columns_of_categories(kind: Kind) -> None:
    x, groups = kind.frame(COLUMNS), kind.categories(COLOR)
    model = fitted(x, kind.categories(Y.tolist()), groups)
    sets = model.predict_set(x, accuracy=0.9, by="group", groups=groups)
    assert sets == model.predict_set(x, accuracy=0.9, by="group", groups=COLOR)
    assert sets.accuracy(kind.categories(Y.tolist())) == sets.accuracy(Y)


def test_a_missing_label_or_group_is_an_error(kind: Kind) -> None:
    x = kind.frame(COLUMNS)
    with pytest.raises(ValueError, match="y is missing in row 3"):
        fitted(x, kind.column([*Y[:3].tolist(), None, *Y[4:].tolist()]))
    with pytest.raises(ValueError, match="groups is missing in row 3"):
        fitted(x, Y, kind.column([*COLOR[:3], None, *COLOR[4:]]))


def test_columns_are_matched_by_name(kind: Kind, reference: sl.PredictionSets) -> None:
    model = fitted(kind.frame(COLUMNS), Y)
    reordered = kind.frame(dict(reversed(COLUMNS.items())))
    assert model.predict_set(reordered, accuracy=0.9) == reference
    with pytest.raises(ValueError, match="'weight'"):
        model.predict_set(kind.frame({**COLUMNS, "weight": [1.0] * N}))


def test_features_are_those_of_pandas(kind: Kind) -> None:
    """Numbers with gaps, categories, truth values, dates and text are recognized in each frame."""
    expected = FeatureEncoder.fit(pd.DataFrame(COLUMNS))
    encoder = FeatureEncoder.fit(kind.frame(COLUMNS))
    assert expected is not None
    assert encoder is not None
    assert encoder.describe() == expected.describe()
    assert "left out: 'born' (dates), 'note' (free text" in encoder.describe()
    np.testing.assert_array_equal(
        encoder.transform(kind.frame(COLUMNS)), expected.transform(pd.DataFrame(COLUMNS))
    )


def test_digits_in_a_column_of_categories_are_categories(kind: Kind) -> None:
    codes = kind.categories(RNG.choice(["10", "20", "30"], size=N).tolist())
    only = FeatureEncoder.fit(kind.frame({"code": codes}))
    assert only is not None
    assert only.describe() == "1 category ('code')"
    assert only.transform(kind.frame({"code": codes})).shape == (N, 3)  # type: ignore[union-attr]


def test_scores_are_matched_by_name(kind: Kind) -> None:
    scores = {
        name: (RNG.normal(size=N) + 3 * (name == Y)).tolist() for name in ("bee", "cat", "ant")
    }
    frame, shuffled = kind.frame(scores), kind.frame(dict(sorted(scores.items())))
    model = sl.SplitConformal("lac").fit(frame, kind.column(Y.tolist()))
    assert model.classes_.tolist() == ["bee", "cat", "ant"]
    assert model.predict_set(shuffled) == model.predict_set(frame)
    plain = sl.fit_temperature(np.array(list(scores.values())).T, Y, classes=["bee", "cat", "ant"])
    assert sl.fit_temperature(frame, kind.column(Y.tolist())) == pytest.approx(plain)


def test_candidates_can_be_columns_of_lists(kind: Kind) -> None:
    labels, scores = [["ant", "bee"], ["cat"], ["bee", "ant"]], [[0.5, 0.2], [0.4], [0.3, 0.6]]
    classes = ["ant", "bee", "cat"]
    ranking = sl.Ranking.from_candidates(
        kind.frame({"labels": labels})["labels"], kind.frame({"scores": scores})["scores"],
        classes=classes,
    )  # fmt: skip
    expected = sl.Ranking.from_candidates(labels, scores, classes=classes)
    assert ranking.labels.tolist() == expected.labels.tolist()
    assert ranking.scores.tolist() == expected.scores.tolist()


def test_polars_takes_the_sets(reference: sl.PredictionSets) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.from_pandas(reference.to_frame())
    assert frame["labels"].to_list() == reference.labels()
    assert frame["size"].to_list() == reference.sizes.tolist()
    chosen = pl.Series(COLOR) == "red"
    assert reference[chosen] == reference[np.array(COLOR) == "red"]


def test_a_lazy_frame_is_to_be_collected() -> None:
    pl = pytest.importorskip("polars")
    scores = pl.LazyFrame({"ant": [0.9, 0.2], "bee": [0.1, 0.8]})
    with pytest.raises(ValueError, match=r"LazyFrame, which has no values yet; give \.collect\(\)"):
        sl.SplitConformal("lac").fit(scores, ["ant", "bee"])
    with pytest.raises(ValueError, match=r"X is a LazyFrame"):
        sl.ShortlistClassifier().fit(pl.LazyFrame({"a": [0.0, 1.0]}), ["ant", "bee"])
