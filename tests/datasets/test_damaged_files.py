"""Data files that are damaged or mean harm: one clean line, and nothing else happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(count: int, seed: int, timeout: float) -> dict[str, object]:
    """Mutations in a process of their own: its audit hook cannot be taken away again."""
    command = [sys.executable, str(HERE / "fuzz_commands.py"), str(count), str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_sample_of_mutations() -> None:
    found = run(100, 0, timeout=300)
    assert found["findings"] == []
    counts = found["counts"]
    assert sum(n for name, n in counts.items() if name.endswith("exit 1")) > 30
    assert sum(n for name, n in counts.items() if name.endswith("exit 0")) > 10


@pytest.mark.study
@pytest.mark.timeout(7200)
def test_many_mutations() -> None:
    found = run(10_000, 1, timeout=7200)
    print(json.dumps(found, indent=1))
    assert found["findings"] == []
