"""Tables on disk or in object stores: Parquet files, cut into pieces that tasks work on.

| column | type |
|---|---|
| `scores` | a list of numbers: one for each class, or, beside `labels`, one for each candidate |
| `labels` | a list of whole numbers, or of names: the candidates, best first |
| `y` | the right label |
| `features` | a list of numbers; or columns of numbers whose names begin with `x_` |
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist._arrays import check_choice
from shortlist._columns import FEATURE, columns_of_table
from shortlist.rows import BLOCK_ROWS, Rows, from_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileInfo, FileSystem

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
PIECE_ROWS = 500_000
"""About so many rows are one task, and one file of sets: whole row groups, one at least."""
ON_BAD_ROWS = ("raise", "skip")


@dataclass(frozen=True)
class Piece:
    """Some row groups of a file."""

    path: str
    name: str
    """Where the file is, from the folder that was given."""
    groups: tuple[int, ...]
    first: int
    """The first of its rows, counted in the file, …"""
    start: int
    """… and in the whole table."""
    rows: int
    stamp: str = ""
    """When the file was written, and how long it is."""

    @property
    def title(self) -> str:
        """A name for what is made of it: no two pieces of a table have the same."""
        stem = self.name.removesuffix(".parquet").replace("/", "-")
        return f"{stem}-{self.first:012d}"


@dataclass(frozen=True)
class Block:
    """Some rows that were read, and where they come from."""

    rows: Rows
    numbers: NDArray[np.int64]
    """Which rows of the file they are."""
    extra: pa.Table
    """Other columns that were asked for."""
    skipped: int
    """How many rows were left out before them."""


@dataclass(frozen=True)
class Table:
    """Parquet files with the same columns."""

    filesystem: FileSystem
    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    """Those that are read."""
    width: int | None
    """How long the lists of scores are, if the schema says so."""
    dense: bool
    numbered: bool
    """Whether the right labels are whole numbers."""
    on_bad_rows: str = "raise"

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def has_y(self) -> bool:
        return "y" in self.columns

    @property
    def has_features(self) -> bool:
        return any(name == "features" or name.startswith(FEATURE) for name in self.columns)

    @classmethod
    def open(
        cls,
        paths: Paths,
        *,
        needs_y: bool,
        on_bad_rows: str = "raise",
        extra: Sequence[str] = (),
        piece_rows: int = PIECE_ROWS,
    ) -> Table:
        """The files at one or several paths (files, or folders of them), their schemas checked."""
        import pyarrow as pa
        from pyarrow import parquet

        check_choice(on_bad_rows, "on_bad_rows", ON_BAD_ROWS)
        filesystem, files = _found(paths)
        pieces: list[Piece] = []
        known: tuple[str, pa.Schema] | None = None
        for info, name in files:
            path, stamp = info.path, f"{info.size} bytes, {info.mtime_ns}"
            try:
                with parquet.ParquetFile(path, filesystem=filesystem) as opened:
                    about, schema = opened.metadata, opened.schema_arrow
            except (OSError, ValueError) as error:
                words = " ".join(str(error).split())[:150]
                raise ValueError(f"{name} is not a readable Parquet file: {words}") from error
            if known is None:
                _check(schema, name, needs_y, extra)
                known = name, schema
            _check_alike(schema, name, known[1], known[0], extra)
            start = sum(piece.rows for piece in pieces)
            cut = _cut(path, name, about, start, piece_rows)
            pieces += [replace(piece, stamp=stamp) for piece in cut]
        if known is None or not pieces:
            raise ValueError(f"there are no rows in the Parquet files at {_shown(paths)}")
        schema = known[1]
        return cls(
            filesystem,
            tuple(pieces),
            tuple(name for name in schema.names if _is_known(name)),
            _width(schema.field("scores").type),
            "labels" not in schema.names,
            "y" in schema.names and pa.types.is_integer(schema.field("y").type),
            on_bad_rows,
        )

    def read(
        self,
        piece: Piece,
        classes: NDArray[np.generic] | None,
        *,
        extra: Sequence[str] = (),
        rows: int = BLOCK_ROWS,
    ) -> Iterator[Block]:
        """The rows of a piece, some at a time, without those that are bad (or an error that says
        which is). `classes` are the labels there can be; None: they are not known yet."""
        import pyarrow as pa
        from pyarrow import parquet

        first, columns = piece.first, [*dict.fromkeys([*self.columns, *extra])]
        with parquet.ParquetFile(piece.path, filesystem=self.filesystem) as opened:
            for batch in opened.iter_batches(
                batch_size=rows, row_groups=list(piece.groups), columns=columns
            ):
                table = pa.Table.from_batches([batch])
                yield self._block(table, piece.name, first, classes, extra)
                first += len(table)

    def _block(
        self,
        table: pa.Table,
        name: str,
        first: int,
        classes: NDArray[np.generic] | None,
        extra: Sequence[str],
    ) -> Block:
        numbers = np.arange(first, first + len(table))
        missing = _missing(table, self.columns)
        wrong = {int(i): f"{what} is missing" for i, what in missing}
        kept = table
        if wrong:
            self._complain(name, numbers, wrong)
            kept = table.filter(_without(len(table), wrong))
            numbers = numbers[_without(len(numbers), wrong)]
        if not len(kept):
            empty = Rows(np.empty((0, 0)))
            return Block(empty, numbers, kept.select(list(extra)), len(table))
        try:
            found = from_columns(columns_of_table(kept.select(list(self.columns)), name))
        except ValueError as error:
            span = f"rows {numbers[0]:,} to {numbers[-1]:,}"
            raise ValueError(f"{error} (among {span} of {name})") from None
        wrong = wrong_rows(found, classes)
        if wrong:
            self._complain(name, numbers, wrong)
            mask = _without(len(found), wrong)
            found, numbers, kept = found[mask], numbers[mask], kept.filter(mask)
        return Block(found, numbers, kept.select(list(extra)), len(table) - len(numbers))

    def _complain(self, name: str, numbers: NDArray[np.int64], wrong: dict[int, str]) -> None:
        """Say which row is bad, unless such rows are to be left out."""
        if self.on_bad_rows == "raise":
            at = min(wrong)
            raise ValueError(
                f"{name}, row {numbers[at]}: {wrong[at]}; mend it, or leave such rows out with "
                'on_bad_rows="skip"'
            )


@dataclass(frozen=True)
class Drawn:
    """Rows of a table that are drawn: a random share, told by a row's number in it alone."""

    share: float
    seed: int

    def of(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some rows are drawn.

        >>> bool(abs(Drawn(0.25, 0).of(np.arange(100_000)).mean() - 0.25) < 0.01)
        True
        """
        if self.share >= 1:
            return np.ones(len(numbers), dtype=bool)
        with np.errstate(over="ignore"):
            x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            x += np.uint64((0x632BE59BD9B4E019 * (self.seed + 1)) % 2**64)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x ^= x >> np.uint64(31)
        return np.asarray((x >> np.uint64(11)) < np.uint64(int(self.share * 2**53)))


def wrong_rows(rows: Rows, classes: NDArray[np.generic] | None) -> dict[int, str]:
    """What is wrong with which rows."""
    found: dict[int, str] = {}
    for name, values in (("scores", rows.scores), ("features", rows.features)):
        if values is None:
            continue
        if not isinstance(values, np.ndarray):
            found |= _wrong_lists(values, name)
            continue
        matrix: NDArray[Any] = values
        if matrix.dtype.kind == "f" and not np.isfinite(matrix.sum()):
            for i in np.flatnonzero(~np.isfinite(matrix).all(axis=1)).tolist():
                column = int(np.flatnonzero(~np.isfinite(matrix[i]))[0])
                found.setdefault(i, f"{name} hold {matrix[i, column]} at place {column}")
    if classes is not None:
        count = len(classes)
        numbered = classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(count))
        if rows.y is not None:
            outside = _outside(rows.y, classes, numbered)
            for i in np.flatnonzero(outside).tolist():
                found.setdefault(i, f"y is {rows.y[i]!r}, which is not one of {count:,} classes")
        if isinstance(rows.labels, np.ndarray) and numbered:
            labels: NDArray[Any] = rows.labels
            if labels.size and not -1 <= labels.min() <= labels.max() < count:
                for i in np.flatnonzero(((labels < -1) | (labels >= count)).any(axis=1)).tolist():
                    wrong = next(v for v in labels[i].tolist() if not -1 <= v < count)
                    found.setdefault(
                        i, f"labels hold {wrong}, and there are {count:,} classes, counted from 0"
                    )
    return found


def _wrong_lists(rows: Sequence[Sequence[object]], name: str) -> dict[int, str]:
    found = {}
    for i, row in enumerate(rows):
        for place, value in enumerate(row):
            if value is None or not np.isfinite(value):  # type: ignore[call-overload]
                found[i] = f"{name} hold {value} at place {place}"
                break
    return found


def _outside(y: NDArray[Any], classes: NDArray[np.generic], numbered: bool) -> NDArray[np.bool_]:
    if numbered and y.dtype.kind in "iu":
        return np.asarray((y < 0) | (y >= len(classes)))
    return ~np.isin(y.astype(classes.dtype), classes)


def _without(rows: int, wrong: dict[int, str]) -> NDArray[np.bool_]:
    mask = np.ones(rows, dtype=bool)
    mask[list(wrong)] = False
    return mask


def _missing(table: pa.Table, columns: Sequence[str]) -> list[tuple[int, str]]:
    """Rows without a value in a column."""
    found = []
    for name in columns:
        if table[name].null_count:
            nulls = table[name].combine_chunks().is_null().to_numpy(zero_copy_only=False)
            found += [(int(i), name) for i in np.flatnonzero(nulls)]
    return found


def _found(paths: Paths) -> tuple[FileSystem, list[tuple[FileInfo, str]]]:
    """The file system, and what and how each Parquet file is called, in order."""
    from pyarrow import fs

    if not isinstance(paths, str | os.PathLike | list | tuple):
        raise ValueError(
            f"paths of Parquet files are needed; got a {type(paths).__name__}. A Ray dataset is "
            "written to such files by dataset.write_parquet(path)"
        )
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise ValueError("no path came: give a Parquet file, or a folder of them")
    files: list[tuple[FileInfo, str]] = []
    system: fs.FileSystem | None = None
    for one in given:
        text = os.fspath(one)
        here, inner = filesystem_of(text)
        if system is not None and here != system:
            raise ValueError(f"all files must be on one file system; {text!r} is on another")
        system = here
        about = here.get_file_info(inner)
        if about.type == fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no file or folder at {text!r}")
        if about.type == fs.FileType.File:
            files.append((about, inner.rsplit("/", 1)[-1]))
            continue
        inside = here.get_file_info(fs.FileSelector(inner, recursive=True))
        held = [info for info in inside if info.is_file and _is_data(info.path, inner)]
        if not held:
            raise ValueError(f"there is no Parquet file in the folder {text!r}")
        root = inner.rstrip("/") + "/"
        held.sort(key=lambda info: str(info.path))
        files += [(info, info.path.removeprefix(root)) for info in held]
    titles = [name for _, name in files]
    twice = sorted({name for name in titles if titles.count(name) > 1})
    if twice:
        raise ValueError(
            f"two of the files are named {twice[0]!r}; give the folder that holds both, so that "
            "rows can be told apart"
        )
    assert system is not None
    return system, files


def filesystem_of(path: str) -> tuple[FileSystem, str]:
    """Where a path leads: a file system, and the path in it."""
    from pyarrow import fs

    if "://" in path:
        found: tuple[FileSystem, str] = fs.FileSystem.from_uri(path)
        return found
    return fs.LocalFileSystem(), os.path.abspath(path)


def _is_data(path: str, root: str) -> bool:
    """Whether a file in a folder is one of its tables: hidden ones, and notes, are not."""
    parts = path.removeprefix(root).split("/")
    return path.endswith(".parquet") and not any(part[:1] in (".", "_") for part in parts if part)


def _is_known(name: str) -> bool:
    return name in ("scores", "labels", "y", "features") or name.startswith(FEATURE)


def _check(schema: pa.Schema, name: str, needs_y: bool, extra: Sequence[str]) -> None:
    """Raise if there are no columns to work with."""
    import pyarrow as pa

    has = f"it has: {', '.join(schema.names)}"
    if "scores" not in schema.names:
        raise ValueError(f"{name} has no column named scores, a list of numbers in each row; {has}")
    for column in ("scores", "labels", "features"):
        if column not in schema.names:
            continue
        kind = schema.field(column).type
        inner = getattr(kind, "value_type", None)
        listed = inner is not None and not pa.types.is_dictionary(kind)
        numbers = listed and (pa.types.is_floating(inner) or pa.types.is_integer(inner))
        if column == "labels":
            numbers = listed and (pa.types.is_integer(inner) or pa.types.is_string(inner))
        if not numbers:
            what = "whole numbers or names" if column == "labels" else "numbers"
            raise ValueError(f"{name}: {column} is {kind}, but must be a list of {what}")
    if needs_y and "y" not in schema.names:
        raise ValueError(f"{name} has no column named y, the right labels, which are needed; {has}")
    for column in extra:
        if column not in schema.names:
            raise ValueError(f"{name} has no column named {column!r}, which is to be kept; {has}")


def _check_alike(
    schema: pa.Schema, name: str, other: pa.Schema, other_name: str, extra: Sequence[str]
) -> None:
    """Raise if two files differ in a column that is read."""
    for column in [c for c in {*schema.names, *other.names} if _is_known(c) or c in extra]:
        ours, theirs = (
            s.field(column).type if column in s.names else "missing" for s in (schema, other)
        )
        if ours != theirs:
            raise ValueError(
                f"all files must have the same columns: {column} is {ours} in {name}, but "
                f"{theirs} in {other_name}"
            )


def _width(kind: pa.DataType) -> int | None:
    import pyarrow as pa

    return int(kind.list_size) if pa.types.is_fixed_size_list(kind) else None


def _cut(
    path: str, name: str, about: pa.parquet.FileMetaData, start: int, most: int
) -> Iterator[Piece]:
    """A file in pieces of whole row groups."""
    groups: list[int] = []
    first = rows = 0
    for i in range(about.num_row_groups):
        count = about.row_group(i).num_rows
        if groups and rows + count > most:
            yield Piece(path, name, tuple(groups), first, start + first, rows)
            groups, first, rows = [], first + rows, 0
        groups.append(i)
        rows += count
    if rows:
        yield Piece(path, name, tuple(groups), first, start + first, rows)


def _shown(paths: Paths) -> str:
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return ", ".join(repr(os.fspath(path)) for path in given[:3])
