"""Memory-mapped scores are read by blocks, and never copied as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import shortlist as sl
from shortlist._utils import out_of_core
from shortlist.ranking import Ranking

WATCH = """
import os, sys, tempfile, threading, time
import numpy as np, shortlist as sl, torch
from shortlist._utils import out_of_core
torch.set_num_threads(2)

# Small files save time. The limits on memory are lowered by more than the files.
for limit in ("MAX_BYTES_IN_MEMORY", "MAX_COPY_BYTES", "WINDOW_BYTES"):
    setattr(out_of_core, limit, getattr(out_of_core, limit) // 8)

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
"""
PREDICT = """
sl.SplitConformal(name).fit(scores[:2000], y[:2000]).predict_set(scores[:2000], accuracy=0.9)
start = anonymous()
peak = [start]
threading.Thread(target=watch, daemon=True).start()
model = sl.SplitConformal(name).fit(scores, y)
sets = model.predict_set(scores, accuracy=0.9)
print(peak[0] - start, sets.accuracy(y))
"""
FIT = """
from shortlist.predictors.shortlister.opinions import neighbors
assert neighbors.MAX_ROWS > 1000
neighbors.MAX_ROWS = 1000  # More neighbors take time, but hardly more memory.
from shortlist.learning import full_batch, logistic
assert full_batch.MAX_PRODUCTS > 1 << 29
full_batch.MAX_PRODUCTS = 1 << 29  # So do more rows of a logistic regression,
logistic.PENALTIES = logistic.PENALTIES[:2]  # and more penalties, which are tried in turn.
# These take memory that does not depend on the number of rows.
from shortlist.predictors.shortlister import pool, rescoring
full_batch.HISTORY_SIZE = 2
full_batch.MAX_GRADIENT_VALUES //= 8
pool.MAX_VALUES //= 8
rescoring.MAX_SAMPLE_VALUES //= 8
x = np.load(f"{folder}/features.npy", mmap_mode="r")
models = {
    "Shortlister": sl.Shortlister(
        max_epochs=1, batch_size=1024, folds=2, width=16, rank_width=16,
        rescore=True, learn_sizes=True,
    ),
    "CardinalitySelector": sl.CardinalitySelector(max_epochs=1, batch_size=1024, inputs="both"),
    "CardinalityPath": sl.CardinalityPath(
        cost_weights=[0.1, 0.01], max_epochs=1, batch_size=1024, inputs="scores"
    ),
    "LinearClassifier": sl.LinearClassifier(max_epochs=1, batch_size=1024),
}
model = models[name]
fit = (lambda s, y, x: model.fit(x, y % 10)) if name == "LinearClassifier" else model.fit
fit(scores[:2000], y[:2000], x[:2000])
start = anonymous()
peak = [start]
threading.Thread(target=watch, daemon=True).start()
fit(scores, y, x)
files = [file for _, _, files in os.walk(tempfile.gettempdir()) for file in files]
print(peak[0] - start, len(files))
"""

RELEASE_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000"}
"""Settings of glibc, which otherwise keeps a random part of the memory that is freed."""


def run_and_measure(program: str, folder: Path, name: str, **env: str) -> list[float]:
    """Run a program in its own process, and return the numbers that it prints."""
    command = [sys.executable, "-c", WATCH + program, str(folder), name]
    environment = {**os.environ, **RELEASE_MEMORY, **env}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return [float(word) for word in result.stdout.split()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write 128 MB of random scores, labels drawn from them, and 64 MB of features."""
    folder = tmp_path_factory.mktemp("large")
    generator = torch.Generator().manual_seed(0)
    shape = (32_000, 1000)
    scores = np.lib.format.open_memmap(folder / "scores.npy", "w+", np.float32, shape)
    y = np.empty(len(scores), dtype=np.int64)
    for start in range(0, len(scores), 8000):
        rows = slice(start, start + 8000)
        block = torch.softmax(4 * torch.randn(8000, 1000, generator=generator), dim=1)
        scores[rows], y[rows] = block, torch.multinomial(block, 1, generator=generator)[:, 0]
    scores.flush()
    np.save(folder / "y.npy", y)
    x = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float32, (len(scores), 500))
    for start in range(0, len(scores), 8000):
        x[start : start + 8000] = torch.randn(8000, 500, generator=generator)
    x.flush()
    return folder


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is read from /proc"
)


@needs_proc
@pytest.mark.parametrize("name", ["lac", "aps"])
def test_a_mapped_file_is_not_read_into_memory(folder, name) -> None:
    peak, accuracy = run_and_measure(PREDICT, folder, name)
    assert peak < 80e6
    assert 0.88 < accuracy < 0.92


@needs_proc
@pytest.mark.parametrize(
    "name", ["Shortlister", "CardinalitySelector", "CardinalityPath", "LinearClassifier"]
)
def test_a_fit_does_not_read_mapped_files_into_memory(folder, name, tmp_path) -> None:
    """The files have 192 MB, of which less than half is in memory at a time."""
    peak, left = run_and_measure(FIT, folder, name, TMPDIR=str(tmp_path))
    assert peak < 96e6
    assert left == 0  # Temporary files. Torch creates a folder.
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_lazy_rows_equal_copied_rows(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    scores, y = rng.standard_normal((300, 9)), rng.integers(0, 9, 300)
    rows = rng.permutation(300)[:200]
    copied = Ranking.from_scores(scores)[rows]
    model = sl.SplitConformal("aps", calibration=0.5).fit(scores, y)
    sets = model.predict_set(scores, accuracy=0.8)
    monkeypatch.setattr(out_of_core, "MAX_COPY_BYTES", 0)
    lazy = Ranking.from_scores(scores)[rows]
    assert isinstance(lazy.dense, out_of_core.RowView)
    for part in (slice(None), slice(3, 90), np.arange(5, 60, 3), np.arange(200) % 3 == 0):
        assert np.array_equal(lazy[part].labels, copied[part].labels)
        assert np.array_equal(lazy[part].scores, copied[part].scores)
        assert np.array_equal(lazy[part].rank(y[rows][part]), copied[part].rank(y[rows][part]))
    lazy_model = sl.SplitConformal("aps", calibration=0.5).fit(scores, y)
    assert lazy_model.predict_set(scores, accuracy=0.8) == sets
