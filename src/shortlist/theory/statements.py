"""The statements that `verify` tests: each says how large a surrogate regret must be.

A bound `D <= f(R)` on the target's regret D is violated if and only if the surrogate's regret R is
less than `f^-1(D)`. In this form, and in logarithms, nothing is lost at regrets of 1e-100.

A new bound is a `Bound` in the record of its loss; it is tested here without further changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.losses import NO_BOUND, Bound, SurrogateLoss, loss_names
from shortlist.losses.record import FAMILY_PARAMETERS
from shortlist.losses.registry import loss_entry

Needed = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Logarithm of the least surrogate regret that a statement allows, from log D, n and k."""

EXPONENTS = (0.3, 0.5, 0.51, 0.55, 0.6, 0.7, 0.9)
"""Values of q at which the top-k statements are tested."""
COST_EXPONENTS = (0.3, 0.7)
"""Values of q at which the cost-sensitive statements are tested."""


@dataclass(frozen=True)
class Statement:
    """A bound to be tested.

    `theorem` is "top-k" or "cost-sensitive"; `form` says which statement of it: "published",
    "published, k = 1" or "right". `parameter` is the value of the loss's parameter.
    """

    theorem: str
    form: str
    record: SurrogateLoss
    bound: str
    """The statement in a few signs."""
    needed: Needed
    parameter: float

    @property
    def loss(self) -> str:
        """Name of the loss."""
        return self.record.name

    @property
    def label(self) -> str:
        """Name of the loss with its parameter."""
        return self.record.label

    @property
    def only_top_one(self) -> bool:
        """Whether the statement is for k = 1 alone."""
        return self.form == "published, k = 1"


def statements(exponents: tuple[float, ...] = EXPONENTS) -> list[Statement]:
    """Return every statement of a registered loss whose record has what the test needs."""
    top_k, costs = list(_records(exponents)), list(_records(COST_EXPONENTS))
    return [
        *(s for value, record in top_k for s in published_statements(record, value)),
        *(s for value, record in top_k for s in _right_statements(record, value)),
        *(s for value, record in costs for s in _cost_statements(record, value)),
    ]


def published_statements(record: SurrogateLoss, value: float) -> Iterator[Statement]:
    """Yield the published top-k bound of a loss; and for k = 1 alone if it fails otherwise."""
    if not record.knows("published_top_k_bound", "pooled_regret"):
        return
    bound = record.published_top_k_bound

    def needed(log_d: Tensor, n: Tensor, k: Tensor) -> Tensor:
        return bound.log_inverse(log_d - k.log(), n, _missed_at_once(n, k))

    for form in ("published",) if bound.holds else ("published, k = 1", "published"):
        yield Statement("top-k", form, record, bound.text, needed, value)


def _right_statements(record: SurrogateLoss, value: float) -> Iterator[Statement]:
    """Yield the top-k bound of a loss that holds for every k."""
    if not record.knows("top_k_bound", "pooled_regret") or record.top_k_bound is NO_BOUND:
        return
    needed = _inverse(record.top_k_bound)
    yield Statement("top-k", "right", record, record.top_k_bound.text, needed, value)


def _cost_statements(record: SurrogateLoss, value: float) -> Iterator[Statement]:
    """Yield the cost-sensitive bound of a loss."""
    if not record.knows("cost_sensitive_bound", "pooled_regret"):
        return
    bound = record.cost_sensitive_bound
    yield Statement("cost-sensitive", "published", record, bound.text, _inverse(bound), value)


def _inverse(bound: Bound) -> Needed:
    """Return the inverse of a bound as a function of k."""
    return lambda log_d, n, k: bound.log_inverse(log_d, n, _missed_at_once(n, k))


def _missed_at_once(n: Tensor, k: Tensor) -> Tensor:
    """Return how many labels top-k can miss at once."""
    return torch.minimum(k, n - k)


def _records(exponents: tuple[float, ...]) -> Iterator[tuple[float, SurrogateLoss]]:
    """Yield each registered loss, at these values of q if it has the parameter q."""
    for name in loss_names():
        entry = loss_entry(name)
        parameter = entry.parameter or FAMILY_PARAMETERS[entry.family]
        values: tuple[float, ...] = (parameter.default,)
        if entry.parameter is not None and parameter.name == "q":
            values = tuple(q for q in exponents if q in parameter)
        for value in values:
            yield value, entry.record(value)
