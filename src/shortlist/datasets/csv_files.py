"""CSV files of rows. Labels are read as text, and lists are written in JSON."""

from __future__ import annotations

import csv
import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from shortlist._utils.extras import require
from shortlist._utils.labels import format_label
from shortlist.datasets.bad_rows import Defects, SkippedRows, valid_mask, without_bad_rows
from shortlist.datasets.column_roles import DEFAULT_ROLES, ColumnRoles, InvalidColumnsError
from shortlist.datasets.columns import (
    FEATURE_PREFIX,
    LIST_COLUMNS,
    NO_ROWS,
    check_column_names,
    rows_from_frame,
)
from shortlist.datasets.rows import Rows

if TYPE_CHECKING:
    import pandas as pd

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>", "#N/A")
"""Text that means a missing number in a column of numbers. In a column of labels it is a label."""

SEPARATORS = (";", "\t", "|")
"""Separators of values that are not read, and are named in a message."""


def read_csv(
    path: Path | None,
    block_rows: int | None,
    roles: ColumnRoles = DEFAULT_ROLES,
    skipped: SkippedRows | None = None,
) -> Iterator[Rows]:
    """Yield the rows of a CSV file, or of the standard input if `path` is None.

    A block has at most `block_rows` rows. With None, all rows are one block. Bad rows are left out
    and counted if `skipped` is given.
    """
    name = "the standard input" if path is None else path.name
    is_empty = True
    try:
        with _open(path) as text:
            for frame in _frames(text, block_rows, name, roles):
                is_empty = False
                yield _rows_of(frame, name, roles, skipped)
    except InvalidColumnsError:
        raise
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not encoded in UTF-8 ({error.reason}); convert it") from error
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


def _frames(
    text: TextIO, block_rows: int | None, name: str, roles: ColumnRoles
) -> Iterator[pd.DataFrame]:
    """Yield data frames of at most `block_rows` rows.

    Labels, groups and identifiers are read as text: pandas would read "NA" as a missing value, and
    "01" as 1. Columns that are features, too, are numbers.
    """
    require("pandas", "reading CSV files")
    import pandas as pd

    # pandas would rename columns that have no name or the same name, so names are checked here.
    header = next((row for row in csv.reader(text) if row), [])
    if not header:
        return
    _check_separator(header, name)
    header = check_column_names(header, name, roles)
    as_text = [c for c in roles.not_scores if not c.startswith(FEATURE_PREFIX) or c in roles.ignore]
    blocks = pd.read_csv(
        text,
        header=None,
        names=header,
        index_col=False,  # By default, pandas takes the first value of a long row as an index.
        dtype=dict.fromkeys(as_text, object),
        keep_default_na=False,
        na_values={column: list(MISSING) for column in header if column not in as_text},
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


def _check_separator(header: Sequence[str], name: str) -> None:
    """Raise if all names are in one value, between separators other than commas."""
    other = next((mark for mark in SEPARATORS if len(header) < 3 and mark in header[0]), None)
    if other is not None:
        raise InvalidColumnsError(
            f"{name}: the values must be separated by commas, but the header has {other!r} in "
            f"{format_label(header[0])}; write the file with commas, and decimals with points"
        )


def _rows_of(
    frame: pd.DataFrame, name: str, roles: ColumnRoles, skipped: SkippedRows | None
) -> Rows:
    """Return the rows of a data frame whose lists are text."""
    frame = frame.drop(columns=list(roles.ignore))
    columns = [c for c in LIST_COLUMNS if c in frame and c not in (roles.label, roles.groups)]
    lists = {c: [_parse_list(value) for value in frame[c]] for c in columns}
    if skipped is None:
        _check_lists(lists, frame, name)
    else:
        frame = _numbers_where_most_are(frame, (*roles.not_scores, *columns))
        defects = _unreadable_rows(frame, lists, roles)
        skipped.add(defects, frame.index.to_numpy())
        mask = valid_mask(len(frame), defects)
        if not mask.any():
            return NO_ROWS
        frame = frame[mask]
        lists = {c: [row for row, ok in zip(v, mask, strict=True) if ok] for c, v in lists.items()}
    rows = rows_from_frame(
        frame.drop(columns=columns),
        cast("Mapping[str, list[list[object]]]", lists),
        name,
        roles,
        labels_as_text=True,
    )
    rows = replace(
        rows,
        groups=None if roles.groups is None else frame[roles.groups].to_numpy(),
        extra={column: frame[column].to_numpy() for column in roles.keep} or None,
        numbers=None if skipped is None else frame.index.to_numpy(),
    )
    return rows if skipped is None else without_bad_rows(rows, skipped)


def _parse_list(value: object) -> list[object] | None:
    """Parse a JSON list; return None for anything else."""
    try:
        row = json.loads(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return row if isinstance(row, list) else None


def _check_lists(
    lists: Mapping[str, list[list[object] | None]], frame: pd.DataFrame, name: str
) -> None:
    """Raise if a row has no list."""
    for column, rows in lists.items():
        if None in rows:
            at = rows.index(None)
            raise InvalidColumnsError(
                f"{name}: {column} of row {at} is not a list: {str(frame[column].iloc[at])[:60]!r}"
            )


def _numbers_where_most_are(frame: pd.DataFrame, text_columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame in which text among numbers is a missing number."""
    import pandas as pd

    frame = frame.copy()
    for column in frame.columns:
        if column in text_columns or frame[column].dtype.kind in "fiub":
            continue
        numbers = pd.to_numeric(frame[column], errors="coerce")
        if 2 * int(numbers.isna().sum()) <= len(numbers):
            frame[column] = numbers
    return frame


def _unreadable_rows(
    frame: pd.DataFrame, lists: Mapping[str, list[list[object] | None]], roles: ColumnRoles
) -> Defects:
    """Find rows without a label, a group or a list, and with lists of different lengths."""
    defects: Defects = {}
    if {"labels", "scores"} <= set(lists):
        pairs = zip(lists["labels"], lists["scores"], strict=True)
        for i, (labels, scores) in enumerate(pairs):
            if labels is not None and scores is not None and len(labels) != len(scores):
                defects[i] = f"there are {len(labels)} labels, but {len(scores)} scores"
    for column, rows in lists.items():
        defects |= {i: f"{column} is not a list" for i, row in enumerate(rows) if row is None}
    for name in (roles.groups, roles.label):
        if name in frame:
            missing = (frame[name].isna() | (frame[name] == "")).to_numpy(dtype=bool)
            defects |= {int(i): f"{name} is missing" for i in missing.nonzero()[0]}
    return defects
