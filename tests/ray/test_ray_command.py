"""Commands with `--ray`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import parquet
from tables import N_CLASSES, SCORES, X, Y
from typer.testing import CliRunner

import shortlist as sl
from shortlist.cli import app

pytestmark = pytest.mark.usefixtures("cluster")


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def test_fit_predict_and_compare(dense: Path, tmp_path: Path) -> None:
    model, sets = tmp_path / "model", tmp_path / "sets"
    output = run("fit", dense, "-o", model, "--method", "aps", "--ray", "local")
    assert "aps on 24,000 rows, 12 classes" in output
    output = run("predict", model, dense, "-o", sets, "--accuracy", "0.9", "--keep", "id",
                 "--ray", "local", "--json")  # fmt: skip
    summary = json.loads(output)
    assert (summary["rows"], summary["files"], summary["skipped"]) == (24_000, 3, 0)
    table = parquet.read_table(sets).sort_by([("file", "ascending"), ("row", "ascending")])
    expected = sl.load(model).predict_set(SCORES, accuracy=0.9)
    assert table["labels"].to_pylist() == expected.labels()
    assert summary["accuracy"] == expected.accuracy(Y)
    output = run("predict", model, dense, "-o", sets, "--accuracy", "0.8", "--ray", "local", code=1)
    assert "use --force" in output
    output = run("compare", dense, "--rows", "3000", "--max-epochs", "1", "--accuracies", "0.8",
                 "--ray", "local")  # fmt: skip
    assert "Shortlister" in output


def test_calibrate_and_options_of_the_cluster(dense: Path, tmp_path: Path) -> None:
    model, new, sets = tmp_path / "model", tmp_path / "new", tmp_path / "sets"
    two = ["--ray", "local", "--workers", 2, "--threads", 1]
    rows = dense / "part-0.parquet"
    run("fit", rows, "-o", model, "--max-epochs", 1, *two, "--storage", tmp_path / "checkpoints")
    assert any((tmp_path / "checkpoints").iterdir())
    output = run("calibrate", model, dense / "part-1.parquet", "-o", new, *two)
    assert f"{new}: 8,000 calibration rows" in output
    part = slice(8000, 16_000)
    expected = sl.load(model).calibrate(SCORES[part], Y[part], X[part])
    calibrated = sl.load(new).predict_set(SCORES, X, accuracy=0.9)
    assert calibrated == expected.predict_set(SCORES, X, accuracy=0.9)
    output = run("predict", new, dense, "-o", sets, "--rows-per-file", 2000, *two, "--json")
    assert json.loads(output)["files"] == 12


def test_the_number_of_classes_of_candidates(listed: Path, tmp_path: Path) -> None:
    options = ["--n-classes", N_CLASSES + 3, "--ray", "local"]
    output = run("fit", listed, "-o", tmp_path / "m", "--method", "lac", *options)
    assert f"{N_CLASSES + 3} classes" in output


def test_errors_in_one_line(dense: Path, tmp_path: Path) -> None:
    (tmp_path / "no.parquet").write_text("nothing")
    output = run("fit", tmp_path / "no.parquet", "-o", tmp_path / "m", "--ray", "local", code=1)
    assert output.strip().splitlines()[-1].startswith("shortlist: no.parquet is not a readable")
    many = ["--workers", 40, "--max-epochs", 1, "--ray", "local"]
    output = run("fit", dense, "-o", tmp_path / "m", *many, code=1)
    assert "40 workers with 1 thread each run at the same time, but the cluster has 2" in output
    sl.SplitConformal("lac").fit(SCORES, Y).save(tmp_path / "m")
    sets = ["-o", tmp_path / "sets.parquet", "--ray", "local"]
    output = run("predict", tmp_path / "m", dense, *sets, code=1)
    assert "with --ray, the output is a folder" in output
    output = run("compare", dense, "--test", "other.parquet", "--ray", "local", code=1)
    assert "with --ray, --test is a share of DATA" in output
