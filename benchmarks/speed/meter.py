"""Time, and peak memory over what was there before, of one piece of work in this process."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, TypeVar

Result = TypeVar("Result")
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Spent(TypedDict):
    """Seconds, seconds of all cores together, and megabytes at the peak (None: it is not kept)."""

    seconds: float
    cpu: float
    memory: float | None


def metered(work: Callable[[], Result]) -> tuple[Result, Spent]:
    """The result of some work, and what it took.

    Linux keeps the peak of the resident memory itself, and forgets it on request, so that nothing
    runs beside the work.
    """
    gc.collect()
    before = _forget_peak()
    begun, busy = time.perf_counter(), time.process_time()
    result = work()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - busy
    memory = None if before is None else (_kept("VmHWM") - before) / 1000
    return result, {"seconds": seconds, "cpu": cpu, "memory": memory}


def _forget_peak() -> float | None:
    """Forget the peak so far; what is in memory now, in kilobytes."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return None
    return _kept("VmRSS")


def _kept(name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB$", STATUS.read_text(), flags=re.MULTILINE)
    assert found is not None
    return float(found[1]) * 1.024
