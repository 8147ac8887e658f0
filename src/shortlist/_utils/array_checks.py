"""What NumPy or torch would drop or misread in silence: masks, missing values, odd tensors."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CURES = {
    "scores": "fill them, or leave such rows out",
    "features": "fill them, or leave such rows out",
    "X": "fill them, or leave such rows out",
    "labels": "pad such places with -1: .filled(-1), .fillna(-1)",
}
"""What to do about missing values, by the name of the array."""


def check_unmasked(x: object, name: str) -> None:
    """Raise if a masked array, or one of a list's rows, masks a value.

    `np.asarray` gives the values under a mask as if they were data.

    Parameters
    ----------
    x : object
        Anything that may become an array.
    name : str
        What the caller calls it.

    Raises
    ------
    ValueError
        If a value is masked. The message says which.

    Examples
    --------
    >>> check_unmasked(np.ma.array([1, 2], mask=[False, True]), "y")
    Traceback (most recent call last):
    ValueError: y has a mask over row 1; leave such rows out
    """
    rows = x if isinstance(x, list | tuple) else None
    if isinstance(x, np.ma.MaskedArray):
        found = _first(np.ma.getmaskarray(x))
    elif rows is not None and any(isinstance(row, np.ma.MaskedArray) for row in rows):
        hidden = (np.ma.is_masked(row) for row in rows)
        found = next(((i,) for i, masked in enumerate(hidden) if masked), None)
    else:
        return
    if found is not None:
        raise ValueError(f"{name} has a mask over {_place(found)}; {_cure(name)}")


def check_present(x: object, name: str) -> None:
    """Raise if a value is masked, or missing (NA, NaN, None, null) in a column of a table.

    Parameters
    ----------
    x : object
        Anything that may become an array; pandas', Arrow's and Polars' columns can lack values.
    name : str
        What the caller calls it.

    Raises
    ------
    ValueError
        If a value is missing. The message says which.
    """
    check_unmasked(x, name)
    found = _first(_missing(x))
    if found is not None:
        raise ValueError(f"{name} is missing in {_place(found)}; {_cure(name)}")


def _missing(x: object) -> NDArray[np.bool_]:
    """Which values of a table's column are missing; an empty array if none can be."""
    for test in ("isna", "is_null"):  # pandas; Arrow and Polars
        ask = getattr(x, test, None)
        if callable(ask) and not isinstance(x, type):
            return np.asarray(ask(), dtype=bool)
    return np.zeros(0, dtype=bool)


def _first(wrong: NDArray[np.bool_]) -> tuple[int, ...] | None:
    """Where the first true value is."""
    if not wrong.any():
        return None
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def _place(at: tuple[int, ...]) -> str:
    return f"row {at[0]}" + (f", column {at[1]}" if len(at) > 1 else "")


def _cure(name: str) -> str:
    return CURES.get(name, "leave such rows out")


def check_tensor(x: Tensor, name: str) -> None:
    """Raise if a tensor is not a plain dense one of real numbers.

    Parameters
    ----------
    x : Tensor
        Any tensor.
    name : str
        What the caller calls it.

    Raises
    ------
    ValueError
        If the tensor is sparse, nested, masked, quantized, complex, without data (on the meta
        device), or of a type that torch cannot compute with.
    """
    if x.is_complex():
        raise ValueError(f"{name} must hold real numbers; got dtype {x.dtype}")
    kind = cure = ""
    if x.is_nested:
        kind, cure = "nested", "pad its rows to one length"
    elif x.layout is not torch.strided:
        kind, cure = f"sparse ({x.layout})", "give a dense one: .to_dense()"
    elif type(x).__name__ == "MaskedTensor":
        kind, cure = "masked", _cure(name)
    elif x.is_meta:
        kind, cure = "without values, on the meta device", "give one on the CPU or a GPU"
    elif x.is_quantized:
        kind, cure = f"quantized ({x.dtype})", "give numbers: .dequantize()"
    elif x.is_floating_point() and x.dtype.itemsize < 2:
        kind, cure = f"of {x.dtype}, which is for storage only", "convert it: .to(torch.float32)"
    if kind:
        raise ValueError(f"{name} is a tensor that is {kind}; {cure}")
