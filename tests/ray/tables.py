"""Data and tables for the tests of the cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import shortlist as sl

N_CLASSES = 12
DATA = sl.datasets.gaussian(24_000, 0.25, n_classes=N_CLASSES, dimension=5, seed=3)
SCORES, Y = DATA.posterior.astype(np.float32), DATA.y
X = DATA.x.astype(np.float32)


def as_lists(matrix: np.ndarray) -> pa.Array:
    """Return a column with a row of the matrix in each row."""
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])


def candidates(depth: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels with the highest scores, and these scores."""
    labels = np.argsort(-SCORES, axis=1, kind="stable")[:, :depth]
    return labels, np.take_along_axis(SCORES, labels, axis=1)


def write_table(
    folder: Path, *, depth: int | None = None, files: int = 3, group_rows: int = 2000
) -> Path:
    """Write all rows to several files, with scores or with candidates."""
    folder.mkdir(parents=True, exist_ok=True)
    for k, rows in enumerate(np.array_split(np.arange(len(Y)), files)):
        columns = {"id": pa.array([f"row {i}" for i in rows]), "y": Y[rows]}
        if depth is None:
            columns |= {"scores": as_lists(SCORES[rows]), "features": as_lists(X[rows])}
        else:
            labels, scores = candidates(depth)
            columns |= {"labels": as_lists(labels[rows]), "scores": as_lists(scores[rows])}
        table = pa.table(columns)
        parquet.write_table(table, folder / f"part-{k}.parquet", row_group_size=group_rows)
    return folder


def find_workers(name: bytes) -> list[int]:
    """Return the process ids of Ray's workers on this machine whose command contains a name."""
    workers = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if command.startswith(b"ray::") and name in command:
            workers.append(int(folder.name))
    return workers


def read_labels(folder: Path) -> list[list[int]]:
    """Return the labels of all sets in a folder, in the order of the rows."""
    table = parquet.read_table(folder)
    return table.sort_by([("file", "ascending"), ("row", "ascending")])["labels"].to_pylist()
