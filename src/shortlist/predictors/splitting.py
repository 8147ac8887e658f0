"""Splits of the rows of a fit into rows to learn from and rows to calibrate with."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist._utils.out_of_core import Matrix, take_rows
from shortlist.ranking import Ranking


def hold_out(
    n_rows: int, fraction: float | None, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split rows at random into rows to learn from and rows that are held out.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    fraction : float or None
        Fraction to hold out: at least one row, but not all. None holds out no rows.
    seed : int
        Seed of the split.

    Returns
    -------
    learning, held_out : array of int
        Indices of the rows, in increasing order.

    Examples
    --------
    >>> [part.tolist() for part in hold_out(5, 0.4, seed=0)]
    [[0, 1, 3], [2, 4]]
    """
    if fraction is None:
        return np.arange(n_rows), np.arange(0)
    order = np.random.default_rng(seed).permutation(n_rows)
    n_held_out = min(max(1, round(fraction * n_rows)), n_rows - 1)
    return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])


def ranking_rows(ranking: Ranking, rows: NDArray[np.intp], *, copy: bool = True) -> Ranking:
    """Return some of the rows, in order, without a copy if they are all or `copy` is False."""
    if len(rows) == len(ranking):
        return ranking
    return ranking[rows] if copy else ranking.view(rows)


def feature_rows(features: Matrix | None, rows: NDArray[np.intp]) -> Matrix | None:
    """Return the features of some of the rows, without a copy if they are all."""
    if features is None or (len(rows) == len(features) and (np.diff(rows) == 1).all()):
        return features
    return take_rows(features, torch.from_numpy(rows).to(features.device))
