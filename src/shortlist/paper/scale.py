"""The size of a study."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist._utils.validation import check_choice


@dataclass(frozen=True)
class Scale:
    """The size of a study.

    Parameters
    ----------
    seeds : int, default=3
        Number of seeds.
    points : int, default=8
        Number of cost weights (the paper's lambda) of a curve.
    fixed_weights : tuple of float, default=(0.1, 0.05, 0.02, 0.01)
        Cost weights of figure 3.
    rows : int, default=30_000
        Maximum number of rows of real data to fit methods on.
    weak_rows : int, default=20_000
        The same for a weak scoring function, for which the paper says that fewer rows suffice.
    sample_sizes : tuple of int, default=(1_000, 5_000, 20_000, 50_000, 150_000, 500_000)
        Numbers of rows in figure 5.
    largest_shortlister : int, default=50_000
        Maximum number of artificial rows to fit the Shortlister on.
    shortlister_epochs : int, default=50
        Maximum number of epochs of the Shortlister.
    epochs : int, default=15
        Maximum number of epochs of the paper's selector.
    steps : int, default=12_000
        Approximate maximum number of training steps of the paper's selector.
    classifier_rows : int, default=20_000
        Number of artificial rows to train the classifier on.
    test_rows : int, default=20_000
        Number of artificial test rows.
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
        """Return the cost weights of a curve.

        Parameters
        ----------
        cost : {"log", "linear"}
            The cost. The cost k is higher than log k, so its weights are lower.

        Returns
        -------
        tuple of float
            Cost weights in decreasing order.
        """
        check_choice(cost, "cost", ["log", "linear"])
        high, low = (0.4, 0.01) if cost == "log" else (0.3, 0.003)
        return tuple(np.geomspace(high, low, self.points).round(6).tolist())

    def epochs_for(self, rows: int) -> int:
        """Return the maximum number of epochs for a number of rows.

        Parameters
        ----------
        rows : int
            Number of rows to fit on.

        Returns
        -------
        int
            The number of epochs that takes at most about `steps` steps, but at least 2.
        """
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
