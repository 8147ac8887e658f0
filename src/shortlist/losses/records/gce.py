"""The generalized cross-entropy, `Phi(u) = (1 - (1 + u)^-q) / q`."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.losses.numerics import log_root_gap, one_minus_exp, power_gap
from shortlist.losses.pooled import Pooled
from shortlist.losses.psi import inverse_psi
from shortlist.losses.record import Bound, SurrogateLoss


def gce(q: float) -> SurrogateLoss:
    """Return the record of the generalized cross-entropy with exponent q."""
    a = 1 / (1 - q)

    def infimum(w: NDArray[np.float64]) -> float:
        largest = float(w.max())
        norm = largest * float(((w / largest) ** a).sum()) ** (1 - q) if largest else 0.0
        return (float(w.sum()) - norm) / q

    def psi(t: float, n: int) -> float:
        return float(math.expm1(_log_mean_power(t, q) * (1 - q)) / (q * n**q))

    def log_psi(log_t: Tensor, n: Tensor) -> Tensor:
        t = log_t.exp()
        up, down = torch.log1p(t), torch.log1p(-t.clamp(max=1 - 1e-16))
        mean = (power_gap(t, up, a) + power_gap(-t, down, a)) / 2
        leading = math.log(a * (a - 1) / 2) + 2 * log_t  # Replaces the mean where t^2 underflows.
        log_mean = torch.where(t < 1e-100, leading, mean.clamp(min=1e-300).log())
        return log_root_gap(log_mean, a) - q * n.log() - math.log(q)

    def pooled_regret(pooled: Pooled) -> Tensor:
        gaps = pooled.block_sum(power_gap(pooled.excess, pooled.log_ratio, a))
        gap = a * pooled.log_mean[:, 0] + gaps.log()
        total = (a * pooled.after).logsumexp(dim=1)
        return total / a + log_root_gap(gap - total, a) - math.log(q)

    inverse = inverse_psi(psi)
    return SurrogateLoss(
        name="gce",
        label=f"gce, q = {q:g}",
        family="comp_sum",
        phi=lambda t: one_minus_exp(q * t) / q,
        bounded_gradient=True,
        probability_scale=1 - q,
        infimum=infimum,
        psi=psi,
        psi_inverse=inverse,
        largest_value=lambda n, largest: 1 / q,
        lipschitz=lambda n, largest: math.sqrt(2),
        published_cost_sensitive_bound=Bound.power(
            "2 sqrt(|K|^q R)", lambda n, m: 2 * n ** (q / 2), lambda n: 0.5
        ),
        cost_sensitive_bound=_cost_sensitive_bound(q),
        published_top_k_bound=Bound.of_psi(
            "k psi^-1(R)",
            inverse,
            log_psi,
            # The paper states sqrt(2 n^q R), but its psi also gives the factor sqrt(1 - q).
            rate=lambda n: (math.sqrt(2 * (1 - q) * n**q), 0.5),
            holds=q <= 0.5,
        ),
        top_k_bound=_top_k_bound(q),
        pooled_regret=pooled_regret,
    )


def _cost_sensitive_bound(q: float) -> Bound:
    """Return a bound that is smaller than the published one. For q <= 1/2 it is tight."""
    factor = math.sqrt(max(q, 1 - q))
    text = "2 sqrt((1-q) |K|^q R)" if q <= 0.5 else "2 sqrt(q |K|^q R)"
    return Bound.power(text, lambda n, m: 2 * factor * n ** (q / 2), lambda n: 0.5)


def _top_k_bound(q: float) -> Bound:
    """Return a bound that holds for every k. For q <= 1/2 it is of the order sqrt(R)."""
    a = 1 / (1 - q)
    if q <= 0.5:
        constant = math.sqrt((1 - q) * 2**a)
        return Bound.power(
            "sqrt(c m^(a-1) R)", lambda n, m: constant * m ** ((a - 1) / 2), lambda n: 0.5
        )
    constant = (q / ((1 - q) * (1 - 2 ** (1 - a)))) ** (1 - q)
    return Bound.power("m^q (c R)^(1-q)", lambda n, m: constant * m**q, lambda n: 1 - q)


def _log_mean_power(t: float, q: float) -> float:
    """Return `log(((1 + t)^a + (1 - t)^a) / 2)`, precise where it is close to zero."""
    a, beyond_one = 1 / (1 - q), q / (1 - q)
    if a * t > 30:
        return a * math.log1p(t) - math.log(2)  # (1 - t)^a is negligible.
    if a * t < 0.1:  # Sum the series in t^2 until its terms are negligible.
        term = total = a * beyond_one / 2 * t * t
        for j in range(1, 10):
            term *= (a - 2 * j) * (a - 2 * j - 1) / ((2 * j + 1) * (2 * j + 2)) * t * t
            total += term
        return math.log1p(total)
    up = (1 + t) * math.expm1(beyond_one * math.log1p(t))
    down = (1 - t) * math.expm1(beyond_one * math.log1p(-t)) if t < 1 else 0.0
    return math.log1p((up + down) / 2)
