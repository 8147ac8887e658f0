"""The command line: each module adds commands, which `--help` lists in the order of import."""

from __future__ import annotations

import os

from shortlist.cli.app import app

# isort: off
from shortlist.cli import compare, fit, predict, export, research  # noqa: F401
# isort: on


def main() -> None:
    """Run the program."""
    # OpenMP threads that spin while they wait slow down all other processes on the same cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app()


__all__ = ["app", "main"]
