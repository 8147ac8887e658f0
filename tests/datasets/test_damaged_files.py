"""Commands on damaged or malicious data files print a one-line error and execute nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(count: int, seed: int, timeout: float) -> dict[str, object]:
    """Run the fuzzer in another process, because its audit hook cannot be removed."""
    command = [sys.executable, str(HERE / "fuzz_commands.py"), str(count), str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=environment
    )
    assert process.returncode == 0, process.stderr[-2000:]
    report: dict[str, object] = json.loads(process.stdout)
    return report


def test_a_sample_of_mutations() -> None:
    report = run(60, 0, timeout=300)
    assert report["findings"] == []
    counts = report["counts"]
    assert sum(n for name, n in counts.items() if name.endswith("exit 1")) > 18
    assert sum(n for name, n in counts.items() if name.endswith("exit 0")) > 6


@pytest.mark.study
@pytest.mark.timeout(7200)
def test_many_mutations() -> None:
    report = run(10_000, 1, timeout=7200)
    print(json.dumps(report, indent=1))
    assert report["findings"] == []
