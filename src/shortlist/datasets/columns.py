"""Rows from named columns: scores, candidates, labels and features are found by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.frames import check_distinct, format_names, whole_numbers
from shortlist.datasets.bad_rows import (
    Defects,
    SkippedRows,
    missing_values,
    unequal_lengths,
    valid_mask,
    without_bad_rows,
)
from shortlist.datasets.column_roles import DEFAULT_ROLES, ColumnRoles, InvalidColumnsError
from shortlist.datasets.rows import Rows, RowValues, is_numbered

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FEATURE_PREFIX = "x_"
"""Columns whose names begin with this prefix are features."""
LIST_COLUMNS = ("scores", "labels", "features")
"""Columns that have a list in each row."""


NO_ROWS = Rows(np.empty((0, 0)))
"""A block whose rows are all bad."""


def check_column_names(names: Sequence[str], name: str, roles: ColumnRoles) -> list[str]:
    """Return the names of all columns of the file `name`.

    A column without a name is called "Unnamed: 0" if it is the first one, as by pandas. It must
    have a role.

    Raises
    ------
    ValueError
        If a column has no name, or two have the same.
    """
    called = [column or f"Unnamed: {i}" for i, column in enumerate(names)]
    for column, own in zip(called, names, strict=True):
        if not own and column not in roles.not_scores:
            raise InvalidColumnsError(
                f"{name}: column {called.index(column)} has no name; name it, write with "
                "index=False if it is the index of a pandas frame, or pass "
                f"ignore=[{column!r}] to leave it out"
            )
    check_distinct(called, name, verb="has")
    roles.check(called, name)
    return called


def rows_from_table(
    table: pa.Table,
    name: str,
    roles: ColumnRoles = DEFAULT_ROLES,
    skipped: SkippedRows | None = None,
    start: int = 0,
) -> Rows:
    """Return the rows of an Arrow table.

    Parameters
    ----------
    table : pyarrow.Table
        The table.
    name : str
        Name of the file, for error messages.
    roles : ColumnRoles, optional
        Columns that are not scores.
    skipped : SkippedRows, optional
        Counts bad rows, which are left out. Without it, they raise an error.
    start : int, default=0
        Number of the first row in the file.

    Returns
    -------
    Rows
        The rows.
    """
    import pyarrow as pa

    check_column_names(table.schema.names, name, roles)
    table = table.drop_columns(list(roles.ignore))
    numbers = None
    if skipped is not None:
        numbers = np.arange(start, start + len(table))
        defects = _unreadable_rows(table, roles)
        skipped.add(defects, numbers)
        mask = valid_mask(len(table), defects)
        table, numbers = table.filter(mask), numbers[mask]
        if not len(table):
            return NO_ROWS
    extra = {column: _values(table[column]) for column in roles.keep}
    groups = None if roles.groups is None else _values(table[roles.groups])
    lists = {}
    for field in table.schema:
        if (
            pa.types.is_list(field.type)
            or pa.types.is_large_list(field.type)
            or pa.types.is_fixed_size_list(field.type)
        ) and (field.name in LIST_COLUMNS or field.name not in roles.keep):
            lists[field.name] = _values_of_lists(
                table[field.name].combine_chunks(), field.name, name
            )
    rest = table.drop_columns(list(lists)) if lists else table
    rows = rows_from_frame(rest.to_pandas(), lists, name, roles)
    rows = replace(rows, groups=groups, extra=extra or None, numbers=numbers)
    return rows if skipped is None else without_bad_rows(rows, skipped)


def _values(column: pa.ChunkedArray) -> NDArray[np.generic]:
    """Return a column as an array: of Python objects, unless all values are numbers."""
    import pyarrow as pa

    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    values: NDArray[np.generic]
    if is_number and not column.null_count:
        values = column.to_numpy()
    else:
        values = np.empty(len(column), dtype=object)
        values[:] = column.to_pylist()
    return values


def _unreadable_rows(table: pa.Table, roles: ColumnRoles) -> Defects:
    """Find rows without a label, a group or a list, and with lists of different lengths."""
    required = [roles.label, roles.groups, *LIST_COLUMNS]
    columns = [column for column in table.schema.names if column in required]
    defects = missing_values(table, [c for c in columns if c not in roles.keep])
    if {"labels", "scores"} <= set(columns) - set(roles.not_scores):
        defects = unequal_lengths(table) | defects
    return defects


def _values_of_lists(column: pa.Array, column_name: str, name: str) -> RowValues:
    """Return a column of lists: as a matrix if all have the same length, else as nested lists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    if column.null_count:
        at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidColumnsError(f"{name}: {column_name} of row {at} is missing; give a list")
    flat = column.flatten()
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    # In a matrix, a missing score becomes NaN, which the score of padding may be. A missing label
    # is padding, which a matrix cannot represent.
    has_padding = flat.null_count and column_name == "labels"
    if has_padding or pa.types.is_string(flat.type) or (lengths != lengths[0]).any():
        rows: list[list[object]] = column.to_pylist()
        return rows
    matrix: NDArray[np.generic] = flat.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return matrix


def rows_from_frame(
    frame: pd.DataFrame,
    lists: Mapping[str, RowValues],
    name: str,
    roles: ColumnRoles = DEFAULT_ROLES,
    *,
    labels_as_text: bool = False,
) -> Rows:
    """Return the rows of a data frame and of columns of lists.

    Parameters
    ----------
    frame : DataFrame
        Columns with one value in each row.
    lists : mapping of str to matrix or nested lists
        Columns with one list in each row, by name.
    name : str
        Name of the file, for error messages.
    roles : ColumnRoles, optional
        Columns that are not scores.
    labels_as_text : bool, default=False
        Whether labels are text. They become integers if all classes are written as integers.

    Returns
    -------
    Rows
        The rows.

    Raises
    ------
    InvalidColumnsError
        If the columns do not form rows.
    """
    names = [str(column) for column in frame.columns]
    frame = frame.set_axis(names, axis=1)
    y = _true_labels(frame[roles.label], name) if roles.label in names else None
    names = [column for column in names if column not in (roles.label, *roles.ignore)]
    feature_names = [column for column in names if column.startswith(FEATURE_PREFIX)]
    features = _as_matrix(lists["features"], "features", name) if "features" in lists else None
    if features is None and feature_names:
        rule = f"{name}: features must be numbers"
        features = _numeric_columns(frame, feature_names, rule)
    labels = lists.get("labels") if "scores" in lists else None
    scores: RowValues
    classes: NDArray[np.generic] | None = None
    if "scores" in lists:
        scores = lists["scores"]
        if labels is None:
            scores = _as_matrix(scores, "scores", name)
        else:
            _check_lengths(labels, scores, name)
        numbered = labels is None or is_numbered(labels)
    else:
        other = (*roles.not_scores, *lists)
        columns = [c for c in names if c not in other and not c.startswith(FEATURE_PREFIX)]
        rule = (
            f"{name}: columns other than {roles.label} and {FEATURE_PREFIX}… must be the scores of "
            "classes"
        )
        if len(columns) < 2:
            raise InvalidColumnsError(f"{rule}, at least two; there are {len(columns)} of them")
        scores = _numeric_columns(frame, columns, rule)
        numbered = whole_numbers(columns) is not None
    if labels_as_text and y is not None and numbered:
        y = _as_integers(y)
    if "scores" not in lists:
        classes = _class_names(columns, y)
    return Rows(
        scores, labels, y, features, classes, name=name, feature_names=feature_names or None
    )


def _check_lengths(labels: RowValues, scores: RowValues, name: str) -> None:
    """Raise if a row does not have one score for each candidate."""
    for at, (row, values) in enumerate(zip(labels, scores, strict=True)):
        if len(row) != len(values):
            raise InvalidColumnsError(
                f"{name}: row {at} has {len(row)} labels, but {len(values)} scores"
            )


def _class_names(columns: list[str], y: NDArray[np.generic] | None) -> NDArray[np.generic]:
    """Return the names of score columns as classes: integers if the labels are, else strings."""
    if y is None or y.dtype.kind in "iu":
        return _as_integers(np.array(columns, dtype=object))
    return np.array(columns, dtype=np.str_)


def _true_labels(column: pd.Series, name: str) -> NDArray[np.generic]:
    """Return the true labels; raise if one is missing."""
    missing = (column.isna() | (column == "")).to_numpy(dtype=bool)
    if missing.any():
        at = int(missing.argmax())
        raise InvalidColumnsError(
            f"{name}: {column.name} of row {at} is missing; leave such rows out with "
            'on_bad_rows="skip"'
        )
    return column.to_numpy()


def _as_integers(labels: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return labels as integers if all are written as 64-bit integers, else as strings."""
    distinct = list(dict.fromkeys(labels.tolist()))
    numbers = whole_numbers(distinct)
    if numbers is None or max(map(abs, numbers)) >= 2**63:
        return labels.astype(np.str_)
    number = dict(zip(distinct, numbers, strict=True))
    return np.array([number[label] for label in labels.tolist()], dtype=np.int64)


def _as_matrix(values: RowValues, column: str, name: str) -> NDArray[np.generic]:
    """Return lists of numbers as a matrix."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        return values
    if len({len(row) for row in values}) != 1:
        raise InvalidColumnsError(f"{name}: {column} differ in length from row to row")
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidColumnsError(f"{name}: {column} must be numbers") from None


def _numeric_columns(frame: pd.DataFrame, columns: list[str], rule: str) -> NDArray[np.generic]:
    """Return columns as a matrix; raise with the violated rule if one is not numeric."""
    others = [column for column in columns if frame[column].dtype.kind not in "fiub"]
    if others:
        column = others[0]
        remedy = f"ignore=[{column!r}] leaves it out"
        if not column.startswith(FEATURE_PREFIX):
            remedy = (
                f"pass label={column!r} for true labels, keep=[{column!r}] for an identifier, "
                f"ignore=[{column!r}] to leave it out"
            )
        more = f" (neither: {format_names(others[1:])})" if len(others) > 1 else ""
        raise InvalidColumnsError(f"{rule}; {column!r} is not numeric{more}: {remedy}")
    types = {frame[column].dtype for column in columns}
    return frame[columns].to_numpy(dtype=None if len(types) == 1 else np.float64)
