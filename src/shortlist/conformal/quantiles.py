"""What stands behind a guarantee: exact ranks, binomial tails and tests. Knows of no method.

Everywhere a high score is good: a set holds the labels whose score is at least a threshold `q`,
and `q` is one of the scores that the right labels of held-out ("calibration") rows had.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from shortlist._utils.validation import check_choice, check_count, check_probability

LISTING_ERROR = 0.05
"""Error rate of the test that lists of candidates contain the right label often enough."""
RARE = 1e-4
"""A refusal of at most this probability changes a guarantee by less than it can be measured."""


class UnreachableError(ValueError):
    """A guarantee that this calibration data, or this list of candidates, cannot keep."""


def miscoverage(accuracy: float) -> Fraction:
    """`alpha = 1 - accuracy`, of the decimal number that a person wrote: 1 - 0.9 is 1/10.

    >>> miscoverage(0.9), 1 - 0.9
    (Fraction(1, 10), 0.09999999999999998)
    """
    return 1 - Fraction(repr(check_probability(accuracy, "accuracy")))


def quantile_rank(rows: int, accuracy: float, delta: float | None = None) -> int:
    """Which of the `rows` calibration scores, counted from 1 for the lowest, is the threshold.

    With `delta=None`, `floor(alpha (rows + 1))`: P(label in set) >= accuracy for a new row that is
    exchangeable with the calibration rows. (The ceiling, which the paper prints, falls short.)

    With `delta`, the largest rank r with `P(Binomial(rows, alpha) < r) <= delta`: with probability
    1 - delta over the draw of the calibration rows, the accuracy on new rows is at least the one
    asked for.

    0 where there are too few rows; see `min_calibration_size`.

    >>> quantile_rank(9, 0.9), quantile_rank(1000, 0.9), quantile_rank(1000, 0.9, delta=0.05)
    (1, 100, 85)
    """
    alpha = miscoverage(accuracy)
    rows = check_count(rows, "rows", minimum=0)
    if delta is None:
        return math.floor(alpha * (rows + 1))
    check_probability(delta, "delta")
    # ppf is the least k with cdf(k) >= delta, so that cdf(k - 1) < delta; where cdf(k) is delta
    # itself, one rank more is allowed.
    k = int(binom.ppf(delta, rows, float(alpha))) if rows else 0
    return k + 1 if rows and binom.cdf(k, rows, float(alpha)) <= delta else k


def min_calibration_size(
    accuracy: float, delta: float | None = None, *, exhaustive: bool = True
) -> int:
    """The least number of calibration rows with which an accuracy can be guaranteed.

    `exhaustive=False` is for lists of candidates, which may lack the right label: that they do
    not too often has to be shown first, see `listed_rank`.

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
    # The least m with (1 - alpha)^m <= delta, of whichever of the two numbers is the more precise;
    # then the rank has the last word, so that both agree also where rounding matters.
    log = math.log1p(-float(alpha)) if 2 * alpha < 1 else math.log(1 - alpha)
    rows = max(1, math.ceil(math.log(check_probability(delta, "delta")) / log))
    while rows > 1 and quantile_rank(rows - 1, accuracy, delta):
        rows -= 1
    while not quantile_rank(rows, accuracy, delta):
        rows += 1
    return rows


def listed_rank(rows: int, unlisted: int, accuracy: float) -> int:
    """Return the rank of the threshold where some labels can be in no set.

    A set can contain only labels that are listed: among a row's candidates, or known to the
    classifier. Let `pi` be the unknown probability that the right label is listed, and count
    the unlisted labels of calibration rows as the lowest scores. The rank of `quantile_rank`
    is then exact on average over all calibrations, but not over those that are not refused: an
    accuracy above `pi` would be answered whenever the calibration rows are lucky. So `pi` is
    tested first, by its Clopper-Pearson bound `b` at confidence `1 - LISTING_ERROR`:

    - Rank `j` of the listed scores has accuracy `pi (1 - j / (listed + 1))` given the number
      of unlisted labels. The largest `j` for which this is at least `accuracy` at `pi = b` is
      right, with the confidence of `b`, for the calibration at hand.
    - Where `b` shows that a refusal has probability `RARE` at most, the exact rank is used:
      refusals then change the accuracy by less than `RARE (1 - accuracy)`.

    Parameters
    ----------
    rows : int
        Calibration rows.
    unlisted : int
        How many of them have a label that no set can contain.
    accuracy : float

    Returns
    -------
    int
        The rank among all scores, those of unlisted labels first; 0 if the accuracy cannot be
        guaranteed.

    Examples
    --------
    >>> listed_rank(1000, 5, 0.9), listed_rank(1000, 70, 0.9), listed_rank(1000, 90, 0.9)
    (100, 85, 0)
    """
    most = _most_unlisted(rows, accuracy) if rows else -1
    if unlisted > most:
        return 0
    # How likely a refusal is where `pi` is as small as it may well be.
    refused = binom.sf(most, rows, 1 - accuracy_bound(rows - unlisted, rows, LISTING_ERROR))
    if refused <= RARE:
        return quantile_rank(rows, accuracy)
    return unlisted + _rank_among_listed(rows, unlisted, accuracy)


def _rank_among_listed(rows: int, unlisted: int, accuracy: float) -> int:
    bound = Fraction(accuracy_bound(rows - unlisted, rows, LISTING_ERROR))
    wanted = 1 - miscoverage(accuracy)
    if bound <= wanted:
        return 0
    return math.floor((1 - wanted / bound) * (rows - unlisted + 1))


@lru_cache(maxsize=4096)
def _most_unlisted(rows: int, accuracy: float) -> int:
    """The most unlisted labels with which an accuracy is still guaranteed; -1 if none may be."""
    refused = range(rows + 1)
    return bisect_left(refused, True, key=lambda n: not _rank_among_listed(rows, n, accuracy)) - 1


def max_accuracy(
    rows: int, lost: int = 0, delta: float | None = None, *, exhaustive: bool = True
) -> float:
    """The largest accuracy that can be guaranteed if `lost` of the rows' labels cannot be had.

    >>> max_accuracy(99), max_accuracy(99, lost=9, delta=0.05) < max_accuracy(99, delta=0.05)
    (0.99, True)
    """
    if lost >= rows:
        return 0.0
    listing = delta is None and not (exhaustive and lost == 0)
    if listing:
        bound = accuracy_bound(rows - lost, rows, LISTING_ERROR)
        most = bound * (rows - lost) / (rows - lost + 1)
    elif delta is None:
        most = float(1 - Fraction(1, rows + 1))
    else:  # P(Binomial(rows, alpha) <= lost) <= delta
        most = float(beta.ppf(check_probability(delta, "delta"), rows - lost, lost + 1))

    def reached(accuracy: float) -> bool:
        if listing:
            return listed_rank(rows, lost, accuracy) > lost
        return quantile_rank(rows, accuracy, delta) > lost

    # The nearest float may lie above the number that is meant, and could not be guaranteed.
    step = math.ulp(most)
    while most > 0 and not reached(most):
        most, step = most - step, 2 * step
    return max(most, 0.0)


def round_down(accuracy: float, digits: int = 5) -> str:
    """An accuracy in a few decimals that does not exceed it: rounding up would guarantee too much.

    >>> round_down(2 / 3), round_down(0.29), round_down(0.0)
    ('0.66666', '0.29', '0')
    """
    scale = 10**digits
    return f"{math.floor(Fraction(repr(accuracy)) * scale) / scale:.{digits}g}"


def threshold(
    levels: NDArray[np.floating],
    accuracy: float,
    *,
    delta: float | None = None,
    on_unreachable: str = "raise",
    exhaustive: bool = True,
    unknown: int = 0,
) -> float:
    """Return the threshold that guarantees an accuracy, from sorted calibration levels.

    Parameters
    ----------
    levels : array of shape (n_rows,)
        Levels of the right labels, in increasing order; minus infinity for a label that is not
        ranked, or whose class is unknown.
    accuracy : float
        Accuracy to guarantee.
    delta : float, optional
        Probability, over the draw of the calibration rows, that the guarantee may fail.
    on_unreachable : {"raise", "all"}, default="raise"
        What to do if the accuracy cannot be guaranteed: raise, or return minus infinity, which
        stands for the set of all classes.
    exhaustive : bool, default=True
        Whether a set can contain every label. If not, or if a level is minus infinity, an accuracy
        is answered only if the levels show that it can be reached; see `listed_rank`.
    unknown : int, default=0
        Number of rows whose label is of an unknown class. Even the set of all classes misses
        such a label, so that "all" does not help against them.

    Returns
    -------
    float
        The threshold.

    Raises
    ------
    UnreachableError
        If the accuracy cannot be guaranteed.

    Examples
    --------
    >>> threshold(np.array([0.1, 0.2, 0.5, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9]), 0.8)
    0.2
    >>> threshold(np.array([0.1, 0.2]), 0.9)
    Traceback (most recent call last):
    shortlist.conformal.quantiles.UnreachableError: accuracy = 0.9 cannot be guaranteed with 2 \
calibration rows: 9 are needed. At most 0.66666 can be
    """
    check_choice(on_unreachable, "on_unreachable", ("raise", "all"))
    rows, lost = len(levels), int(np.isneginf(levels).sum())
    exhaustive = exhaustive and not lost
    with_all = on_unreachable == "all"
    missed = unknown if with_all else lost
    if delta is not None or (exhaustive if not with_all else not unknown):
        rank = quantile_rank(rows, accuracy, delta)
    else:
        rank = listed_rank(rows, missed, accuracy)
    if rank > lost:
        return float(levels[rank - 1])
    if with_all and (rank > unknown or not unknown):
        return -math.inf
    form = "" if delta is None else f" (delta = {delta})"
    most = round_down(max_accuracy(rows, missed, delta, exhaustive=exhaustive))
    needed = min_calibration_size(accuracy, delta, exhaustive=exhaustive)
    reasons = [f"{needed:,} are needed"] if rows < needed else []
    if lost:
        reasons.append(
            f"{lost:,} of the {rows:,} ({100 * lost / rows:.3g}%) have a label that "
            + (
                "no set can contain: its class was never learned"
                if lost == unknown
                else "no set can contain: it is not among the candidates or in the largest set, "
                "or its class was never learned"
            )
        )
    raise UnreachableError(
        f"accuracy = {accuracy}{form} cannot be guaranteed with {rows:,} calibration "
        f"row{'' if rows == 1 else 's'}: {', and '.join(reasons)}. At most {most} can be"
    )


def p_values(scores: NDArray[np.floating], new: NDArray[np.floating]) -> NDArray[np.float64]:
    """The share of calibration scores, the new one among them, that are no higher than it.

    A label's p-value exceeds alpha if and only if the set guaranteed at 1 - alpha holds it.

    >>> p_values(np.array([0.1, 0.4, 0.6]), np.array([0.05, 0.4, 0.9])).tolist()
    [0.25, 0.75, 1.0]
    """
    return (1 + np.searchsorted(scores, new, side="right")) / (len(scores) + 1)


def accuracy_bound(hits: int, rows: int, delta: float = 0.05) -> float:
    """A lower bound on an accuracy of which `hits` in `rows` were seen (Clopper and Pearson).

    Holds with probability 1 - delta, for sets that these rows had no part in choosing.

    >>> round(accuracy_bound(980, 1000), 4), accuracy_bound(0, 10)
    (0.9711, 0.0)
    """
    if not 0 <= hits <= check_count(rows, "rows"):
        raise ValueError(f"hits = {hits} of rows = {rows}")
    return (
        float(beta.ppf(check_probability(delta, "delta"), hits, rows - hits + 1)) if hits else 0.0
    )


def fixed_sequence(hits: Sequence[int], rows: int, accuracy: float, delta: float) -> int:
    """How many candidates, tested one after the other, are shown to reach an accuracy.

    Each is tested by its number of hits among the same `rows` (a binomial test at level `delta`);
    the first that fails ends the sequence. With probability 1 - delta none of those that passed
    falls short, whichever of them is then used, if the order was fixed without these rows.

    >>> fixed_sequence([1000, 985, 960, 999], 1000, accuracy=0.97, delta=0.05)
    2
    """
    alpha = float(miscoverage(accuracy))
    check_probability(delta, "delta")
    misses = check_count(rows, "rows") - np.asarray(hits, dtype=np.int64)
    if ((misses < 0) | (misses > rows)).any():
        raise ValueError(f"hits = {list(hits)} of rows = {rows}")
    passed = binom.cdf(misses, rows, alpha) <= delta
    return int(np.argmin(passed)) if not passed.all() else len(passed)
