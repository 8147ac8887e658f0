"""Bayes selectors: the best choice among the sets of a family for known probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shortlist._utils.validation import check_non_negative
from shortlist.costs import Cost, cost_table
from shortlist.theory.regret import distribution, top_k


def bayes_choice(
    p: ArrayLike,
    sizes: ArrayLike | Sequence[Sequence[int]],
    cost: Cost = "log",
    cost_weight: float = 0.1,
) -> int:
    """Return the member k of a family with the least `cost_weight cost(|g_k|) - p(g_k)`.

    This is the paper's lemma on the stochastic scenario. Among ties, the highest index is chosen.

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels at one input.
    sizes : sequence of int, or of sequences of int
        Sizes of sets of the most probable labels (`TopK` of the true probabilities), or the sets
        themselves as sequences of labels.
    cost : str, mapping, sequence or callable, default="log"
        Cost of each size, as in `shortlist.costs.cost_table`.
    cost_weight : float, default=0.1
        Lambda of the paper.

    Returns
    -------
    int
        Index of the best member.

    Raises
    ------
    ValueError
        If p is not a distribution, or the sizes or sets are not valid.

    Examples
    --------
    >>> bayes_choice([0.6, 0.3, 0.1], [1, 2, 3], "linear", 0.2)
    1
    >>> bayes_choice([0.6, 0.3, 0.1], [[2], [0, 2], [0, 1, 2]], "linear", 0.2)
    2
    """
    array = distribution(p)
    sets = _as_sets(array, sizes)
    accuracies = np.array([array[members].sum() for members in sets])
    return _least(-accuracies, [len(members) for members in sets], cost, cost_weight)


def deterministic_choice(
    y: int,
    sets: Sequence[Sequence[int]],
    cost: Cost = "log",
    cost_weight: float = 0.1,
) -> int:
    """Return the best choice for a known label: the smallest set that contains it.

    This is the paper's lemma on the deterministic scenario. It assumes `cost_weight cost <= 1` for
    every set. Where that fails, or where no set contains the label, the smallest set can be
    better and is then returned.

    Parameters
    ----------
    y : int
        The label.
    sets : sequence of sequences of int
        Labels of each set, in order of size.
    cost : str, mapping, sequence or callable, default="log"
        Cost of each size, as in `shortlist.costs.cost_table`.
    cost_weight : float, default=0.1
        Lambda of the paper.

    Returns
    -------
    int
        Index of the best set; among ties the lowest.

    Raises
    ------
    ValueError
        If there are no sets, or the costs are not valid.

    Examples
    --------
    >>> deterministic_choice(1, [[0], [0, 2], [0, 1, 2]])
    2
    >>> deterministic_choice(1, [[0], [0, 2], [0, 1, 2]], "linear", 0.6)      # a miss is cheaper
    0
    """
    if not len(sets):
        raise ValueError("sets must have at least one set; got none")
    misses = np.array([float(y not in members) for members in sets])
    return _least(misses, [len(members) for members in sets], cost, cost_weight, ties="first")


def _least(
    errors: NDArray[np.float64],
    sizes: Sequence[int],
    cost: Cost,
    cost_weight: float,
    ties: str = "last",
) -> int:
    """Return the index of the least loss; among ties the first or the last."""
    table = cost_table(cost, sizes).numpy()
    costs = check_non_negative(cost_weight, "cost_weight") * np.array(
        [table[size] for size in sizes]
    )
    losses = errors + costs
    best = np.flatnonzero(losses <= losses.min() + 1e-12)
    return int(best[-1] if ties == "last" else best[0])


def _as_sets(p: NDArray[np.float64], sizes: object) -> list[NDArray[np.intp]]:
    """Return the sets as arrays of labels; sizes stand for the most probable labels."""
    given = list(sizes) if np.iterable(sizes) else []
    if not given:
        raise ValueError(f"sizes must have at least one size, or one set; got {sizes!r}")
    if all(isinstance(size, int | np.integer) for size in given):
        return [top_k(p, int(size)) for size in given]
    sets = []
    for members in given:
        labels = np.asarray(members)
        if labels.ndim != 1 or (len(labels) and labels.dtype.kind not in "iu"):
            raise ValueError(f"a set is a list of labels, a size an integer; got {members!r}")
        distinct = set(labels.tolist())
        if len(distinct) < len(labels) or not distinct <= set(range(len(p))):
            raise ValueError(f"a set has distinct labels from 0 to {len(p) - 1}; got {members!r}")
        sets.append(labels.astype(np.intp))
    return sets
