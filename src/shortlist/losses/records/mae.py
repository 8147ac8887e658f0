"""The mean absolute error, `Phi(u) = 1 - 1 / (1 + u)`."""

from __future__ import annotations

import math

from torch import Tensor

from shortlist.losses.numerics import log_difference, one_minus_exp
from shortlist.losses.pooled import Pooled
from shortlist.losses.psi import inverse_psi
from shortlist.losses.record import NO_BOUND, Bound, SurrogateLoss


def _psi(t: float, n: int) -> float:
    return t / n


def _pooled_regret(pooled: Pooled) -> Tensor:
    return log_difference(pooled.before.amax(dim=1), pooled.log_max_after())


_inverse = inverse_psi(_psi, lambda regret, n: n * regret)
_COST_BOUND = Bound.power("|K| R", lambda n, m: n, lambda n: 1.0)

MAE = SurrogateLoss(
    name="mae",
    family="comp_sum",
    phi=one_minus_exp,
    bounded_gradient=True,
    infimum=lambda w: float(w.sum() - w.max()),
    psi=_psi,
    psi_inverse=_inverse,
    largest_value=lambda n, largest: 1.0,
    lipschitz=lambda n, largest: math.sqrt(2),
    published_cost_sensitive_bound=_COST_BOUND,
    cost_sensitive_bound=_COST_BOUND,
    published_top_k_bound=Bound.of_psi(
        "k n R",
        _inverse,
        log_psi=lambda log_t, n: log_t - n.log(),
        rate=lambda n: (float(n), 1.0),
        holds=False,
    ),
    top_k_bound=NO_BOUND,
    pooled_regret=_pooled_regret,
)
