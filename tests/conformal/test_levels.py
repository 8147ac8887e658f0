"""Levels: a label is in the set at a threshold if and only if its level reaches it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.conformal.levels import Levels

DEPTH = 7
eighths = st.integers(-2, 6).map(lambda n: n / 8)


@st.composite
def levels(draw: st.DrawFn) -> Levels:
    """Draw levels with many ties, and sizes for all rows or for each row."""
    rows, members = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    value = eighths | st.just(math.inf) | st.just(0.1)
    values = [
        sorted(draw(st.lists(value, min_size=members, max_size=members)), reverse=True)
        for _ in range(rows)
    ]
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    shared = draw(st.booleans())
    sizes = [
        sorted(draw(st.lists(st.integers(0, DEPTH), min_size=members, max_size=members)))
        for _ in range(1 if shared else rows)
    ]
    table = torch.tensor(sizes, dtype=draw(st.sampled_from([torch.int32, torch.int64])))
    return Levels(torch.tensor(values, dtype=dtype), table[0] if shared else table)


def sizes_of(given_: Levels, row: int) -> list[int]:
    return (given_.sizes if given_.sizes.ndim == 1 else given_.sizes[row]).tolist()


def brute_size(given_: Levels, row: int, q: float) -> int:
    """Return the size of the largest set whose level is at least q."""
    held = [
        s for v, s in zip(given_.values[row].tolist(), sizes_of(given_, row), strict=True) if v >= q
    ]
    return max(held, default=0)


def brute_level(given_: Levels, row: int, rank: float) -> float:
    """Return the highest level of a set that contains the rank."""
    held = [
        v
        for v, s in zip(given_.values[row].tolist(), sizes_of(given_, row), strict=True)
        if s > rank
    ]
    return max(held, default=-math.inf)


@given(levels(), st.lists(eighths | st.sampled_from([math.inf, -math.inf, 0.1]), min_size=1))
@settings(max_examples=150, deadline=None)
def test_sizes_at_thresholds(given_, thresholds):
    rows = len(given_.values)
    each = given_.sizes_at_each(torch.tensor(thresholds, dtype=torch.float64))
    assert each.shape == (rows, len(thresholds))
    for k, q in enumerate(thresholds):
        expected = [brute_size(given_, i, q) for i in range(rows)]
        assert given_.sizes_at(torch.tensor(q, dtype=torch.float64)).tolist() == expected
        assert each[:, k].tolist() == expected
    own = [thresholds[i % len(thresholds)] for i in range(rows)]
    got = given_.sizes_at(torch.tensor(own, dtype=torch.float64)).tolist()
    assert got == [brute_size(given_, i, q) for i, q in enumerate(own)]


@given(levels(), st.lists(st.integers(0, DEPTH + 2) | st.just(math.inf), min_size=5, max_size=5))
@settings(max_examples=150, deadline=None)
def test_levels_of_ranks(given_, ranks):
    rows = len(given_.values)
    request = torch.tensor(ranks[:rows], dtype=torch.float64)
    own = [brute_level(given_, i, rank) for i, rank in enumerate(ranks[:rows])]
    assert given_.of_rank(request).tolist() == own
    by_rank = given_.by_rank(DEPTH + 2)
    for rank in range(DEPTH + 2):
        expected = [brute_level(given_, i, rank) for i in range(rows)]
        assert by_rank[:, rank].tolist() == expected
        assert given_.of_rank(torch.full((rows,), float(rank))).tolist() == expected
    assert bool((by_rank[:, 1:] <= by_rank[:, :-1]).all())


@given(levels(), eighths | st.sampled_from([0.1, math.inf]))
@settings(max_examples=150, deadline=None)
def test_a_label_is_in_the_set_if_its_level_reaches_the_threshold(given_, q):
    size = given_.sizes_at(torch.tensor(q, dtype=torch.float64))
    inside = torch.arange(DEPTH) < size[:, None]
    assert torch.equal(inside, given_.by_rank(DEPTH).to(torch.float64) >= q)


@given(levels(), st.data())
@settings(max_examples=100, deadline=None)
def test_sets_are_limited_to_the_candidates(given_, data):
    rows = len(given_.values)
    listed = data.draw(st.lists(st.integers(0, DEPTH), min_size=rows, max_size=rows))
    cut = given_.within(torch.tensor(listed, dtype=torch.int32))
    assert cut.values is given_.values
    for q in (-1.0, 0.25, math.inf):
        got = cut.sizes_at(torch.tensor(q, dtype=torch.float64)).tolist()
        assert got == [min(brute_size(given_, i, q), listed[i]) for i in range(rows)]
    for rank in range(DEPTH):
        got = cut.of_rank(torch.full((rows,), float(rank))).tolist()
        assert got == [
            brute_level(given_, i, rank) if rank < listed[i] else -math.inf for i in range(rows)
        ]
    steps = cut.steps()
    assert steps.shape == given_.values.shape
    assert steps.cumsum(dim=1).tolist() == [
        [min(s, listed[i]) for s in sizes_of(given_, i)] for i in range(rows)
    ]


def test_levels_are_not_copied_if_there_are_enough_candidates():
    given_ = Levels(torch.tensor([[0.5, 0.25]]), torch.tensor([1, 3]))
    assert given_.within(torch.tensor([3])) is given_


@given(levels())
@settings(max_examples=60, deadline=None)
def test_sets_that_are_never_empty(given_):
    before = given_.values.clone()
    full = given_.never_empty()
    first = [sizes_of(given_, i)[0] for i in range(len(before))]
    assert full.sizes_at(torch.tensor(math.inf)).tolist() == [
        max(first[i], brute_size(given_, i, math.inf)) for i in range(len(before))
    ]
    assert torch.equal(full.values[:, 1:], before[:, 1:])
    assert torch.equal(given_.values, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_thresholds_are_compared_in_float64(dtype):
    given_ = Levels(torch.tensor([[0.75, 0.1]], dtype=dtype), torch.tensor([1, 2]))
    above = torch.tensor(0.75 + 2**-40, dtype=torch.float64)
    assert given_.sizes_at(above).tolist() == [0]
    assert given_.sizes_at_each(above[None]).tolist() == [[0]]
    assert given_.sizes_at(torch.tensor(0.75, dtype=torch.float64)).tolist() == [1]
