"""What stands behind a promise: exact ranks, binomial tails and tests. Knows of no method.

Everywhere a high score is good: a set holds the labels whose score is at least a threshold `q`,
and `q` is one of the scores that the right labels of held-out ("calibration") rows had.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from shortlist._arrays import check_choice, check_count, check_probability


class UnreachableError(ValueError):
    """A promise that this calibration data, or this list of candidates, cannot keep."""


def tolerated(accuracy: float) -> Fraction:
    """`alpha = 1 - accuracy`, of the decimal number that a person wrote: 1 - 0.9 is 1/10.

    >>> tolerated(0.9), 1 - 0.9
    (Fraction(1, 10), 0.09999999999999998)
    """
    return 1 - Fraction(repr(check_probability(accuracy, "accuracy")))


def promised_rank(rows: int, accuracy: float, delta: float | None = None) -> int:
    """Which of the `rows` calibration scores, counted from 1 for the lowest, is the threshold.

    With `delta=None`, `floor(alpha (rows + 1))`: P(label in set) >= accuracy for a new row that is
    exchangeable with the calibration rows. (The ceiling, which the paper prints, falls short.)

    With `delta`, the largest rank r with `P(Binomial(rows, alpha) < r) <= delta`: with probability
    1 - delta over the draw of the calibration rows, the accuracy on new rows is at least the one
    asked for.

    0 where there are too few rows; see `fewest_rows`.

    >>> promised_rank(9, 0.9), promised_rank(1000, 0.9), promised_rank(1000, 0.9, delta=0.05)
    (1, 100, 85)
    """
    alpha = tolerated(accuracy)
    rows = check_count(rows, "rows", least=0)
    if delta is None:
        return math.floor(alpha * (rows + 1))
    check_probability(delta, "delta")
    # ppf is the least k with cdf(k) >= delta, so that cdf(k - 1) < delta; where cdf(k) is delta
    # itself, one rank more is allowed.
    k = int(binom.ppf(delta, rows, float(alpha))) if rows else 0
    return k + 1 if rows and binom.cdf(k, rows, float(alpha)) <= delta else k


def fewest_rows(accuracy: float, delta: float | None = None) -> int:
    """The least number of calibration rows with which an accuracy can be promised.

    >>> fewest_rows(0.9), fewest_rows(0.99), fewest_rows(0.9, delta=0.05)
    (9, 99, 29)
    """
    alpha = tolerated(accuracy)
    if delta is None:
        return math.ceil(1 / alpha) - 1
    # The least m with (1 - alpha)^m <= delta, of whichever of the two numbers is the more precise;
    # then the rank has the last word, so that both agree also where rounding matters.
    log = math.log1p(-float(alpha)) if 2 * alpha < 1 else math.log(1 - alpha)
    rows = max(1, math.ceil(math.log(check_probability(delta, "delta")) / log))
    while rows > 1 and promised_rank(rows - 1, accuracy, delta):
        rows -= 1
    while not promised_rank(rows, accuracy, delta):
        rows += 1
    return rows


def best_promise(rows: int, lost: int = 0, delta: float | None = None) -> float:
    """The largest accuracy that can be promised if `lost` of the rows' labels cannot be had.

    >>> best_promise(99), best_promise(99, lost=9)
    (0.99, 0.9)
    """
    if lost >= rows:
        return 0.0
    if delta is None:
        most = float(1 - Fraction(lost + 1, rows + 1))
    else:  # P(Binomial(rows, alpha) <= lost) <= delta
        most = float(beta.ppf(check_probability(delta, "delta"), rows - lost, lost + 1))
    # The nearest float may lie above the number that is meant, and could not be promised.
    step = math.ulp(most)
    while most > 0 and promised_rank(rows, most, delta) <= lost:
        most, step = most - step, 2 * step
    return max(most, 0.0)


def rounded_down(accuracy: float, digits: int = 5) -> str:
    """An accuracy in a few decimals that does not exceed it: rounding up would promise too much.

    >>> rounded_down(2 / 3), rounded_down(0.29), rounded_down(0.0)
    ('0.66666', '0.29', '0')
    """
    scale = 10**digits
    return f"{math.floor(Fraction(repr(accuracy)) * scale) / scale:.{digits}g}"


def threshold(
    scores: NDArray[np.floating],
    accuracy: float,
    *,
    delta: float | None = None,
    on_unreachable: str = "raise",
) -> float:
    """The threshold at which an accuracy is promised, from sorted calibration scores.

    Parameters
    ----------
    scores : (rows,), increasing
        Scores of the right labels; minus infinity where a label cannot be had at all.
    on_unreachable : "raise" or "all"
        What to do where the promise cannot be kept: an `UnreachableError`, or minus infinity,
        which stands for every label.

    Examples
    --------
    >>> threshold(np.array([0.1, 0.2, 0.5, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9]), 0.8)
    0.2
    >>> threshold(np.array([0.1, 0.2]), 0.9)
    Traceback (most recent call last):
    shortlist.guarantee.UnreachableError: accuracy = 0.9 cannot be promised with 2 calibration \
rows: 9 are needed. At most 0.66666 can be
    """
    check_choice(on_unreachable, "on_unreachable", ("raise", "all"))
    rank = promised_rank(len(scores), accuracy, delta)
    if rank and scores[rank - 1] > -math.inf:
        return float(scores[rank - 1])
    if on_unreachable == "all":
        return -math.inf
    form = "" if delta is None else f" (delta = {delta})"
    lost = int(np.isneginf(scores).sum())
    most = rounded_down(best_promise(len(scores), lost, delta))
    if rank:
        why = (
            f"{lost} of the {len(scores)} calibration rows have their label outside the list of "
            "candidates, or the largest set: list more candidates"
        )
    else:
        needed = fewest_rows(accuracy, delta)
        why = f"{needed} are needed"
    rows = f"{len(scores)} calibration row{'' if len(scores) == 1 else 's'}"
    raise UnreachableError(
        f"accuracy = {accuracy}{form} cannot be promised with {rows}: {why}. At most {most} can be"
    )


def p_values(scores: NDArray[np.floating], new: NDArray[np.floating]) -> NDArray[np.float64]:
    """The share of calibration scores, the new one among them, that are no higher than it.

    A label's p-value exceeds alpha if and only if the set promised at 1 - alpha holds it.

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
    alpha = float(tolerated(accuracy))
    check_probability(delta, "delta")
    misses = check_count(rows, "rows") - np.asarray(hits, dtype=np.int64)
    if ((misses < 0) | (misses > rows)).any():
        raise ValueError(f"hits = {list(hits)} of rows = {rows}")
    passed = binom.cdf(misses, rows, alpha) <= delta
    return int(np.argmin(passed)) if not passed.all() else len(passed)
