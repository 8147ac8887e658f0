"""Sketches of conformal scores: the rounding error, and the guarantees."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shortlist.conformal import min_calibration_size, threshold
from shortlist.ray.sketch import MANTISSA_BITS, Sketch

numbers = st.floats(-50, 50) | st.sampled_from([0.0, -0.0, math.inf, -math.inf, 1e-30, -1e-30])


@given(arrays(np.float64, st.integers(1, 60), elements=numbers))
@settings(max_examples=200, deadline=None)
def test_scores_are_rounded_down_within_the_bound(scores) -> None:
    sketch = Sketch.of(scores)
    rounded, exact = np.repeat(sketch.values(), sketch.counts), np.sort(scores)
    assert sketch.n_rows == len(scores)
    assert (rounded <= exact).all()
    finite = np.isfinite(exact)
    error = exact[finite] - rounded[finite]
    assert (error <= np.abs(exact[finite]) * 2.0**-MANTISSA_BITS + 1e-300).all()
    assert np.array_equal(np.isinf(rounded), np.isinf(exact))


@given(arrays(np.float64, st.integers(2, 60), elements=numbers), st.integers(1, 59))
@settings(max_examples=100, deadline=None)
def test_sketches_of_parts_add_to_the_sketch_of_all(scores, cut) -> None:
    one, other, whole = (Sketch.of(s) for s in (scores[:cut], scores[cut:], scores))
    for merged in (one + other, other + one):
        assert np.array_equal(merged.bins, whole.bins)
        assert np.array_equal(merged.counts, whole.counts)


@given(st.integers(1, 400), st.integers(1, 50), st.floats(0.05, 0.99), st.integers(0, 99))
@settings(max_examples=300, deadline=None)
def test_representatives_give_a_lower_threshold_by_at_most_two_groups(
    rows, max_count, accuracy, seed
) -> None:
    rng = np.random.default_rng(seed)
    scores = np.round(rng.standard_normal(rows), 1 if seed % 2 else 12)
    representatives = Sketch.of(scores).representatives(max_count)
    assert len(representatives) <= max_count
    group = -(-rows // max_count)
    if len(representatives) < min_calibration_size(accuracy):
        return
    lower = threshold(representatives, accuracy)
    assert lower <= threshold(np.sort(scores), accuracy)
    needed = math.ceil(accuracy * (rows + 1))
    above = int((scores > lower + 2.0**-MANTISSA_BITS * abs(lower)).sum())
    assert above <= needed + 2 * group


def test_thresholds_with_delta_are_lower_too() -> None:
    rng = np.random.default_rng(0)
    scores = np.sort(rng.standard_normal(30_000))
    representatives = Sketch.of(scores).representatives(1000)
    for accuracy in (0.5, 0.9, 0.99):
        assert threshold(representatives, accuracy, delta=0.1) <= threshold(
            scores, accuracy, delta=0.1
        )


def test_accuracy_exceeds_the_requested_one_by_at_most_two_groups() -> None:
    rng = np.random.default_rng(1)
    scores = np.sort(rng.random(200_000))
    representatives = Sketch.of(scores).representatives(1 << 12)
    for accuracy in (0.8, 0.95, 0.999):
        measured = (scores >= threshold(representatives, accuracy)).mean()
        assert (
            accuracy
            <= measured
            <= accuracy + 2 / len(representatives) + 2.0**-MANTISSA_BITS + 2 / len(scores)
        )


def test_guarantees_per_class_need_exact_scores() -> None:
    from shortlist.conformal import ClassConditional
    from shortlist.conformal.calibration import Calibration
    from shortlist.conformal.row_schema import RowSchema

    counted = Calibration(
        *(np.zeros(3), np.zeros(3, dtype=int), None, [], np.zeros(1), np.zeros(1), {}),
        schema=RowSchema(True, 3, (3, 3)),
        n_choosing=0,
        n_chosen_elsewhere=5,
    )
    with pytest.raises(ValueError, match="only counts of the calibration rows were kept"):
        counted.fit(ClassConditional(), ["a", "b", "c"])
