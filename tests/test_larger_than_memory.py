"""Score files that are mapped into memory: read block by block, never copied whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import shortlist as sl
from shortlist import _arrays
from shortlist.ranking import Ranking

SCRIPT = """
import sys, threading, time
import numpy as np, shortlist as sl, torch
torch.set_num_threads(2)

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024

def watch():
    while True:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.002)

folder, name = sys.argv[1:]
scores, y = np.load(f"{folder}/scores.npy", mmap_mode="r"), np.load(f"{folder}/y.npy")
sl.SplitConformal(name).fit(scores[:2000], y[:2000]).predict_set(scores[:2000], accuracy=0.9)
start = anonymous()
peak = [start]
threading.Thread(target=watch, daemon=True).start()
model = sl.SplitConformal(name).fit(scores, y)
sets = model.predict_set(scores, accuracy=0.9)
print(peak[0] - start, sets.accuracy(y))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """400 MB of random scores, and labels drawn from them."""
    folder = tmp_path_factory.mktemp("large")
    generator = torch.Generator().manual_seed(0)
    shape = (100_000, 1000)
    scores = np.lib.format.open_memmap(folder / "scores.npy", "w+", np.float32, shape)
    y = np.empty(len(scores), dtype=np.int64)
    for start in range(0, len(scores), 10_000):
        rows = slice(start, start + 10_000)
        block = torch.softmax(4 * torch.randn(10_000, 1000, generator=generator), dim=1)
        scores[rows], y[rows] = block, torch.multinomial(block, 1, generator=generator)[:, 0]
    scores.flush()
    np.save(folder / "y.npy", y)
    return folder


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to read memory in")
@pytest.mark.parametrize("name", ["lac", "aps"])
def test_a_mapped_file_is_not_read_into_memory(folder, name) -> None:
    command = [sys.executable, "-c", SCRIPT, str(folder), name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, accuracy = map(float, done.stdout.split())
    assert peak < 250e6
    assert 0.88 < accuracy < 0.92


def test_rows_that_are_put_off_are_the_same_rows(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    scores, y = rng.standard_normal((300, 9)), rng.integers(0, 9, 300)
    rows = rng.permutation(300)[:200]
    now = Ranking.from_scores(scores)[rows]
    model = sl.SplitConformal("aps", calibration=0.5).fit(scores, y)
    sets = model.predict_set(scores, accuracy=0.8)
    monkeypatch.setattr(_arrays, "LARGE", 0)
    later = Ranking.from_scores(scores)[rows]
    assert isinstance(later._dense, _arrays.Picked)
    for part in (slice(None), slice(3, 90), np.arange(5, 60, 3), np.arange(200) % 3 == 0):
        assert np.array_equal(later[part].labels, now[part].labels)
        assert np.array_equal(later[part].scores, now[part].scores)
        assert np.array_equal(later[part].rank(y[rows][part]), now[part].rank(y[rows][part]))
    again = sl.SplitConformal("aps", calibration=0.5).fit(scores, y)
    assert again.predict_set(scores, accuracy=0.8) == sets
