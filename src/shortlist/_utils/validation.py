"""Validate arrays and parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.blocks import row_blocks
from shortlist._utils.threads import map_blocks

REMEDIES = {
    "scores": "fill them, or leave such rows out",
    "features": "fill them, or leave such rows out",
    "X": "fill them, or leave such rows out",
    "labels": "pad missing candidates with -1: .filled(-1), .fillna(-1)",
}
"""What to do about missing values, by the name of the array."""


def check_unmasked(x: object, name: str) -> None:
    """Raise if a masked array, or a row of a list, has a masked value, or if a frame is lazy.

    `np.asarray` returns the values under a mask as if they were data, and a lazy frame as one
    object.

    Parameters
    ----------
    x : object
        Anything that can be converted to an array.
    name : str
        Name of the argument, for error messages.

    Raises
    ------
    ValueError
        If a value is masked. The message says which one.

    Examples
    --------
    >>> check_unmasked(np.ma.array([1, 2], mask=[False, True]), "y")
    Traceback (most recent call last):
    ValueError: y is masked in row 1; leave such rows out
    """
    if type(x).__name__ == "LazyFrame":
        raise ValueError(f"{name} is a LazyFrame, which has no values yet; give .collect()")
    rows = x if isinstance(x, list | tuple) else None
    if isinstance(x, np.ma.MaskedArray):
        place = _first_true(np.ma.getmaskarray(x))
    elif rows is not None and any(isinstance(row, np.ma.MaskedArray) for row in rows):
        place = next(((i,) for i, row in enumerate(rows) if np.ma.is_masked(row)), None)
    else:
        return
    if place is not None:
        raise ValueError(f"{name} is masked in {_format_place(place)}; {_remedy(name)}")


def check_present(x: object, name: str) -> None:
    """Raise if a value is masked, or missing in a column of a table (NA, NaN, None, null).

    Parameters
    ----------
    x : object
        Anything that can be converted to an array. Columns of pandas, Arrow and Polars can have
        missing values.
    name : str
        Name of the argument, for error messages.

    Raises
    ------
    ValueError
        If a value is missing. The message says which one.
    """
    check_unmasked(x, name)
    place = _first_true(_missing(x))
    if place is not None:
        raise ValueError(f"{name} is missing in {_format_place(place)}; {_remedy(name)}")


def _missing(x: object) -> NDArray[np.bool_]:
    """Return which values of a table column are missing, or an empty array for other types."""
    for method in ("isna", "is_null"):  # pandas; Arrow and Polars
        is_missing = getattr(x, method, None)
        if callable(is_missing) and not isinstance(x, type):
            return np.asarray(is_missing(), dtype=bool)
    return np.zeros(0, dtype=bool)


def _first_true(mask: NDArray[np.bool_]) -> tuple[int, ...] | None:
    """Return the index of the first true value."""
    if not mask.any():
        return None
    return tuple(int(i) for i in np.argwhere(mask)[0])


def _format_place(place: tuple[int, ...]) -> str:
    return f"row {place[0]}" + (f", column {place[1]}" if len(place) > 1 else "")


def _remedy(name: str) -> str:
    return REMEDIES.get(name, "leave such rows out")


def check_tensor(x: Tensor, name: str) -> None:
    """Raise if a tensor is not a dense tensor of real numbers.

    Parameters
    ----------
    x : Tensor
        Any tensor.
    name : str
        Name of the argument, for error messages.

    Raises
    ------
    ValueError
        If the tensor is sparse, nested, masked, quantized, complex, without data (on the meta
        device), or of a dtype that torch cannot compute with.
    """
    if x.is_complex():
        raise ValueError(f"{name} must hold real numbers; got dtype {x.dtype}")
    problem = remedy = ""
    if x.is_nested:
        problem, remedy = "nested", "pad its rows to one length"
    elif x.layout is not torch.strided:
        problem, remedy = f"sparse ({x.layout})", "give a dense one: .to_dense()"
    elif type(x).__name__ == "MaskedTensor":
        problem, remedy = "masked", _remedy(name)
    elif x.is_meta:
        problem, remedy = "without values, on the meta device", "give one on the CPU or a GPU"
    elif x.is_quantized:
        problem, remedy = f"quantized ({x.dtype})", "give numbers: .dequantize()"
    elif x.is_floating_point() and x.dtype.itemsize < 2:
        problem = f"of {x.dtype}, which is for storage only"
        remedy = "convert it: .to(torch.float32)"
    if problem:
        raise ValueError(f"{name} is a tensor that is {problem}; {remedy}")


_BITS_OF_TWO = np.float32(2).view(np.uint32)


def check_finite(matrix: Tensor, name: str) -> tuple[float, float]:
    """Return bounds of the values of a matrix; raise if a value is not finite.

    Reads the matrix once and does not copy it.

    Parameters
    ----------
    matrix : Tensor of shape (n_rows, n_columns)
        Floating-point values.
    name : str
        Name of the argument, for error messages.

    Returns
    -------
    tuple of float
        Largest value, and before it the smallest one, or 0 if all values are between 0 and 2.

    Raises
    ------
    ValueError
        If a value is NaN or infinite. The message says where the first one is.
    """
    n_rows, n_columns = matrix.shape
    if matrix.device.type == "cpu":
        ends = map_blocks(lambda rows: _bounds(matrix[rows]), n_rows, n_columns)
    else:
        ends = [_bounds(matrix[rows]) for rows in row_blocks(n_rows, n_columns, matrix.device)]
    if not all(math.isfinite(end) for bounds in ends for end in bounds):
        _raise_not_finite(matrix, name)
    return min(low for low, _ in ends), max(high for _, high in ends)


def _bounds(block: Tensor) -> tuple[float, float]:
    """Return bounds of the values; NaN if a value is NaN."""
    is_plain = block.dtype == torch.float32 and block.device.type == "cpu"
    if is_plain and block.is_contiguous() and bool((block[0] >= 0).all()):
        # As integers, the bits of floats in [0, 2) are smaller than those of all others, so that
        # one pass finds out what takes two in general.
        largest = block.numpy().view(np.uint32).max()
        if largest < _BITS_OF_TWO:
            return 0.0, float(largest.view(np.float32))
    low, high = torch.aminmax(block)
    return float(low), float(high)


def _raise_not_finite(matrix: Tensor, name: str) -> None:
    """Raise an error that says where the first value is that is not finite."""
    n_rows, n_columns = matrix.shape
    for rows in row_blocks(n_rows, n_columns, matrix.device):
        places = (~torch.isfinite(matrix[rows])).flatten().nonzero()
        if len(places):
            row, column = divmod(int(places[0]), n_columns)
            value = float(matrix[rows][row, column])
            raise ValueError(
                f"{name} holds {value} at row {rows.start + row}, column {column}; every value "
                f"must be finite. Remove such rows, or {_finite_remedy(name, value)}"
            )


def _finite_remedy(name: str, value: float) -> str:
    """Return what to do about a value that is not finite, other than removing its row."""
    if name != "scores":
        return "fill in missing values"
    if math.isnan(value):
        return "correct the code that computes them"
    return "clip log-probabilities of zero, e.g. np.maximum(scores, -100)"


def check_probability(value: object, name: str) -> float:
    """Return a number strictly between 0 and 1; raise for anything else."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        several = "; for several values use predict_sets(..., accuracies=[...])"
        hint = several if name == "accuracy" and isinstance(value, list | tuple) else ""
        raise ValueError(f"{name} must be a number; got {value!r}{hint}") from None
    if not 0.0 < number < 1.0:
        hint = f"; did you mean {number / 100:g}?" if 2 <= number < 100 else ""
        raise ValueError(f"{name} must lie strictly between 0 and 1; got {value!r}{hint}")
    return number


def check_non_negative(value: object, name: str) -> float:
    """Return a finite number of at least 0; raise for anything else."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number; got {value!r}") from None
    if not (0.0 <= number < math.inf):
        raise ValueError(f"{name} must be finite and not negative; got {value!r}")
    return number


def check_count(value: object, name: str, minimum: int = 1) -> int:
    """Return an integer of at least `minimum`; raise for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or int(value) < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}; got {value!r}")
    return int(value)


def check_choice(value: object, name: str, allowed: Sequence[str]) -> str:
    """Return one of the allowed strings; raise for anything else, and suggest the nearest."""
    if value not in allowed:
        near = get_close_matches(str(value), allowed, n=1)
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )
    return str(value)
