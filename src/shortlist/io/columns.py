"""Files of columns: CSV and Parquet, whole or a part of the rows after the other."""

from __future__ import annotations

import csv
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
from numpy.typing import NDArray

from shortlist._utils import scratch as _scratch
from shortlist._utils.frames import check_distinct, whole_numbers
from shortlist.ranking.candidates import PADDING

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FEATURE = "x_"
"""What the names of features begin with."""
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>", "#N/A")
"""What stands for a missing number in a CSV file. As a label, each is one."""


@dataclass(frozen=True)
class Columns:
    """What was found in columns."""

    name: str
    scores: NDArray[np.generic] | Sequence[Sequence[object]]
    labels: NDArray[np.generic] | Sequence[Sequence[object]] | None
    y: NDArray[np.generic] | None
    features: NDArray[np.generic] | None
    feature_names: list[str] | None
    classes: NDArray[np.generic] | None


def csv_parts(file: Path | None, rows: int | None) -> Iterator[Columns]:
    """A CSV file (None: the standard input), at most so many rows at a time."""
    name = "the standard input" if file is None else file.name
    empty = True
    try:
        with _text_of(file) as text:
            for frame in _frames_of(text, rows, name):
                empty = False
                yield _of_frame(frame, name)
    except _Wrong:
        raise
    except (ValueError, csv.Error) as error:  # what pandas raises is a ValueError
        words = " ".join(str(error).split())[:150]
        raise ValueError(f"{name} is not a readable CSV file: {words}") from error
    if empty:
        raise _Wrong(f"{name} has no rows")


@contextmanager
def _text_of(file: Path | None) -> Iterator[TextIO]:
    if file is None:
        yield sys.stdin
        return
    with file.open(encoding="utf-8-sig", newline="") as text:
        yield text


def _frames_of(text: TextIO, rows: int | None, name: str) -> Iterator[pd.DataFrame]:
    """The rows of a CSV file as frames. Labels stay text: pandas would take "NA" for a missing
    value, and "01" for 1."""
    import pandas as pd

    # pandas renames columns that are there twice or have no name, so that it does not see them.
    header = next((row for row in csv.reader(text) if row), [])
    _check_names(header, name)
    parts = pd.read_csv(
        text,
        header=None,
        names=header,
        index_col=False,  # else, of rows that are longer than the header, the first value is one
        dtype={"y": object},
        keep_default_na=False,
        na_values={column: list(MISSING) for column in header if column != "y"},
        chunksize=rows or sys.maxsize,
    )
    with parts:
        while True:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", pd.errors.ParserWarning)
                    frame = next(parts)
            except (StopIteration, pd.errors.EmptyDataError):
                return
            except pd.errors.ParserWarning:
                raise _Wrong(
                    f"{name}: rows have more values than the header has names, {len(header)}; "
                    "name each column"
                ) from None
            if frame.empty:
                return
            yield frame


def _check_names(names: Sequence[str], name: str) -> None:
    """Raise if a column has no name, or the name of another."""
    if "" in names:
        raise _Wrong(
            f"{name}: column {list(names).index('')} has no name; name it, or leave it out "
            "(index=False, if it is an index of pandas)"
        )
    check_distinct(names, name, verb="has")


def parquet_parts(file: Path, rows: int | None) -> Iterator[Columns]:
    """A Parquet file, at most so many rows at a time."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as opened:
            if not opened.metadata.num_rows:
                raise _Wrong(f"{file.name} has no rows")
            if rows is None:
                yield columns_of_table(opened.read(), file.name)
                return
            for batch in opened.iter_batches(batch_size=rows):
                yield columns_of_table(pa.Table.from_batches([batch]), file.name)
    except _Wrong:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        words = " ".join(str(error).split())[:150]
        raise ValueError(f"{file.name} is not a readable Parquet file: {words}") from error


def together(parts: Iterable[Columns]) -> Columns:
    """The only part of a file that was read whole."""
    (whole,) = parts
    return whole


def parquet_whole(file: Path) -> Columns:
    """All rows of a Parquet file. Large matrices are laid out in scratch files on the way; lists of
    candidates are held in memory."""
    rows, size = _extent(file)
    if size <= _scratch.IN_MEMORY:
        return together(parquet_parts(file, None))
    parts = parquet_parts(file, max(1, rows * _scratch.BLOCK_BYTES // size))
    first = next(parts)
    if first.labels is not None:
        return together(parquet_parts(file, None))
    scores = _Gathered(rows, first.scores, "scores", file.name)
    features = (
        None if first.features is None else _Gathered(rows, first.features, "features", file.name)
    )
    labels = [] if first.y is None else [first.y]
    for part in parts:
        scores.add(part.scores)
        if features is not None:
            features.add(part.features)
        labels += [] if part.y is None else [part.y]
    return replace(
        first,
        scores=scores.whole,
        features=None if features is None else features.whole,
        y=np.concatenate(labels) if labels else None,
    )


def _extent(file: Path) -> tuple[int, int]:
    """How many rows a Parquet file has, and how many bytes they are; none if it cannot be read,
    which is said elsewhere."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        about = parquet.read_metadata(file)
    except (pa.ArrowException, OSError):
        return 0, 0
    groups = range(about.num_row_groups)
    return about.num_rows, sum(about.row_group(i).total_byte_size for i in groups)


class _Gathered:
    """A matrix, of which a part after the other comes."""

    def __init__(self, rows: int, first: object, what: str, name: str) -> None:
        part = np.asarray(first)
        # Whole numbers may have gaps further on, which makes them floating-point ones.
        part = part if part.dtype.kind == "f" else part.astype(np.float64)
        self._rows = _scratch.Filling(rows, part)
        self.what, self.name = what, name

    def add(self, part: object) -> None:
        given = np.asarray(part)
        if not self._rows.fits(given):
            raise _Wrong(f"{self.name}: {self.what} differ in length from row to row")
        self._rows.add(given)

    @property
    def whole(self) -> NDArray[np.generic]:
        return self._rows.whole()


class _Wrong(ValueError):
    """Columns that can be read, but are not what is needed."""


def columns_of_table(table: pa.Table, name: str) -> Columns:
    """What the columns of a table hold; `name` is that of its file."""
    import pyarrow as pa

    _check_names(table.schema.names, name)
    listed = {}
    for field in table.schema:
        kind = field.type
        if (
            pa.types.is_list(kind)
            or pa.types.is_large_list(kind)
            or pa.types.is_fixed_size_list(kind)
        ):
            listed[field.name] = _lists_of(table[field.name].combine_chunks(), field.name, name)
    rest = table.drop_columns(list(listed)) if listed else table
    return _sorted_out(rest.to_pandas(), listed, name, as_text=False)


def _lists_of(
    column: pa.Array, what: str, name: str
) -> NDArray[np.generic] | Sequence[Sequence[object]]:
    """A column of lists: a matrix if all are of one length, without a detour by Python's lists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    if column.null_count:
        at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise _Wrong(f"{name}: {what} of row {at} is no list, but missing")
    flat = column.flatten()
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    # A missing score becomes NaN, which padding may have; a missing label is padding itself.
    gaps = flat.null_count and what == "labels"
    if gaps or pa.types.is_string(flat.type) or (lengths != lengths[0]).any():
        rows: list[list[object]] = column.to_pylist()
        return rows
    matrix: NDArray[np.generic] = flat.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return matrix


def _of_frame(frame: pd.DataFrame, name: str) -> Columns:
    """Of CSV, lists are JSON."""
    listed = {
        column: _json_lists(frame[column], column, name)
        for column in ("scores", "labels", "features")
        if column in frame.columns
    }
    return _sorted_out(frame.drop(columns=list(listed)), listed, name, as_text=True)


def _json_lists(column: pd.Series, what: str, name: str) -> list[list[object]]:
    found = []
    for i, value in enumerate(column):
        try:
            row = json.loads(value) if isinstance(value, str) else None
        except ValueError:
            row = None
        if not isinstance(row, list):
            raise _Wrong(f"{name}: {what} of row {i} is no list: {str(value)[:60]!r}")
        found.append(row)
    return found


def _sorted_out(
    frame: pd.DataFrame,
    listed: Mapping[str, NDArray[np.generic] | Sequence[Sequence[object]]],
    name: str,
    *,
    as_text: bool,
) -> Columns:
    """Which column is what. `as_text`: labels are text that may stand for numbers."""
    names = [str(column) for column in frame.columns]
    frame = frame.set_axis(names, axis=1)
    y = _known_labels(frame["y"], name) if "y" in names else None
    own = [c for c in names if c.startswith(FEATURE)]
    features = _matrix(listed["features"], "features", name) if "features" in listed else None
    if features is None and own:
        features = _numbers(frame, own, name, "features")
    if "scores" in listed:
        scores, labels = listed["scores"], listed.get("labels")
        if labels is None:
            scores = _matrix(scores, "scores", name)
        elif list(map(len, labels)) != list(map(len, scores)):
            pairs = zip(map(len, labels), map(len, scores), strict=True)
            at = next(i for i, (a, b) in enumerate(pairs) if a != b)
            raise _Wrong(
                f"{name}: row {at} has {len(labels[at])} labels, but {len(scores[at])} scores"
            )
        if as_text and y is not None and (labels is None or _are_numbers(labels)):
            y = _numbers_if_whole(y)
        return Columns(name, scores, labels, y, features, own or None, None)
    classes = [c for c in names if c != "y" and not c.startswith(FEATURE)]
    if len(classes) < 2:
        raise _Wrong(
            f"{name}: every column but y and {FEATURE}… is the score of a class, a number; there "
            f"are {len(classes)} of them"
        )
    dense = _numbers(frame, classes, name, "scores")
    if as_text and y is not None and whole_numbers(classes) is not None:
        y = _numbers_if_whole(y)
    return Columns(name, dense, None, y, features, own or None, _class_names(classes, y))


def _class_names(names: list[str], y: NDArray[np.generic] | None) -> NDArray[np.generic]:
    """The classes by their columns' names: as numbers, if these are what labels are."""
    if y is None or y.dtype.kind in "iu":
        return _numbers_if_whole(np.array(names, dtype=object))
    return np.array(names, dtype=np.str_)


def _known_labels(column: pd.Series, name: str) -> NDArray[np.generic]:
    """The labels of the rows, none of which may be missing."""
    missing = (column.isna() | (column == "")).to_numpy(dtype=bool)
    if missing.any():
        raise _Wrong(f"{name}: y of row {int(missing.argmax())} is missing; leave such rows out")
    return column.to_numpy()


def _numbers_if_whole(labels: NDArray[np.generic]) -> NDArray[np.generic]:
    """Text as integers if each is one as integers are written, and fits; else as strings."""
    distinct = list(dict.fromkeys(labels.tolist()))
    numbers = whole_numbers(distinct)
    if numbers is None or max(map(abs, numbers)) >= 2**63:
        return labels.astype(np.str_)
    number = dict(zip(distinct, numbers, strict=True))
    return np.array([number[label] for label in labels.tolist()], dtype=np.int64)


def _are_numbers(labels: NDArray[np.generic] | Sequence[Sequence[object]]) -> bool:
    """Whether candidates are numbered, not named."""
    listed = (label for row in labels for label in row if label not in PADDING)
    return isinstance(next(listed, 0), int | np.integer)


def _matrix(
    rows: NDArray[np.generic] | Sequence[Sequence[object]], what: str, name: str
) -> NDArray[np.generic]:
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiu":
        return rows
    if len({len(row) for row in rows}) != 1:
        raise _Wrong(f"{name}: {what} differ in length from row to row")
    try:
        return np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise _Wrong(f"{name}: {what} must hold numbers") from None


def _numbers(frame: pd.DataFrame, columns: list[str], name: str, what: str) -> NDArray[np.generic]:
    for column in columns:
        if frame[column].dtype.kind not in "fiub":
            wrong = f"{name}: every column but y and {FEATURE}… is the score of a class, a number"
            wrong = f"{name}: features are numbers" if what == "features" else wrong
            raise _Wrong(f"{wrong}; {column!r} is not")
    kinds = {frame[column].dtype for column in columns}
    return frame[columns].to_numpy(dtype=None if len(kinds) == 1 else np.float64)
