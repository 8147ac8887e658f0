"""Pickles of plain data, read without running anything.

The CIFAR archives are pickles, and a pickle is a program: it names functions and calls them. Here
it can name only what true archives do, and each of these is a stand-in of ours that makes numbers,
bytes and containers. Even numpy's own functions are not called before their arguments are checked.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray


class Refused(ValueError):
    """The pickle asks for something that plain data never needs."""


def read_plain(content: bytes) -> object:
    """What a pickle of dictionaries, lists, strings, numbers and numeric arrays holds.

    Strings of Python 2 come back as bytes. Anything else in it raises `Refused`; nothing of it is
    run. A damaged pickle raises `ValueError`.

    >>> read_plain(pickle.dumps({b"data": np.arange(3, dtype=np.uint8)}, protocol=2))
    {b'data': array([0, 1, 2], dtype=uint8)}
    >>> read_plain(pickle.dumps(len))
    Traceback (most recent call last):
    shortlist.datasets._unpickle.Refused: it names 'builtins.len', which plain data never does
    """
    try:
        _check_operations(content)
        return _finished(_Unpickler(io.BytesIO(content), encoding="bytes").load(), {})
    except Refused:
        raise
    # What a damaged pickle raises depends on where the damage is.
    except Exception as error:
        raise ValueError(f"it is not a readable pickle: {_line(error)}") from error


def _check_operations(content: bytes) -> None:
    """Raise at what `find_class` does not see: numbered classes, and numbers that eat memory."""
    for operation, argument, position in pickletools.genops(content):
        if operation.name.startswith("EXT"):
            raise Refused(f"it names a class by the number {argument}, which plain data never does")
        # Room is made for as many objects as the number says; a true one is below the position.
        numbers = operation.name in ("PUT", "BINPUT", "LONG_BINPUT")
        if numbers and int(argument or 0) > (position or 0):
            raise Refused(f"it numbers an object {argument}, but is not so long")


class _Unpickler(pickle.Unpickler):
    """Knows the names in `_KNOWN`, and no others."""

    def find_class(self, module: str, name: str) -> object:
        known = _KNOWN.get((module, name))
        if known is None:
            raise Refused(f"it names {f'{module}.{name}'!r}, which plain data never does")
        return _StandIn(known)

    def persistent_load(self, pid: object) -> NoReturn:
        raise Refused(f"it refers to an object outside of itself ({_short(pid)})")


class _StandIn:
    """A function that a pickle may call, but not change."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(self, *args: object) -> object:
        return self._function(*args)

    def __setstate__(self, state: object) -> NoReturn:
        raise Refused("it gives a state to a function")


class _Type:
    """Stands for a dtype while a pickle is read. Only plain numbers are allowed."""

    __slots__ = ("dtype",)

    def __init__(self, code: object, *flags: object) -> None:
        text = _text(code)
        if not re.fullmatch(r"[<>|=]?(b1|[iu][1248]|f[248])", text):
            raise Refused(f"it holds an array of type {_short(text)}; only plain numbers are read")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: object) -> None:
        order = _text(state[1]) if isinstance(state, tuple) and len(state) > 1 else ""
        if order not in ("<", ">", "|", "="):
            raise Refused(f"it gives a type the state {_short(state)}")
        self.dtype = np.dtype(order + self.dtype.str[1:])


class _Array:
    """Stands for an array while a pickle is read."""

    __slots__ = ("value",)

    def __init__(self, *ignored: object) -> None:
        self.value: NDArray[np.generic] | None = None

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise Refused(f"it gives an array the state {_short(state)}")
        _, shape, kind, fortran, raw = state
        self.value = _numbers(raw, kind, shape, "F" if fortran else "C")


def _numbers(raw: object, kind: object, shape: object, order: object) -> NDArray[np.generic]:
    if not isinstance(kind, _Type) or not isinstance(raw, bytes | bytearray):
        raise Refused(f"it holds an array of {type(raw).__name__}; only plain numbers are read")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise Refused(f"it holds an array of shape {_short(shape)}")
    if math.prod(shape) * kind.dtype.itemsize != len(raw):
        raise Refused(f"it holds an array of shape {_short(shape)} in {len(raw)} bytes")
    flat: NDArray[np.generic] = np.frombuffer(raw, dtype=kind.dtype)
    return flat.reshape(shape, order="F" if _text(order) == "F" else "C")


def _from_buffer(raw: object, kind: object, shape: object, order: object) -> _Array:
    array = _Array()
    array.value = _numbers(raw, kind, shape, order)
    return array


def _scalar(kind: object, raw: object) -> object:
    return _numbers(raw, kind, (), "C").item()


def _encode(text: object, encoding: object) -> bytes:
    """How Python 3 writes bytes in a pickle of Python 2."""
    if not isinstance(text, str) or _text(encoding) not in ("latin1", "latin-1"):
        raise Refused(f"it encodes {_short(text)} as {_short(encoding)}")
    return text.encode("latin1")


def _nothing() -> bytes:
    """How Python 3 writes empty bytes in a pickle of Python 2."""
    return b""


def _ndarray(*args: object) -> NoReturn:
    raise Refused("it calls numpy.ndarray, which plain data only names")


_KNOWN: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encode,
}
for _core in ("numpy.core", "numpy._core"):  # before and since numpy 2
    _KNOWN[(f"{_core}.multiarray", "_reconstruct")] = _Array
    _KNOWN[(f"{_core}.multiarray", "scalar")] = _scalar
    _KNOWN[(f"{_core}.numeric", "_frombuffer")] = _from_buffer
for _builtins in ("builtins", "__builtin__"):  # Python 3's name, and Python 2's
    _KNOWN[(_builtins, "bytes")] = _nothing
    for _container in (dict, list, tuple, set, frozenset):
        _KNOWN[(_builtins, _container.__name__)] = _container


def _finished(value: object, done: dict[int, object]) -> object:
    """The same, with arrays in place of what stood for them. `done` has what was met before."""
    if isinstance(value, _StandIn | _Type):
        raise Refused("it holds a function or a type, which plain data never does")
    if isinstance(value, _Array):
        if value.value is None:
            raise Refused("it names an array, but holds none")
        return value.value
    if not isinstance(value, dict | list | tuple):
        return value
    if id(value) not in done:
        done[id(value)] = _UNDER_WAY
        if isinstance(value, dict):
            done[id(value)] = {_finished(k, done): _finished(v, done) for k, v in value.items()}
        else:
            done[id(value)] = type(value)(_finished(item, done) for item in value)
    if done[id(value)] is _UNDER_WAY:
        raise Refused("it contains itself, which plain data never does")
    return done[id(value)]


_UNDER_WAY = object()


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin1")
    return value if isinstance(value, str) else repr(value)


def _short(value: object) -> str:
    """One short line of what came in."""
    return ascii(value)[:60]


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
