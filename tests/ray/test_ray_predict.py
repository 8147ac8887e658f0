"""Sets from a cluster of two workers are those of one process, also if a process dies."""

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
from tables import (
    N_CLASSES,
    SCORES,
    X,
    Y,
    as_lists,
    candidates,
    find_workers,
    read_labels,
    write_table,
)

import shortlist as sl
from shortlist._utils import progress
from shortlist.ray import cluster as cluster_module

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def aps() -> sl.SplitConformal:
    """Return a fitted and calibrated model with random scores."""
    model = sl.SplitConformal("aps", temperature=None, randomized=True, calibration=None)
    return model.fit(SCORES[:2000], Y[:2000]).calibrate(SCORES[:4000], Y[:4000])


def test_sets_are_those_of_one_process(dense: Path, tmp_path: Path, aps) -> None:
    summary = sl.ray.predict_set(
        dense, aps, tmp_path / "sets", accuracy=0.9, keep=["id"], rows_per_file=4000
    )
    sets = aps.predict_set(SCORES, accuracy=0.9)
    assert read_labels(tmp_path / "sets") == sets.labels()
    table = parquet.read_table(tmp_path / "sets" / "part-1-000000004000.parquet")
    assert table.column_names == ["file", "row", "id", "size", "labels"]
    assert table["id"][0].as_py() == "row 12000"
    assert (summary.rows, summary.files, summary.skipped) == (len(Y), 6, 0)
    assert summary.reused_files == 0
    assert summary.accuracy == sets.accuracy(Y)
    assert summary.mean_size == sets.mean_size
    assert "24,000 sets in 6 files" in repr(summary)
    guarantee = table.schema.metadata[b"guarantee"].decode()
    assert summary.guarantee == str(sets.guarantee) == guarantee
    assert json.loads((tmp_path / "sets" / "_sets.json").read_text())["rows"] == len(Y)


def test_a_model_with_features(dense: Path, tmp_path: Path) -> None:
    model = sl.Shortlister(max_epochs=2, folds=2, width=32, progress=False)
    model.fit(SCORES[:3000], Y[:3000], X[:3000])
    sl.ray.predict_set(dense / "part-0.parquet", model, tmp_path / "sets", accuracy=0.9)
    sets = model.predict_set(SCORES[:8000], X[:8000], accuracy=0.9)
    assert read_labels(tmp_path / "sets") == sets.labels()


@pytest.fixture(scope="module")
def aps_of_candidates() -> sl.SplitConformal:
    labels, scores = candidates(5)
    ranking = sl.Ranking.from_candidates(labels[:4000], scores[:4000], N_CLASSES)
    model = sl.SplitConformal("aps", temperature=None, randomized=True, calibration=None)
    return model.fit(ranking, Y[:4000]).calibrate(ranking, Y[:4000])


def test_the_same_call_again_reuses_all_files(
    listed: Path, tmp_path: Path, aps_of_candidates
) -> None:
    model, output = aps_of_candidates, tmp_path / "sets"
    first = sl.ray.predict_set(listed, model, output, accuracy=0.5)
    times = {file.name: file.stat().st_mtime_ns for file in output.glob("*.parquet")}
    again = sl.ray.predict_set(listed, model, output, accuracy=0.5)
    assert again.reused_files == first.files == 3
    assert {file.name: file.stat().st_mtime_ns for file in output.glob("*.parquet")} == times
    with pytest.raises(FileExistsError, match="sets of another model, operating point or kept col"):
        sl.ray.predict_set(listed, model, output, accuracy=0.4)
    other = sl.ray.predict_set(listed, model, output, accuracy=0.4, overwrite=True)
    assert other.reused_files == 0


def test_sets_of_other_rows_are_replaced_only_on_request(tmp_path: Path, aps_of_candidates) -> None:
    model, output = aps_of_candidates, tmp_path / "sets"
    rows = write_table(tmp_path / "rows", depth=5)
    sl.ray.predict_set(rows, model, output, accuracy=0.4)
    table = parquet.read_table(rows / "part-1.parquet")
    parquet.write_table(table.slice(0, 5000), rows / "part-1.parquet")
    with pytest.raises(FileExistsError, match=r"an earlier version of part-1\.parquet"):
        sl.ray.predict_set(rows, model, output, accuracy=0.4)
    summary = sl.ray.predict_set(rows, model, output, accuracy=0.4, overwrite=True)
    assert (summary.reused_files, summary.rows) == (2, 21_000)
    (rows / "part-2.parquet").rename(rows / "part-3.parquet")
    with pytest.raises(FileExistsError, match=r"part-2\.parquet, which is not part of this table"):
        sl.ray.predict_set(rows, model, output, accuracy=0.4)
    (tmp_path / "other").mkdir()
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "other" / "a.parquet")
    with pytest.raises(FileExistsError, match=r"a\.parquet, which was not written by shortlist"):
        sl.ray.predict_set(rows, model, tmp_path / "other", accuracy=0.4)


def test_a_terminal_shows_how_many_pieces_are_done(
    dense: Path, tmp_path: Path, monkeypatch, capsys, aps
) -> None:
    monkeypatch.setattr(progress, "SHOW_AFTER_S", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    sl.ray.predict_set(dense, aps, tmp_path / "silent", accuracy=0.9)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(cluster_module, "track", partial(progress.track, show=True))
    sl.ray.predict_set(dense, aps, tmp_path / "sets", accuracy=0.9)
    output = capsys.readouterr().err
    assert "predicting" in output
    assert "3/3" in output


def test_bad_rows(tmp_path: Path, aps) -> None:
    scores = SCORES[:6000].copy()
    scores[4321, 3] = np.nan
    table = pa.table({"scores": as_lists(scores), "y": Y[:6000]})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=1000)
    predict = partial(
        sl.ray.predict_set, tmp_path / "rows.parquet", aps, tmp_path / "sets", rows_per_file=1000
    )
    with pytest.raises(
        ValueError, match=r"rows.parquet, row 4321: scores contain nan at position 3"
    ):
        predict()
    summary = predict(on_bad_rows="skip")
    assert (summary.rows, summary.skipped) == (5999, 1)


def start_thread_when(
    condition: Callable[[], bool], action: Callable[[], object]
) -> threading.Thread:
    """Start a thread that runs an action as soon as a condition holds."""

    def wait() -> None:
        for _ in range(3000):
            if condition():
                action()
                return
            time.sleep(0.005)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="workers are found in /proc")
def test_a_killed_worker_loses_no_sets(tmp_path: Path, aps) -> None:
    rows = np.tile(np.arange(len(Y)), 4)
    table = pa.table({"scores": as_lists(SCORES[rows]), "y": Y[rows]})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=1000)
    output, task = tmp_path / "sets", b"MapBatches(_run_batch)"
    killed: list[int] = []

    def kill() -> None:
        killed.extend([len(list(output.glob("*.parquet"))), *find_workers(task)[:1]])
        os.kill(killed[1], signal.SIGKILL)

    thread = start_thread_when(
        lambda: any(output.glob("*.parquet")) and bool(find_workers(task)), kill
    )
    summary = sl.ray.predict_set(
        tmp_path / "rows.parquet", aps, output, accuracy=0.9, rows_per_file=1000
    )
    thread.join()
    assert len(killed) == 2
    assert killed[0] < 96  # Some files were not written yet.
    assert summary.rows == len(rows)
    assert read_labels(output) == aps.predict_set(SCORES[rows], accuracy=0.9).labels()
    assert not [file for file in output.iterdir() if file.name.startswith(".")]


SCRIPT = """
import sys, shortlist as sl
model, address = sl.load(sys.argv[1]), sys.argv[4]
sl.ray.predict_set(
    sys.argv[2], model, sys.argv[3], accuracy=0.9, rows_per_file=1000, address=address
)
"""


def test_after_the_calling_process_is_killed_the_same_call_resumes(tmp_path: Path, aps) -> None:
    import ray

    rows = np.tile(np.arange(len(Y)), 3)
    table = pa.table({"scores": as_lists(SCORES[rows])})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=1000)
    output = tmp_path / "sets"
    aps.save(tmp_path / "model")
    paths = [str(tmp_path / "model"), str(tmp_path / "rows.parquet"), str(output)]
    arguments = [*paths, ray.get_runtime_context().gcs_address]
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], start_new_session=True)
    for _ in range(6000):
        if len(list(output.glob("*.parquet"))) >= 3 or process.poll() is not None:
            break
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1)  # Its workers end when they notice.
    written = len(list(output.glob("[!.]*.parquet")))
    assert 3 <= written < 72
    assert not (output / "_sets.json").exists()
    summary = sl.ray.predict_set(
        tmp_path / "rows.parquet", sl.load(tmp_path / "model"), output,
        accuracy=0.9, rows_per_file=1000,
    )  # fmt: skip
    assert summary.reused_files >= written
    assert summary.rows == len(rows)
    assert read_labels(output) == aps.predict_set(SCORES[rows], accuracy=0.9).labels()
