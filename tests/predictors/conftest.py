"""Rows to learn from, and rows to judge by."""

from __future__ import annotations

import pytest
from two_regimes import Problem, make


@pytest.fixture(scope="session")
def learn() -> Problem:
    return make(800, seed=1)


@pytest.fixture(scope="session")
def unseen() -> Problem:
    return make(400, seed=2)
