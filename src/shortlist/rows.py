"""Rows in files, of any format: scores or candidates, labels, features; and sets that go out.

| format | what is read |
|---|---|
| `.npz`, folder of `.npy` | arrays `scores`, `y`, `features`, `classes`; with `labels` beside `scores`: candidates |
| `.parquet`, `.csv`, `-` | columns: `y`; `scores` (a list), or one column for each class; `labels` beside a list of `scores`: candidates; `features` (a list), or columns `x_…` |
"""  # noqa: E501

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from shortlist._arrays import row_blocks
from shortlist._writing import written_whole
from shortlist.datasets import FeatureFile, load
from shortlist.datasets._files import read_archive
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

if TYPE_CHECKING:
    import pandas as pd

STANDARD = "-"
ENDINGS_IN = (".npz", ".parquet", ".csv")
ENDINGS_OUT = (".parquet", ".csv", ".jsonl")
BLOCK_ROWS = 50_000


@dataclass(frozen=True)
class Rows:
    """Rows with scores or candidates, and what else is known of them."""

    scores: NDArray[np.generic] | list[list[object]]
    labels: NDArray[np.generic] | list[list[object]] | None = None
    """The candidates' labels, if the scores are theirs."""
    y: NDArray[np.generic] | None = None
    features: NDArray[np.generic] | None = None
    classes: NDArray[np.generic] | None = None
    n_classes: int | None = None
    name: str = ""

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, rows: slice) -> Rows:
        return replace(
            self,
            scores=self.scores[rows],
            labels=None if self.labels is None else self.labels[rows],
            y=None if self.y is None else self.y[rows],
            features=None if self.features is None else self.features[rows],
        )

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Rows]:
        """A part of the rows after the other; of a folder, only that part is read."""
        for start in range(0, len(self), rows):
            yield self[slice(start, start + rows)]

    def given(self, classes: NDArray[np.generic] | None = None) -> NDArray[np.generic] | Ranking:
        """What a model takes: scores, or a ranking of the candidates.

        `classes` are those of the model, where the file itself does not name them.
        """
        if self.labels is None:
            return np.asarray(self.scores)
        names = self.classes if self.classes is not None else classes
        if names is not None and _counts_columns(names):
            return Ranking.from_candidates(self.labels, self.scores, len(names))
        if names is not None:
            return Ranking.from_candidates(self.labels, self.scores, classes=names)
        return Ranking.from_candidates(self.labels, self.scores, self._count())

    def _count(self) -> int:
        if self.n_classes is not None:
            return self.n_classes
        listed = [] if self.labels is None else self.labels
        numbers = [int(v) for row in listed for v in row]  # type: ignore[arg-type]
        return 1 + max([*numbers, -1 if self.y is None else int(np.max(self.y))])


def _counts_columns(names: NDArray[np.generic]) -> bool:
    return names.dtype.kind in "iu" and np.array_equal(names, np.arange(len(names)))


def read(path: str | os.PathLike[str]) -> Rows | FeatureFile:
    """Rows, or, if an .npz file holds the arrays of one, a feature file."""
    if Path(path).suffix == ".npz" and Path(path).is_file():
        arrays, _ = read_archive(Path(path))
        if "scores" not in arrays and any(name.startswith("x_") for name in arrays):
            return load(path, "features")
    return read_rows(path)


def read_rows(path: str | os.PathLike[str]) -> Rows:
    """Rows from a file or folder, or, from "-", CSV on the standard input."""
    text = os.fspath(path)
    if text == STANDARD:
        return _from_frame(_csv(sys.stdin, "the standard input"), "the standard input")
    file = Path(text)
    if not file.exists():
        raise FileNotFoundError(f"there is no file or folder at {text!r}")
    if file.is_dir():
        found = sorted(file.glob("*.npy"))
        arrays = {one.stem: _array(one) for one in found}
        return from_arrays(arrays, file.name)
    if file.suffix == ".npz":
        return from_arrays(read_archive(file)[0], file.name)
    if file.suffix == ".csv":
        return _from_frame(_csv(file, file.name), file.name)
    if file.suffix == ".parquet":
        return _from_frame(_parquet(file), file.name)
    raise ValueError(
        f"{file.name} cannot be read: known are {', '.join(ENDINGS_IN)}, folders of .npy, and - "
        "for CSV on the standard input"
    )


def _array(file: Path) -> NDArray[np.generic]:
    try:
        array: NDArray[np.generic] = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        words = " ".join(str(error).split())[:150]
        raise ValueError(f"{file.name} is not a readable .npy file: {words}") from error
    return array


def from_arrays(arrays: Mapping[str, NDArray[np.generic]], name: str) -> Rows:
    """Rows from named arrays."""
    there = f"it has: {', '.join(sorted(arrays)) or 'nothing'}"
    if "scores" not in arrays:
        raise ValueError(f"{name} has no array named scores; {there}")
    scores = arrays["scores"]
    labels: NDArray[np.generic] | None = arrays.get("labels")
    if scores.ndim != 2 or not len(scores):
        raise ValueError(f"{name}: scores must be (rows, classes); got shape {scores.shape}")
    if labels is not None and labels.shape != scores.shape:
        raise ValueError(
            f"{name}: labels and scores of candidates must have one shape; got {labels.shape} and "
            f"{scores.shape}"
        )
    for key in ("y", "features"):
        if key in arrays and (not arrays[key].ndim or len(arrays[key]) != len(scores)):
            raise ValueError(
                f"{name}: {key} has shape {arrays[key].shape}, but there are {len(scores)} rows"
            )
    count = arrays.get("n_classes")
    classes = arrays.get("classes")
    y = arrays.get("y")
    names: list[list[object]] | None = None
    if classes is not None and classes.dtype.kind in "US":
        if y is not None and y.dtype.kind in "iu":
            y = _named(y, classes, name)
        if labels is not None and labels.dtype.kind in "iu":
            names = _names_of(labels, classes, name)
    return Rows(
        scores if names is None else _trimmed(scores, names),
        labels if names is None else names,
        y,
        arrays.get("features"),
        classes,
        None if count is None else int(count),
        name,
    )


def _named(y: NDArray[np.generic], classes: NDArray[np.generic], name: str) -> NDArray[np.generic]:
    """Labels by their names, where a file numbers them and has names too."""
    numbers = np.asarray(y).astype(np.int64)
    wrong = (numbers < 0) | (numbers >= len(classes))
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(
            f"{name}: y[{at}] = {numbers[at]}, but there are {len(classes)} classes, counted from 0"
        )
    return classes[numbers]


def _names_of(
    labels: NDArray[np.generic], classes: NDArray[np.generic], name: str
) -> list[list[object]]:
    numbers = np.asarray(labels).astype(np.int64)
    if numbers.max(initial=-1) >= len(classes):
        raise ValueError(
            f"{name}: a label is {numbers.max()}, but there are {len(classes)} classes"
        )
    return [[classes[i] for i in row if i >= 0] for row in numbers.tolist()]


def _trimmed(scores: NDArray[np.generic], listed: list[list[object]]) -> list[list[object]]:
    """The scores of candidates without those that pad."""
    return [row[: len(names)] for row, names in zip(scores.tolist(), listed, strict=True)]


# Columns


def _csv(source: object, name: str) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_csv(source)  # type: ignore[call-overload, no-any-return]
    except (ValueError, UnicodeDecodeError) as error:  # what pandas raises is a ValueError
        words = " ".join(str(error).split())[:150]
        raise ValueError(f"{name} is not a readable CSV file: {words}") from error


def _parquet(file: Path) -> pd.DataFrame:
    import pandas as pd
    from pyarrow import ArrowInvalid

    try:
        return pd.read_parquet(file)
    except (ArrowInvalid, OSError, ValueError) as error:
        words = " ".join(str(error).split())[:150]
        raise ValueError(f"{file.name} is not a readable Parquet file: {words}") from error


def _from_frame(frame: pd.DataFrame, name: str) -> Rows:
    """Rows from columns."""
    if not len(frame):
        raise ValueError(f"{name} has no rows")
    columns = [str(column) for column in frame.columns]
    frame = frame.set_axis(columns, axis=1)
    y = frame["y"].to_numpy() if "y" in columns else None
    if "features" in columns:
        features = _lists(frame, "features", name)
        x = np.array(features, dtype=np.float64) if _even(features) else None
        if x is None:
            raise ValueError(f"{name}: features differ in length from row to row")
    else:
        own = [c for c in columns if c.startswith("x_")]
        x = frame[own].to_numpy(dtype=np.float64) if own else None
    if "scores" in columns:
        scores = _lists(frame, "scores", name)
        if "labels" in columns:
            return Rows(scores, _lists(frame, "labels", name), y, x, name=name)
        if not _even(scores):
            raise ValueError(f"{name}: scores differ in length from row to row, without labels")
        return Rows(np.array(scores, dtype=np.float64), None, y, x, name=name)
    named = [c for c in columns if c != "y" and not c.startswith("x_")]
    texts = [c for c in named if frame[c].dtype.kind not in "fiu"]
    if texts or len(named) < 2:
        raise ValueError(
            f"{name}: every column but y and x_… is the score of a class, a number; "
            + (f"{texts[0]!r} is not" if texts else f"there are {len(named)} of them")
        )
    return Rows(
        frame[named].to_numpy(dtype=np.float64),
        None,
        y,
        x,
        np.array(named, dtype=np.str_),
        name=name,
    )


def _lists(frame: pd.DataFrame, column: str, name: str) -> list[list[object]]:
    """A column of lists; of CSV, each a JSON list."""
    found = []
    for i, value in enumerate(frame[column]):
        try:
            listed = json.loads(value) if isinstance(value, str) else list(value)
        except (TypeError, ValueError):
            listed = None
        if not isinstance(listed, list):
            raise ValueError(f"{name}: {column} of row {i} is no list: {str(value)[:60]!r}")
        found.append(listed)
    return found


def _even(rows: list[list[object]]) -> bool:
    return len({len(row) for row in rows}) == 1


# Sets that go out


class Writer(Protocol):
    def __call__(self, sets: PredictionSets, first: int) -> None: ...


def check_output(path: str | os.PathLike[str], *, force: bool, endings: tuple[str, ...]) -> None:
    """Raise if a file cannot, or may not, be written."""
    text = os.fspath(path)
    if text == STANDARD:
        return
    file = Path(text)
    if file.suffix not in endings:
        raise ValueError(
            f"{file.name}: the format is told by the ending, which is one of: {', '.join(endings)}"
        )
    if file.exists() and not force:
        raise FileExistsError(f"there is a file at {text!r} already; say --force to replace it")


@contextmanager
def sets_writer(path: str | os.PathLike[str], promise: str) -> Iterator[Writer]:
    """A function that takes sets, block by block, and writes them; the file is whole or absent.

    Columns: `row`, `size`, `labels` (a list; in CSV a JSON list). The promise is kept in the
    metadata of Parquet.
    """
    text = os.fspath(path)
    if text == STANDARD:
        yield lambda sets, first: _lines(sets, first, sys.stdout)
        sys.stdout.flush()
        return
    with written_whole(text) as aside:
        if Path(text).suffix == ".parquet":
            with _parquet_writer(aside, promise) as write:
                yield write
            return
        with aside.open("w", encoding="utf-8", newline="") as file:
            if Path(text).suffix == ".jsonl":
                yield lambda sets, first: _lines(sets, first, file)
            else:
                file.write("row,size,labels\n")
                yield lambda sets, first: _cells(sets, first, file)


def _records(sets: PredictionSets, first: int) -> Iterator[tuple[int, list[object]]]:
    for rows in row_blocks(len(sets), 100):
        for i, labels in enumerate(sets[rows].labels(), start=first + rows.start):
            yield i, [v.item() if isinstance(v, np.generic) else v for v in labels]


def _lines(sets: PredictionSets, first: int, file: object) -> None:
    for row, labels in _records(sets, first):
        record = {"row": row, "size": len(labels), "labels": labels}
        print(json.dumps(record, ensure_ascii=False, default=str), file=file)  # type: ignore[call-overload]


def _cells(sets: PredictionSets, first: int, file: object) -> None:
    import csv

    writer = csv.writer(file, lineterminator="\n")  # type: ignore[arg-type]
    for row, labels in _records(sets, first):
        writer.writerow([row, len(labels), json.dumps(labels, ensure_ascii=False, default=str)])


@contextmanager
def _parquet_writer(path: Path, promise: str) -> Iterator[Writer]:
    import pyarrow as pa
    from pyarrow import parquet

    opened: list[parquet.ParquetWriter] = []

    def write(sets: PredictionSets, first: int) -> None:
        found = list(_records(sets, first))
        labels = [row for _, row in found]
        numbers = all(isinstance(v, int) for row in labels for v in row)
        listed = labels if numbers else [[str(v) for v in row] for row in labels]
        kind = pa.list_(pa.int64() if numbers else pa.string())
        table = pa.table(
            {
                "row": pa.array([row for row, _ in found], pa.int64()),
                "size": pa.array([len(row) for row in labels], pa.int32()),
                "labels": pa.array(listed, kind),
            }
        )
        if not opened:
            schema = table.schema.with_metadata({"promise": promise})
            opened.append(parquet.ParquetWriter(path, schema))
        opened[0].write_table(table.cast(opened[0].schema))

    try:
        yield write
    finally:
        for one in opened:
            one.close()
