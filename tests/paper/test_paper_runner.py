"""Runs that continue with stored outcomes, and errors about wrong arguments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_study import TINY, write_feature_files

import shortlist as sl
from shortlist.paper import run


def test_a_run_that_was_killed_continues_to_the_same_points(tmp_path):
    data = write_feature_files(tmp_path / "data", ["cifar10"])
    code = (
        "import sys\nfrom shortlist.paper import run\nfrom small_study import TINY\n"
        "if __name__ == '__main__':\n"
        "    run(sys.argv[1], sys.argv[2], ['fig1'], scale=TINY, workers=1, progress=False)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    out = tmp_path / "out"
    paths = Path(__file__).parent, Path(sl.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, str(script), str(data), str(out)]
    process = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 120
    while not list(out.glob("kept/[!.]*.json")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("kept/[!.]*.json")}
    assert before
    assert not (out / "points.csv").exists()
    continued = run(data, out, ["fig1"], scale=TINY, workers=1, progress=False)
    for name, modification_time in before.items():
        assert (out / "kept" / name).stat().st_mtime_ns == modification_time
    uninterrupted = run(data, tmp_path / "new", ["fig1"], scale=TINY, workers=1, progress=False)
    first, second = (
        {task: replace(outcome, seconds=0) for task, outcome in report.results.outcomes.items()}
        for report in (continued, uninterrupted)
    )
    assert first == second


def test_an_error_in_a_process_is_raised(tmp_path):
    data = write_feature_files(tmp_path / "data", ["cifar100", "cifar10"])
    broken = dict(np.load(data / "cifar10.npz"))
    broken["x_select"][5, 2] = np.nan
    np.savez(data / "cifar10.npz", **broken)
    with pytest.raises(ValueError, match=r"NaN|finite"):
        run(data, tmp_path / "out", ["fig1"], scale=TINY, workers=2, progress=False)


def test_an_unknown_figure(folder, tmp_path):
    with pytest.raises(ValueError, match="no figure 'fig7'; the figures are fig1, fig2"):
        run(folder, tmp_path, ["fig1", "fig7"])


def test_a_missing_or_empty_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(FileNotFoundError, match=r"cifar100\.npz"):
        run(tmp_path, tmp_path / "out", ["fig1"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", [{"seeds": 0}, {"workers": 0}, {"seeds": 1.5}])
def test_wrong_counts(folder, tmp_path, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        run(folder, tmp_path / "out", ["fig1"], **wrong)
