"""What a longer set is worth: the choice of `argmin_k miss_k + lambda cost_k` for every lambda.

As lambda falls, the best member grows along the concave envelope of (cost, probability of a hit).
A member's slope on it is the largest lambda at which the choice is at least that member.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from shortlist._utils.blocks import DEVICE_ELEMENTS, row_blocks
from shortlist.costs import Cost, cost_table

FEW = 64
"""Of so many members all pairs can be looked at, where one step after the other takes longer."""


def slopes(gains: Tensor, prices: Tensor) -> Tensor:
    """The largest lambda at which each member, or a later one, is chosen: never increasing.

    Parameters
    ----------
    gains : (rows, members)
        What each member adds to the probability of a hit of the member before it.
    prices : (members,) or (rows, members)
        What it adds to the cost. A member that costs nothing more is taken with the one before.

    The first member's slope is its own gain per price, or the second's if that is more: it counts
    only where an empty set is allowed.

    Ties between members go to the larger one: `slope >= lambda` is the rule.

    >>> slopes(torch.tensor([[0.5, 0.125, 0.25, 0.125]]), torch.ones(4)).tolist()
    [[0.5, 0.1875, 0.1875, 0.125]]
    """
    gains = gains.to(torch.float64)
    prices = prices.to(torch.float64).expand_as(gains)
    found = _ratio(gains, prices)
    rest = found[:, 1:]
    dented = (rest[:, 1:] > rest[:, :-1]).any(dim=1) | (prices[:, 1:] <= 0).any(dim=1)
    if bool(dented.any()):
        at_once = found.is_cuda and found.shape[1] <= FEW
        pooled = _min_max if at_once else _pooled
        found[dented, 1:] = pooled(gains[dented, 1:], prices[dented, 1:])
    if found.shape[1] > 1:
        found[:, 0] = torch.maximum(found[:, 0], found[:, 1])
    return found


def _ratio(gains: Tensor, prices: Tensor) -> Tensor:
    return torch.where(prices > 0, gains / prices, torch.inf)


def _pooled(gains: Tensor, prices: Tensor) -> Tensor:
    """Slopes of the envelope by pooling adjacent violators, in all rows at once.

    Only sums of gains and prices are compared, never differences of running sums: small
    probabilities keep their precision.
    """
    rows, members = gains.shape
    all_rows = torch.arange(rows, device=gains.device)
    pool_gain, pool_price = torch.zeros_like(gains), torch.zeros_like(prices)
    # Which pool each member begins in; a pool that is merged takes its members along.
    last = torch.full((rows,), -1, dtype=torch.int64, device=gains.device)
    begins = torch.zeros_like(gains, dtype=torch.int64)
    for k in range(members):
        last = last + 1
        pool_gain[all_rows, last] = gains[:, k]
        pool_price[all_rows, last] = prices[:, k]
        begins[all_rows, last] = k
        open_rows = all_rows
        while True:
            top = last[open_rows]
            open_rows = open_rows[top > 0]
            top = top[top > 0]
            gain, price = pool_gain[open_rows, top], pool_price[open_rows, top]
            gain_before = pool_gain[open_rows, top - 1]
            price_before = pool_price[open_rows, top - 1]
            steeper = (gain * price_before > gain_before * price) | (price <= 0)
            if not bool(steeper.any()):
                break
            open_rows, top = open_rows[steeper], top[steeper] - 1
            pool_gain[open_rows, top] += gain[steeper]
            pool_price[open_rows, top] += price[steeper]
            last[open_rows] = top
    # The pool of a member is the last one that begins no later.
    pools = torch.arange(members, device=gains.device)
    begins = torch.where(pools <= last[:, None], begins, members)
    pool_of = torch.searchsorted(begins, pools.expand(rows, -1).contiguous(), right=True) - 1
    found = _ratio(pool_gain, pool_price).gather(1, pool_of)
    # Rounding may leave a pool a hair steeper than the one before.
    lowest: Tensor = found.cummin(dim=1).values
    return lowest


def _min_max(gains: Tensor, prices: Tensor) -> Tensor:
    """The same slopes by a formula, without a look at any value, which a GPU would have to wait
    for: of the stretches that begin at a member or before, the least of the steepest that end there
    or after.
    """
    members = gains.shape[1]
    ends, begins = torch.arange(members)[:, None, None], torch.arange(members)
    within = (ends >= begins).to(gains.device)
    parts = []
    for rows in row_blocks(len(gains), members**2, elements=DEVICE_ELEMENTS // 8):
        # (ends, rows, begins): sums along the first axis are the fast ones.
        gain, price = (
            torch.where(within, values[rows].T[:, :, None], 0).cumsum(dim=0)
            for values in (gains, prices)
        )
        steepest = torch.where(within, _ratio(gain, price), -torch.inf)
        steepest = steepest.flip(0).cummax(dim=0).values.flip(0)
        parts.append(torch.where(within, steepest, torch.inf).amin(dim=2).T)
    lowest: Tensor = torch.cat(parts).cummin(dim=1).values
    return lowest


def bucket_masses(log_p: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the mass between each size and the next, summed in float64.

    Parameters
    ----------
    log_p : Tensor of shape (n_rows, depth)
        Log-probabilities in decreasing order, at least as deep as the last size.
    sizes : sequence of int
        Sizes, increasing.

    Returns
    -------
    Tensor of shape (n_rows, n_sizes)

    Examples
    --------
    >>> log_p = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    >>> bucket_masses(log_p, [1, 2, 4]).numpy().round(6).tolist()
    [[0.5, 0.25, 0.25]]
    """
    p = log_p.to(torch.float64).exp()
    ones = next((i for i, size in enumerate(sizes) if size != i + 1), len(sizes))
    bounds = itertools.pairwise([ones, *sizes[ones:]])
    wide = [p[:, a:b].sum(dim=1, keepdim=True) for a, b in bounds]
    return torch.cat([p[:, :ones], *wide], dim=1)


def cost_steps(cost: Cost, sizes: Tensor) -> Tensor:
    """Return how much more each size costs than the one before it."""
    if isinstance(cost, str) and cost == "linear":  # No table of 100,000 sizes.
        costs = sizes.to(torch.float64)
    else:
        occurring = torch.unique(sizes).tolist()
        costs = cost_table(cost, occurring).to(sizes.device)[sizes.to(torch.int64)]
    return torch.diff(costs, dim=-1, prepend=torch.zeros_like(costs[..., :1]))
