"""The inverse of the function psi of a comp-sum loss."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq

Psi = Callable[[float, int], float]
"""`psi(t, n)` for t in [0, 1] and n labels, or its inverse as a function of a regret and n."""

_SMALL = 1e-9
"""For smaller t, psi equals a power of t up to rounding."""


def inverse_psi(psi: Psi, closed_form: Psi | None = None) -> Psi:
    """Return the inverse of psi. Its value is 1 for regrets of at least `psi(1, n)`.

    Parameters
    ----------
    psi : callable
        `psi(t, n)`, increasing in t from `psi(0, n) = 0`.
    closed_form : callable, optional
        `inverse(regret, n)` for regrets below `psi(1, n)`. By default, the inverse is computed
        numerically.

    Returns
    -------
    callable
        The function `inverse(regret, n)`.

    Examples
    --------
    >>> round(inverse_psi(lambda t, n: t**2 / n)(0.01, 4), 12)
    0.2
    """

    def inverse(regret: float, n: int) -> float:
        if regret >= psi(1.0, n):
            return 1.0
        if closed_form is not None:
            return closed_form(regret, n)
        return _numerical_inverse(psi, regret, n)

    return inverse


def _numerical_inverse(psi: Psi, regret: float, n: int) -> float:
    """Solve `psi(t, n) = regret` for t, to full relative precision."""
    if regret == 0:
        return 0.0
    psi_small = psi(_SMALL, n)
    if psi_small <= 0 or (regret < psi_small and not 0 < psi(_SMALL / 10, n) < psi_small):
        raise ValueError(
            f"psi({_SMALL:g}, {n}) = {psi_small:g} is not precise, so that psi cannot be inverted "
            "numerically; compute psi without cancellation (for example with math.expm1), or give "
            "psi_inverse"
        )
    if regret < psi_small:
        power = round(math.log10(psi_small / psi(_SMALL / 10, n)), 6)
        return float(_SMALL * (regret / psi_small) ** (1 / power))

    def gap(log_t: float) -> float:
        return math.log(psi(math.exp(log_t), n)) - math.log(regret)

    return math.exp(float(brentq(gap, math.log(_SMALL), 0.0, xtol=1e-14, rtol=1e-14)))
