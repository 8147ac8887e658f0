"""The content of a report about one method."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist.comparison import FittedMethod
from shortlist.guarantee import Guarantee
from shortlist.html_report.examples import ExampleSets, example_sets
from shortlist.html_report.operating_points import OperatingPoints, typical_guarantee

CURVE_POINTS = 150
"""Approximate maximum number of points of a plotted curve."""
RESAMPLES = 200
"""Number of bootstrap samples for the confidence bands."""
SINGLE_BINS = 16
"""Maximum number of set sizes that have one bar each; more sizes are binned."""
MAX_NAME = 80
"""Maximum length of a name; longer names are shortened."""


@dataclass(frozen=True)
class Point:
    """Counts of the sets of the test rows at one operating point.

    Attributes
    ----------
    guaranteed : bool
        Whether an accuracy is guaranteed for these sets.
    hits : int
        Number of rows whose set contains the true label.
    labels : int
        Number of labels in all sets together.
    largest : int
        Size of the largest set.
    counts : tuple of int
        Number of sets in each bin of sizes.
    missed : tuple of int
        Number of rows whose set misses the true label: for each class that is shown, followed by
        all other classes.
    sizes, contained : tuple of int
        Sizes of the sets of the example rows, and 1 where the set contains the true label.
    sets : tuple or None
        Labels of the sets of the example rows, if these are not prefixes of a ranking.
    """

    guaranteed: bool
    hits: int
    labels: int
    largest: int
    counts: tuple[int, ...]
    missed: tuple[int, ...]
    sizes: tuple[int, ...]
    contained: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Method:
    """One method at every accuracy of the slider.

    Attributes
    ----------
    name : str
        Name of the method.
    guarantee : Guarantee
        Its guarantee at one of the accuracies, which is falsy if there is none.
    curve : tuple of lists
        Mean sizes and accuracies to plot.
    size, low, high : list of float
        Mean size at which the curve reaches each accuracy, and the limits of its confidence band;
        NaN where the curve does not reach the accuracy.
    at : list of int
        Index into `points` for each accuracy; -1 if there is no point.
    points : list of Point
        The distinct operating points.
    order : list of list of int or None
        Ranked labels of the example rows, best first, if sets are prefixes of the ranking.
    """

    name: str
    guarantee: Guarantee
    curve: tuple[list[float], list[float]]
    size: list[float]
    low: list[float]
    high: list[float]
    at: list[int]
    points: list[Point]
    order: list[list[int]] | None


@dataclass(frozen=True)
class Layout:
    """What all methods of a report have in common.

    Attributes
    ----------
    accuracies : list of float
        Accuracies of the slider.
    bins : list of (int, int)
        Smallest and largest set size of each bar.
    examples : list of int
        Numbers of the example rows.
    class_codes : array of shape (n_rows,)
        Place of each row's class among the classes shown; the last place is for all others.
    n_codes : int
        Number of places.
    """

    accuracies: list[float]
    bins: list[tuple[int, int]]
    examples: list[int]
    class_codes: NDArray[np.int64]
    n_codes: int


def method_content(
    name: str, fitted: FittedMethod, points: OperatingPoints, layout: Layout
) -> Method:
    """Return the content of one method."""
    accuracies = layout.accuracies
    sets = example_sets(fitted, layout.examples, points, accuracies)
    at, distinct = _distinct_points(points, sets, layout)
    size, low, high = _sizes_on_curves(fitted, accuracies)
    return Method(
        name=printable(name),
        guarantee=typical_guarantee(fitted, accuracies, points),
        curve=_curve_to_plot(fitted, accuracies, size),
        size=size.tolist(),
        low=low.tolist(),
        high=high.tolist(),
        at=at,
        points=distinct,
        order=sets.order,
    )


def _distinct_points(
    points: OperatingPoints, sets: ExampleSets, layout: Layout
) -> tuple[list[int], list[Point]]:
    """Return the index of the point of each accuracy, and the distinct points."""
    at = []
    seen: dict[tuple[bool, bytes, bytes], int] = {}
    distinct: list[Point] = []
    for i, known in enumerate(points.known):
        if not known:
            at.append(-1)
            continue
        hits, sizes = points.hits[:, i], points.sizes[:, i]
        key = bool(points.guaranteed[i]), hits.tobytes(), sizes.tobytes()
        if key not in seen:
            seen[key] = len(distinct)
            own = None if sets.sets is None else sets.sets[i]
            distinct.append(_point(key[0], hits, sizes, own, layout))
        at.append(seen[key])
    return at, distinct


def _point(
    guaranteed: bool,
    hits: NDArray[np.bool_],
    sizes: NDArray[np.int32],
    sets: list[list[int]] | None,
    layout: Layout,
) -> Point:
    bin_of_row = np.searchsorted([high for _, high in layout.bins], sizes)
    missed = np.bincount(layout.class_codes[~hits], minlength=layout.n_codes)
    return Point(
        guaranteed=guaranteed,
        hits=int(hits.sum()),
        labels=int(sizes.sum()),
        largest=int(sizes.max()),
        counts=tuple(np.bincount(bin_of_row, minlength=len(layout.bins)).tolist()),
        missed=tuple(missed.tolist()),
        sizes=tuple(sizes[layout.examples].tolist()),
        contained=tuple(hits[layout.examples].astype(int).tolist()),
        sets=None if sets is None else tuple(map(tuple, sets)),
    )


def size_bins(largest: int) -> list[tuple[int, int]]:
    """Return bins of set sizes: one for each size, or bins of growing width for many sizes.

    Examples
    --------
    >>> size_bins(3), size_bins(40)[-4:]
    ([(1, 1), (2, 2), (3, 3)], [(11, 15), (16, 20), (21, 30), (31, 40)])
    """
    if largest <= SINGLE_BINS:
        return [(k, k) for k in range(1, max(largest, 1) + 1)]
    bins, low = [], 1
    for power in itertools.count():
        for high in (k * 10**power // 10 for k in (15, 20, 30, 50, 70, 100)):
            if high >= low:
                bins.append((low, min(high, largest)))
                low = high + 1
            if low > largest:
                return bins
    raise AssertionError("unreachable")


def _sizes_on_curves(
    fitted: FittedMethod, accuracies: list[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return mean sizes at equal accuracy, and their confidence bands."""
    size, low, high = np.full((3, len(accuracies)), np.nan)
    asked, used = np.array(accuracies), np.array([id(fitted.curve(a)) for a in accuracies])
    for key, curve in {id(curve): curve for curve in fitted.curves.values()}.items():
        mine = used == key
        size[mine] = curve.size_at(asked[mine])
        if curve.rows is not None and mine.any():
            _, low[mine], high[mine] = curve.band(asked[mine], resamples=RESAMPLES)
    return size, low, high


def _curve_to_plot(
    fitted: FittedMethod, accuracies: list[float], sizes: NDArray[np.float64]
) -> tuple[list[float], list[float]]:
    """Return mean sizes and accuracies to plot.

    For one model, these are points of its envelope, spaced evenly on the axis of the chart. If
    several models were tuned, they are the first point of the first model's envelope, followed by
    the size at each accuracy on the curve of the model that is used for this accuracy.
    """
    best = fitted.curve(accuracies[0]).envelope()
    accuracy, size = best.accuracy, best.mean_size
    if fitted.is_tuned:
        beyond = (np.array(accuracies) > accuracy[0]) & ~np.isnan(sizes)
        own = np.array(accuracies)[beyond]
        return [float(size[0]), *sizes[beyond].tolist()], [float(accuracy[0]), *own.tolist()]
    first = max(int(np.searchsorted(accuracy, accuracies[0])) - 1, 0)
    accuracy, size = accuracy[first:], size[first:]
    if len(accuracy) > CURVE_POINTS:
        nines = -np.log10(np.maximum(1 - accuracy, 1e-4))
        even = np.linspace(nines[0], nines[-1], CURVE_POINTS)
        at = np.unique(np.append(np.searchsorted(nines, even), len(nines) - 1))
        accuracy, size = accuracy[at], size[at]
    return size.tolist(), accuracy.tolist()


def printable(name: str) -> str:
    r"""Return a name on one line, with limited length and without control characters.

    Examples
    --------
    >>> printable("a\x00b\n\tc"), len(printable("x" * 1000)), printable("\ud800")
    ('a b c', 80, '(no name)')
    """
    # The two joiners are not printable, but some scripts and emoji need them.
    clean = "".join(c if c.isprintable() or c in "\u200c\u200d" else " " for c in name)
    clean = " ".join(clean.split())
    if len(clean) > MAX_NAME:  # The end is kept, because long names often differ there.
        clean = f"{clean[: MAX_NAME - 31]}…{clean[-30:]}"
    return clean or "(no name)"
