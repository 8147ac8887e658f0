"""Binomial bounds and fixed-sequence tests, against exact fractions and enumeration."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from binomial import DECIMALS, DELTAS, FEW_EXAMPLES, binomial_cdf
from hypothesis import example, given
from hypothesis import strategies as st

from shortlist.conformal.bounds import accuracy_bound, fixed_sequence, miscoverage, round_down

# Decimal arithmetic


@given(DECIMALS)
@FEW_EXAMPLES
def test_alpha_is_exact_for_the_decimal_as_written(accuracy):
    assert miscoverage(float(accuracy)) == 1 - accuracy
    assert miscoverage(np.float64(accuracy)) == 1 - accuracy


@given(st.floats(0, 1, exclude_max=True) | DECIMALS.map(float))
@example(0.29)  # 100,000 times this is just below 29,000 in floating point.
@FEW_EXAMPLES
def test_a_rounded_accuracy_never_exceeds_the_accuracy(accuracy):
    rounded = Fraction(round_down(accuracy))
    assert rounded <= Fraction(repr(accuracy)) < rounded + Fraction(1, 100_000)


# Bounds on a measured accuracy


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("rows", [1, 5, 30])
def test_the_bound_fails_with_probability_at_most_delta(rows, delta):
    bounds = [accuracy_bound(hits, rows, delta) for hits in range(rows + 1)]
    assert bounds == sorted(set(bounds))
    worst = 0.0
    # The failure probability jumps just below each bound, where the bound becomes too high.
    for truth in [*np.linspace(0.01, 0.99, 99), *(b * (1 - 1e-9) for b in bounds[1:])]:
        pmf = [math.comb(rows, h) * truth**h * (1 - truth) ** (rows - h) for h in range(rows + 1)]
        failing = sum(p for p, bound in zip(pmf, bounds, strict=True) if bound > truth)
        worst = max(worst, failing)
    assert worst <= delta * (1 + 1e-9)
    assert worst == pytest.approx(delta)  # No larger bound is valid.


def test_known_bounds():
    assert accuracy_bound(0, 10) == 0.0
    assert accuracy_bound(10, 10) == pytest.approx(0.05 ** (1 / 10))
    assert accuracy_bound(59, 59, 0.05) == pytest.approx(0.95, abs=1e-3)


# Fixed-sequence tests


@given(st.lists(st.integers(0, 60), max_size=8), DECIMALS, DELTAS)
@FEW_EXAMPLES
def test_the_sequence_ends_at_the_first_failure(hits, accuracy, delta):
    limit = Fraction(str(delta))
    tails = [binomial_cdf(60 - h, 60, 1 - accuracy) for h in hits]
    if any(abs(float(tail / limit) - 1) < 1e-9 for tail in tails):
        return  # Rounding decides such a tie.
    expected = next((i for i, tail in enumerate(tails) if tail > limit), len(hits))
    assert fixed_sequence(hits, 60, float(accuracy), delta) == expected
    bounds = [accuracy_bound(h, 60, delta) >= accuracy for h in hits]
    assert expected == next((i for i, good in enumerate(bounds) if not good), len(hits))


def test_known_sequences():
    assert fixed_sequence([], 10, 0.9, 0.05) == 0
    # 29 hits of 29 are the smallest number that shows 0.9 at 0.05.
    assert fixed_sequence([29, 29], 29, 0.9, 0.05) == 2
    assert fixed_sequence([28], 28, 0.9, 0.05) == 0
    assert fixed_sequence([100, 50, 100], 100, 0.9, 0.05) == 1


@pytest.mark.parametrize("nested", [True, False])
def test_the_error_probability_is_at_most_delta(nested):
    """Some methods have a lower accuracy than requested; it is an error if one of them passes.

    Hits are independent, or nested, as those of nested sets are.
    """
    rng = np.random.default_rng(3)
    rows, accuracy, delta, draws = 150, 0.9, 0.1, 600
    truth = np.array([0.98, 0.95, 0.92, 0.8999, 0.8995, 0.88, 0.8999])
    errors = errors_of_single_tests = 0
    for _ in range(draws):
        u = rng.random((rows, 1 if nested else len(truth)))
        hits = (u < truth).sum(axis=0).tolist()
        passed = fixed_sequence(hits, rows, accuracy, delta)
        errors += bool((truth[:passed] < accuracy).any())
        # If all methods are tested, an error is much more likely.
        errors_of_single_tests += any(
            fixed_sequence([h], rows, accuracy, delta)
            for h, t in zip(hits, truth, strict=True)
            if t < accuracy
        )
    error = 3 * math.sqrt(delta * (1 - delta) / draws)
    assert errors / draws <= delta + error
    if not nested:
        assert errors_of_single_tests / draws > delta + error


def test_the_error_probability_is_tight():
    """With one method just below the accuracy, the error probability is the binomial tail."""
    rows, accuracy, delta = 60, 0.9, 0.1
    alpha = Fraction(1, 10)
    cdf = [binomial_cdf(m, rows, alpha) for m in range(61)]
    pmf = [cdf[0], *(after - before for before, after in pairwise(cdf))]
    passing = [m for m in range(61) if fixed_sequence([rows - m], rows, accuracy, delta)]
    size = sum(pmf[m] for m in passing)
    assert size <= Fraction(1, 10) < size + pmf[len(passing)]
    assert passing == list(range(len(passing)))


def test_two_methods_by_enumeration():
    """Enumerate the hits of two methods on three rows each, with probabilities as fractions."""
    truth, accuracy, delta = (Fraction(1, 2), Fraction(2, 5)), 0.6, 0.3
    cells = range(6)
    error = Fraction(0)
    for size in range(7):
        for hit_cells in combinations(cells, size):
            weight = Fraction(1)
            for cell in cells:
                p = truth[cell // 3]
                weight *= p if cell in hit_cells else 1 - p
            hits = [sum(c // 3 == k for c in hit_cells) for k in range(2)]
            error += weight * (fixed_sequence(hits, 3, accuracy, delta) > 0)
    assert error == Fraction(1, 8)  # The first passes with three hits (0.6³ <= 0.3), not with two.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: accuracy_bound(11, 10), "hits must be from 0 to n_rows = 10; got 11"),
        (lambda: accuracy_bound(-1, 10), "hits must be from 0 to n_rows = 10; got -1"),
        (lambda: accuracy_bound(5, 10, delta=0.0), "delta must lie"),
        (lambda: accuracy_bound(0, 10, delta=0.0), "delta must lie"),
        (lambda: fixed_sequence([5, 11], 10, 0.9, 0.05), "from 0 to n_rows = 10; got [5, 11]"),
        (lambda: fixed_sequence([-1], 10, 0.9, 0.05), "from 0 to n_rows = 10; got [-1]"),
        (lambda: fixed_sequence([5], 10, 0.9, 5), "delta must lie"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
