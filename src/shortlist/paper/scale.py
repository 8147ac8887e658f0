"""The size of a study: seeds, rows, grids of cost weights and the limits of training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist._utils.validation import check_choice

LOWEST = {"log": 0.001, "linear": 0.0001}
HIGHEST = {"log": 0.5, "linear": 0.3}
"""Ends of the grids of cost weights. The paper's plots end at 0.01; higher accuracies need less."""
ARTIFICIAL_LOWEST = {"log": 0.02, "linear": 0.004}
ARTIFICIAL_HIGHEST = {"log": 0.6, "linear": 0.2}
"""The same for threshold sets on artificial data, which have sizes of 1 and of 10 beyond."""


@dataclass(frozen=True)
class Scale:
    """The size of a study.

    Parameters
    ----------
    name : str, default="default"
        Name of the scale, for the page.
    verdicts : bool, default=True
        Whether the study is large enough to give verdicts.
    seeds : int, default=2
        Number of seeds.
    points : int, default=10
        Number of cost weights (the paper's lambda) of a curve, before the grid is refined.
    refinements : int, default=1
        Maximum number of times that cost weights are added where a curve has gaps.
    selectors : int, default=5
        Number of selectors whose scores are averaged beside the single selector.
    fixed_weights : tuple of float, default=(0.1, 0.05, 0.02, 0.01)
        Cost weights of figure 3.
    rows : int or None, default=20_000
        Maximum number of rows of real data to fit methods on. None for all rows.
    sample_sizes : tuple of int, default=(1_000, 5_000, 20_000, 50_000)
        Numbers of artificial rows in figure 5.
    max_epochs : int, default=60
        Maximum number of epochs of a selector. Training that it stops supports no verdict.
    patience : int, default=5
        Number of epochs without improvement after which training stops.
    classifier_epochs : int, default=200
        Maximum number of epochs of the linear classifier.
    classifier_rows : int, default=20_000
        Number of artificial rows to train the classifier on.
    test_rows : int, default=20_000
        Number of artificial test rows.
    average_all : bool, default=False
        Whether scores are averaged in all figures, or only with the largest K and for the largest
        number of artificial rows.
    sensitivity : bool, default=False
        Whether to repeat the main comparison with other settings that the paper leaves open.
    """

    name: str = "default"
    verdicts: bool = True
    seeds: int = 2
    points: int = 10
    refinements: int = 1
    selectors: int = 5
    fixed_weights: tuple[float, ...] = (0.1, 0.05, 0.02, 0.01)
    rows: int | None = 20_000
    sample_sizes: tuple[int, ...] = (1_000, 5_000, 20_000, 50_000)
    max_epochs: int = 60
    patience: int = 5
    classifier_epochs: int = 200
    classifier_rows: int = 20_000
    test_rows: int = 20_000
    average_all: bool = False
    sensitivity: bool = False

    def weights(self, cost: str, *, artificial: bool = False) -> tuple[float, ...]:
        """Return the cost weights of a curve before its grid is refined.

        Parameters
        ----------
        cost : {"log", "linear"}
            The cost. The cost k is higher than log k, so its weights are lower.
        artificial : bool, default=False
            Whether the weights are for artificial data.

        Returns
        -------
        tuple of float
            Cost weights in decreasing order.
        """
        check_choice(cost, "cost", list(LOWEST))
        high, low = (ARTIFICIAL_HIGHEST, ARTIFICIAL_LOWEST) if artificial else (HIGHEST, LOWEST)
        grid = np.geomspace(high[cost], low[cost], self.points)
        return tuple(float(f"{weight:.4g}") for weight in grid)


QUICK = Scale(
    name="quick",
    verdicts=False,
    seeds=1,
    points=6,
    refinements=0,
    selectors=2,
    fixed_weights=(0.05, 0.01),
    rows=3_000,
    sample_sizes=(1_000, 5_000),
    max_epochs=10,
    patience=3,
    classifier_epochs=15,
    test_rows=10_000,
)
FULL = Scale(
    name="full",
    seeds=3,
    points=28,
    refinements=2,
    rows=None,
    sample_sizes=(1_000, 5_000, 20_000, 50_000, 150_000, 500_000),
    max_epochs=200,
    average_all=True,
    sensitivity=True,
)
SCALES = {scale.name: scale for scale in (QUICK, Scale(), FULL)}
