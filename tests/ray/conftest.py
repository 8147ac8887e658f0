"""A Ray cluster of two workers on this machine, and tables for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tables import write_table


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="these tests need shortlist[ray]")
    os.environ["RAY_DEDUP_LOGS"] = "0"
    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of files with a score for each class and features."""
    return write_table(tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="session")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of files with ranked candidates."""
    return write_table(tmp_path_factory.mktemp("listed"), depth=5)
