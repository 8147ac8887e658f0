"""The logistic loss, `Phi(u) = log(1 + u)`: cross-entropy."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.losses.numerics import entropy_gap
from shortlist.losses.pooled import Pooled
from shortlist.losses.psi import inverse_psi
from shortlist.losses.record import Bound, SurrogateLoss


def _infimum(w: NDArray[np.float64]) -> float:
    positive = w[w > 0]
    return float(-(positive * np.log(positive / w.sum())).sum())


def _psi(t: float, n: int) -> float:
    if t < 1e-3:
        return t * t / 2 + t**4 / 12
    return sum(s / 2 * math.log(s) for s in (1 - t, 1 + t) if s > 0)


def _log_psi(log_t: Tensor, n: Tensor) -> Tensor:
    t = log_t.exp()
    series = 2 * log_t + torch.log(0.5 + t**2 / 12)
    direct = torch.xlogy((1 - t) / 2, 1 - t) + torch.xlogy((1 + t) / 2, 1 + t)
    return torch.where(t < 1e-3, series, direct.clamp(min=1e-300).log())


def _pooled_regret(pooled: Pooled) -> Tensor:
    gaps = entropy_gap(pooled.excess, pooled.log_ratio)
    return pooled.log_mean[:, 0] + pooled.block_sum(gaps).log()


def _rate(n: int) -> tuple[float, float]:
    return math.sqrt(2), 0.5


_inverse = inverse_psi(_psi)
_COST_BOUND = Bound.power("2 sqrt(R)", lambda n, m: 2.0, lambda n: 0.5)

LOG = SurrogateLoss(
    name="log",
    family="comp_sum",
    phi=lambda t: t,
    bounded_gradient=True,
    probability_scale=1.0,
    infimum=_infimum,
    psi=_psi,
    psi_inverse=_inverse,
    largest_value=lambda n, largest: float(np.logaddexp(0.0, math.log(n - 1) + 2 * largest)),
    # The gradient of a comp-sum loss is f(S_y) (S - e_y), with a norm of at most sqrt(2) f(S_y).
    lipschitz=lambda n, largest: math.sqrt(2),
    published_cost_sensitive_bound=_COST_BOUND,
    cost_sensitive_bound=_COST_BOUND,
    published_top_k_bound=Bound.of_psi("k psi^-1(R)", _inverse, _log_psi, _rate),
    top_k_bound=Bound.of_psi("psi^-1(R)", _inverse, _log_psi, _rate),
    pooled_regret=_pooled_regret,
)
