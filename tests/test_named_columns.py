"""Files with named columns, in any order and with any type of labels."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import shortlist as sl
from shortlist.cli import app
from shortlist.datasets import Rows

NAMES = ["Größe", "b c", "10", "x"]
DATA = sl.datasets.gaussian(900, 0.7, n_classes=4, dimension=3)
KNOWN, NEW = DATA.split(600)


def call(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def frame(part: sl.datasets.Samples, names: list[object] = NAMES) -> pd.DataFrame:
    table = pd.DataFrame(part.posterior, columns=names)
    for j in range(3):
        table[f"x_{j}"] = part.x[:, j]
    table["y"] = np.array(names, dtype=object)[part.y]
    return table


def write(table: pd.DataFrame, path: Path) -> Path:
    table.columns = table.columns.map(str)
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("named")
    write(frame(KNOWN), folder / "known.csv")
    call("fit", folder / "known.csv", "-o", folder / "model", "--max-epochs", 2)
    return folder / "model"


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_columns_can_be_in_any_order(model, tmp_path, ending) -> None:
    table = frame(NEW)
    shuffled = table[["x_2", "x", "y", "b c", "x_0", "10", "x_1", "Größe"]]
    texts = []
    for i, columns in enumerate((table, shuffled)):
        path = write(columns, tmp_path / f"{i}{ending}")
        call("predict", model, path, "-o", tmp_path / f"{i}.jsonl")
        texts.append((tmp_path / f"{i}.jsonl").read_text())
    assert texts[0] == texts[1]
    output = call("compare", tmp_path / f"0{ending}", "--test", tmp_path / f"1{ending}",
                "--max-epochs", 1, "--json")  # fmt: skip
    assert json.loads(output)[0]["method"] == "Shortlister"


def test_arrays_with_classes_are_put_in_order(model, tmp_path) -> None:
    order = [2, 0, 3, 1]
    common = {"features": NEW.x, "y": np.array(NAMES)[NEW.y]}
    np.savez(tmp_path / "a.npz", scores=NEW.posterior, classes=NAMES, **common)
    np.savez(
        tmp_path / "b.npz", scores=NEW.posterior[:, order], classes=np.array(NAMES)[order], **common
    )
    for name in "ab":
        call("predict", model, tmp_path / f"{name}.npz", "-o", tmp_path / f"{name}.csv")
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


def test_unknown_names_raise(model, tmp_path) -> None:
    path = write(frame(NEW).rename(columns={"b c": "B C"}), tmp_path / "a.csv")
    output = call("predict", model, path, "-o", tmp_path / "s.csv", code=1)
    assert "a.csv has 4 classes, and the model 4: there is no 'b c', but 'B C'" in output
    path = write(frame(NEW).rename(columns={"x_1": "x_one"}), tmp_path / "b.csv")
    output = call("predict", model, path, "-o", tmp_path / "s.csv", code=1)
    assert "there is no 'x_1', but 'x_one'" in output
    table = frame(NEW)
    table.insert(0, "id", np.arange(len(table)))
    output = call("predict", model, write(table, tmp_path / "c.csv"), "-o", tmp_path / "s", code=1)
    output = call("predict", model, tmp_path / "c.csv", "-o", tmp_path / "s.csv", code=1)
    assert "5 classes, and the model 4: there is 'id', unknown to the model" in output


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_classes_that_are_numbers(tmp_path, ending) -> None:
    """The file of `pd.DataFrame(probabilities)` with a column y."""
    known = write(frame(KNOWN, [0, 1, 2, 3]), tmp_path / f"known{ending}")
    new = write(frame(NEW, [0, 1, 2, 3]).drop(columns="y"), tmp_path / f"new{ending}")
    call("fit", known, "-o", tmp_path / "m", "--method", "lac")
    call("predict", tmp_path / "m", new, "-o", tmp_path / "s.parquet")
    lists = pd.read_parquet(tmp_path / "s.parquet").labels
    expected = sl.SplitConformal("lac").fit(KNOWN.posterior, KNOWN.y).predict_set(NEW.posterior)
    n_equal = sum(list(a) == b for a, b in zip(lists, expected.labels(), strict=True))
    assert n_equal > 0.99 * len(NEW)  # Numbers in CSV files are rounded.
    assert sl.load(tmp_path / "m").classes_.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("ragged", [False, True])
def test_candidates_with_names(tmp_path, ending, ragged) -> None:
    ranking = sl.Ranking.from_scores(DATA.posterior)
    cut = [3 - (ragged and i % 2) for i in range(len(DATA))]
    names = np.array(NAMES)
    labels = [names[row[:k]].tolist() for row, k in zip(ranking.labels, cut, strict=True)]
    scores = [row[:k].tolist() for row, k in zip(ranking.scores, cut, strict=True)]
    table = pd.DataFrame({"labels": labels, "scores": scores, "y": names[DATA.y]})
    if ending == ".csv":
        for column in ("labels", "scores"):
            table[column] = table[column].map(json.dumps)
    known, new = (write(t, tmp_path / f"{n}{ending}") for n, t in
                  (("known", table[:600].copy()), ("new", table[600:].copy())))  # fmt: skip
    call("fit", known, "-o", tmp_path / "m", "--method", "lac", "--accuracy", 0.7)
    assert "accuracy" in call("predict", tmp_path / "m", new, "-o", tmp_path / "s.parquet")
    labels = {label for row in pd.read_parquet(tmp_path / "s.parquet").labels for label in row}
    assert labels <= set(NAMES)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_files_are_streamed_to_the_same_sets(model, tmp_path, ending, monkeypatch) -> None:
    path = write(frame(NEW), tmp_path / f"new{ending}")
    call("predict", model, path, "-o", tmp_path / "whole.parquet")
    sizes = []
    match_columns = Rows.match_columns
    monkeypatch.setattr("shortlist.datasets.row_files.BLOCK_ROWS", 77)
    monkeypatch.setattr(
        Rows,
        "match_columns",
        lambda rows, *columns: sizes.append(len(rows)) or match_columns(rows, *columns),
    )
    call("predict", model, path, "-o", tmp_path / "parts.parquet")
    assert sizes == [77, 77, 77, 69]
    whole, parts = (pd.read_parquet(tmp_path / f"{n}.parquet") for n in ("whole", "parts"))
    assert whole.row.tolist() == parts.row.tolist()
    assert [list(a) for a in whole.labels] == [list(b) for b in parts.labels]


def test_selectors_of_the_paper_need_calibration_rows_for_a_guarantee(tmp_path) -> None:
    known = write(frame(KNOWN), tmp_path / "known.csv")
    output = call("fit", known, "-o", tmp_path / "a", "--method", "paper", "--max-epochs", 2)
    assert "no guarantee" in output
    assert "--accuracy" not in output
    output = call("fit", known, "-o", tmp_path / "b", "--method", "paper", "--max-epochs", 2,
                "--calibration", 0.3)  # fmt: skip
    assert "180 calibration rows" in output
    new = write(frame(NEW), tmp_path / "new.csv")
    output = call("predict", tmp_path / "b", new, "-o", tmp_path / "s.csv", "--accuracy", 0.6)
    assert "guaranteed with probability 0.95" in output


def test_sets_of_every_label_if_calibration_rows_are_too_few(model, tmp_path) -> None:
    new = write(frame(NEW), tmp_path / "new.csv")
    output = call("predict", model, new, "-o", tmp_path / "s.csv", "--accuracy", 0.9999, code=1)
    assert output.strip().endswith("or every label, with --on-unreachable all")
    output = call("predict", model, new, "-o", tmp_path / "s.csv", "--accuracy", 0.9999,
                "--on-unreachable", "all")  # fmt: skip
    assert "mean size 4.000, accuracy 1.0000" in output


def test_advice_names_options_of_the_command_line(tmp_path) -> None:
    """Messages of the library name Python parameters; those of the command line name options."""
    new = write(frame(NEW)[[*NAMES, "y"]], tmp_path / "new.csv")
    whole = write(frame(KNOWN), tmp_path / "whole.csv")
    call("fit", whole, "-o", tmp_path / "both", "--method", "paper", "--max-epochs", 1)
    output = call("predict", tmp_path / "both", new, "-o", tmp_path / "s.csv", code=1)
    assert output.strip().endswith("the file needs them too")
    known = write(frame(KNOWN)[[*NAMES, "y"]], tmp_path / "known.csv")
    call("fit", known, "-o", tmp_path / "path", "--method", "paper", "--max-epochs", 1)
    output = call("predict", tmp_path / "path", new, "-o", tmp_path / "s.csv", "--accuracy", 0.9,
                code=1)  # fmt: skip
    assert "can be guaranteed after shortlist calibrate" in output
    lac = sl.SplitConformal("lac", calibration=None)
    lac.fit(KNOWN.posterior, np.array(NAMES)[KNOWN.y], classes=NAMES).save(tmp_path / "lac")
    output = call("predict", tmp_path / "lac", new, "-o", tmp_path / "s.csv", code=1)
    assert "fit it with --calibration 0.25" in output


def test_the_reader_of_a_pipe_can_stop(model, tmp_path) -> None:
    new = write(pd.concat([frame(NEW)] * 10), tmp_path / "new.csv")
    code = "import sys; from shortlist.cli import main; sys.argv[0] = 'shortlist'; main()"
    words = [sys.executable, "-c", code, "predict", str(model), str(new), "-o", "-"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith('{"row": 0')
    process.stdout.close()
    output = process.stderr.read()
    process.stderr.close()
    process.wait()
    assert "Broken pipe" not in output
    assert "Traceback" not in output


def test_an_invalid_output_path_raises_before_the_work(model, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    known = write(frame(KNOWN), tmp_path / "known.csv")
    for words in (["fit", known, "-o"], ["predict", model, known, "-o"], ["compare", known, "-o"]):
        where = tmp_path / "file" / ("m" if words[0] == "fit" else "s.csv")
        output = call(*words, where, code=1)
        assert "nothing can be written to" in output
        assert "is not a folder" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "DATA", "--accuracies", "0.9,abc"], "numbers separated by commas"),
        (["predict", "MODEL", "DATA", "-o", "s.csv", "--by", "row"], "must be one of 'class'"),
        (["fit", "MODEL", "-o", "m"], "is a saved model; give rows"),
        (["fit", "EMPTY", "-o", "m"], "has no array named scores"),
        (["fit", "TEXT", "-o", "m"], "it is not a zip archive"),
        (["fit", "OBJECTS", "-o", "m"], "y.astype(str)"),
    ],
)
def test_errors_say_what_to_do(model, tmp_path, monkeypatch, words, message) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "objects.npz", scores=KNOWN.posterior, y=np.array(["a", None] * 300))
    known = {
        "DATA": write(frame(KNOWN), tmp_path / "d.csv"),
        "MODEL": model,
        "EMPTY": "empty",
        "TEXT": "text.npz",
        "OBJECTS": "objects.npz",
    }
    output = call(*(known.get(word, word) for word in words), code=1)
    assert message in output
    assert len(output.strip().splitlines()) == 1


@pytest.mark.parametrize(("method", "rows"), [("lac", 8), ("lac", 2), ("shortlister", 60)])
def test_the_next_command_can_be_run(tmp_path, method, rows) -> None:
    """If the requested accuracy cannot be guaranteed, the next command asks for another one."""
    known = write(frame(KNOWN)[[*NAMES, "y"]][:rows], tmp_path / "known.csv")
    new = write(frame(NEW)[[*NAMES, "y"]], tmp_path / "new.csv")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        output = call("fit", known, "-o", tmp_path / "m", "--method", method, "--accuracy", 0.99)
    (text,) = [str(w.message) for w in caught if "cannot be guaranteed" in str(w.message)]
    words = output.split("Next: shortlist ")[1].split()
    at_most = text.split("At most ")[1].split()[0]
    assert words[words.index("--accuracy") + 1] == at_most
    words[2] = str(new)
    words[4] = str(tmp_path / "sets.csv")
    assert "sets, mean size" in call(*words)


def test_a_method_that_takes_no_accuracy(tmp_path) -> None:
    names = np.array(NAMES)
    model = sl.FixedSelector(sl.TopK([1])).fit(KNOWN.posterior, names[KNOWN.y], classes=NAMES)
    model.save(tmp_path / "m")
    new = write(frame(NEW)[[*NAMES, "y"]], tmp_path / "new.csv")
    output = call("predict", tmp_path / "m", new, "-o", tmp_path / "s.csv", "--accuracy", 0.9,
                  code=1)  # fmt: skip
    assert "accuracy = 0.9 was given, but this method takes no operating point" in output
    output = call("calibrate", tmp_path / "m", new, "-o", tmp_path / "n", code=1)
    assert "makes no guarantee and cannot be calibrated" in output
    assert "FixedSelector" not in output
