"""The commands fit, calibrate, predict, compare, inspect and export."""

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
import typer
from pyarrow import parquet
from typer.testing import CliRunner

import shortlist as sl
from shortlist._utils.atomic_write import atomic_write
from shortlist.cli import app
from shortlist.cli.methods import method_names
from shortlist.conformal import LAC, register_score
from shortlist.conformal import SCORES as REGISTERED
from shortlist.datasets import read_rows

NAMES = np.array(["ant", "bee", "cat", "dog", "eel"])
DATA = sl.datasets.gaussian(900, 0.7, n_classes=5, dimension=4)
KNOWN, NEW = DATA.split(600)
SCORES, NEW_SCORES = KNOWN.posterior.astype(np.float64), NEW.posterior.astype(np.float64)
QUICK = ["--max-epochs", "2"]
EVERY_FORMAT = pytest.mark.parametrize(
    "ending", [".npz", "", ".csv", ".parquet"], ids=["npz", "npy", "csv", "parquet"]
)


def run(*words: object, code: int = 0) -> str:
    """Run a command, and return what it prints."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def read_labels(path: Path) -> list[list[object]]:
    """Return the labels of all sets in a file."""
    if path.suffix == ".parquet":
        return [list(row) for row in pd.read_parquet(path).labels]
    if path.suffix == ".csv":
        return [json.loads(row) for row in pd.read_csv(path).labels]
    return [json.loads(line)["labels"] for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with the same rows in every format, and a model."""
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
    run("fit", folder / "known.npz", "-o", folder / "model", "--method", "lac")
    return folder


@pytest.fixture(scope="module")
def models(folder) -> Path:
    """Return a folder with a model of each kind: with one score, with networks, and a path."""
    for method in ("lac", "shortlister", "paper"):
        run("fit", folder / "known.npz", "-o", folder / "models" / method, "--method", method,
            *QUICK)  # fmt: skip
    return folder / "models"


# Every format


@EVERY_FORMAT
def test_rows_are_the_same_in_every_format(folder, ending):
    rows = read_rows(folder / f"new{ending}")
    np.testing.assert_allclose(np.asarray(rows.scores), NEW_SCORES)
    np.testing.assert_allclose(np.asarray(rows.features), NEW.x, rtol=1e-6)
    assert rows.y.tolist() == NAMES[NEW.y].tolist()
    assert rows.classes.tolist() == NAMES.tolist()


def test_a_folder_is_memory_mapped(folder):
    assert isinstance(read_rows(folder / "new").scores, np.memmap)


@pytest.mark.parametrize("output_ending", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("ending", [".npz", "", ".csv"], ids=["npz", "npy", "csv"])
def test_sets_are_those_of_python_in_every_format(folder, tmp_path, ending, output_ending):
    sets_file, data = tmp_path / f"sets{output_ending}", folder / f"new{ending}"
    output = run("predict", folder / "model", data, "-o", sets_file, "--accuracy", 0.9)
    model = sl.load(folder / "model")
    sets = model.predict_set(NEW_SCORES, accuracy=0.9)
    assert read_labels(sets_file) == sets.labels()
    accuracy = sets.accuracy(NAMES[NEW.y])
    assert f"300 sets, mean size {sets.mean_size:.3f}, accuracy {accuracy:.4f}" in output
    assert str(sets.guarantee) in output
    if output_ending == ".parquet":
        assert parquet.read_schema(sets_file).metadata[b"guarantee"].decode() == str(sets.guarantee)


def test_blocks_of_rows_give_the_same_file(folder, tmp_path, monkeypatch):
    whole, blocks = tmp_path / "whole.jsonl", tmp_path / "blocks.jsonl"
    run("predict", folder / "model", folder / "new", "-o", whole)
    monkeypatch.setattr("shortlist.datasets.row_files.BLOCK_ROWS", 37)
    run("predict", folder / "model", folder / "new", "-o", blocks)
    assert blocks.read_text() == whole.read_text()
    run("predict", folder / "model", folder / "new", "-o", tmp_path / "blocks.parquet")
    frame = pd.read_parquet(tmp_path / "blocks.parquet")
    assert frame.row.tolist() == list(range(300))


def test_standard_input_and_output(folder):
    text = (folder / "new.csv").read_text()
    command = [sys.executable, "-m", "shortlist", "predict", folder / "model", "-", "-o", "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["row"] for line in lines] == list(range(300))
    assert [line["labels"] for line in lines] == sl.load(folder / "model").predict_set(
        pd.DataFrame(NEW_SCORES, columns=NAMES)
    ).labels()
    assert "300 sets, mean size" in result.stderr


# Every method


@pytest.mark.parametrize("method", method_names())
def test_every_method_is_fitted_inspected_and_predicts(folder, tmp_path, method):
    options = QUICK if method in ("shortlister", "paper") else []
    output = run("fit", folder / "known.npz", "-o", tmp_path / "m", "--method", method, *options,
                 "--json")  # fmt: skip
    record = json.loads(output.splitlines()[-1])
    assert record["rows"] == 600
    calibration_rows = {"shortlister": 150, "plug-in": 150, "paper": None}
    assert record["calibration_rows"] == calibration_rows.get(method, 450)
    assert "classes: 5 (ant, bee, cat, dog, eel)" in run("inspect", tmp_path / "m")
    description = json.loads(run("inspect", tmp_path / "m", "--json"))
    assert description["library_version"] == sl.__version__
    run("predict", tmp_path / "m", folder / "new.npz", "-o", tmp_path / "sets.jsonl")
    assert all(read_labels(tmp_path / "sets.jsonl"))


def test_a_registered_score_is_a_method(folder, tmp_path):
    assert set(method_names()) == {"shortlister", "plug-in", "paper", *REGISTERED}

    class Squared(LAC):
        """LAC on squared probabilities."""

        name = "squared"

    register_score(Squared)
    try:
        output = run("fit", folder / "known.npz", "-o", tmp_path / "m", "--method", "squared")
        assert "squared on 600 rows" in output
        assert type(sl.load(tmp_path / "m").score_) is Squared
        output = run("fit", folder / "known.npz", "-o", tmp_path / "n", "--method", "none", code=1)
        assert all(repr(name) in output for name in method_names()), output
    finally:
        del REGISTERED["squared"]
    output = run("fit", folder / "known.npz", "-o", tmp_path / "n", "--method", "squared", code=1)
    assert "method must be one of" in output
    assert "got 'squared'" in output


def test_operating_points(folder, models, tmp_path):
    path = models / "shortlister"
    model = sl.load(path)
    for options, point in (
        (["--mean-size", 1.5], {"mean_size": 1.5}),
        (["--cost-weight", 0.1], {"cost_weight": 0.1}),
        (["--accuracy", 0.8, "--delta", 0.1], {"accuracy": 0.8, "delta": 0.1}),
        (["--accuracy", 0.7, "--by", "class"], {"accuracy": 0.7, "by": "class"}),
        ([], {}),
    ):
        sets = tmp_path / "sets.jsonl"
        run("predict", path, folder / "new.npz", "-o", sets, "--force", *options)
        assert read_labels(sets) == model.predict_set(NEW_SCORES, NEW.x, **point).labels()


def test_candidates(tmp_path):
    order = np.argsort(-SCORES, axis=1)[:, :3]
    kept = np.take_along_axis(SCORES, order, 1)
    np.savez(tmp_path / "known.npz", labels=order, scores=kept, y=KNOWN.y, classes=NAMES)
    frame = pd.DataFrame({
        "labels": [NAMES[row].tolist() for row in order], "scores": kept.tolist(),
        "y": NAMES[KNOWN.y],
    })  # fmt: skip
    frame.to_parquet(tmp_path / "known.parquet")
    run("fit", tmp_path / "known.npz", "-o", tmp_path / "m", "--method", "lac",
         "--score-type", "proba")  # fmt: skip
    for ending in ("npz", "parquet"):
        data, sets = tmp_path / f"known.{ending}", tmp_path / f"{ending}.jsonl"
        run("predict", tmp_path / "m", data, "-o", sets, "--accuracy", 0.8)
    assert read_labels(tmp_path / "npz.jsonl") == read_labels(tmp_path / "parquet.jsonl")
    assert set(read_labels(tmp_path / "npz.jsonl")[0]) <= set(NAMES.tolist())


@pytest.mark.filterwarnings("error")
def test_a_classifier_is_trained_for_a_feature_file(tmp_path):
    fit, select, test = DATA.split(300, 300)
    file = sl.datasets.FeatureFile(fit, select, test)
    sl.datasets.save(tmp_path / "f.npz", file)
    run("fit", tmp_path / "f.npz", "-o", tmp_path / "m", *QUICK)
    output = run("predict", tmp_path / "m", tmp_path / "f.npz", "-o", tmp_path / "s.csv")
    assert "300 sets" in output
    model = sl.load(tmp_path / "m")
    sets = model.predict_set(test.x)
    assert read_labels(tmp_path / "s.csv") == sets.labels()


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_the_rows_of_the_classifier_are_extra_rows(tmp_path, monkeypatch, command):
    fit, select, test = DATA.split(300, 300)
    sl.datasets.save(tmp_path / "f.npz", sl.datasets.FeatureFile(fit, select, test))
    calls, fit_shortlister = [], sl.Shortlister.fit

    def recording_fit(self, *rows, **options):
        calls.append(options)
        return fit_shortlister(self.set_params(effort="fast"), *rows, **options)

    monkeypatch.setattr(sl.Shortlister, "fit", recording_fit)
    if command == "fit":
        run("fit", tmp_path / "f.npz", "-o", tmp_path / "m", *QUICK)
        run("fit", tmp_path / "f.npz", "-o", tmp_path / "lac", "--method", "lac")
    else:
        output = run("compare", tmp_path / "f.npz", *QUICK, "--accuracies", "0.8")
        assert "225 rows to fit, 300 extra rows, 75 calibration rows, 300 test rows" in output
    (options,) = calls
    np.testing.assert_array_equal(options["extra_features"], fit.x.astype("float32"))
    np.testing.assert_array_equal(options["extra_y"], fit.classes[fit.y])


def test_a_feature_file_does_not_work_with_ray(tmp_path):
    sl.datasets.save(tmp_path / "f.npz", sl.datasets.FeatureFile(*DATA.split(100, 200)))
    for words in (["compare"], ["fit", "-o", tmp_path / "m"]):
        output = run(words[0], tmp_path / "f.npz", *words[1:], "--ray", "local", code=1)
        assert "feature file" in output


# calibrate


@EVERY_FORMAT
@pytest.mark.parametrize("method", ["lac", "shortlister", "paper"])
def test_calibrate_replaces_the_calibration_rows(folder, models, tmp_path, method, ending):
    model = models / method
    output = run("calibrate", model, folder / f"new{ending}", "-o", tmp_path / "n")
    assert f"{tmp_path / 'n'}: 300 calibration rows" in output
    assert f"Next: shortlist predict {tmp_path / 'n'} NEW{ending} " in output
    expected = sl.load(model).calibrate(NEW_SCORES, NAMES[NEW.y], NEW.x)
    calibrated = sl.load(tmp_path / "n")
    sets = calibrated.predict_set(NEW_SCORES, NEW.x, accuracy=0.8)
    assert sets.labels() == expected.predict_set(NEW_SCORES, NEW.x, accuracy=0.8).labels()
    assert "300 " in str(sets.guarantee)
    if method != "paper":  # Its fit holds out no rows.
        before = sl.load(model).predict_set(NEW_SCORES, NEW.x, accuracy=0.8)
        assert before.labels() != sets.labels()


def test_a_model_is_replaced_by_calibrate_only_with_force(folder, tmp_path):
    run("fit", folder / "known.npz", "-o", tmp_path / "m", "--method", "lac")
    words = [tmp_path / "m", folder / "new.npz", "-o", tmp_path / "m"]
    assert "use --force" in run("calibrate", *words, code=1)
    record = json.loads(run("calibrate", *words, "--force", "--json"))
    assert (record["model"], record["calibration_rows"]) == (str(tmp_path / "m"), 300)
    assert "300 calibration rows" in run("inspect", tmp_path / "m")


def test_a_model_with_its_classifier_is_calibrated_on_a_feature_file(tmp_path):
    fit, select, other, test = DATA.split(250, 250, 250)
    sl.datasets.save(tmp_path / "f.npz", sl.datasets.FeatureFile(fit, select, test))
    sl.datasets.save(tmp_path / "g.npz", sl.datasets.FeatureFile(fit, other, test))
    run("fit", tmp_path / "f.npz", "-o", tmp_path / "m", "--method", "lac")
    run("calibrate", tmp_path / "m", tmp_path / "g.npz", "-o", tmp_path / "n")
    expected = sl.load(tmp_path / "m").calibrate(other.x, other.y)
    sets = sl.load(tmp_path / "n").predict_set(test.x, accuracy=0.9)
    assert sets == expected.predict_set(test.x, accuracy=0.9)


def test_a_model_without_calibration_rows_guarantees_after_calibrate(folder, tmp_path):
    known, new = folder / "known.npz", folder / "new.npz"
    for method in ("shortlister", "lac", "plug-in", "paper"):
        old, now = tmp_path / method, tmp_path / f"{method} now"
        run("fit", known, "-o", old, "--method", method, "--calibration", 0, *QUICK)
        assert "not calibrated" in run("inspect", old)
        output = run("calibrate", old, new, "-o", now)
        assert output.strip().endswith("--accuracy 0.95")
        run("predict", now, new, "-o", tmp_path / f"{method}.csv", "--accuracy", 0.8)
    output = run("predict", tmp_path / "plug-in now", new, "-o", tmp_path / "s.csv")
    assert "accuracy >= 0.95 guaranteed" in output


def test_warnings_of_fit_and_calibrate(folder, tmp_path):
    few = tmp_path / "few.npz"
    np.savez(few, scores=NEW_SCORES[:5], y=NEW.y[:5], features=NEW.x[:5], classes=NAMES)
    with pytest.warns(UserWarning, match="accuracy = 0.95"):
        run("calibrate", folder / "model", few, "-o", tmp_path / "n")
    frame = pd.read_csv(folder / "known.csv").drop(columns=[f"x_{j}" for j in range(4)])
    frame.assign(weight=1.5).to_csv(tmp_path / "more.csv", index=False)
    with pytest.warns(UserWarning, match="no row has the label 'weight', which is read as a cl"):
        run("fit", tmp_path / "more.csv", "-o", tmp_path / "m", "--method", "topk")


def test_errors_of_calibrate(folder, tmp_path):
    where = ["-o", tmp_path / "n"]
    sl.FixedSelector().fit(SCORES, KNOWN.y).save(tmp_path / "fixed")
    output = run("calibrate", tmp_path / "fixed", folder / "new.npz", *where, code=1)
    assert "fixed makes no guarantee and cannot be calibrated" in output
    np.savez(tmp_path / "blind.npz", scores=NEW_SCORES, classes=NAMES)
    output = run("calibrate", folder / "model", tmp_path / "blind.npz", *where, code=1)
    assert "blind.npz has no labels" in output
    fit, select, test = DATA.split(300, 300)
    sl.datasets.save(tmp_path / "f.npz", sl.datasets.FeatureFile(fit, select, test))
    output = run("calibrate", folder / "model", tmp_path / "f.npz", *where, code=1)
    assert "has no scores, which the model takes" in output
    run("fit", tmp_path / "f.npz", "-o", tmp_path / "c", "--method", "lac")
    output = run("calibrate", tmp_path / "c", tmp_path / "blind.npz", *where, code=1)
    assert "blind.npz has no features" in output
    assert not (tmp_path / "n").exists()


# compare


def test_compare_prints_a_table_and_writes_a_report(folder, tmp_path):
    table_file, page = tmp_path / "table.csv", tmp_path / "report.html"
    output = run("compare", folder / "known.npz", "--test", folder / "new.npz", *QUICK,
                 "--accuracies", "0.8,0.9", "-o", table_file, "--report", page)  # fmt: skip
    assert "Shortlister" in output
    assert "300 test rows" in output
    table = pd.read_csv(table_file)
    assert sorted(table.accuracy.unique()) == [0.8, 0.9]
    assert "LAC" in table.method.to_list()
    text = page.read_text()
    assert text.startswith("<!doctype html>") or "<html" in text[:200]
    output = run("compare", folder / "known.npz", *QUICK, "--accuracies", "0.8", "--json")
    rows = json.loads(output.splitlines()[-1])
    assert {row["accuracy"] for row in rows} == {0.8}
    again = run("compare", folder / "known.npz", "--report", page, code=1)
    assert "--force" in again


# export


def test_the_exported_graph_predicts_the_same_sets(folder, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = tmp_path / "model.onnx"
    output = run("export", folder / "model", "-o", graph, "--accuracy", 0.9)
    assert "accuracy = 0.9" in output
    session = onnxruntime.InferenceSession(graph)
    labels, sizes, _ = session.run(None, {"scores": NEW_SCORES.astype(np.float32)})
    sets = sl.load(folder / "model").predict_set(NEW_SCORES.astype(np.float32), accuracy=0.9)
    assert [NAMES[row[:n]].tolist() for row, n in zip(labels, sizes, strict=True)] == sets.labels()
    fixed = graph.read_bytes()
    assert "--force" in run("export", folder / "model", "-o", graph, code=1)
    assert graph.read_bytes() == fixed
    run("export", folder / "model", "-o", graph, "--force")
    assert graph.read_bytes() != fixed  # The operating point is an input of the new graph.


# Errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "nothing.npz", "-o", "m"], "there is no file or folder at 'nothing.npz'"),
        (["fit", "{known}.npz", "-o", "{model}"], "--force"),
        (["fit", "{known}.npz", "-o", "m", "--method", "magic"], "method"),
        (["predict", "nowhere", "{new}.npz", "-o", "s.csv"], "there is no model at"),
        (["predict", "{model}", "{new}.npz", "-o", "s.xlsx"], ".parquet, .csv, .jsonl"),
        (["predict", "{model}", "{new}.npz", "-o", "s.csv", "--accuracy", "2"], "accuracy"),
        (["predict", "{model}", "{new}.npz", "-o", "s.csv", "--accuracy", "0.9",
          "--mean-size", "2"], "choose only one"),
        (["inspect", "{known}"], "is not a model"),
        (["compare", "{known}.npz", "--test", "nope.npz"], "nope.npz"),
        (["fit", "{known}.npz", "-o", "m", "--workers", "2"], "--workers needs a cluster"),
        (["predict", "{model}", "{new}.npz", "-o", "s.csv", "--keep", "id"], "has no column 'id'"),
        (["calibrate", "{model}", "{new}.npz", "-o", "m", "--threads", "2"], "add --ray ADDRESS"),
        (["compare", "{known}.npz", "--on-bad-rows", "drop"], "must be one of 'raise', 'skip'"),
        (["compare", "{tables}"], "holds Parquet files (1); give one of them, such as a.parquet"),
    ],
)  # fmt: skip
def test_errors_are_printed_on_one_line(folder, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    names = {n: str(folder / n) for n in ("known", "new", "model", "tables")}
    output = run(*(word.format(**names) for word in words), code=1)
    assert message in output
    assert len(output.strip().splitlines()) == 1
    assert output.startswith("shortlist: ")
    assert list(tmp_path.iterdir()) == []


def test_warnings_are_printed_on_one_line(tmp_path):
    np.savez(tmp_path / "worst.npz", scores=SCORES, y=SCORES.argmin(axis=1))
    words = ["fit", tmp_path / "worst.npz", "-o", tmp_path / "m", "--method", "lac"]
    program = [sys.executable, "-m", "shortlist"]  # In this process, pytest captures warnings.
    result = subprocess.run(
        [*program, *map(str, words)], capture_output=True, text=True, check=True
    )
    (line,) = result.stderr.splitlines()
    assert line.startswith("shortlist: warning: the scores carry almost no information")


def test_errors_name_the_path_that_the_user_gave(tmp_path):
    path = tmp_path / "sets.csv"

    def write() -> None:
        with atomic_write(path) as temporary:
            temporary.symlink_to(tmp_path)
            temporary.write_text("nothing")

    with pytest.raises(IsADirectoryError) as error:
        write()
    assert error.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


def test_debug_raises_the_error(tmp_path):
    result = CliRunner().invoke(app, ["--debug", "inspect", str(tmp_path / "nowhere")])
    assert isinstance(result.exception, FileNotFoundError)


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"PK\x03\x04 not a zip", "d.npz", "not a readable .npz"),
        (b"", "d.npz", "not a readable .npz"),
        (b"PAR1 not parquet", "d.parquet", "not a readable Parquet"),
        (b"\xff\xfe\x00\x01", "d.csv", "not encoded in UTF-8"),
        (b"", "d.csv", "has no rows"),
        (b"y,a,b\n", "d.csv", "has no rows"),
        (b"y,a,b\n0,cat,0.5\n", "d.csv", "'a' is not"),
        (b"y,a\n0,0.5\n", "d.csv", "there are 1"),
        (b'y,scores,labels\n0,"[0.1",x\n', "d.csv", "scores of row 0 is not a list"),
        (b"text", "d.txt", "cannot be read"),
    ],
)
def test_damaged_files_raise_errors_on_one_line(tmp_path, content, name, message):
    (tmp_path / name).write_bytes(content)
    output = run("fit", tmp_path / name, "-o", tmp_path / "m", code=1)
    assert message in output
    assert len(output.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_fuzzed_data_never_crash(folder, tmp_path):
    """Damaged files of every format are read, or raise an error on one line."""
    rng = random.Random(0)
    for i in range(60):
        source = folder / rng.choice(["new.npz", "new.csv", "new.parquet"])
        data = bytearray(source.read_bytes())
        at = rng.randrange(len(data))
        if i % 3 == 0:
            del data[at:]
        else:
            data[at] ^= 1 << rng.randrange(8)
        broken = tmp_path / f"{i}{source.suffix}"
        broken.write_bytes(data)
        sets = tmp_path / f"{i}.jsonl"
        words = ["predict", folder / "model", broken, "-o", sets]
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code in (0, 1), result.exception
        assert (result.exit_code == 0) == sets.exists()
        if result.exit_code:
            assert len(result.output.strip().splitlines()) == 1, result.output


def test_pickled_objects_in_arrays_are_not_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'owned'}",)

    np.savez(tmp_path / "d.npz", scores=np.array([[Evil(), 1]], dtype=object), y=[0])
    run("fit", tmp_path / "d.npz", "-o", tmp_path / "m", code=1)
    assert not (tmp_path / "owned").exists()


# Killed processes


@pytest.mark.parametrize("times", [1, pytest.param(50, marks=pytest.mark.study)])
def test_a_killed_fit_leaves_a_complete_model(folder, tmp_path, times):
    rng = random.Random(2)
    model = tmp_path / "model"
    words = ["fit", str(folder / "known.npz"), "-o", str(model), *QUICK, "--force"]
    run(*words)
    code = (
        "import sys\nfrom shortlist.cli import app\nimport shortlist.io.models\n"
        "print('ready', flush=True)\n"
        "for seed in range(1000):\n"
        "    app([*sys.argv[1:], '--seed', str(seed)], standalone_mode=False)\n"
    )
    for _ in range(times):
        process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(rng.uniform(0.0, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        sets = tmp_path / f"{rng.random()}.csv"
        run("predict", model, folder / "new.npz", "-o", sets)
        assert len(pd.read_csv(sets)) == 300


@pytest.mark.parametrize("times", [1, pytest.param(50, marks=pytest.mark.study)])
def test_a_killed_predict_leaves_a_complete_file(folder, tmp_path, times):
    rng = random.Random(0)
    sets = tmp_path / "sets.csv"
    code = (
        "import sys\nfrom shortlist.cli import app\n"
        "while True:\n    app(sys.argv[1:], standalone_mode=False)\n"
    )
    words = ["predict", str(folder / "model"), str(folder / "new.npz"), "-o", str(sets), "--force"]
    for _ in range(times):
        process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE)
        process.stdout.readline()  # The first prediction is finished, and the next one has begun.
        time.sleep(rng.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert len(pd.read_csv(sets)) == 300


def _commands() -> list[list[str]]:
    """Return the arguments of the program and of each command that show the help."""
    names = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return [["--help"], *([name, "--help"] for name in names)]


@pytest.mark.parametrize("arguments", _commands(), ids=" ".join)
def test_the_help_shows_no_type_for_flags(arguments: list[str]) -> None:
    output = CliRunner().invoke(app, arguments).output
    assert "--help" in output
    assert "bool" not in output.lower()
