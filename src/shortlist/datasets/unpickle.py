"""Pickles of plain data, read without running anything.

The CIFAR archives are pickles, and a pickle is a program: it names functions and calls them. Here
it can name only what true archives do, and each of these is a stand-in of ours that makes numbers,
bytes and containers. Even numpy's own functions are not called before their arguments are checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sized
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from shortlist.datasets.pickle_machine import (
    SPARE,
    Budget,
    Machine,
    Refused,
    check_key,
    short,
)

MOST_DEPTH = 50
"""Containers that are nested deeper are refused; those of a true archive are a few deep."""
MOST_REPEATED = 32
"""So many times its own length may a pickle be when each part is written wherever it is named."""
MOST_AXES = 32


def read_plain(content: bytes) -> object:
    """What a pickle of dictionaries, lists, strings, numbers and numeric arrays holds.

    Strings of Python 2 come back as bytes. Anything else in it raises `Refused`; nothing of it is
    run. So does a pickle that would take more time or memory than its length warrants: the values
    are at most 50 deep, and are at most 32 times as long as the pickle when they are printed. A
    damaged pickle raises `ValueError`.

    >>> import pickle
    >>> read_plain(pickle.dumps({b"data": np.arange(3, dtype=np.uint8)}, protocol=2))
    {b'data': array([0, 1, 2], dtype=uint8)}
    >>> read_plain(pickle.dumps(len))
    Traceback (most recent call last):
    shortlist.datasets.pickle_machine.Refused: it names 'builtins.len', which plain data never does
    """
    budget = Budget(len(content))

    def find(module: str, name: str) -> _StandIn:
        known = _KNOWN.get((module, name))
        if known is None:
            named = ascii(f"{module}.{name}"[:100])
            raise Refused(f"it names {named}, which plain data never does")
        return _StandIn(known, budget)

    try:
        held = Machine(content, find).run()
        return _Finishing(MOST_REPEATED * len(content) + SPARE).value(held)
    except Refused:
        raise
    # What a damaged pickle raises depends on where the damage is.
    except Exception as error:
        raise ValueError(f"it is not a readable pickle: {_line(error)}") from error


class _StandIn:
    """A function that a pickle may call, but not change."""

    __slots__ = ("_budget", "_function")

    def __init__(self, function: Callable[..., object], budget: Budget) -> None:
        self._function, self._budget = function, budget

    def __call__(self, *args: object) -> object:
        # A function may copy what it gets, and costs as much as that is long.
        self._budget.spend(1 + sum(len(a) for a in args if isinstance(a, Sized)))
        return self._function(*args)

    def __setstate__(self, state: object) -> NoReturn:
        raise Refused("it gives a state to a function")


class _Type:
    """Stands for a dtype while a pickle is read. Only plain numbers are allowed."""

    __slots__ = ("dtype",)

    def __init__(self, code: object, *flags: object) -> None:
        text = _text(code)
        if len(text) > 3 or not re.fullmatch(r"[<>|=]?(b1|[iu][1248]|f[248])", text):
            raise Refused(f"it holds an array of type {short(text)}; only plain numbers are read")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: object) -> None:
        order = _text(state[1]) if isinstance(state, tuple) and len(state) > 1 else ""
        if order not in ("<", ">", "|", "="):
            raise Refused(f"it gives a type the state {short(state)}")
        self.dtype = np.dtype(order + self.dtype.str[1:])


class _Array:
    """Stands for an array while a pickle is read."""

    __slots__ = ("value",)

    def __init__(self, *ignored: object) -> None:
        self.value: NDArray[np.generic] | None = None

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise Refused(f"it gives an array the state {short(state)}")
        _, shape, kind, fortran, raw = state
        self.value = _numbers(raw, kind, shape, "F" if fortran else "C")


def _numbers(raw: object, kind: object, shape: object, order: object) -> NDArray[np.generic]:
    if not isinstance(kind, _Type) or not isinstance(raw, bytes | bytearray):
        raise Refused(f"it holds an array of {type(raw).__name__}; only plain numbers are read")
    if (
        not isinstance(shape, tuple)
        or len(shape) > MOST_AXES
        or not all(type(n) is int and 0 <= n < 2**63 for n in shape)
    ):
        raise Refused("it holds an array whose shape is no short tuple of sizes")
    if math.prod(shape) * kind.dtype.itemsize != len(raw):
        raise Refused(f"it holds an array of shape {shape!r} in {len(raw)} bytes")
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
        raise Refused(f"it encodes {short(text)} as {short(encoding)}")
    return text.encode("latin1")


def _nothing() -> bytes:
    """How Python 3 writes empty bytes in a pickle of Python 2."""
    return b""


def _dictionary(pairs: object = ()) -> dict[object, object]:
    if isinstance(pairs, dict):
        return dict(pairs)
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise Refused("it makes a dictionary of something else than pairs")
    return {check_key(key): value for key, value in pairs}


def _set(items: object = ()) -> set[object]:
    if not isinstance(items, list | tuple | set | frozenset):
        raise Refused(f"it makes a set of a {type(items).__name__}")
    return set(map(check_key, items))


def _frozen_set(items: object = ()) -> frozenset[object]:
    return frozenset(_set(items))


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
    _KNOWN[(_builtins, "list")] = list
    _KNOWN[(_builtins, "tuple")] = tuple
    _KNOWN[(_builtins, "dict")] = _dictionary
    _KNOWN[(_builtins, "set")] = _set
    _KNOWN[(_builtins, "frozenset")] = _frozen_set


class _Finishing:
    """Puts arrays in place of what stood for them, and refuses what is too large when printed.

    Parts that are named many times are looked at once, and their lengths added up as often as they
    are named: whoever compares, prints or walks the values later takes time by that sum.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.done: dict[int, tuple[object, int] | None] = {}

    def value(self, value: object) -> object:
        """Return the value with its arrays."""
        return self._finished(value, 0)[0]

    def _finished(self, value: object, depth: int) -> tuple[object, int]:
        """The value, and how long it is."""
        if isinstance(value, _StandIn | _Type):
            raise Refused("it holds a function or a type, which plain data never does")
        if isinstance(value, _Array):
            if value.value is None:
                raise Refused("it names an array, but holds none")
            return value.value, value.value.nbytes
        if isinstance(value, str | bytes | bytearray):
            return value, 1 + len(value)
        if not isinstance(value, dict | list | tuple):
            return value, 1 + (len(value) if isinstance(value, Sized) else 0)
        if depth == MOST_DEPTH:
            raise Refused(f"it is nested more than {MOST_DEPTH} deep, which plain data never is")
        if id(value) not in self.done:
            self.done[id(value)] = None
            self.done[id(value)] = self._container(value, depth + 1)
        found = self.done[id(value)]
        if found is None:
            raise Refused("it contains itself, which plain data never does")
        return found

    def _container(
        self, value: dict[object, object] | list[object] | tuple[object, ...], depth: int
    ) -> tuple[object, int]:
        items = list(value.values() if isinstance(value, dict) else value)
        length, finished = 1, []
        if isinstance(value, dict):  # keys are numbers and strings
            length += sum(1 + (len(k) if isinstance(k, Sized) else 0) for k in value)
        for item in items:
            part, size = self._finished(item, depth)
            finished.append(part)
            length += size
            if length > self.most:
                raise Refused("it repeats its parts over and over, which plain data never does")
        if isinstance(value, dict):
            return dict(zip(value, finished, strict=True)), length
        return type(value)(finished), length


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin1")
    return value if isinstance(value, str) else short(value)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
