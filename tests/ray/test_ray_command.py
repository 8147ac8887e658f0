"""`--ray` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import parquet
from tables import CLASSES, SCORES, X, Y
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
    said = run("fit", dense, "-o", model, "--method", "aps", "--ray", "local")
    assert "aps on 24,000 rows, 12 classes" in said
    said = run("predict", model, dense, "-o", sets, "--accuracy", "0.9", "--keep", "id",
               "--ray", "local", "--json")  # fmt: skip
    found = json.loads(said)
    assert (found["rows"], found["files"], found["skipped"]) == (24_000, 3, 0)
    table = parquet.read_table(sets).sort_by([("file", "ascending"), ("row", "ascending")])
    expected = sl.load(model).predict_set(SCORES, accuracy=0.9)
    assert table["labels"].to_pylist() == expected.labels()
    assert found["accuracy"] == expected.accuracy(Y)
    said = run("predict", model, dense, "-o", sets, "--accuracy", "0.8", "--ray", "local", code=1)
    assert "say --force" in said
    said = run("compare", dense, "--rows", "3000", "--max-epochs", "1", "--accuracies", "0.8",
               "--ray", "local")  # fmt: skip
    assert "Shortlister" in said


def test_calibrate_and_how_to_work(dense: Path, tmp_path: Path) -> None:
    model, new, sets = tmp_path / "model", tmp_path / "new", tmp_path / "sets"
    two = ["--ray", "local", "--workers", 2, "--threads", 1]
    run("fit", dense, "-o", model, "--max-epochs", 1, *two, "--storage", tmp_path / "kept")
    assert any((tmp_path / "kept").iterdir())  # checkpoints
    said = run("calibrate", model, dense / "part-1.parquet", "-o", new, *two)
    assert f"{new}: 8,000 calibration rows" in said
    part = slice(8000, 16_000)
    expected = sl.load(model).calibrate(SCORES[part], Y[part], X[part])
    found = sl.load(new).predict_set(SCORES, X, accuracy=0.9)
    assert found == expected.predict_set(SCORES, X, accuracy=0.9)
    said = run("predict", new, dense, "-o", sets, "--rows-per-file", 2000, *two, "--json")
    assert json.loads(said)["files"] == 12


def test_candidates_of_so_many_classes(listed: Path, tmp_path: Path) -> None:
    where = ["--n-classes", CLASSES + 3, "--ray", "local"]
    said = run("fit", listed, "-o", tmp_path / "m", "--method", "lac", *where)
    assert f"{CLASSES + 3} classes" in said


def test_errors_in_one_line(dense: Path, tmp_path: Path) -> None:
    (tmp_path / "no.parquet").write_text("nothing")
    said = run("fit", tmp_path / "no.parquet", "-o", tmp_path / "m", "--ray", "local", code=1)
    assert said.strip().splitlines()[-1].startswith("shortlist: no.parquet is not a readable")
    many = ["--workers", 40, "--max-epochs", 1, "--ray", "local"]
    said = run("fit", dense, "-o", tmp_path / "m", *many, code=1)
    assert "40 workers of 1 thread learn at the same time, but the cluster has 2 cores" in said
    sl.SplitConformal("lac").fit(SCORES, Y).save(tmp_path / "m")
    sets = ["-o", tmp_path / "sets.parquet", "--ray", "local"]
    said = run("predict", tmp_path / "m", dense, *sets, code=1)
    assert "with --ray the output is a folder" in said
    said = run("compare", dense, "--test", "other.parquet", "--ray", "local", code=1)
    assert "with --ray, --test is a share of DATA" in said
