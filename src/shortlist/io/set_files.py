"""Sets that go out to files: Parquet, CSV or JSON lines, a block of rows after the other."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.arrays import row_blocks
from shortlist._utils.atomic_write import atomic_write
from shortlist.sets import PredictionSets

if TYPE_CHECKING:
    import pyarrow as pa

STANDARD = "-"
ENDINGS_OUT = (".parquet", ".csv", ".jsonl")


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
    check_folder(file)


def check_folder(path: Path) -> None:
    """Raise if nothing can be written there: before the work, not after."""
    above = path.absolute().parent
    while not above.exists():  # missing folders are made
        above = above.parent
    if not above.is_dir() or not os.access(above, os.W_OK):
        reason = "may not be written to" if above.is_dir() else "is no folder"
        raise OSError(f"nothing can be written to {str(path)!r}: {str(above)!r} {reason}")


@contextmanager
def sets_writer(path: str | os.PathLike[str], guarantee: str) -> Iterator[Writer]:
    """A function that takes sets, block by block, and writes them; the file is whole or absent.

    Columns: `row`, `size`, `labels` (a list; in CSV a JSON list). The guarantee is kept in the
    metadata of Parquet.
    """
    text = os.fspath(path)
    if text == STANDARD:
        yield lambda sets, first: _lines(sets, first, sys.stdout)
        sys.stdout.flush()
        return
    with atomic_write(text) as aside:
        if Path(text).suffix == ".parquet":
            with _parquet_writer(aside, guarantee) as write:
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


def sets_table(sets: PredictionSets, numbers: NDArray[np.int64]) -> pa.Table:
    """Sets as a table: the number of each row, its size and its labels."""
    import pyarrow as pa

    sizes = np.asarray(sets.sizes, dtype=np.int64)
    classes = np.asarray(sets.classes)
    values = pa.array(
        classes.astype(np.int64) if classes.dtype.kind in "iu" else map(str, classes.tolist())
    )
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.table(
        {
            "row": pa.array(numbers),
            "size": pa.array(sizes.astype(np.int32)),
            "labels": pa.ListArray.from_arrays(ends, values.take(pa.array(sets.indices))),
        }
    )


@contextmanager
def _parquet_writer(path: Path, guarantee: str) -> Iterator[Writer]:
    from pyarrow import parquet

    opened: list[parquet.ParquetWriter] = []

    def write(sets: PredictionSets, first: int) -> None:
        table = sets_table(sets, np.arange(first, first + len(sets)))
        if not opened:
            schema = table.schema.with_metadata({"guarantee": guarantee})
            opened.append(parquet.ParquetWriter(path, schema))
        opened[0].write_table(table.cast(opened[0].schema))

    try:
        yield write
    finally:
        for one in opened:
            one.close()
