"""Quantile ranks and reachable accuracies, against exact fractions and simulated draws."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from binomial import DECIMALS, DELTAS, FEW_EXAMPLES, binomial_cdf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from shortlist.conformal.quantiles import UnreachableError, threshold
from shortlist.conformal.ranks import max_accuracy, min_calibration_size, quantile_rank

# Ranks


@given(DECIMALS, st.integers(0, 100_000))
@example(Fraction(9, 10), 9)
@example(Fraction(9, 10), 29)
@example(Fraction(7, 10), 9)
@example(Fraction(99, 100), 99)
@FEW_EXAMPLES
def test_the_rank_is_the_exact_floor(accuracy, rows):
    alpha = 1 - accuracy
    rank = quantile_rank(rows, float(accuracy))
    assert rank <= alpha * (rows + 1) < rank + 1


@pytest.mark.parametrize("accuracy", [0.9, 0.8, 0.7, 0.6, 0.95, 0.99, 0.999, 0.975])
def test_the_rank_where_alpha_times_rows_is_whole(accuracy):
    """In floating point, alpha (m + 1) is just below a whole number for many of these."""
    alpha = 1 - Fraction(str(accuracy))
    for rank in range(1, 40):
        rows = rank * alpha.denominator // math.gcd(alpha.numerator, alpha.denominator) - 1
        assert quantile_rank(rows, accuracy) == alpha * (rows + 1)


def coverage(rows: int, rank: int) -> Fraction:
    """Return P(new level >= the rank-th lowest of `rows` levels), by enumeration.

    The new level is equally likely to have any place among the `rows` + 1 levels, without ties.
    """
    hits = sum(
        rank == 0 or place >= sorted(set(range(rows + 1)) - {place})[rank - 1]
        for place in range(rows + 1)
    )
    return Fraction(hits, rows + 1)


@pytest.mark.parametrize("accuracy", [0.5, 0.6, 0.75, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("rows", range(41))
def test_the_guarantee_holds_and_is_tight(rows, accuracy):
    rank = quantile_rank(rows, accuracy)
    kept = coverage(rows, rank)
    assert kept == 1 - Fraction(rank, rows + 1)
    wanted = Fraction(str(accuracy))
    assert wanted <= kept <= wanted + Fraction(1, rows + 1)


def test_the_ceiling_rank_falls_short():
    short = 0
    for rows in range(1, 60):
        for accuracy in (Fraction(9, 10), Fraction(4, 5), Fraction(19, 20)):
            ceiling = math.ceil((1 - accuracy) * (rows + 1))
            if ceiling <= rows and coverage(rows, ceiling) < accuracy:
                short += 1
                assert quantile_rank(rows, float(accuracy)) == ceiling - 1
    assert short > 100


def test_the_ceiling_rank_falls_short_in_a_simulation():
    rows, accuracy, draws = 25, 0.9, 20_000
    scores = np.random.default_rng(0).normal(size=(draws, rows + 1))
    calibration, new = np.sort(scores[:, :rows], axis=1), scores[:, rows]
    floor, ceiling = quantile_rank(rows, accuracy), math.ceil(0.1 * (rows + 1))
    error = 4 * math.sqrt(0.09 / draws)
    assert (new >= calibration[:, floor - 1]).mean() > accuracy - error
    assert (new >= calibration[:, ceiling - 1]).mean() < accuracy - error


# With delta: over the draw of the calibration rows


@given(st.integers(0, 300), DECIMALS, DELTAS)
@example(15, Fraction(1, 2), 0.5)  # P(Binomial < 8) is exactly one half
@FEW_EXAMPLES
def test_the_rank_with_delta_is_the_largest_allowed(rows, accuracy, delta):
    alpha, limit = 1 - accuracy, Fraction(str(delta))
    rank = quantile_rank(rows, float(accuracy), delta)
    assert 0 <= rank <= rows
    # Where a tail equals delta, rounding may make the rank one too low.
    rounding = Fraction(1, 10**12)
    assert rank == 0 or binomial_cdf(rank - 1, rows, alpha) <= limit * (1 + rounding)
    if rank < rows:
        assert binomial_cdf(rank, rows, alpha) > limit * (1 - rounding)


@pytest.mark.parametrize(
    ("rows", "accuracy", "delta"), [(1, 0.9, 0.9), (1, 0.5, 0.5), (2, 0.5, 0.25)]
)
def test_a_tail_that_equals_delta_is_allowed(rows, accuracy, delta):
    assert quantile_rank(rows, accuracy, delta) == 1  # P(Binomial = 0) is delta


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.5])
@pytest.mark.parametrize("rows", [100, 1_000, 20_000])
@pytest.mark.parametrize("accuracy", [0.8, 0.9, 0.99])
def test_delta_bounds_the_distribution_of_the_accuracy(rows, accuracy, delta):
    """With the r-th lowest of m levels, the accuracy has the distribution Beta(m + 1 - r, r)."""
    rank = quantile_rank(rows, accuracy, delta)
    if rank:
        assert beta.cdf(accuracy, rows + 1 - rank, rank) <= delta
    assert beta.cdf(accuracy, rows - rank, rank + 1) > delta


def test_delta_holds_in_a_simulation():
    rows, accuracy, delta, draws = 200, 0.9, 0.1, 4_000
    scores = np.sort(np.random.default_rng(1).random((draws, rows)), axis=1)
    rank = quantile_rank(rows, accuracy, delta)
    short = (
        1 - scores[:, rank - 1] < accuracy
    ).mean()  # Levels are uniform: the accuracy is 1 - q.
    assert 0.05 < short < delta + 3 * math.sqrt(delta * (1 - delta) / draws)
    one_more = (1 - scores[:, rank] < accuracy).mean()
    assert one_more > delta


# Smallest calibration sizes and largest accuracies


@given(DECIMALS, st.none() | DELTAS)
@FEW_EXAMPLES
def test_the_min_calibration_size_is_enough_and_minimal(accuracy, delta):
    rows = min_calibration_size(float(accuracy), delta)
    assert rows >= 1
    assert quantile_rank(rows, float(accuracy), delta) >= 1
    assert quantile_rank(rows - 1, float(accuracy), delta) == 0


@given(st.floats(1e-300, 1 - 1e-9), st.none() | DELTAS)
@settings(max_examples=80, deadline=None)
def test_min_calibration_sizes_of_extreme_accuracies(accuracy, delta):
    rows = min_calibration_size(accuracy, delta)
    assert quantile_rank(rows, accuracy, delta) >= 1
    assert quantile_rank(rows - 1, accuracy, delta) == 0


@pytest.mark.parametrize(
    ("accuracy", "delta", "rows"),
    [(0.9, None, 9), (0.99, None, 99), (0.7, None, 3), (0.9, 0.05, 29), (0.99, 0.01, 459)],
)
def test_min_calibration_sizes_of_the_literature(accuracy, delta, rows):
    assert min_calibration_size(accuracy, delta) == rows


@given(st.integers(1, 3000), st.integers(0, 40), st.none() | DELTAS)
@example(10, 0, None)  # The float nearest to 10/11 is above it.
@FEW_EXAMPLES
def test_max_accuracy_is_a_supremum(rows, unlisted, delta):
    most = max_accuracy(rows, unlisted, delta)
    if unlisted >= rows:
        assert most == 0
        return
    more = most + 1e-9 * (1 - most)
    if delta is not None or not unlisted:
        assert quantile_rank(rows, most, delta) > unlisted
        assert quantile_rank(rows, more, delta) <= unlisted
    scores = np.r_[np.full(unlisted, -np.inf), np.arange(rows - unlisted)]
    assert threshold(scores, most, delta=delta) >= 0
    with pytest.raises(UnreachableError):
        threshold(scores, more, delta=delta)


def test_max_accuracy_without_listed_rows_is_zero():
    assert max_accuracy(0) == max_accuracy(3, 3) == max_accuracy(3, 7, delta=0.1) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantile_rank(-1, 0.9), "n_rows must be an integer of at least 0; got -1"),
        (lambda: quantile_rank(-1, 0.9, 0.1), "n_rows must be an integer of at least 0; got -1"),
        (lambda: quantile_rank(9, 0.9, delta=1.0), "delta must lie strictly between 0 and 1"),
        (lambda: min_calibration_size(1.0), "accuracy must lie strictly between 0 and 1; got 1.0"),
        (lambda: min_calibration_size(0.9, 0.0), "delta must lie"),
        (lambda: max_accuracy(9, delta=2.0), "delta must lie"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        call()
    assert not isinstance(error.value, UnreachableError)
