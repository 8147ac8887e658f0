"""The hinge loss, `Phi(-r) = max(0, 1 + r)`."""

from __future__ import annotations

import math

from shortlist.losses.record import NO_BOUND, Bound, SurrogateLoss

_COST_BOUND = Bound.power("R", lambda n, m: 1.0, lambda n: 1.0)

HINGE = SurrogateLoss(
    name="hinge",
    family="constrained",
    phi=lambda r: (1 + r).clamp(min=0),
    bounded_gradient=True,
    infimum=lambda v: len(v) * float(v.min()),
    # A centered score is at most `2 * largest * (n - 1) / n`.
    largest_value=lambda n, largest: (n - 1) * (1 + 2 * largest * (n - 1) / n),
    lipschitz=lambda n, largest: math.sqrt(n - 1),
    published_cost_sensitive_bound=_COST_BOUND,
    cost_sensitive_bound=_COST_BOUND,
    published_top_k_bound=Bound.power("k R", lambda n, m: 1.0, lambda n: 1.0, holds=False),
    top_k_bound=NO_BOUND,
    pooled_regret=lambda costs: costs.n.log() + costs.log_increase_of_min(),
)
