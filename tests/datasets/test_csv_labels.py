"""Labels in CSV files are read as text: "NA" is a name, and "01" differs from "1"."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import shortlist as sl
from shortlist.cli import app
from shortlist.datasets import read_rows, stream_rows

UNUSUAL_LABELS = [
    "NA",
    "01",
    "null",
    "nan",
    "1e5",
    "True",
    "",
    "1",
    "None",
    "0x1",
    "1_000",
    "-0",
    "+1",
    "²",
]
NAMES = ["NA", "01", "null", "nan", "1e5", "True", "1"]
DATA = sl.datasets.gaussian(700, 0.5, n_classes=7, dimension=2)


def call(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def write(path: Path, names: list[str] = NAMES, **more: object) -> Path:
    table = pd.DataFrame(DATA.posterior, columns=names).assign(**more)
    table["y"] = np.array(names, dtype=object)[DATA.y]
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_unusual_names_are_not_converted(suffix: str, tmp_path: Path) -> None:
    file = write(tmp_path / f"a{suffix}")
    rows = read_rows(file)
    assert rows.classes.tolist() == NAMES
    assert rows.y.tolist() == np.array(NAMES)[DATA.y].tolist()
    call("fit", file, "-o", tmp_path / "m", "--method", "lac", "--accuracy", 0.8)
    call("predict", tmp_path / "m", file, "-o", tmp_path / "s.jsonl")
    expected = sl.SplitConformal("lac", accuracy=0.8).fit(
        DATA.posterior, np.array(NAMES)[DATA.y], classes=NAMES
    )
    labels = [json.loads(line)["labels"] for line in (tmp_path / "s.jsonl").open()]
    expected_labels = expected.predict_set(DATA.posterior).labels()
    n_equal = sum(a == b for a, b in zip(labels, expected_labels, strict=True))
    assert n_equal > 0.99 * len(labels)  # Numbers in CSV are rounded.


@pytest.mark.parametrize("label", UNUSUAL_LABELS)
def test_one_unusual_label(label: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'"{label}",b,y\n0.5,0.5,{label}\n0.1,0.9,b\n')
    if label == "":
        with pytest.raises(ValueError, match=r"name|missing"):
            read_rows(path)
        return
    rows = read_rows(path)
    assert rows.classes.tolist() == [label, "b"]
    assert rows.y.tolist() == [label, "b"]


@pytest.mark.parametrize("names", [["0", "1", "01"], ["0", "1", "2"], ["10", "20", "30"]])
def test_all_blocks_of_a_file_have_the_same_label_type(names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = [f"0.5,0.3,0.2,{names[i % 2 if i < 6 else 2]}" for i in range(9)]
    path.write_text("\n".join([",".join([*names, "y"]), *lines]))
    parts = list(stream_rows(path, block_rows=3))
    types = {part.y.dtype.kind for part in parts} | {part.classes.dtype.kind for part in parts}
    assert types in ({"i"}, {"U"}, {"O"}, {"O", "U"})
    labels = [label for part in parts for label in part.y.tolist()]
    assert set(labels) == set(parts[0].classes.tolist())
    assert len(set(labels)) == 3


def test_two_columns_with_the_same_name(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b,a,y\n0.5,0.3,0.2,a\n0.5,0.3,0.2,b\n")
    with pytest.raises(ValueError, match=r"a\.csv has two columns named 'a'"):
        read_rows(path)


def test_rows_that_are_longer_than_the_header(tmp_path: Path) -> None:
    """pandas would take the first column as an index, and shift the names of all columns."""
    path = tmp_path / "a.csv"
    for more in ("7", ""):
        path.write_text(f"a,b,y\n0.5,0.3,a,{more}\n0.2,0.6,b,{more}\n")
        with pytest.raises(ValueError, match=r"a\.csv: rows have more values than the 3 names"):
            read_rows(path)


def test_missing_values_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b,y\n0.5,0.3,a\n0.2,0.6,\n")
    with pytest.raises(ValueError, match=r"a\.csv: y of row 1 is missing"):
        read_rows(path)
    pd.DataFrame({"a": [0.5, 0.2], "b": [0.5, 0.8], "y": [0, None]}).astype(
        {"y": "Int64"}
    ).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet: y of row 1 is missing"):
        read_rows(tmp_path / "a.parquet")
    path.write_text("a,b,y\n0.5,0.3,a\n0.2,,b\n")
    assert np.isnan(np.asarray(read_rows(path).scores)[1, 1])  # Raises when ranked.


def test_standard_input(tmp_path: Path, monkeypatch) -> None:
    file = write(tmp_path / "a.csv")
    expected = read_rows(file)
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text()))
    rows = read_rows("-")
    assert rows.y.tolist() == expected.y.tolist()
    assert np.array_equal(np.asarray(rows.scores), np.asarray(expected.scores))


def test_files_written_by_spreadsheets(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('a,"b, c",y\r\n0.5,0.3,a\r\n0.2,0.6,"b, c"\r\n'.encode("utf-8-sig"))
    rows = read_rows(path)
    assert rows.classes.tolist() == ["a", "b, c"]
    assert rows.y.tolist() == ["a", "b, c"]
