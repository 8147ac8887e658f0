"""Calibration rows that a model learned from are recognized, and unrelated rows are not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import shortlist as sl
from shortlist.predictors.training_rows import TrainingRows


def votes(n_rows: int, seed: int) -> NDArray[np.float64]:
    """Return the votes of trees, with which a few rows are equal to unrelated ones."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(12, 0.25), size=n_rows)
    return np.array([rng.multinomial(30, p) for p in proba]) / 30


@pytest.mark.parametrize("n_rows", [150, 225])
def test_votes_of_trees_are_rarely_taken_for_training_rows(n_rows: int) -> None:
    shares, alarms = [], 0
    for seed in range(60):
        rows = TrainingRows(sl.Ranking.from_scores(votes(n_rows, 2 * seed)))
        shares.append(rows.distinct)
        alarms += rows.count_in(sl.Ranking.from_scores(votes(800, 2 * seed + 1))) > 0
    assert 0.9 < np.mean(shares) < 0.99  # Some rows are equal by chance.
    assert alarms <= 3


def test_training_rows_are_recognized_among_others() -> None:
    known = votes(225, 0)
    rows = TrainingRows(sl.Ranking.from_scores(known))
    assert rows.count_in(sl.Ranking.from_scores(known)) == 225
    half = np.concatenate([known, votes(225, 1)])
    assert 225 <= rows.count_in(sl.Ranking.from_scores(half)) < 300
