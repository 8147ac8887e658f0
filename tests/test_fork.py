"""A forked process predicts as its parent does: it does not wait for threads that it lacks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

PARENT = """
import os, signal, sys, threading
import multiprocessing
import numpy as np
import torch
import shortlist as sl

torch.set_num_threads(2)
data = sl.datasets.gaussian(3000, 0.5, n_classes=300, dimension=20)
fit, new = data.split(2000, 1000)
models = {
    "aps": sl.SplitConformal("aps").fit(fit.posterior, fit.y),
    "selector": sl.CardinalitySelector(sl.TopK([1, 2, 4]), max_epochs=1).fit(
        fit.posterior, fit.y, fit.x
    ),
}
square = torch.rand(700, 700)

def ask(name):
    given = (new.posterior, new.x) if name == "selector" else (new.posterior,)
    return models[name].predict_set(*given).labels()

def product():
    return float((square @ square).sort().values.sum())

expected = {name: ask(name) for name in models}
product()  # PyTorch's threads are there by now, whatever the models use.

def check():
    product()
    right = [ask(name) == expected[name] for name in models]
    found = []
    threads = [threading.Thread(target=lambda: found.append(ask("aps"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return all(right) and found == [expected["aps"]] * 2

def in_child(_):
    return check()

if sys.argv[1] == "os":
    child = os.fork()
    if not child:
        signal.alarm(40)
        os._exit(0 if check() else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
else:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        code = 0 if all(pool.map_async(in_child, range(2)).get(40)) else 1
assert torch.get_num_threads() == 2, "the parent keeps its threads"
assert check()
sys.exit(code)
"""


@pytest.mark.parametrize("way", ["os", "multiprocessing"])
def test_a_forked_process_predicts_as_its_parent(way):
    done = subprocess.run(
        [sys.executable, "-c", PARENT, way],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


LAZY = """
import os, sys
import shortlist
child = os.fork()
if not child:
    os._exit(1 if "torch" in sys.modules else 0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_loads_nothing():
    done = subprocess.run([sys.executable, "-c", LAZY], timeout=60, check=False)
    assert done.returncode == 0
