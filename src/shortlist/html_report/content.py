"""The content of a report: numbers and names that are computed from a comparison, without HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist._utils.progress import track
from shortlist.comparison import MAIN_METHOD, Comparison, FittedMethod
from shortlist.html_report.confusion import (
    ConfusedGroup,
    HardClass,
    confused_groups,
    first_labels,
    hardest_classes,
)
from shortlist.html_report.examples import example_names, example_rows, sets_of_sizes
from shortlist.html_report.method_content import (
    Layout,
    Method,
    method_content,
    printable,
    size_bins,
)
from shortlist.html_report.operating_points import TARGETS, OperatingPoints, operating_points
from shortlist.sets import PredictionSets

MAX_CLASSES = 200
"""Maximum number of classes whose accuracy is shown; all others are shown together."""
HARDEST, GROUPS = 12, 8
UNKNOWN_CLASS = "(unknown class)"
"""Name for the classes of test labels that the models do not know."""


@dataclass(frozen=True)
class Content:
    """All numbers and names in a report.

    Attributes
    ----------
    comparison : Comparison
        Comparison to report.
    accuracies : list of float
        Accuracies of the slider.
    start, main : int
        Indices of the accuracy and of the method that are selected at first.
    n_test : int
        Number of test rows.
    first_accuracy : float
        Fraction of test rows whose highest score is that of the true label.
    names : list of str
        Names of all classes; the last is `UNKNOWN_CLASS` if test labels are of unknown classes.
    classes : list of int
        Classes whose accuracy is shown, hardest first.
    class_rows : list of int
        Number of test rows of each of these classes, followed by that of all other classes.
    bins : list of (int, int)
        Smallest and largest set size of each bar.
    methods : list of Method
        All methods.
    examples : list of (str, int)
        Name and true label of each example row.
    hardest : list of HardClass
        Classes with the largest sets.
    groups : list of ConfusedGroup
        Classes that are confused with each other.
    """

    comparison: Comparison
    accuracies: list[float]
    start: int
    main: int
    n_test: int
    first_accuracy: float
    names: list[str]
    classes: list[int]
    class_rows: list[int]
    bins: list[tuple[int, int]]
    methods: list[Method]
    examples: list[tuple[str, int]]
    hardest: list[HardClass] = field(default_factory=list)
    groups: list[ConfusedGroup] = field(default_factory=list)


def make_content(comparison: Comparison, examples: Sequence[str] | None = None) -> Content:
    """Compute the content of a report."""
    if not comparison.fitted:
        raise ValueError(
            "this Comparison has no models and rows, which a report needs; make it with "
            "compare(...)"
        )
    names = list(comparison.fitted)
    accuracies = sorted({*TARGETS, *comparison.accuracies})
    start = accuracies.index(comparison.main_accuracy)
    main = names[names.index(MAIN_METHOD) if MAIN_METHOD in names else 0]
    ranking, y, _ = comparison.fitted[main].test
    names_of_classes = list(map(str, ranking.classes.array().tolist()))
    index = ranking.classes.encode(y, rows=len(ranking), unknown="any").cpu().numpy()
    if (index < 0).any():
        names_of_classes.append(UNKNOWN_CLASS)  # One more class, which is in no set.
        index = np.where(index < 0, ranking.n_classes, index)
    n_classes, known = len(names_of_classes), np.flatnonzero(index < ranking.n_classes)
    # Invalid names raise before anything is computed.
    example_names(examples, [], len(ranking), comparison.test_index)
    points = {name: operating_points(one, accuracies) for name, one in comparison.fitted.items()}
    sets = _sets(comparison.fitted[main], points[main], accuracies, start)
    right = np.asarray(torch.as_tensor(ranking.rank(y)).cpu()) == 0
    first = right if sets is None else first_labels(sets) == index
    shown = example_rows(points[main].hits[:, start], points[main].sizes[:, start], first)
    shown_names = example_names(examples, shown, len(ranking), comparison.test_index)
    classes, class_rows = _shown_classes(points, index, n_classes)
    layout = Layout(accuracies, _bins(points), shown, *_class_codes(index, classes, n_classes))
    methods = []
    with track("report", len(names)) as step:
        for name, one in comparison.fitted.items():
            methods.append(method_content(name, one, points[name], layout))
            step(name)
    return Content(
        comparison=comparison,
        accuracies=accuracies,
        start=start,
        main=names.index(main),
        n_test=len(ranking),
        first_accuracy=float(right.mean()),
        names=[printable(name) for name in names_of_classes],
        classes=classes,
        class_rows=class_rows,
        bins=layout.bins,
        methods=methods,
        examples=[(printable(n), int(index[k])) for n, k in zip(shown_names, shown, strict=True)],
        hardest=[] if sets is None else hardest_classes(sets[known], index[known], HARDEST),
        groups=[] if sets is None else confused_groups(sets[known], index[known], GROUPS),
    )


def _sets(
    fitted: FittedMethod, points: OperatingPoints, accuracies: list[float], at: int
) -> PredictionSets | None:
    """Return the sets of all test rows at one accuracy; None if they are not known."""
    ranking, _, x = fitted.test
    model = fitted.model(accuracies[at])
    if points.guaranteed[at]:
        return model.predict_if_reachable(ranking, x, accuracy=accuracies[at])
    if not points.known[at]:
        return None
    sizes = torch.from_numpy(points.sizes[:, at].astype(np.int64)).to(ranking.device)
    return sets_of_sizes(model, fitted.test, sizes)


def _shown_classes(
    points: dict[str, OperatingPoints], index: NDArray[np.int64], n: int
) -> tuple[list[int], list[int]]:
    """Return the classes that are missed most often, and the number of rows of each.

    Misses are counted over all methods and accuracies. The last number of rows is that of all
    other classes.
    """
    rows = np.bincount(index, minlength=n)
    missed = np.zeros(n)
    for one in points.values():
        missed += np.bincount(index, weights=(~one.hits[:, one.known]).sum(axis=1), minlength=n)
    present = np.flatnonzero(rows)
    order = present[np.argsort(-(missed[present] / rows[present]), kind="stable")]
    chosen = order[:MAX_CLASSES].tolist()
    return chosen, [*rows[chosen].tolist(), int(len(index) - rows[chosen].sum())]


def _class_codes(
    index: NDArray[np.int64], classes: list[int], n: int
) -> tuple[NDArray[np.int64], int]:
    """Return the place of each row's class among the shown classes, and the number of places."""
    place = np.full(n, len(classes))
    place[classes] = np.arange(len(classes))
    return place[index], len(classes) + 1


def _bins(points: dict[str, OperatingPoints]) -> list[tuple[int, int]]:
    """Return bins for all set sizes that occur."""
    bins = size_bins(max(int(one.sizes.max()) for one in points.values()))
    some_empty = any((one.sizes[:, one.known] == 0).any() for one in points.values())
    return [(0, 0), *bins] if some_empty else bins
