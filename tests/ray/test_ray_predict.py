"""Sets and calibrations on a cluster of two workers: those of one process, whatever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.base import clone
from tables import CLASSES, SCORES, X, Y, candidates, lists, workers, write

import shortlist as sl
from shortlist._utils import progress as _progress
from shortlist.predictors import conformal as _conformal
from shortlist.ray import cluster as _cluster

pytestmark = pytest.mark.usefixtures("cluster")
APS = sl.SplitConformal("aps", temperature=None, randomized=True, calibration=None)


def fitted(model=APS, rows: int = 2000):
    return clone(model).fit(SCORES[:rows], Y[:rows])


def labels_of(folder: Path) -> list[list[int]]:
    """All sets, in the order of the rows."""
    table = parquet.read_table(folder)
    return table.sort_by([("file", "ascending"), ("row", "ascending")])["labels"].to_pylist()


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_calibration_is_that_of_one_process(dense: Path, score) -> None:
    model = sl.SplitConformal(score, temperature=None, calibration=None)
    here, there = fitted(model).calibrate(SCORES, Y), sl.ray.calibrate(dense, fitted(model))
    for name in ("levels", "y", "thresholds", "mean_sizes"):
        np.testing.assert_array_equal(
            getattr(there._calibration, name), getattr(here._calibration, name)
        )
    assert there._calibration.schema == here._calibration.schema
    for point in ({"accuracy": 0.9}, {"mean_size": 3.0}, {"accuracy": 0.8, "by": "class"}):
        sets = there.predict_set(SCORES[:500], **point)
        assert sets == here.predict_set(SCORES[:500], **point)
        assert str(sets.guarantee) == str(here.predict_set(SCORES[:500], **point).guarantee)


def test_of_candidates_with_lists_of_any_length(tmp_path: Path) -> None:
    labels, scores = candidates(5)
    lengths = np.random.default_rng(0).integers(1, 6, len(Y))
    ragged = {
        "labels": pa.array([row[:k].tolist() for row, k in zip(labels, lengths, strict=True)]),
        "scores": pa.array([row[:k].tolist() for row, k in zip(scores, lengths, strict=True)]),
    }
    parquet.write_table(
        pa.table({**ragged, "y": Y}), tmp_path / "rows.parquet", row_group_size=5000
    )
    padded = np.where(np.arange(5) < lengths[:, None], labels, -1)
    ranking = sl.Ranking.from_candidates(padded, scores.astype(np.float64), CLASSES)
    model = sl.SplitConformal("lac", temperature=None, calibration=None, score_type="proba")
    here = clone(model).fit(ranking[:500], Y[:500]).calibrate(ranking, Y)
    there = sl.ray.calibrate(tmp_path, clone(model).fit(ranking[:500], Y[:500]))
    np.testing.assert_array_equal(there._calibration.levels, here._calibration.levels)
    np.testing.assert_array_equal(there._calibration.mean_sizes, here._calibration.mean_sizes)
    done = sl.ray.predict_set(tmp_path / "rows.parquet", there, tmp_path / "sets", accuracy=0.35)
    assert labels_of(tmp_path / "sets") == here.predict_set(ranking, accuracy=0.35).labels()
    assert done.accuracy == here.predict_set(ranking, accuracy=0.35).accuracy(Y)


def test_lists_with_more_room_than_they_need(tmp_path: Path, monkeypatch) -> None:
    """How many rows choose by mean size depends on the longest list, not on the schema."""
    monkeypatch.setattr(_conformal, "CHOOSING_VALUES", 5 * 4000)
    labels, scores = candidates(5)
    padded = np.pad(labels, ((0, 0), (0, 3)), constant_values=-1), np.pad(scores, ((0, 0), (0, 3)))
    table = pa.table({"labels": lists(padded[0]), "scores": lists(padded[1]), "y": Y})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=5000)
    ranking = sl.Ranking.from_candidates(*padded, CLASSES)
    model = sl.SplitConformal("lac", temperature=None, calibration=None, score_type="proba")
    here = clone(model).fit(ranking[:500], Y[:500]).calibrate(ranking, Y)
    there = sl.ray.calibrate(tmp_path, clone(model).fit(ranking[:500], Y[:500]))
    assert there._calibration.n_choosing == here._calibration.n_choosing == 4000
    np.testing.assert_array_equal(there._calibration.mean_sizes, here._calibration.mean_sizes)


def test_counted_scores_guarantee_hardly_less(dense: Path) -> None:
    here, there = fitted().calibrate(SCORES, Y), fitted()
    sl.ray.calibrate(dense, there, exact=False)
    assert len(there._calibration.levels) <= len(Y)
    for accuracy in (0.5, 0.9, 0.99):
        one, other = (m.predict_set(SCORES, accuracy=accuracy) for m in (here, there))
        assert abs(one.mean_size - other.mean_size) < 0.1
        assert other.accuracy(Y) > accuracy - 0.01
    assert there.predict_set(SCORES[:9], mean_size=3).guarantee.kind == "certified"
    with pytest.raises(ValueError, match="calibrate with exact=True"):
        there.predict_set(SCORES[:9], accuracy=0.9, by="class")


def test_paths_are_judged_by_all_rows(dense: Path) -> None:
    model = sl.CardinalityPath(inputs="scores", cost_weights=[0.3, 0.1, 0.03], max_epochs=2)
    model.fit(SCORES[:2000], Y[:2000])
    sl.ray.calibrate(dense, model)
    there = model._path_calibration
    model.calibrate(SCORES, Y)
    assert there == model._path_calibration


def test_sets_are_those_of_one_process(dense: Path, tmp_path: Path) -> None:
    model = fitted().calibrate(SCORES[:4000], Y[:4000])
    done = sl.ray.predict_set(
        dense, model, tmp_path / "sets", accuracy=0.9, keep=["id"], rows_per_file=4000
    )
    sets = model.predict_set(SCORES, accuracy=0.9)
    assert labels_of(tmp_path / "sets") == sets.labels()
    table = parquet.read_table(tmp_path / "sets" / "part-1-000000004000.parquet")
    assert table.column_names == ["file", "row", "id", "size", "labels"]
    assert table["id"][0].as_py() == "row 12000"
    assert (done.rows, done.files, done.skipped, done.done_before) == (len(Y), 6, 0, 0)
    assert done.accuracy == sets.accuracy(Y)
    assert done.mean_size == sets.mean_size
    assert "24,000 sets in 6 files" in repr(done)
    assert (
        str(done.guarantee) == str(sets.guarantee) == table.schema.metadata[b"guarantee"].decode()
    )
    assert json.loads((tmp_path / "sets" / "_sets.json").read_text())["rows"] == len(Y)


def test_a_model_that_learned_takes_features_too(dense: Path, tmp_path: Path) -> None:
    model = sl.Shortlister(max_epochs=2, progress=False).fit(SCORES[:3000], Y[:3000], X[:3000])
    sl.ray.predict_set(dense / "part-0.parquet", model, tmp_path / "sets", accuracy=0.9)
    sets = model.predict_set(SCORES[:8000], X[:8000], accuracy=0.9)
    assert labels_of(tmp_path / "sets") == sets.labels()


def test_the_same_call_again_does_nothing_and_another_is_refused(
    listed: Path, tmp_path: Path
) -> None:
    labels, scores = candidates(5)
    ranking = sl.Ranking.from_candidates(labels[:4000], scores[:4000], CLASSES)
    model = clone(APS).fit(ranking, Y[:4000]).calibrate(ranking, Y[:4000])
    where = tmp_path / "sets"
    first = sl.ray.predict_set(listed, model, where, accuracy=0.5)
    times = {file.name: file.stat().st_mtime_ns for file in where.glob("*.parquet")}
    again = sl.ray.predict_set(listed, model, where, accuracy=0.5)
    assert again.done_before == first.files == 3
    assert {file.name: file.stat().st_mtime_ns for file in where.glob("*.parquet")} == times
    with pytest.raises(FileExistsError, match="sets of another model, operating point, table or"):
        sl.ray.predict_set(listed, model, where, accuracy=0.4)
    assert sl.ray.predict_set(listed, model, where, accuracy=0.4, overwrite=True).done_before == 0
    rows = write(tmp_path / "rows", depth=5)
    sl.ray.predict_set(rows, model, tmp_path / "old", accuracy=0.4)
    table = parquet.read_table(rows / "part-1.parquet")
    parquet.write_table(table.slice(0, 5000), rows / "part-1.parquet")
    with pytest.raises(FileExistsError, match=r"part-1.parquet as it was before it was written an"):
        sl.ray.predict_set(rows, model, tmp_path / "old", accuracy=0.4)
    anew = sl.ray.predict_set(rows, model, tmp_path / "old", accuracy=0.4, overwrite=True)
    assert (anew.done_before, anew.rows) == (2, 21_000)
    (tmp_path / "mine").mkdir()
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "mine" / "a.parquet")
    with pytest.raises(FileExistsError, match=r"a\.parquet, which was not written by shortlist"):
        sl.ray.predict_set(listed, model, tmp_path / "mine", accuracy=0.4)


def test_a_terminal_shows_how_many_pieces_are_done(
    dense: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(_progress, "SHOW_AFTER_S", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    model = sl.SplitConformal("lac").fit(SCORES, Y)
    sl.ray.predict_set(dense, model, tmp_path / "silent", accuracy=0.9)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(_cluster, "track", partial(_progress.track, show=True))
    sl.ray.predict_set(dense, model, tmp_path / "sets", accuracy=0.9)
    said = capsys.readouterr().err
    assert "predicting" in said
    assert "3/3" in said


def test_bad_rows(tmp_path: Path) -> None:
    scores = SCORES[:6000].copy()
    scores[4321, 3] = np.nan
    table = pa.table({"scores": lists(scores), "y": Y[:6000]})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=1000)
    model, where = fitted().calibrate(SCORES[:4000], Y[:4000]), tmp_path / "sets"
    with pytest.raises(ValueError, match=r"rows.parquet, row 4321: scores hold nan at place 3"):
        sl.ray.predict_set(tmp_path / "rows.parquet", model, where, rows_per_file=1000)
    done = sl.ray.predict_set(
        tmp_path / "rows.parquet", model, where, rows_per_file=1000, on_bad_rows="skip"
    )
    assert (done.rows, done.skipped) == (5999, 1)
    with pytest.warns(UserWarning, match="1 bad row was left out"):
        sl.ray.calibrate(tmp_path / "rows.parquet", model, on_bad_rows="skip")
    good = np.delete(np.arange(6000), 4321)
    here = fitted().calibrate(scores[good], Y[good])
    np.testing.assert_array_equal(model._calibration.levels, here._calibration.levels)


def when(happens: Callable[[], bool], act: Callable[[], object]) -> threading.Thread:
    """Do something as soon as something else has happened."""

    def wait() -> None:
        for _ in range(3000):
            if happens():
                act()
                return
            time.sleep(0.005)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


WORK = b"MapBatches(_work)"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds the workers by /proc")
def test_a_killed_worker_costs_time_and_nothing_else(tmp_path: Path) -> None:
    rows = np.tile(np.arange(len(Y)), 4)
    table = pa.table({"scores": lists(SCORES[rows]), "y": Y[rows]})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=1000)
    model, where = fitted().calibrate(SCORES[:4000], Y[:4000]), tmp_path / "sets"
    killed: list[int] = []

    def kill() -> None:
        killed.extend([len(list(where.glob("*.parquet"))), *workers(WORK)[:1]])
        os.kill(killed[1], signal.SIGKILL)

    thread = when(lambda: any(where.glob("*.parquet")) and bool(workers(WORK)), kill)
    done = sl.ray.predict_set(
        tmp_path / "rows.parquet", model, where, accuracy=0.9, rows_per_file=1000
    )
    thread.join()
    assert len(killed) == 2
    assert killed[0] < 96  # there was work left
    assert done.rows == len(rows)
    assert labels_of(where) == model.predict_set(SCORES[rows], accuracy=0.9).labels()
    assert not [file for file in where.iterdir() if file.name.startswith(".")]


SCRIPT = """
import sys, ray, shortlist as sl
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
model = sl.load(sys.argv[1])
sl.ray.predict_set(sys.argv[2], model, sys.argv[3], accuracy=0.9, rows_per_file=1000)
"""


def test_a_killed_driver_goes_on_where_it_stopped(tmp_path: Path) -> None:
    rows = np.tile(np.arange(len(Y)), 3)
    parquet.write_table(
        pa.table({"scores": lists(SCORES[rows])}), tmp_path / "rows.parquet", row_group_size=1000
    )
    model, where = fitted().calibrate(SCORES[:4000], Y[:4000]), tmp_path / "sets"
    model.save(tmp_path / "model")
    given = [str(tmp_path / "model"), str(tmp_path / "rows.parquet"), str(where)]
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, *given], start_new_session=True)
    for _ in range(6000):
        if len(list(where.glob("*.parquet"))) >= 3 or process.poll() is not None:
            break
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1)  # its workers end when they notice
    before = len(list(where.glob("[!.]*.parquet")))
    assert 3 <= before < 72
    assert not (where / "_sets.json").exists()
    done = sl.ray.predict_set(
        tmp_path / "rows.parquet", sl.load(tmp_path / "model"), where,
        accuracy=0.9, rows_per_file=1000,
    )  # fmt: skip
    assert done.done_before >= before
    assert done.rows == len(rows)
    assert labels_of(where) == model.predict_set(SCORES[rows], accuracy=0.9).labels()
