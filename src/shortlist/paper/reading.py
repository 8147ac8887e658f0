"""Read sizes off curves, but not between points that are far apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shortlist.frontier import Frontier

LARGEST_RATIO = 1.25
"""A size is read between two points only if the larger one is at most 25% larger."""
REFINED_RATIO = 1.15
"""Cost weights are added between points whose sizes differ by more than 15%."""
MAX_ADDED = 4
"""Maximum number of cost weights that are added between two points at once."""


def size_at(curve: Frontier, accuracy: float) -> float:
    """Return the mean size at an accuracy, or NaN where the curve has a gap or ends before.

    Between two neighboring points of the envelope, the size is interpolated linearly. Top-k, whose
    sizes are whole numbers, has no gaps: a random choice between k and k + 1 is all there is.

    Parameters
    ----------
    curve : Frontier
        The curve.
    accuracy : float
        The accuracy.

    Returns
    -------
    float
        The mean size, or NaN.

    Examples
    --------
    >>> curve = Frontier([0.7, 0.8, 0.9], [1.0, 1.2, 2.4], [0.3, 0.2, 0.1])
    >>> round(size_at(curve, 0.75), 6), size_at(curve, 0.85), size_at(curve, 0.95)
    (1.1, nan, nan)
    """
    return float(sizes_at(curve, np.array([accuracy]))[0])


def sizes_at(curve: Frontier, accuracies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean size at each accuracy: see `size_at`."""
    sizes = np.asarray(curve.size_at(accuracies))
    return np.where(_in_gaps(curve, accuracies), np.nan, sizes)


def reason(curve: Frontier, accuracy: float) -> str:
    """Return why a curve has no size at an accuracy; an empty string if it has one.

    Examples
    --------
    >>> curve = Frontier([0.7, 0.8, 0.9], [1.0, 1.2, 2.4], [0.3, 0.2, 0.1])
    >>> [reason(curve, accuracy) for accuracy in (0.75, 0.85, 0.95)]
    ['', 'gap', 'not reached']
    """
    if accuracy > curve.accuracy.max():
        return "not reached"
    return "gap" if _in_gaps(curve, np.array([accuracy]))[0] else ""


def _in_gaps(curve: Frontier, accuracies: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for each accuracy whether the points around it are far apart."""
    if curve.parameter_name == "size":
        return np.zeros(accuracies.shape, dtype=bool)
    points = curve.envelope()
    after = np.searchsorted(points.accuracy, accuracies)
    last = len(points) - 1
    right, left = np.minimum(after, last), np.clip(after - 1, 0, last)
    is_wide = points.mean_size[right] > LARGEST_RATIO * points.mean_size[left]
    between = (after > 0) & (after <= last) & (points.accuracy[right] != accuracies)
    gaps: NDArray[np.bool_] = is_wide & between
    return gaps


def weights_to_add(weights: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Return the cost weights that refine a curve where neighboring points are far apart.

    Parameters
    ----------
    weights : sequence of float
        Cost weights, in any order.
    sizes : sequence of float
        Mean size for each cost weight.

    Returns
    -------
    list of float
        New cost weights, evenly spaced on a logarithmic scale within each gap.

    Examples
    --------
    >>> weights_to_add([0.1, 0.2, 0.4], [1.3, 1.1, 1.0])
    [0.1414]
    """
    added: list[float] = []
    points = sorted(zip(weights, sizes, strict=True), reverse=True)
    for (high, before), (low, after) in pairwise(points):
        ratio = max(before, after) / min(before, after)
        if ratio > REFINED_RATIO:
            wanted = math.ceil(math.log(ratio) / math.log(REFINED_RATIO)) - 1
            count = min(max(wanted, 1), MAX_ADDED)
            between = np.geomspace(high, low, count + 2)[1:-1]
            added += [float(f"{weight:.4g}") for weight in between]
    return [weight for weight in added if weight not in weights]
