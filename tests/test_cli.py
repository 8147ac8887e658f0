"""The command line, run as a person runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from shortlist import __version__, demo
from shortlist.cli import app


def test_version_and_help() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).output.strip() == f"shortlist {__version__}"
    assert "demo" in runner.invoke(app, ["--help"]).output


def test_demo_prints_both_tables_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "new folder" / "curve.png"
    done = subprocess.run(
        [sys.executable, "-m", "shortlist.cli", "demo", "-o", str(picture)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "120"},
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "digits" in done.stdout
    assert "Gaussian" in done.stdout
    assert done.stdout.count("selector") >= 2 * len(demo.COST_WEIGHTS)
    assert "No accuracy is promised" in done.stdout
    assert done.stderr == ""  # no progress bar where there is no terminal
    # On digits, whose classifier is weak, the selector needs fewer labels than fixed top-k.
    ratios = [float(r) for r in re.findall(r"│ +selector .*│ +([\d.]+) │ +[\d.]+ │", done.stdout)]
    assert len(ratios) == 2 * len(demo.COST_WEIGHTS)
    assert np.mean(ratios[: len(demo.COST_WEIGHTS)]) < 0.8
