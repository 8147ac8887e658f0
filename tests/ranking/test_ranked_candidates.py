"""Rankings of candidates: lists of labels of different lengths."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from score_samples import tie_heavy

from shortlist.ranking import Ranking


@given(tie_heavy, st.data())
@settings(max_examples=40, deadline=None)
def test_full_length_candidates_agree_with_dense_scores(scores, data):
    rows, n = scores.shape
    dense = Ranking.from_scores(scores)
    listed = Ranking.from_candidates(dense.labels, dense.scores, n_classes=n)
    assert np.array_equal(listed.labels, dense.labels)
    assert np.array_equal(listed.scores, dense.scores)
    y = data.draw(st.lists(st.integers(0, n - 1), min_size=rows, max_size=rows))
    assert np.array_equal(listed.rank(y), dense.rank(y))
    thresholds = [6.5, 3.0, 0.0, -1.0]
    assert torch.equal(listed.count_above(thresholds), dense.count_above(thresholds))


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 11), st.integers(0, 3)), min_size=1, max_size=8).map(
            lambda row: list({label: (label, score) for label, score in row}.values())
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_ragged_candidates_in_any_order(lists, padded):
    """Candidates with equal scores keep their order, as in Python's stable sort."""
    expected = [sorted(row, key=lambda pair: -pair[1]) for row in lists]
    labels = [[label for label, _ in row] for row in lists]
    scores = [[float(score) for _, score in row] for row in lists]
    width = max(map(len, labels))
    if padded:
        labels = np.array([row + [-1] * (width - len(row)) for row in labels])
        scores = np.array([row + [np.nan] * (width - len(row)) for row in scores])
    ranking = Ranking.from_candidates(labels, scores, n_classes=12)
    assert ranking.depth == width
    for i, row in enumerate(expected):
        want = [label for label, _ in row]
        assert ranking.labels[i].tolist() == want + [-1] * (width - len(row))
        assert ranking.scores[i, : len(row)].tolist() == [float(score) for _, score in row]
    assert ranking.lengths().tolist() == [len(row) for row in expected]
    for label in range(12):
        want = [
            [name for name, _ in row].index(label) if label in dict(row) else np.inf
            for row in expected
        ]
        assert ranking.rank([label] * len(lists)).tolist() == want


def test_padding_can_be_anywhere_and_columns_of_padding_are_removed():
    labels = [[-1, 3, -1, 5, -1], [2, -1, -1, -1, -1]]
    ranking = Ranking.from_candidates(np.array(labels), np.zeros((2, 5)), n_classes=6)
    assert ranking.labels.tolist() == [[3, 5], [2, -1]]
    assert ranking.depth == 2


def test_a_depth_beyond_the_candidates_is_padded():
    ranking = Ranking.from_candidates([[1], [0]], [[0.5], [0.25]], n_classes=4)
    labels, scores = ranking.top(3)
    assert labels.tolist() == [[1, -1, -1], [0, -1, -1]]
    assert scores.tolist() == [[0.5, 0, 0], [0.25, 0, 0]]


NAMED = [[["dog", "cat"], ["eel"]], [["dog", "cat"], ["eel", None]], [["dog", "cat"], ["eel", -1]]]


@pytest.mark.parametrize("labels", NAMED, ids=["ragged", "None", "-1"])
@pytest.mark.parametrize("as_array", [False, True])
def test_named_candidates(labels, as_array):
    scores = [[0.25, 0.5], [1.0, 0.0]]
    if as_array:
        labels = np.array([[*row, None][:2] for row in labels], dtype=object)
        scores = np.array(scores)
    elif len(labels[1]) == 1:
        scores = [[0.25, 0.5], [1.0]]
    ranking = Ranking.from_candidates(labels, scores, classes=["cat", "dog", "eel"])
    assert ranking.labels.tolist() == [[0, 1], [2, -1]]
    assert ranking.rank(["dog", "dog"]).tolist() == [1, np.inf]


@pytest.mark.parametrize("wrap", [np.array, torch.tensor, list])
def test_integer_names_are_names_in_every_type_of_array(wrap):
    scores = [[0.5, 0.25], [0.5, 0.25]]
    ranking = Ranking.from_candidates(
        wrap([[30, 10], [20, -1]]),
        torch.tensor(scores) if wrap is torch.tensor else scores,
        classes=[10, 20, 30],
    )
    assert ranking.labels.tolist() == [[2, 0], [1, -1]]


def test_a_class_called_minus_one_is_not_padding():
    ranking = Ranking.from_candidates(np.array([[-1, 1]]), [[0.75, 0.25]], classes=[-1, 1])
    assert ranking.labels.tolist() == [[0, 1]]
    assert ranking.rank([-1]).tolist() == [0]


def test_rows_of_candidates_can_be_arrays():
    ranking = Ranking.from_candidates(
        [np.array([3, 1]), torch.tensor([2])], [np.array([0.5, 0.25]), torch.tensor([1.0])], 4
    )
    assert ranking.labels.tolist() == [[3, 1], [2, -1]]


def candidates(labels, scores, n_classes=4, **options):
    return lambda: Ranking.from_candidates(labels, scores, n_classes, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (candidates([[0, 1], [2, 2]], [[2, 1], [2, 1]]), "row 1 lists label 2 twice"),
        (candidates([[0, 4]], [[2, 1]]), "candidate label 4 at row 0, position 1"),
        (candidates(np.array([[0, 4]]), [[2, 1]]), "candidate label 4 at row 0, position 1"),
        (candidates(np.array([[-2, 1]]), [[2, 1]]), "candidate label -2 at row 0, position 0"),
        (candidates([[0], [-1]], [[1], [1]]), "row 1 has no candidates at all"),
        (candidates([[0], []], [[1], []]), "row 1 has no candidates at all"),
        (candidates([[], []], [[], []]), "got shape (2, 0)"),
        (candidates([], []), "got shape (0,)"),
        (candidates([[0, 1]], [[1, np.nan]]), "candidate scores hold nan at row 0, position 1"),
        (candidates([[0, 1]], [[np.inf, 1]]), "candidate scores hold inf at row 0, position 0"),
        (candidates([[0, 1]], [[1]]), "row 0 has 2 labels, but 1 scores"),
        (candidates([[0, 1]], [[1, 2], [3, 4]]), "labels have 1 rows, but scores have 2"),
        (candidates(np.array([[0, 1]]), np.ones((1, 3))), "got (1, 2) and (1, 3)"),
        (candidates([[0, 1], [0]], np.ones((2, 2))), "rows of 1 to 2 candidates"),
        (candidates([0, 1], [0.5, 0.25]), "labels[0] = 0 is not one"),
        (candidates(["cat", "dog"], [[1], [1]]), "labels[0] = 'cat' is not one"),
        (candidates(np.array([0, 1]), np.ones(2)), "got shape (2,)"),
        (candidates(np.array([[0.5, 1]]), np.ones((1, 2))), "hold floats (first: 0.5"),
        (candidates(torch.tensor([[0.5, 1]]), torch.ones(1, 2)), "hold floats (first: 0.5"),
        (candidates([[0.5], [1, 2]], [[1], [1, 2]]), "float labels (first: 0.5)"),
        (candidates([["cat"]], [[1]]), "str labels (first: 'cat')"),
        (
            candidates([["cat", "cow"]], [[2, 1]], None, classes=["cat", "dog"]),
            "candidate label 'cow' at row 0, position 1 is not one of the 2 classes: 'cat', 'dog'",
        ),
        (candidates([["cat"]], [[2]], 3, classes=["cat", "dog"]), "2 names, but there are 3"),
        (candidates([[0]], [[1]], None), "needs n_classes"),
        (candidates([[0]], [[1]], 1), "n_classes must be an integer of at least 2; got 1"),
        (candidates([[0]], [["x"]]), "scores must hold numbers"),
    ],
)
def test_invalid_candidates_raise(make, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (The messages differ.)
        make()
    assert message in str(error.value)
