"""The sum-exponential loss, `Phi(u) = u`."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.losses.numerics import exp_or_inf
from shortlist.losses.pooled import Pooled
from shortlist.losses.psi import inverse_psi
from shortlist.losses.record import Bound, SurrogateLoss


def _infimum(w: NDArray[np.float64]) -> float:
    return float(np.sqrt(w).sum() ** 2 - w.sum())


def _psi(t: float, n: int) -> float:
    # This form of 1 - sqrt(1 - t^2) does not cancel for small t.
    return t * t / (1 + math.sqrt((1 - t) * (1 + t)))


def _log_psi(log_t: Tensor, n: Tensor) -> Tensor:
    t = log_t.exp()
    return 2 * log_t - torch.log1p(((1 - t) * (1 + t)).clamp(min=0).sqrt())


def _pooled_regret(pooled: Pooled) -> Tensor:
    # (sum sqrt w~)^2 - (sum sqrt w)^2, from the difference of the sums of roots.
    roots = torch.expm1(pooled.log_ratio / 2)
    gap = pooled.log_mean[:, 0] / 2 + (pooled.block_sum(roots.square()) / 2).log()
    sums = [(log_w / 2).logsumexp(dim=1) for log_w in (pooled.before, pooled.after)]
    return gap + torch.logaddexp(*sums)


def _rate(n: int) -> tuple[float, float]:
    return math.sqrt(2), 0.5


_inverse = inverse_psi(_psi, lambda regret, n: math.sqrt(regret * (2 - regret)))
_COST_BOUND = Bound.power("2 sqrt(R)", lambda n, m: 2.0, lambda n: 0.5)

EXP = SurrogateLoss(
    name="exp",
    family="comp_sum",
    phi=torch.expm1,
    bounded_gradient=False,
    exponential=True,
    probability_scale=2.0,
    infimum=_infimum,
    psi=_psi,
    psi_inverse=_inverse,
    largest_value=lambda n, largest: exp_or_inf(math.log(n - 1) + 2 * largest),
    lipschitz=lambda n, largest: math.sqrt(2) * (1 + (n - 1) * exp_or_inf(2 * largest)),
    published_cost_sensitive_bound=_COST_BOUND,
    cost_sensitive_bound=_COST_BOUND,
    published_top_k_bound=Bound.of_psi("k psi^-1(R)", _inverse, _log_psi, _rate),
    top_k_bound=Bound.of_psi("psi^-1(R)", _inverse, _log_psi, _rate),
    pooled_regret=_pooled_regret,
)
