"""The command line."""

from __future__ import annotations

import os

from shortlist.cli import (  # noqa: F401 (they add commands)
    compare,
    export,
    fit,
    predict,
    research,
)
from shortlist.cli.app import app


def main() -> None:
    """Run the program."""
    # Threads that spin while they wait make small steps many times slower where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app()


__all__ = ["app", "main"]
