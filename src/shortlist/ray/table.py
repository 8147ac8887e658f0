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
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.validation import check_choice
from shortlist.datasets.columns import FEATURE_PREFIX, rows_from_table
from shortlist.datasets.rows import BLOCK_ROWS, Rows
from shortlist.ray.bad_rows import good_rows, missing_values, uneven_lists, wrong_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileInfo, FileSystem

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
PIECE_ROWS = 500_000
"""Approximate number of rows of a task and of a file of sets: at least one whole row group."""
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
        stem = quote(self.name.removesuffix(".parquet"), safe=" ")  # "a/b" is not "a-b"
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
        return any(name == "features" or name.startswith(FEATURE_PREFIX) for name in self.columns)

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
                raise ValueError(
                    f"{name} is not a readable Parquet file, which is what a cluster takes: {words}"
                ) from error
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
        check_y: bool = True,
    ) -> Iterator[Block]:
        """The rows of a piece, some at a time, without those that are bad (or an error that says
        which is). `classes` are the labels there can be; None: they are not known yet. A label of
        another class makes a row bad only if `check_y`: in a calibration it is a miss."""
        import pyarrow as pa
        from pyarrow import parquet

        first, columns = piece.first, [*dict.fromkeys([*self.columns, *extra])]
        with parquet.ParquetFile(piece.path, filesystem=self.filesystem) as opened:
            for batch in opened.iter_batches(
                batch_size=rows, row_groups=list(piece.groups), columns=columns
            ):
                table = pa.Table.from_batches([batch])
                yield self._block(table, piece.name, first, classes, extra, check_y)
                first += len(table)

    def _block(
        self,
        table: pa.Table,
        name: str,
        first: int,
        classes: NDArray[np.generic] | None,
        extra: Sequence[str],
        check_y: bool,
    ) -> Block:
        numbers = np.arange(first, first + len(table))
        wrong = missing_values(table, self.columns)
        if not self.dense:
            wrong = uneven_lists(table) | wrong
        kept = table
        if wrong:
            self._complain(name, numbers, wrong)
            kept = table.filter(good_rows(len(table), wrong))
            numbers = numbers[good_rows(len(numbers), wrong)]
        if not len(kept):
            empty = Rows(np.empty((0, 0)))
            return Block(empty, numbers, kept.select(list(extra)), len(table))
        try:
            found = rows_from_table(kept.select(list(self.columns)), name)
        except ValueError as error:
            span = f"rows {numbers[0]:,} to {numbers[-1]:,}"
            raise ValueError(f"{error} (among {span} of {name})") from None
        if self.dense and classes is not None:
            width = np.asarray(found.scores).shape[-1]
            if width != len(classes):
                raise ValueError(
                    f"{name}: rows have {width:,} scores, but there are {len(classes):,} classes; "
                    "give a score for each, in the same order"
                )
        wrong = wrong_rows(found, classes, check_y=check_y)
        if wrong:
            self._complain(name, numbers, wrong)
            mask = good_rows(len(found), wrong)
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
    return name in ("scores", "labels", "y", "features") or name.startswith(FEATURE_PREFIX)


def _check(schema: pa.Schema, name: str, needs_y: bool, extra: Sequence[str]) -> None:
    """Raise if there are no columns to work with."""
    import pyarrow as pa

    has = f"it has: {', '.join(schema.names)}"
    if "scores" not in schema.names:
        raise ValueError(
            f"{name} has no column named scores, with a list of numbers in each row (a column for "
            f"each class is not read on a cluster); {has}"
        )
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
