"""Scores of a classifier that knows its probabilities: softmax of normal logits, labels from it.

The spread of a row's logits says how easy the row is. With 1,000 classes, sets of LAC at 90% hold
about five labels on average.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
BLOCK = 1 << 24


def draw(rows: int, classes: int, seed: int = 0, *, logits: bool = False) -> tuple[Floats, Labels]:
    """Probabilities (float32), or their logits, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    p = np.empty((rows, classes), dtype=np.float32)
    y = np.empty(rows, dtype=np.int64)
    step = max(1, BLOCK // classes)
    for start in range(0, rows, step):
        part = p[start : start + step]
        spread = rng.uniform(3, 10, size=(len(part), 1)).astype(np.float32)
        scores = spread * rng.standard_normal(part.shape, dtype=np.float32)
        noise = rng.standard_exponential(part.shape, dtype=np.float32).clip(min=1e-30)
        y[start : start + step] = (scores - np.log(noise)).argmax(axis=1)
        if logits:
            part[:] = scores
            continue
        part[:] = np.exp(scores - scores.max(axis=1, keepdims=True))
        part /= part.sum(axis=1, keepdims=True)
    return p, y


def write(folder: Path, rows: int, classes: int) -> None:
    """Rows to calibrate with, and new rows, as files that every library reads."""
    for seed, name in enumerate(("old", "new")):
        for kind in ("logits", "proba"):
            scores, y = draw(rows, classes, seed, logits=kind == "logits")
            np.save(folder / f"{name}_{kind}.npy", scores)
        np.save(folder / f"{name}_y.npy", y)


def read(folder: Path, name: str, kind: str, rows: int) -> tuple[Floats, Labels]:
    """The first rows of a file, in memory."""
    scores = np.load(folder / f"{name}_{kind}.npy", mmap_mode="r")[:rows]
    return np.array(scores), np.load(folder / f"{name}_y.npy")[:rows]
