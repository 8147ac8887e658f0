"""Tables of Parquet files, split into pieces that tasks process.

| column | type |
|---|---|
| `scores` | list of numbers: one for each class or, with `labels`, one for each candidate |
| `labels` | list of integers or of names: the candidates, best first |
| `y` | the true label |
| `features` | list of numbers; or columns of numbers whose names begin with `x_` |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.extras import require
from shortlist._utils.validation import check_choice
from shortlist.datasets.bad_rows import (
    ON_BAD_ROWS,
    Defects,
    find_bad_rows,
    missing_values,
    unequal_lengths,
    valid_mask,
)
from shortlist.datasets.columns import FEATURE_PREFIX, rows_from_table
from shortlist.datasets.rows import BLOCK_ROWS, Rows
from shortlist.ray.parquet_files import (
    Paths,
    check_same_columns,
    check_schema,
    is_row_column,
    list_files,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

PIECE_ROWS = 500_000
"""Approximate number of rows of a piece, which has at least one whole row group."""


@dataclass(frozen=True)
class Piece:
    """Consecutive row groups of a file, which one task processes.

    Attributes
    ----------
    path : str
        Path of the file in its file system.
    name : str
        Path of the file relative to the folder that the user gave.
    stamp : str
        Size and modification time of the file.
    groups : tuple of int
        Indices of the row groups.
    start : int
        Number of the first row, counted in the file.
    file_start : int
        Number of the file's first row, counted in the table.
    n_rows : int
        Number of rows.
    """

    path: str
    name: str
    stamp: str
    groups: tuple[int, ...]
    start: int
    file_start: int
    n_rows: int

    @property
    def title(self) -> str:
        """Name for the output of this piece, unique in its table and without slashes."""
        stem = quote(self.name.removesuffix(".parquet"), safe=" ")  # "a/b" differs from "a-b".
        return f"{stem}-{self.start:012d}"

    @property
    def table_range(self) -> range:
        """Numbers of the rows, counted in the table."""
        first = self.file_start + self.start
        return range(first, first + self.n_rows)


@dataclass(frozen=True)
class Block:
    """Some rows of a piece.

    Attributes
    ----------
    rows : Rows
        The rows, without bad ones.
    numbers : array of shape (n_rows,)
        Their numbers, counted in the file.
    table_numbers : array of shape (n_rows,)
        Their numbers, counted in the table.
    extra : pyarrow.Table
        Other columns of the same rows.
    n_skipped : int
        Number of bad rows that were skipped.
    """

    rows: Rows
    numbers: NDArray[np.int64]
    table_numbers: NDArray[np.int64]
    extra: pa.Table
    n_skipped: int


@dataclass(frozen=True)
class Table:
    """Parquet files with the same columns.

    Attributes
    ----------
    filesystem : pyarrow.fs.FileSystem
        File system of the files.
    pieces : tuple of Piece
        All row groups, in order.
    columns : tuple of str
        Columns to read.
    width : int or None
        Length of the lists of scores, if the schema fixes it.
    is_dense : bool
        Whether there is a score for each class, not only for candidates.
    has_integer_labels : bool
        Whether the true labels are integers.
    on_bad_rows : str
        "raise" or "skip".
    """

    filesystem: FileSystem
    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    width: int | None
    is_dense: bool
    has_integer_labels: bool
    on_bad_rows: str = "raise"

    @property
    def n_rows(self) -> int:
        """Number of rows, bad ones included."""
        return sum(piece.n_rows for piece in self.pieces)

    @property
    def has_y(self) -> bool:
        """Whether the true labels are known."""
        return "y" in self.columns

    @property
    def has_features(self) -> bool:
        """Whether there are features."""
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
        """Read the metadata of Parquet files and check their schemas.

        Parameters
        ----------
        paths : path-like or sequence of path-like
            Files, and folders of files.
        needs_y : bool
            Whether true labels are required.
        on_bad_rows : {"raise", "skip"}, default="raise"
            Whether `read` raises an error for bad rows or skips them.
        extra : sequence of str, optional
            Other columns that must exist.
        piece_rows : int, default=PIECE_ROWS
            Approximate number of rows of a piece.

        Returns
        -------
        Table
            The table, whose rows have not been read.

        Raises
        ------
        ValueError
            If a file is not readable, or a required column is missing.
        """
        require("ray", "shortlist.ray")
        import pyarrow as pa
        from pyarrow import parquet

        check_choice(on_bad_rows, "on_bad_rows", ON_BAD_ROWS)
        filesystem, files = list_files(paths)
        pieces: list[Piece] = []
        schema: pa.Schema | None = None
        file_start = 0
        for info, name in files:
            try:
                with parquet.ParquetFile(info.path, filesystem=filesystem) as file:
                    metadata, own_schema = file.metadata, file.schema_arrow
            except (OSError, ValueError) as error:
                reason = " ".join(str(error).split())[:150]
                raise ValueError(
                    f"{name} is not a readable Parquet file, which a cluster needs: {reason}"
                ) from error
            if schema is None:
                check_schema(own_schema, name, needs_y, extra)
                schema = own_schema
            check_same_columns(own_schema, name, schema, files[0][1], extra)
            stamp = f"{info.size} bytes, {info.mtime_ns}"
            for groups, start, n_rows in _split_row_groups(metadata, piece_rows):
                pieces.append(Piece(info.path, name, stamp, groups, start, file_start, n_rows))
            file_start += metadata.num_rows
        if schema is None or not pieces:
            names = ", ".join(name for _, name in files[:3])
            raise ValueError(f"the Parquet files have no rows: {names}")
        scores = schema.field("scores").type
        return cls(
            filesystem=filesystem,
            pieces=tuple(pieces),
            columns=tuple(name for name in schema.names if is_row_column(name)),
            width=int(scores.list_size) if pa.types.is_fixed_size_list(scores) else None,
            is_dense="labels" not in schema.names,
            has_integer_labels="y" in schema.names and pa.types.is_integer(schema.field("y").type),
            on_bad_rows=on_bad_rows,
        )

    def read(
        self,
        piece: Piece,
        classes: NDArray[np.generic] | None,
        *,
        extra: Sequence[str] = (),
        block_rows: int = BLOCK_ROWS,
        check_y: bool = True,
    ) -> Iterator[Block]:
        """Read the rows of a piece block by block.

        Parameters
        ----------
        piece : Piece
            Piece of this table.
        classes : array of shape (n_classes,) or None
            All classes; None if they are not known yet.
        extra : sequence of str, optional
            Other columns to read.
        block_rows : int, default=BLOCK_ROWS
            Maximum number of rows in a block.
        check_y : bool, default=True
            Whether a row is bad if `y` is not one of the classes. Calibration counts such a row
            as a miss instead.

        Yields
        ------
        Block
            The next rows, without bad ones.

        Raises
        ------
        ValueError
            If a row is bad and bad rows are not skipped, or if the rows do not have one score for
            each class.
        """
        import pyarrow as pa
        from pyarrow import parquet

        start, columns = piece.start, [*dict.fromkeys([*self.columns, *extra])]
        with parquet.ParquetFile(piece.path, filesystem=self.filesystem) as file:
            for batch in file.iter_batches(
                batch_size=block_rows, row_groups=list(piece.groups), columns=columns
            ):
                table = pa.Table.from_batches([batch])
                rows, numbers, table = self._valid_rows(table, start, piece.name, classes, check_y)
                yield Block(
                    rows,
                    numbers,
                    numbers + piece.file_start,
                    table.select(list(extra)),
                    batch.num_rows - len(numbers),
                )
                start += batch.num_rows

    def _valid_rows(
        self,
        table: pa.Table,
        start: int,
        name: str,
        classes: NDArray[np.generic] | None,
        check_y: bool,
    ) -> tuple[Rows, NDArray[np.int64], pa.Table]:
        """Return the rows of an Arrow table without bad ones, their numbers, and their table."""
        numbers = np.arange(start, start + len(table))
        defects = missing_values(table, self.columns)
        if not self.is_dense:
            defects = unequal_lengths(table) | defects
        if defects:
            self._raise_unless_skipping(name, numbers, defects)
            mask = valid_mask(len(table), defects)
            table, numbers = table.filter(mask), numbers[mask]
        if not len(table):
            return Rows(np.empty((0, 0))), numbers, table
        try:
            rows = rows_from_table(table.select(list(self.columns)), name)
        except ValueError as error:
            span = f"rows {numbers[0]:,} to {numbers[-1]:,}"
            raise ValueError(f"{error} (among {span} of {name})") from None
        if self.is_dense and classes is not None:
            width = np.asarray(rows.scores).shape[-1]
            if width != len(classes):
                raise ValueError(
                    f"{name}: rows have {width:,} scores, but there are {len(classes):,} classes; "
                    "give one score for each class, in the order of the classes"
                )
        defects = find_bad_rows(rows, classes, check_y=check_y)
        if defects:
            self._raise_unless_skipping(name, numbers, defects)
            mask = valid_mask(len(rows), defects)
            rows, numbers, table = rows[mask], numbers[mask], table.filter(mask)
        return rows, numbers, table

    def _raise_unless_skipping(
        self, name: str, numbers: NDArray[np.int64], defects: Defects
    ) -> None:
        """Raise an error about the first bad row, unless bad rows are skipped."""
        if self.on_bad_rows == "raise":
            first = min(defects)
            raise ValueError(
                f"{name}, row {numbers[first]}: {defects[first]}; correct the row, or leave bad "
                'rows out with on_bad_rows="skip"'
            )


def _split_row_groups(
    metadata: pa.parquet.FileMetaData, max_rows: int
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Yield the row groups, the first row and the number of rows of each piece of a file."""
    groups: list[int] = []
    start = n_rows = 0
    for i in range(metadata.num_row_groups):
        size = metadata.row_group(i).num_rows
        if groups and n_rows + size > max_rows:
            yield tuple(groups), start, n_rows
            groups, start, n_rows = [], start + n_rows, 0
        groups.append(i)
        n_rows += size
    if n_rows:
        yield tuple(groups), start, n_rows
