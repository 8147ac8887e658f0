"""Sizes of the members of a family in the graph: the same in all rows, or different in each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.conformal.envelope import cost_steps
from shortlist.costs import Cost, cost_table
from shortlist.onnx.envelope import bucket_masses
from shortlist.onnx.graph import INT, Graph, Value

Sizes = NDArray[np.int64] | Value
"""Sizes of the members of a family: an array for all rows, or a value with a row for each."""


@dataclass(frozen=True)
class SharedSizes:
    """Sizes that all rows share, increasing."""

    graph: Graph
    sizes: NDArray[np.int64]

    def of(self, members: Value) -> Value:
        """Return the size of one member in each row, given the indices: (n_rows, 1)."""
        return self.graph.op("Gather", self.graph.constant(self.sizes), members)

    def reached(self, counts: Value) -> Value:
        """Return the size of the last of so many members, and 0 for none: (n_rows, 1)."""
        return self.graph.op("Gather", self.graph.constant(np.array([0, *self.sizes])), counts)

    def by_rank(self, table: Value, depth: int) -> Value:
        """Return, for each rank, the column of the first member that contains it."""
        return table.take(np.searchsorted(self.sizes, np.arange(depth), side="right"))

    def gains(self, p: Value, depth: int) -> Value:
        """Return how much probability each member adds to that of the member before it."""
        return bucket_masses(p, self.sizes.tolist(), depth)

    def costs(self, cost: Cost, largest: int) -> Value:
        """Return how much cost each member adds to that of the member before it."""
        return self.graph.constant(cost_steps(cost, torch.from_numpy(self.sizes)).numpy()[None])

    def costs_never_fall(self, cost: Cost) -> bool:
        """Return whether sizes are 1, 2, 3, … and the cost of a step never decreases.

        Then the ratios of decreasing probabilities to these costs decrease too.
        """
        if self.sizes.tolist() != list(range(1, len(self.sizes) + 1)):
            return False
        steps = cost_steps(cost, torch.from_numpy(self.sizes))[1:]
        return bool((steps.diff() >= 0).all())

    def largest(self, depth: int) -> int:
        """Return the largest size."""
        return int(self.sizes[-1])


@dataclass(frozen=True)
class RowSizes:
    """Sizes of each row, non-decreasing."""

    sizes: Value

    def of(self, members: Value) -> Value:
        """Return the size of one member in each row, given the indices: (n_rows, 1)."""
        return self.sizes.take_along(members)

    def reached(self, counts: Value) -> Value:
        """Return the size of the last of so many members, and 0 for none: (n_rows, 1)."""
        return self.sizes.pad(1, 0, 0).take_along(counts)

    def by_rank(self, table: Value, depth: int) -> Value:
        """Return, for each rank, the column of the first member that contains it."""
        before = self.sizes.unsqueeze(1) <= np.arange(depth)[None, :, None]
        return table.take_along(before.to(INT).sum(axis=2, keep=False))

    def gains(self, p: Value, depth: int) -> Value:
        """Return how much probability each member adds to that of the member before it."""
        return _steps(p.cumsum().pad(1, 0, 0.0).take_along(self.sizes)).clamp(min=0.0)

    def costs(self, cost: Cost, largest: int) -> Value:
        """Return how much cost each member adds to that of the member before it."""
        graph, table = self.sizes.graph, cost_table(cost, range(1, largest + 1)).numpy()
        return _steps(graph.op("Gather", graph.constant(table), self.sizes))

    def costs_never_fall(self, cost: Cost) -> bool:
        """Return False: the sizes are known only when the graph runs."""
        return False

    def largest(self, depth: int) -> int:
        """Return the number of ranked labels."""
        return depth


MemberSizes = SharedSizes | RowSizes


def member_sizes(graph: Graph, sizes: Sizes) -> MemberSizes:
    """Return the sizes that `onnx_sizes` of a family or `onnx_nested_levels` of a score gave."""
    if isinstance(sizes, Value):
        return RowSizes(sizes)
    return SharedSizes(graph, np.asarray(sizes))


def _steps(x: Value) -> Value:
    """Return the difference between each column and the column before."""
    return x - x[:, :-1].pad(1, 0, 0.0)
