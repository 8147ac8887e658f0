"""Which classes are hard, and which are taken for each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from shortlist._utils.arrays import to_tensor
from shortlist.sets import PredictionSets

MOST_CLASSES = 1000
"""Groups are looked for among so many classes, those that share lists most often."""
LEAST_SHARE = 0.02
"""Classes that share fewer lists than this are not said to be confused."""


@dataclass(frozen=True)
class HardClass:
    """A class (by its index) whose rows need long lists."""

    label: int
    rows: int
    first: float
    """The share of its rows whose first label is right, …"""
    held: float
    """… and of those whose list holds it."""
    mean_size: float


@dataclass(frozen=True)
class Group:
    """Classes (by their index) that are often on one list."""

    labels: tuple[int, ...]
    share: float
    """How often: of two of them, on average over the pairs."""
    mistake: tuple[int, int, int] | None
    """The commonest mistake inside: the right label, the first label, and in how many rows."""


def firsts(sets: PredictionSets) -> NDArray[np.int64]:
    """Each row's first label; -1 where the list is empty."""
    sizes = to_tensor(sets.sizes, "sizes").cpu().numpy()
    flat = to_tensor(sets.indices, "labels").cpu().numpy().astype(np.int64)
    first = np.full(len(sizes), -1)
    first[sizes > 0] = flat[(np.cumsum(sizes) - sizes)[sizes > 0]]
    return first


def hardest_classes(sets: PredictionSets, index: NDArray[np.int64], most: int) -> list[HardClass]:
    """The classes whose rows have the longest lists on average, longest first.

    >>> sets = PredictionSets.from_lists([[0], [1, 0], [1], [1, 2], [2, 1, 0]], n_classes=3)
    >>> hard = hardest_classes(sets, np.array([0, 0, 1, 1, 2]), most=2)
    >>> [(one.label, one.rows, one.first, one.held, one.mean_size) for one in hard]
    [(2, 1, 1.0, 1.0, 3.0), (0, 2, 0.5, 1.0, 1.5)]
    """
    n = sets.n_classes
    sizes = to_tensor(sets.sizes, "sizes").cpu().numpy()
    held = to_tensor(sets.contains(sets.classes[index]), "hits").cpu().numpy()
    rows = np.bincount(index, minlength=n)
    labels = np.bincount(index, weights=sizes, minlength=n)
    right = np.bincount(index[firsts(sets) == index], minlength=n)
    hits = np.bincount(index[held], minlength=n)
    there = np.flatnonzero(rows)
    lengths, shares = labels[there] / rows[there], hits[there] / rows[there]
    order = there[np.lexsort((there, shares, -lengths))]
    return [
        HardClass(int(k), int(rows[k]), *(float(v[k] / rows[k]) for v in (right, hits, labels)))
        for k in order[:most]
    ]


def confused_groups(sets: PredictionSets, index: NDArray[np.int64], most: int) -> list[Group]:
    """Groups of classes that share lists, those that share most first.

    Two classes share lists as often as a row of either of them has a list that holds the other:
    among the rows of both, the share of those. Groups are grown by average linkage: the two groups
    that share most, on average over the pairs of their classes, become one, and so on. That is
    stopped where there are most groups of two classes or more (where that is so more than once, at
    the first), and groups that share less than one list in fifty are left out.

    >>> lists = [[0, 1], [1, 0], [1], [2, 3], [3], [2]]
    >>> sets = PredictionSets.from_lists(lists, n_classes=4)
    >>> for group in confused_groups(sets, np.array([0, 1, 0, 2, 3, 3]), most=5):
    ...     print(group.labels, round(group.share, 3), group.mistake)
    (0, 1) 1.0 (0, 1, 1)
    (2, 3) 0.667 (3, 2, 1)
    """
    n = sets.n_classes
    strength, labels = _shared(sets, index)
    if len(labels) < 2:
        return []
    first = firsts(sets)
    tree = linkage(squareform(1 - strength, checks=False), "average")
    found = []
    for members in _clusters(tree):
        pairs = list(combinations(members, 2))
        share = float(np.mean([strength[a, b] for a, b in pairs]))
        if share < LEAST_SHARE:
            continue
        own = tuple(int(labels[k]) for k in members)
        inside = np.isin(index, own) & np.isin(first, own) & (index != first)
        mistake = None
        if inside.any():
            codes, counts = np.unique(index[inside] * n + first[inside], return_counts=True)
            at = int(counts.argmax())
            mistake = (*divmod(int(codes[at]), n), int(counts[at]))
        found.append(Group(own, share, mistake))
    return sorted(found, key=lambda group: (-group.share, group.labels))[:most]


def _clusters(tree: NDArray[np.float64]) -> list[list[int]]:
    """The clusters of two or more where these are most numerous."""
    # After each merge: how many clusters of two or more there are. One more where two single
    # classes meet, one less where two groups do.
    singles = (tree[:, :2] <= len(tree)).sum(axis=1)
    count = np.cumsum(np.select([singles == 2, singles == 1], [1, 0], -1))
    merges = int(count.argmax()) + 1
    # The tree's own heights may tie: cut by the number of merges instead.
    ranked = tree.copy()
    ranked[:, 2] = np.arange(1, len(tree) + 1)
    member = fcluster(ranked, merges + 0.5, "distance")
    groups = [np.flatnonzero(member == k).tolist() for k in np.unique(member)]
    return [group for group in groups if len(group) > 1]


def _shared(
    sets: PredictionSets, index: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """How often two classes share a list, a matrix; and which classes its rows are."""
    n = sets.n_classes
    sizes = to_tensor(sets.sizes, "sizes").cpu().numpy()
    flat = to_tensor(sets.indices, "labels").cpu().numpy().astype(np.int64)
    codes, counts = np.unique(np.repeat(index, sizes) * n + flat, return_counts=True)
    right, other = np.divmod(codes, n)
    apart = right != other
    right, other, counts = right[apart], other[apart], counts[apart]
    often = np.bincount(right, counts, minlength=n) + np.bincount(other, counts, minlength=n)
    labels = np.sort(np.argsort(-often, kind="stable")[: min(int((often > 0).sum()), MOST_CLASSES)])
    place = np.full(n, -1)
    place[labels] = np.arange(len(labels))
    a, b = place[right], place[other]
    inside = (a >= 0) & (b >= 0)
    shared = np.zeros((len(labels), len(labels)))
    np.add.at(shared, (a[inside], b[inside]), counts[inside])
    rows = np.bincount(index, minlength=n)[labels]
    strength = (shared + shared.T) / (rows[:, None] + rows).clip(1)
    np.fill_diagonal(strength, 1)
    return strength, labels
