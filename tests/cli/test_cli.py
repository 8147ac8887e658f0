"""The program: help, completion, and the demonstration."""

from __future__ import annotations

import ast
import math
import os
import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

import shortlist
from shortlist import __version__
from shortlist.cli import app
from shortlist.cli.app import SHELL_ADVICE
from shortlist.comparison import ACCURACIES, default_methods

METHODS = list(default_methods(has_features=True))


COMMANDS = [
    "demo",
    "compare",
    "fit",
    "calibrate",
    "predict",
    "inspect",
    "export",
    "theory",
    "paper",
    "features",
]


def test_version_and_help() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).output.strip() == f"shortlist {__version__}"
    output = runner.invoke(app, ["--help"]).output
    assert re.findall(r"^│ (\w+) ", output, re.M) == COMMANDS


def test_advice_for_the_command_line_replaces_messages_that_exist() -> None:
    """Each key, up to a quoted value, is part of a string in the sources of the library."""
    package = Path(shortlist.__file__).parent
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for path in package.rglob("*.py")
        if path.parent.name != "cli"
    ]
    texts = [
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    keys = [key.partition('"')[0] for key in SHELL_ADVICE]
    unused = [key for key in keys if not any(key in text for text in texts)]
    assert unused == []


def parse_table(output: str) -> dict[str, list[float]]:
    """Return the numbers of each method; NaN for a dash."""
    lines = re.findall(r"^│ (.+?) +│(.+)│$", output, re.M)
    return {
        name: [math.nan if cell.strip() == "-" else float(cell) for cell in cells.split("│")]
        for name, cells in lines
    }


def test_demo_prints_two_tables_and_plots_the_curves(tmp_path: Path) -> None:
    picture = tmp_path / "new [bold] folder" / "curve.png"
    process = subprocess.run(
        [sys.executable, "-m", "shortlist", "demo", "-o", str(picture)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "80"},
    )
    assert process.stderr == ""  # A progress bar is shown on a terminal only.
    assert picture.read_bytes().startswith(b"\x89PNG")
    *lines, last = process.stdout.splitlines()
    assert re.fullmatch(rf"Curves: {re.escape(str(picture))}   \(\d+ s\)", last)
    assert max(map(len, lines)) <= 80
    digits, gaussian = re.split(r"^10 Gaussian classes", process.stdout, flags=re.M)
    assert digits.startswith("noisy digits: 900 rows to fit, 300 calibration rows")
    assert "3,750 rows to fit, 1,250" in gaussian
    for output in (digits, gaussian):
        table = parse_table(output)
        assert list(table) == [*METHODS, "LAC, re-scored"]
        for name, (*sizes, accuracy, size, seconds) in table.items():
            reached = [s for s in sizes if not math.isnan(s)]
            assert len(sizes) == len(ACCURACIES)
            assert len(reached) == 4 or name.startswith("paper's")
            assert reached[0] >= 1
            assert reached == sorted(reached)
            assert reached[-1] <= 10
            # 0.95 is guaranteed. With 150 calibration rows, the standard error is 0.02.
            assert 0.9 < accuracy <= 1
            assert sizes[0] <= size <= 10
            assert seconds >= 0
        assert table["LAC"][1] < table["top-k"][1]
    for output in (digits, gaussian):  # Columns 0 and 1 are the accuracies 0.9 and 0.95.
        table = parse_table(output)
        for column in (0, 1):
            rivals = [table[name][column] for name in (*METHODS[1:3], "LAC", "top-k")]
            assert table["Shortlister"][column] < 1.03 * min(rivals)


def test_a_shell_completes_commands() -> None:
    request = {
        "COMP_WORDS": "shortlist in",
        "COMP_CWORD": "1",
        "_SHORTLIST_COMPLETE": "complete_bash",
    }
    words = [sys.executable, "-c", "from shortlist.cli import app; app(prog_name='shortlist')"]
    process = subprocess.run(
        words, env=os.environ | request, capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == ["inspect"]
