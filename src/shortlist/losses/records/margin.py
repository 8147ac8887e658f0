"""The rho-margin loss, `Phi(-r) = min(max(0, 1 + r / rho), 1)`."""

from __future__ import annotations

import math

from shortlist.losses.record import NO_BOUND, Bound, SurrogateLoss

_COST_BOUND = Bound.power("R", lambda n, m: 1.0, lambda n: 1.0)


def margin(rho: float) -> SurrogateLoss:
    """Return the record of the rho-margin loss. Its infimum and its bounds do not depend on rho."""
    return SurrogateLoss(
        name="margin",
        family="constrained",
        # The gradient of `clamp` at its ends is 1, so that training can start at r = 0.
        phi=lambda r: (1 + r / rho).clamp(min=0, max=1),
        bounded_gradient=True,
        infimum=lambda v: float(v.min()),
        largest_value=lambda n, largest: float(n - 1),
        lipschitz=lambda n, largest: math.sqrt(n - 1) / rho,
        published_cost_sensitive_bound=_COST_BOUND,
        cost_sensitive_bound=_COST_BOUND,
        published_top_k_bound=Bound.power("k R", lambda n, m: 1.0, lambda n: 1.0, holds=False),
        top_k_bound=NO_BOUND,
        # The loss is not convex, so that pooling does not apply. The label with the highest score
        # has a centered score of at least zero, where phi has its largest value, 1.
        pooled_regret=lambda costs: costs.log_excess_of_chosen(),
    )
