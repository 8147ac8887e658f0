"""Split the rows of a matrix into blocks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 20
"""Values in a block on a CPU: large enough to be fast, small enough for the cache."""
CACHED_ELEMENTS = 1 << 17
"""Values in a block that one thread passes through several operations."""
RANKED_ELEMENTS = 1 << 18
"""Values in a block that one thread ranks, whose result is much smaller than the block."""
DEVICE_ELEMENTS = 1 << 26
"""Values in a block on a GPU, which needs many rows at once."""
ROW_MULTIPLE = 64
"""Blocks on a GPU have a multiple of this many rows, the alignment that tensor cores need."""


def row_blocks(
    rows: int, width: int, device: torch.device | None = None, *, elements: int | None = None
) -> Iterator[slice]:
    """Yield slices that cover the rows of a matrix.

    Parameters
    ----------
    rows, width : int
        Shape of the matrix.
    device : torch.device, optional
        Device of the matrix. The default is a CPU.
    elements : int, optional
        Approximate number of values in a block. The default depends on the device.

    Yields
    ------
    slice
        Consecutive rows, at least one.

    Examples
    --------
    >>> list(row_blocks(5, 10, elements=20))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    on_gpu = device is not None and device.type == "cuda"
    if elements is None:
        elements = DEVICE_ELEMENTS if on_gpu else BLOCK_ELEMENTS
    step = max(1, elements // max(1, width))
    if on_gpu and step > ROW_MULTIPLE:
        step -= step % ROW_MULTIPLE
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def matrix_blocks(matrix: Tensor) -> Iterator[slice]:
    """Yield the row blocks of a matrix."""
    return row_blocks(matrix.shape[0], matrix.shape[1], matrix.device)
