"""The edge: which arrays come in, which go out, and what is wrong with them.

Inside the library everything is a torch tensor. NumPy arrays come in without a copy and results
go back as NumPy; torch tensors stay on their device and results go back as tensors.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.array_checks import check_tensor, check_unmasked

Array: TypeAlias = "NDArray[np.generic] | Tensor"
ArrayLike: TypeAlias = "NDArray[np.generic] | Tensor | Sequence[object]"
ArrayType: TypeAlias = Literal["numpy", "torch"]
Result = TypeVar("Result")

BLOCK_ELEMENTS = 1 << 20
"""How many scores a row block holds: large enough to be fast, small enough to stay in cache."""
IN_CACHE = 1 << 17
"""The same for one thread, through several steps in NumPy."""
RANKED_ELEMENTS = 1 << 21
"""The same where little is made of them, …"""
READ_ELEMENTS = 1 << 24
"""… and where they are only read."""
DEVICE_ELEMENTS = 1 << 26
"""The same on a GPU, which has no use for cache but for many rows at once."""
WARP = 64
SMALL = 1 << 16
"""Fewer values are not worth another thread."""
MOST_THREADS = 256
LARGE = 1 << 26
"""So many bytes are not copied without need."""


def array_type_of(x: object) -> ArrayType:
    """Which kind of array the caller speaks."""
    return "torch" if isinstance(x, Tensor) else "numpy"


def to_tensor(x: object, name: str) -> Tensor:
    """A tensor over the same memory where that is possible (also a read-only memory map's)."""
    if isinstance(x, Tensor):
        check_tensor(x, name)
        return x.detach()
    check_unmasked(x, name)
    if hasattr(x, "toarray"):
        raise ValueError(
            f"{name} are a sparse {type(x).__name__} of shape {getattr(x, 'shape', '?')}; "
            "dense ones are needed: .toarray(), or reduce features first (e.g. TruncatedSVD)"
        )
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ValueError(f"{name} is not a rectangular array: {error}") from error
    if array.dtype == object and _has_numbers(x):  # a frame of floats beside booleans, or Float64
        array = np.asarray(x.to_numpy(dtype=np.float64, na_value=np.nan))  # type: ignore[attr-defined]
    if array.dtype.kind not in "biuf":
        advice = "keep only the columns of numbers"
        if name == "scores":
            advice += "; ranked labels go in through Ranking.from_candidates"
        raise ValueError(
            f"{name} must hold numbers; got dtype {array.dtype} (type {type(x).__name__}): {advice}"
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype == np.longdouble and np.longdouble is not np.float64:
        array = array.astype(np.float64)
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = np.ascontiguousarray(array)
    if not array.flags.writeable:  # That is fine: nothing here writes to its input.
        array = np.asarray(_Writable(array))
    return torch.from_numpy(array)


class _Writable:
    """A read-only array's memory as that of a writable one, of which torch does not warn.

    The warning cannot be filtered: the filters belong to all threads.
    """

    def __init__(self, array: NDArray[np.generic]) -> None:
        known = array.__array_interface__
        self.__array_interface__ = {**known, "data": (known["data"][0], False)}
        self.array = array  # Its memory must stay.


def _has_numbers(x: object) -> bool:
    """Whether all columns of a pandas frame are numbers, or booleans."""
    kinds = [getattr(dtype, "kind", "O") for dtype in getattr(x, "dtypes", [])]
    return bool(kinds) and all(kind in "biuf" for kind in kinds)


def to_array_type(x: Tensor, kind: ArrayType) -> Array:
    """The tensor as the caller's kind of array."""
    return x if kind == "torch" else x.cpu().numpy()


def as_matrix(x: object, name: str, columns: str) -> Tensor:
    """A finite floating-point matrix with at least one row and one column."""
    return as_bounded_matrix(x, name, columns)[0]


def as_bounded_matrix(x: object, name: str, columns: str) -> tuple[Tensor, tuple[float, float]]:
    """The same, and its least and largest value."""
    matrix = to_tensor(x, name)
    if matrix.ndim != 2:
        raise ValueError(
            f"{name} must be a matrix of shape (rows, {columns}); got shape {tuple(matrix.shape)}"
            + (f": of one row, [{name}]?" if matrix.ndim == 1 else "")
        )
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        raise ValueError(
            f"{name} is empty: shape {tuple(matrix.shape)}, that is (rows, {columns}); "
            "give at least one of each"
        )
    if matrix.dtype == torch.bool:
        dtype = getattr(x, "dtype", matrix.dtype)  # as the caller knows it
        raise ValueError(f"{name} must hold real numbers; got dtype {dtype}")
    if not matrix.is_floating_point():
        matrix = matrix.to(torch.float64)
    return matrix, check_finite(matrix, name)


def check_finite(matrix: Tensor, name: str) -> tuple[float, float]:
    """The least and the largest value. Raises at the first NaN or infinity, saying where it is.
    One pass, no copy."""
    least, largest = math.inf, -math.inf
    for rows in read_blocks(matrix.shape[0], matrix.shape[1], matrix.device):
        block = matrix[rows]
        low, high = (float(value) for value in torch.aminmax(block))
        least, largest = min(least, low), max(largest, high)
        if not (math.isfinite(low) and math.isfinite(high)):
            at = int((~torch.isfinite(block)).flatten().nonzero()[0])
            row, column = divmod(at, matrix.shape[1])
            value = float(block[row, column])
            cure = "or fill in what is missing"
            if name == "scores":
                clip = "or clip log-probabilities of zero, e.g. np.maximum(scores, -100)"
                cure = "or mend what makes them" if math.isnan(value) else clip
            raise ValueError(
                f"{name} holds {value} at row {rows.start + row}, "
                f"column {column}; every value must be finite. Remove such rows, {cure}"
            )
    return least, largest


def as_features(x: object, *, rows: int | None = None, columns: int | None = None) -> Tensor:
    """A feature matrix, with the number of rows and columns that it must have."""
    features = as_matrix(x, "features", "columns")
    if rows is not None and features.shape[0] != rows:
        raise ValueError(f"features have {features.shape[0]} rows, but the scores have {rows}")
    if columns is not None and features.shape[1] != columns:
        raise ValueError(
            f"features have {features.shape[1]} columns, but fit saw {columns}; "
            "give the same features in the same order"
        )
    return features


def row_blocks(
    rows: int, width: int, device: torch.device | None = None, *, elements: int | None = None
) -> Iterator[slice]:
    """Slices that cover `rows` rows of `width` values, each of about `elements` values: by
    default as many as suit the device.

    >>> list(row_blocks(5, 10, elements=20))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    there = device is not None and device.type == "cuda"
    if elements is None:
        elements = DEVICE_ELEMENTS if there else BLOCK_ELEMENTS
    step = max(1, elements // max(1, width))
    if there and step > WARP:  # so that matrices begin where tensor cores like it
        step -= step % WARP
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def read_blocks(rows: int, width: int, device: torch.device) -> Iterator[slice]:
    """Slices of rows that are only read: larger ones, as nothing of them has to stay in cache."""
    there = device.type == "cuda"
    return row_blocks(rows, width, device, elements=None if there else READ_ELEMENTS)


def matrix_blocks(matrix: Tensor) -> Iterator[slice]:
    """The row blocks of a matrix."""
    return row_blocks(matrix.shape[0], matrix.shape[1], matrix.device)


def sort_values(x: Tensor) -> Tensor:
    """The values along the last axis, rising. On a CPU by NumPy, which is several times faster."""
    if x.is_cuda:
        return torch.sort(x, dim=-1).values
    exact = x if x.dtype in (torch.float32, torch.float64, torch.int64) else x.to(torch.float32)
    array = exact.contiguous().numpy()
    if array.ndim == 1:
        return torch.from_numpy(np.sort(array)).to(x.dtype)
    out = np.empty_like(array)

    def sort(rows: slice) -> None:
        out[rows] = array[rows]
        out[rows].sort()

    run_in_threads(sort, len(array), array.size)
    return torch.from_numpy(out).to(x.dtype)


def float64_row_sums(x: Tensor) -> Tensor:
    """The sum of each row in float64: (rows, 1). On a CPU by NumPy, which makes no copy of the
    whole in float64 for it.

    >>> float64_row_sums(torch.tensor([[1e8, 1.0, -1e8]])).tolist()
    [[1.0]]
    """
    if x.is_cuda or x.dtype not in (torch.float32, torch.float64):
        return x.sum(dim=1, keepdim=True, dtype=torch.float64)
    with np.errstate(over="ignore"):  # an infinite sum is one, on a GPU too
        return torch.from_numpy(x.numpy().sum(axis=1, keepdims=True, dtype=np.float64))


def run_in_threads(work: Callable[[slice], Result], rows: int, size: int) -> list[Result]:
    """What some work in NumPy makes of parts of the rows, of `size` values in all: one part for
    each thread that torch has, if there is enough to do.

    >>> run_in_threads(lambda part: part.stop - part.start, 5, size=10)
    [5]
    """
    threads = 1 if size < SMALL else min(torch.get_num_threads(), rows)
    ends = [rows * k // threads for k in range(threads + 1)]
    parts = [slice(a, b) for a, b in pairwise(ends)]
    others = [_begun(work, part) for part in parts[1:]]
    return [work(parts[0]), *(other() for other in others)]


def _begun(work: Callable[[slice], Result], part: slice) -> Callable[[], Result]:
    """What waits for work in a thread; what does it, where Python is ending and takes none."""
    try:
        return _pool().submit(work, part).result
    except RuntimeError:
        return lambda: work(part)


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that stay: to begin one for each block takes longer than some blocks do."""
    return ThreadPoolExecutor(max_workers=MOST_THREADS)


def _after_fork() -> None:
    """Do without the parent's threads in a forked process, which has none of them.

    GNU OpenMP, by which PyTorch is parallel on Linux, would wait for its own for ever as soon as
    it is asked for more than one.
    """
    _pool.cache_clear()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class RowView:
    """Some rows of a matrix, copied only when, and as far as, they are looked at.

    >>> RowView(torch.eye(3), torch.tensor([2, 0]))[1:].tolist()
    [[1.0, 0.0, 0.0]]
    """

    def __init__(self, matrix: Tensor, rows: Tensor) -> None:
        self.matrix, self.rows = matrix, rows
        self.shape, self.device = (len(rows), matrix.shape[1]), matrix.device

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        return self.matrix[self.rows[rows]]


def select_rows(matrix: Tensor | RowView, rows: slice | Tensor) -> Tensor | RowView:
    """Some rows of a matrix. What would be a large copy is put off: the matrix may be a file."""
    inner = matrix if isinstance(matrix, Tensor) else matrix.matrix
    if isinstance(rows, slice):
        return matrix[rows] if isinstance(matrix, Tensor) else RowView(inner, matrix.rows[rows])
    if inner.is_cuda or len(rows) * inner.shape[1] * inner.element_size() <= LARGE:
        return matrix[rows]
    return RowView(inner, rows if isinstance(matrix, Tensor) else matrix.rows[rows])


def row_index(rows: object, n: int, device: torch.device) -> slice | Tensor:
    """What picks some of `n` rows: a slice, or a tensor of indices on `device`.

    Takes slices (of negative step too, which torch does not), lists or arrays of indices, and
    boolean masks.

    >>> row_index([True, False, True], 3, torch.device("cpu")).tolist()
    [0, 2]
    """
    if isinstance(rows, slice):
        if rows.step is None or rows.step > 0:
            return rows
        return torch.tensor(range(n)[rows], dtype=torch.int64, device=device)
    index = to_tensor(rows, "rows").to(device)
    if index.ndim != 1 or (len(index) and (index.is_floating_point() or index.is_complex())):
        raise IndexError(
            "rows are picked by a slice, a list of indices or a boolean mask; "
            f"got {index.dtype} of shape {tuple(index.shape)}"
        )
    if index.dtype == torch.bool:
        if len(index) != n:
            raise IndexError(f"the mask has {len(index)} entries, but there are {n} rows")
        return index.nonzero()[:, 0]
    index = index.to(torch.int64)
    outside = (index < -n) | (index >= n)
    if bool(outside.any()):
        raise IndexError(f"row {int(index[outside][0])} is not one of {n} rows")
    return torch.where(index < 0, index + n, index)


def check_probability(value: object, name: str) -> float:
    """A number strictly between 0 and 1."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        several = "; for several at once: predict_sets(..., accuracies=[...])"
        hint = several if name == "accuracy" and isinstance(value, list | tuple) else ""
        raise ValueError(f"{name} must be a number; got {value!r}{hint}") from None
    if not 0.0 < number < 1.0:
        hint = f"; did you mean {number / 100:g}?" if 2 <= number < 100 else ""
        raise ValueError(f"{name} must lie strictly between 0 and 1; got {value!r}{hint}")
    return number


def check_weight(value: object, name: str = "cost_weight") -> float:
    """A finite, non-negative number: the lambda of the paper."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number; got {value!r}") from None
    if not (0.0 <= number < float("inf")):
        raise ValueError(f"{name} must be finite and not negative; got {value!r}")
    return number


def check_count(value: object, name: str, least: int = 1) -> int:
    """An integer that is at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or int(value) < least:
        raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}")
    return int(value)


def check_choice(value: object, name: str, allowed: Sequence[str]) -> str:
    """One of a few names; else an error that suggests the nearest."""
    if value not in allowed:
        near = get_close_matches(str(value), allowed, n=1)
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )
    return str(value)
