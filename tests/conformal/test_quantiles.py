"""Ranks, tails and tests, against exact fractions, enumeration and simulated draws."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from shortlist.conformal.quantiles import (
    UnreachableError,
    accuracy_bound,
    fixed_sequence,
    max_accuracy,
    min_calibration_size,
    miscoverage,
    p_values,
    quantile_rank,
    round_down,
    threshold,
)

# What a person writes: up to four decimals, strictly between 0 and 1.
decimals = st.integers(1, 9999).map(lambda n: Fraction(n, 10_000))
deltas = st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9])
some = settings(max_examples=150, deadline=None)


def at_most(k: int, rows: int, p: Fraction) -> Fraction:
    """P(Binomial(rows, p) <= k), exactly."""
    hit, miss = p.numerator, p.denominator - p.numerator
    total = sum(math.comb(rows, i) * hit**i * miss ** (rows - i) for i in range(k + 1))
    return Fraction(total, p.denominator**rows)


# Ranks


@given(decimals)
@some
def test_alpha_is_the_decimal_that_was_written(accuracy):
    assert miscoverage(float(accuracy)) == 1 - accuracy
    assert miscoverage(np.float64(accuracy)) == 1 - accuracy


@given(decimals, st.integers(0, 100_000))
@example(Fraction(9, 10), 9)
@example(Fraction(9, 10), 29)
@example(Fraction(7, 10), 9)
@example(Fraction(99, 100), 99)
@some
def test_the_rank_is_the_exact_floor(accuracy, rows):
    alpha = 1 - accuracy
    rank = quantile_rank(rows, float(accuracy))
    assert rank <= alpha * (rows + 1) < rank + 1


@pytest.mark.parametrize("accuracy", [0.9, 0.8, 0.7, 0.6, 0.95, 0.99, 0.999, 0.975])
def test_the_rank_where_alpha_times_rows_is_whole(accuracy):
    """In floating point, alpha (m + 1) falls just short of a whole number at many of these."""
    alpha = 1 - Fraction(str(accuracy))
    for rank in range(1, 40):
        rows = rank * alpha.denominator // math.gcd(alpha.numerator, alpha.denominator) - 1
        assert quantile_rank(rows, accuracy) == alpha * (rows + 1)


def coverage(rows: int, rank: int) -> Fraction:
    """P(new score >= the rank-th lowest of `rows`), all in random order without ties: over every
    place that the new score can take among the rows + 1."""
    held = sum(
        rank == 0 or place >= sorted(set(range(rows + 1)) - {place})[rank - 1]
        for place in range(rows + 1)
    )
    return Fraction(held, rows + 1)


@pytest.mark.parametrize("accuracy", [0.5, 0.6, 0.75, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("rows", range(41))
def test_the_guarantee_is_kept_and_not_overdone(rows, accuracy):
    rank = quantile_rank(rows, accuracy)
    got = coverage(rows, rank)
    assert got == 1 - Fraction(rank, rows + 1)
    asked = Fraction(str(accuracy))
    assert asked <= got <= asked + Fraction(1, rows + 1)


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


# The stronger form, over the draw of the calibration rows


@given(st.integers(0, 300), decimals, deltas)
@example(15, Fraction(1, 2), 0.5)  # P(Binomial < 8) is one half exactly
@some
def test_the_rank_with_delta_is_the_largest_allowed(rows, accuracy, delta):
    alpha, limit = 1 - accuracy, Fraction(str(delta))
    rank = quantile_rank(rows, float(accuracy), delta)
    assert 0 <= rank <= rows
    rounding = Fraction(1, 10**12)  # the rank may be one too low where a tail equals delta
    assert rank == 0 or at_most(rank - 1, rows, alpha) <= limit * (1 + rounding)
    if rank < rows:
        assert at_most(rank, rows, alpha) > limit * (1 - rounding)


@pytest.mark.parametrize(
    ("rows", "accuracy", "delta"), [(1, 0.9, 0.9), (1, 0.5, 0.5), (2, 0.5, 0.25)]
)
def test_a_tail_that_is_delta_itself_is_allowed(rows, accuracy, delta):
    assert quantile_rank(rows, accuracy, delta) == 1  # P(Binomial = 0) is delta


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.5])
@pytest.mark.parametrize("rows", [100, 1_000, 20_000])
@pytest.mark.parametrize("accuracy", [0.8, 0.9, 0.99])
def test_delta_bounds_the_law_of_the_accuracy(rows, accuracy, delta):
    """The accuracy of the r-th lowest of m scores has the law Beta(m + 1 - r, r)."""
    rank = quantile_rank(rows, accuracy, delta)
    if rank:
        assert beta.cdf(accuracy, rows + 1 - rank, rank) <= delta
    assert beta.cdf(accuracy, rows - rank, rank + 1) > delta


def test_delta_holds_in_a_simulation():
    rows, accuracy, delta, draws = 200, 0.9, 0.1, 4_000
    scores = np.sort(np.random.default_rng(1).random((draws, rows)), axis=1)
    rank = quantile_rank(rows, accuracy, delta)
    short = (1 - scores[:, rank - 1] < accuracy).mean()  # uniform scores: coverage is 1 - q
    assert 0.05 < short < delta + 3 * math.sqrt(delta * (1 - delta) / draws)
    one_more = (1 - scores[:, rank] < accuracy).mean()
    assert one_more > delta


# How many rows, and how much can be guaranteed


@given(decimals, st.none() | deltas)
@some
def test_the_fewest_rows_are_enough_and_the_fewest(accuracy, delta):
    rows = min_calibration_size(float(accuracy), delta)
    assert rows >= 1
    assert quantile_rank(rows, float(accuracy), delta) >= 1
    assert quantile_rank(rows - 1, float(accuracy), delta) == 0


@given(st.floats(1e-300, 1 - 1e-9), st.none() | deltas)
@settings(max_examples=80, deadline=None)
def test_the_fewest_rows_of_extreme_accuracies(accuracy, delta):
    rows = min_calibration_size(accuracy, delta)
    assert quantile_rank(rows, accuracy, delta) >= 1
    assert quantile_rank(rows - 1, accuracy, delta) == 0


@pytest.mark.parametrize(
    ("accuracy", "delta", "rows"),
    [(0.9, None, 9), (0.99, None, 99), (0.7, None, 3), (0.9, 0.05, 29), (0.99, 0.01, 459)],
)
def test_the_fewest_rows_that_books_print(accuracy, delta, rows):
    assert min_calibration_size(accuracy, delta) == rows


@given(st.integers(1, 3000), st.integers(0, 40), st.none() | deltas)
@example(10, 0, None)  # the float nearest to 10/11 lies above it
@some
def test_the_best_guarantee_is_a_supremum(rows, lost, delta):
    most = max_accuracy(rows, lost, delta)
    if lost >= rows:
        assert most == 0
        return
    more = most + 1e-9 * (1 - most)
    if delta is not None or not lost:
        assert quantile_rank(rows, most, delta) > lost
        assert quantile_rank(rows, more, delta) <= lost
    scores = np.r_[np.full(lost, -np.inf), np.arange(rows - lost)]
    assert threshold(scores, most, delta=delta) >= 0
    with pytest.raises(UnreachableError):
        threshold(scores, more, delta=delta)


def test_the_best_guarantee_without_rows_is_none():
    assert max_accuracy(0) == max_accuracy(3, lost=3) == max_accuracy(3, lost=7, delta=0.1) == 0.0


@given(st.floats(0, 1, exclude_max=True) | decimals.map(float))
@example(0.29)  # a hundred thousand times this is just below 29,000 in floating point
@some
def test_an_accuracy_in_words_never_exceeds_itself(accuracy):
    shown = Fraction(round_down(accuracy))
    assert shown <= Fraction(repr(accuracy)) < shown + Fraction(1, 100_000)


# Thresholds


@given(st.lists(st.floats(-5, 5), min_size=9, max_size=60), st.floats(0.5, 0.9))
@settings(max_examples=60, deadline=None)
def test_the_threshold_is_a_calibration_score(values, accuracy):
    scores = np.sort(values)
    q = threshold(scores, accuracy)
    assert q == scores[quantile_rank(len(scores), accuracy) - 1]
    assert type(q) is float


@pytest.mark.parametrize(
    ("scores", "accuracy", "delta", "said"),
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
def test_what_cannot_be_guaranteed(scores, accuracy, delta, said):
    with pytest.raises(UnreachableError, match="cannot be guaranteed") as error:
        threshold(np.array(scores), accuracy, delta=delta)
    for words in said:
        assert words in str(error.value)
    assert isinstance(error.value, ValueError)
    assert threshold(np.array(scores), accuracy, delta=delta, on_unreachable="all") == -math.inf


def test_labels_that_cannot_be_had_are_misses_that_may_be_tolerated():
    scores = np.r_[[-np.inf] * 3, np.arange(36.0)]  # four of 39 may be missed at 0.9
    assert threshold(scores, 0.9, on_unreachable="all") == 0.0
    assert threshold(scores[1:], 0.9, on_unreachable="all") == 0.0  # three of 38
    assert threshold(scores[:-1], 0.9, on_unreachable="all") == -np.inf
    # That such labels are rare enough has to be shown where nothing else makes up for them.
    with pytest.raises(UnreachableError, match=r"3 of the 39 \(7\.69%\) have a label that no set"):
        threshold(scores, 0.9)
    assert threshold(scores, 0.7) >= 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: threshold(np.arange(9.0), 0.9, on_unreachable="every"), "got 'every'"),
        (lambda: threshold(np.arange(9.0), 90), "accuracy must lie strictly between 0 and 1"),
        (lambda: quantile_rank(-1, 0.9), "rows must be an integer of at least 0; got -1"),
        (lambda: quantile_rank(-1, 0.9, 0.1), "rows must be an integer of at least 0; got -1"),
        (lambda: quantile_rank(9, 0.9, delta=1.0), "delta must lie strictly between 0 and 1"),
        (lambda: min_calibration_size(1.0), "accuracy must lie strictly between 0 and 1; got 1.0"),
        (lambda: min_calibration_size(0.9, 0.0), "delta must lie"),
        (lambda: max_accuracy(9, delta=2.0), "delta must lie"),
        (lambda: accuracy_bound(11, 10), "hits = 11 of rows = 10"),
        (lambda: accuracy_bound(-1, 10), "hits = -1 of rows = 10"),
        (lambda: accuracy_bound(5, 10, delta=0.0), "delta must lie"),
        (lambda: fixed_sequence([5, 11], 10, 0.9, 0.05), "hits = [5, 11] of rows = 10"),
        (lambda: fixed_sequence([-1], 10, 0.9, 0.05), "hits = [-1] of rows = 10"),
        (lambda: fixed_sequence([5], 10, 0.9, 5), "delta must lie"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        call()
    assert not isinstance(error.value, UnreachableError)


# p-values

few_values = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=40)


@given(few_values, few_values, decimals)
@some
def test_p_values_and_thresholds_hold_the_same_labels(calibration, new, accuracy):
    scores, asked = np.sort(calibration), np.array(new)
    q = threshold(scores, float(accuracy), on_unreachable="all")
    p = p_values(scores, asked)
    np.testing.assert_array_equal(p > float(miscoverage(float(accuracy))), asked >= q)


@given(few_values, few_values)
@settings(max_examples=60, deadline=None)
def test_p_values_by_counting(calibration, new):
    got = p_values(np.sort(calibration), np.array(new))
    m = len(calibration)
    for p, value in zip(got, new, strict=True):
        assert p == (1 + sum(c <= value for c in calibration)) / (m + 1)


def test_p_values_of_exchangeable_scores_are_uniform_or_larger():
    """P(p <= t) <= t at every t, with equality at the steps if there are no ties."""
    places = range(8)
    without_ties = [p_values(np.delete(np.arange(8.0), i), np.array([i]))[0] for i in places]
    assert sorted(without_ties) == [k / 8 for k in range(1, 9)]
    tied = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 3.0, 3.0])
    values = np.array([p_values(np.delete(tied, i), tied[i : i + 1])[0] for i in places])
    assert all((values <= t / 8).mean() <= t / 8 for t in range(9))


# Bounds on an accuracy that was seen


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("rows", [1, 5, 30])
def test_the_bound_fails_with_probability_delta_at_most(rows, delta):
    bounds = [accuracy_bound(hits, rows, delta) for hits in range(rows + 1)]
    assert bounds == sorted(set(bounds))
    worst = 0.0
    # The failures jump just below each bound, where it is first too high.
    for truth in [*np.linspace(0.01, 0.99, 99), *(b * (1 - 1e-9) for b in bounds[1:])]:
        law = [math.comb(rows, h) * truth**h * (1 - truth) ** (rows - h) for h in range(rows + 1)]
        failing = sum(p for p, bound in zip(law, bounds, strict=True) if bound > truth)
        worst = max(worst, failing)
    assert worst <= delta * (1 + 1e-9)
    assert worst == pytest.approx(delta)  # and no larger bound would do


def test_bounds_that_are_known():
    assert accuracy_bound(0, 10) == 0.0
    assert accuracy_bound(10, 10) == pytest.approx(0.05 ** (1 / 10))
    assert accuracy_bound(59, 59, 0.05) == pytest.approx(0.95, abs=1e-3)


# Tests one after the other


@given(st.lists(st.integers(0, 60), max_size=8), decimals, deltas)
@some
def test_the_sequence_ends_at_the_first_failure(hits, accuracy, delta):
    limit = Fraction(str(delta))
    tails = [at_most(60 - h, 60, 1 - accuracy) for h in hits]
    if any(abs(float(tail / limit) - 1) < 1e-9 for tail in tails):
        return  # a tie that rounding decides
    expected = next((i for i, tail in enumerate(tails) if tail > limit), len(hits))
    assert fixed_sequence(hits, 60, float(accuracy), delta) == expected
    bounds = [accuracy_bound(h, 60, delta) >= accuracy for h in hits]
    assert expected == next((i for i, good in enumerate(bounds) if not good), len(hits))


def test_sequences_that_are_known():
    assert fixed_sequence([], 10, 0.9, 0.05) == 0
    # 29 hits in a row are the fewest that show 0.9 at 0.05.
    assert fixed_sequence([29, 29], 29, 0.9, 0.05) == 2
    assert fixed_sequence([28], 28, 0.9, 0.05) == 0
    assert fixed_sequence([100, 50, 100], 100, 0.9, 0.05) == 1


@pytest.mark.parametrize("together", [True, False])
def test_the_sequence_errs_with_probability_delta_at_most(together):
    """Candidates whose accuracies fall through the one asked for; any that is passed although it
    falls short is an error. Drawn apart, or nested, as sets that shrink together would be."""
    rng = np.random.default_rng(3)
    rows, accuracy, delta, draws = 150, 0.9, 0.1, 600
    truth = np.array([0.98, 0.95, 0.92, 0.8999, 0.8995, 0.88, 0.8999])
    errors = everything = 0
    for _ in range(draws):
        u = rng.random((rows, 1 if together else len(truth)))
        hits = (u < truth).sum(axis=0).tolist()
        passed = fixed_sequence(hits, rows, accuracy, delta)
        errors += bool((truth[:passed] < accuracy).any())
        # Without the order, one test in several errs far more often.
        everything += any(
            fixed_sequence([h], rows, accuracy, delta)
            for h, t in zip(hits, truth, strict=True)
            if t < accuracy
        )
    error = 3 * math.sqrt(delta * (1 - delta) / draws)
    assert errors / draws <= delta + error
    if not together:
        assert everything / draws > delta + error


def test_the_sequence_errs_as_often_as_it_may():
    """With one candidate just short of the accuracy, the error is the binomial tail itself."""
    rows, accuracy, delta = 60, 0.9, 0.1
    alpha = Fraction(1, 10)
    law = [at_most(m, rows, alpha) - (at_most(m - 1, rows, alpha) if m else 0) for m in range(61)]
    passing = [m for m in range(61) if fixed_sequence([rows - m], rows, accuracy, delta)]
    size = sum(law[m] for m in passing)
    assert size <= Fraction(1, 10) < size + law[len(passing)]
    assert passing == list(range(len(passing)))


def test_two_candidates_by_enumeration():
    """Every table of hits: two candidates, three rows each, probabilities as fractions."""
    truth, accuracy, delta = (Fraction(1, 2), Fraction(2, 5)), 0.6, 0.3
    cells = range(6)
    error = Fraction(0)
    for size in range(7):
        for held in combinations(cells, size):
            weight = Fraction(1)
            for cell in cells:
                p = truth[cell // 3]
                weight *= p if cell in held else 1 - p
            hits = [sum(c // 3 == k for c in held) for k in range(2)]
            error += weight * (fixed_sequence(hits, 3, accuracy, delta) > 0)
    assert error == Fraction(1, 8)  # the first passes by three hits (0.6³ <= 0.3), not by two
