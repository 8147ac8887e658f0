"""Bayes selectors: the best choice from a family of sets when the probabilities are known."""

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
    """Return the member k of a family that minimizes `cost_weight * cost(|g_k|) - p(g_k)`.

    This is the paper's lemma on the stochastic scenario. Ties go to the highest index.

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels at one input.
    sizes : sequence of int, or of sequences of int
        The family of sets. An integer k stands for the set of the k most probable labels; a
        sequence contains the labels of a set.
    cost : str, mapping, sequence or callable, default="log"
        Cost of each set size, as in `shortlist.costs.cost_table`.
    cost_weight : float, default=0.1
        Weight of the cost, the paper's lambda.

    Returns
    -------
    int
        Index of the best member.

    Raises
    ------
    ValueError
        If p is not a distribution, or the sizes or sets are invalid.

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
    return _argmin_loss(-accuracies, [len(members) for members in sets], cost, cost_weight)


def deterministic_choice(
    y: int,
    sets: Sequence[Sequence[int]],
    cost: Cost = "log",
    cost_weight: float = 0.1,
) -> int:
    """Return the best choice for a known label, usually the smallest set that contains it.

    The paper's lemma on the deterministic scenario assumes `cost_weight * cost <= 1` for every
    set. Otherwise, or if no set contains the label, a smaller set without the label can have a
    smaller loss, and is returned.

    Parameters
    ----------
    y : int
        The known label.
    sets : sequence of sequences of int
        Labels of each set, in ascending order of size.
    cost : str, mapping, sequence or callable, default="log"
        Cost of each set size, as in `shortlist.costs.cost_table`.
    cost_weight : float, default=0.1
        Weight of the cost, the paper's lambda.

    Returns
    -------
    int
        Index of the best set. Ties go to the lowest index.

    Raises
    ------
    ValueError
        If there are no sets, or the costs are invalid.

    Examples
    --------
    >>> deterministic_choice(1, [[0], [0, 2], [0, 1, 2]])
    2
    >>> deterministic_choice(1, [[0], [0, 2], [0, 1, 2]], "linear", 0.6)      # A miss costs less.
    0
    """
    if not len(sets):
        raise ValueError("sets must contain at least one set; got none")
    misses = np.array([float(y not in members) for members in sets])
    return _argmin_loss(misses, [len(members) for members in sets], cost, cost_weight, ties="first")


def _argmin_loss(
    errors: NDArray[np.float64],
    sizes: Sequence[int],
    cost: Cost,
    cost_weight: float,
    ties: str = "last",
) -> int:
    """Return the index of the smallest loss. Ties go to the first or the last index."""
    table = cost_table(cost, sizes).numpy()
    costs = check_non_negative(cost_weight, "cost_weight") * np.array(
        [table[size] for size in sizes]
    )
    losses = errors + costs
    best = np.flatnonzero(losses <= losses.min() + 1e-12)
    return int(best[-1] if ties == "last" else best[0])


def _as_sets(p: NDArray[np.float64], sizes: object) -> list[NDArray[np.intp]]:
    """Return the sets as arrays of labels, given the sets or the sizes of top-k sets."""
    items = list(sizes) if np.iterable(sizes) else []
    if not items:
        raise ValueError(f"sizes must contain at least one size or one set; got {sizes!r}")
    if all(isinstance(size, int | np.integer) for size in items):
        return [top_k(p, int(size)) for size in items]
    sets = []
    for members in items:
        labels = np.asarray(members)
        if labels.ndim != 1 or (len(labels) and labels.dtype.kind not in "iu"):
            raise ValueError(
                f"sizes must be integers or sequences of integer labels; got {members!r}"
            )
        distinct = set(labels.tolist())
        if len(distinct) < len(labels) or not distinct <= set(range(len(p))):
            raise ValueError(
                f"a set must have distinct labels from 0 to {len(p) - 1}; got {members!r}"
            )
        sets.append(labels.astype(np.intp))
    return sets
