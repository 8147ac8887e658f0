"""Prediction sets: their views, memory, slices, equality, and errors for invalid input."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

ANIMALS = ["cat", "dog", "eel", "fox"]
LISTS = [["cat"], ["dog", "cat"], [], ["fox", "eel", "dog", "cat"], ["eel"]]


@pytest.fixture
def animals() -> PredictionSets:
    return PredictionSets.from_lists(LISTS, classes=ANIMALS, guarantee="at least 90%")


def label_lists(n: int) -> st.SearchStrategy[list[list[int]]]:
    row = st.lists(st.integers(0, n - 1), unique=True, max_size=n)
    return st.lists(row, min_size=1, max_size=8)


# Views


def test_sizes_labels_mask_iteration(animals):
    assert animals.sizes.tolist() == [1, 2, 0, 4, 1]
    assert animals.mean_size == 8 / 5
    assert animals.labels() == LISTS
    assert list(animals) == LISTS
    assert len(animals) == 5
    assert animals.n_classes == 4
    assert animals.classes.tolist() == ANIMALS
    assert animals.indices.tolist() == [0, 1, 0, 3, 2, 1, 0, 2]
    mask = animals.mask()
    assert mask.dtype == bool
    assert mask.tolist() == [[name in row for name in ANIMALS] for row in LISTS]


def test_contains_and_accuracy(animals):
    y = ["cat", "eel", "cat", "dog", "eel"]
    assert animals.contains(y).tolist() == [True, False, False, True, True]
    assert animals.accuracy(y) == 3 / 5


@given(label_lists(6), st.data())
@settings(max_examples=50, deadline=None)
def test_all_views_agree(lists, data):
    y = data.draw(st.lists(st.integers(0, 5), min_size=len(lists), max_size=len(lists)))
    sets = PredictionSets.from_lists(lists, n_classes=6)
    hits = [label in row for label, row in zip(y, lists, strict=True)]
    assert sets.labels() == lists
    assert sets.sizes.tolist() == [len(row) for row in lists]
    assert sets.contains(y).tolist() == hits
    assert sets.accuracy(y) == pytest.approx(sum(hits) / len(hits))
    assert sets.mask().sum(axis=1).tolist() == sets.sizes.tolist()
    assert sets.mask()[np.arange(len(y)), y].tolist() == hits
    assert np.array_equal(np.split(sets.indices, np.cumsum(sets.sizes)[:-1])[0], lists[0])


def test_to_frame(animals):
    frame = animals.to_frame()
    assert frame.columns.tolist() == ["size", "labels"]
    assert frame["size"].tolist() == [1, 2, 0, 4, 1]
    assert frame["labels"].tolist() == LISTS


def test_repr(animals):
    assert repr(animals) == (
        "PredictionSets: 5 rows, 4 classes, mean size 1.6, sizes 0 to 4\nat least 90%\n"
        "  [0] cat\n  [1] dog, cat\n  [2] (empty)\n  [3] fox, eel, dog, cat\n  [4] eel"
    )
    many = PredictionSets.from_lists([list(range(12))] * 12_345, n_classes=1000)
    lines = repr(many).splitlines()
    assert lines[0].startswith("PredictionSets: 12,345 rows, 1,000 classes, mean size 12,")
    assert lines[1] == "no accuracy is guaranteed"
    assert lines[2] == "  [0] 0, 1, 2, 3, 4, 5, 6, 7, …"
    assert lines[-1] == "  …"
    assert len(lines) == 8
    assert repr(animals[:0]) == "PredictionSets: 0 rows, 4 classes"
    assert repr(animals[:1]).startswith("PredictionSets: 1 row, ")


# Prefixes of a ranking


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("sorted_before", [False, True])
def test_prefixes_of_a_tied_ranking(dtype, sorted_before):
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 3, (40, 20)).astype(dtype)
    sizes = rng.integers(0, 21, 40)
    ranking = Ranking.from_scores(scores)
    if sorted_before:
        ranking.top(20)
    sets = PredictionSets.from_ranking(ranking, sizes)
    for row, size, labels in zip(scores.tolist(), sizes, sets, strict=True):
        ranked = sorted(range(20), key=lambda y, row=row: (-row[y], -y))
        assert labels == ranked[:size]
    y = rng.integers(0, 20, 40)
    assert np.array_equal(sets.contains(y), ranking.rank(y) < sizes)


def test_prefixes_of_named_candidates():
    ranking = Ranking.from_candidates(
        [["fox", "cat"], ["eel"]], [[0.5, 0.25], [1.0]], classes=ANIMALS
    )
    assert PredictionSets.from_ranking(ranking, [2, 1]).labels() == [["fox", "cat"], ["eel"]]
    assert PredictionSets.from_ranking(ranking, [0, 0]).labels() == [[], []]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([1, 2], "row 1 lists only 1"),
        ([3, 1], "a set of 3 labels is requested, but only 2 labels of a row are ranked"),
        ([5, 1], "a set of 5 labels is requested, but there are only 4 classes"),
        ([1, -2], "sizes must not be negative; got -2"),
        ([1.5, 1.0], "sizes must be integers; got torch.float64"),
        ([True, False], "sizes must be integers; got torch.bool"),
        ([1], "one size for each of 2 rows needed; got shape (1,)"),
        ([[1, 1]], "got shape (1, 2)"),
    ],
)
def test_invalid_sizes_raise(sizes, message):
    ranking = Ranking.from_candidates([[3, 0], [2]], [[0.5, 0.25], [1.0]], n_classes=4)
    with pytest.raises(ValueError, match=r"sizes?|set") as error:
        PredictionSets.from_ranking(ranking, sizes)
    assert message in str(error.value)


# Memory


@pytest.mark.parametrize("array_type", ["numpy", "torch"])
def test_fifty_thousand_sets_take_less_than_two_megabytes(array_type):
    rng = np.random.default_rng(0)
    scores = rng.random((50_000, 1000), dtype=np.float32)
    sizes = np.resize([1, 2, 3, 2], 50_000)
    ranking = Ranking.from_scores(scores if array_type == "numpy" else torch.from_numpy(scores))
    sets = PredictionSets.from_ranking(ranking, sizes)
    assert sets.mean_size == 2
    assert sets.nbytes < 2e6
    values = [*vars(sets).values(), *sets._stored]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    assert sum(t.untyped_storage().nbytes() for t in tensors) == sets.nbytes
    assert len(pickle.dumps(sets)) < 2e6
    others = [value for value in vars(sets).values() if not isinstance(value, torch.Tensor)]
    assert sum(map(sys.getsizeof, others)) < 1000
    part = sets[:10]
    assert sum(t.untyped_storage().nbytes() for t in (part._flat, part._ends)) == part.nbytes < 500


@pytest.mark.parametrize("n", [2**15 - 1, 2**15, 2**15 + 1, 2**16 + 1])
def test_label_indices_of_many_classes_do_not_overflow(n):
    lists = [[n - 1, 0], [n // 2]]
    sets = PredictionSets.from_lists(lists, n_classes=n)
    assert sets.labels() == lists
    assert sets.contains([n - 1, n - 1]).tolist() == [True, False]


def test_sets_do_not_share_memory_with_the_scores():
    scores = torch.rand(50, 300)
    sets = PredictionSets.from_ranking(Ranking.from_scores(scores), [2] * 50)
    before = sets.labels()
    scores.zero_()
    assert sets.labels() == before


# Slicing, equality


@pytest.mark.parametrize(
    "rows",
    [
        slice(1, 4),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(-2, None),
        [3, 0, 3],
        [-1, 2],
        [],
        (0, 1),
        range(2),
        np.array([4, 2], dtype=np.uint8),
        torch.tensor([1, 1]),
        [True, False, True, False, True],
        np.array([False, True, False, True, False]),
        torch.zeros(5, dtype=torch.bool),
    ],
    ids=str,
)
def test_indexing_selects_rows(animals, rows):
    index = rows if isinstance(rows, slice) else np.asarray(rows)
    if not isinstance(rows, slice) and not len(rows):
        index = index.astype(int)
    selected = np.arange(5)[index].tolist()
    part = animals[rows]
    assert isinstance(part, PredictionSets)
    assert part.labels() == [LISTS[i] for i in selected]
    assert str(part.guarantee) == str(animals.guarantee)
    assert part.mask().tolist() == animals.mask()[selected].tolist()


@pytest.mark.parametrize("at", [0, 2, 4, -1, -5, np.int64(3)])
def test_one_row_is_a_list(animals, at):
    assert animals[at] == LISTS[at]


@pytest.mark.parametrize("at", [5, -6, [5], [True], 1.5, "cat"])
def test_invalid_rows_raise(animals, at):
    with pytest.raises((IndexError, ValueError), match="row"):
        animals[at]


def test_no_rows():
    empty = PredictionSets.from_lists([], n_classes=3)
    assert len(empty) == 0
    assert empty.labels() == list(empty) == []
    assert empty.mask().shape == (0, 3)
    assert empty.contains([]).tolist() == []
    assert np.isnan(empty.mean_size)
    assert np.isnan(empty.accuracy([]))


def test_empty_sets():
    sets = PredictionSets.from_lists([[], []], n_classes=3)
    assert sets.labels() == [[], []]
    assert sets.mean_size == 0
    assert sets.contains([0, 1]).tolist() == [False, False]
    assert not sets.mask().any()


def test_equality(animals):
    same = PredictionSets.from_lists(LISTS, classes=ANIMALS)
    assert animals == same
    assert animals == pickle.loads(pickle.dumps(animals))
    assert animals != same[::-1]
    assert animals != same[:4]
    assert same != PredictionSets.from_lists([row[::-1] for row in LISTS], classes=ANIMALS)
    assert same != PredictionSets.from_lists(LISTS, classes=[*ANIMALS, "gnu"])
    assert same != PredictionSets.from_lists(LISTS, classes=["cat", "dog", "fox", "eel"])
    assert same != LISTS
    # The same labels in all, in other sets.
    first = PredictionSets.from_lists([[0], [1, 2]], n_classes=3)
    assert first != PredictionSets.from_lists([[0, 1], [2]], n_classes=3)
    with pytest.raises(TypeError, match="unhashable"):
        hash(same)


def test_results_have_the_array_type_of_the_scores():
    scores = np.random.default_rng(0).random((6, 5))
    sizes, y = [1, 2, 3, 0, 5, 1], [0, 1, 2, 3, 4, 0]
    sets = PredictionSets.from_ranking(Ranking.from_scores(scores), sizes)
    torch_sets = PredictionSets.from_ranking(Ranking.from_scores(torch.from_numpy(scores)), sizes)
    for a, b in [
        (sets.sizes, torch_sets.sizes),
        (sets.mask(), torch_sets.mask()),
        (sets.indices, torch_sets.indices),
        (sets.contains(y), torch_sets.contains(torch.tensor(y))),
        (sets[1:3].sizes, torch_sets[torch.tensor([1, 2])].sizes),
    ]:
        assert isinstance(a, np.ndarray)
        assert isinstance(b, torch.Tensor)
        assert a.tolist() == b.tolist()
    assert sets == torch_sets
    assert torch_sets.accuracy(torch.tensor(y)) == sets.accuracy(y)


# Invalid input


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1, 2, 3, 0], "y[0] = 0 is not one of the 4 classes: 'cat'"),
        (["cat"], "y has 1 labels, but the scores have 5 rows"),
        ([0.0] * 5, "y holds floats (first: 0.0"),
    ],
)
def test_invalid_labels_raise(animals, y, message):
    for method in (animals.contains, animals.accuracy):
        with pytest.raises(ValueError, match="y") as error:
            method(y)
        assert message in str(error.value)


@pytest.mark.parametrize(
    ("lists", "options", "message"),
    [
        (
            [[0], [1, 3]],
            {"n_classes": 3},
            "row 1 contains 3, which is not one of the classes 0 to 2",
        ),
        ([[], [-1]], {"n_classes": 3}, "row 1 contains -1"),
        (
            [[], ["cat", "gnu"]],
            {"classes": ANIMALS},
            "row 1 contains 'gnu', which is not one of",
        ),
        ([[0], [1, 2, 1]], {"n_classes": 3}, "row 1 contains 1 twice"),
        ([["cat", "cat"]], {"classes": ANIMALS}, "row 0 contains 'cat' twice"),
        ([[0.5]], {"n_classes": 3}, "float labels (first: 0.5)"),
        ([["cat"]], {"n_classes": 3}, "str labels (first: 'cat')"),
        (["cat", "dog"], {"classes": ANIMALS}, "row 0 is the string 'cat'"),
        ([[0]], {}, "needs n_classes or classes"),
        ([[0]], {"n_classes": 0}, "n_classes must be an integer of at least 1; got 0"),
        ([[0]], {"n_classes": 3, "classes": ANIMALS}, "classes has 4 names, but there are 3"),
    ],
)
def test_invalid_lists_raise(lists, options, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (The messages differ.)
        PredictionSets.from_lists(lists, **options)
    assert message in str(error.value)
