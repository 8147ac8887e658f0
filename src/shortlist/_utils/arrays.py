"""Convert arrays to tensors and back.

Inside the library every array is a torch tensor. NumPy arrays are converted without a copy, and
results are returned as NumPy arrays; tensors stay on their device, and results are tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.validation import check_finite, check_tensor, check_unmasked

Array: TypeAlias = "NDArray[np.generic] | Tensor"
ArrayLike: TypeAlias = "NDArray[np.generic] | Tensor | Sequence[object] | SupportsArray"
ArrayType: TypeAlias = Literal["numpy", "torch"]


class SupportsArray(Protocol):
    """Anything that NumPy can read, such as frames and columns of pandas, Polars and Arrow."""

    def __array__(self) -> NDArray[Any]:
        """Return the values as an array."""
        ...

    def __len__(self) -> int:
        """Return the number of rows."""
        ...


def infer_array_type(x: object) -> ArrayType:
    """Return the array type of the results for an input: that of the input."""
    return "torch" if isinstance(x, Tensor) else "numpy"


def to_array_type(x: Tensor, array_type: ArrayType) -> Array:
    """Convert a tensor to an array type."""
    return x if array_type == "torch" else x.cpu().numpy()


def to_tensor(x: object, name: str) -> Tensor:
    """Return an array as a tensor, over the same memory where possible.

    Parameters
    ----------
    x : object
        Array, tensor, frame or nested sequence of numbers. Memory maps are not read.
    name : str
        Name of the argument, for error messages.

    Returns
    -------
    Tensor
        Must not be written to: it may share the caller's memory, which may be read-only.

    Raises
    ------
    ValueError
        If `x` is not a dense array of numbers.
    """
    if isinstance(x, Tensor):
        check_tensor(x, name)
        return x.detach()
    check_unmasked(x, name)
    if hasattr(x, "toarray"):
        raise ValueError(
            f"{name} must be dense; got a sparse {type(x).__name__} of shape "
            f"{getattr(x, 'shape', '?')}. Convert it with .toarray(), or reduce features first "
            "(e.g. TruncatedSVD)"
        )
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ValueError(f"{name} is not a rectangular array: {error}") from error
    if array.dtype == object and _has_only_numbers(x):
        # pandas gives objects for a frame of floats and booleans, or for the dtype Float64.
        array = np.asarray(x.to_numpy(dtype=np.float64, na_value=np.nan))  # type: ignore[attr-defined]
    if array.dtype.kind not in "biuf":
        advice = "Keep only the numeric columns"
        if name == "scores":
            advice += ", or give ranked labels to Ranking.from_candidates"
        raise ValueError(
            f"{name} must hold numbers; got dtype {array.dtype} (type {type(x).__name__}). {advice}"
        )
    return torch.from_numpy(_as_torch_compatible(array))


def _as_torch_compatible(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return an array of numbers that torch accepts without a warning."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype == np.longdouble and np.longdouble is not np.float64:
        array = array.astype(np.float64)
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = np.ascontiguousarray(array)
    # Torch warns about read-only memory. The library never writes to its input.
    return array if array.flags.writeable else np.asarray(_Writable(array))


class _Writable:
    """Present the memory of a read-only array as writable.

    Torch's warning cannot be filtered instead: the filters are shared by all threads.
    """

    def __init__(self, array: NDArray[np.generic]) -> None:
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self.array = array  # Keeps the memory alive.


def _has_only_numbers(x: object) -> bool:
    """Return whether all columns of a pandas frame are numeric or boolean."""
    kinds = [getattr(dtype, "kind", "O") for dtype in getattr(x, "dtypes", [])]
    return bool(kinds) and all(kind in "biuf" for kind in kinds)


def as_matrix(x: object, name: str, columns: str) -> Tensor:
    """Return a finite floating-point matrix with at least one row and one column.

    See :func:`as_bounded_matrix` for parameters and errors.
    """
    return as_bounded_matrix(x, name, columns)[0]


def as_bounded_matrix(x: object, name: str, columns: str) -> tuple[Tensor, tuple[float, float]]:
    """Return a finite floating-point matrix, and bounds of its values.

    Parameters
    ----------
    x : object
        Anything that `to_tensor` accepts. Integers are converted to float64.
    name : str
        Name of the argument, for error messages.
    columns : str
        What the columns are, for error messages.

    Returns
    -------
    matrix : Tensor of shape (n_rows, n_columns)
        At least one row and one column.
    bounds : tuple of float
        Lower and upper bound of the values; see `check_finite`.

    Raises
    ------
    ValueError
        If `x` is not a matrix of finite real numbers, or empty.
    """
    matrix = to_tensor(x, name)
    if matrix.ndim != 2:
        raise ValueError(
            f"{name} must be a matrix of shape (rows, {columns}); got shape {tuple(matrix.shape)}"
            + (f"; for a single row, give [{name}]" if matrix.ndim == 1 else "")
        )
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        raise ValueError(
            f"{name} is empty: shape {tuple(matrix.shape)}, that is (rows, {columns}); "
            "give at least one of each"
        )
    if matrix.dtype == torch.bool:
        dtype = getattr(x, "dtype", matrix.dtype)  # The name of the dtype in the caller's library.
        raise ValueError(f"{name} must hold real numbers; got dtype {dtype}")
    if not matrix.is_floating_point():
        matrix = matrix.to(torch.float64)
    return matrix, check_finite(matrix, name)


def as_features(x: object, *, rows: int | None = None, columns: int | None = None) -> Tensor:
    """Return a feature matrix, and check its number of rows and columns if given."""
    features = as_matrix(x, "features", "columns")
    if rows is not None and features.shape[0] != rows:
        raise ValueError(f"features have {features.shape[0]} rows, but the scores have {rows}")
    if columns is not None and features.shape[1] != columns:
        raise ValueError(
            f"features have {features.shape[1]} columns, but fit saw {columns}; "
            "give the same features in the same order"
        )
    return features


def row_index(rows: object, n: int, device: torch.device) -> slice | Tensor:
    """Return a row selection as a slice of positive step, or as a tensor of indices.

    Parameters
    ----------
    rows : slice, sequence of int, or boolean mask
        Rows to select. Indices and steps can be negative.
    n : int
        Number of rows.
    device : torch.device
        Device of the returned tensor.

    Returns
    -------
    slice or Tensor
        Tensors contain indices from 0 to n - 1.

    Raises
    ------
    IndexError
        If an index is out of range, or `rows` is not a selection.

    Examples
    --------
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
            "rows must be a slice, a list of indices or a boolean mask; "
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


def float64_row_sums(x: Tensor) -> Tensor:
    """Return the sum of each row in float64, of shape (n_rows, 1).

    NumPy is used on a CPU because torch would copy the whole matrix to float64.

    Examples
    --------
    >>> float64_row_sums(torch.tensor([[1e8, 1.0, -1e8]])).tolist()
    [[1.0]]
    """
    if x.is_cuda or x.dtype not in (torch.float32, torch.float64):
        return x.sum(dim=1, keepdim=True, dtype=torch.float64)
    with np.errstate(over="ignore"):  # Infinite sums are allowed, as on a GPU.
        return torch.from_numpy(x.numpy().sum(axis=1, keepdims=True, dtype=np.float64))
