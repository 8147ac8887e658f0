"""Bayes selectors: the best choice among the sets of a family, where p is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shortlist._utils.arrays import check_weight
from shortlist.costs import Cost, cost_table
from shortlist.theory.regret import distribution, top_k


def bayes_choice(
    p: ArrayLike,
    sizes: ArrayLike | Sequence[Sequence[int]],
    cost: Cost = "log",
    cost_weight: float = 0.1,
) -> int:
    """The member k of a family that has the least `lambda cost(|g_k|) - sum_{y in g_k} p(y)`.

    The paper's lemma on the stochastic scenario. Among ties the highest index, as everywhere.

    Parameters
    ----------
    p : (n,) probabilities of the labels at one input
    sizes : integers, or lists of labels
        Sizes of sets that hold the most probable labels (`TopK` of the true probabilities), or
        the sets of any family, as lists of labels.
    cost, cost_weight
        As in the selectors.

    Examples
    --------
    >>> bayes_choice([0.6, 0.3, 0.1], [1, 2, 3], "linear", 0.2)
    1
    >>> bayes_choice([0.6, 0.3, 0.1], [[2], [0, 2], [0, 1, 2]], "linear", 0.2)
    2
    """
    array = distribution(p)
    sets = _as_sets(array, sizes)
    held = np.array([array[members].sum() for members in sets])
    return _least(-held, [len(members) for members in sets], cost, cost_weight)


def deterministic_choice(
    y: int,
    sets: Sequence[Sequence[int]],
    cost: Cost = "log",
    cost_weight: float = 0.1,
) -> int:
    """The best choice where the label is certain: the smallest set that holds it.

    The paper's lemma on the deterministic scenario. It asks that `lambda cost <= 1` for every
    set; where that fails, or where no set holds the label, the smallest set may be better, and is
    what this returns. Sets are to be given in order of size.

    >>> deterministic_choice(1, [[0], [0, 2], [0, 1, 2]])
    2
    >>> deterministic_choice(1, [[0], [0, 2], [0, 1, 2]], "linear", 0.6)      # a miss is cheaper
    0
    """
    if not len(sets):
        raise ValueError("sets must hold at least one set")
    misses = np.array([float(y not in members) for members in sets])
    return _least(misses, [len(members) for members in sets], cost, cost_weight, ties="first")


def _least(
    errors: NDArray[np.float64],
    sizes: Sequence[int],
    cost: Cost,
    cost_weight: float,
    ties: str = "last",
) -> int:
    table = cost_table(cost, sizes).numpy()
    prices = check_weight(cost_weight) * np.array([table[size] for size in sizes])
    losses = errors + prices
    best = np.flatnonzero(losses <= losses.min() + 1e-12)
    return int(best[-1] if ties == "last" else best[0])


def _as_sets(p: NDArray[np.float64], sizes: object) -> list[NDArray[np.intp]]:
    given = list(sizes) if np.iterable(sizes) else []
    if not given:
        raise ValueError(f"sizes must hold at least one size, or one set; got {sizes!r}")
    if all(isinstance(size, int | np.integer) for size in given):
        return [top_k(p, int(size)) for size in given]
    found = []
    for members in given:
        labels = np.asarray(members)
        if labels.ndim != 1 or (len(labels) and labels.dtype.kind not in "iu"):
            raise ValueError(f"a set is a list of labels, a size an integer; got {members!r}")
        distinct = set(labels.tolist())
        if len(distinct) < len(labels) or not distinct <= set(range(len(p))):
            raise ValueError(f"a set holds distinct labels from 0 to {len(p) - 1}; got {members!r}")
        found.append(labels.astype(np.intp))
    return found
