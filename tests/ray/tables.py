"""Tables for the tests of the cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import shortlist as sl

CLASSES = 12
DATA = sl.datasets.gaussian(24_000, 0.25, n_classes=CLASSES, dimension=5, seed=3)
SCORES, Y = DATA.posterior.astype(np.float32), DATA.y
X = DATA.x.astype(np.float32)


def lists(matrix: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])


def candidates(depth: int = 5) -> tuple[np.ndarray, np.ndarray]:
    labels = np.argsort(-SCORES, axis=1, kind="stable")[:, :depth]
    return labels, np.take_along_axis(SCORES, labels, axis=1)


def write(folder: Path, *, depth: int | None = None, files: int = 3, group: int = 2000) -> Path:
    """The rows, in some files."""
    folder.mkdir(parents=True, exist_ok=True)
    for k, rows in enumerate(np.array_split(np.arange(len(Y)), files)):
        columns = {"id": pa.array([f"row {i}" for i in rows]), "y": Y[rows]}
        if depth is None:
            columns |= {"scores": lists(SCORES[rows]), "features": lists(X[rows])}
        else:
            labels, scores = candidates(depth)
            columns |= {"labels": lists(labels[rows]), "scores": lists(scores[rows])}
        table = pa.table(columns)
        parquet.write_table(table, folder / f"part-{k}.parquet", row_group_size=group)
    return folder


def workers(name: bytes) -> list[int]:
    """Processes of Ray on this machine that do what is named."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if command.startswith(b"ray::") and name in command:
            found.append(int(folder.name))
    return found
