"""Work with tables larger than memory: lazy matrices, memory-mapped files, shuffled windows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from math import prod
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from shortlist._utils.blocks import row_blocks
from shortlist._utils.threads import map_blocks

MAX_BYTES_IN_MEMORY = 1 << 27
"""Tables larger than this many bytes are memory-mapped, computed lazily or read by windows."""
COPY_BYTES = 1 << 24
"""Bytes copied at a time from one large table to another."""
MAX_COPY_BYTES = 1 << 26
"""Selections of rows larger than this many bytes are views."""
WINDOW_BYTES = 1 << 26
"""Bytes of training examples in memory at a time."""
CHUNK_BYTES = 1 << 18
"""Bytes of consecutive training examples that are read together."""

RowIndex: TypeAlias = slice | Tensor


class LazyMatrix:
    """A matrix whose rows are computed when they are indexed.

    Parameters
    ----------
    rows : int
        Number of rows.
    compute : callable
        `compute(rows)` returns the given rows. A row must depend on its own index alone. It is
        called for one block of rows at a time.
    work_width : int, default=0
        Number of values that `compute` uses for a row, if larger than the number of columns.

    Examples
    --------
    >>> squares = LazyMatrix(5, lambda rows: torch.arange(5.0)[rows, None] ** 2)
    >>> squares.shape, squares[3:].tolist(), squares[torch.tensor([[4], [0]])].tolist()
    ((5, 1), [[9.0], [16.0]], [[[16.0]], [[0.0]]])
    """

    def __init__(
        self, rows: int, compute: Callable[[RowIndex], Tensor], work_width: int = 0
    ) -> None:
        first = compute(slice(0, 1))
        self.shape = (rows, first.shape[1])
        self.dtype, self.device = first.dtype, first.device
        self.work_width = max(work_width, self.shape[1])
        self._compute = compute

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: RowIndex) -> Tensor:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            result = self._empty(stop - start)
            for block in row_blocks(stop - start, self.work_width):
                result[block] = self._compute(slice(start + block.start, start + block.stop))
            return result
        flat = rows.reshape(-1)
        result = self._empty(len(flat))
        for block in row_blocks(len(flat), self.work_width):
            result[block] = self._compute(flat[block])
        return result.view(*rows.shape, self.shape[1])

    def _empty(self, rows: int) -> Tensor:
        return torch.empty((rows, self.shape[1]), dtype=self.dtype, device=self.device)


Matrix: TypeAlias = Tensor | LazyMatrix


def is_large(rows: int, width: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a table is too large for memory. Tables on a GPU never are."""
    return device.type == "cpu" and rows * width * dtype.itemsize > MAX_BYTES_IN_MEMORY


def is_large_matrix(matrix: Matrix) -> bool:
    """Return whether a matrix must not be copied: it is lazy, or may be a memory-mapped file."""
    if isinstance(matrix, LazyMatrix):
        return True
    return is_large(len(matrix), matrix.shape[1], matrix.dtype, matrix.device)


def bytes_per_row(matrix: Matrix) -> int:
    """Return the size of a row of a vector or matrix in bytes."""
    width = matrix.shape[1] if len(matrix.shape) > 1 else 1
    return width * matrix.dtype.itemsize


def take_rows(matrix: Matrix, rows: Tensor) -> Matrix:
    """Return some rows of a matrix.

    Large matrices are indexed lazily, even for a few rows: the caller would make several copies.
    """
    if not is_large_matrix(matrix):
        return matrix[rows]
    return LazyMatrix(len(rows), lambda subset: matrix[rows[subset]])


def as_lazy(matrix: Matrix) -> LazyMatrix:
    """Wrap a matrix in a lazy one, so that later steps do not copy it."""
    if isinstance(matrix, LazyMatrix):
        return matrix
    return LazyMatrix(len(matrix), lambda rows: matrix[rows])


def hstack(first: Matrix, second: Matrix) -> Matrix:
    """Concatenate the columns of two matrices, in the wider dtype, on the device of the first."""
    dtype = torch.promote_types(first.dtype, second.dtype)
    device = first.device

    def concatenate(rows: RowIndex) -> Tensor:
        return torch.cat([part[rows].to(device, dtype) for part in (first, second)], dim=1)

    width = first.shape[1] + second.shape[1]
    if not is_large(len(first), width, dtype, device):
        return concatenate(slice(0, len(first)))
    return LazyMatrix(len(first), concatenate)


def vstack(first: Matrix, second: Matrix) -> Matrix:
    """Concatenate the rows of two matrices, in the wider dtype, on the device of the first."""
    dtype = torch.promote_types(first.dtype, second.dtype)
    device, n_first, width = first.device, len(first), first.shape[1]
    if not is_large(n_first + len(second), width, dtype, device):
        return torch.cat([part[:].to(device, dtype) for part in (first, second)])

    def read(rows: RowIndex) -> Tensor:
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(n_first + len(second)))
        result = torch.empty((len(rows), width), dtype=dtype)
        is_first = rows < n_first
        result[is_first] = first[rows[is_first]].to(dtype)
        result[~is_first] = second[rows[~is_first] - n_first].to(dtype)
        return result

    return LazyMatrix(n_first + len(second), read)


def materialize(matrix: Matrix) -> Tensor:
    """Compute a lazy matrix once. A large one is stored in a memory-mapped temporary file."""
    if isinstance(matrix, Tensor):
        return matrix
    result = allocate_tensor(matrix.shape, matrix.dtype)
    for rows in row_blocks(len(matrix), matrix.work_width):
        result[rows] = matrix[rows]
    return result


def gather_columns(matrix: Matrix, columns: Tensor) -> Tensor:
    """Return one entry of each row, in the given column, of shape (n_rows,)."""
    if isinstance(matrix, Tensor):
        return matrix.gather(1, columns[:, None])[:, 0]
    result = torch.empty(len(matrix), dtype=matrix.dtype, device=matrix.device)
    for rows in row_blocks(len(matrix), matrix.work_width):
        result[rows] = matrix[rows].gather(1, columns[rows, None])[:, 0]
    return result


def to_device(matrix: Matrix, device: torch.device) -> Matrix:
    """Return a matrix on a device. A lazy matrix is computed if it has to be moved."""
    if isinstance(matrix, Tensor):
        return matrix.to(device)
    if device == matrix.device:
        return matrix
    result = torch.empty(matrix.shape, dtype=matrix.dtype, device=device)
    for rows in row_blocks(len(matrix), matrix.work_width):
        result[rows] = matrix[rows].to(device)
    return result


class RowView:
    """Some rows of a matrix, copied only when they are indexed.

    Parameters
    ----------
    matrix : Tensor of shape (n, n_columns)
        Matrix, which may be a memory-mapped file.
    rows : Tensor of int
        Indices of the rows.

    Examples
    --------
    >>> RowView(torch.eye(3), torch.tensor([2, 0]))[1:].tolist()
    [[1.0, 0.0, 0.0]]
    """

    def __init__(self, matrix: Tensor, rows: Tensor) -> None:
        self.matrix, self.rows = matrix, rows
        self.shape, self.device = (len(rows), matrix.shape[1]), matrix.device

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: RowIndex) -> Tensor:
        # Several times faster than `matrix[rows]`, which does not copy whole rows.
        return torch.index_select(self.matrix, 0, self.rows[rows])


def select_rows(
    matrix: Tensor | RowView, rows: RowIndex, *, max_bytes: int | None = None
) -> Tensor | RowView:
    """Return some rows of a matrix: a view if the copy would be larger than `max_bytes`.

    By default, that is `MAX_COPY_BYTES`.
    """
    max_bytes = MAX_COPY_BYTES if max_bytes is None else max_bytes
    base = matrix if isinstance(matrix, Tensor) else matrix.matrix
    if isinstance(rows, slice):
        return matrix[rows] if isinstance(matrix, Tensor) else RowView(base, matrix.rows[rows])
    if base.is_cuda:
        return matrix[rows]
    index = rows if isinstance(matrix, Tensor) else matrix.rows[rows]
    if len(rows) * base.shape[1] * base.element_size() <= max_bytes:
        return _copy_in_threads(base, index)
    return RowView(base, index)


def _copy_in_threads(matrix: Tensor, rows: Tensor) -> Tensor:
    """Return a copy of some rows."""
    copy = matrix.new_empty((len(rows), matrix.shape[1]))

    def fill(part: slice) -> None:
        torch.index_select(matrix, 0, rows[part], out=copy[part])

    map_blocks(fill, *copy.shape)
    return copy


def allocate_tensor(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Return an uninitialized tensor, which is memory-mapped if it is large.

    Examples
    --------
    >>> allocate_tensor((2, 3)).shape
    torch.Size([2, 3])
    """
    size = prod(shape) * dtype.itemsize
    if size <= MAX_BYTES_IN_MEMORY:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(_allocate_mapped((size,), np.uint8)).view(dtype).view(shape)


def _allocate_array(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    """Return an uninitialized array, which is memory-mapped if it is large."""
    if prod(shape) * dtype.itemsize <= MAX_BYTES_IN_MEMORY:
        return np.empty(shape, dtype)
    return _allocate_mapped(shape, dtype)


def _allocate_mapped(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
    """Return an array in a temporary file.

    The file has no name (on Windows: it is deleted when it is closed), so it disappears with the
    array even if the process is killed.
    """
    size = prod(shape) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile(prefix="shortlist-") as file:
        try:
            if hasattr(os, "posix_fallocate"):
                # A full disk raises here. Later, writing a page would kill the process.
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError as error:
            raise OSError(
                error.errno,
                f"a temporary file of {size / 1e9:.1f} GB does not fit in "
                f"{tempfile.gettempdir()} ({error.strerror}); set the environment variable TMPDIR "
                "to another folder",
            ) from error
        return np.memmap(file, dtype, "r+", 0, shape)


def copy_rows(array: NDArray[np.generic], rows: NDArray[np.intp]) -> NDArray[np.generic]:
    """Return a copy of some rows of an array, which is memory-mapped if it is large.

    Examples
    --------
    >>> copy_rows(np.eye(3), np.array([2, 0])).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    result = _allocate_array((len(rows), *array.shape[1:]), array.dtype)
    step = max(1, COPY_BYTES // max(1, array.itemsize * prod(array.shape[1:])))
    for start in range(0, len(rows), step):
        result[start : start + step] = array[rows[start : start + step]]
    return result


class TableBuilder:
    """A matrix that is filled part by part.

    Parameters
    ----------
    max_rows : int
        Maximum number of rows.
    first : ndarray of shape (n, n_columns)
        First part.

    Examples
    --------
    >>> builder = TableBuilder(5, np.ones((2, 3)))
    >>> builder.append(np.zeros((1, 3)))
    >>> builder.build().shape
    (3, 3)
    """

    def __init__(self, max_rows: int, first: NDArray[np.generic]) -> None:
        self._table = _allocate_array((max_rows, first.shape[1]), first.dtype)
        self._length = 0
        self.append(first)

    def fits(self, part: NDArray[np.generic]) -> bool:
        """Return whether a part has as many columns as the first one."""
        return part.shape[1:] == self._table.shape[1:]

    def append(self, part: NDArray[np.generic]) -> None:
        """Add rows at the end."""
        self._table[self._length : self._length + len(part)] = part
        self._length += len(part)

    def build(self) -> NDArray[np.generic]:
        """Return all rows added so far."""
        return self._table[: self._length]


def shuffled_windows(
    rows: int, chunk: int, window: int, generator: torch.Generator
) -> list[Tensor]:
    """Shuffle row indices in windows that a disk can read quickly.

    Chunks of consecutive rows are put in random order. As many chunks as fit form a window,
    whose rows are then shuffled. The disk is read by chunks, and the rows of a mini-batch still
    come from all over the data.

    Parameters
    ----------
    rows, chunk, window : int
        Number of rows in all, in a chunk, and in a window.
    generator : torch.Generator
        Source of the random order.

    Returns
    -------
    list of Tensor
        Row indices of each window. Each index from 0 to rows - 1 occurs once.

    Examples
    --------
    >>> windows = shuffled_windows(10, 2, 6, torch.Generator().manual_seed(0))
    >>> [len(window) for window in windows], torch.cat(windows).sort().values.tolist()
    ([6, 4], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    first = chunk * torch.randperm(-(-rows // chunk), generator=generator)
    indices = (first[:, None] + torch.arange(chunk)).flatten()
    parts = indices[indices < rows].split(window)  # type: ignore[no-untyped-call]
    return [part[torch.randperm(len(part), generator=generator)] for part in parts]
