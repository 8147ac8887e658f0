"""A problem with a known solution: easy rows need one label, hard rows need four."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_CLASSES = 6


@dataclass(frozen=True)
class Problem:
    """Logits, labels and features of rows, and a mask of the hard rows."""

    scores: NDArray[np.float64]
    y: NDArray[np.int64]
    x: NDArray[np.float64]
    hard: NDArray[np.bool_]


def draw_problem(rows: int, seed: int = 0) -> Problem:
    """Draw rows, half of which are hard."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    hard = x[:, 0] > 0
    best = rng.integers(N_CLASSES, size=rows)
    # Cyclic distances from the best class. In a hard row, the first four classes score alike.
    distance = (np.arange(N_CLASSES) - best[:, None]) % N_CLASSES
    scores = np.where(hard[:, None], 4.0 * (distance < 4), 8.0 * (distance == 0))
    y = (best + np.where(hard, rng.integers(4, size=rows), 0)) % N_CLASSES
    return Problem(scores + rng.normal(scale=0.1, size=scores.shape), y, x, hard)
