"""Costs of sets: `c(x, k, y) = 1[y not in g_k(x)] + cost_weight * cost(|g_k(x)|)` (Section 2.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.validation import check_unmasked

Cost: TypeAlias = (
    "str | Mapping[int, float] | Sequence[float] | NDArray[np.generic] | Callable[[int], float]"
)


def log_cost(size: int) -> float:
    """Return the logarithm of the size, the paper's cost; an empty set costs nothing.

    Parameters
    ----------
    size : int
        Size of a set.

    Returns
    -------
    float
        The cost.

    Examples
    --------
    >>> log_cost(1), log_cost(0)
    (0.0, 0.0)
    """
    return math.log(size) if size else 0.0


def linear_cost(size: int) -> float:
    """Return the size itself as a cost.

    Parameters
    ----------
    size : int
        Size of a set.

    Returns
    -------
    float
        The cost.

    Examples
    --------
    >>> linear_cost(3)
    3.0
    """
    return float(size)


NAMED_COSTS: dict[str, Callable[[int], float]] = {"log": log_cost, "linear": linear_cost}


def cost_table(cost: Cost, sizes: Iterable[int]) -> Tensor:
    """Return the cost of every size that can occur, as a table indexed by size.

    Parameters
    ----------
    cost : {"log", "linear"}, mapping, sequence or callable
        A mapping contains the cost of each size; a sequence contains the costs of sizes 1, 2, 3,
        …; a callable takes a size. Costs must be non-negative and must not decrease.
    sizes : iterable of int
        The sizes that can occur.

    Returns
    -------
    float64 Tensor of shape (largest size + 1,)
        The costs. Size 0 costs 0; sizes that cannot occur are NaN.

    Raises
    ------
    ValueError
        If the cost is unknown, lacks a size, decreases, or is not a finite number.

    Examples
    --------
    >>> cost_table("log", [1, 2, 4]).tolist()
    [0.0, 0.0, 0.6931471805599453, nan, 1.3862943611198906]
    >>> cost_table({1: 0.5, 2: 0.25}, [1, 2])
    Traceback (most recent call last):
    ValueError: cost must not decrease with the size: cost(1) = 0.5, but cost(2) = 0.25
    """
    function = _as_function(cost)
    possible = sorted({int(size) for size in sizes})
    table = torch.full((max(possible, default=0) + 1,), math.nan, dtype=torch.float64)
    table[0] = 0.0
    previous: tuple[int, float] | None = None
    for size in possible:
        if size == 0:
            continue
        value = _check_cost(size, function(size))
        if previous is not None and value < previous[1]:
            raise ValueError(
                f"cost must not decrease with the size: cost({previous[0]}) = {previous[1]:g}, "
                f"but cost({size}) = {value:g}"
            )
        previous = (size, value)
        table[size] = value
    return table


def _check_cost(size: int, cost: object) -> float:
    """Return the cost of a size as a finite number that is not negative."""
    try:
        value = float(cost)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"cost must be a number: cost({size}) = {cost!r}") from None
    if not 0 <= value < math.inf:
        raise ValueError(f"cost must be finite and not negative: cost({size}) = {value:g}")
    return value


def _as_function(cost: Cost) -> Callable[[int], float]:
    """Return a cost as a function of the size."""
    if isinstance(cost, str) and cost in NAMED_COSTS:
        return NAMED_COSTS[cost]
    if isinstance(cost, Mapping):
        table = cost

        def from_mapping(size: int) -> float:
            if size not in table:
                raise ValueError(f"cost has no entry for size {size}: {dict(table)!r}")
            return table[size]

        return from_mapping
    if callable(cost):
        return cost
    if isinstance(cost, str) or np.ndim(cost) != 1:
        raise ValueError(
            f"cost must be one of {', '.join(map(repr, NAMED_COSTS))}, a table by size (a mapping, "
            f"or a list that starts at size 1) or a function of the size; got {cost!r}"
        )
    check_unmasked(cost, "cost")
    values: list[float] = list(cost)

    def from_sequence(size: int) -> float:
        if size > len(values):
            raise ValueError(
                f"cost has only {len(values)} values, for sizes from 1 on, but size {size} occurs"
            )
        return values[size - 1]

    return from_sequence


def largest_costs(table: Tensor, n_labels: int | None) -> tuple[float, float]:
    """Return the cost of the largest size, and that of the largest size that can miss a label.

    They determine the largest value of `c`, by which `cost_matrix` divides.

    Parameters
    ----------
    table : Tensor of shape (largest size + 1,)
        Costs of all sizes that can occur, from `cost_table`.
    n_labels : int or None
        Number of labels. A set of all labels cannot miss. If None, every set can miss, because
        labels of unknown classes can occur.

    Returns
    -------
    tuple of float
        `largest_cost` and `largest_miss_cost` of `cost_matrix`.

    Examples
    --------
    >>> largest_costs(cost_table("linear", [1, 2, 3]), n_labels=3)
    (3.0, 2.0)
    >>> largest_costs(cost_table("linear", [1, 2, 3]), n_labels=5)
    (3.0, 3.0)
    """
    can_miss = table[:n_labels]
    # Size 0 is always in the table, with the cost 0.
    return float(table[-1]), float(can_miss[~can_miss.isnan()][-1])


def cost_matrix(
    hits: Tensor,
    size_costs: Tensor,
    cost_weight: float | Tensor,
    largest_cost: float | None,
    largest_miss_cost: float | None = None,
    others: Tensor | None = None,
    largest_other: float = 0.0,
) -> Tensor:
    """Return the cost `c` of each set of a batch, and of members without a set.

    Parameters
    ----------
    hits : bool Tensor of shape (n_rows, |K|)
        Whether each set contains the true label.
    size_costs : Tensor of shape (n_rows, |K|)
        `cost(size)` of each set.
    cost_weight : float or Tensor of shape (n_weights,)
        Lambda of the paper.
    largest_cost : float or None
        `cost` of the largest size that can occur (not of the largest in this batch). Costs are
        divided by the largest value that `c` can take, so that they lie in [0, 1]. If None, they
        are not divided.
    largest_miss_cost : float, optional
        `cost` of the largest size that can miss the label; by default, `largest_cost`. The
        largest value of `c` for a set is the larger of ``1 + cost_weight * largest_miss_cost``
        and ``cost_weight * largest_cost``: a set of all labels cannot miss (see `largest_costs`).
    others : Tensor of shape (n_rows, n_others), optional
        Costs of members without a set, on the same scale: a miss costs 1.
    largest_other : float, default=0.0
        Largest cost that `others` can contain (not the largest in this batch).

    Returns
    -------
    Tensor of shape (n_rows, n_members) or (n_weights, n_rows, n_members)
        The costs of the sets, followed by those of the other members; with a leading axis for a
        vector of weights.

    Examples
    --------
    >>> hits = torch.tensor([[False, True]])
    >>> cost_matrix(hits, torch.tensor([[0.0, 2.0]]), 0.5, largest_cost=2.0).tolist()
    [[0.5, 0.5]]
    >>> others = torch.tensor([[4.0]])
    >>> cost_matrix(hits, torch.tensor([[0.0, 2.0]]), 0.5, 2.0, others=others,
    ...             largest_other=4.0).tolist()
    [[0.25, 0.25, 1.0]]
    """
    weight = torch.as_tensor(cost_weight, dtype=size_costs.dtype, device=size_costs.device)
    if weight.ndim:
        weight = weight[:, None, None]
    misses = (~hits).to(size_costs.dtype)
    if largest_cost is None:
        return _append(misses + weight * size_costs, others)
    # Both sides of the fraction are divided by max(1, cost_weight), so that no weight overflows.
    # Where a device fuses operations, the result can be one rounding above 1.
    one, share = 1 / weight.clamp(1, torch.finfo(weight.dtype).max), weight.clamp(max=1)
    most = one + share * (largest_cost if largest_miss_cost is None else largest_miss_cost)
    most = most.maximum(share * largest_cost).maximum(one * largest_other)
    costs = _append(one * misses + share * size_costs, None if others is None else one * others)
    return (costs / most).clamp_(max=1)


def _append(costs: Tensor, others: Tensor | None) -> Tensor:
    """Return the costs of sets, followed by those of other members if there are any."""
    if others is None:
        return costs
    return torch.cat([costs, others.expand(*costs.shape[:-1], -1)], dim=-1)
