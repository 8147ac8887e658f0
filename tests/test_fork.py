"""A forked process predicts as its parent does, and does not wait for the parent's threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is not available")

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

def predict(name):
    inputs = (new.posterior, new.x) if name == "selector" else (new.posterior,)
    return models[name].predict_set(*inputs).labels()

def product():
    return float((square @ square).sort().values.sum())

expected = {name: predict(name) for name in models}
product()  # Starts the threads of PyTorch, whatever the models use.

def check():
    product()
    matches = [predict(name) == expected[name] for name in models]
    labels = []
    threads = [threading.Thread(target=lambda: labels.append(predict("aps"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return all(matches) and labels == [expected["aps"]] * 2

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
assert torch.get_num_threads() == 2, "the parent must keep its threads"
assert check()
sys.exit(code)
"""


@pytest.mark.parametrize("method", ["os", "multiprocessing"])
def test_a_forked_process_predicts_as_its_parent(method):
    result = subprocess.run(
        [sys.executable, "-c", PARENT, method],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr


FORK_BEFORE_TORCH = """
import os, sys
import shortlist
child = os.fork()
if not child:
    os._exit(1 if "torch" in sys.modules else 0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_does_not_import_torch():
    result = subprocess.run([sys.executable, "-c", FORK_BEFORE_TORCH], timeout=60, check=False)
    assert result.returncode == 0
