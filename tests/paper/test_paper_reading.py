"""Sizes are read off curves, but not across gaps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.frontier import Frontier
from shortlist.paper.reading import (
    LARGEST_RATIO,
    REFINED_RATIO,
    reason,
    size_at,
    weights_to_add,
)


def test_a_size_between_distant_points_is_not_read():
    """The interpolation from size 2 to 18 that once gave a ratio of 1.92."""
    curve = Frontier([0.7, 0.75, 0.92], [1.8, 2.0, 18.0], [0.3, 0.2, 0.1])
    assert size_at(curve, 0.72) == pytest.approx(1.88)
    assert math.isnan(size_at(curve, 0.8))
    assert [reason(curve, a) for a in (0.72, 0.8, 0.95)] == ["", "gap", "not reached"]
    assert size_at(curve, 0.92) == 18.0  # This is the size of a point.


def test_top_k_is_read_between_whole_numbers():
    curve = Frontier([0.7, 0.9], [1.0, 2.0], [1, 2], "size")
    assert size_at(curve, 0.8) == pytest.approx(1.5)
    assert reason(curve, 0.8) == ""


def test_dominated_points_do_not_close_a_gap():
    curve = Frontier([0.7, 0.69, 0.9], [1.0, 1.2, 1.4], [0.3, 0.2, 0.1])
    assert reason(curve, 0.8) == "gap"


@given(st.lists(st.floats(1, 60), min_size=2, max_size=12), st.floats(0, 1))
def test_a_size_is_that_of_the_frontier_or_there_is_a_reason(sizes, share):
    sizes = np.unique(sizes)
    curve = Frontier(np.linspace(0.5, 0.9, len(sizes)), sizes, np.linspace(1, 0.1, len(sizes)))
    at = 0.5 + 0.45 * share
    size = size_at(curve, at)
    assert math.isnan(size) == bool(reason(curve, at))
    if not math.isnan(size):
        assert size == float(curve.size_at(at))
        around = sizes[sizes <= size].max(), sizes[sizes >= size].min()
        assert around[1] <= LARGEST_RATIO * around[0] * (1 + 1e-9)


@given(st.lists(st.floats(1, 60), min_size=2, max_size=12))
def test_new_weights_lie_in_the_gaps_alone(sizes):
    weights = np.geomspace(0.5, 0.001, len(sizes)).tolist()
    added = weights_to_add(weights, sizes)
    for i in range(len(sizes) - 1):
        inside = [w for w in added if weights[i + 1] < w < weights[i]]
        ratio = max(sizes[i : i + 2]) / min(sizes[i : i + 2])
        assert bool(inside) == (ratio > REFINED_RATIO)
    assert not set(added) & set(weights)
