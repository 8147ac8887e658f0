"""Parquet files of rows, read completely or in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist._utils import out_of_core
from shortlist.datasets.columns import InvalidColumnsError, rows_from_table
from shortlist.datasets.rows import Rows


def read_parquet(path: Path, block_rows: int | None) -> Iterator[Rows]:
    """Yield the rows of a Parquet file.

    A block has at most `block_rows` rows. With None, all rows are one block. Its large matrices are
    then memory-mapped, and its candidates are in memory.
    """
    yield from [_read_whole(path)] if block_rows is None else _read_blocks(path, block_rows)


def _read_blocks(path: Path, block_rows: int | None) -> Iterator[Rows]:
    """Yield the rows in memory, in blocks of at most `block_rows` rows; in one block if None."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            if not file.metadata.num_rows:
                raise InvalidColumnsError(f"{path.name} has no rows")
            if block_rows is None:
                yield rows_from_table(file.read(), path.name)
                return
            for batch in file.iter_batches(batch_size=block_rows):
                yield rows_from_table(pa.Table.from_batches([batch]), path.name)
    except InvalidColumnsError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:150]
        raise ValueError(f"{path.name} is not a readable Parquet file: {reason}") from error


def _read_whole(path: Path) -> Rows:
    """Return all rows. The matrices of a large file are memory-mapped."""
    n_rows, n_bytes = _size(path)
    if n_bytes <= out_of_core.MAX_BYTES_IN_MEMORY:
        return _read_into_memory(path)
    blocks = _read_blocks(path, max(1, n_rows * out_of_core.COPY_BYTES // n_bytes))
    first = next(blocks)
    if first.labels is not None:
        return _read_into_memory(path)
    scores = _MatrixBuilder(n_rows, first.scores, "scores", path.name)
    features = None
    if first.features is not None:
        features = _MatrixBuilder(n_rows, first.features, "features", path.name)
    labels = [first.y]
    for block in blocks:
        scores.append(block.scores)
        if features is not None:
            features.append(block.features)
        labels.append(block.y)
    return replace(
        first,
        scores=scores.build(),
        features=None if features is None else features.build(),
        y=None if first.y is None else np.concatenate([y for y in labels if y is not None]),
    )


def _read_into_memory(path: Path) -> Rows:
    (rows,) = _read_blocks(path, None)
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
