"""Files of rows: .npz, folders of .npy, Parquet, CSV, and CSV on the standard input.

Files of arrays have the arrays `scores`, `y`, `features` and `classes`, and for candidates also
`labels`. Tables have a column `y`, and scores either in a column `scores` of lists or in one column
for each class. Candidates have a column `labels` of lists beside `scores`. Features are in a column
`features` of lists or in columns `x_…`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from shortlist.datasets.array_files import read_arrays
from shortlist.datasets.csv_files import read_csv
from shortlist.datasets.parquet_files import read_parquet
from shortlist.datasets.rows import BLOCK_ROWS, Rows

STDIN = "-"
SUFFIXES = (".npz", ".parquet", ".csv")


def read_rows(path: str | os.PathLike[str]) -> Rows:
    """Read rows from a file or a folder.

    The suffix determines the format. Nothing in the file is executed. Arrays in a folder are
    memory-mapped.

    Parameters
    ----------
    path : path
        A file (.npz, .parquet or .csv), a folder of .npy files, or "-" for CSV on the standard
        input. See the page "Data" of the documentation for the arrays and columns.

    Returns
    -------
    Rows
        All rows. Names, shapes and types are checked here, values when they are used.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, or does not contain rows.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/mine.npz", scores=[[0.1, 0.9], [0.7, 0.3]], y=[1, 0])
    ...     read_rows(f"{folder}/mine.npz")
    Rows(2 rows, 2 classes)
    """
    (rows,) = _read(path, None)
    return rows


def stream_rows(path: str | os.PathLike[str], block_rows: int | None = None) -> Iterator[Rows]:
    """Read rows in blocks, for files that are larger than memory.

    Parameters
    ----------
    path : path
        A file or a folder, as for :func:`read_rows`. An .npz file is read completely, other
        formats block by block.
    block_rows : int, optional
        Maximum number of rows in a block; by default 50,000.

    Yields
    ------
    Rows
        The next block.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, or does not contain rows.
    """
    yield from _read(path, block_rows or BLOCK_ROWS)


def _read(path: str | os.PathLike[str], block_rows: int | None) -> Iterator[Rows]:
    """Return an iterator over blocks of rows, or over a single block if `block_rows` is None."""
    text = os.fspath(path)
    file = Path(text)
    if text == STDIN:
        return read_csv(None, block_rows)
    if not file.exists():
        raise FileNotFoundError(f"there is no file or folder at {text!r}")
    if file.is_dir() or file.suffix == ".npz":
        rows = read_arrays(file)
        return rows.blocks(len(rows) if block_rows is None else block_rows)
    if file.suffix == ".csv":
        return read_csv(file, block_rows)
    if file.suffix == ".parquet":
        return read_parquet(file, block_rows)
    raise ValueError(
        f"{file.name} cannot be read: the format must be {', '.join(SUFFIXES)}, a folder of .npy, "
        f"or {STDIN} for CSV on the standard input"
    )
