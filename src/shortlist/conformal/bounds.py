"""Binomial bounds and tests of an accuracy that was measured on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy.stats import beta, binom

from shortlist._utils.validation import check_count, check_probability


def miscoverage(accuracy: float) -> Fraction:
    """Return ``1 - accuracy`` of the decimal number as it is written, without rounding errors.

    Parameters
    ----------
    accuracy : float
        Accuracy, strictly between 0 and 1.

    Returns
    -------
    Fraction
        Exact probability of a miss, called alpha in the literature.

    Examples
    --------
    >>> miscoverage(0.9), 1 - 0.9
    (Fraction(1, 10), 0.09999999999999998)
    """
    return 1 - Fraction(repr(check_probability(accuracy, "accuracy")))


def accuracy_bound(hits: int, n_rows: int, delta: float = 0.05) -> float:
    """Return a lower confidence bound on an accuracy (Clopper and Pearson).

    Parameters
    ----------
    hits : int
        Number of rows whose set contains the true label.
    n_rows : int
        Number of rows. They must have had no part in choosing the sets.
    delta : float, default=0.05
        Probability that the accuracy is below the bound.

    Returns
    -------
    float
        Bound that holds with probability ``1 - delta`` over the draw of the rows.

    Examples
    --------
    >>> round(accuracy_bound(980, 1000), 4), accuracy_bound(0, 10)
    (0.9711, 0.0)
    """
    if not 0 <= hits <= check_count(n_rows, "n_rows"):
        raise ValueError(f"hits must be from 0 to n_rows = {n_rows}; got {hits}")
    check_probability(delta, "delta")
    return float(beta.ppf(delta, hits, n_rows - hits + 1)) if hits else 0.0


def fixed_sequence(hits: Sequence[int], n_rows: int, accuracy: float, delta: float) -> int:
    """Return how many of a sequence of methods are shown to reach an accuracy.

    Each method is tested by its number of hits on the same rows, with a binomial test at level
    `delta`. The first method that fails ends the sequence.

    Parameters
    ----------
    hits : sequence of int
        Number of rows whose set contains the true label, for each method. The order of the methods
        must not depend on these rows.
    n_rows : int
        Number of rows.
    accuracy : float
        Accuracy to reach.
    delta : float
        Probability, over the draw of the rows, that a method passes although its accuracy is
        lower.

    Returns
    -------
    int
        Number of methods that pass. With probability ``1 - delta`` all of them reach the accuracy,
        so that any of them can be used.

    Examples
    --------
    >>> fixed_sequence([1000, 985, 960, 999], 1000, accuracy=0.97, delta=0.05)
    2
    """
    alpha = float(miscoverage(accuracy))
    check_probability(delta, "delta")
    misses = check_count(n_rows, "n_rows") - np.asarray(hits, dtype=np.int64)
    if ((misses < 0) | (misses > n_rows)).any():
        raise ValueError(f"hits must be from 0 to n_rows = {n_rows}; got {list(hits)}")
    passed = binom.cdf(misses, n_rows, alpha) <= delta
    return int(np.argmin(passed)) if not passed.all() else len(passed)


def round_down(accuracy: float, digits: int = 5) -> str:
    """Return an accuracy in a few decimals that does not exceed it.

    Examples
    --------
    >>> round_down(2 / 3), round_down(0.29), round_down(0.0)
    ('0.66666', '0.29', '0')
    """
    scale = 10**digits
    return f"{math.floor(Fraction(repr(accuracy)) * scale) / scale:.{digits}g}"
