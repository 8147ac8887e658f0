"""Training and test rows of the problem of two regimes, and a pool of all opinions."""

from __future__ import annotations

import numpy as np
import pytest
from two_regimes import Problem, draw_problem

from shortlist.predictors.shortlister import pool as _pool
from shortlist.predictors.shortlister.opinions import given as _given


@pytest.fixture(scope="session")
def learn() -> Problem:
    """Training rows."""
    return draw_problem(800, seed=1)


@pytest.fixture(scope="session")
def unseen() -> Problem:
    """Test rows."""
    return draw_problem(400, seed=2)


@pytest.fixture
def keep_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all opinions, and fit scaled scores to few rows too."""
    monkeypatch.setattr(_pool, "MIN_GAIN", -np.inf)
    monkeypatch.setattr(_given, "ROWS_PER_CLASS", 1)
