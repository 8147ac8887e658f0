"""Parquet files of rows, read completely or in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist._utils import out_of_core
from shortlist._utils.extras import require
from shortlist.datasets.bad_rows import SkippedRows
from shortlist.datasets.column_roles import DEFAULT_ROLES, ColumnRoles, InvalidColumnsError
from shortlist.datasets.columns import NO_ROWS, rows_from_table
from shortlist.datasets.rows import Rows


def read_parquet(
    path: Path,
    block_rows: int | None,
    roles: ColumnRoles = DEFAULT_ROLES,
    skipped: SkippedRows | None = None,
) -> Iterator[Rows]:
    """Yield the rows of a Parquet file.

    A block has at most `block_rows` rows. With None, all rows are one block. Its large matrices are
    then memory-mapped, and its candidates are in memory. Bad rows are left out and counted if
    `skipped` is given.
    """
    if block_rows is None:
        yield _read_whole(path, roles, skipped)
    else:
        yield from _read_blocks(path, block_rows, roles, skipped)


def _read_blocks(
    path: Path, block_rows: int | None, roles: ColumnRoles, skipped: SkippedRows | None
) -> Iterator[Rows]:
    """Yield the rows in memory, in blocks of at most `block_rows` rows; in one block if None."""
    require("pandas", "reading Parquet files")
    require("pyarrow", "reading Parquet files")
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            if not file.metadata.num_rows:
                raise InvalidColumnsError(f"{path.name} has no rows")
            if block_rows is None:
                yield rows_from_table(file.read(), path.name, roles, skipped)
                return
            start = 0
            for batch in file.iter_batches(batch_size=block_rows):
                table = pa.Table.from_batches([batch])
                rows = rows_from_table(table, path.name, roles, skipped, start)
                start += batch.num_rows
                if len(rows):
                    yield rows
    except InvalidColumnsError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:150]
        raise ValueError(f"{path.name} is not a readable Parquet file: {reason}") from error


def _read_whole(path: Path, roles: ColumnRoles, skipped: SkippedRows | None) -> Rows:
    """Return all rows. The matrices of a large file are memory-mapped."""
    require("pandas", "reading Parquet files")
    require("pyarrow", "reading Parquet files")
    n_rows, n_bytes = _size(path)
    if n_bytes <= out_of_core.MAX_BYTES_IN_MEMORY:
        return _read_into_memory(path, roles, skipped)
    block_rows = max(1, n_rows * out_of_core.COPY_BYTES // n_bytes)
    blocks = _read_blocks(path, block_rows, roles, skipped)
    first = next(blocks, NO_ROWS)
    if not len(first):
        return NO_ROWS
    if first.labels is not None:
        if skipped is not None:  # The first block is read, and counted, again.
            skipped.clear()
        return _read_into_memory(path, roles, skipped)
    scores = _MatrixBuilder(n_rows, first.scores, "scores", path.name)
    features = None
    if first.features is not None:
        features = _MatrixBuilder(n_rows, first.features, "features", path.name)
    small = [replace(first, scores=None, features=None)]
    for block in blocks:
        scores.append(block.scores)
        if features is not None:
            features.append(block.features)
        small.append(replace(block, scores=None, features=None))
    return replace(
        Rows.concatenate(small),
        scores=scores.build(),
        features=None if features is None else features.build(),
    )


def _read_into_memory(path: Path, roles: ColumnRoles, skipped: SkippedRows | None) -> Rows:
    (rows,) = _read_blocks(path, None, roles, skipped)
    return rows


def _size(path: Path) -> tuple[int, int]:
    """Return the numbers of rows and of bytes; 0 for a damaged file, which raises when read."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        metadata = parquet.read_metadata(path)
    except (pa.ArrowException, OSError):
        return 0, 0
    groups = range(metadata.num_row_groups)
    return metadata.num_rows, sum(metadata.row_group(i).total_byte_size for i in groups)


class _MatrixBuilder:
    """Builds a matrix from blocks of rows. A large matrix is memory-mapped."""

    def __init__(self, n_rows: int, first: object, column: str, name: str) -> None:
        block = np.asarray(first)
        # Later blocks of a column of integers are floats if a value is missing.
        block = block if block.dtype.kind == "f" else block.astype(np.float64)
        self._rows = out_of_core.TableBuilder(n_rows, block)
        self.column, self.name = column, name

    def append(self, block: object) -> None:
        """Add the next block of rows."""
        array = np.asarray(block)
        if not self._rows.fits(array):
            raise InvalidColumnsError(
                f"{self.name}: {self.column} differ in length from row to row"
            )
        self._rows.append(array)

    def build(self) -> NDArray[np.generic]:
        """Return the matrix of all rows that were added."""
        return self._rows.build()
