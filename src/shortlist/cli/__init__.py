"""The command line: each module adds commands, which `--help` lists in the order of import."""

from __future__ import annotations

import os
import sys

try:
    import rich  # noqa: F401
    import typer  # noqa: F401
except ImportError as error:
    _missing: ImportError | None = error
else:
    _missing = None
    from shortlist.cli.app import app

    # isort: off
    from shortlist.cli import compare, fit, predict, export, research  # noqa: F401
    # isort: on


def main() -> None:
    """Run the program."""
    if _missing is not None:
        sys.exit(
            f"shortlist: the command line needs {_missing.name}, which is not installed: "
            "pip install 'shortlist[cli]'"
        )
    # OpenMP threads that spin while they wait slow down all other processes on the same cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app()


__all__ = ["app", "main"]
