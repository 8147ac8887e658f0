"""Quantiles of calibration levels: thresholds and p-values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.validation import check_choice
from shortlist.conformal.bounds import round_down
from shortlist.conformal.ranks import (
    listed_rank,
    max_accuracy,
    min_calibration_size,
    quantile_rank,
)
from shortlist.guarantee import count_rows


class UnreachableError(ValueError):
    """The calibration rows cannot guarantee the requested accuracy.

    Parameters
    ----------
    message : str
        What cannot be guaranteed, and what can.
    max_accuracy : float, default=0.0
        Largest accuracy that can be guaranteed, if it is known.
    """

    def __init__(self, message: str, max_accuracy: float = 0.0) -> None:
        super().__init__(message)
        self.max_accuracy = max_accuracy


def threshold(
    levels: NDArray[np.floating],
    accuracy: float,
    *,
    delta: float | None = None,
    on_unreachable: str = "raise",
    exhaustive: bool = True,
    n_unknown: int = 0,
) -> float:
    """Return the threshold that guarantees an accuracy, from sorted calibration levels.

    Parameters
    ----------
    levels : array of shape (n_rows,)
        Levels of the true labels, in increasing order; minus infinity for a label that is not
        ranked, or whose class is unknown.
    accuracy : float
        Accuracy to guarantee.
    delta : float, optional
        Probability, over the draw of the calibration rows, that the guarantee may fail.
    on_unreachable : {"raise", "all"}, default="raise"
        What to do if the accuracy cannot be guaranteed: raise, or return minus infinity, which
        stands for the set of all classes.
    exhaustive : bool, default=True
        Whether a set can contain every label. If not, or if a level is minus infinity, a threshold
        is returned only if the levels show that the accuracy can be reached; see `listed_rank`.
    n_unknown : int, default=0
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
    n_rows, n_unlisted = len(levels), int(np.isneginf(levels).sum())
    exhaustive = exhaustive and not n_unlisted
    with_all = on_unreachable == "all"
    # The set of all classes contains every label but those of unknown classes.
    n_missed = n_unknown if with_all else n_unlisted
    tested = bool(n_unknown) if with_all else not exhaustive
    if delta is None and tested:
        rank = listed_rank(n_rows, n_missed, accuracy)
    else:
        rank = quantile_rank(n_rows, accuracy, delta)
    if rank > n_unlisted:
        return float(levels[rank - 1])
    if with_all and (rank > n_unknown or not n_unknown):
        return -math.inf
    reasons = []
    needed = min_calibration_size(accuracy, delta, exhaustive=exhaustive)
    if n_rows < needed:
        reasons.append(f"{needed:,} are needed")
    if n_unlisted:
        reasons.append(_unlisted_reason(n_rows, n_unlisted, n_unknown))
    confidence = "" if delta is None else f" (delta = {delta})"
    largest = round_down(max_accuracy(n_rows, n_missed, delta, exhaustive=exhaustive))
    raise UnreachableError(
        f"accuracy = {accuracy}{confidence} cannot be guaranteed with {count_rows(n_rows)}: "
        f"{', and '.join(reasons)}. At most {largest} can be",
        float(largest),
    )


def _unlisted_reason(n_rows: int, n_unlisted: int, n_unknown: int) -> str:
    """Return why calibration rows have a label that no set can contain."""
    reason = "its class was never learned"
    if n_unlisted != n_unknown:
        reason = f"it is not among the candidates or in the largest set, or {reason}"
    return (
        f"{n_unlisted:,} of the {n_rows:,} ({100 * n_unlisted / n_rows:.3g}%) have a label that "
        f"no set can contain: {reason}"
    )


def p_values(levels: NDArray[np.floating], new: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the conformal p-value of each new level.

    A p-value is the fraction of levels that are no higher than the new one, which counts too. It
    exceeds alpha if and only if the set of guaranteed accuracy ``1 - alpha`` contains the label.

    Parameters
    ----------
    levels : array of shape (n_rows,)
        Levels of the true labels of the calibration rows, in increasing order.
    new : array
        Levels of labels of new rows.

    Returns
    -------
    array of the shape of `new`
        p-values.

    Examples
    --------
    >>> p_values(np.array([0.1, 0.4, 0.6]), np.array([0.05, 0.4, 0.9])).tolist()
    [0.25, 0.75, 1.0]
    """
    return (1 + np.searchsorted(levels, new, side="right")) / (len(levels) + 1)
