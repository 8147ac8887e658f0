"""Classes with large sets, and groups of classes that are confused with each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from shortlist._utils.arrays import to_tensor
from shortlist.sets import PredictionSets

MAX_CLASSES = 1000
"""Maximum number of classes to group: those that share sets with others most often."""
MIN_SHARE = 0.02
"""Minimum fraction of shared sets for classes to be called confused."""


@dataclass(frozen=True)
class HardClass:
    """A class whose rows have large sets.

    Attributes
    ----------
    label : int
        Index of the class.
    n_rows : int
        Number of its rows.
    first_accuracy : float
        Fraction of its rows whose first label is the true label.
    accuracy : float
        Fraction of its rows whose set contains the true label.
    mean_size : float
        Mean size of the sets of its rows.
    """

    label: int
    n_rows: int
    first_accuracy: float
    accuracy: float
    mean_size: float


@dataclass(frozen=True)
class ConfusedGroup:
    """Classes that are often in the same set.

    Attributes
    ----------
    labels : tuple of int
        Indices of the classes.
    share : float
        Fraction of the rows of two classes whose set contains the other class, on average over all
        pairs.
    mistake : tuple of int or None
        The most frequent mistake inside the group: the true label, the first label of the set, and
        the number of rows.
    """

    labels: tuple[int, ...]
    share: float
    mistake: tuple[int, int, int] | None


def first_labels(sets: PredictionSets) -> NDArray[np.int64]:
    """Return the index of each set's first label; -1 for empty sets."""
    sizes = to_tensor(sets.sizes, "sizes").cpu().numpy()
    flat = to_tensor(sets.indices, "labels").cpu().numpy().astype(np.int64)
    first = np.full(len(sizes), -1)
    first[sizes > 0] = flat[(np.cumsum(sizes) - sizes)[sizes > 0]]
    return first


def hardest_classes(sets: PredictionSets, index: NDArray[np.int64], most: int) -> list[HardClass]:
    """Return the classes whose rows have the largest sets on average, largest first.

    Examples
    --------
    >>> sets = PredictionSets.from_lists([[0], [1, 0], [1], [1, 2], [2, 1, 0]], n_classes=3)
    >>> hard = hardest_classes(sets, np.array([0, 0, 1, 1, 2]), most=2)
    >>> [(h.label, h.n_rows, h.first_accuracy, h.accuracy, h.mean_size) for h in hard]
    [(2, 1, 1.0, 1.0, 3.0), (0, 2, 0.5, 1.0, 1.5)]
    """
    n = sets.n_classes
    sizes = to_tensor(sets.sizes, "sizes").cpu().numpy()
    contained = to_tensor(sets.contains(sets.classes[index]), "hits").cpu().numpy()
    rows = np.bincount(index, minlength=n)
    labels = np.bincount(index, weights=sizes, minlength=n)
    first = np.bincount(index[first_labels(sets) == index], minlength=n)
    hits = np.bincount(index[contained], minlength=n)
    present = np.flatnonzero(rows)
    mean_sizes, accuracies = labels[present] / rows[present], hits[present] / rows[present]
    order = present[np.lexsort((present, accuracies, -mean_sizes))]
    return [
        HardClass(int(k), int(rows[k]), *(float(n[k] / rows[k]) for n in (first, hits, labels)))
        for k in order[:most]
    ]


def confused_groups(
    sets: PredictionSets, index: NDArray[np.int64], most: int
) -> list[ConfusedGroup]:
    """Return groups of classes that share sets, in decreasing order of the share.

    The share of two classes is the fraction of their rows whose set contains the other class.
    Classes are clustered by average linkage on these shares. The tree is cut where it first has
    the largest number of groups of at least two classes. Groups with a share below `MIN_SHARE` are
    left out.

    Examples
    --------
    >>> labels = [[0, 1], [1, 0], [1], [2, 3], [3], [2]]
    >>> sets = PredictionSets.from_lists(labels, n_classes=4)
    >>> for group in confused_groups(sets, np.array([0, 1, 0, 2, 3, 3]), most=5):
    ...     print(group.labels, round(group.share, 3), group.mistake)
    (0, 1) 1.0 (0, 1, 1)
    (2, 3) 0.667 (3, 2, 1)
    """
    n = sets.n_classes
    strength, labels = _shared(sets, index)
    if len(labels) < 2:
        return []
    first = first_labels(sets)
    tree = linkage(squareform(1 - strength, checks=False), "average")
    groups = []
    for members in _clusters(tree):
        pairs = list(combinations(members, 2))
        share = float(np.mean([strength[a, b] for a, b in pairs]))
        if share < MIN_SHARE:
            continue
        own = tuple(int(labels[k]) for k in members)
        inside = np.isin(index, own) & np.isin(first, own) & (index != first)
        mistake = None
        if inside.any():
            codes, counts = np.unique(index[inside] * n + first[inside], return_counts=True)
            at = int(counts.argmax())
            mistake = (*divmod(int(codes[at]), n), int(counts[at]))
        groups.append(ConfusedGroup(own, share, mistake))
    return sorted(groups, key=lambda group: (-group.share, group.labels))[:most]


def _clusters(tree: NDArray[np.float64]) -> list[list[int]]:
    """Cut a tree where it has most clusters of two or more classes, and return these."""
    # A merge of two single classes adds a cluster, and a merge of two clusters removes one.
    singles = (tree[:, :2] <= len(tree)).sum(axis=1)
    count = np.cumsum(np.select([singles == 2, singles == 1], [1, 0], -1))
    merges = int(count.argmax()) + 1
    # The tree is cut by the number of merges, because several merges can have the same height.
    ranked = tree.copy()
    ranked[:, 2] = np.arange(1, len(tree) + 1)
    member = fcluster(ranked, merges + 0.5, "distance")
    groups = [np.flatnonzero(member == k).tolist() for k in np.unique(member)]
    return [group for group in groups if len(group) > 1]


def _shared(
    sets: PredictionSets, index: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return a matrix with the share of each pair of classes, and the classes of its rows."""
    n = sets.n_classes
    sizes = to_tensor(sets.sizes, "sizes").cpu().numpy()
    flat = to_tensor(sets.indices, "labels").cpu().numpy().astype(np.int64)
    codes, counts = np.unique(np.repeat(index, sizes) * n + flat, return_counts=True)
    true, other = np.divmod(codes, n)
    differ = true != other
    true, other, counts = true[differ], other[differ], counts[differ]
    total = np.bincount(true, counts, minlength=n) + np.bincount(other, counts, minlength=n)
    labels = np.sort(np.argsort(-total, kind="stable")[: min(int((total > 0).sum()), MAX_CLASSES)])
    place = np.full(n, -1)
    place[labels] = np.arange(len(labels))
    a, b = place[true], place[other]
    inside = (a >= 0) & (b >= 0)
    shared = np.zeros((len(labels), len(labels)))
    np.add.at(shared, (a[inside], b[inside]), counts[inside])
    rows = np.bincount(index, minlength=n)[labels]
    strength = (shared + shared.T) / (rows[:, None] + rows).clip(1)
    np.fill_diagonal(strength, 1)
    return strength, labels
