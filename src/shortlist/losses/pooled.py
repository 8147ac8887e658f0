"""Pooled weights, the arguments of `SurrogateLoss.pooled_regret`.

Pooling replaces the weights whose order contradicts a decision by their mean.
`shortlist.theory.pooling` selects these weights. All weights are given as logarithms, because
some counter-examples have probabilities below 1e-30.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist.losses.numerics import log_difference


class Pooled:
    """Weights of a comp-sum loss before and after pooling, which replaces a block by its mean.

    Parameters
    ----------
    log_w : Tensor of shape (rows, n)
        Logarithms of the weights. Minus infinity stands for an absent label.
    block : bool Tensor of shape (rows, n)
        Which weights are pooled.

    Attributes
    ----------
    before, after : Tensor of shape (rows, n)
        Logarithms of the weights before and after pooling.
    present : bool Tensor of shape (rows, n)
        Which labels are present.
    log_mean : Tensor of shape (rows, 1)
        Logarithm of the mean weight of the block.
    log_ratio, excess : Tensor of shape (rows, n)
        `log(w / mean)` and `w / mean - 1`. Both are zero outside the block.
    """

    def __init__(self, log_w: Tensor, block: Tensor) -> None:
        self.before, self.block = log_w, block
        self.present = log_w > -torch.inf
        count = block.sum(dim=1, keepdim=True).to(log_w.dtype)
        inside = torch.where(block, log_w, -torch.inf)
        self.log_mean = inside.logsumexp(dim=1, keepdim=True) - count.log()
        self.log_ratio = torch.where(block, log_w - self.log_mean, 0)
        self.excess = torch.expm1(self.log_ratio)
        self.after = torch.where(block, self.log_mean, log_w)

    def block_sum(self, values: Tensor) -> Tensor:
        """Return the sum of the values over the block, for each row."""
        return torch.where(self.block, values, 0).sum(dim=1)

    def log_max_after(self) -> Tensor:
        """Return the logarithm of the largest weight after pooling."""
        return torch.where(self.present, self.after, -torch.inf).amax(dim=1)


class PooledCosts:
    """Weights `v` of a constrained loss. The best scores are high where the weights are low.

    Parameters
    ----------
    pooled : Pooled
        The weights v.
    chosen : bool Tensor of shape (rows, n)
        The labels or members with the highest scores.
    by_probability : Pooled, optional
        Probabilities p, if `v = 1 - p`. Differences of v are then computed as differences of p,
        which avoids cancellation.

    Attributes
    ----------
    n : Tensor of shape (rows,)
        Number of labels present.
    excess : Tensor of shape (rows, n)
        `v / mean - 1` over the block.
    small : bool Tensor of shape (rows,)
        Rows whose excess is so small that only `log_squares` represents it precisely.
    log_squares : Tensor of shape (rows,)
        Logarithm of the sum of the squared excess.
    """

    def __init__(
        self, pooled: Pooled, chosen: Tensor, by_probability: Pooled | None = None
    ) -> None:
        self.pooled, self.chosen, self.by_probability = pooled, chosen, by_probability
        self.n = pooled.present.sum(dim=1).to(pooled.before.dtype)
        excess, log_scale = pooled.excess, torch.zeros_like(pooled.log_mean)
        if by_probability is not None:
            # (v - mean v) / mean v = (mean p - p) / mean v.
            excess, log_scale = -by_probability.excess, by_probability.log_mean - pooled.log_mean
        self.small = log_scale[:, 0] < -30
        self.log_squares = 2 * log_scale[:, 0] + pooled.block_sum(excess.square()).log()
        self.excess = excess * torch.exp(log_scale)

    def log_increase_of_min(self) -> Tensor:
        """Return `log(min v~ - min v)`, the increase of the smallest weight v by pooling to v~."""
        if self.by_probability is not None:
            p = self.by_probability
            return log_difference(p.before.amax(dim=1), p.log_max_after())
        present, after = self.pooled.present, self.pooled.after
        return log_difference(torch.where(present, after, torch.inf).amin(dim=1), self._log_min())

    def log_excess_of_chosen(self) -> Tensor:
        """Return `log(min v of the chosen - min v)`."""
        if self.by_probability is not None:
            log_p = self.by_probability.before
            chosen = torch.where(self.chosen, log_p, -torch.inf).amax(dim=1)
            return log_difference(log_p.amax(dim=1), chosen)
        chosen = torch.where(self.chosen, self.pooled.before, torch.inf).amin(dim=1)
        return log_difference(chosen, self._log_min())

    def _log_min(self) -> Tensor:
        """Return the logarithm of the smallest weight before pooling."""
        return torch.where(self.pooled.present, self.pooled.before, torch.inf).amin(dim=1)
