"""Processes that keep cores busy, like those of other users of a machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOADS = {"quiet": 0, "busy": 2}
"""Number of neighbors in each condition of a measurement."""
SPIN = """
import os
parent = os.getppid()
while os.getppid() == parent:  # It also ends if this script is killed.
    sum(range(1_000_000))
"""


@contextmanager
def neighbors(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep `count` processes busy inside the block."""
    processes = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
