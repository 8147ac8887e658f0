"""The least surrogate regret with which a wrong decision can be made, exactly.

A decision (the labels kept by top-k, or one member chosen of K) is wrong if labels that should
rank low rank high. Of all scores that make it, the best replace the weights of those that are out
of order, some too low and some too high, by their mean: `w~ = max(w, t)` above and `min(w, t)`
below, with t such that the sum stays the same. The least regret is then `C*(w~) - C*(w)`, the
difference of two closed forms. Everything here is in logarithms, and adds no terms that cancel,
since some counter-examples have probabilities of 1e-30 and less.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

NEAR = 1e-3
"""Where a series is more precise than a difference."""


def out_of_order(log_w: Tensor, upper: Tensor) -> Tensor:
    """Which weights are pooled, (rows, n), if those of `upper` are to be no less than the others.

    Absent labels have the weight minus infinity, and are not in `upper`.
    """
    with torch.no_grad():
        present = log_w > -torch.inf
        ratio = torch.exp(log_w[:, None, :] - log_w[:, :, None])  # of weight i to candidate j
        below = torch.where(upper[:, None, :], (1 - ratio).clamp(min=0), 0).sum(dim=2)
        above = torch.where(~upper[:, None, :] & present[:, None, :], (ratio - 1).clamp(min=0), 0)
        balance = torch.where(present, below - above.sum(dim=2), torch.nan)
        low = torch.where(balance <= 0, log_w, -torch.inf).amax(dim=1, keepdim=True)
        high = torch.where(balance >= 0, log_w, torch.inf).amin(dim=1, keepdim=True)
        return torch.where(upper, log_w <= low, (log_w >= high) & present)


class Pooled:
    """Weights (as logarithms), those of a block replaced by their mean."""

    def __init__(self, log_w: Tensor, block: Tensor) -> None:
        self.block = block
        self.present = log_w > -torch.inf
        count = block.sum(dim=1, keepdim=True).to(log_w.dtype)
        inside = torch.where(block, log_w, -torch.inf)
        self.log_mean = inside.logsumexp(dim=1, keepdim=True) - count.log()
        # Relative to the mean, as a logarithm and as it is; zero outside the block.
        self.log_ratio = torch.where(block, log_w - self.log_mean, 0)
        self.excess = torch.expm1(self.log_ratio)
        self.after = torch.where(block, self.log_mean, log_w)

    def sum_of(self, values: Tensor) -> Tensor:
        """Over the block."""
        return torch.where(self.block, values, 0).sum(dim=1)


def comp_sum_regret(loss: str, log_w: Tensor, upper: Tensor, q: float) -> Tensor:
    """The logarithm of the least regret of a comp-sum loss, for weights (rows, n)."""
    pooled = Pooled(log_w, out_of_order(log_w, upper))
    log_mean, ratio, excess = pooled.log_mean[:, 0], pooled.log_ratio, pooled.excess
    if loss == "log":
        return log_mean + pooled.sum_of(_entropy_gap(excess, ratio)).log()
    if loss == "exp":
        # (sum sqrt w~)^2 - (sum sqrt w)^2, by the difference of the roots' sums.
        roots = torch.expm1(ratio / 2)
        gap = log_mean / 2 + (pooled.sum_of(roots.square()) / 2).log()
        both = torch.logaddexp((log_w / 2).logsumexp(dim=1), (pooled.after / 2).logsumexp(dim=1))
        return gap + both
    if loss == "gce":
        a = 1 / (1 - q)
        gap = a * log_mean + pooled.sum_of(_power_gap(excess, ratio, a)).log()
        total = (a * pooled.after).logsumexp(dim=1)
        return total / a + _log_root_gap(gap - total, a) - math.log(q)
    largest = log_w.amax(dim=1)  # mae
    return _log_difference(largest, torch.where(pooled.present, pooled.after, -torch.inf).amax(1))


def constrained_regret(loss: str, log_v: Tensor, lower: Tensor) -> Tensor:
    """The logarithm of the least regret of a constrained loss, whose weights `v` are low where
    scores should be high; those of `lower` are to be no more than the others."""
    present = log_v > -torch.inf
    if loss == "margin":
        # The label on top has a centred score of at least zero, and pays in full; no other need.
        on_top = torch.where(lower, log_v, torch.inf).amin(dim=1)
        return _log_difference(on_top, torch.where(present, log_v, torch.inf).amin(dim=1))
    pooled = Pooled(log_v, out_of_order(log_v, present & ~lower))
    return _constrained(loss, log_v, pooled, pooled.excess, torch.zeros_like(pooled.log_mean))


def top_k_constrained_regret(loss: str, log_p: Tensor, kept: Tensor) -> Tensor:
    """The same for the weights `1 - p` of a distribution p, which are sums of the other p."""
    present = log_p > -torch.inf
    log_v = log_complement(log_p)
    if loss == "margin":
        on_top = torch.where(kept, log_p, -torch.inf).amax(dim=1)
        return _log_difference(log_p.amax(dim=1), on_top)
    by_p = Pooled(log_p, out_of_order(log_p, kept))
    by_v = Pooled(log_v, by_p.block)
    if loss == "hinge":
        n = present.sum(dim=1).to(log_p.dtype)
        after = torch.where(present, by_p.after, -torch.inf).amax(dim=1)
        return n.log() + _log_difference(log_p.amax(dim=1), after)
    # (v - mean v) / mean v = (mean p - p) / mean v, without a difference of numbers near one.
    return _constrained(loss, log_v, by_v, -by_p.excess, by_p.log_mean - by_v.log_mean)


def _constrained(
    loss: str, log_v: Tensor, pooled: Pooled, excess: Tensor, log_scale: Tensor
) -> Tensor:
    """Of weights whose excess over their mean is `excess e^log_scale`."""
    present = pooled.present
    # Where that is next to nothing, only its square counts, and would vanish.
    small = log_scale[:, 0] < -30
    squares = 2 * log_scale[:, 0] + pooled.sum_of(excess.square()).log()
    excess = excess * torch.exp(log_scale)
    n = present.sum(dim=1).to(log_v.dtype)
    if loss == "hinge":
        after = torch.where(present, pooled.after, torch.inf).amin(dim=1)
        return n.log() + _log_difference(after, torch.where(present, log_v, torch.inf).amin(dim=1))
    if loss == "constrained_exp":
        # n (prod v~)^(1/n) - n (prod v)^(1/n), by the logarithm of the products' ratio.
        ratio = pooled.sum_of(_log_gap(excess, pooled.log_ratio)) / n
        mean = torch.where(present, pooled.after, 0).sum(dim=1) / n
        gap = torch.log(-torch.expm1(-torch.where(small, 1.0, ratio)))
        return n.log() + mean + torch.where(small, squares - (2 * n).log(), gap)
    # Squared hinge: n^2 / sum 1/v~ - n^2 / sum 1/v.
    gap = pooled.sum_of(excess.square() * torch.exp(-pooled.log_ratio))
    gap = torch.where(small, squares, torch.where(small, 1.0, gap).log()) - pooled.log_mean[:, 0]
    after = torch.where(present, -pooled.after, -torch.inf).logsumexp(dim=1)
    return 2 * n.log() + gap - after - torch.logaddexp(after, gap)


def log_complement(log_p: Tensor) -> Tensor:
    """log(1 - p) of a distribution, as the sum of all others; minus infinity where p is absent."""
    n = log_p.shape[1]
    others = log_p[:, None, :].expand(-1, n, -1)
    own = torch.eye(n, dtype=torch.bool, device=log_p.device)
    found = others.masked_fill(own, -torch.inf).logsumexp(dim=2)
    return torch.where(log_p > -torch.inf, found, -torch.inf)


def _log_difference(a: Tensor, b: Tensor) -> Tensor:
    """log(e^a - e^b) for a >= b; minus infinity where they are equal."""
    gap = torch.where(a > b, b - a, -1.0)
    return torch.where(a > b, a + torch.log(-torch.expm1(gap)), -torch.inf)


def _log_root_gap(log_y: Tensor, a: float) -> Tensor:
    """log((1 + y)^(1/a) - 1), from log y."""
    small = log_y < -30
    y = torch.where(small, 0.0, log_y).exp()
    return torch.where(small, log_y - math.log(a), torch.expm1(torch.log1p(y) / a).log())


def _entropy_gap(d: Tensor, ratio: Tensor) -> Tensor:
    """(1 + d) log(1 + d) - d, where `ratio` is log(1 + d)."""
    near = d.abs() < NEAR
    return torch.where(near, d**2 / 2 - d**3 / 6 + d**4 / 12, torch.exp(ratio) * ratio - d)


def _log_gap(d: Tensor, ratio: Tensor) -> Tensor:
    """d - log(1 + d)."""
    return torch.where(d.abs() < NEAR, d**2 / 2 - d**3 / 3 + d**4 / 4, d - ratio)


def _power_gap(d: Tensor, ratio: Tensor, a: float) -> Tensor:
    """(1 + d)^a - 1 - a d."""
    second, third = a * (a - 1) / 2, a * (a - 1) * (a - 2) / 6
    series = second * d**2 + third * d**3 + third * (a - 3) / 4 * d**4
    return torch.where(d.abs() < NEAR, series, torch.expm1(a * ratio) - a * d)
