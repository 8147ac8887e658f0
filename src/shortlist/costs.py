"""What a set costs: `c(x, k, y) = 1[y not in g_k(x)] + lambda * cost(|g_k(x)|)` (Section 2.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.array_checks import check_unmasked

Cost: TypeAlias = (
    "str | Mapping[int, float] | Sequence[float] | NDArray[np.generic] | Callable[[int], float]"
)


def log_cost(size: int) -> float:
    """The logarithm of the size, the paper's cost; an empty set costs nothing."""
    return math.log(size) if size else 0.0


def linear_cost(size: int) -> float:
    """The size itself."""
    return float(size)


NAMED: dict[str, Callable[[int], float]] = {"log": log_cost, "linear": linear_cost}


def cost_table(cost: Cost, sizes: Iterable[int]) -> Tensor:
    """The cost of every size that can occur, as a float64 table indexed by size.

    Parameters
    ----------
    cost : "log", "linear", mapping, sequence or callable
        A mapping gives the cost of each size; a sequence lists the costs of sizes 1, 2, 3, …; a
        callable takes a size. Costs must be non-negative and must not decrease.
    sizes : iterable of int
        The sizes that can occur. Others are NaN in the table; size 0 costs 0.

    Examples
    --------
    >>> cost_table("log", [1, 2, 4]).tolist()
    [0.0, 0.0, 0.6931471805599453, nan, 1.3862943611198906]
    >>> cost_table({1: 0.5, 2: 0.25}, [1, 2])
    Traceback (most recent call last):
    ValueError: cost must not decrease with the size: cost(1) = 0.5, but cost(2) = 0.25
    """
    function = _as_function(cost)
    wanted = sorted({int(s) for s in sizes})
    table = torch.full((max(wanted, default=0) + 1,), math.nan, dtype=torch.float64)
    table[0] = 0.0
    before: tuple[int, float] | None = None
    for size in wanted:
        if size == 0:
            continue
        given = function(size)
        try:
            value = float(given)
        except (TypeError, ValueError):
            raise ValueError(f"cost must be a number: cost({size}) = {given!r}") from None
        if not 0 <= value < math.inf:
            raise ValueError(f"cost must be finite and not negative: cost({size}) = {value:g}")
        if before is not None and value < before[1]:
            raise ValueError(
                f"cost must not decrease with the size: cost({before[0]}) = {before[1]:g}, "
                f"but cost({size}) = {value:g}"
            )
        before = (size, value)
        table[size] = value
    return table


def _as_function(cost: Cost) -> Callable[[int], float]:
    if isinstance(cost, str) and cost in NAMED:
        return NAMED[cost]
    if isinstance(cost, Mapping):
        by_size = cost

        def from_mapping(size: int) -> float:
            if size not in by_size:
                raise ValueError(f"cost has no entry for size {size}: {dict(by_size)!r}")
            return by_size[size]

        return from_mapping
    if callable(cost):
        return cost
    if isinstance(cost, str) or np.ndim(cost) != 1:
        raise ValueError(
            f"cost must be one of {', '.join(map(repr, NAMED))}, a table by size (a mapping, or a "
            f"list from size 1 on) or a function of the size; got {cost!r}"
        )
    check_unmasked(cost, "cost")
    listed: list[float] = list(cost)

    def from_list(size: int) -> float:
        if size > len(listed):
            raise ValueError(
                f"cost lists {len(listed)} costs, of sizes 1 to {len(listed)}; size {size} occurs"
            )
        return listed[size - 1]

    return from_list


def cost_matrix(
    hits: Tensor, size_costs: Tensor, cost_weight: float | Tensor, largest_cost: float | None
) -> Tensor:
    """The matrix `c` of one batch: (rows, |K|), or (weights, rows, |K|) for a vector of lambdas.

    Parameters
    ----------
    hits, size_costs : (rows, |K|)
        Whether each set holds the right label, and `cost(size)` of each set.
    cost_weight : float or (weights,) tensor
        Lambda.
    largest_cost : float or None
        `cost` of the largest size that can occur (not of the largest in this batch): costs are
        divided by `1 + lambda * largest_cost`, so that they lie in [0, 1]. None: as they are.

    Examples
    --------
    >>> hits = torch.tensor([[False, True]])
    >>> cost_matrix(hits, torch.tensor([[0.0, 2.0]]), 0.5, largest_cost=2.0).tolist()
    [[0.5, 0.5]]
    """
    weight = torch.as_tensor(cost_weight, dtype=size_costs.dtype, device=size_costs.device)
    if weight.ndim:
        weight = weight[:, None, None]
    misses = (~hits).to(size_costs.dtype)
    if largest_cost is None:
        return misses + weight * size_costs
    # Both sides of the fraction are divided by max(1, lambda), so that no lambda overflows. Where
    # a device fuses operations, the result can land one rounding above 1.
    one, share = 1 / weight.clamp(1, torch.finfo(weight.dtype).max), weight.clamp(max=1)
    return ((one * misses + share * size_costs) / (one + share * largest_cost)).clamp_(max=1)
