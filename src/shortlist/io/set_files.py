"""Write files of prediction sets block by block, as Parquet, CSV or JSON lines."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.atomic_write import atomic_write, check_target
from shortlist._utils.blocks import row_blocks
from shortlist._utils.extras import require
from shortlist._utils.staging import PART, staging
from shortlist.io.model_folder import check_replaceable
from shortlist.sets import PredictionSets

if TYPE_CHECKING:
    import pyarrow as pa

Columns: TypeAlias = "Mapping[str, NDArray[np.generic]]"
SetsWriter: TypeAlias = "Callable[[PredictionSets, NDArray[np.int64], Columns], None]"
"""Function that writes the sets of rows, given their numbers and other columns of the same rows."""

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
        If the name has another ending, or the path is a folder.
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
    check_target(file, overwrite=force, example=f"a{endings[0]}")
    if file.suffix == ".parquet":
        require("pyarrow", "writing Parquet files")
    check_folder(file)


def check_folder(path: Path) -> None:
    """Raise an `OSError` if nothing can be written to a path, before any work is done.

    A file of the same name is created for a moment in a temporary folder beside the path.
    """
    parent = path.absolute().parent
    while not parent.exists():  # Missing folders are created when the file is written.
        parent = parent.parent
    if not parent.is_dir():
        raise NotADirectoryError(
            f"nothing can be written to {str(path)!r}: {str(parent)!r} is not a folder"
        )
    try:
        with staging(parent, path.name, PART) as folder:
            (folder / path.name).touch()
    except OSError as error:
        raise type(error)(f"nothing can be written to {str(path)!r}: {error.strerror}") from None


def check_model_folder(path: Path, *, force: bool) -> None:
    """Raise if a model cannot be saved to a folder, before any work is done.

    Parameters
    ----------
    path : Path
        Folder of the model.
    force : bool
        Whether a model that is there may be replaced.

    Raises
    ------
    FileExistsError
        If the folder exists and `force` is false, or if it contains something else than a model.
    OSError
        If nothing can be written there.
    """
    if path.exists():
        if not force:
            raise FileExistsError(f"{str(path)!r} exists; use --force to replace it")
        check_replaceable(path)
    check_folder(path)


@contextmanager
def sets_writer(
    path: str | os.PathLike[str], guarantee: str, columns: tuple[str, ...] = ()
) -> Iterator[SetsWriter]:
    """Yield a function that writes the sets of a block of rows.

    The file appears when the context ends, if no error was raised.

    Parameters
    ----------
    path : path-like
        File to write, which ends in .parquet, .csv or .jsonl, or "-" for JSON lines on the standard
        output. The columns are `row`, `columns`, `size` and `labels`, which is a list (in CSV, as
        JSON).
    guarantee : str
        Guarantee of the sets, for the metadata of a Parquet file.
    columns : tuple of str, default=()
        Names of other columns of each row.

    Yields
    ------
    callable
        Function of sets, the numbers of their rows, and the other columns.
    """
    text = os.fspath(path)
    if text == STDOUT:
        yield lambda *block: _write_json_lines(sys.stdout, *block)
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
                yield lambda *block: _write_json_lines(file, *block)
            else:
                header = ["row", *columns, "size", "labels"]
                csv.writer(file, lineterminator="\n").writerow(header)
                yield lambda *block: _write_csv(file, *block)


def _records(
    sets: PredictionSets, numbers: NDArray[np.int64], columns: Columns
) -> Iterator[dict[str, object]]:
    """Yield the record of each row."""
    for rows in row_blocks(len(sets), 100):
        extra = {name: values[rows].tolist() for name, values in columns.items()}
        for i, labels in enumerate(sets[rows].labels()):
            yield {
                "row": int(numbers[rows.start + i]),
                **{name: values[i] for name, values in extra.items()},
                "size": len(labels),
                "labels": [v.item() if isinstance(v, np.generic) else v for v in labels],
            }


def _write_json_lines(
    file: TextIO, sets: PredictionSets, numbers: NDArray[np.int64], columns: Columns
) -> None:
    for record in _records(sets, numbers, columns):
        print(json.dumps(record, ensure_ascii=False, default=str), file=file)


def _write_csv(
    file: TextIO, sets: PredictionSets, numbers: NDArray[np.int64], columns: Columns
) -> None:
    writer = csv.writer(file, lineterminator="\n")
    for record in _records(sets, numbers, columns):
        labels = json.dumps(record.pop("labels"), ensure_ascii=False, default=str)
        writer.writerow([*record.values(), labels])


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
    import pyarrow as pa
    from pyarrow import parquet

    writers: list[parquet.ParquetWriter] = []  # One, which the first block opens with its schema.

    def write(sets: PredictionSets, numbers: NDArray[np.int64], columns: Columns) -> None:
        table = sets_table(sets, numbers)
        for i, (name, values) in enumerate(columns.items()):
            column = pa.array(values.tolist(), from_pandas=True)
            if pa.types.is_null(column.type):  # All values of the first block are missing.
                column = column.cast(pa.string())
            table = table.add_column(1 + i, name, column)
        if not writers:
            schema = table.schema.with_metadata({"guarantee": guarantee})
            writers.append(parquet.ParquetWriter(path, schema))
        writers[0].write_table(table.cast(writers[0].schema))

    try:
        yield write
    finally:
        for writer in writers:
            writer.close()
