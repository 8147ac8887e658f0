"""The temperature with the shortest sets, for scores that the likelihood temperature lengthens.

A temperature does not change the order of a row's labels, but it changes how rows compare. That of
the largest likelihood makes the sets of APS longer than necessary (Xi, Huang, Feng and Wei, 2024).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from shortlist._utils.out_of_core import Matrix, take_rows
from shortlist.conformal.bounds import miscoverage
from shortlist.conformal.level_function import LevelFunction
from shortlist.conformal.scores.tuning import TUNING_ROWS
from shortlist.ranking import Ranking

FACTORS = tuple(2.0 ** (step / 2) for step in sorted(range(-10, 11), key=abs))
"""Candidates, relative to the first inverse temperature. Of equally good ones, the nearest is
taken."""
SHARES = (0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99)
"""Quantiles of the rank of the threshold. A single rank would depend on few labels, and at low
temperatures the size can jump from one rank to the next."""


def mean_size(
    function: LevelFunction,
    ranking: Ranking,
    index: Tensor,
    features: Matrix | None,
    accuracy: float,
) -> float:
    """Return the mean set size at an accuracy, over likely draws of the rows that calibrate.

    Parameters
    ----------
    function : LevelFunction
        Levels of a score.
    ranking : Ranking
        Rows.
    index : Tensor of shape (n_rows,)
        Label indices.
    features : matrix of shape (n_rows, n_features) or None
        Features of the rows.
    accuracy : float
        Accuracy.

    Returns
    -------
    float
        Geometric mean over thresholds at several ranks: the number of new rows with a level below
        the true threshold is binomial, and the ranks are quantiles of its distribution.
    """
    blocks = function.blocks(ranking, features).keep()
    rising = blocks.label_levels(index).sort().values.cpu().numpy()
    ranks = binom.ppf(SHARES, len(rising), float(miscoverage(accuracy))).astype(np.int64)
    thresholds = rising[np.clip(ranks, 1, len(rising)) - 1]
    sizes = blocks.mean_sizes(thresholds[::-1].copy())
    return float(np.exp(np.log(sizes.clip(min=1 / len(rising))).mean()))


def shortest_scale(
    function: LevelFunction,
    ranking: Ranking,
    index: Tensor,
    features: Matrix | None,
    accuracy: float,
) -> float:
    """Return the inverse temperature with the smallest mean set size at an accuracy.

    Parameters
    ----------
    function : LevelFunction
        Levels of the fitted score, at the inverse temperature where the search starts.
    ranking : Ranking
        Rows that are not used for calibration. At most `TUNING_ROWS` of them are used.
    index : Tensor of shape (n_rows,)
        Label indices.
    features : matrix of shape (n_rows, n_features) or None
        Features of the rows.
    accuracy : float
        Accuracy at which sizes are compared.

    Returns
    -------
    float
        One of the inverse temperatures ``function.scale * f`` for f in `FACTORS`.
    """
    step = math.ceil(len(ranking) / TUNING_ROWS)
    rows, y, x = ranking[::step], index[::step], features
    if x is not None and step > 1:
        x = take_rows(x, torch.arange(0, len(ranking), step, device=x.device))

    def size(scale: float) -> float:
        return mean_size(replace(function, scale=scale), rows, y, x, accuracy)

    scales: list[float] = [function.scale * factor for factor in FACTORS]
    return min(scales, key=size)
