"""The small study, which runs once for all tests."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from small_study import CLASSES, FIGURES, TINY, write_feature_files

from shortlist.paper import Report, run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_feature_files(tmp_path_factory.mktemp("data"), list(CLASSES))


@pytest.fixture(scope="session")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("paper") / "out"


@pytest.fixture(scope="session")
def report(folder: Path, output: Path) -> Report:
    return run(folder, output, FIGURES, scale=TINY, workers=2, progress=False)


@pytest.fixture(scope="session")
def table(report: Report) -> pd.DataFrame:
    return report.results.to_frame()
