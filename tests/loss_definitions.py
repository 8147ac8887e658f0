"""Definitions of the registered losses in mpmath, the reference of the tests.

A new loss needs one entry in `DEFINITIONS`. The tests in `tests/losses` and `tests/theory` then
include it. `phi` and `slope` are required. Each other field is required if the record of the loss
has that fact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath
import numpy as np
import torch
from hypothesis import strategies as st
from mpmath import mpf
from numpy.typing import NDArray
from torch import Tensor

from shortlist.losses import get_loss, loss_names
from shortlist.losses.registry import loss_entry

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Definition:
    """Definition of a loss. The last argument of every function is the parameter of the loss."""

    phi: Callable[[mpf, mpf], mpf]
    """Phi(u) of a comp-sum loss, or Phi(-r) of a constrained loss."""
    slope: Callable[[mpf, mpf], mpf]
    """Derivative of phi in u or in r. At a kink, the one-sided derivative that the library uses."""
    infimum: Callable[[Sequence[mpf], mpf], mpf] | None = None
    """Infimum of the conditional error, from the weights."""
    psi: Callable[[mpf, int, mpf], mpf] | None = None
    best_scores: Callable[[Vector, float, float], Vector] | None = None
    """Scores that attain the infimum at p, or approach it as the second argument grows."""


def _one_hot_top(p: Vector) -> Vector:
    """Return 1 for the most probable label and 0 for the others."""
    return np.where(np.arange(len(p)) == p.argmax(), 1.0, 0.0)


def _mean_power(x: mpf, q: mpf) -> mpf:
    a = 1 / (1 - q)
    return (((1 + x) ** a + (1 - x) ** a) / 2) ** (1 / a)


DEFINITIONS: dict[str, Definition] = {
    "log": Definition(
        phi=lambda u, q: mpmath.log1p(u),
        slope=lambda u, q: 1 / (1 + u),
        infimum=lambda w, q: -mpmath.fsum(x * mpmath.log(x / mpmath.fsum(w)) for x in w),
        psi=lambda t, n, q: mpmath.fsum(s / 2 * mpmath.log(s) for s in (1 - t, 1 + t) if s > 0),
        best_scores=lambda p, far, q: np.log(p),
    ),
    "exp": Definition(
        phi=lambda u, q: u,
        slope=lambda u, q: mpf(1),
        infimum=lambda w, q: mpmath.fsum(mpmath.sqrt(x) for x in w) ** 2 - mpmath.fsum(w),
        psi=lambda t, n, q: 1 - mpmath.sqrt(1 - t * t),
        best_scores=lambda p, far, q: np.log(p) / 2,
    ),
    "gce": Definition(
        phi=lambda u, q: (1 - (1 / (1 + u)) ** q) / q,
        slope=lambda u, q: (1 + u) ** (-q - 1),
        infimum=lambda w, q: (
            (mpmath.fsum(w) - mpmath.fsum(x ** (1 / (1 - q)) for x in w) ** (1 - q)) / q
        ),
        psi=lambda t, n, q: (_mean_power(t, q) - 1) / (q * mpf(n) ** q),
        best_scores=lambda p, far, q: np.log(p) / (1 - q),
    ),
    "mae": Definition(
        phi=lambda u, q: 1 - 1 / (1 + u),
        slope=lambda u, q: (1 + u) ** -2,
        infimum=lambda w, q: mpmath.fsum(w) - max(w),
        psi=lambda t, n, q: t / n,
        best_scores=lambda p, far, q: far * _one_hot_top(p),
    ),
    "constrained_exp": Definition(
        phi=lambda r, rho: mpmath.exp(r),
        slope=lambda r, rho: mpmath.exp(r),
        infimum=lambda v, rho: len(v) * mpmath.fprod(v) ** (mpf(1) / len(v)),
        best_scores=lambda p, far, rho: -np.log(1 - p),
    ),
    "squared_hinge": Definition(
        phi=lambda r, rho: max(0, 1 + r) ** 2,
        slope=lambda r, rho: 2 * max(0, 1 + r),
        infimum=lambda v, rho: len(v) ** 2 / mpmath.fsum(1 / x for x in v),
        best_scores=lambda p, far, rho: len(p) / (1 - p) / (1 / (1 - p)).sum() - 1,
    ),
    "hinge": Definition(
        phi=lambda r, rho: max(0, 1 + r),
        slope=lambda r, rho: mpf(r > -1),
        infimum=lambda v, rho: len(v) * min(v),
        best_scores=lambda p, far, rho: len(p) * _one_hot_top(p) - 1,
    ),
    "margin": Definition(
        phi=lambda r, rho: min(max(0, 1 + r / rho), 1),
        slope=lambda r, rho: mpf(-rho < r <= 0) / rho,
        infimum=lambda v, rho: min(v),
        best_scores=lambda p, far, rho: far * _one_hot_top(p),
    ),
}

COMP_SUM = loss_names("comp_sum")
CONSTRAINED = loss_names("constrained")
LOSSES = (*COMP_SUM, *CONSTRAINED)


def definition(loss: str) -> Definition:
    """Return the definition of a registered loss."""
    assert loss in DEFINITIONS, f"add the definition of {loss!r} to tests/loss_definitions.py"
    return DEFINITIONS[loss]


def losses_with(*facts: str, family: str | None = None) -> list[str]:
    """Return the registered losses whose records have these facts."""
    return [name for name in loss_names(family) if get_loss(name).knows(*facts)]


def with_exponents(losses: Sequence[str], exponents: Sequence[float]) -> list[tuple[str, float]]:
    """Pair each loss with every exponent if its parameter is q, and with 0.7 otherwise."""
    pairs = []
    for loss in losses:
        parameter = loss_entry(loss).parameter
        several = parameter is not None and parameter.name == "q"
        pairs += [(loss, q) for q in (exponents if several else (0.7,))]
    return pairs


@st.composite
def score_tables(draw: st.DrawFn, classes: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Draw scores (m, n), labels (m,) and costs (m, n) in float64."""
    m, n = draw(st.integers(1, 3)), draw(st.integers(classes, 5))
    scores = draw(st.lists(st.floats(-30, 30), min_size=m * n, max_size=m * n))
    labels = draw(st.lists(st.integers(0, n - 1), min_size=m, max_size=m))
    costs = draw(st.lists(st.floats(0, 1), min_size=m * n, max_size=m * n))
    return (
        torch.tensor(scores, dtype=torch.float64).reshape(m, n),
        torch.tensor(labels),
        torch.tensor(costs, dtype=torch.float64).reshape(m, n),
    )
