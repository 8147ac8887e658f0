"""Labels are encoded as column indices and decoded, and invalid ones raise."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist._utils.labels import Classes, label_array

Point = namedtuple("Point", "x y")

NAMES = [
    ["cat", "dog", "eel"],
    [10, 20, 5],
    [-1, 1, 7],
    [(1, 2), (1, 3), (0, 0)],
    [(1,), (1, 2), ()],
    [Point(0, 1), Point(0, 2), Point(1, 1)],
    [frozenset({1}), frozenset({2}), frozenset()],
    [1, "1", "a"],
    [None, "a", True],
    [b"a", b"b", b"c"],
]


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_any_hashable_class_is_encoded_and_decoded(names):
    classes = Classes(3, names)
    y = [names[i] for i in (2, 0, 1, 1)]
    assert classes.encode(y).tolist() == [2, 0, 1, 1]
    assert classes.decode([2, 0, 1, 1]).tolist() == y
    assert [type(v) for v in classes.decode([0, 1, 2]).tolist()] == [type(v) for v in names]


@given(st.lists(st.text(min_size=1).filter(lambda s: s == s.rstrip("\0")), unique=True, min_size=2))
@settings(max_examples=50, deadline=None)
def test_strings_are_encoded_and_decoded(names):
    classes = Classes(len(names), names)
    assert classes.encode(names).tolist() == list(range(len(names)))
    assert classes.array().tolist() == names


@pytest.mark.parametrize(
    "y",
    [
        [2, 0, 1],
        (2, 0, 1),
        np.array([2, 0, 1], dtype=np.uint8),
        np.array([2, 0, 1], dtype=object),
        torch.tensor([2, 0, 1]),
        torch.tensor([2, 0, 1], dtype=torch.int16),
    ],
)
def test_integers_are_column_indices(y):
    index = Classes(3).encode(y, rows=3)
    assert index.dtype == torch.int64
    assert index.tolist() == [2, 0, 1]


def test_booleans_are_0_and_1():
    assert Classes(2).encode([True, False]).tolist() == [1, 0]
    assert Classes(2).encode(torch.tensor([True, False])).tolist() == [1, 0]


def test_classes_0_to_n_are_unnamed():
    assert Classes(3, [0, 1, 2]) == Classes(3)
    assert Classes(3, [0, 1, 2]).values is None
    assert Classes(3, ["a", "b", "c"]) != Classes(3)
    assert Classes(3, ["a", "b", "c"]) != Classes(3, ["c", "b", "a"])


def test_pandas_labels():
    pd = pytest.importorskip("pandas")
    classes = Classes(2, ["no", "yes"])
    for dtype in (object, "category", "string"):
        assert classes.encode(pd.Series(["yes", "no"], dtype=dtype)).tolist() == [1, 0]


def test_inferred_classes_are_sorted():
    assert Classes.infer(["b", "a", "c", "a"], 3).array().tolist() == ["a", "b", "c"]
    assert Classes.infer([1, 0, 1], 5).values is None
    assert Classes.infer(["b"], 3, classes=["c", "b", "a"]).array().tolist() == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "b", "a"], "y holds 2 distinct labels (first: 'a'), but the scores have 3 columns"),
        (np.array(["a", None, (1,)], dtype=object), "cannot be sorted (first: 'a')"),
    ],
)
def test_classes_that_cannot_be_inferred(y, message):
    with pytest.raises(ValueError, match=r"classes=\[...\]") as error:
        Classes.infer(y, 3)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("classes", "y", "message"),
    [
        (Classes(3), [0, 1, 7], "y[2] = 7 is not one of the classes 0 to 2"),
        (Classes(3), [0, -1], "y[1] = -1 is not one of the classes 0 to 2"),
        (Classes(3), torch.tensor([0, 9]), "y[1] = 9 is not one of the classes 0 to 2"),
        (Classes(3), [0.0, 1.0], "y holds floats (first: 0.0, dtype float64)"),
        (Classes(3), torch.tensor([0.5]), "y holds floats (first: 0.5, dtype float32)"),
        (
            Classes(3),
            ["cat"],
            "y holds str labels (first: 'cat'), but the classes are the integers",
        ),
        (Classes(3), [0, "cat"], "y holds str labels (first: 'cat')"),
        (Classes(3), np.array([0, 1.5], object), "y holds float labels (first: 1.5)"),
        (Classes(3), [[0], [1]], "of shape (rows,); got shape (2, 1)"),
        (Classes(3), [[0], [1, 2]], "y must be one label for each row"),
        (Classes(3), torch.zeros(2, 1, dtype=torch.int64), "got shape (2, 1)"),
        (Classes(3), np.int64(1), "got shape ()"),
        (Classes(2, ["a", "b"]), ["a", "z"], "y[1] = 'z' is not one of the 2 classes: 'a', 'b'"),
        (Classes(2, ["a", "b"]), np.array(["z"], object), "y[0] = 'z' is not one of the 2 classes"),
        (Classes(2, ["a", "b"]), [0, 1], "y[0] = 0 is not one of the 2 classes: 'a', 'b'"),
        (Classes(2, [(1, 2), (3, 4)]), [(1, 2), (9, 9)], "y[1] = (9, 9) is not one of"),
        (Classes(6, list("abcdef")), ["z"], "6 classes: 'a', 'b', 'c', 'd', 'e', …"),
    ],
)
def test_invalid_labels_raise(classes, y, message):
    with pytest.raises(ValueError, match="y") as error:
        classes.encode(y)
    assert message in str(error.value)


@pytest.mark.parametrize("y", [[], [0], np.zeros(3, int), torch.zeros(3, dtype=torch.int64)])
def test_another_number_of_labels_raises(y):
    with pytest.raises(ValueError, match=f"y has {len(y)} labels, but the scores have 2 rows"):
        Classes(3).encode(y, rows=2)


@pytest.mark.parametrize("classes", [Classes(3), Classes(2, ["a", "b"])])
def test_empty_labels_are_accepted(classes):
    for empty in ([], np.array([], dtype="U1"), torch.zeros(0, dtype=torch.int64)):
        assert classes.encode(empty).tolist() == []


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b"], "classes has 2 names, but there are 3 classes"),
        (["a", "b", "a"], "classes must be distinct; 'a' occurs 2 times"),
        ([0.5, 1.5, 2.5], "classes holds floats (first: 0.5"),
        ([["a"], ["b"], ["c"]], "got shape (3, 1)"),
    ],
)
def test_invalid_classes_raise(names, message):
    with pytest.raises(ValueError, match="classes") as error:
        Classes(3, names)
    assert message in str(error.value)


def test_many_classes_are_checked_quickly():
    names = [f"class {i}" for i in range(200_000)]
    with pytest.raises(ValueError, match="'class 7' occurs 2 times"):
        Classes(200_001, [*names, "class 7"])


def test_repr():
    assert repr(Classes(3)) == "Classes(classes 0 to 2)"
    assert repr(Classes(2, ["a", "b"])) == "Classes(2 classes: 'a', 'b')"


def test_label_array_of_a_tensor():
    assert label_array(torch.tensor([3, 1])).tolist() == [3, 1]
