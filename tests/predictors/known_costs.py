"""A world with known conditional costs, where each cell has another best member."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import shortlist as sl

COST_WEIGHT, FEE, ABSTENTION = 0.2, 0.1, 0.3
POSTERIOR = np.array([[0.95, 0.03, 0.02], [0.5, 0.45, 0.05], [0.4, 0.3, 0.3], [0.34, 0.33, 0.33]])
EXPERT_ACCURACY = np.array([0.7, 0.4, 1.0, 0.2])
"""Probability that the expert is right in each cell. In cell 2, it always is."""
FAMILY = sl.Deferral(sl.TopK([1, 2]), ["expert", "abstain"])
N_CELLS = len(POSTERIOR)


@dataclass(frozen=True)
class World:
    """Rows of the world: cells, features, scores, labels and the answers of the expert."""

    cell: NDArray[np.int64]
    x: NDArray[np.float64]
    scores: NDArray[np.float64]
    y: NDArray[np.int64]
    expert: NDArray[np.int64]

    @property
    def costs(self) -> dict[str, object]:
        """Costs of the members without a set."""
        return {"expert": (self.expert != self.y) + FEE, "abstain": ABSTENTION}


def draw_world(rows: int, seed: int = 0) -> World:
    """Draw rows. The features identify the cell."""
    rng = np.random.default_rng(seed)
    cell = rng.integers(N_CELLS, size=rows)
    scores = POSTERIOR[cell]
    y = (rng.random((rows, 1)) > scores.cumsum(axis=1)[:, :-1]).sum(axis=1)
    right = rng.random(rows) < EXPERT_ACCURACY[cell]
    return World(cell, np.eye(N_CELLS)[cell], scores, y, np.where(right, y, (y + 1) % 3))


def expected_costs() -> NDArray[np.float64]:
    """Return the conditional expected cost of each member in each cell."""
    sizes = np.array([1, 2])
    sets = 1 - POSTERIOR.cumsum(axis=1)[:, sizes - 1] + COST_WEIGHT * np.log(sizes)
    expert = 1 - EXPERT_ACCURACY + FEE
    return np.column_stack([sets, expert, np.full(N_CELLS, ABSTENTION)])
