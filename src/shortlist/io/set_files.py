"""Write files of prediction sets block by block, as Parquet, CSV or JSON lines."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.atomic_write import atomic_write
from shortlist._utils.blocks import row_blocks
from shortlist.sets import PredictionSets

if TYPE_CHECKING:
    import pyarrow as pa

SetsWriter: TypeAlias = Callable[[PredictionSets, int], None]
"""Function that writes the sets of consecutive rows, given the number of the first row."""

STDOUT = "-"
ENDINGS_OUT = (".parquet", ".csv", ".jsonl")


def check_output(path: str | os.PathLike[str], *, force: bool, endings: tuple[str, ...]) -> None:
    """Raise if a file cannot be written, before any work is done.

    Parameters
    ----------
    path : path-like
        File to write, or "-" for the standard output.
    force : bool
        Whether an existing file may be replaced.
    endings : tuple of str
        Endings that the name may have.

    Raises
    ------
    ValueError
        If the name has another ending.
    FileExistsError
        If the file exists and `force` is false.
    OSError
        If its folder is not writable.
    """
    text = os.fspath(path)
    if text == STDOUT:
        return
    file = Path(text)
    if file.suffix not in endings:
        raise ValueError(f"{file.name}: the name must end in one of: {', '.join(endings)}")
    if file.exists() and not force:
        raise FileExistsError(f"the file {text!r} exists; use --force to replace it")
    check_folder(file)


def check_folder(path: Path) -> None:
    """Raise an `OSError` if nothing can be written to a path, before any work is done."""
    parent = path.absolute().parent
    while not parent.exists():  # Missing folders are created when the file is written.
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        reason = "is not writable" if parent.is_dir() else "is not a folder"
        raise OSError(f"nothing can be written to {str(path)!r}: {str(parent)!r} {reason}")


@contextmanager
def sets_writer(path: str | os.PathLike[str], guarantee: str) -> Iterator[SetsWriter]:
    """Yield a function that writes the sets of a block of rows.

    The file appears when the context ends, if no error was raised.

    Parameters
    ----------
    path : path-like
        File to write, which ends in .parquet, .csv or .jsonl, or "-" for JSON lines on the standard
        output. The columns are `row`, `size` and `labels`, which is a list (in CSV, as JSON).
    guarantee : str
        Guarantee of the sets, for the metadata of a Parquet file.

    Yields
    ------
    callable
        Function of sets and the number of their first row.
    """
    text = os.fspath(path)
    if text == STDOUT:
        yield lambda sets, first: _write_json_lines(sets, first, sys.stdout)
        sys.stdout.flush()
        return
    suffix = Path(text).suffix
    if suffix not in ENDINGS_OUT:
        raise ValueError(f"{text!r} must end in one of: {', '.join(ENDINGS_OUT)}")
    with atomic_write(text) as temporary:
        if suffix == ".parquet":
            with _parquet_writer(temporary, guarantee) as write:
                yield write
            return
        with temporary.open("w", encoding="utf-8", newline="") as file:
            if suffix == ".jsonl":
                yield lambda sets, first: _write_json_lines(sets, first, file)
            else:
                file.write("row,size,labels\n")
                yield lambda sets, first: _write_csv(sets, first, file)


def _labels_by_row(sets: PredictionSets, first: int) -> Iterator[tuple[int, list[object]]]:
    for rows in row_blocks(len(sets), 100):
        for i, labels in enumerate(sets[rows].labels(), start=first + rows.start):
            yield i, [v.item() if isinstance(v, np.generic) else v for v in labels]


def _write_json_lines(sets: PredictionSets, first: int, file: TextIO) -> None:
    for row, labels in _labels_by_row(sets, first):
        record = {"row": row, "size": len(labels), "labels": labels}
        print(json.dumps(record, ensure_ascii=False, default=str), file=file)


def _write_csv(sets: PredictionSets, first: int, file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    for row, labels in _labels_by_row(sets, first):
        writer.writerow([row, len(labels), json.dumps(labels, ensure_ascii=False, default=str)])


def sets_table(sets: PredictionSets, numbers: NDArray[np.int64]) -> pa.Table:
    """Return an Arrow table with the number, the size and the labels of each row.

    Parameters
    ----------
    sets : PredictionSets
        Sets of the rows.
    numbers : int64 array of shape (n_rows,)
        Numbers of the rows.

    Returns
    -------
    pyarrow.Table
    """
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
def _parquet_writer(path: Path, guarantee: str) -> Iterator[SetsWriter]:
    from pyarrow import parquet

    writers: list[parquet.ParquetWriter] = []  # One, which the first block opens with its schema.

    def write(sets: PredictionSets, first: int) -> None:
        table = sets_table(sets, np.arange(first, first + len(sets)))
        if not writers:
            schema = table.schema.with_metadata({"guarantee": guarantee})
            writers.append(parquet.ParquetWriter(path, schema))
        writers[0].write_table(table.cast(writers[0].schema))

    try:
        yield write
    finally:
        for writer in writers:
            writer.close()
