"""Strategies and exact probabilities for the tests of ranks, bounds and thresholds."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st

# Accuracies as people write them: up to four decimals, strictly between 0 and 1.
DECIMALS = st.integers(1, 9999).map(lambda n: Fraction(n, 10_000))
DELTAS = st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9])
FEW_EXAMPLES = settings(max_examples=150, deadline=None)


def binomial_cdf(k: int, rows: int, p: Fraction) -> Fraction:
    """Return P(Binomial(rows, p) <= k), exactly."""
    hit, miss = p.numerator, p.denominator - p.numerator
    total = sum(math.comb(rows, i) * hit**i * miss ** (rows - i) for i in range(k + 1))
    return Fraction(total, p.denominator**rows)
