"""Matrices larger than memory: rows that are made when they are looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

import torch
from torch import Tensor

from shortlist._utils import scratch as _scratch
from shortlist._utils.arrays import row_blocks

RowIndex: TypeAlias = slice | Tensor
Value = TypeVar("Value")


class ComputedOnce(Generic[Value]):
    """An attribute that is computed when it is first read, without a lock.

    Threads that read it at once may compute it twice, and all get the same object. The lock of
    `functools.cached_property` in Python 3.11 would be shared by all objects of the class, and
    would stay locked in a process that is forked meanwhile.

    >>> class Row:
    ...     @ComputedOnce
    ...     def total(self):
    ...         print("computed")
    ...         return 3
    >>> row = Row()
    >>> row.total + row.total
    computed
    6
    """

    def __init__(self, compute: Callable[..., Value]) -> None:
        self._compute = compute

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Value:
        value: Value = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value


class LazyMatrix:
    """A matrix of which no more exists than the rows that are asked for.

    `make(rows)` gives some of them, each of which depends on nothing but its own number. It is
    asked for a block at a time; `wide` says how many values it works on for a row, if they are
    more than the row holds.

    >>> squares = LazyMatrix(5, lambda rows: torch.arange(5.0)[rows, None] ** 2)
    >>> squares.shape, squares[3:].tolist(), squares[torch.tensor([[4], [0]])].tolist()
    ((5, 1), [[9.0], [16.0]], [[[16.0]], [[0.0]]])
    """

    def __init__(self, rows: int, make: Callable[[RowIndex], Tensor], wide: int = 0) -> None:
        first = make(slice(0, 1))
        self.shape = (rows, first.shape[1])
        self.dtype, self.device = first.dtype, first.device
        self.wide = max(wide, self.shape[1])
        self._make = make

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: RowIndex) -> Tensor:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            found = self._empty(stop - start)
            for block in row_blocks(stop - start, self.wide):
                found[block] = self._make(slice(start + block.start, start + block.stop))
            return found
        flat = rows.reshape(-1)
        found = self._empty(len(flat))
        for block in row_blocks(len(flat), self.wide):
            found[block] = self._make(flat[block])
        return found.view(*rows.shape, self.shape[1])

    def _empty(self, rows: int) -> Tensor:
        return torch.empty((rows, self.shape[1]), dtype=self.dtype, device=self.device)


Matrix: TypeAlias = Tensor | LazyMatrix


def is_large(rows: int, width: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether so many values are better not held in memory. On a GPU they are in any case."""
    return device.type == "cpu" and rows * width * dtype.itemsize > _scratch.IN_MEMORY


def is_large_matrix(matrix: Matrix) -> bool:
    """The same of a matrix: it may be a file, and no copy of it is made."""
    if isinstance(matrix, LazyMatrix):
        return True
    return is_large(len(matrix), matrix.shape[1], matrix.dtype, matrix.device)


def take_rows(matrix: Matrix, rows: Tensor) -> Matrix:
    """Some rows of a matrix, by their numbers. Those of a large one are put off, however few: what
    follows would make several copies of them."""
    if not is_large_matrix(matrix):
        return matrix[rows]
    return LazyMatrix(len(rows), lambda at: matrix[rows[at]])


def as_lazy(matrix: Matrix) -> LazyMatrix:
    """The matrix as one of which no copies are made."""
    return (
        matrix
        if isinstance(matrix, LazyMatrix)
        else LazyMatrix(len(matrix), lambda rows: matrix[rows])
    )


def hstack(first: Matrix, second: Matrix) -> Matrix:
    """Two matrices as one, of the wider of their types, on the first one's device."""
    dtype = torch.promote_types(first.dtype, second.dtype)
    device = first.device

    def both(rows: RowIndex) -> Tensor:
        return torch.cat([part[rows].to(device, dtype) for part in (first, second)], dim=1)

    width = first.shape[1] + second.shape[1]
    if not is_large(len(first), width, dtype, device):
        return both(slice(0, len(first)))
    return LazyMatrix(len(first), both)


def materialize(matrix: Matrix) -> Tensor:
    """The matrix as a tensor that is mapped from a scratch file, if it is large: made once."""
    if isinstance(matrix, Tensor):
        return matrix
    found = _scratch.table(matrix.shape, matrix.dtype)
    for rows in row_blocks(len(matrix), matrix.wide):
        found[rows] = matrix[rows]
    return found


def gather_columns(matrix: Matrix, columns: Tensor) -> Tensor:
    """One entry of each row, (rows,): that in its column of `columns`."""
    if isinstance(matrix, Tensor):
        return matrix.gather(1, columns[:, None])[:, 0]
    found = torch.empty(len(matrix), dtype=matrix.dtype, device=matrix.device)
    for rows in row_blocks(len(matrix), matrix.wide):
        found[rows] = matrix[rows].gather(1, columns[rows, None])[:, 0]
    return found


def to_device(matrix: Matrix, device: torch.device) -> Matrix:
    """The matrix on a device. A GPU holds all of it, and reads it faster than it can be made."""
    if isinstance(matrix, Tensor):
        return matrix.to(device)
    if device == matrix.device:
        return matrix
    found = torch.empty(matrix.shape, dtype=matrix.dtype, device=device)
    for rows in row_blocks(len(matrix), matrix.wide):
        found[rows] = matrix[rows].to(device)
    return found
