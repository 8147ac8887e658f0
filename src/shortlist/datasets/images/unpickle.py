"""A reader for pickles of plain data that executes nothing in them.

The CIFAR archives contain pickles, and a pickle is a program that calls functions by name. A pickle
that is read here can call only the functions that occur in those archives. Each of these is
replaced by a function of this module, which checks its arguments and creates numbers, bytes and
containers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sized
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from shortlist.datasets.images.pickle_interpreter import (
    BASE_BUDGET,
    Budget,
    PickleInterpreter,
    UnsafePickleError,
    check_key,
    short,
)

MAX_DEPTH = 50
"""Maximum depth of nested containers."""
MAX_EXPANSION = 32
"""Maximum length of the value per byte of the pickle. Repeated parts count each time."""
MAX_AXES = 32


def read_plain_pickle(content: bytes) -> object:
    """Read a pickle of dictionaries, lists, strings, numbers and numeric arrays.

    Nothing in the pickle is executed. Strings of Python 2 are returned as bytes.

    Parameters
    ----------
    content : bytes
        The pickle.

    Returns
    -------
    object
        The value. It is nested at most 50 deep, and is at most 32 times as long as the pickle.

    Raises
    ------
    UnsafePickleError
        If the pickle contains other values, or takes more time or memory than its length allows.
    ValueError
        If the pickle is damaged.

    Examples
    --------
    >>> import pickle
    >>> read_plain_pickle(pickle.dumps({b"data": np.arange(3, dtype=np.uint8)}, protocol=2))
    {b'data': array([0, 1, 2], dtype=uint8)}
    >>> read_plain_pickle(pickle.dumps(len))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    shortlist.datasets.images.pickle_interpreter.UnsafePickleError: it names 'builtins.len', ...
    """
    budget = Budget(len(content))

    def find_function(module: str, name: str) -> _BudgetedFunction:
        function = _FUNCTIONS.get((module, name))
        if function is None:
            full_name = ascii(f"{module}.{name}"[:100])
            raise UnsafePickleError(f"it names {full_name}, which plain data never does")
        return _BudgetedFunction(function, budget)

    try:
        value = PickleInterpreter(content, find_function).run()
        return _Resolver(MAX_EXPANSION * len(content) + BASE_BUDGET).resolve(value)
    except UnsafePickleError:
        raise
    # The type of the error depends on where a pickle is damaged.
    except Exception as error:
        raise ValueError(f"it is not a readable pickle: {_line(error)}") from error


class _BudgetedFunction:
    """A function that a pickle can call but not change. Its work is counted."""

    __slots__ = ("_budget", "_function")

    def __init__(self, function: Callable[..., object], budget: Budget) -> None:
        self._function, self._budget = function, budget

    def __call__(self, *args: object) -> object:
        # A function can copy its arguments, so their length is the cost of the call.
        self._budget.spend(1 + sum(len(a) for a in args if isinstance(a, Sized)))
        return self._function(*args)

    def __setstate__(self, state: object) -> NoReturn:
        raise UnsafePickleError("it gives a state to a function")


class _TypePlaceholder:
    """Stands for a dtype while a pickle is read. Only types of numbers are allowed."""

    __slots__ = ("dtype",)

    def __init__(self, code: object, *flags: object) -> None:
        text = _text(code)
        if len(text) > 3 or not re.fullmatch(r"[<>|=]?(b1|[iu][1248]|f[248])", text):
            raise UnsafePickleError(
                f"it holds an array of type {short(text)}; only plain numbers are read"
            )
        self.dtype = np.dtype(text)

    def __setstate__(self, state: object) -> None:
        order = _text(state[1]) if isinstance(state, tuple) and len(state) > 1 else ""
        if order not in ("<", ">", "|", "="):
            raise UnsafePickleError(f"it gives a type the state {short(state)}")
        self.dtype = np.dtype(order + self.dtype.str[1:])


class _ArrayPlaceholder:
    """Stands for an array while a pickle is read."""

    __slots__ = ("value",)

    def __init__(self, *ignored: object) -> None:
        self.value: NDArray[np.generic] | None = None

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise UnsafePickleError(f"it gives an array the state {short(state)}")
        _, shape, dtype, fortran, raw = state
        self.value = _as_array(raw, dtype, shape, "F" if fortran else "C")


def _as_array(raw: object, dtype: object, shape: object, order: object) -> NDArray[np.generic]:
    """Return an array of numbers; raise unless its bytes match its type and shape."""
    if not isinstance(dtype, _TypePlaceholder) or not isinstance(raw, bytes | bytearray):
        raise UnsafePickleError(
            f"it holds an array of {type(raw).__name__}; only plain numbers are read"
        )
    if (
        not isinstance(shape, tuple)
        or len(shape) > MAX_AXES
        or not all(type(n) is int and 0 <= n < 2**63 for n in shape)
    ):
        raise UnsafePickleError("it holds an array whose shape is not a short tuple of sizes")
    if math.prod(shape) * dtype.dtype.itemsize != len(raw):
        raise UnsafePickleError(f"it holds an array of shape {shape!r} in {len(raw)} bytes")
    flat: NDArray[np.generic] = np.frombuffer(raw, dtype=dtype.dtype)
    return flat.reshape(shape, order="F" if _text(order) == "F" else "C")


def _from_buffer(raw: object, dtype: object, shape: object, order: object) -> _ArrayPlaceholder:
    """Return an array, in place of `numpy.core.numeric._frombuffer`."""
    array = _ArrayPlaceholder()
    array.value = _as_array(raw, dtype, shape, order)
    return array


def _scalar(dtype: object, raw: object) -> object:
    """Return a number, in place of `numpy.core.multiarray.scalar`."""
    return _as_array(raw, dtype, (), "C").item()


def _encode(text: object, encoding: object) -> bytes:
    """Return bytes. In pickles of protocol 2, Python 3 writes bytes as encoded text."""
    if not isinstance(text, str) or _text(encoding) not in ("latin1", "latin-1"):
        raise UnsafePickleError(f"it encodes {short(text)} as {short(encoding)}")
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    """Return empty bytes. In pickles of protocol 2, Python 3 writes them as a call."""
    return b""


def _dictionary(pairs: object = ()) -> dict[object, object]:
    """Return a dictionary, in place of `dict`."""
    if isinstance(pairs, dict):
        return dict(pairs)
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise UnsafePickleError("it makes a dictionary of values that are not pairs")
    return {check_key(key): value for key, value in pairs}


def _set(items: object = ()) -> set[object]:
    """Return a set, in place of `set`."""
    if not isinstance(items, list | tuple | set | frozenset):
        raise UnsafePickleError(f"it makes a set of a {type(items).__name__}")
    return set(map(check_key, items))


def _frozen_set(items: object = ()) -> frozenset[object]:
    return frozenset(_set(items))


def _ndarray(*args: object) -> NoReturn:
    raise UnsafePickleError("it calls numpy.ndarray, which plain data only names")


_FUNCTIONS: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _TypePlaceholder,
    ("_codecs", "encode"): _encode,
}
for _core in ("numpy.core", "numpy._core"):  # NumPy 2 renamed the module.
    _FUNCTIONS[(f"{_core}.multiarray", "_reconstruct")] = _ArrayPlaceholder
    _FUNCTIONS[(f"{_core}.multiarray", "scalar")] = _scalar
    _FUNCTIONS[(f"{_core}.numeric", "_frombuffer")] = _from_buffer
for _builtins in ("builtins", "__builtin__"):  # The names in Python 3 and in Python 2.
    _FUNCTIONS[(_builtins, "bytes")] = _empty_bytes
    _FUNCTIONS[(_builtins, "list")] = list
    _FUNCTIONS[(_builtins, "tuple")] = tuple
    _FUNCTIONS[(_builtins, "dict")] = _dictionary
    _FUNCTIONS[(_builtins, "set")] = _set
    _FUNCTIONS[(_builtins, "frozenset")] = _frozen_set


class _Resolver:
    """Replaces placeholders by arrays, and refuses values that are too long.

    A part that occurs many times is visited once, but its length is counted each time, because the
    time to compare or print the value is proportional to that sum.
    """

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length
        self.resolved: dict[int, tuple[object, int] | None] = {}

    def resolve(self, value: object) -> object:
        """Return the value with its arrays."""
        return self._resolve(value, 0)[0]

    def _resolve(self, value: object, depth: int) -> tuple[object, int]:
        """Return the value and its length."""
        if isinstance(value, _BudgetedFunction | _TypePlaceholder):
            raise UnsafePickleError("it holds a function or a type, which plain data never does")
        if isinstance(value, _ArrayPlaceholder):
            if value.value is None:
                raise UnsafePickleError("it names an array, but holds none")
            return value.value, value.value.nbytes
        if isinstance(value, str | bytes | bytearray):
            return value, 1 + len(value)
        if not isinstance(value, dict | list | tuple):
            return value, 1 + (len(value) if isinstance(value, Sized) else 0)
        if depth == MAX_DEPTH:
            raise UnsafePickleError(
                f"it is nested more than {MAX_DEPTH} deep, which plain data never is"
            )
        if id(value) not in self.resolved:
            self.resolved[id(value)] = None  # This marks a container whose items are in progress.
            self.resolved[id(value)] = self._resolve_container(value, depth + 1)
        result = self.resolved[id(value)]
        if result is None:
            raise UnsafePickleError("it contains itself, which plain data never does")
        return result

    def _resolve_container(
        self, value: dict[object, object] | list[object] | tuple[object, ...], depth: int
    ) -> tuple[object, int]:
        items = list(value.values() if isinstance(value, dict) else value)
        length, resolved = 1, []
        if isinstance(value, dict):  # Keys are numbers and strings, which need no resolving.
            length += sum(1 + (len(k) if isinstance(k, Sized) else 0) for k in value)
        for item in items:
            part, size = self._resolve(item, depth)
            resolved.append(part)
            length += size
            if length > self.max_length:
                raise UnsafePickleError(
                    "it repeats its parts over and over, which plain data never does"
                )
        if isinstance(value, dict):
            return dict(zip(value, resolved, strict=True)), length
        return type(value)(resolved), length


def _text(value: object) -> str:
    """Return a string; bytes are decoded, and other values described."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    return value if isinstance(value, str) else short(value)


def _line(error: Exception) -> str:
    """Return an error message as one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
