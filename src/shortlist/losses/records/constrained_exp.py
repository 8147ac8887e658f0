"""The constrained exponential loss, `Phi(-r) = e^r`."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.losses.numerics import exp_or_inf, log_gap
from shortlist.losses.pooled import PooledCosts
from shortlist.losses.record import Bound, SurrogateLoss


def _infimum(v: NDArray[np.float64]) -> float:
    return len(v) * math.exp(float(np.log(v).mean())) if v.min() > 0 else 0.0


def _pooled_regret(costs: PooledCosts) -> Tensor:
    # n (prod v~)^(1/n) - n (prod v)^(1/n), from the logarithm of the ratio of the products.
    pooled, n, small = costs.pooled, costs.n, costs.small
    ratio = pooled.block_sum(log_gap(costs.excess, pooled.log_ratio)) / n
    mean = torch.where(pooled.present, pooled.after, 0).sum(dim=1) / n
    gap = torch.log(-torch.expm1(-torch.where(small, 1.0, ratio)))
    return n.log() + mean + torch.where(small, costs.log_squares - (2 * n).log(), gap)


_COST_BOUND = Bound.power("2 sqrt(R)", lambda n, m: 2.0, lambda n: 0.5)


CONSTRAINED_EXP = SurrogateLoss(
    name="constrained_exp",
    family="constrained",
    phi=torch.exp,
    bounded_gradient=False,
    exponential=True,
    infimum=_infimum,
    # A centered score is at most `2 * largest * (n - 1) / n`.
    largest_value=lambda n, largest: (n - 1) * exp_or_inf(2 * largest * (n - 1) / n),
    lipschitz=lambda n, largest: math.sqrt(n - 1) * exp_or_inf(2 * largest * (n - 1) / n),
    published_cost_sensitive_bound=_COST_BOUND,
    cost_sensitive_bound=_COST_BOUND,
    published_top_k_bound=Bound.power("2 k sqrt(R)", lambda n, m: 2.0, lambda n: 0.5, holds=False),
    top_k_bound=Bound.power(
        "(c m R)^(n/(2n+1))",
        lambda n, m: (64 / 15 * m * 4 ** (1 / n)) ** (n / (2 * n + 1)),
        lambda n: n / (2 * n + 1),
    ),
    pooled_regret=_pooled_regret,
)
