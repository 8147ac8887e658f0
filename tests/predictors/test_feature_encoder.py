"""Features from tables with numbers, categories, dates and text."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.predictors.classifier.feature_encoder import MAX_VALUES, FeatureEncoder

RNG = np.random.default_rng(0)
N = 200


def mixed() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "size": RNG.normal(size=N),
            "count": RNG.integers(9, size=N),
            "color": np.array(["red", "green", "blue"])[np.arange(N) % 3],
            "flag": np.arange(N) % 2 == 0,
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(N), unit="D"),
            "note": [f"note {i}" for i in range(N)],
            "grade": pd.Categorical(np.arange(N) % 4),
            "digits": [f"{i}.5" for i in range(N)],
        }
    )


def fit(x: object) -> FeatureEncoder:
    encoder = FeatureEncoder.fit(x)
    assert encoder is not None
    return encoder


def encode(encoder: FeatureEncoder, x: object) -> np.ndarray:
    features = encoder.transform(x)
    assert features is not None
    return features


def test_every_kind_of_column() -> None:
    x = mixed()
    encoder = fit(x)
    assert encoder.describe() == (
        "4 numbers, 2 categories ('color', 'grade'); left out: 'when' (dates), "
        "'note' (free text with 200 different values)"
    )
    got = encode(encoder, x)
    expected = np.column_stack(
        [
            x["size"],
            x["count"],
            *[x["color"] == value for value in ("blue", "green", "red")],
            x["flag"],
            *[np.arange(N) % 4 == k for k in range(4)],
            np.arange(N) + 0.5,
        ]
    )
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("change", [lambda x: x.convert_dtypes(), pa.Table.from_pandas])
def test_frames_of_other_libraries_give_the_same_features(change) -> None:  # type: ignore[no-untyped-def]
    x = mixed().drop(columns=["grade"])
    np.testing.assert_array_equal(encode(fit(change(x)), change(x)), encode(fit(x), x))
    np.testing.assert_array_equal(encode(fit(x), change(x)), encode(fit(x), x))


def test_lists_and_arrays_of_objects() -> None:
    x = mixed()[["size", "color"]]
    expected = encode(fit(x), x)
    for same in (x.to_numpy(), x.to_numpy().tolist()):
        np.testing.assert_array_equal(encode(fit(same), same), expected)
    assert fit(x.to_numpy()).describe() == "1 number, 1 category ('column 1')"


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_matrices_of_numbers_stay_as_they_are(dtype: type) -> None:
    x = RNG.integers(9, size=(20, 3)).astype(dtype)
    got = encode(fit(x), x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize(
    "x",
    [["a text", "another"], scipy.sparse.csr_array(np.eye(3)), np.zeros((2, 3, 4)), [[1], [2, 3]]],
)
def test_what_is_no_table(x: object) -> None:
    assert FeatureEncoder.fit(x) is None


def test_missing_values() -> None:
    x = pd.DataFrame({"size": [1.0, np.nan, 3.0] * 10, "color": ["red", None, "blue"] * 10})
    encoder = fit(x)
    got = encode(encoder, x[:3])
    # A missing number is the mean of its column, and a missing category is a value of its own.
    assert got.tolist() == [[1, 0, 1, 0], [2, 0, 0, 1], [3, 1, 0, 0]]
    few = fit(pd.DataFrame({"color": ["red", "blue"] * 15 + [None]}))
    assert encode(few, pd.DataFrame({"color": [None, "red"]})).tolist() == [[0, 0], [0, 1]]
    assert encode(encoder, pd.DataFrame({"size": [np.inf], "color": [pd.NA]}))[0, 0] == 2
    empty = fit(pd.DataFrame({"nothing": [None] * 9, "color": ["red"] * 9}))
    assert (
        empty.describe() == "1 category ('color'); left out: 'nothing' (no numbers or categories)"
    )


def test_a_number_with_a_few_marks_is_a_number() -> None:
    x = pd.DataFrame({"age": [*map(str, range(40)), "?", ""]})
    encoder = fit(x)
    assert encoder.describe() == "1 number"
    assert encode(encoder, x)[-3:, 0].tolist() == [39, 19.5, 19.5]


def test_unknown_values_are_in_no_column() -> None:
    encoder = fit(mixed()[["color"]])
    new = pd.DataFrame({"color": ["violet", "red"]})
    assert encode(encoder, new).tolist() == [[0, 0, 0], [0, 0, 1]]


def test_many_values() -> None:
    frequent = [f"v{i:03}" for i in range(100) for _ in range(5 + i)]
    encoder = fit(pd.DataFrame({"zip": frequent, "a": 1.0}))
    assert encoder.used[0].values == tuple(f"v{i:03}" for i in range(100 - MAX_VALUES, 100))
    rare = fit(pd.DataFrame({"zip": [f"v{i}" for i in range(300) for _ in range(4)]}))
    assert rare.describe() == "none; left out: 'zip' (free text with 300 different values)"
    assert rare.transform(pd.DataFrame({"zip": ["v1"]})) is None


def test_a_declared_category_of_numbers_is_a_category() -> None:
    codes = np.arange(60) % 3
    encoder = fit(pd.DataFrame({"code": pd.Categorical(codes)}))
    expected = np.eye(3)[codes]
    np.testing.assert_array_equal(
        encode(encoder, pd.DataFrame({"code": pd.Categorical(codes)})), expected
    )
    with_holes = pd.DataFrame({"code": [1.0, np.nan]})  # The same code, read from another file.
    assert encode(encoder, with_holes).tolist() == [[0, 1, 0], [0, 0, 0]]


def test_dates_and_other_objects_are_left_out() -> None:
    day = datetime.date(2024, 1, 1)
    x = pd.DataFrame({"day": [day] * 20, "list": [[1]] * 20, "z": [1j] * 20, "n": range(20)})
    assert fit(x).describe() == (
        "1 number; left out: 'day' (dates), 'list' (no numbers or categories), "
        "'z' (no numbers or categories)"
    )
    wide = fit(pd.DataFrame({f"d{i}": [day] * 9 for i in range(11)} | {"n": range(9)}))
    assert wide.describe().endswith("'d7' (dates) and 3 more")


def test_another_number_of_columns_raises() -> None:
    encoder = fit(mixed())
    with pytest.raises(ValueError, match="X has 2 columns, but fit saw 8"):
        encoder.transform(mixed()[["size", "color"]])


cell = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(), st.sampled_from("abc"), st.text()
)


@given(st.lists(st.tuples(cell, cell), min_size=1, max_size=30), st.lists(st.tuples(cell, cell)))
@settings(max_examples=60, deadline=None)
def test_features_of_any_table_are_finite_and_depend_on_their_row_alone(learning, new) -> None:  # type: ignore[no-untyped-def]
    x = pd.DataFrame(learning, columns=["a", "b"], dtype=object)
    encoder = fit(x)
    rows = pd.DataFrame(new or learning, columns=["a", "b"], dtype=object)
    whole = encoder.transform(rows)
    if whole is None:
        assert len(encoder.left_out) == 2
        return
    assert np.isfinite(whole).all()
    alone = np.concatenate([encode(encoder, rows[i : i + 1]) for i in range(len(rows))])
    np.testing.assert_array_equal(alone, whole)
