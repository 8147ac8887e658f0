"""NumPy code is run in several threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from shortlist._utils.ordering import sort_values
from shortlist._utils.threads import run_in_threads


def test_an_error_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)

    def work(part: slice) -> int:
        if part.start:
            raise ValueError(f"rows from {part.start} on")
        return part.stop

    with pytest.raises(ValueError, match="rows from 2 on"):
        run_in_threads(work, 6, size=1 << 20)
    assert run_in_threads(lambda part: part.start, 6, size=1 << 20) == [0, 2, 4]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is not available")
def test_a_forked_process_starts_its_own_threads(monkeypatch):
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    sort_values(torch.rand(400, 400))  # Starts a thread in the parent.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:  # The child: pytest must not continue here.
        signal.alarm(60)
        x = np.random.default_rng(0).random((400, 400))
        is_sorted = np.array_equal(sort_values(torch.from_numpy(x)).numpy(), np.sort(x))
        os._exit(0 if is_sorted else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


AFTER_MAIN_THREAD = """
import threading, torch
from shortlist._utils.threads import run_in_threads
torch.set_num_threads(2)
run_in_threads(lambda part: part, 4, 1 << 20)

def later():
    threading.main_thread().join()
    print([part.start for part in run_in_threads(lambda part: part, 4, 1 << 20)])

threading.Thread(target=later).start()
"""


def test_threads_can_work_after_the_main_thread_has_ended():
    result = subprocess.run(
        [sys.executable, "-c", AFTER_MAIN_THREAD], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[0, 2]", result.stderr
