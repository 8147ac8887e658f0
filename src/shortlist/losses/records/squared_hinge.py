"""The squared hinge loss, `Phi(-r) = max(0, 1 + r)^2`."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.losses.pooled import PooledCosts
from shortlist.losses.record import Bound, SurrogateLoss


def _infimum(v: NDArray[np.float64]) -> float:
    return len(v) ** 2 / float((1 / v).sum()) if v.min() > 0 else 0.0


def _pooled_regret(costs: PooledCosts) -> Tensor:
    # n^2 / sum 1/v~ - n^2 / sum 1/v.
    pooled, small = costs.pooled, costs.small
    gap = pooled.block_sum(costs.excess.square() * torch.exp(-pooled.log_ratio))
    gap = torch.where(small, costs.log_squares, torch.where(small, 1.0, gap).log())
    gap = gap - pooled.log_mean[:, 0]
    after = torch.where(pooled.present, -pooled.after, -torch.inf).logsumexp(dim=1)
    return 2 * costs.n.log() + gap - after - torch.logaddexp(after, gap)


SQUARED_HINGE = SurrogateLoss(
    name="squared_hinge",
    family="constrained",
    phi=lambda r: (1 + r).clamp(min=0).square(),
    bounded_gradient=False,
    infimum=_infimum,
    # A centered score is at most `2 * largest * (n - 1) / n`.
    largest_value=lambda n, largest: (n - 1) * (1 + 2 * largest * (n - 1) / n) ** 2,
    lipschitz=lambda n, largest: math.sqrt(n - 1) * 2 * (1 + 2 * largest * (n - 1) / n),
    published_cost_sensitive_bound=Bound.power("2 sqrt(R)", lambda n, m: 2.0, lambda n: 0.5),
    cost_sensitive_bound=Bound.power("sqrt(2 R)", lambda n, m: math.sqrt(2), lambda n: 0.5),
    published_top_k_bound=Bound.power("2 k sqrt(R)", lambda n, m: 2.0, lambda n: 0.5, holds=False),
    top_k_bound=Bound.power(
        "(c m R)^(1/4)",
        lambda n, m: ((2 * m + 1 / (n + 2)) * (n + 2) ** 2 / n**2) ** 0.25,
        lambda n: 0.25,
    ),
    pooled_regret=_pooled_regret,
)
