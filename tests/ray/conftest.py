"""A cluster of two workers on this machine, and tables for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tables import write


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="these tests need shortlist[ray]")
    os.environ["RAY_DEDUP_LOGS"] = "0"
    if not ray.is_initialized():
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        ray.init(num_cpus=2, include_dashboard=False, **quiet)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="session")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("listed"), depth=5)
