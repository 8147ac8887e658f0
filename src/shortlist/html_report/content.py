"""What a report says: plain numbers and names, computed from a comparison. Knows no HTML."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist._utils.progress import track
from shortlist.comparison import Comparison, Fitted
from shortlist.comparison.result import middle_of
from shortlist.html_report.confusion import (
    Group,
    HardClass,
    confused_groups,
    firsts,
    hardest_classes,
)
from shortlist.html_report.examples import (
    Lists,
    example_names,
    example_rows,
    lists_of,
    sets_of_sizes,
)
from shortlist.html_report.operating_points import (
    TARGETS,
    Points,
    can_guarantee,
    points_of,
    sets_guaranteed,
)
from shortlist.sets import PredictionSets

CLASSES = 200
"""Of so many classes, the hardest, each has its own accuracy; the others have one together."""
CURVE_POINTS = 150
RESAMPLES = 200
HARDEST, GROUPS = 12, 8
SINGLE_BINS = 16
"""So many sizes have a bar of their own, if there are no more."""


@dataclass(frozen=True)
class Point:
    """Sets of the test rows at one operating point, in whole numbers."""

    guaranteed: bool
    hits: int
    """Rows whose list holds the right label."""
    labels: int
    """Labels in all lists together."""
    longest: int
    counts: tuple[int, ...]
    """How many lists fall into each bin of sizes."""
    missed: tuple[int, ...]
    """For each class that is told apart, and last for the others: rows whose list misses it."""
    sizes: tuple[int, ...]
    """Of the lists of the rows shown, …"""
    held: tuple[int, ...]
    """… and 1 where the list holds the right label."""
    lists: tuple[tuple[int, ...], ...] | None = None
    """Their labels, where these are no prefix."""


@dataclass(frozen=True)
class Method:
    """One method at every accuracy that can be asked for."""

    name: str
    guarantee: str
    """What stands behind its guarantees: "by 275 calibration rows". Empty if it makes none."""
    curve: tuple[list[float], list[float]]
    """Mean sizes and accuracies to draw."""
    size: list[float]
    """Mean size where the curve reaches each accuracy; NaN where it does not."""
    low: list[float]
    high: list[float]
    """The band around it; NaN where there is none."""
    at: list[int]
    """Which of `points` each accuracy has; -1 for none."""
    points: list[Point]
    order: list[list[int]] | None
    """The labels of the rows shown, best first, as far as they are shown."""


@dataclass(frozen=True)
class Content:
    """All that a report says, but for the words around it."""

    found: Comparison
    accuracies: list[float]
    """What can be asked for."""
    start: int
    """Which of them is shown first."""
    main: int
    """Which method is shown first."""
    rows: int
    first_right: float
    """The share of test rows whose best score is the right label's."""
    names: list[str]
    """Of all classes."""
    classes: list[int]
    """Those that are told apart, hardest first, …"""
    class_rows: list[int]
    """… how many test rows each has, and last how many the others have together."""
    bins: list[tuple[int, int]]
    """The least and the largest size of each bar."""
    methods: list[Method]
    examples: list[tuple[str, int]]
    """What the rows shown are called, and their labels."""
    hardest: list[HardClass] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)


def content_of(found: Comparison, examples: Sequence[str] | None = None) -> Content:
    """Compute what a report says."""
    if not found._fitted:
        raise ValueError(
            "this Comparison did not keep the rows and models that a report needs; make it with "
            "compare(...)"
        )
    names = list(found._fitted)
    accuracies = sorted({*TARGETS, *found.accuracies})
    start = accuracies.index(middle_of(found))
    main = names.index("Shortlister") if "Shortlister" in names else 0
    ranking, y, _ = found._fitted[names[main]].judged
    index = ranking.classes.encode(y, rows=len(ranking)).numpy()
    example_names(examples, [], len(ranking), found.row_numbers)  # what is wrong is told at once
    points = {name: points_of(one, accuracies) for name, one in found._fitted.items()}
    sets = _sets(found._fitted[names[main]], points[names[main]], accuracies, start)
    right = np.asarray(torch.as_tensor(ranking.rank(y)).cpu()) == 0
    first = right if sets is None else firsts(sets) == index
    mine = points[names[main]]
    shown = example_rows(mine.hits[:, start], mine.sizes[:, start], first)
    told_apart, rows_of = _told_apart(points, index, ranking.n_classes)
    bins = size_bins(max(int(one.sizes.max()) for one in points.values()))
    if any((one.sizes[:, one.known] == 0).any() for one in points.values()):
        bins = [(0, 0), *bins]
    coded, methods = _code(index, told_apart, ranking.n_classes), []
    with track("report", len(names)) as step:
        for name, one in found._fitted.items():
            methods.append(_method(name, one, points[name], accuracies, coded, bins, shown))
            step(name)
    return Content(
        found=found,
        accuracies=accuracies,
        start=start,
        main=main,
        rows=len(ranking),
        first_right=float(right.mean()),
        names=[_printable(str(name)) for name in ranking.classes.array().tolist()],
        classes=told_apart,
        class_rows=rows_of,
        bins=bins,
        methods=methods,
        examples=[
            (_printable(name), int(index[row]))
            for name, row in zip(
                example_names(examples, shown, len(ranking), found.row_numbers), shown, strict=True
            )
        ],
        hardest=[] if sets is None else hardest_classes(sets, index, HARDEST),
        groups=[] if sets is None else confused_groups(sets, index, GROUPS),
    )


def _method(
    name: str,
    fitted: Fitted,
    points: Points,
    accuracies: list[float],
    coded: tuple[NDArray[np.int64], int],
    bins: list[tuple[int, int]],
    shown: list[int],
) -> Method:
    lists = lists_of(fitted, shown, points, accuracies)
    at, distinct = _distinct(points, *coded, bins, shown, lists)
    size, low, high = _sizes_on_curves(fitted, accuracies)
    return Method(
        name=_printable(name),
        guarantee=_by_what(fitted, accuracies, points),
        curve=_drawn(fitted, accuracies, size),
        size=size.tolist(),
        low=low.tolist(),
        high=high.tolist(),
        at=at,
        points=distinct,
        order=lists.order,
    )


def _distinct(
    points: Points,
    code: NDArray[np.int64],
    n: int,
    bins: list[tuple[int, int]],
    shown: list[int],
    lists: Lists,
) -> tuple[list[int], list[Point]]:
    """The points that differ, and which of them each accuracy has."""
    at = []
    found: dict[tuple[bool, bytes, bytes], int] = {}
    distinct: list[Point] = []
    edges = np.array([high for _, high in bins])
    for i, known in enumerate(points.known):
        if not known:
            at.append(-1)
            continue
        hits, sizes = points.hits[:, i], points.sizes[:, i]
        key = bool(points.guaranteed[i]), hits.tobytes(), sizes.tobytes()
        if key not in found:
            found[key] = len(distinct)
            own = None if lists.lists is None else lists.lists[i]
            distinct.append(
                Point(
                    guaranteed=key[0],
                    hits=int(hits.sum()),
                    labels=int(sizes.sum()),
                    longest=int(sizes.max()),
                    counts=tuple(
                        np.bincount(np.searchsorted(edges, sizes), minlength=len(bins)).tolist()
                    ),
                    missed=tuple(np.bincount(code[~hits], minlength=n).tolist()),
                    sizes=tuple(sizes[shown].tolist()),
                    held=tuple(hits[shown].astype(int).tolist()),
                    lists=None if own is None else tuple(map(tuple, own)),
                )
            )
        at.append(found[key])
    return at, distinct


def _sets(
    fitted: Fitted, points: Points, accuracies: list[float], at: int
) -> PredictionSets | None:
    """The sets of all test rows at one accuracy."""
    ranking, _, x = fitted.judged
    model = fitted.model(accuracies[at])
    if points.guaranteed[at]:
        return sets_guaranteed(model, ranking, x, accuracies[at])
    if not points.known[at]:
        return None
    sizes = torch.from_numpy(points.sizes[:, at].astype(np.int64)).to(ranking.device)
    return sets_of_sizes(model, fitted.judged, sizes)


def _told_apart(
    points: dict[str, Points], index: NDArray[np.int64], n: int
) -> tuple[list[int], list[int]]:
    """The hardest classes that have test rows, over all methods and accuracies; and how many rows
    each has, and all others together."""
    rows = np.bincount(index, minlength=n)
    missed = np.zeros(n)
    for one in points.values():
        missed += np.bincount(index, weights=(~one.hits[:, one.known]).sum(axis=1), minlength=n)
    there = np.flatnonzero(rows)
    order = there[np.argsort(-(missed[there] / rows[there]), kind="stable")]
    chosen = order[:CLASSES].tolist()
    return chosen, [*rows[chosen].tolist(), int(len(index) - rows[chosen].sum())]


def _code(index: NDArray[np.int64], classes: list[int], n: int) -> tuple[NDArray[np.int64], int]:
    """The place of each row's class among those told apart, the last place for all others; and how
    many places there are."""
    place = np.full(n, len(classes))
    place[classes] = np.arange(len(classes))
    return place[index], len(classes) + 1


def size_bins(largest: int) -> list[tuple[int, int]]:
    """The sizes that share a bar: one each, or, where there are many, steps that grow.

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
    raise AssertionError("never")


def _sizes_on_curves(
    fitted: Fitted, accuracies: list[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean sizes at equal accuracy, and their bands, each on the curve of the model for it."""
    size, low, high = np.full((3, len(accuracies)), np.nan)
    asked, used = np.array(accuracies), [id(fitted.curves[fitted.nearest(a)]) for a in accuracies]
    for key, curve in {id(curve): curve for curve in fitted.curves.values()}.items():
        mine = np.array(used) == key
        size[mine] = curve.size_at(asked[mine])
        if curve.rows is not None and mine.any():
            _, low[mine], high[mine] = curve.band(asked[mine], resamples=RESAMPLES)
    return size, low, high


def _drawn(
    fitted: Fitted, accuracies: list[float], sizes: NDArray[np.float64]
) -> tuple[list[float], list[float]]:
    """The points of a curve to draw: of its envelope, evenly spread where accuracies are high; of
    several models, where the first begins, and what each has at the accuracies it is used for."""
    best = fitted.curves[fitted.nearest(accuracies[0])].envelope()
    accuracy, size = best.accuracy, best.mean_size
    if len({id(curve) for curve in fitted.curves.values()}) > 1:
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


def _by_what(fitted: Fitted, accuracies: list[float], points: Points) -> str:
    """What stands behind a method's guarantees, in the words of one of them."""
    made = np.flatnonzero(points.guaranteed)
    if not len(made):
        return ""
    at = accuracies[made[len(made) // 2]]
    ranking, _, x = fitted.judged
    model = fitted.model(at)
    assert can_guarantee(model)
    sets = sets_guaranteed(model, ranking[:1], None if x is None else x[:1], at)
    words = "" if sets is None else sets.guarantee.split(";")[0]
    return words.partition(" guaranteed ")[2] or "by calibration rows"


LONGEST_NAME = 80


def _printable(name: str) -> str:
    """A name in one line of bounded length, with nothing that a page cannot hold.

    >>> _printable("a\\x00b\\n\\tc"), len(_printable("x" * 1000)), _printable("\\ud800")
    ('a b c', 80, '(no name)')
    """
    # The two joiners are no more printable than other controls, but scripts and emoji need them.
    clean = "".join(c if c.isprintable() or c in "\u200c\u200d" else " " for c in name)
    clean = " ".join(clean.split())
    if len(clean) > LONGEST_NAME:  # names often differ at their end
        clean = f"{clean[: LONGEST_NAME - 31]}…{clean[-30:]}"
    return clean or "(no name)"
