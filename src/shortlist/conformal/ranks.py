"""Quantile ranks: which level of the calibration rows is the threshold of an accuracy.

High levels are good. A set contains the labels whose level is at least a threshold, and the
threshold is the level that the true label of one of the calibration rows has.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from functools import lru_cache

from scipy.stats import beta, binom

from shortlist._utils.validation import check_count, check_probability
from shortlist.conformal.bounds import accuracy_bound, miscoverage

LISTING_ERROR = 0.05
"""Error rate of the test that sets can contain the true label often enough."""
RARE = 1e-4
"""A refusal of at most this probability changes the accuracy by less than can be measured."""


def quantile_rank(n_rows: int, accuracy: float, delta: float | None = None) -> int:
    """Return the rank of the calibration level that is the threshold of an accuracy.

    Parameters
    ----------
    n_rows : int
        Number of calibration rows.
    accuracy : float
        Accuracy to guarantee.
    delta : float, optional
        Probability, over the draw of the calibration rows, that the guarantee may fail. By default
        the guarantee is on average over that draw.

    Returns
    -------
    int
        Rank from 1 for the lowest level; 0 if there are too few rows, see `min_calibration_size`.

    Notes
    -----
    Let ``alpha = 1 - accuracy``. Without `delta` the rank is ``floor(alpha * (n_rows + 1))``, so
    that P(label in set) >= accuracy for a new row that is exchangeable with the calibration rows.
    (The ceiling, which the paper prints, falls short of it.) With `delta` it is the largest r
    with ``P(Binomial(n_rows, alpha) < r) <= delta``, so that with probability ``1 - delta`` the
    accuracy on new rows is at least `accuracy`.

    Examples
    --------
    >>> quantile_rank(9, 0.9), quantile_rank(1000, 0.9), quantile_rank(1000, 0.9, delta=0.05)
    (1, 100, 85)
    """
    alpha = miscoverage(accuracy)
    n_rows = check_count(n_rows, "n_rows", minimum=0)
    if delta is None:
        return math.floor(alpha * (n_rows + 1))
    check_probability(delta, "delta")
    if not n_rows:
        return 0
    # ppf returns the smallest k with cdf(k) >= delta, so that cdf(k - 1) < delta. If cdf(k) equals
    # delta, the rank can be one higher.
    k = int(binom.ppf(delta, n_rows, float(alpha)))
    return k + 1 if binom.cdf(k, n_rows, float(alpha)) <= delta else k


def min_calibration_size(
    accuracy: float, delta: float | None = None, *, exhaustive: bool = True
) -> int:
    """Return the smallest number of calibration rows with which an accuracy can be guaranteed.

    Parameters
    ----------
    accuracy : float
        Accuracy to guarantee.
    delta : float, optional
        Probability, over the draw of the calibration rows, that the guarantee may fail.
    exhaustive : bool, default=True
        Whether a set can contain every label. If not, as with candidates, it must be shown first
        that sets can contain the true label often enough; see `listed_rank`.

    Returns
    -------
    int
        Number of rows.

    Examples
    --------
    >>> min_calibration_size(0.9), min_calibration_size(0.99), min_calibration_size(0.9, delta=0.05)
    (9, 99, 29)
    >>> min_calibration_size(0.9, exhaustive=False)
    38
    """
    alpha = miscoverage(accuracy)
    if delta is None and not exhaustive:
        most = 2
        while not listed_rank(most, 0, accuracy):
            most *= 2
        return bisect_left(range(most), True, key=lambda n: listed_rank(n, 0, accuracy) > 0)
    if delta is None:
        return math.ceil(1 / alpha) - 1
    # The smallest n with (1 - alpha)^n <= delta. The logarithm is computed from alpha or from
    # 1 - alpha, whichever is more precise. Then quantile_rank decides, so that both functions
    # agree where rounding matters.
    log = math.log1p(-float(alpha)) if 2 * alpha < 1 else math.log(1 - alpha)
    n_rows = max(1, math.ceil(math.log(check_probability(delta, "delta")) / log))
    while n_rows > 1 and quantile_rank(n_rows - 1, accuracy, delta):
        n_rows -= 1
    while not quantile_rank(n_rows, accuracy, delta):
        n_rows += 1
    return n_rows


def listed_rank(n_rows: int, n_unlisted: int, accuracy: float) -> int:
    """Return the rank of the threshold if no set can contain some of the labels.

    A set can contain only labels that are listed: among a row's candidates, or known to the
    classifier. Whether the true label is listed often enough is tested first.

    Parameters
    ----------
    n_rows : int
        Number of calibration rows.
    n_unlisted : int
        How many of them have a label that no set can contain.
    accuracy : float
        Accuracy to guarantee.

    Returns
    -------
    int
        Rank among all levels, those of unlisted labels first; 0 if the accuracy cannot be
        guaranteed.

    Notes
    -----
    Let `pi` be the unknown probability that the true label is listed, and let the unlisted labels
    of calibration rows have the lowest levels. The rank of `quantile_rank` is then exact on
    average over all calibrations, but not over those that are not refused: an accuracy above `pi`
    would be answered whenever the calibration rows are favorable by chance. So `pi` is tested by
    its Clopper-Pearson bound `b` at confidence ``1 - LISTING_ERROR``:

    - Given the number of unlisted labels, rank `j` of the listed levels has the accuracy
      ``pi (1 - j / (n_listed + 1))``. The largest `j` for which this is at least `accuracy` at
      ``pi = b`` guarantees the accuracy for this calibration with the confidence of `b`.
    - If ``pi >= b`` implies that a refusal has probability `RARE` at most, the exact rank is used.
      Refusals then change the accuracy by less than ``RARE * (1 - accuracy)``.

    Examples
    --------
    >>> listed_rank(1000, 5, 0.9), listed_rank(1000, 70, 0.9), listed_rank(1000, 90, 0.9)
    (100, 85, 0)
    """
    most = _max_unlisted(n_rows, accuracy) if n_rows else -1
    if n_unlisted > most:
        return 0
    bound = accuracy_bound(n_rows - n_unlisted, n_rows, LISTING_ERROR)
    refusal_probability = binom.sf(most, n_rows, 1 - bound)
    if refusal_probability <= RARE:
        return quantile_rank(n_rows, accuracy)
    return n_unlisted + _rank_among_listed(n_rows, n_unlisted, accuracy)


def _rank_among_listed(n_rows: int, n_unlisted: int, accuracy: float) -> int:
    """Return the rank among the levels of listed labels; 0 if the test refuses the accuracy."""
    bound = Fraction(accuracy_bound(n_rows - n_unlisted, n_rows, LISTING_ERROR))
    wanted = 1 - miscoverage(accuracy)
    if bound <= wanted:
        return 0
    return math.floor((1 - wanted / bound) * (n_rows - n_unlisted + 1))


@lru_cache(maxsize=4096)
def _max_unlisted(n_rows: int, accuracy: float) -> int:
    """Return the largest number of unlisted labels that is not refused; -1 if there is none."""

    def is_refused(n_unlisted: int) -> bool:
        return not _rank_among_listed(n_rows, n_unlisted, accuracy)

    return bisect_left(range(n_rows + 1), True, key=is_refused) - 1


def max_accuracy(
    n_rows: int, n_unlisted: int = 0, delta: float | None = None, *, exhaustive: bool = True
) -> float:
    """Return the largest accuracy that can be guaranteed.

    Parameters
    ----------
    n_rows : int
        Number of calibration rows.
    n_unlisted : int, default=0
        How many of them have a label that no set can contain.
    delta : float, optional
        Probability, over the draw of the calibration rows, that the guarantee may fail.
    exhaustive : bool, default=True
        Whether a set can contain every label.

    Returns
    -------
    float
        Accuracy; 0 if none can be guaranteed.

    Examples
    --------
    >>> max_accuracy(99), max_accuracy(99, 9, delta=0.05) < max_accuracy(99, delta=0.05)
    (0.99, True)
    """
    if n_unlisted >= n_rows:
        return 0.0
    n_listed = n_rows - n_unlisted
    tested = delta is None and not (exhaustive and n_unlisted == 0)
    if tested:
        bound = accuracy_bound(n_listed, n_rows, LISTING_ERROR)
        largest = bound * n_listed / (n_listed + 1)
    elif delta is None:
        largest = float(1 - Fraction(1, n_rows + 1))
    else:  # The largest accuracy with P(Binomial(n_rows, alpha) <= n_unlisted) <= delta.
        largest = float(beta.ppf(check_probability(delta, "delta"), n_listed, n_unlisted + 1))

    def is_reachable(accuracy: float) -> bool:
        if tested:
            return listed_rank(n_rows, n_unlisted, accuracy) > n_unlisted
        return quantile_rank(n_rows, accuracy, delta) > n_unlisted

    # The nearest float can be above the exact number, and is not reachable then.
    step = math.ulp(largest)
    while largest > 0 and not is_reachable(largest):
        largest, step = largest - step, 2 * step
    return max(largest, 0.0)
