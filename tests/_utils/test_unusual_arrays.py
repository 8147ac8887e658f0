"""Arrays with masks, missing values or unusual types are rejected, or read correctly."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import shortlist as sl

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(60, 4))
Y = np.arange(60) % 4
X = RNG.normal(size=(60, 3))
NAMES = np.array(["ant", "bee", "cat", "dog"])


def masked(values: object, *at: int) -> np.ma.MaskedArray:
    array = np.ma.array(values)
    if at:
        array[at] = np.ma.masked
    return array


def lac() -> sl.SplitConformal:
    return sl.SplitConformal("lac", accuracy=0.7)


def shortlister() -> sl.Shortlister:
    return sl.Shortlister(max_epochs=1, accuracy=0.7)


def assert_raises(call: Callable[[], object], *parts: str) -> None:
    """Check that a call raises an error whose message matches all parts."""
    with pytest.raises(ValueError, match=r".+") as error:
        call()
    for part in parts:
        assert re.search(part, str(error.value)), f"{part!r} is not in: {error.value}"


# Masks


MASKED = {
    "scores of fit": lambda: lac().fit(masked(SCORES, 3, 1), Y),
    "scores of predict_set": lambda: lac().fit(SCORES, Y).predict_set(masked(SCORES, 3, 1)),
    "scores in rows": lambda: lac().fit([masked(row, 1) for row in SCORES], Y),
    "features of fit": lambda: shortlister().fit(SCORES, Y, masked(X, 3, 1)),
    "features of selectors": lambda: sl.CardinalitySelector(inputs="both", max_epochs=1).fit(
        SCORES, Y, masked(X, 3, 1)
    ),
    "y": lambda: lac().fit(SCORES, masked(Y, 3)),
    "y of names": lambda: lac().fit(SCORES, masked(NAMES[Y], 3)),
    "y of calibrate": lambda: lac().fit(SCORES, Y).calibrate(SCORES, masked(Y, 3)),
    "y of accuracy": lambda: lac().fit(SCORES, Y).predict_set(SCORES).accuracy(masked(Y, 3)),
    "classes": lambda: lac().fit(SCORES, NAMES[Y], classes=masked(NAMES, 3)),
    "groups": lambda: sl.SplitConformal("lac", by="group", accuracy=0.7).fit(
        SCORES, Y, groups=masked(Y, 3)
    ),
    "candidates": lambda: sl.Ranking.from_candidates(
        masked([[0, 1], [2, 3]], 1, 1), [[0.5, 0.3], [0.4, 0.1]], 4
    ),
    "scores of candidates": lambda: sl.Ranking.from_candidates(
        [[0, 1], [2, 3]], masked([[0.5, 0.3], [0.4, 0.1]], 1, 1), 4
    ),
    "X of a linear classifier": lambda: sl.LinearClassifier(max_epochs=1).fit(masked(X, 3, 1), Y),
    "y of a linear classifier": lambda: sl.LinearClassifier(max_epochs=1).fit(X, masked(Y, 3)),
    "X to predict": lambda: sl.LinearClassifier(max_epochs=1).fit(X, Y).predict(masked(X, 3, 1)),
    "X of a classifier": lambda: sl.ShortlistClassifier(LogisticRegression()).fit(
        masked(X, 3, 1), Y
    ),
    "y of a classifier": lambda: sl.ShortlistClassifier(LogisticRegression()).fit(X, masked(Y, 3)),
    "X of a fitted classifier": lambda: (
        sl.ShortlistClassifier(LogisticRegression(), method=sl.FixedSelector())
        .fit(X, Y)
        .predict_set(masked(X, 3, 1))
    ),
    "groups of a classifier": lambda: sl.ShortlistClassifier(
        LogisticRegression(), method=sl.SplitConformal("lac", by="group", accuracy=0.7)
    ).fit(X, Y, groups=masked(Y, 3)),
    "weights of a classifier": lambda: sl.ShortlistClassifier(LogisticRegression()).fit(
        X, Y, sample_weight=masked(np.ones(60), 3)
    ),
}


@pytest.mark.parametrize("name", list(MASKED))
def test_masked_values_raise(name: str) -> None:
    assert_raises(MASKED[name], "mask", r"row [013]\b|classes", "fill|leave|pad|drop|remove")


def test_masked_costs_raise() -> None:
    cost = masked([0.1, 0.2, 0.3, 0.4], 2)
    assert_raises(lambda: sl.CardinalitySelector(cost=cost, inputs="scores").fit(SCORES, Y), "cost")


def test_the_error_for_masked_candidates_recommends_padding() -> None:
    assert_raises(MASKED["candidates"], r"filled\(-1\)|-1 pads|pad .*-1")


def test_an_empty_mask_is_accepted() -> None:
    plain = shortlister().fit(SCORES, Y, X).predict_set(SCORES, X)
    model = shortlister().fit(masked(SCORES), masked(Y), masked(X))
    assert model.predict_set(masked(SCORES), masked(X)) == plain
    full = sl.Ranking.from_candidates(masked([[0, 1]]), masked([[0.5, 0.3]]), 4)
    assert full.labels.tolist() == [[0, 1]]


# Missing values of frames


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(Y).astype("Int64").mask(Y == 3),
        pd.Series(NAMES[Y]).mask(np.arange(60) == 3),
        pd.Series(NAMES[Y], dtype="category").mask(np.arange(60) == 3),
        pd.Series(NAMES[Y], dtype=object).mask(np.arange(60) == 3),
        pd.array(np.where(np.arange(60) == 3, None, Y), dtype="Int64"),
        pa.array([None if i == 3 else int(v) for i, v in enumerate(Y)]),
        pa.chunked_array([[None if i == 3 else str(NAMES[v]) for i, v in enumerate(Y)]]),
    ],
    ids=["Int64", "str", "category", "object", "array", "arrow", "chunked"],
)
def test_missing_labels_raise(y: object) -> None:
    assert_raises(lambda: lac().fit(SCORES, y), r"^y is missing in row 3\b", "leave such rows out")
    assert_raises(
        lambda: sl.SplitConformal("lac", by="group", accuracy=0.7).fit(SCORES, Y, groups=y),
        "^groups is missing in row 3",
    )


def test_complete_labels_of_every_library_are_accepted() -> None:
    expected = lac().fit(SCORES, Y).predict_set(SCORES)
    for y in (pd.Series(Y).astype("Int64"), pa.array(Y), pa.chunked_array([Y]), pd.Index(Y)):
        assert lac().fit(SCORES, y).predict_set(SCORES) == expected


def test_missing_scores_raise() -> None:
    frame = pd.DataFrame(SCORES).astype("Float64")
    frame.iloc[3, 1] = pd.NA
    assert_raises(lambda: lac().fit(frame, Y), "scores holds nan at row 3, column 1")
    table = pa.table({f"c{j}": [None if i == 3 and j == 1 else float(v) for i, v in
                                enumerate(SCORES[:, j])] for j in range(4)})  # fmt: skip
    assert_raises(lambda: lac().fit(table, Y), "scores holds nan at row 3, column 1")
    gaps = pd.DataFrame({"a": [1, 2], "b": [3, None]}).astype("Int64")
    assert_raises(
        lambda: sl.Ranking.from_candidates(gaps, [[0.5, 0.3], [0.4, 0.1]], 4), "row 1", "pad .*-1"
    )


# Types


def sparse(values: torch.Tensor) -> torch.Tensor:
    return values.to_sparse()


S, T = torch.from_numpy(SCORES), torch.from_numpy(Y)
TENSORS = {
    "sparse": (sparse(S), "sparse", "to_dense"),
    "compressed": (S.to_sparse_csr(), "sparse", "to_dense"),
    "meta": (S.to("meta"), "meta", "CPU"),
    "quantized": (
        torch.quantize_per_tensor(S.float(), 0.1, 0, torch.qint8),
        "quantized",
        "dequantize",
    ),
    "float8": (S.to(torch.float8_e4m3fn), "float8_e4m3fn", "float32"),
    "complex": (S.to(torch.complex64), "complex64", "real"),
    "nested": (torch.nested.nested_tensor([S[0], S[1]]), "nested", "pad"),
}


@pytest.mark.filterwarnings("ignore:.*(Sparse CSR|nested tensors|torch.quantize|deprecated)")
@pytest.mark.parametrize("name", list(TENSORS))
def test_unsupported_tensors_raise(name: str) -> None:
    tensor, problem, remedy = TENSORS[name]
    assert_raises(lambda: lac().fit(tensor, Y), "^scores", problem, remedy)
    assert_raises(lambda: shortlister().fit(SCORES, Y, tensor), "^features", problem, remedy)
    assert_raises(lambda: sl.LinearClassifier(max_epochs=1).fit(tensor, Y), "^features|^X", problem)
    assert_raises(
        lambda: sl.Ranking.from_candidates(np.tile(np.arange(4), (60, 1)), tensor, 9),
        "scores",
        problem,
    )


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (T.to(torch.complex64), "complex64"),
        (T.to_sparse(), "sparse"),
        (T.to("meta"), "meta"),
        (T.to(torch.bfloat16), "floats"),
        (Y.astype(complex), "complex128"),
        (np.zeros(60, [("a", int), ("b", int)]), "fields"),
        (np.arange(60).astype("M8[ns]"), r"datetime64\[ns\].*astype\(str\)"),
        (np.arange(60).astype("m8[ns]"), r"timedelta64\[ns\].*astype\(str\)"),
    ],
)
def test_unsupported_labels_raise(y: object, words: str) -> None:
    assert_raises(lambda: lac().fit(SCORES, y), "^y (holds|is|must hold)", words)
    model = lac().fit(SCORES, Y)
    assert_raises(lambda: model.calibrate(SCORES, y), "^y", words)
    assert_raises(lambda: model.predict_set(SCORES).accuracy(y), "^y", words)


@pytest.mark.parametrize(
    "given",
    [
        np.zeros((60, 4), [("a", float)]),
        np.zeros(60, [("a", float), ("b", float)]),
        np.full((60, 4), None, dtype=object),
        np.array([[1.0, "a", None, 2]] * 60, dtype=object),
        np.zeros((60, 4), "M8[ns]"),
        np.zeros((60, 4), "m8[s]"),
        SCORES.astype(complex),
        SCORES.astype("S8"),
    ],
    ids=["fields", "record", "none", "mixed", "dates", "spans", "complex", "bytes"],
)
def test_unsupported_numpy_arrays_raise(given: object) -> None:
    assert_raises(lambda: lac().fit(given, Y), "^scores must hold numbers; got dtype")
    assert_raises(
        lambda: shortlister().fit(SCORES, Y, given), "^features must hold numbers; got dtype"
    )
