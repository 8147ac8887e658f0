"""Metrics of prediction sets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist._utils.arrays import ArrayLike, to_tensor
from shortlist._utils.validation import check_count, check_non_negative, check_probability
from shortlist.costs import Cost, cost_table
from shortlist.sets import PredictionSets


class LossTerms(NamedTuple):
    """The two terms of the target loss; their sum is the loss.

    Attributes
    ----------
    miss : float
        Fraction of rows whose set does not contain the label.
    size : float
        `cost_weight` times the mean cost of the size of a set.
    """

    miss: float
    size: float


def accuracy(sets: PredictionSets, y: ArrayLike) -> float:
    """Return the fraction of rows whose set contains the label.

    Parameters
    ----------
    sets : PredictionSets
        Prediction sets.
    y : array-like of shape (n_rows,)
        Labels.

    Returns
    -------
    float

    Examples
    --------
    >>> sets = PredictionSets.from_lists([[1], [0, 2]], n_classes=3)
    >>> accuracy(sets, [1, 1])
    0.5
    """
    return sets.accuracy(y)


def mean_size(sets: PredictionSets) -> float:
    """Return the mean number of labels in a set.

    Parameters
    ----------
    sets : PredictionSets
        Prediction sets.

    Returns
    -------
    float

    Examples
    --------
    >>> mean_size(PredictionSets.from_lists([[1], [0, 2]], n_classes=3))
    1.5
    """
    return sets.mean_size


def single_share(sets: PredictionSets) -> float:
    """Return the fraction of sets with exactly one label.

    Parameters
    ----------
    sets : PredictionSets
        Prediction sets.

    Returns
    -------
    float
        NaN if there are no rows.

    Examples
    --------
    >>> single_share(PredictionSets.from_lists([[1], [0, 2], [], [2]], n_classes=3))
    0.5
    """
    return float((to_tensor(sets.sizes, "sizes") == 1).to(torch.float64).mean())


def class_accuracy(sets: PredictionSets, y: ArrayLike) -> NDArray[np.float64]:
    """Return the accuracy of each class.

    Parameters
    ----------
    sets : PredictionSets
        Prediction sets.
    y : array-like of shape (n_rows,)
        Labels.

    Returns
    -------
    array of shape (n_classes,)
        Fraction of the rows of each of `sets.classes` whose set contains it; NaN for classes
        without rows.

    Examples
    --------
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
    min_rows: int = 30,
) -> float:
    """Return the largest gap between an accuracy and the accuracy of sets of similar size.

    The accuracy over all rows does not show whether small sets contain the label too rarely, and
    large sets more often than needed. The best value is 0 (Angelopoulos and others, 2021).

    Parameters
    ----------
    sets : PredictionSets
        Prediction sets.
    y : array-like of shape (n_rows,)
        Labels.
    accuracy : float
        Requested accuracy. A stratum above it counts as much as one below it.
    bins : sequence of int, default=(1, 3, 10, 100)
        Largest size of each stratum but the last, increasing. The default strata are those of the
        paper: 0 to 1 labels, 2 to 3, 4 to 10, 11 to 100, and more.
    min_rows : int, default=30
        Strata with fewer rows are ignored: in a stratum of 30 rows, a gap of about 0.05
        is expected by chance. With 1, all rows count, as in the paper.

    Returns
    -------
    float
        NaN if all strata are ignored.

    Examples
    --------
    >>> sets = PredictionSets.from_lists([[0], [0], [1, 2], [0, 1]], n_classes=3)
    >>> size_stratified_violation(sets, [0, 1, 1, 1], 0.75, min_rows=1)
    0.25
    """
    target = check_probability(accuracy, "accuracy")
    min_rows = check_count(min_rows, "min_rows")
    edges = [check_count(edge, "each size of bins", minimum=0) for edge in bins]
    if any(a >= b for a, b in pairwise(edges)):
        raise ValueError(f"bins must increase; got {list(bins)}")
    contained = to_tensor(sets.contains(y), "hits").cpu().numpy()
    stratum = np.searchsorted(edges, to_tensor(sets.sizes, "sizes").cpu().numpy())
    rows = np.bincount(stratum, minlength=len(edges) + 1)
    hits = np.bincount(stratum[contained], minlength=len(edges) + 1)
    enough = rows >= min_rows
    gaps = np.abs(hits[enough] / rows[enough] - target)
    return float(gaps.max()) if len(gaps) else float("nan")


def loss_terms(
    sets: PredictionSets, y: ArrayLike, *, cost: Cost = "log", cost_weight: float
) -> LossTerms:
    """Return the two terms of the target loss (paper, equation 1), not normalized.

    Parameters
    ----------
    sets : PredictionSets
        Prediction sets.
    y : array-like of shape (n_rows,)
        Labels.
    cost : {"log", "linear"}, sequence or callable, default="log"
        Cost of a size.
    cost_weight : float
        Lambda: the cost of a unit of size in units of accuracy.

    Returns
    -------
    LossTerms

    Examples
    --------
    >>> sets = PredictionSets.from_lists([[1], [0, 2]], n_classes=3)
    >>> loss_terms(sets, [1, 1], cost="linear", cost_weight=0.1)
    LossTerms(miss=0.5, size=0.15000000000000002)
    """
    weight = check_non_negative(cost_weight, "cost_weight")
    sizes = to_tensor(sets.sizes, "sizes").cpu()
    table = cost_table(cost, set(sizes.tolist()))
    return LossTerms(1 - sets.accuracy(y), weight * float(table[sizes].mean(dtype=torch.float64)))


def cardinality_loss(
    sets: PredictionSets, y: ArrayLike, *, cost: Cost = "log", cost_weight: float
) -> float:
    """Return the mean target loss of the paper, ``1[y not in set] + lambda * cost(|set|)``.

    Parameters
    ----------
    sets : PredictionSets
        Prediction sets.
    y : array-like of shape (n_rows,)
        Labels.
    cost : {"log", "linear"}, sequence or callable, default="log"
        Cost of a size.
    cost_weight : float
        Lambda: the cost of a unit of size in units of accuracy.

    Returns
    -------
    float

    Examples
    --------
    >>> sets = PredictionSets.from_lists([[1], [0, 2]], n_classes=3)
    >>> cardinality_loss(sets, [1, 1], cost="linear", cost_weight=0.1)
    0.65
    """
    return sum(loss_terms(sets, y, cost=cost, cost_weight=cost_weight))
