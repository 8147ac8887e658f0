"""Files of rows: .npz, folders of .npy, Parquet, CSV, and CSV on the standard input.

Files of arrays have the arrays `scores`, `y`, `features` and `classes`, and for candidates also
`labels`. Tables have a column `y`, and scores either in a column `scores` of lists or in one column
for each class. Candidates have a column `labels` of lists beside `scores`. Features are in a column
`features` of lists or in columns `x_…`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shortlist._utils.validation import check_choice
from shortlist.datasets.array_files import read_arrays
from shortlist.datasets.bad_rows import ON_BAD_ROWS, SkippedRows, without_bad_rows
from shortlist.datasets.column_roles import ColumnRoles, InvalidColumnsError
from shortlist.datasets.csv_files import read_csv
from shortlist.datasets.parquet_files import read_parquet
from shortlist.datasets.rows import BLOCK_ROWS, Rows

STDIN = "-"
SUFFIXES = (".npz", ".parquet", ".csv")


def read_rows(
    path: str | os.PathLike[str],
    *,
    label: str = "y",
    groups: str | None = None,
    ignore: Sequence[str] = (),
    keep: Sequence[str] = (),
    on_bad_rows: str = "raise",
) -> Rows:
    """Read rows from a file or a folder.

    The suffix determines the format. Nothing in the file is executed. Arrays in a folder are
    memory-mapped.

    Parameters
    ----------
    path : path
        A file (.npz, .parquet or .csv), a folder of .npy files, or "-" for CSV on the standard
        input. See the page "Data" of the documentation for the arrays and columns.
    label : str, default="y"
        Name of the column (or array) of true labels.
    groups : str, optional
        Name of the column of groups, for guarantees conditional on groups.
    ignore : sequence of str, default=()
        Names of columns to leave out.
    keep : sequence of str, default=()
        Names of columns to return in `Rows.extra`, such as an identifier. They are not scores.
    on_bad_rows : {"raise", "skip"}, default="raise"
        Whether a row without a label, or with a missing or infinite number, raises an error (here
        or when it is used) or is left out with a warning. `Rows.numbers` are then the numbers of
        the other rows.

    Returns
    -------
    Rows
        All rows. Names, shapes and types are checked here, values when they are used.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, does not contain rows, or lacks a column.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/mine.npz", scores=[[0.1, 0.9], [0.7, 0.3]], y=[1, 0])
    ...     read_rows(f"{folder}/mine.npz")
    Rows(2 rows, 2 classes)
    """
    roles = ColumnRoles(label, groups, tuple(ignore), tuple(keep))
    (rows,) = _read(path, None, roles, on_bad_rows)
    return rows


def stream_rows(
    path: str | os.PathLike[str],
    block_rows: int | None = None,
    *,
    label: str = "y",
    groups: str | None = None,
    ignore: Sequence[str] = (),
    keep: Sequence[str] = (),
    on_bad_rows: str = "raise",
) -> Iterator[Rows]:
    """Read rows in blocks, for files that are larger than memory.

    Parameters
    ----------
    path : path
        A file or a folder, as for :func:`read_rows`. An .npz file is read completely, other
        formats block by block.
    block_rows : int, optional
        Maximum number of rows in a block; by default 50,000.
    label : str, default="y"
        Name of the column of true labels.
    groups : str, optional
        Name of the column of groups.
    ignore : sequence of str, default=()
        Names of columns to leave out.
    keep : sequence of str, default=()
        Names of columns to return in `Rows.extra`.
    on_bad_rows : {"raise", "skip"}, default="raise"
        Whether bad rows raise an error or are left out, as for :func:`read_rows`. The warning
        follows the last block.

    Yields
    ------
    Rows
        The next block.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, does not contain rows, or lacks a column.
    """
    roles = ColumnRoles(label, groups, tuple(ignore), tuple(keep))
    yield from _read(path, block_rows or BLOCK_ROWS, roles, on_bad_rows)


def _read(
    path: str | os.PathLike[str], block_rows: int | None, roles: ColumnRoles, on_bad_rows: str
) -> Iterator[Rows]:
    """Yield blocks of rows, or a single block if `block_rows` is None."""
    check_choice(on_bad_rows, "on_bad_rows", ON_BAD_ROWS)
    if on_bad_rows == "raise":
        yield from _read_blocks(path, block_rows, roles, None)
        return
    skipped, is_empty = SkippedRows(), True
    name = ""
    for rows in _read_blocks(path, block_rows, roles, skipped):
        name = rows.name or name
        if len(rows):
            is_empty = False
            yield rows
    if is_empty:
        raise InvalidColumnsError(
            f"{os.fspath(path)}: all {skipped.count:,} rows are bad; the first is {skipped.first}"
        )
    skipped.warn(name)


def _read_blocks(
    path: str | os.PathLike[str],
    block_rows: int | None,
    roles: ColumnRoles,
    skipped: SkippedRows | None,
) -> Iterator[Rows]:
    """Return an iterator over blocks of rows, or over a single block if `block_rows` is None."""
    text = os.fspath(path)
    file = Path(text)
    if text == STDIN:
        return read_csv(None, block_rows, roles, skipped)
    if not file.exists():
        raise FileNotFoundError(f"there is no file or folder at {text!r}")
    if file.is_dir() or file.suffix == ".npz":
        rows = read_arrays(file, roles)
        if skipped is not None:
            rows = replace(rows, numbers=np.arange(len(rows)))
        blocks = rows.blocks(len(rows) if block_rows is None else block_rows)
        return (b if skipped is None else without_bad_rows(b, skipped) for b in blocks)
    if file.suffix == ".csv":
        return read_csv(file, block_rows, roles, skipped)
    if file.suffix == ".parquet":
        return read_parquet(file, block_rows, roles, skipped)
    raise ValueError(
        f"{file.name} cannot be read: the format must be {', '.join(SUFFIXES)}, a folder of .npy, "
        f"or {STDIN} for CSV on the standard input"
    )
