"""The size of a study."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scale:
    """The size of a study.

    Attributes
    ----------
    seeds : int
        Number of seeds.
    points : int
        Number of lambdas of a curve.
    fixed_weights : tuple of float
        Lambdas of figure 3.
    rows, weak_rows : int
        Maximum number of rows to fit selectors on, for real data, and with a weak scoring
        function, for which the paper says that fewer rows suffice.
    sample_sizes : tuple of int
        Numbers of rows in figure 5.
    largest_shortlister : int
        Maximum number of artificial rows for the Shortlister.
    shortlister_epochs : int
        Maximum number of epochs of the Shortlister.
    epochs, steps : int
        Maximum number of epochs, and approximate maximum number of steps, of a selector.
    classifier_rows, test_rows : int
        Number of artificial rows for the classifier and for the test.
    """

    seeds: int = 3
    points: int = 8
    fixed_weights: tuple[float, ...] = (0.1, 0.05, 0.02, 0.01)
    rows: int = 30_000
    weak_rows: int = 20_000
    sample_sizes: tuple[int, ...] = (1_000, 5_000, 20_000, 50_000, 150_000, 500_000)
    largest_shortlister: int = 50_000
    shortlister_epochs: int = 50
    epochs: int = 15
    steps: int = 12_000
    classifier_rows: int = 20_000
    test_rows: int = 20_000

    def weights(self, cost: str) -> tuple[float, ...]:
        """Return lambdas in decreasing order. The cost k is higher than log k, so its are lower."""
        high, low = (0.4, 0.01) if cost == "log" else (0.3, 0.003)
        return tuple(np.geomspace(high, low, self.points).round(6).tolist())

    def epochs_for(self, rows: int) -> int:
        """Return the maximum number of epochs for a number of rows."""
        return max(2, min(self.epochs, round(self.steps * 128 / rows)))


QUICK = Scale(
    seeds=1,
    points=5,
    fixed_weights=(0.05, 0.01),
    rows=5_000,
    weak_rows=5_000,
    sample_sizes=(1_000, 5_000, 20_000),
    largest_shortlister=20_000,
    epochs=5,
    test_rows=10_000,
)
