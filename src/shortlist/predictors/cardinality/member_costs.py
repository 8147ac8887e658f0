"""Costs that a selector is trained with: computed for sets, given by the user, or both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, as_bounded_matrix, to_tensor
from shortlist._utils.validation import check_finite
from shortlist.costs import Cost, cost_matrix, cost_table, largest_costs
from shortlist.families import Family
from shortlist.learning.process_group import current_group
from shortlist.predictors.row_tables import costs_and_hits
from shortlist.ranking import Ranking

GivenCosts: TypeAlias = "ArrayLike | Mapping[str, float | ArrayLike]"
"""A table with a column for each member, or the costs of members without a set by name."""


class MemberCosts(Protocol):
    """What the costs of a batch of rows are computed from."""

    @property
    def targets(self) -> tuple[Tensor, ...]:
        """Tensors with one entry for each row, of which batches are given to `matrix`."""

    @property
    def scale(self) -> str:
        """What the costs depend on besides the targets and the cost weight."""

    def matrix(self, cost_weight: Tensor, *targets: Tensor) -> Tensor:
        """Return the costs of the members for a batch, in [0, 1]."""


@dataclass(frozen=True)
class ComputedCosts:
    """Costs of sets, computed from hits and sizes, and given costs of other members.

    `targets` are the hits and the costs of the sizes and, if there are other members, their costs.
    """

    targets: tuple[Tensor, ...]
    largest_costs: tuple[float, float]
    largest_other: float = 0.0

    @property
    def scale(self) -> str:
        """What the costs depend on besides the targets and the cost weight."""
        return f"{self.largest_costs} {self.largest_other}"

    def matrix(self, cost_weight: Tensor, *targets: Tensor) -> Tensor:
        """Return the costs of the members for a batch, in [0, 1]."""
        hits, size_costs, *others = targets
        other = others[0] if others else None
        return cost_matrix(
            hits, size_costs, cost_weight, *self.largest_costs, other, self.largest_other
        )


@dataclass(frozen=True)
class TableCosts:
    """Costs of all members as a table in [0, 1]; the cost weight does not change them."""

    targets: tuple[Tensor, ...]
    scale: str = "table"

    def matrix(self, cost_weight: Tensor, *targets: Tensor) -> Tensor:
        """Return the costs of the members for a batch, in [0, 1]."""
        return targets[0]


def is_table(costs: GivenCosts | None) -> bool:
    """Return whether given costs are a table, which includes the costs of the sets."""
    return costs is not None and not isinstance(costs, Mapping)


def member_costs(
    family: Family,
    ranking: Ranking,
    index: Tensor,
    cost: Cost,
    costs: GivenCosts | None,
    dtype: torch.dtype,
    device: torch.device,
) -> MemberCosts:
    """Return the costs of the members of a family on the rows of a fit.

    Parameters
    ----------
    family : Family
        Fitted family.
    ranking : Ranking
        Rows.
    index : Tensor of shape (n_rows,)
        Label indices.
    cost : {"log", "linear"}, sequence, dict or callable
        Cost of a set size.
    costs : table, mapping or None
        Costs given by the user; see `CardinalitySelector.fit`.
    dtype, device : torch.dtype, torch.device
        Precision and place of the costs.

    Returns
    -------
    MemberCosts
    """
    if costs is not None and is_table(costs):
        table = cost_table_of(costs, family, len(ranking))
        scaled = table / max(1.0, _largest(table))
        return TableCosts((scaled.to(device, dtype),))
    sizes = cost_table(cost, family.possible_sizes(ranking)).to(ranking.device)
    others = other_costs(costs, family, len(ranking))
    size_costs, hits = costs_and_hits(family, ranking, index, sizes, dtype)
    n_sets = len(family) - len(family.others)
    targets = (hits[:, :n_sets].to(device), size_costs[:, :n_sets].to(device))
    largest = largest_costs(sizes, None if ranking.open_classes else ranking.n_classes)
    if others is None:
        return ComputedCosts(targets, largest)
    return ComputedCosts((*targets, others.to(device, dtype)), largest, _largest(others))


def _largest(costs: Tensor) -> float:
    """Return the largest cost, of all processes that fit the model."""
    return float(current_group().gather(costs.max()[None].cpu()).max())


def cost_table_of(costs: GivenCosts, family: Family, n_rows: int) -> Tensor:
    """Return a table of costs with a column for each member of a family, in float64."""
    table, _ = as_bounded_matrix(costs, "costs", "members")
    if tuple(table.shape) != (n_rows, len(family)):
        raise ValueError(
            f"costs has shape {tuple(table.shape)}; needed: (rows, members) = "
            f"{(n_rows, len(family))}, with a column for each of {_listed(family.member_names)}"
        )
    _check_not_negative(table, "costs")
    return table.to(torch.float64)


def other_costs(costs: GivenCosts | None, family: Family, n_rows: int) -> Tensor | None:
    """Return the costs of the members without a set, in float64; None if there are none."""
    given = costs if isinstance(costs, Mapping) else {}
    missing = [name for name in family.others if name not in given]
    unknown = [name for name in given if name not in family.others]
    if unknown:
        known = f"it has {_listed(family.others)}" if family.others else "it has only sets"
        raise ValueError(
            f"costs has an entry {unknown[0]!r}, but {family} has no such member besides its sets "
            f"({known}); see sl.Deferral"
        )
    if missing:
        raise ValueError(
            f"the costs of {_listed(missing)}, members of {family}, are missing; give fit(..., "
            f"costs={{{missing[0]!r}: ...}}) with a number, or a number for each row"
        )
    if not family.others:
        return None
    return torch.stack([_cost_column(given[name], name, n_rows) for name in family.others], dim=1)


def _cost_column(value: object, name: str, n_rows: int) -> Tensor:
    """Return the costs of one member: a number for all rows, or one for each."""
    label = f"costs[{name!r}]"
    column = to_tensor(value, label)
    if column.ndim == 0:
        column = column.expand(n_rows)
    if tuple(column.shape) != (n_rows,):
        raise ValueError(
            f"{label} must be a number, or {n_rows} numbers, one for each row; got shape "
            f"{tuple(column.shape)}"
        )
    column = column.to("cpu", torch.float64)
    check_finite(column[:, None], label)
    _check_not_negative(column[:, None], label)
    return column


def _check_not_negative(table: Tensor, name: str) -> None:
    """Raise an error that says where the first negative cost is."""
    places = (table < 0).nonzero()
    if len(places):
        row, column = places[0].tolist()
        raise ValueError(
            f"{name} holds {float(table[row, column]):g} at row {row}, column {column}; costs must "
            "not be negative. Add a constant to all costs of the row: the best choice is the same"
        )


def _listed(names: object) -> str:
    """Return names for a message."""
    return ", ".join(map(repr, names))  # type: ignore[call-overload]
