"""What the fields of a saved model may contain, checked before an object is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from shortlist.io.persistence import ModelFileError

MAX_COUNT = 1 << 26
"""Largest number of classes, features, rows or units that a model may have."""
MAX_FLOAT = 1e300
"""Largest absolute value of a float. Arithmetic with larger numbers overflows."""
Array: TypeAlias = "Tensor | np.ndarray[tuple[int, ...], np.dtype[np.generic]]"


@dataclass(frozen=True)
class Field:
    """What a value may be.

    Parameters
    ----------
    description : str
        Noun phrase that says what is accepted, for error messages.
    accepts : callable
        Returns whether a value is accepted.

    Examples
    --------
    >>> (TEXT | NONE).check("name", 3)
    Traceback (most recent call last):
    shortlist.io.persistence.ModelFileError: name is 3, not a string or None
    """

    description: str
    accepts: Callable[[object], bool]

    def check(self, name: str, value: object) -> None:
        """Raise a `ModelFileError` if a value is not accepted.

        Parameters
        ----------
        name : str
            Name of the field, for the message.
        value : object
            Value to check.
        """
        if not self.accepts(value):
            raise ModelFileError(f"{name} is {_describe(value)}, not {self.description}")

    def __or__(self, other: Field) -> Field:
        return Field(
            f"{self.description} or {other.description}",
            lambda value: self.accepts(value) or other.accepts(value),
        )


def ensure(condition: object, message: str) -> None:
    """Raise a `ModelFileError` with a message unless a condition holds.

    Parameters
    ----------
    condition : object
        Anything with a truth value.
    message : str
        What is wrong if the condition does not hold.
    """
    if not condition:
        raise ModelFileError(message)


def _describe(value: object) -> str:
    """Return a value of a file in a few words."""
    if isinstance(value, Tensor | np.ndarray):
        return f"an array of {value.dtype} of shape {tuple(value.shape)}"
    text = " ".join(repr(value).split()) if _is_plain(value) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}…"


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def integer(minimum: int = 0, maximum: int = MAX_COUNT) -> Field:
    """Return a field of integers. True and False are not integers.

    Parameters
    ----------
    minimum, maximum : int
        Range of the values.

    Returns
    -------
    Field
    """

    def accepts(value: object) -> bool:
        is_bool = isinstance(value, bool)
        return isinstance(value, int) and not is_bool and minimum <= value <= maximum

    return Field(f"an integer from {minimum} to {maximum:,}", accepts)


def number(minimum: float = -math.inf, maximum: float = math.inf) -> Field:
    """Return a field of finite numbers.

    Parameters
    ----------
    minimum, maximum : float
        Range of the values.

    Returns
    -------
    Field
    """

    def accepts(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not abs(value) <= (MAX_FLOAT if isinstance(value, float) else 2**63 - 1):
            return False
        return minimum <= value <= maximum

    lower = "" if math.isinf(minimum) else f" from {minimum:g}"
    upper = "" if math.isinf(maximum) else f" to {maximum:g}"
    return Field(f"a finite number{lower}{upper}", accepts)


def choice(*names: str) -> Field:
    """Return a field of one of several strings."""
    return Field(
        " or ".join(map(repr, names)), lambda value: isinstance(value, str) and value in names
    )


def instance_of(*classes: type) -> Field:
    """Return a field of instances of some classes."""
    names = " or ".join(cls.__name__ for cls in classes)
    return Field(names, lambda value: isinstance(value, classes))


def sequence_of(field: Field, min_length: int = 0, container: type = list) -> Field:
    """Return a field of lists or tuples whose values are all accepted by another field.

    Parameters
    ----------
    field : Field
        What each value may be.
    min_length : int, default=0
        Smallest number of values.
    container : type, default=list
        `list` or `tuple`.

    Returns
    -------
    Field
    """

    def accepts(value: object) -> bool:
        if not isinstance(value, list | tuple) or not isinstance(value, container):
            return False
        return len(value) >= min_length and all(map(field.accepts, value))

    return Field(
        f"a {container.__name__} of at least {min_length} values, each {field.description}", accepts
    )


def array(kinds: str, ndim: int, *, finite: bool = True, array_type: type = np.ndarray) -> Field:
    """Return a field of numeric arrays. NaN is never accepted.

    Parameters
    ----------
    kinds : str
        Accepted kinds of numbers, as NumPy's letters: "f" for floats, "i" for integers, "u" for
        unsigned integers.
    ndim : int
        Number of axes.
    finite : bool, default=True
        Whether infinities are refused.
    array_type : type, default=numpy.ndarray
        `numpy.ndarray` or `torch.Tensor`.

    Returns
    -------
    Field
    """

    def accepts(value: object) -> bool:
        if not isinstance(value, array_type) or not isinstance(value, Tensor | np.ndarray):
            return False
        kind = _kind(value)
        if value.ndim != ndim or kind not in kinds:
            return False
        return kind != "f" or _has_valid_floats(value, finite)

    names = {"f": "floats", "i": "integers"}
    numbers = " or ".join(names.get(kind, kind) for kind in kinds)
    prefix = "finite " if finite else ""
    return Field(f"an array of {prefix}{numbers} of {ndim} axes", accepts)


def tensor(kinds: str, ndim: int) -> Field:
    """Return a field of finite tensors. The parameters are those of `array`."""
    return array(kinds, ndim, array_type=Tensor)


def _kind(value: Array) -> str:
    """Return NumPy's letter for the numbers of an array; "?" for tensors of other types."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind
    floats = (torch.float16, torch.float32, torch.float64)
    integers = (torch.int8, torch.int16, torch.int32, torch.int64)
    return "f" if value.dtype in floats else "i" if value.dtype in integers else "?"


def _has_valid_floats(value: Array, finite: bool) -> bool:
    floats = torch.from_numpy(value) if isinstance(value, np.ndarray) else value.detach()
    return bool(torch.isfinite(floats).all() if finite else ~torch.isnan(floats).any())


def _is_label(value: object) -> bool:
    return _is_plain(value) or (isinstance(value, tuple) and all(map(_is_label, value)))


def _are_labels(values: object) -> bool:
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        return False
    return values.dtype.kind != "O" or all(map(_is_label, values.tolist()))


def _is_level(value: object) -> bool:
    is_bool = isinstance(value, bool)
    return isinstance(value, int | float) and not is_bool and value == value  # Not NaN.


ANYTHING = Field("anything", lambda value: True)
PLAIN = Field("a number, a string or None", _is_plain)
TEXT = Field("a string", lambda value: isinstance(value, str))
FLAG = Field("True or False", lambda value: isinstance(value, bool))
NONE = Field("None", lambda value: value is None)
COUNT = integer(1)
FRACTION = number(0, 1)
SCALE = number(1e-9, 1e9)
WEIGHT = number(0)
LEVEL = Field("a number", _is_level)
SEED = integer(0, 2**63 - 1)
LABEL = Field("a label", _is_label)
LABELS = Field("an array of labels", _are_labels)
