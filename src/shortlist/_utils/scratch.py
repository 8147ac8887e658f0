"""Tables that need not fit in memory: a large one lies in a temporary file without a name."""

from __future__ import annotations

import os
import tempfile
from math import prod

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

IN_MEMORY = 1 << 27
"""So many bytes are held in memory, and read in any order; of more, a window is."""
BLOCK_BYTES = 1 << 24
"""What is copied at a time."""


def table(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """An uninitialised tensor: in memory, or, if it is large, mapped from a scratch file.

    >>> table((2, 3)).shape
    torch.Size([2, 3])
    """
    if prod(shape) * dtype.itemsize <= IN_MEMORY:
        return torch.empty(shape, dtype=dtype)
    raw = scratch((prod(shape) * dtype.itemsize,), np.uint8)
    return torch.from_numpy(raw).view(dtype).view(shape)


def scratch(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
    """An array in a file that nobody else sees.

    The file has no name (on Windows: it is deleted when it is closed), so that it is gone with the
    array, whatever becomes of the process.
    """
    size = prod(shape) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile(prefix="shortlist-") as file:
        try:
            if hasattr(os, "posix_fallocate"):
                # A full disk is noticed here, and not by a signal when a page is written.
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{size / 1e9:.1f} GB are needed for a temporary file in {tempfile.gettempdir()} "
                f"({error.strerror}); the environment variable TMPDIR names another folder",
            ) from error
        return np.memmap(file, dtype, "r+", 0, shape)


def picked(array: NDArray[np.generic], rows: NDArray[np.intp]) -> NDArray[np.generic]:
    """A copy of some rows of a matrix: in memory, or, if it is large, in a scratch file.

    >>> picked(np.eye(3), np.array([2, 0])).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    shape = (len(rows), *array.shape[1:])
    if prod(shape) * array.itemsize <= IN_MEMORY:
        return np.asarray(array[rows])
    found = scratch(shape, array.dtype)
    step = max(1, BLOCK_BYTES // max(1, array.itemsize * prod(shape[1:])))
    for start in range(0, len(rows), step):
        found[start : start + step] = array[rows[start : start + step]]
    return found


class Filling:
    """A matrix of at most so many rows, of which a part after the other comes.

    >>> found = Filling(5, np.ones((2, 3)))
    >>> found.add(np.zeros((1, 3)))
    >>> found.whole().shape
    (3, 3)
    """

    def __init__(self, most: int, first: NDArray[np.generic]) -> None:
        shape = (most, first.shape[1])
        small = prod(shape) * first.dtype.itemsize <= IN_MEMORY
        self._table: NDArray[np.generic] = (np.empty if small else scratch)(shape, first.dtype)
        self._done = 0
        self.add(first)

    def fits(self, part: NDArray[np.generic]) -> bool:
        """Whether rows are as long as those before."""
        return part.shape[1:] == self._table.shape[1:]

    def add(self, part: NDArray[np.generic]) -> None:
        self._table[self._done : self._done + len(part)] = part
        self._done += len(part)

    def whole(self) -> NDArray[np.generic]:
        """All rows that came."""
        return self._table[: self._done]
