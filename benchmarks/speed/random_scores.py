"""Synthetic scores of a classifier with correct probabilities.

The probabilities are the softmax of normal logits, and the labels are drawn from them. The standard
deviation of the logits of a row determines how easy the row is. With 1,000 classes, sets of LAC at
90% have about five labels on average.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
BLOCK_ELEMENTS = 1 << 24


def draw(rows: int, classes: int, seed: int = 0, *, logits: bool = False) -> tuple[Floats, Labels]:
    """Draw probabilities (float32) or their logits, and labels from the probabilities."""
    rng = np.random.default_rng(seed)
    scores = np.empty((rows, classes), dtype=np.float32)
    y = np.empty(rows, dtype=np.int64)
    step = max(1, BLOCK_ELEMENTS // classes)
    for start in range(0, rows, step):
        block = scores[start : start + step]
        spread = rng.uniform(3, 10, size=(len(block), 1)).astype(np.float32)
        z = spread * rng.standard_normal(block.shape, dtype=np.float32)
        noise = rng.standard_exponential(block.shape, dtype=np.float32).clip(min=1e-30)
        y[start : start + step] = (z - np.log(noise)).argmax(axis=1)
        if logits:
            block[:] = z
            continue
        block[:] = np.exp(z - z.max(axis=1, keepdims=True))
        block /= block.sum(axis=1, keepdims=True)
    return scores, y


def write(folder: Path, rows: int, classes: int) -> None:
    """Write calibration rows and new rows to files that every library can read."""
    for seed, name in enumerate(("calibration", "new")):
        for score_type in ("logits", "proba"):
            scores, y = draw(rows, classes, seed, logits=score_type == "logits")
            np.save(folder / f"{name}_{score_type}.npy", scores)
        np.save(folder / f"{name}_y.npy", y)


def read(folder: Path, name: str, score_type: str, rows: int) -> tuple[Floats, Labels]:
    """Read the first rows of a file into memory."""
    scores = np.load(folder / f"{name}_{score_type}.npy", mmap_mode="r")[:rows]
    return np.array(scores), np.load(folder / f"{name}_y.npy")[:rows]
