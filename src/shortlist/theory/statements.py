"""The bounds that `verify` tests, as lower bounds on the surrogate regret.

A bound `D <= f(R)` on the target regret D is violated if and only if the surrogate regret R is
less than `f^-1(D)`. The statements use the logarithms of regrets, which represent regrets of
1e-100 precisely. Every `Bound` in the record of a registered loss becomes a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.losses import NO_BOUND, Bound, SurrogateLoss, loss_names
from shortlist.losses.record import FAMILY_PARAMETERS
from shortlist.losses.registry import loss_entry

RequiredRegret = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Logarithm of the smallest surrogate regret that a statement allows, from log D, n and k."""

EXPONENTS = (0.3, 0.5, 0.51, 0.55, 0.6, 0.7, 0.9)
"""Values of q at which the top-k statements are tested."""
COST_EXPONENTS = (0.3, 0.5, 0.7)
"""Values of q at which the cost-sensitive statements are tested."""


@dataclass(frozen=True)
class Statement:
    """A bound to be tested.

    `theorem` is "top-k" or "cost-sensitive". `form` is "published", "published, k = 1",
    "corrected" or "sharper". `bound` is the formula of the bound. `parameter` is the value of the
    parameter of the loss.
    """

    theorem: str
    form: str
    record: SurrogateLoss
    bound: str
    log_required_regret: RequiredRegret
    parameter: float

    @property
    def loss(self) -> str:
        """Name of the loss."""
        return self.record.name

    @property
    def label(self) -> str:
        """Name of the loss with the value of its parameter."""
        return self.record.label

    @property
    def only_top_one(self) -> bool:
        """Whether the statement is about k = 1 only."""
        return self.form == "published, k = 1"


def statements(exponents: tuple[float, ...] = EXPONENTS) -> list[Statement]:
    """Return the statements about all registered losses whose records have the required facts."""
    top_k, costs = list(_records(exponents)), list(_records(COST_EXPONENTS))
    return [
        *(s for value, record in top_k for s in published_statements(record, value)),
        *(s for value, record in top_k for s in _corrected_statements(record, value)),
        *(s for value, record in costs for s in _cost_statements(record, value)),
    ]


def published_statements(record: SurrogateLoss, value: float) -> Iterator[Statement]:
    """Yield the published top-k bound of a loss. If it fails, k = 1 is a statement of its own."""
    if not record.knows("published_top_k_bound", "pooled_regret"):
        return
    bound = record.published_top_k_bound

    def log_required_regret(log_d: Tensor, n: Tensor, k: Tensor) -> Tensor:
        return bound.log_inverse(log_d - k.log(), n, _max_missed(n, k))

    for form in ("published",) if bound.holds else ("published, k = 1", "published"):
        yield Statement("top-k", form, record, bound.text, log_required_regret, value)


def _corrected_statements(record: SurrogateLoss, value: float) -> Iterator[Statement]:
    """Yield the top-k bound of a loss that holds for every k, if there is one."""
    if not record.knows("top_k_bound", "pooled_regret") or record.top_k_bound is NO_BOUND:
        return
    bound = record.top_k_bound
    yield Statement("top-k", "corrected", record, bound.text, _inverse(bound), value)


def _cost_statements(record: SurrogateLoss, value: float) -> Iterator[Statement]:
    """Yield the published cost-sensitive bound of a loss, and a sharper one if there is one."""
    published, smallest = record.published_cost_sensitive_bound, record.cost_sensitive_bound
    if record.knows("published_cost_sensitive_bound", "pooled_regret"):
        inverse = _inverse(published)
        yield Statement("cost-sensitive", "published", record, published.text, inverse, value)
    if record.knows("cost_sensitive_bound", "pooled_regret") and smallest is not published:
        inverse = _inverse(smallest)
        yield Statement("cost-sensitive", "sharper", record, smallest.text, inverse, value)


def _inverse(bound: Bound) -> RequiredRegret:
    """Return the inverse of a bound as a function of log D, n and k."""
    return lambda log_d, n, k: bound.log_inverse(log_d, n, _max_missed(n, k))


def _max_missed(n: Tensor, k: Tensor) -> Tensor:
    """Return how many of the k most probable labels a set of k labels can miss."""
    return torch.minimum(k, n - k)


def _records(exponents: tuple[float, ...]) -> Iterator[tuple[float, SurrogateLoss]]:
    """Yield each registered loss and its parameter, which takes these values if it is q."""
    for name in loss_names():
        entry = loss_entry(name)
        parameter = entry.parameter or FAMILY_PARAMETERS[entry.family]
        values: tuple[float, ...] = (parameter.default,)
        if entry.parameter is not None and parameter.name == "q":
            values = tuple(q for q in exponents if q in parameter)
        for value in values:
            yield value, entry.record(value)
