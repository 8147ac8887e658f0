"""How good prediction sets are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist._utils.arrays import (
    ArrayLike,
    check_count,
    check_probability,
    check_weight,
    to_tensor,
)
from shortlist.costs import Cost, cost_table
from shortlist.sets import PredictionSets


class LossTerms(NamedTuple):
    """The two terms of the target loss; their sum is the loss."""

    miss: float
    """The share of rows whose set does not hold the right label."""
    size: float
    """Lambda times the mean cost of a set's size."""


def accuracy(sets: PredictionSets, y: ArrayLike) -> float:
    """The share of rows whose set holds the right label.

    >>> sets = PredictionSets.from_lists([[1], [0, 2]], n_classes=3)
    >>> accuracy(sets, [1, 1])
    0.5
    """
    return sets.accuracy(y)


def mean_size(sets: PredictionSets) -> float:
    """The mean number of labels in a set.

    >>> mean_size(PredictionSets.from_lists([[1], [0, 2]], n_classes=3))
    1.5
    """
    return sets.mean_size


def single_share(sets: PredictionSets) -> float:
    """The share of sets that hold exactly one label: rows that need no second look.

    >>> single_share(PredictionSets.from_lists([[1], [0, 2], [], [2]], n_classes=3))
    0.5
    """
    return float((to_tensor(sets.sizes, "sizes") == 1).to(torch.float64).mean())


def class_accuracy(sets: PredictionSets, y: ArrayLike) -> NDArray[np.float64]:
    """For each of `sets.classes`, the share of its rows whose set holds it; NaN where it has none.

    >>> sets = PredictionSets.from_lists([["cat"], ["eel", "cat"]], classes=["cat", "dog", "eel"])
    >>> class_accuracy(sets, ["cat", "eel"])
    array([ 1., nan,  1.])
    """
    return sets.class_accuracy(y)


def size_stratified_violation(
    sets: PredictionSets,
    y: ArrayLike,
    accuracy: float,
    *,
    bins: Sequence[int] = (1, 3, 10, 100),
    least_rows: int = 30,
) -> float:
    """The largest gap between an accuracy and the one that sets of similar size have.

    An average hides that short sets may hold the label too rarely and long ones needlessly often
    (Angelopoulos and others, 2021). 0 is best.

    Parameters
    ----------
    accuracy : float
        The accuracy asked for; a stratum that exceeds it counts as much as one that falls short.
    bins : increasing sizes
        The largest size of each stratum but the last. Default, as in that paper: 0 to 1 labels,
        2 to 3, 4 to 10, 11 to 100, and more.
    least_rows : int
        Strata with fewer rows are left out: among 30 rows the gap is 0.05 by chance alone. With 1,
        every row counts, as in the paper. NaN if nothing is left.

    Examples
    --------
    >>> sets = PredictionSets.from_lists([[0], [0], [1, 2], [0, 1]], n_classes=3)
    >>> size_stratified_violation(sets, [0, 1, 1, 1], 0.75, least_rows=1)
    0.25
    """
    asked = check_probability(accuracy, "accuracy")
    least = check_count(least_rows, "least_rows")
    edges = [check_count(edge, "each size of bins", least=0) for edge in bins]
    if any(a >= b for a, b in pairwise(edges)):
        raise ValueError(f"bins must increase; got {list(bins)}")
    held = to_tensor(sets.contains(y), "hits").cpu().numpy()
    stratum = np.searchsorted(edges, to_tensor(sets.sizes, "sizes").cpu().numpy())
    rows = np.bincount(stratum, minlength=len(edges) + 1)
    hits = np.bincount(stratum[held], minlength=len(edges) + 1)
    enough = rows >= least
    gaps = np.abs(hits[enough] / rows[enough] - asked)
    return float(gaps.max()) if len(gaps) else float("nan")


def loss_terms(
    sets: PredictionSets, y: ArrayLike, *, cost: Cost = "log", cost_weight: float
) -> LossTerms:
    """The target loss (paper, equation 1) split into its two terms, not normalised.

    >>> sets = PredictionSets.from_lists([[1], [0, 2]], n_classes=3)
    >>> loss_terms(sets, [1, 1], cost="linear", cost_weight=0.1)
    LossTerms(miss=0.5, size=0.15000000000000002)
    """
    weight = check_weight(cost_weight)
    sizes = to_tensor(sets.sizes, "sizes").cpu()
    table = cost_table(cost, set(sizes.tolist()))
    return LossTerms(1 - sets.accuracy(y), weight * float(table[sizes].mean(dtype=torch.float64)))


def cardinality_loss(
    sets: PredictionSets, y: ArrayLike, *, cost: Cost = "log", cost_weight: float
) -> float:
    """The target loss of the paper, `1[y not in set] + lambda * cost(|set|)`, on average.

    >>> sets = PredictionSets.from_lists([[1], [0, 2]], n_classes=3)
    >>> cardinality_loss(sets, [1, 1], cost="linear", cost_weight=0.1)
    0.65
    """
    return sum(loss_terms(sets, y, cost=cost, cost_weight=cost_weight))
