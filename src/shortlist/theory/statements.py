"""The statements that a search tries to break: each says how large a surrogate regret must be.

A bound `D <= f(R)` on the target's regret D is broken if and only if the surrogate's regret R is
less than `f^-1(D)`. In this form, and in logarithms, nothing is lost at regrets of 1e-100.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.losses.comp_sum import COMP_SUM_KINDS
from shortlist.theory.pooling import _log_root_gap, _power_gap

Needed = Callable[[Tensor, Tensor, Tensor], Tensor]
"""log of the least surrogate regret that the statement allows, from log D, n and k."""


@dataclass(frozen=True)
class Statement:
    """A bound to be tested.

    `theorem` is "top-k" or "cost-sensitive"; `form` says which statement of it: "published",
    "published, k = 1", "right". `q` is the exponent of gce.
    """

    theorem: str
    form: str
    loss: str
    bound: str
    """The statement in a few signs."""
    needed: Needed
    q: float = 0.7

    @property
    def label(self) -> str:
        return f"gce, q = {self.q:g}" if self.loss == "gce" else self.loss

    @property
    def family(self) -> str:
        return "comp-sum" if self.loss in COMP_SUM_KINDS else "constrained"

    @property
    def only_top_one(self) -> bool:
        return self.form == "published, k = 1"


def statements(gce: tuple[float, ...] = (0.3, 0.5, 0.51, 0.55, 0.6, 0.7, 0.9)) -> list[Statement]:
    """All of them: the top-k theorems as published and put right, and the cost-sensitive ones."""
    found = []
    for loss, q in _losses(gce):
        bound, needed = _published(loss, q)
        if loss not in ("log", "exp") and (loss != "gce" or q > 0.5):
            found.append(Statement("top-k", "published, k = 1", loss, bound, needed, q))
        found.append(Statement("top-k", "published", loss, bound, needed, q))
    for loss, q in _losses(gce):
        right = _right(loss, q)
        if right is not None:
            found.append(Statement("top-k", "right", loss, *right, q))
    for loss, q in _losses((0.3, 0.7)):
        found.append(Statement("cost-sensitive", "published", loss, *_cost_sensitive(loss, q), q))
    return found


def _losses(gce: tuple[float, ...]) -> list[tuple[str, float]]:
    comp = [("log", 0.7), ("exp", 0.7), ("mae", 0.7), *[("gce", q) for q in gce]]
    return [*comp, *[(x, 0.7) for x in ("constrained_exp", "squared_hinge", "hinge", "margin")]]


def log_psi(loss: str, log_t: Tensor, n: Tensor, q: float) -> Tensor:
    """log psi(t), from log t; infinity above t = 1."""
    t = log_t.clamp(max=0).exp()
    if loss == "mae":
        value = log_t - n.log()
    elif loss == "exp":
        value = 2 * log_t.clamp(max=0) - torch.log1p(((1 - t) * (1 + t)).clamp(min=0).sqrt())
    elif loss == "log":
        near = 2 * log_t.clamp(max=0) + torch.log(0.5 + t**2 / 12)
        one = torch.xlogy((1 - t) / 2, 1 - t) + torch.xlogy((1 + t) / 2, 1 + t)
        value = torch.where(t < 1e-3, near, one.clamp(min=1e-300).log())
    else:
        a = 1 / (1 - q)
        up, down = torch.log1p(t), torch.log1p(-t.clamp(max=1 - 1e-16))
        mean = (_power_gap(t, up, a) + _power_gap(-t, down, a)) / 2
        # Where t^2 would vanish, its leading term.
        small = math.log(a * (a - 1) / 2) + 2 * log_t.clamp(max=0)
        log_mean = torch.where(t < 1e-100, small, mean.clamp(min=1e-300).log())
        value = _log_root_gap(log_mean, a) - q * n.log() - math.log(q)
    return torch.where(log_t > 0, torch.inf, value)


def _published(loss: str, q: float) -> tuple[str, Needed]:
    if loss in COMP_SUM_KINDS:
        bound = "k n R" if loss == "mae" else "k psi^-1(R)"
        return bound, lambda d, n, k: log_psi(loss, d - k.log(), n, q)
    if loss in ("hinge", "margin"):
        return "k R", lambda d, n, k: d - k.log()
    return "2 k sqrt(R)", lambda d, n, k: 2 * (d - k.log() - math.log(2))


def _right(loss: str, q: float) -> tuple[str, Needed] | None:
    if loss in ("log", "exp"):
        return "psi^-1(R)", lambda d, n, k: log_psi(loss, d, n, q)
    if loss == "gce":
        a = 1 / (1 - q)
        if q <= 0.5:
            bound, power, factor = "sqrt(c m^(a-1) R)", 2.0, (1 - q) * 2**a
        else:
            bound, power, factor = "m^q (c R)^(1-q)", a, q / ((1 - q) * (1 - 2 ** (1 - a)))
        return bound, lambda d, n, k: power * d - math.log(factor) - (a - 1) * _swaps(n, k).log()
    if loss == "constrained_exp":
        return (
            "(c m R)^(n/(2n+1))",
            lambda d, n, k: (2 + 1 / n) * d - (64 / 15 * _swaps(n, k)).log() - math.log(4) / n,
        )
    if loss == "squared_hinge":
        return (
            "(c m R)^(1/4)",
            lambda d, n, k: (
                4 * d - (2 * _swaps(n, k) + 1 / (n + 2)).log() - 2 * (n + 2).log() + 2 * n.log()
            ),
        )
    return None


def _swaps(n: Tensor, k: Tensor) -> Tensor:
    """How many labels can be missed at once."""
    return torch.minimum(k, n - k)


def _cost_sensitive(loss: str, q: float) -> tuple[str, Needed]:
    if loss == "mae":
        return "|K| R", lambda d, n, k: d - n.log()
    if loss in ("hinge", "margin"):
        return "R", lambda d, n, k: d
    if loss == "gce":
        return "2 sqrt(|K|^q R)", lambda d, n, k: 2 * (d - math.log(2)) - q * n.log()
    return "2 sqrt(R)", lambda d, n, k: 2 * (d - math.log(2))
