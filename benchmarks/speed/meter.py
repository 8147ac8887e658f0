"""Measure the time and the additional peak memory of a function in this process."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, TypeVar

Result = TypeVar("Result")
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Usage(TypedDict):
    """Wall-clock seconds, CPU seconds of all cores, and megabytes at the peak (None if unknown)."""

    seconds: float
    cpu: float
    memory: float | None


def measure(function: Callable[[], Result]) -> tuple[Result, Usage]:
    """Return the result of a function, and the time and memory that it took.

    Linux records the peak of the resident memory and can reset it, so that no other thread has to
    run during the measurement.
    """
    gc.collect()
    memory_before = _reset_peak()
    start, cpu_start = time.perf_counter(), time.process_time()
    result = function()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    memory = None if memory_before is None else (_status("VmHWM") - memory_before) / 1000
    return result, {"seconds": seconds, "cpu": cpu, "memory": memory}


def _reset_peak() -> float | None:
    """Reset the recorded peak and return the current memory in kilobytes; None if not possible."""
    try:
        CLEAR_REFS.write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def _status(field: str) -> float:
    match = re.search(rf"^{field}:\s+(\d+) kB$", STATUS.read_text(), flags=re.MULTILINE)
    assert match is not None
    return float(match[1]) * 1.024
