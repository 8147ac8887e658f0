"""Families: sizes and hits by brute force, strict thresholds, and custom families."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.families import Custom, Family, Threshold, TopK
from shortlist.ranking import Ranking

DTYPES = [np.float16, np.float32, np.float64]


def brute_order(row: list[float]) -> list[int]:
    """Return labels by decreasing score, and by decreasing index among equal scores."""
    return sorted(range(len(row)), key=lambda y: (-row[y], -y))


def tied_scores(rows: int, n: int, values: int, seed: int) -> np.ndarray:
    """Return multiples of 1/8, exact in every type, that tie and equal thresholds."""
    return np.random.default_rng(seed).integers(0, values, (rows, n)) / 8


tie_heavy = st.tuples(
    st.integers(1, 8), st.integers(2, 12), st.integers(1, 6), st.integers(0, 2**32 - 1)
).map(lambda a: tied_scores(*a))


def brute_threshold(row: list[float], tau: float) -> set[int]:
    """Return `{y : s(x, y) > tau}`, or the argmax if that is empty (paper, Section 2)."""
    return {y for y, s in enumerate(row) if s > tau} or {brute_order(row)[0]}


def select_member(family: Family, ranking: Ranking, k: int) -> list[list[object]]:
    """Return the labels of member k in all rows."""
    return family.select(ranking, torch.full((len(ranking),), k)).labels()


# Properties of all families of prefixes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrap", [np.asarray, torch.as_tensor])
@given(tie_heavy, st.data())
@settings(max_examples=25, deadline=None)
def test_top_k_by_brute_force(wrap, dtype, scores, data):
    rows, n = scores.shape
    sizes = sorted(data.draw(st.sets(st.integers(1, n), min_size=1)))
    y = data.draw(st.lists(st.integers(0, n - 1), min_size=rows, max_size=rows))
    family, given_scores = TopK(sizes), wrap(scores.astype(dtype))
    assert len(family) == len(sizes)
    assert family.sizes(given_scores).tolist() == [sizes] * rows
    expected = [
        [label in brute_order(row)[:k] for k in sizes]
        for row, label in zip(scores.tolist(), y, strict=True)
    ]
    assert family.hits(given_scores, y).tolist() == expected
    ranking = Ranking.from_scores(given_scores)
    for k, size in enumerate(sizes):
        assert select_member(family, ranking, k) == [
            brute_order(row)[:size] for row in scores.tolist()
        ]


@pytest.mark.parametrize("dtype", DTYPES)
@given(tie_heavy, st.data())
@settings(max_examples=40, deadline=None)
def test_thresholds_by_brute_force(dtype, scores, data):
    rows, n = scores.shape
    taus = data.draw(st.sets(st.integers(-2, 12), min_size=1, max_size=5))
    taus = [tau / 16 for tau in sorted(taus, reverse=True)]
    y = data.draw(st.lists(st.integers(0, n - 1), min_size=rows, max_size=rows))
    family, given_scores = Threshold(taus), scores.astype(dtype)
    sets = [[brute_threshold(row, tau) for tau in taus] for row in scores.tolist()]
    assert family.sizes(given_scores).tolist() == [[len(s) for s in row] for row in sets]
    assert family.hits(given_scores, y).tolist() == [
        [label in s for s in row] for row, label in zip(sets, y, strict=True)
    ]
    ranking = Ranking.from_scores(given_scores)
    for k in range(len(taus)):
        got = select_member(family, ranking, k)
        assert [set(labels) for labels in got] == [row[k] for row in sets]


@pytest.mark.parametrize("family", [TopK([1, 3, 4]), Threshold([0.5, 0.25, 0.0])], ids=str)
@pytest.mark.parametrize("source", ["scores", "candidates"])
def test_a_set_contains_a_label_whose_rank_is_below_the_size(family, source):
    scores = tied_scores(50, 6, 6, seed=3)
    ranking = Ranking.from_scores(scores)
    if source == "candidates":
        ranking = Ranking.from_candidates(ranking.labels[:, :4], ranking.scores[:, :4], n_classes=6)
    y = np.arange(50) % 6
    sizes, hits = family.sizes(ranking), family.hits(ranking, y)
    assert np.array_equal(hits, ranking.rank(y)[:, None] < sizes)
    assert (np.diff(sizes, axis=1) >= 0).all()
    assert (sizes >= 1).all()
    assert (np.diff(hits.astype(int), axis=1) >= 0).all()
    assert family.nested
    assert set(sizes.flatten().tolist()) <= set(family.possible_sizes(ranking))
    choice = torch.arange(50) % len(family)
    sets = family.select(ranking, choice, guarantee="some")
    assert np.array_equal(sets.sizes, sizes[np.arange(50), choice])
    assert np.array_equal(sets.contains(y), hits[np.arange(50), choice])
    assert str(sets.guarantee) == "some"


@pytest.mark.parametrize("family", [TopK([1, 2]), Threshold([0.5, 0.1])], ids=str)
def test_array_types_and_copies(family):
    scores = tied_scores(5, 4, 6, seed=0)
    for wrapped, array_class in [(scores, np.ndarray), (torch.from_numpy(scores), torch.Tensor)]:
        assert isinstance(family.sizes(wrapped), array_class)
        assert isinstance(family.hits(wrapped, [0] * 5), array_class)
    for duplicate in (copy.deepcopy(family), pickle.loads(pickle.dumps(family))):
        assert duplicate == family
        assert hash(duplicate) == hash(family)
    assert family != TopK([1, 3])
    assert family != Threshold([0.5, 0.2])


# Threshold


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tau", [0.1, 0.3, 1 / 3, 0.7, 1e-3])
@pytest.mark.parametrize("wrap", [np.asarray, torch.as_tensor])
def test_a_score_at_the_threshold_is_not_above_it(wrap, dtype, tau):
    """0.1 in float32 exceeds 0.1 in float64, but not the threshold that the user wrote."""
    at = dtype(tau)
    row = [at, np.nextafter(at, dtype(-1)), np.nextafter(at, dtype(2)), at]
    assert Threshold([tau]).sizes(wrap(np.array([row], dtype=dtype))).tolist() == [[1]]
    assert Threshold([tau]).hits(wrap(np.array([row], dtype=dtype)), [2]).tolist() == [[True]]
    row = [at, at, at]
    ranking = Ranking.from_scores(np.array([row], dtype=dtype))
    assert Threshold([tau]).sizes(ranking).tolist() == [[1]]  # Empty, so the argmax.
    assert select_member(Threshold([tau]), ranking, 0) == [[2]]  # Of equal scores, the last.


def test_an_empty_set_becomes_the_argmax_with_the_highest_index():
    ranking = Ranking.from_scores([[0.25, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]])
    family = Threshold([0.9, 0.5, 0.4])
    assert [select_member(family, ranking, k) for k in range(3)] == [
        [[2], [3]],
        [[2], [3]],
        [[2, 1], [3]],
    ]
    assert family.hits(ranking, [1, 0]).tolist() == [[False, False, True], [False] * 3]


def test_a_threshold_counts_only_candidates():
    ranking = Ranking.from_candidates([[3, 1, 0], [2]], [[0.5, 0.25, 0.125], [0.5]], n_classes=5)
    assert Threshold([0.9, 0.2, -5.0]).sizes(ranking).tolist() == [[1, 2, 3], [1, 1, 1]]
    assert Threshold([0.9, -5.0]).hits(ranking, [0, 4]).tolist() == [[False, True], [False, False]]


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ([0.1, 0.5], "must decrease, so that the sets grow; got [0.1, 0.5]"),
        ([0.5, 0.5], "must decrease, so that the sets grow; got [0.5, 0.5]"),
        ([], "needs a list of finite numbers; got []"),
        ([0.5, float("nan")], "got [0.5, nan]"),
        ([float("inf"), 0.5], "got [inf, 0.5]"),
        (0.5, "got 0.5"),
        ([[0.5]], "got [[0.5]]"),
        (["high"], "got ['high']"),
    ],
)
def test_invalid_thresholds_raise(thresholds, message):
    with pytest.raises(ValueError, match=r"[Tt]hreshold") as error:
        Threshold(thresholds)
    assert message in str(error.value)


# TopK


def test_dense_and_doubling():
    assert TopK.dense(4).k == [1, 2, 3, 4]
    assert TopK.doubling(10).k == [1, 2, 4, 8]
    assert TopK.doubling(8).k == [1, 2, 4, 8]
    assert TopK.doubling(1000).k == [1, 2, 4, 8, 16, 32, 64]
    assert TopK.doubling(1000, largest=50).k == [1, 2, 4, 8, 16, 32]
    assert TopK.doubling(2, largest=1).k == [1]
    assert TopK(np.array([1, 5])) == TopK([1, 5]) == TopK((1, 5))
    assert repr(TopK([1, 2])) == "TopK([1, 2])"
    assert repr(TopK.dense(1000)) == "TopK.dense(1000)"
    assert eval(repr(TopK.dense(100))) == TopK.dense(100)


def test_a_single_size():
    scores = tied_scores(5, 4, 3, seed=0)
    assert TopK([1]).sizes(scores).tolist() == [[1]] * 5
    best = [brute_order(row)[0] for row in scores.tolist()]
    assert TopK([1]).hits(scores, best).tolist() == [[True]] * 5


def test_sets_contain_all_candidates_of_short_rows():
    ranking = Ranking.from_candidates([[3, 1, 0], [2]], [[3, 2, 1], [1]], n_classes=5)
    family = TopK([1, 2, 4])
    assert family.sizes(ranking).tolist() == [[1, 2, 3], [1, 1, 1]]
    assert family.hits(ranking, [0, 4]).tolist() == [[False, False, True], [False] * 3]
    assert select_member(family, ranking, 2) == [[3, 1, 0], [2]]
    with pytest.raises(ValueError, match="size 4, but only 3 labels of a row are ranked"):
        family.check(ranking)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopK([2, 1]), "must increase; got [2, 1]"),
        (lambda: TopK([1, 1]), "must increase; got [1, 1]"),
        (lambda: TopK([]), "at least one size; got none"),
        (lambda: TopK([0, 1]), "at least 1; got 0"),
        (lambda: TopK([1.5]), "at least 1; got 1.5"),
        (lambda: TopK([True]), "at least 1; got True"),
        (lambda: TopK(["two"]), "at least 1; got 'two'"),
        (lambda: TopK(3), "a list of sizes, such as [1, 2, 4]; got 3"),
        (lambda: TopK.dense(0), "at least 1; got 0"),
        (lambda: TopK.doubling(0), "at least 1; got 0"),
        (lambda: TopK([1, 9]).sizes(np.ones((2, 4))), "size 9, but there are only 4 classes"),
        (lambda: TopK([1, 9]).hits(np.ones((2, 4)), [0, 1]), "size 9, but there are only 4"),
        (
            lambda: TopK([1, 3]).sizes(Ranking.from_scores(np.ones((2, 4)), depth=2)),
            "size 3, but only 2 labels of a row are ranked",
        ),
    ],
)
def test_invalid_sizes_raise(make, message):
    with pytest.raises(ValueError, match=r"TopK|n must") as error:
        make()
    assert message in str(error.value)


# Custom


def adjacent_labels(width: int):
    """Return a function of masks: the best label and those next to it, which are no prefix."""

    def masks(ranking: Ranking) -> np.ndarray:
        columns = np.arange(ranking.n_classes)
        return np.abs(columns - np.asarray(ranking.labels)[:, :1]) <= width

    return masks


@pytest.mark.parametrize("array_type", ["numpy", "torch"])
def test_sets_that_are_not_prefixes(array_type):
    scores = tied_scores(30, 9, 50, seed=1)
    family = Custom.from_masks(adjacent_labels(0), adjacent_labels(1), adjacent_labels(3))
    ranking = Ranking.from_scores(scores if array_type == "numpy" else torch.from_numpy(scores))
    y = np.arange(30) % 9
    sets = [
        [{c for c in range(9) if abs(c - brute_order(row)[0]) <= width} for width in (0, 1, 3)]
        for row in scores.tolist()
    ]
    assert not family.nested
    assert len(family) == 3
    assert family.sizes(ranking).tolist() == [[len(s) for s in row] for row in sets]
    assert family.hits(ranking, y).tolist() == [
        [label in s for s in row] for row, label in zip(sets, y.tolist(), strict=True)
    ]
    choice = torch.arange(30) % 3
    got = family.select(ranking, choice)
    for labels, row, scores_row, k in zip(got, sets, scores.tolist(), choice, strict=True):
        assert labels == [c for c in brute_order(scores_row) if c in row[k]]
    assert isinstance(got.sizes, np.ndarray if array_type == "numpy" else torch.Tensor)


def test_masks_can_contain_labels_that_are_not_candidates():
    ranking = Ranking.from_candidates([[2, 0]], [[2.0, 1.0]], n_classes=4)
    family = Custom.from_masks(lambda r: np.ones((len(r), 4), dtype=bool))
    assert select_member(family, ranking, 0) == [[2, 0, 3, 1]]


def custom(sizes=None, hits=None, members=None, n_sets: int = 2) -> Custom:
    return Custom(
        n_sets,
        sizes=lambda r: np.tile([1, 2], (len(r), 1)) if sizes is None else sizes,
        hits=lambda r, y: np.ones((len(r), 2), dtype=bool) if hits is None else hits,
        members=lambda r, c: [[0]] * len(r) if members is None else members,
    )


def test_a_custom_family_gets_arrays_of_the_users_type():
    arguments = []
    family = Custom(
        1,
        sizes=lambda r: [[2]] * len(r),
        hits=lambda r, y: arguments.append(y) or np.ones((len(r), 1), dtype=bool),
        members=lambda r, c: arguments.append(c) or [[3, 0]] * len(r),
    )
    names = ["a", "b", "c", "d"]
    numpy_ranking = Ranking.from_scores(tied_scores(3, 4, 3, 0), classes=names)
    assert family.hits(numpy_ranking, ["b", "a", "d"]).tolist() == [[True]] * 3
    assert select_member(family, numpy_ranking, 0) == [["d", "a"]] * 3
    select_member(family, Ranking.from_scores(torch.rand(3, 4)), 0)
    assert [type(v) for v in arguments] == [np.ndarray, np.ndarray, torch.Tensor]
    assert arguments[0].tolist() == [1, 0, 3]


RANKING = Ranking.from_scores(np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: custom(n_sets=0), "n_sets must be an integer of at least 1; got 0"),
        (lambda: Custom.from_masks(), "got 0"),
        (lambda: custom(sizes=[[1, 2]]).sizes(RANKING), "sizes of Custom gave shape (1, 2)"),
        (lambda: custom(sizes=[[1], [2]]).sizes(RANKING), "needed: (rows, sets) = (2, 2)"),
        (lambda: custom(sizes=[[1, 2], [2, 1]]).sizes(RANKING), "row 1 has sizes [2, 1]"),
        (lambda: custom(sizes=[[1, 2], [2, 4]]).sizes(RANKING), "run from 1 to 4; allowed: 0 to 3"),
        (lambda: custom(sizes=[[-1, 2], [2, 2]]).sizes(RANKING), "run from -1 to 2"),
        (lambda: custom(sizes=[[0.5, 2], [2, 2]]).sizes(RANKING), "sizes of Custom gave torch.flo"),
        (
            lambda: custom(hits=[True, False]).hits(RANKING, [0, 0]),
            "hits of Custom gave shape",
        ),
        (lambda: custom(hits=np.ones((2, 2))).hits(RANKING, [0, 0]), "needed: booleans"),
        (lambda: select_member(custom(members=[[0]]), RANKING, 0), "gave 1 sets for 2 rows"),
        (lambda: select_member(custom(members=[[0], [3]]), RANKING, 0), "0 to 2; got 0 to 3"),
        (lambda: select_member(custom(members=[[0], [-1]]), RANKING, 0), "0 to 2; got -1 to 0"),
        (
            lambda: select_member(custom(members=[[0], [1, 1]]), RANKING, 0),
            "row 1 contains 1 twice",
        ),
        (
            lambda: Custom.from_masks(lambda r: np.ones((len(r), 3))).sizes(RANKING),
            "set predictor 0 gave torch.float64 of shape (2, 3); needed: booleans",
        ),
        (
            lambda: Custom.from_masks(adjacent_labels(0), lambda r: [[True] * 2] * len(r)).sizes(
                RANKING
            ),
            "set predictor 1 gave torch.bool of shape (2, 2); needed: booleans of shape (2, 3)",
        ),
        (
            lambda: Custom.from_masks(adjacent_labels(1), adjacent_labels(0)).sizes(RANKING),
            "must not shrink; row 0 has sizes [2, 1]",
        ),
    ],
)
def test_invalid_custom_families_raise(make, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (The messages differ.)
        make()
    assert message in str(error.value)


def test_empty_sets_of_a_custom_family():
    family = custom(sizes=[[0, 1], [0, 3]], members=[[], []])
    assert family.sizes(RANKING).tolist() == [[0, 1], [0, 3]]
    assert select_member(family, RANKING, 0) == [[], []]
    assert 0 in family.possible_sizes(RANKING)


# Labels


@pytest.mark.parametrize("family", [TopK([1, 2]), Threshold([0.5]), custom()], ids=repr)
def test_invalid_labels_raise(family):
    for y, message in [
        ([0], "y has 1 labels, but the scores have 2 rows"),
        ([0.0, 1.0], "y holds floats"),
    ]:
        with pytest.raises(ValueError, match="y") as error:
            family.hits(RANKING, y)
        assert message in str(error.value)
