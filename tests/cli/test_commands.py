"""fit, predict, compare, inspect and export, as a person types them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import shortlist as sl
from shortlist._utils.atomic_write import atomic_write
from shortlist.cli import app
from shortlist.datasets import read_rows

NAMES = np.array(["ant", "bee", "cat", "dog", "eel"])
DATA = sl.datasets.gaussian(900, 0.7, n_classes=5, dimension=4)
KNOWN, NEW = DATA.split(600)
SCORES, NEW_SCORES = KNOWN.posterior.astype(np.float64), NEW.posterior.astype(np.float64)
QUICK = ["--max-epochs", "2"]


def call(*words: object, code: int = 0, **more: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], **more)
    assert done.exit_code == code, done.output
    return done.output


def lists(path: Path) -> list[list[object]]:
    if path.suffix == ".parquet":
        return [list(row) for row in pd.read_parquet(path).labels]
    if path.suffix == ".csv":
        return [json.loads(row) for row in pd.read_csv(path).labels]
    return [json.loads(line)["labels"] for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The same rows in every format, and a model."""
    folder = tmp_path_factory.mktemp("rows")
    parts = {"known": (SCORES, KNOWN), "new": (NEW_SCORES, NEW)}
    for name, (scores, part) in parts.items():
        np.savez(folder / f"{name}.npz", scores=scores, y=part.y, features=part.x, classes=NAMES)
        (folder / name).mkdir()
        for key, value in {"scores": scores, "y": part.y, "features": part.x,
                           "classes": NAMES}.items():  # fmt: skip
            np.save(folder / name / f"{key}.npy", value)
        frame = pd.DataFrame(scores, columns=NAMES)
        for j in range(4):
            frame[f"x_{j}"] = part.x[:, j].astype(np.float64)
        frame["y"] = NAMES[part.y]
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.to_parquet(folder / f"{name}.parquet")
    (folder / "tables").mkdir()
    frame.to_parquet(folder / "tables" / "a.parquet")
    call("fit", folder / "known.npz", "-o", folder / "model", "--method", "lac")
    return folder


# Every format


@pytest.mark.parametrize("form", [".npz", "", ".csv", ".parquet"], ids=["npz", "npy", "csv", "pq"])
def test_rows_are_the_same_in_every_format(folder, form):
    rows = read_rows(folder / f"new{form}")
    np.testing.assert_allclose(np.asarray(rows.scores), NEW_SCORES)
    np.testing.assert_allclose(np.asarray(rows.features), NEW.x, rtol=1e-6)
    assert rows.y.tolist() == NAMES[NEW.y].tolist()
    assert rows.classes.tolist() == NAMES.tolist()


def test_a_folder_is_mapped_not_read(folder):
    assert isinstance(read_rows(folder / "new").scores, np.memmap)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("form", [".npz", "", ".csv"], ids=["npz", "npy", "csv"])
def test_sets_are_those_of_python_in_every_format(folder, tmp_path, ending, form):
    out = tmp_path / f"sets{ending}"
    printed = call("predict", folder / "model", folder / f"new{form}", "-o", out,
                   "--accuracy", 0.9)  # fmt: skip
    model = sl.load(folder / "model")
    sets = model.predict_set(NEW_SCORES, accuracy=0.9)
    assert lists(out) == sets.labels()
    accuracy = sets.accuracy(NAMES[NEW.y])
    assert f"300 sets, mean size {sets.mean_size:.3f}, accuracy {accuracy:.4f}" in printed
    assert str(sets.guarantee) in printed
    if ending == ".parquet":
        assert parquet.read_schema(out).metadata[b"guarantee"].decode() == str(sets.guarantee)


def test_blocks_of_rows_give_the_same_file(folder, tmp_path, monkeypatch):
    whole, blocks = tmp_path / "whole.jsonl", tmp_path / "blocks.jsonl"
    call("predict", folder / "model", folder / "new", "-o", whole)
    monkeypatch.setattr("shortlist.datasets.row_files.BLOCK_ROWS", 37)
    call("predict", folder / "model", folder / "new", "-o", blocks)
    assert blocks.read_text() == whole.read_text()
    call("predict", folder / "model", folder / "new", "-o", tmp_path / "blocks.parquet")
    frame = pd.read_parquet(tmp_path / "blocks.parquet")
    assert frame.row.tolist() == list(range(300))


def test_standard_streams(folder):
    text = (folder / "new.csv").read_text()
    command = [sys.executable, "-m", "shortlist.cli", "predict", folder / "model", "-", "-o", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["row"] for line in lines] == list(range(300))
    assert [line["labels"] for line in lines] == sl.load(folder / "model").predict_set(
        pd.DataFrame(NEW_SCORES, columns=NAMES)
    ).labels()
    assert "300 sets, mean size" in done.stderr


# Every method


@pytest.mark.parametrize(
    "method", ["shortlister", "lac", "aps", "raps", "saps", "topk", "margin", "plug-in", "paper"]
)
def test_every_method_is_fitted_inspected_and_predicts(folder, tmp_path, method):
    extra = QUICK if method in ("shortlister", "paper") else []
    printed = call("fit", folder / "known.npz", "-o", tmp_path / "m", "--method", method, *extra,
                   "--json")  # fmt: skip
    found = json.loads(printed.splitlines()[-1])
    assert found["rows"] == 600
    kept = {"shortlister": 150, "plug-in": 150, "paper": None}
    assert found["calibration_rows"] == kept.get(method, 450)
    about = call("inspect", tmp_path / "m")
    assert "classes: 5 (ant, bee, cat, dog, eel)" in about
    told = json.loads(call("inspect", tmp_path / "m", "--json"))
    assert told["library_version"] == sl.__version__
    call("predict", tmp_path / "m", folder / "new.npz", "-o", tmp_path / "sets.jsonl")
    assert all(lists(tmp_path / "sets.jsonl"))


def test_operating_points(folder, tmp_path):
    call("fit", folder / "known.npz", "-o", tmp_path / "m", *QUICK)
    model = sl.load(tmp_path / "m")
    for options, point in (
        (["--mean-size", 1.5], {"mean_size": 1.5}),
        (["--cost-weight", 0.1], {"cost_weight": 0.1}),
        (["--accuracy", 0.8, "--delta", 0.1], {"accuracy": 0.8, "delta": 0.1}),
        (["--accuracy", 0.7, "--by", "class"], {"accuracy": 0.7, "by": "class"}),
        ([], {}),
    ):
        out = tmp_path / "sets.jsonl"
        call("predict", tmp_path / "m", folder / "new.npz", "-o", out, "--force", *options)
        assert lists(out) == model.predict_set(NEW_SCORES, NEW.x, **point).labels()


def test_candidates(tmp_path):
    order = np.argsort(-SCORES, axis=1)[:, :3]
    kept = np.take_along_axis(SCORES, order, 1)
    np.savez(tmp_path / "known.npz", labels=order, scores=kept, y=KNOWN.y, classes=NAMES)
    frame = pd.DataFrame({
        "labels": [NAMES[row].tolist() for row in order], "scores": kept.tolist(),
        "y": NAMES[KNOWN.y],
    })  # fmt: skip
    frame.to_parquet(tmp_path / "known.parquet")
    call("fit", tmp_path / "known.npz", "-o", tmp_path / "m", "--method", "lac",
         "--score-type", "proba")  # fmt: skip
    for form in ("npz", "parquet"):
        out = tmp_path / f"{form}.jsonl"
        call("predict", tmp_path / "m", tmp_path / f"known.{form}", "-o", out, "--accuracy", 0.8)
    assert lists(tmp_path / "npz.jsonl") == lists(tmp_path / "parquet.jsonl")
    assert set(lists(tmp_path / "npz.jsonl")[0]) <= set(NAMES.tolist())


@pytest.mark.filterwarnings("error")
def test_a_feature_file_brings_its_own_classifier(tmp_path):
    fit, select, test = DATA.split(300, 300)
    file = sl.datasets.FeatureFile(fit, select, test)
    sl.datasets.save(tmp_path / "f.npz", file)
    call("fit", tmp_path / "f.npz", "-o", tmp_path / "m", *QUICK)
    printed = call("predict", tmp_path / "m", tmp_path / "f.npz", "-o", tmp_path / "s.csv")
    assert "300 sets" in printed
    model = sl.load(tmp_path / "m")
    sets = model.predict_set(test.x)
    assert lists(tmp_path / "s.csv") == sets.labels()


# calibrate


@pytest.mark.parametrize("form", [".npz", "", ".csv", ".parquet"], ids=["npz", "npy", "csv", "pq"])
@pytest.mark.parametrize("method", ["lac", "shortlister", "paper"])
def test_guarantees_are_made_by_other_rows(folder, tmp_path, method, form):
    call("fit", folder / "known.npz", "-o", tmp_path / "m", "--method", method, *QUICK)
    said = call("calibrate", tmp_path / "m", folder / f"new{form}", "-o", tmp_path / "n")
    assert f"{tmp_path / 'n'}: 300 calibration rows" in said
    assert f"Next: shortlist predict {tmp_path / 'n'} NEW{form} " in said
    expected = sl.load(tmp_path / "m").calibrate(NEW_SCORES, NAMES[NEW.y], NEW.x)
    found = sl.load(tmp_path / "n")
    sets = found.predict_set(NEW_SCORES, NEW.x, accuracy=0.8)
    assert sets.labels() == expected.predict_set(NEW_SCORES, NEW.x, accuracy=0.8).labels()
    assert "300 " in str(sets.guarantee)
    if method != "paper":  # whose fit kept no rows
        before = sl.load(tmp_path / "m").predict_set(NEW_SCORES, NEW.x, accuracy=0.8)
        assert before.labels() != sets.labels()


def test_a_model_is_calibrated_where_it_lies_only_if_told(folder, tmp_path):
    call("fit", folder / "known.npz", "-o", tmp_path / "m", "--method", "lac")
    where = [tmp_path / "m", folder / "new.npz", "-o", tmp_path / "m"]
    assert "say --force" in call("calibrate", *where, code=1)
    told = json.loads(call("calibrate", *where, "--force", "--json"))
    assert (told["model"], told["calibration_rows"]) == (str(tmp_path / "m"), 300)
    assert "300 calibration rows" in call("inspect", tmp_path / "m")


def test_a_feature_file_calibrates_its_classifier(tmp_path):
    fit, select, other, test = DATA.split(250, 250, 250)
    sl.datasets.save(tmp_path / "f.npz", sl.datasets.FeatureFile(fit, select, test))
    sl.datasets.save(tmp_path / "g.npz", sl.datasets.FeatureFile(fit, other, test))
    call("fit", tmp_path / "f.npz", "-o", tmp_path / "m", "--method", "lac")
    call("calibrate", tmp_path / "m", tmp_path / "g.npz", "-o", tmp_path / "n")
    expected = sl.load(tmp_path / "m").calibrate(other.x, other.y)
    sets = sl.load(tmp_path / "n").predict_set(test.x, accuracy=0.9)
    assert sets == expected.predict_set(test.x, accuracy=0.9)


def test_a_fit_that_keeps_no_rows_guarantees_after_calibrate(folder, tmp_path):
    known, new = folder / "known.npz", folder / "new.npz"
    for method in ("shortlister", "lac", "plug-in", "paper"):
        old, now = tmp_path / method, tmp_path / f"{method} now"
        call("fit", known, "-o", old, "--method", method, "--calibration", 0, *QUICK)
        assert "not calibrated" in call("inspect", old)
        said = call("calibrate", old, new, "-o", now)
        assert said.strip().endswith("--accuracy 0.95")
        call("predict", now, new, "-o", tmp_path / f"{method}.csv", "--accuracy", 0.8)
    said = call("predict", tmp_path / "plug-in now", new, "-o", tmp_path / "s.csv")
    assert "accuracy >= 0.95 guaranteed" in said  # also where lambda could choose


def test_what_a_fit_warns_of(folder, tmp_path):
    few = tmp_path / "few.npz"
    np.savez(few, scores=NEW_SCORES[:5], y=NEW.y[:5], features=NEW.x[:5], classes=NAMES)
    with pytest.warns(UserWarning, match="accuracy = 0.95"):
        call("calibrate", folder / "model", few, "-o", tmp_path / "n")
    frame = pd.read_csv(folder / "known.csv").drop(columns=[f"x_{j}" for j in range(4)])
    frame.assign(weight=1.5).to_csv(tmp_path / "more.csv", index=False)
    with pytest.warns(UserWarning, match="no row has the label 'weight', which is read as a cl"):
        call("fit", tmp_path / "more.csv", "-o", tmp_path / "m", "--method", "topk")


def test_what_cannot_be_calibrated(folder, tmp_path):
    where = ["-o", tmp_path / "n"]
    sl.FixedSelector().fit(SCORES, KNOWN.y).save(tmp_path / "fixed")
    said = call("calibrate", tmp_path / "fixed", folder / "new.npz", *where, code=1)
    assert "a FixedSelector makes no guarantees" in said
    np.savez(tmp_path / "blind.npz", scores=NEW_SCORES, classes=NAMES)
    said = call("calibrate", folder / "model", tmp_path / "blind.npz", *where, code=1)
    assert "blind.npz has no labels" in said
    fit, select, test = DATA.split(300, 300)
    sl.datasets.save(tmp_path / "f.npz", sl.datasets.FeatureFile(fit, select, test))
    said = call("calibrate", folder / "model", tmp_path / "f.npz", *where, code=1)
    assert "the model takes scores" in said
    call("fit", tmp_path / "f.npz", "-o", tmp_path / "c", "--method", "lac")
    said = call("calibrate", tmp_path / "c", tmp_path / "blind.npz", *where, code=1)
    assert "blind.npz has no features" in said
    assert not (tmp_path / "n").exists()


# compare


def test_compare_prints_writes_and_reports(folder, tmp_path):
    out, page = tmp_path / "table.csv", tmp_path / "report.html"
    printed = call("compare", folder / "known.npz", "--test", folder / "new.npz", *QUICK,
                   "--accuracies", "0.8,0.9", "-o", out, "--report", page)  # fmt: skip
    assert "Shortlister" in printed
    assert "300 test rows" in printed
    table = pd.read_csv(out)
    assert sorted(table.accuracy.unique()) == [0.8, 0.9]
    assert "LAC" in table.method.to_list()
    text = page.read_text()
    assert text.startswith("<!doctype html>") or "<html" in text[:200]
    told = call("compare", folder / "known.npz", *QUICK, "--accuracies", "0.8", "--json")
    rows = json.loads(told.splitlines()[-1])
    assert {row["accuracy"] for row in rows} == {0.8}
    again = call("compare", folder / "known.npz", "--report", page, code=1)
    assert "--force" in again


# export


def test_export_runs_elsewhere(folder, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    out = tmp_path / "model.onnx"
    printed = call("export", folder / "model", "-o", out, "--accuracy", 0.9)
    assert "accuracy = 0.9" in printed
    session = onnxruntime.InferenceSession(out)
    labels, sizes, _ = session.run(None, {"scores": NEW_SCORES.astype(np.float32)})
    sets = sl.load(folder / "model").predict_set(NEW_SCORES.astype(np.float32), accuracy=0.9)
    assert [NAMES[row[:n]].tolist() for row, n in zip(labels, sizes, strict=True)] == sets.labels()
    before = out.read_bytes()
    assert "--force" in call("export", folder / "model", "-o", out, code=1)
    assert out.read_bytes() == before
    call("export", folder / "model", "-o", out, "--force")
    assert out.read_bytes() != before  # now the operating point is an input


# What goes wrong is said in one line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit", "nothing.npz", "-o", "m"], "there is no file or folder at 'nothing.npz'"),
        (["fit", "{known}.npz", "-o", "{model}"], "--force"),
        (["fit", "{known}.npz", "-o", "m", "--method", "magic"], "method"),
        (["predict", "nowhere", "{new}.npz", "-o", "s.csv"], "there is no model at"),
        (["predict", "{model}", "{new}.npz", "-o", "s.xlsx"], ".parquet, .csv, .jsonl"),
        (["predict", "{model}", "{new}.npz", "-o", "s.csv", "--accuracy", "2"], "accuracy"),
        (["predict", "{model}", "{new}.npz", "-o", "s.csv", "--accuracy", "0.9",
          "--mean-size", "2"], "only one can be chosen"),
        (["inspect", "{known}"], "is not a model"),
        (["compare", "{known}.npz", "--test", "nope.npz"], "nope.npz"),
        (["fit", "{known}.npz", "-o", "m", "--workers", "2"], "--workers is for work on a cluster"),
        (["predict", "{model}", "{new}.npz", "-o", "s.csv", "--keep", "id"], "--keep is for work"),
        (["calibrate", "{model}", "{new}.npz", "-o", "m", "--threads", "2"], "add --ray ADDRESS"),
        (["compare", "{known}.npz", "--on-bad-rows", "skip"], "--on-bad-rows is for work"),
        (["compare", "{tables}"], "holds Parquet files (1); give one of them, such as a.parquet"),
    ],
)  # fmt: skip
def test_one_line_errors(folder, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    names = {n: str(folder / n) for n in ("known", "new", "model", "tables")}
    done = CliRunner().invoke(app, [word.format(**names) for word in words])
    assert done.exit_code == 1
    assert said in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert done.output.startswith("shortlist: ")
    assert list(tmp_path.iterdir()) == []


def test_warnings_are_lines_too(tmp_path):
    np.savez(tmp_path / "worst.npz", scores=SCORES, y=SCORES.argmin(axis=1))
    words = ["fit", tmp_path / "worst.npz", "-o", tmp_path / "m", "--method", "lac"]
    program = [sys.executable, "-m", "shortlist.cli"]  # here pytest would have the warnings
    done = subprocess.run([*program, *map(str, words)], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("shortlist: warning: the scores carry almost no information")


def test_a_path_that_cannot_be_written_is_named_as_it_was_said(tmp_path):
    path = tmp_path / "sets.csv"

    def write() -> None:
        with atomic_write(path) as aside:
            aside.symlink_to(tmp_path)
            aside.write_text("nothing")

    with pytest.raises(IsADirectoryError) as error:
        write()
    assert error.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


def test_a_traceback_only_if_asked_for(tmp_path):
    done = CliRunner().invoke(app, ["--debug", "inspect", str(tmp_path / "nowhere")])
    assert isinstance(done.exception, FileNotFoundError)


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (b"PK\x03\x04 not a zip", "d.npz", "not a readable .npz"),
        (b"", "d.npz", "not a readable .npz"),
        (b"PAR1 not parquet", "d.parquet", "not a readable Parquet"),
        (b"\xff\xfe\x00\x01", "d.csv", "not a readable CSV"),
        (b"", "d.csv", "not a readable CSV"),
        (b"y,a,b\n", "d.csv", "has no rows"),
        (b"y,a,b\n0,cat,0.5\n", "d.csv", "'a' is not"),
        (b"y,a\n0,0.5\n", "d.csv", "there are 1 of them"),
        (b'y,scores,labels\n0,"[0.1",x\n', "d.csv", "scores of row 0 is not a list"),
        (b"text", "d.txt", "cannot be read"),
    ],
)
def test_damaged_data_are_refused_in_one_line(tmp_path, content, name, said):
    (tmp_path / name).write_bytes(content)
    printed = call("fit", tmp_path / name, "-o", tmp_path / "m", code=1)
    assert said in printed
    assert len(printed.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_fuzzed_data_never_crash(folder, tmp_path):
    """Bytes flipped and cut in files of every format: read, or refused in one line."""
    rng = random.Random(0)
    for i in range(100):
        source = folder / rng.choice(["new.npz", "new.csv", "new.parquet"])
        data = bytearray(source.read_bytes())
        at = rng.randrange(len(data))
        if i % 3 == 0:
            del data[at:]
        else:
            data[at] ^= 1 << rng.randrange(8)
        broken = tmp_path / f"{i}{source.suffix}"
        broken.write_bytes(data)
        out = tmp_path / f"{i}.jsonl"
        done = CliRunner().invoke(
            app, ["predict", str(folder / "model"), str(broken), "-o", str(out)]
        )
        assert done.exit_code in (0, 1), done.exception
        assert (done.exit_code == 0) == out.exists()
        if done.exit_code:
            assert len(done.output.strip().splitlines()) == 1, done.output


def test_pickles_in_arrays_are_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'owned'}",)

    np.savez(tmp_path / "d.npz", scores=np.array([[Evil(), 1]], dtype=object), y=[0])
    call("fit", tmp_path / "d.npz", "-o", tmp_path / "m", code=1)
    assert not (tmp_path / "owned").exists()


# Killed


@pytest.mark.parametrize("times", [2, pytest.param(50, marks=pytest.mark.study)])
def test_a_fit_that_is_killed_leaves_the_old_model_or_the_new_one(folder, tmp_path, times):
    rng = random.Random(2)
    out = tmp_path / "model"
    words = ["fit", str(folder / "known.npz"), "-o", str(out), *QUICK, "--force"]
    call(*words)
    code = (
        "import sys\nfrom shortlist.cli import app\nimport shortlist.io.models\n"
        "print('ready', flush=True)\n"
        "for seed in range(1000):\n"
        "    app([*sys.argv[1:], '--seed', str(seed)], standalone_mode=False)\n"
    )
    for _ in range(times):
        process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(rng.uniform(0.0, 2.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = tmp_path / f"{rng.random()}.csv"
        call("predict", out, folder / "new.npz", "-o", found)
        assert len(pd.read_csv(found)) == 300


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.study)])
def test_a_predict_that_is_killed_leaves_the_old_file_or_the_new_one(folder, tmp_path, times):
    rng = random.Random(0)
    out = tmp_path / "sets.csv"
    code = (
        "import sys\nfrom shortlist.cli import app\nprint('ready', flush=True)\n"
        "while True:\n    app(sys.argv[1:], standalone_mode=False)\n"
    )
    words = ["predict", str(folder / "model"), str(folder / "new.npz"), "-o", str(out), "--force"]
    for _ in range(times):
        process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE)
        process.stdout.readline()
        until = time.monotonic() + 60
        while not out.exists() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert len(pd.read_csv(out)) == 300
