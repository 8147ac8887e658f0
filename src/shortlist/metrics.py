"""How good prediction sets are."""

from __future__ import annotations

from typing import NamedTuple

import torch

from shortlist._arrays import ArrayLike, check_weight, to_tensor
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
