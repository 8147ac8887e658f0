"""Training and test rows of the problem of two regimes."""

from __future__ import annotations

import pytest
from two_regimes import Problem, draw_problem


@pytest.fixture(scope="session")
def learn() -> Problem:
    """Training rows."""
    return draw_problem(800, seed=1)


@pytest.fixture(scope="session")
def unseen() -> Problem:
    """Test rows."""
    return draw_problem(400, seed=2)
