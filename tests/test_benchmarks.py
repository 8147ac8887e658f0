"""The benchmark scripts run, on small data, and print what they say they print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import shortlist as sl

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_selector_inputs(tmp_path: Path) -> None:
    parts = sl.datasets.gaussian(900, separation=0.3).split(300, 300, 300)
    arrays = {}
    for name, part in zip(("fit", "select", "test"), parts, strict=True):
        arrays |= {f"x_{name}": part.x, f"y_{name}": part.y}
    np.savez(tmp_path / "small.npz", **arrays)
    printed = run("selector_inputs.py", str(tmp_path / "small.npz"), "--seeds", "1")
    for inputs in ("features", "scores", "both"):
        assert printed.count(f'inputs="{inputs}"') == 2  # its points, and its sizes
    assert "fixed top-k" in printed
    assert "one threshold" in printed


def test_path_against_loops() -> None:
    printed = run("path_against_loops.py", "--rows", "300", "--epochs", "1", "--repeats", "1")
    assert float(printed.split("ratio")[1]) > 0
