"""The command line, run as a person runs it."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from shortlist import __version__
from shortlist.cli import app
from shortlist.comparison import ACCURACIES, default_methods

METHODS = list(default_methods(has_features=True))


def test_version_and_help() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).output.strip() == f"shortlist {__version__}"
    assert "demo" in runner.invoke(app, ["--help"]).output


def table(printed: str) -> dict[str, list[float]]:
    """The numbers of each method; a dash is none."""
    lines = re.findall(r"^│ (.+?) +│(.+)│$", printed, re.M)
    return {
        name: [math.nan if cell.strip() == "-" else float(cell) for cell in cells.split("│")]
        for name, cells in lines
    }


def test_demo_prints_both_tables_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "new [bold] folder" / "curve.png"
    done = subprocess.run(
        [sys.executable, "-m", "shortlist.cli", "demo", "-o", str(picture)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "80"},
    )
    assert done.stderr == ""  # no progress bar where there is no terminal
    assert picture.read_bytes().startswith(b"\x89PNG")
    *lines, last = done.stdout.splitlines()
    assert re.fullmatch(rf"Curves: {re.escape(str(picture))}   \(\d+ s\)", last)
    assert max(map(len, lines)) <= 80
    digits, gaussian = re.split(r"^10 Gaussian classes", done.stdout, flags=re.M)
    assert digits.startswith("digits, a classifier that saw 100 rows: 450 rows to fit")
    assert "7,500 rows to fit, 2,500" in gaussian
    for printed in (digits, gaussian):
        found = table(printed)
        assert list(found) == [*METHODS, "LAC, re-scored"]  # the Shortlister first
        for name, (*sizes, accuracy, size, seconds) in found.items():
            reached = [s for s in sizes if not math.isnan(s)]
            assert len(sizes) == len(ACCURACIES)
            assert len(reached) == 4 or name == "paper's selectors"
            assert reached[0] >= 1
            assert reached == sorted(reached)
            assert reached[-1] <= 10
            # Guaranteed was 0.95; of 150 rows a guarantee strays by 0.02.
            assert 0.9 < accuracy <= 1
            assert sizes[0] <= size <= 10
            assert seconds >= 0
        # One threshold is shorter than top-k, and the Shortlister is the shortest of all.
        assert found["LAC"][1] < found["top-k"][1]
    found = table(digits)
    for column in (1, 2):  # at 0.95 and at 0.98
        others = [found[name][column] for name in METHODS[1:]]
        assert found["Shortlister"][column] < min(others)


def test_a_shell_completes_commands() -> None:
    asked = {
        "COMP_WORDS": "shortlist in",
        "COMP_CWORD": "1",
        "_SHORTLIST_COMPLETE": "complete_bash",
    }
    words = [sys.executable, "-c", "from shortlist.cli import app; app(prog_name='shortlist')"]
    done = subprocess.run(words, env=os.environ | asked, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["inspect"]
