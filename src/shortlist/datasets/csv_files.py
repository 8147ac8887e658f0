"""CSV files of rows. Labels are read as text, and lists are written in JSON."""

from __future__ import annotations

import csv
import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from shortlist.datasets.columns import (
    LIST_COLUMNS,
    InvalidColumnsError,
    check_column_names,
    rows_from_frame,
)
from shortlist.datasets.rows import Rows

if TYPE_CHECKING:
    import pandas as pd

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>", "#N/A")
"""Text that means a missing number in a column of numbers. In a column of labels it is a label."""


def read_csv(path: Path | None, block_rows: int | None) -> Iterator[Rows]:
    """Yield the rows of a CSV file, or of the standard input if `path` is None.

    A block has at most `block_rows` rows. With None, all rows are one block.
    """
    name = "the standard input" if path is None else path.name
    is_empty = True
    try:
        with _open(path) as text:
            for frame in _frames(text, block_rows, name):
                is_empty = False
                yield _rows_of(frame, name)
    except InvalidColumnsError:
        raise
    except (ValueError, csv.Error) as error:  # The errors of pandas are ValueErrors.
        reason = " ".join(str(error).split())[:150]
        raise ValueError(f"{name} is not a readable CSV file: {reason}") from error
    if is_empty:
        raise InvalidColumnsError(f"{name} has no rows")


@contextmanager
def _open(path: Path | None) -> Iterator[TextIO]:
    """Open a file, or the standard input if `path` is None."""
    if path is None:
        yield sys.stdin
        return
    with path.open(encoding="utf-8-sig", newline="") as text:
        yield text


def _frames(text: TextIO, block_rows: int | None, name: str) -> Iterator[pd.DataFrame]:
    """Yield data frames of at most `block_rows` rows.

    Labels are read as text: pandas would read "NA" as a missing value, and "01" as 1.
    """
    import pandas as pd

    # pandas would rename columns that have no name or the same name, so names are checked here.
    header = next((row for row in csv.reader(text) if row), [])
    check_column_names(header, name)
    blocks = pd.read_csv(
        text,
        header=None,
        names=header,
        index_col=False,  # By default, pandas takes the first value of a long row as an index.
        dtype={"y": object},
        keep_default_na=False,
        na_values={column: list(MISSING) for column in header if column != "y"},
        chunksize=block_rows or sys.maxsize,
    )
    with blocks:
        while True:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", pd.errors.ParserWarning)
                    frame = next(blocks)
            except (StopIteration, pd.errors.EmptyDataError):
                return
            except pd.errors.ParserWarning:
                raise InvalidColumnsError(
                    f"{name}: rows have more values than the {len(header)} names in the header; "
                    "name each column"
                ) from None
            if frame.empty:
                return
            yield frame


def _rows_of(frame: pd.DataFrame, name: str) -> Rows:
    """Return the rows of a data frame whose lists are text."""
    columns = [column for column in LIST_COLUMNS if column in frame.columns]
    lists = {column: _parse_lists(frame[column], column, name) for column in columns}
    return rows_from_frame(frame.drop(columns=columns), lists, name, labels_as_text=True)


def _parse_lists(column: pd.Series, column_name: str, name: str) -> list[list[object]]:
    """Parse the JSON list in each row."""
    lists = []
    for at, value in enumerate(column):
        try:
            row = json.loads(value) if isinstance(value, str) else None
        except ValueError:
            row = None
        if not isinstance(row, list):
            raise InvalidColumnsError(
                f"{name}: {column_name} of row {at} is not a list: {str(value)[:60]!r}"
            )
        lists.append(row)
    return lists
