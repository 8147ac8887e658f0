"""Runs that continue with stored outcomes, and errors about wrong arguments."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from small_study import TINY, write_feature_files

import shortlist as sl
from shortlist.paper import compute, run


def test_a_run_that_was_killed_continues_to_the_same_points(tmp_path):
    data = write_feature_files(tmp_path / "data", ["cifar10"])
    code = (
        "import sys\nfrom shortlist.paper import compute\nfrom small_study import TINY\n"
        "if __name__ == '__main__':\n"
        "    compute(sys.argv[1], sys.argv[2], ['fig1'], scale=TINY, workers=1, progress=False)\n"
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
    options = {"scale": TINY, "workers": 1, "progress": False}
    assert compute(data, out, ["fig1"], **options) == out / "kept"
    for name, modification_time in before.items():
        assert (out / "kept" / name).stat().st_mtime_ns == modification_time
    compute(data, tmp_path / "new", ["fig1"], **options)
    continued, uninterrupted = (read_traces(folder) for folder in (out, tmp_path / "new"))
    assert len(continued) > len(before)
    assert continued == uninterrupted


def read_traces(folder: Path) -> dict[str, object]:
    """Return the curves of all stored outcomes by name."""
    paths = (folder / "kept").glob("[!.]*.json")
    return {path.name: json.loads(path.read_text())["outcome"]["traces"] for path in paths}


def test_seeds_and_figures_that_were_computed_apart_are_merged(tmp_path):
    data = write_feature_files(tmp_path / "data", ["cifar10"])
    options = {"scale": TINY, "workers": 1, "progress": False}
    for name, figures, seeds in (("a", ["fig1"], [0]), ("b", ["fig1", "fig3"], [1])):
        compute(data, tmp_path / name, figures, seeds=seeds, **options)
    merged = tmp_path / "merged" / "kept"
    for name in ("a", "b"):
        shutil.copytree(tmp_path / name / "kept", merged, dirs_exist_ok=True)
    stored = run(data, merged.parent, ["fig1", "fig3"], stored=True, **options)
    assert list(stored.results.seeds) == [0, 1]
    first, third = (stored.results.figure(name) for name in ("fig1", "fig3"))
    direct = run(data, tmp_path / "direct", ["fig1"], **options)
    assert first.panels == direct.results.figure("fig1").panels
    curve = next(c for p in first.panels for c in p.curves if c.is_selector)
    for one, other in zip(*(r.results.curves(curve) for r in (stored, direct)), strict=True):
        assert one.mean_size.tolist() == other.mean_size.tolist()
    # Figure 3 was computed for one seed only; its curves that figure 1 also has are shown.
    labels = {c.label for p in third.panels for c in p.curves}
    assert labels == {"top-k", "conformal (LAC)"}
    assert stored.results.missing == 3
    assert "3 curves are left out because they were not computed" in stored.page.read_text()
    with pytest.raises(FileNotFoundError, match="has none of the"):
        run(data, tmp_path / "empty", ["fig1"], stored=True, **options)


def test_numbers_need_no_optional_package(tmp_path):
    data = write_feature_files(tmp_path / "data", ["cifar10"])
    code = (
        "import sys\n"
        "for name in ('typer', 'rich', 'matplotlib', 'pandas', 'pyarrow', 'onnx'):\n"
        "    sys.modules[name] = None\n"
        "from shortlist.paper.__main__ import main\n"
        "if __name__ == '__main__':\n"
        "    main(['--data', sys.argv[1], '-o', sys.argv[2], '--scale', 'quick', '--figures', "
        "'fig3', '--seeds', '4', '--workers', '1', '--numbers-only'])\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(Path(sl.__file__).parents[1])}
    command = [sys.executable, str(script), str(data), str(tmp_path / "out")]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert "10 outcomes in" in output.stdout
    assert len(list((tmp_path / "out" / "kept").glob("cifar10-*-4-*.json"))) == 10


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
    with pytest.raises(FileNotFoundError, match=r"cifar100_finetuned\.npz"):
        run(tmp_path, tmp_path / "out", ["fig1"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "wrong", [{"seeds": 0}, {"workers": 0}, {"seeds": 1.5}, {"seeds": []}, {"scale": "huge"}]
)
def test_wrong_arguments(folder, tmp_path, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        run(folder, tmp_path / "out", ["fig1"], **wrong)
