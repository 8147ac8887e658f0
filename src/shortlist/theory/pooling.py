"""The smallest surrogate regret of a suboptimal decision, in closed form.

A decision is the set of labels that top-k keeps, or the member that a selector chooses from K. It
is suboptimal if a kept label has a smaller weight than a label that is not kept. The scores that
lead to this decision with the smallest surrogate error are the best scores for pooled weights:
`w~ = max(w, t)` for the kept labels and `w~ = min(w, t)` for the others, where t is such that the
sum of the weights does not change. The smallest regret is therefore `C*(w~) - C*(w)`, the
difference of two infima. `SurrogateLoss.pooled_regret` computes it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist.losses import SurrogateLoss
from shortlist.losses.pooled import Pooled, PooledCosts


def comp_sum_regret(record: SurrogateLoss, log_w: Tensor, upper: Tensor) -> Tensor:
    """Return the logarithm of the smallest regret of a comp-sum loss.

    The weights have shape (rows, n). The decision ranks the labels in `upper` above the others.
    """
    return record.pooled_regret(Pooled(log_w, out_of_order(log_w, upper)))


def constrained_regret(record: SurrogateLoss, log_v: Tensor, lower: Tensor) -> Tensor:
    """Return the logarithm of the smallest regret of a constrained loss.

    The best scores are high where the weights v are low. The decision ranks the labels in `lower`
    above the others.
    """
    present = log_v > -torch.inf
    pooled = Pooled(log_v, out_of_order(log_v, present & ~lower))
    return record.pooled_regret(PooledCosts(pooled, lower))


def top_k_constrained_regret(record: SurrogateLoss, log_p: Tensor, kept: Tensor) -> Tensor:
    """Return the same as `constrained_regret` for the weights `1 - p`, computed from p."""
    by_probability = Pooled(log_p, out_of_order(log_p, kept))
    pooled = Pooled(log_complement(log_p), by_probability.block)
    return record.pooled_regret(PooledCosts(pooled, kept, by_probability))


def out_of_order(log_w: Tensor, upper: Tensor) -> Tensor:
    """Return which weights are pooled, so that no weight in `upper` is below another weight.

    Absent labels have the log-weight minus infinity, and are not in `upper`.
    """
    with torch.no_grad():
        present = log_w > -torch.inf
        # Excess of weight i over candidate level j on the wrong side of it, relative to j. The
        # operations are in place, because `verify` spends most of its time here. The result is
        # clamped to finite values, because infinity times a mask of zeros is NaN.
        ratio = (log_w[:, None, :] - log_w[:, :, None]).exp_()
        sign = torch.where(upper, -1.0, 1.0).to(log_w.dtype)
        excess = ratio.sub_(1).mul_(sign[:, None, :]).clamp_(min=0, max=1e300)
        below, above = (excess @ torch.stack([sign < 0, sign > 0], 2).to(log_w.dtype)).unbind(2)
        balance = torch.where(present, below - above, torch.nan)
        low = torch.where(balance <= 0, log_w, -torch.inf).amax(dim=1, keepdim=True)
        high = torch.where(balance >= 0, log_w, torch.inf).amin(dim=1, keepdim=True)
        return torch.where(upper, log_w <= low, (log_w >= high) & present)


def log_complement(log_p: Tensor) -> Tensor:
    """Return log(1 - p) as the log-sum of all other p. It is minus infinity where p is absent."""
    n = log_p.shape[1]
    others = log_p[:, None, :].expand(-1, n, -1)
    own = torch.eye(n, dtype=torch.bool, device=log_p.device)
    complement = others.masked_fill(own, -torch.inf).logsumexp(dim=2)
    return torch.where(log_p > -torch.inf, complement, -torch.inf)
