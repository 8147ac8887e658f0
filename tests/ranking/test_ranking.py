"""Rankings against a brute-force order in plain Python, on scores with many ties."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from score_samples import tie_heavy, tied_scores

from shortlist._utils import ordering
from shortlist._utils.blocks import row_blocks
from shortlist._utils.ordering import labels_at_least, sort_labels, top_label
from shortlist.conformal.levels import ColumnLevels
from shortlist.ranking import Ranking, as_ranking, ranked_rows

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def brute_order(row: list[float]) -> list[int]:
    """Return labels by decreasing score, and by decreasing index among equal scores."""
    return sorted(range(len(row)), key=lambda y: (-row[y], -y))


@pytest.fixture
def small_blocks(monkeypatch):
    """Split rows into many blocks, where one would be used."""

    def small(rows, width, device, *, elements=None):
        return row_blocks(rows, width, elements=3 * width)

    monkeypatch.setattr(ranked_rows, "row_blocks", small)


# Order and ties


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [2, 3, 17, 100])
def test_order_of_exact_ties(dtype, device, n):
    scores = tied_scores(40, n, 4)
    expected = [brute_order(row) for row in scores.tolist()]
    given_scores = torch.tensor(scores, dtype=dtype, device=device)
    for depth in sorted({1, 2, n // 4, n // 2, n}):
        got = sort_labels(given_scores, depth).tolist()
        assert got == [row[:depth] for row in expected]


@given(tie_heavy)
@settings(max_examples=60, deadline=None)
def test_a_shallow_order_is_the_prefix_of_the_full_one(scores):
    tensor = torch.from_numpy(scores)
    n = scores.shape[1]
    expected = [brute_order(row) for row in scores.tolist()]
    assert sort_labels(tensor, n).tolist() == expected
    for depth in {1, max(1, n // 8), max(1, n // 4), max(1, n // 3)}:
        assert sort_labels(tensor, depth).tolist() == [row[:depth] for row in expected]


@pytest.mark.parametrize(
    ("first", "second", "sorted_again"),
    [(1, 2, [1]), (4, 5, [1]), (20, 21, [])],
    ids=["inside the prefix", "across its end", "below it"],
)
def test_only_rows_whose_prefix_ties_are_sorted_again(monkeypatch, first, second, sorted_again):
    sorted_rows = []
    stable_order = ordering._stable_order
    monkeypatch.setattr(
        ordering, "_stable_order", lambda s: sorted_rows.append(len(s)) or stable_order(s)
    )
    scores = np.random.default_rng(0).permuted(np.tile(np.arange(40.0), (6, 1)), axis=1)
    ranked = brute_order(scores[2].tolist())
    scores[2, ranked[second]] = scores[2, ranked[first]]
    got = sort_labels(torch.from_numpy(scores), 5).tolist()
    assert got == [brute_order(row)[:5] for row in scores.tolist()]
    assert sorted_rows == sorted_again


def test_minus_zero_ties_with_zero():
    scores = torch.tensor([[0.0, -0.0, -0.0, 0.0, -1.0]] * 2)
    assert sort_labels(scores, 5).tolist() == [[3, 2, 1, 0, 4]] * 2
    assert sort_labels(scores.repeat(1, 4), 3).tolist() == [[18, 17, 16]] * 2
    assert Ranking.from_scores(scores).rank([0, 2]).tolist() == [3, 1]


@given(tie_heavy)
@settings(max_examples=30, deadline=None)
def test_top_label_is_the_first_of_the_order(scores):
    tensor = torch.from_numpy(scores)
    assert top_label(tensor).tolist() == [brute_order(row)[0] for row in scores.tolist()]
    assert top_label(tensor[None])[0].tolist() == top_label(tensor).tolist()


# Ranks


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rank_by_counting_is_the_position_in_the_order(dtype, device):
    scores = tied_scores(25, 13, 4)
    ranking = Ranking.from_scores(torch.tensor(scores, dtype=dtype, device=device))
    for label in range(13):
        expected = [brute_order(row).index(label) for row in scores.tolist()]
        assert ranking.rank([label] * 25).tolist() == expected


@given(tie_heavy, st.data())
@settings(max_examples=40, deadline=None)
def test_the_ranking_of_a_row_does_not_depend_on_the_batch(scores, data):
    rows, n = scores.shape
    y = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=rows, max_size=rows)))
    shuffle = np.array(data.draw(st.permutations(range(rows))))
    depth = max(1, n // 4)
    ranking = Ranking.from_scores(scores)
    labels, ranks = ranking.top(depth)[0].numpy(), ranking.rank(y)
    shuffled = Ranking.from_scores(scores[shuffle])
    assert np.array_equal(shuffled.top(depth)[0].numpy(), labels[shuffle])
    assert np.array_equal(shuffled.rank(y[shuffle]), ranks[shuffle])
    for i in range(rows):
        single = Ranking.from_scores(scores[i : i + 1])
        assert np.array_equal(single.top(depth)[0].numpy(), labels[i : i + 1])
        assert single.rank(y[i : i + 1]) == ranks[i]


@given(tie_heavy, st.data())
@settings(max_examples=40, deadline=None)
def test_names_of_classes_do_not_change_the_ranking(scores, data):
    n = scores.shape[1]
    names = [f"class {i}" for i in data.draw(st.permutations(range(n)))]
    plain, named = Ranking.from_scores(scores), Ranking.from_scores(scores, classes=names)
    assert np.array_equal(plain.labels, named.labels)
    y = [0] * len(scores)
    assert np.array_equal(plain.rank(y), named.rank([names[0]] * len(scores)))


@pytest.mark.usefixtures("small_blocks")
def test_blocks_do_not_change_results():
    scores = tied_scores(50, 20, 3)
    ranking = Ranking.from_scores(scores)
    assert len(ranking.blocks()) == 17
    expected = [brute_order(row) for row in scores.tolist()]
    assert ranking.labels.tolist() == expected
    assert ranking.rank([7] * 50).tolist() == [row.index(7) for row in expected]
    sizes = torch.arange(50) % 21
    flat = [y for row, size in zip(expected, sizes.tolist(), strict=True) for y in row[:size]]
    assert ranking.prefix(sizes).tolist() == flat
    assert ranking.count_above([1.0]).tolist() == (scores > 1).sum(1, keepdims=True).tolist()


# Depth, memory and array types


@given(tie_heavy, st.data())
@settings(max_examples=40, deadline=None)
def test_ranking_deeper_does_not_change_the_first_labels(scores, data):
    n = scores.shape[1]
    depths = data.draw(st.lists(st.integers(0, n), min_size=1, max_size=5))
    ranking = Ranking.from_scores(scores)
    expected = [brute_order(row) for row in scores.tolist()]
    for depth in depths:
        labels, values = ranking.top(depth)
        assert labels.tolist() == [row[:depth] for row in expected]
        assert values.tolist() == [
            [row[y] for y in ranked[:depth]]
            for row, ranked in zip(scores.tolist(), expected, strict=True)
        ]
    assert ranking.labels.tolist() == expected


def test_nothing_is_sorted_before_it_is_needed(monkeypatch):
    depths = []
    monkeypatch.setattr(
        ranked_rows, "sort_labels", lambda s, d: depths.append(d) or sort_labels(s, d)
    )
    ranking = Ranking.from_scores(tied_scores(5, 100, 50))
    ranking.rank([3] * 5)
    ranking.count_above([2.0])
    assert depths == []
    ranking.top(4)
    ranking.top(3)
    assert depths == [4]
    ranking.top(9)
    assert depths == [4, 9]


def test_a_limited_depth_ranks_fewer_labels():
    scores = tied_scores(6, 10, 3)
    ranking = Ranking.from_scores(scores, depth=2)
    assert ranking.labels.tolist() == [brute_order(row)[:2] for row in scores.tolist()]
    assert ranking.lengths().tolist() == [2] * 6
    assert ranking.rank([brute_order(row)[5] for row in scores.tolist()]).tolist() == [5] * 6
    assert int(ranking.count_above([-1.0]).max()) == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_input_is_neither_copied_nor_changed(dtype):
    scores = tied_scores(9, 30, 3).astype(dtype)
    before = scores.copy()
    ranking = Ranking.from_scores(scores)
    assert np.shares_memory(ranking.scores_of(slice(None)).numpy(), scores)
    assert np.shares_memory(ranking[2:5].scores_of(slice(None)).numpy(), scores)
    y = np.zeros(9, dtype=np.int64)
    _ = ranking.top(3), ranking.labels, ranking.scores, ranking.rank(y), ranking.count_above([1.0])
    assert np.array_equal(scores, before)
    assert ranking.scores.dtype == dtype
    labels, values = np.tile(np.arange(5), (9, 1)), scores[:, :5].copy()
    Ranking.from_candidates(labels, values, n_classes=30)
    assert np.array_equal(values, before[:, :5])
    assert np.array_equal(labels, np.tile(np.arange(5), (9, 1)))


def test_a_read_only_memory_map_causes_no_warning(tmp_path):
    scores = tied_scores(20, 11, 4).astype(np.float32)
    np.save(tmp_path / "scores.npy", scores)
    mapped = np.load(tmp_path / "scores.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranking = Ranking.from_scores(mapped)
        assert ranking.labels.tolist() == [brute_order(row) for row in scores.tolist()]
        assert (
            ranking.rank([4] * 20).tolist() == Ranking.from_scores(scores).rank([4] * 20).tolist()
        )
    assert np.shares_memory(ranking.scores_of(slice(None)).numpy(), mapped)


@pytest.mark.parametrize("device", DEVICES)
def test_results_have_the_array_type_of_the_scores(device):
    scores = torch.tensor(tied_scores(4, 5, 3), dtype=torch.float32, device=device)
    ranking = Ranking.from_scores(scores)
    for out in (ranking.labels, ranking.scores, ranking.rank([0] * 4)):
        assert isinstance(out, torch.Tensor)
        assert out.device == scores.device
    assert ranking.scores.dtype == torch.float32
    plain = Ranking.from_scores(scores.cpu().numpy())
    for out in (plain.labels, plain.scores, plain.rank([0] * 4)):
        assert isinstance(out, np.ndarray)
    assert plain.labels.tolist() == ranking.labels.tolist()
    listed = Ranking.from_candidates(ranking.labels, ranking.scores, n_classes=5)
    assert isinstance(listed.labels, torch.Tensor)
    assert listed.labels.tolist() == ranking.labels.tolist()


def test_lists_and_integers_are_accepted_as_scores():
    assert Ranking.from_scores([[3, 1, 3]]).labels.tolist() == [[2, 0, 1]]


def test_as_ranking_returns_a_ranking_unchanged():
    ranking = Ranking.from_scores([[1.0, 2.0]])
    assert as_ranking(ranking) is ranking
    assert as_ranking([[1.0, 2.0]]).labels.tolist() == [[1, 0]]


# Rows


ROWS = [
    slice(1, 4),
    slice(None, None, 2),
    slice(None, None, -1),
    [4, 0, 0],
    [-1],
    np.array([True, False, True, False, True]),
    [True, False, False, False, True],
    torch.tensor([3, 1]),
]


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("sorted_before", [False, True])
@pytest.mark.parametrize("source", ["scores", "candidates"])
def test_indexing_selects_rows(rows, sorted_before, source):
    scores = tied_scores(5, 8, 3)
    ranking = Ranking.from_scores(scores)
    if source == "candidates":
        ranking = Ranking.from_candidates(ranking.labels[:, :6], ranking.scores[:, :6], n_classes=8)
    elif sorted_before:
        ranking.top(8)
    part = ranking[rows]
    index = np.arange(5)[rows.numpy() if isinstance(rows, torch.Tensor) else rows]
    assert len(part) == len(index)
    assert np.array_equal(part.labels, ranking.labels[index])
    assert np.array_equal(part.scores, ranking.scores[index])
    y = np.arange(5)
    assert np.array_equal(part.rank(y[index]), ranking.rank(y)[index])


def test_invalid_row_selections_raise():
    ranking = Ranking.from_scores(tied_scores(3, 4, 2))
    with pytest.raises(TypeError, match=r"ranking\[\[1\]\]"):
        ranking[1]
    with pytest.raises(TypeError):  # Iteration over rows is not supported.
        list(ranking)
    with pytest.raises(IndexError, match="row 3 is not one of 3 rows"):
        ranking[[3]]
    for empty in ([], slice(0, 0), [False] * 3):
        with pytest.raises(ValueError, match="at least one row"):
            ranking[empty]


# Invalid scores


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ranking.from_scores([[0.1, np.nan]]), "scores holds nan at row 0, column 1"),
        (lambda: Ranking.from_scores([[0.1, -np.inf]]), "scores holds -inf at row 0, column 1"),
        (lambda: Ranking.from_scores(np.zeros((0, 3))), "scores is empty: shape (0, 3)"),
        (lambda: Ranking.from_scores([]), "got shape (0,)"),
        (lambda: Ranking.from_scores(np.ones((5, 1))), "shape (5, 1): one class only"),
        (lambda: Ranking.from_scores(np.ones(5)), "got shape (5,)"),
        (lambda: Ranking.from_scores(np.ones((2, 3)), depth=4), "depth = 4 is more than the 3"),
        (lambda: Ranking.from_scores(np.ones((2, 3)), depth=0), "at least 1; got 0"),
        (lambda: Ranking.from_scores(np.ones((2, 3)), classes=["a"]), "1 names, but there are 3"),
        (lambda: Ranking.from_scores(np.ones((2, 3))).rank([0]), "y has 1 labels"),
        (lambda: Ranking.from_scores(np.ones((2, 3))).rank([0.0, 1.0]), "y holds floats"),
    ],
)
def test_invalid_scores_raise(make, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (The messages differ.)
        make()
    assert message in str(error.value)


def test_repr():
    assert repr(Ranking.from_scores(np.ones((1200, 3)), depth=2)) == (
        "Ranking(1,200 rows of scores, 3 classes, depth 2)"
    )
    listed = Ranking.from_candidates([[0, 1]], [[2, 1]], n_classes=1000)
    assert repr(listed) == "Ranking(1 rows of candidates, 1,000 classes, depth 2)"


@settings(deadline=None)
@given(st.data())
def test_is_first_agrees_with_rank(data):
    rows, n = data.draw(st.integers(1, 6)), data.draw(st.integers(2, 5))
    dtype = data.draw(st.sampled_from([torch.float16, torch.float32, torch.float64]))
    counts = data.draw(st.lists(st.integers(0, 3), min_size=rows * n, max_size=rows * n))
    scores = torch.tensor(counts, dtype=dtype).view(rows, n)  # Few values: many ties.
    index = torch.tensor(data.draw(st.lists(st.integers(0, n - 1), min_size=rows, max_size=rows)))
    ranking = Ranking.from_scores(scores)
    expected = ranking.rank_of(index) == 0
    assert torch.equal(ranking.is_first(index), expected)
    own = scores.gather(1, index[:, None])
    untied = (scores == own).sum(dim=1) == 1
    assert torch.equal(ranking.is_first(index, untied), expected)
    assert torch.equal(ranking.row_sums(), scores.sum(dim=1).to(ranking.row_sums().dtype))
    assert torch.equal(ranking[:1].known_row_sums, ranking.row_sums()[:1])
    # The row sums came with the largest scores, from which few rows have to be read.
    assert torch.equal(ranking.is_first(index), expected)
    assert torch.equal(ranking.is_first(index, untied), expected)
    order = torch.randperm(rows)
    assert torch.equal(ranking.view(order).is_first(index[order], untied[order]), expected[order])


def test_a_view_has_the_rows_of_a_copy():
    scores = torch.randn(40, 6)
    ranking = Ranking.from_scores(scores)
    rows = torch.tensor([7, 3, 3, 39])
    for view in (ranking.view(rows), ranking.view(torch.arange(40)).view(rows)):
        assert len(view) == 4
        assert view.shape == (4, 6)
        assert view.labels.tolist() == ranking[rows].labels.tolist()
        assert torch.equal(view.scores_of(slice(1, 3)), scores[[3, 3]])
    candidates = Ranking.from_candidates([[2, 1], [0, 2]], [[0.5, 0.1], [0.7, 0.2]], n_classes=3)
    assert candidates.view([1]).labels.tolist() == [[0, 2]]


@settings(deadline=None)
@given(st.data())
def test_known_row_sums_do_not_change_the_levels_of_labels(data):
    """Row sums only show which rows need no search for ties."""
    rows, n = data.draw(st.integers(1, 6)), data.draw(st.integers(2, 5))
    counts = data.draw(st.lists(st.integers(0, 3), min_size=rows * n, max_size=rows * n))
    scores = torch.tensor(counts, dtype=torch.float32).view(rows, n)
    index = torch.tensor(data.draw(st.lists(st.integers(0, n - 1), min_size=rows, max_size=rows)))
    ranking = Ranking.from_scores(scores)
    levels = ColumnLevels(scores).never_empty().of_labels(ranking, index)
    known = ColumnLevels(scores, scores.sum(dim=1)).never_empty()
    assert torch.equal(known.of_labels(ranking, index), levels)
    p = torch.softmax(scores, dim=1)
    levels = ColumnLevels(p).never_empty().of_labels(ranking, index)
    assert torch.equal(ColumnLevels(p, 1.0).never_empty().of_labels(ranking, index), levels)


def test_row_sums_of_negative_scores_are_not_cached():
    ranking = Ranking.from_scores(torch.tensor([[3.0, 3.0, -10.0]]))
    assert ranking.row_sums().tolist() == [-4.0]
    assert ranking.known_row_sums is None


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("threshold", [0.1, 0.7, 2.0])
def test_labels_at_least_a_threshold_are_in_order(threads, threshold, monkeypatch):
    monkeypatch.setenv("SHORTLIST_THREADS", str(threads))
    monkeypatch.setattr("shortlist._utils.threads.MIN_PARALLEL_ELEMENTS", 0)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 40, (300, 70), generator=generator) / 40  # Many ties.
    thresholds = torch.full((300, 1), threshold)
    thresholds[::7] = 0.5
    row, column = labels_at_least(scores, thresholds, scores)
    expected = [
        (i, j)
        for i, (values, at) in enumerate(
            zip(scores.tolist(), thresholds[:, 0].tolist(), strict=True)
        )
        for j in brute_order(values)
        if values[j] >= at
    ]
    assert list(zip(row.tolist(), column.tolist(), strict=True)) == expected
