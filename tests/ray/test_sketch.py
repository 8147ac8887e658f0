"""Counts of conformal scores: what is rounded, and that guarantees hold all the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shortlist.conformal.quantiles import min_calibration_size, threshold
from shortlist.ray import sketch as _sketch
from shortlist.ray.sketch import BITS, Sketch

numbers = st.floats(-50, 50) | st.sampled_from([0.0, -0.0, math.inf, -math.inf, 1e-30, -1e-30])


@given(arrays(np.float64, st.integers(1, 60), elements=numbers))
@settings(max_examples=200, deadline=None)
def test_scores_are_rounded_down_by_little(scores) -> None:
    found = np.repeat((sketch := Sketch.of(scores)).values(), sketch.counts)
    rising = np.sort(scores)
    assert sketch.rows == len(scores)
    assert (found <= rising).all()
    finite = np.isfinite(rising)
    error = rising[finite] - found[finite]
    assert (error <= np.abs(rising[finite]) * 2.0**-BITS + 1e-300).all()
    assert np.array_equal(np.isinf(found), np.isinf(rising))


@given(arrays(np.float64, st.integers(2, 60), elements=numbers), st.integers(1, 59))
@settings(max_examples=100, deadline=None)
def test_parts_merge_to_the_whole(scores, cut) -> None:
    one, other, whole = (Sketch.of(s) for s in (scores[:cut], scores[cut:], scores))
    for merged in (one + other, other + one):
        assert np.array_equal(merged.bins, whole.bins)
        assert np.array_equal(merged.counts, whole.counts)


@given(st.integers(1, 400), st.integers(1, 50), st.floats(0.05, 0.99), st.integers(0, 99))
@settings(max_examples=300, deadline=None)
def test_stand_ins_guarantee_no_more_than_all_rows(rows, most, accuracy, seed) -> None:
    """And by no more than two groups less."""
    rng = np.random.default_rng(seed)
    scores = np.round(rng.standard_normal(rows), 1 if seed % 2 else 12)
    few = Sketch.of(scores).stand_ins(most)
    assert len(few) <= most
    group = -(-rows // most)
    if len(few) < min_calibration_size(accuracy):
        return
    lower = threshold(few, accuracy)
    assert lower <= threshold(np.sort(scores), accuracy)
    needed = math.ceil(accuracy * (rows + 1))
    above = int((scores > lower + 2.0**-BITS * abs(lower)).sum())
    assert above <= needed + 2 * group  # not many rows more than needed


def test_with_a_probability_too() -> None:
    rng = np.random.default_rng(0)
    scores = np.sort(rng.standard_normal(30_000))
    few = Sketch.of(scores).stand_ins(1000)
    for accuracy in (0.5, 0.9, 0.99):
        assert threshold(few, accuracy, delta=0.1) <= threshold(scores, accuracy, delta=0.1)


def test_error_in_accuracy_is_as_stated(monkeypatch) -> None:
    """Two groups: 2 / LEVELS."""
    monkeypatch.setattr(_sketch, "LEVELS", 1 << 12)
    rng = np.random.default_rng(1)
    scores = np.sort(rng.random(200_000))
    few = Sketch.of(scores).stand_ins(1 << 12)
    for accuracy in (0.8, 0.95, 0.999):
        kept = (scores >= threshold(few, accuracy)).mean()
        assert accuracy <= kept <= accuracy + 2 / len(few) + 2.0**-BITS + 2 / len(scores)


def test_by_class_needs_each_row() -> None:
    from shortlist.conformal import ClassConditional
    from shortlist.conformal.calibration import Calibration, RowSchema

    counted = Calibration(
        *(np.zeros(3), np.zeros(3, dtype=int), None, [], np.zeros(1), np.zeros(1), {}),
        schema=RowSchema(True, 3, (3, 3)),
        n_choosing=0,
        n_chosen_elsewhere=5,
    )
    with pytest.raises(ValueError, match="only counts are known, not their classes"):
        counted.fit(ClassConditional(), ["a", "b", "c"])
