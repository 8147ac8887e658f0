"""Thresholds and p-values from calibration levels."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from binomial import DECIMALS, FEW_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.conformal.bounds import miscoverage
from shortlist.conformal.quantiles import UnreachableError, p_values, threshold
from shortlist.conformal.ranks import quantile_rank

# Thresholds


@given(st.lists(st.floats(-5, 5), min_size=9, max_size=60), st.floats(0.5, 0.9))
@settings(max_examples=60, deadline=None)
def test_the_threshold_is_a_calibration_level(values, accuracy):
    levels = np.sort(values)
    q = threshold(levels, accuracy)
    assert q == levels[quantile_rank(len(levels), accuracy) - 1]
    assert type(q) is float


@pytest.mark.parametrize(
    ("levels", "accuracy", "delta", "parts"),
    [
        (
            [0.1] * 5,
            0.9,
            None,
            [
                "accuracy = 0.9 cannot be guaranteed with 5 calibration rows: 9 are needed",
                "At most 0.83333 can be",
            ],
        ),
        ([0.1] * 28, 0.9, 0.05, ["(delta = 0.05)", "28 calibration rows: 29 are needed"]),
        ([0.1] * 28, 0.9, 0.05, ["At most 0.89853 can be"]),  # 0.05 ** (1 / 28)
        (
            [-math.inf] * 3 + [0.5] * 16,
            0.9,
            None,
            [
                "38 are needed",
                "3 of the 19 (15.8%) have a label that no set can contain",
                "At most 0.60289 can be",
            ],
        ),
        ([], 0.5, None, ["with 0 calibration rows: 1 are needed", "At most 0 can be"]),
        ([0.5] * 9, 0.9999999, None, ["accuracy = 0.9999999 cannot"]),
    ],
)
def test_unreachable_accuracies_raise(levels, accuracy, delta, parts):
    with pytest.raises(UnreachableError, match="cannot be guaranteed") as error:
        threshold(np.array(levels), accuracy, delta=delta)
    for part in parts:
        assert part in str(error.value)
    assert isinstance(error.value, ValueError)
    assert threshold(np.array(levels), accuracy, delta=delta, on_unreachable="all") == -math.inf


def test_unlisted_labels_count_as_misses():
    levels = np.r_[[-np.inf] * 3, np.arange(36.0)]  # Four of 39 may be missed at 0.9.
    assert threshold(levels, 0.9, on_unreachable="all") == 0.0
    assert threshold(levels[1:], 0.9, on_unreachable="all") == 0.0  # Three of 38.
    assert threshold(levels[:-1], 0.9, on_unreachable="all") == -np.inf
    # Without "all", a test must show that such labels are rare enough.
    with pytest.raises(UnreachableError, match=r"3 of the 39 \(7\.69%\) have a label that no set"):
        threshold(levels, 0.9)
    assert threshold(levels, 0.7) >= 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: threshold(np.arange(9.0), 0.9, on_unreachable="every"), "got 'every'"),
        (lambda: threshold(np.arange(9.0), 90), "accuracy must lie strictly between 0 and 1"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        call()
    assert not isinstance(error.value, UnreachableError)


# p-values

FEW_VALUES = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=40)


@given(FEW_VALUES, FEW_VALUES, DECIMALS)
@FEW_EXAMPLES
def test_p_values_and_thresholds_select_the_same_labels(calibration, new, accuracy):
    levels, new_levels = np.sort(calibration), np.array(new)
    q = threshold(levels, float(accuracy), on_unreachable="all")
    p = p_values(levels, new_levels)
    np.testing.assert_array_equal(p > float(miscoverage(float(accuracy))), new_levels >= q)


@given(FEW_VALUES, FEW_VALUES)
@settings(max_examples=60, deadline=None)
def test_p_values_by_counting(calibration, new):
    p_of_new = p_values(np.sort(calibration), np.array(new))
    m = len(calibration)
    for p, value in zip(p_of_new, new, strict=True):
        assert p == (1 + sum(c <= value for c in calibration)) / (m + 1)


def test_p_values_of_exchangeable_levels_are_uniform_or_larger():
    """P(p <= t) <= t at every t, with equality at the steps if there are no ties."""
    places = range(8)
    without_ties = [p_values(np.delete(np.arange(8.0), i), np.array([i]))[0] for i in places]
    assert sorted(without_ties) == [k / 8 for k in range(1, 9)]
    tied = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 3.0, 3.0])
    values = np.array([p_values(np.delete(tied, i), tied[i : i + 1])[0] for i in places])
    assert all((values <= t / 8).mean() <= t / 8 for t in range(9))
