"""The least surrogate regret with which a wrong decision can be made, exactly.

A decision (the labels kept by top-k, or one member chosen of K) is wrong if labels that should
rank low rank high. Of all scores that make it, the best replace the weights of those that are out
of order, some too low and some too high, by their mean: `w~ = max(w, t)` above and `min(w, t)`
below, with t such that the sum stays the same. The least regret is then `C*(w~) - C*(w)`, the
difference of two closed forms, which is `pooled_regret` in the record of a loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist.losses import SurrogateLoss
from shortlist.losses.pooled import Pooled, PooledCosts


def comp_sum_regret(record: SurrogateLoss, log_w: Tensor, upper: Tensor) -> Tensor:
    """Return the logarithm of the least regret of a comp-sum loss.

    The weights have shape (rows, n); those of `upper` are to be no less than the others.
    """
    return record.pooled_regret(Pooled(log_w, out_of_order(log_w, upper)))


def constrained_regret(record: SurrogateLoss, log_v: Tensor, lower: Tensor) -> Tensor:
    """Return the logarithm of the least regret of a constrained loss.

    Its weights v are low where scores should be high; those of `lower` are to be no more than the
    others.
    """
    present = log_v > -torch.inf
    pooled = Pooled(log_v, out_of_order(log_v, present & ~lower))
    return record.pooled_regret(PooledCosts(pooled, lower))


def top_k_constrained_regret(record: SurrogateLoss, log_p: Tensor, kept: Tensor) -> Tensor:
    """Return the same for the weights `1 - p` of a distribution p, computed from p."""
    by_probability = Pooled(log_p, out_of_order(log_p, kept))
    pooled = Pooled(log_complement(log_p), by_probability.block)
    return record.pooled_regret(PooledCosts(pooled, kept, by_probability))


def out_of_order(log_w: Tensor, upper: Tensor) -> Tensor:
    """Return which weights are pooled if those of `upper` are to be no less than the others.

    Absent labels have the weight minus infinity, and are not in `upper`.
    """
    with torch.no_grad():
        present = log_w > -torch.inf
        # By how much weight i is on the wrong side of candidate j, relative to j. The operations
        # are in place, because most of the time of `verify` is spent here. The result is finite,
        # because infinity times a mask of zeros is NaN.
        ratio = (log_w[:, None, :] - log_w[:, :, None]).exp_()
        sign = torch.where(upper, -1.0, 1.0).to(log_w.dtype)
        excess = ratio.sub_(1).mul_(sign[:, None, :]).clamp_(min=0, max=1e300)
        below, above = (excess @ torch.stack([sign < 0, sign > 0], 2).to(log_w.dtype)).unbind(2)
        balance = torch.where(present, below - above, torch.nan)
        low = torch.where(balance <= 0, log_w, -torch.inf).amax(dim=1, keepdim=True)
        high = torch.where(balance >= 0, log_w, torch.inf).amin(dim=1, keepdim=True)
        return torch.where(upper, log_w <= low, (log_w >= high) & present)


def log_complement(log_p: Tensor) -> Tensor:
    """Return log(1 - p) as the sum of all other p; minus infinity where p is absent."""
    n = log_p.shape[1]
    others = log_p[:, None, :].expand(-1, n, -1)
    own = torch.eye(n, dtype=torch.bool, device=log_p.device)
    complement = others.masked_fill(own, -torch.inf).logsumexp(dim=2)
    return torch.where(log_p > -torch.inf, complement, -torch.inf)
