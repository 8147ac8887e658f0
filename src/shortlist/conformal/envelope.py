"""The member of a family that minimizes ``P(miss) + cost_weight * cost``, for every cost weight.

As the cost weight falls, the best member moves along the concave envelope of the points (cost,
probability of a hit). The slope of the envelope at a member is the largest cost weight at which
that member, or a larger one, is chosen.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from shortlist._utils.blocks import DEVICE_ELEMENTS, row_blocks
from shortlist.costs import Cost, cost_table

MAX_PAIRWISE = 64
"""Up to this number of members, comparing all pairs is faster on a GPU than sequential pooling."""


def slopes(gains: Tensor, prices: Tensor) -> Tensor:
    """Return the largest cost weight at which each member, or a larger one, is chosen.

    Parameters
    ----------
    gains : Tensor of shape (n_rows, n_members)
        Probability of a hit of each member minus that of the member before it.
    prices : Tensor of shape (n_members,) or (n_rows, n_members)
        Cost of each member minus that of the member before it. A member without additional cost is
        chosen together with the one before it.

    Returns
    -------
    Tensor of shape (n_rows, n_members)
        Slopes, non-increasing along each row. A member is chosen if its slope is at least the cost
        weight, so that ties go to the larger member.

    Notes
    -----
    The slope of the first member is its gain per price, or the slope of the second member if that
    is larger. It matters only if empty sets are allowed.

    Examples
    --------
    >>> slopes(torch.tensor([[0.5, 0.125, 0.25, 0.125]]), torch.ones(4)).tolist()
    [[0.5, 0.1875, 0.1875, 0.125]]
    """
    gains = gains.to(torch.float64)
    prices = prices.to(torch.float64).expand_as(gains)
    result = _ratio(gains, prices)
    rest = result[:, 1:]
    not_concave = (rest[:, 1:] > rest[:, :-1]).any(dim=1) | (prices[:, 1:] <= 0).any(dim=1)
    if bool(not_concave.any()):
        pairwise = result.is_cuda and result.shape[1] <= MAX_PAIRWISE
        envelope = _slopes_by_pairs if pairwise else _slopes_by_pooling
        result[not_concave, 1:] = envelope(gains[not_concave, 1:], prices[not_concave, 1:])
    if result.shape[1] > 1:
        result[:, 0] = torch.maximum(result[:, 0], result[:, 1])
    return result


def _ratio(gains: Tensor, prices: Tensor) -> Tensor:
    """Return gain per price; infinity if the price is zero."""
    return torch.where(prices > 0, gains / prices, torch.inf)


def _slopes_by_pooling(gains: Tensor, prices: Tensor) -> Tensor:
    """Return the slopes of the envelope by pooling adjacent violators, in all rows in parallel.

    Only sums of gains and prices are compared, never differences of running sums, so that small
    probabilities keep their precision.
    """
    rows, members = gains.shape
    all_rows = torch.arange(rows, device=gains.device)
    pool_gain, pool_price = torch.zeros_like(gains), torch.zeros_like(prices)
    # The first member of each pool. `last` is the index of each row's last pool.
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
    # The pool of a member is the last one that does not begin after it.
    pools = torch.arange(members, device=gains.device)
    begins = torch.where(pools <= last[:, None], begins, members)
    pool_of = torch.searchsorted(begins, pools.expand(rows, -1).contiguous(), right=True) - 1
    result = _ratio(pool_gain, pool_price).gather(1, pool_of)
    # Rounding may leave a pool slightly steeper than the one before.
    decreasing: Tensor = result.cummin(dim=1).values
    return decreasing


def _slopes_by_pairs(gains: Tensor, prices: Tensor) -> Tensor:
    """Return the same slopes by the min-max formula, without control flow that stalls a GPU.

    The slope of a member is the minimum over all intervals that begin at it or before, of the
    maximum ratio over their ends at it or after.
    """
    members = gains.shape[1]
    ends, begins = torch.arange(members)[:, None, None], torch.arange(members)
    within = (ends >= begins).to(gains.device)
    parts = []
    for rows in row_blocks(len(gains), members**2, elements=DEVICE_ELEMENTS // 8):
        # Of shape (ends, rows, begins): sums along the first axis are fastest.
        gain, price = (
            torch.where(within, values[rows].T[:, :, None], 0).cumsum(dim=0)
            for values in (gains, prices)
        )
        steepest = torch.where(within, _ratio(gain, price), -torch.inf)
        steepest = steepest.flip(0).cummax(dim=0).values.flip(0)
        parts.append(torch.where(within, steepest, torch.inf).amin(dim=2).T)
    decreasing: Tensor = torch.cat(parts).cummin(dim=1).values
    return decreasing


def bucket_masses(log_p: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the probability mass between each size and the next, summed in float64.

    Parameters
    ----------
    log_p : Tensor of shape (n_rows, depth)
        Log-probabilities in decreasing order, at least as deep as the last size.
    sizes : sequence of int
        Sizes, increasing.

    Returns
    -------
    Tensor of shape (n_rows, n_sizes)
        Masses: the first is that of the labels up to the first size.

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
    """Return the cost of each size minus that of the size before it."""
    if isinstance(cost, str) and cost == "linear":  # No table of 100,000 sizes.
        costs = sizes.to(torch.float64)
    else:
        occurring = torch.unique(sizes).tolist()
        costs = cost_table(cost, occurring).to(sizes.device)[sizes.to(torch.int64)]
    return torch.diff(costs, dim=-1, prepend=torch.zeros_like(costs[..., :1]))
