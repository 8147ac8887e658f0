"""A small study: two of the four data sets, the figures with claims, two seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import shortlist as sl
from shortlist.datasets import gaussian
from shortlist.paper import Scale

TINY = Scale(
    name="tiny",
    seeds=2,
    points=2,
    refinements=1,
    selectors=2,
    fixed_weights=(0.1, 0.05),
    rows=None,
    sample_sizes=(100, 300),
    max_epochs=2,
    patience=2,
    classifier_epochs=3,
    classifier_rows=300,
    test_rows=300,
    average_all=True,
)
FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "wide")
CLASSES = {"cifar100": 18, "cifar10": 10}


def write_feature_files(folder: Path, names: list[str]) -> Path:
    """Write Gaussian classes under the names of the paper's data sets."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        data = gaussian(800, 0.6, seed=i, n_classes=CLASSES[name], dimension=20)
        splits = dict(zip(("fit", "select", "test"), data.split(300, 300), strict=True))
        arrays = {f"x_{split}": samples.x for split, samples in splits.items()}
        arrays |= {f"y_{split}": samples.y.astype(np.int16) for split, samples in splits.items()}
        np.savez(folder / f"{name}.npz", **arrays, classes=np.arange(CLASSES[name]))
    return folder


def to_frontier(rows) -> sl.Frontier:
    """Return the rows of a results table as a frontier."""
    return sl.Frontier(rows.accuracy, rows.mean_size, rows.parameter)
