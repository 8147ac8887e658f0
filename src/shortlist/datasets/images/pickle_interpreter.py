"""An interpreter for pickles of plain data, with work bounded by the length of the pickle.

Python's own interpreter executes everything in a pickle, and a pickle of 200 bytes can take years.
For example, if each of thirty tuples contains the previous one twice, hashing the last one visits a
billion paths. In this interpreter, the time of every operation is proportional to its own bytes,
the copies that functions make are counted, and only numbers and strings can be keys, so that no
nested value is hashed.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable
from typing import TypeAlias

MAX_BITS = 1024
"""Maximum length of an integer. Arithmetic on longer integers takes more than linear time."""
MAX_KEY_BITS = 60
"""Maximum length of an integer key. Longer ones could be chosen to have equal hashes."""
BASE_BUDGET = 1000
"""Work that is allowed for a pickle of any length."""

FindFunction: TypeAlias = "Callable[[str, str], Callable[..., object]]"


class UnsafePickleError(ValueError):
    """Raised for a pickle that contains more than plain data."""


class Budget:
    """The number of items and bytes that the functions in a pickle may still copy.

    Parameters
    ----------
    length : int
        Length of the pickle in bytes.
    """

    def __init__(self, length: int) -> None:
        self.left = length + BASE_BUDGET

    def spend(self, amount: int) -> None:
        """Subtract an amount of work; raise if too little is left."""
        self.left -= amount
        if self.left < 0:
            raise UnsafePickleError(
                "it copies its parts over and over, which plain data never does"
            )


def check_key(value: object) -> object:
    """Return a key of a dictionary; raise unless it is a number, a string or None.

    Hashing a nested value can take exponential time.
    """
    if not isinstance(value, str | bytes | int | float | None):
        raise UnsafePickleError(
            f"it has a key of type {type(value).__name__}, which plain data never does"
        )
    if isinstance(value, int) and value.bit_length() > MAX_KEY_BITS:
        raise UnsafePickleError(f"it has an integer of {value.bit_length()} bits as a key")
    return value


class PickleInterpreter:
    """Executes the operations of one pickle.

    Parameters
    ----------
    content : bytes
        The pickle.
    find_function : callable
        Function that returns the function of a module by name, or raises `UnsafePickleError`.
    """

    def __init__(self, content: bytes, find_function: FindFunction) -> None:
        self.content = content
        self.find_function = find_function
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def run(self) -> object:
        """Return the value of the pickle."""
        for operation, argument, position in pickletools.genops(self.content):
            name = operation.name
            if name == "STOP":
                return self._pop()
            if name in _LITERALS:
                self.stack.append(_LITERALS[name](argument))
            elif name in _STORE:
                self._put(name, argument, position or 0)
            elif name in _FETCH:
                self.stack.append(self.memo[int(str(argument))])
            elif name in _STEPS:
                _STEPS[name](self, argument)
            else:
                raise UnsafePickleError(
                    f"it uses {name} ({short(argument)}), which plain data never does"
                )
        raise ValueError("it has no end")

    def _frame(self, length: object) -> None:
        if int(str(length)) > len(self.content):
            raise ValueError("it is shorter than its frame")

    # Operations on the stack and the memo

    def _pop(self) -> object:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise ValueError("it takes more values than it holds")
        return self.stack.pop()

    def _since_mark(self) -> list[object]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _put(self, name: str, argument: object, position: int) -> None:
        number = len(self.memo) if name == "MEMOIZE" else int(str(argument))
        # Each stored object takes an operation, so numbers need not be larger than the position.
        if not 0 <= number <= position:
            raise UnsafePickleError(f"it numbers an object {number}, above its own length")
        self.memo[number] = self.stack[-1]

    # Operations on containers

    def _set_items(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise UnsafePickleError(f"it gives keys to a {type(target).__name__}")
        target.update(_pairs(items))

    def _append(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise UnsafePickleError(f"it appends to a {type(target).__name__}")
        target.extend(items)

    def _add_items(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, set):
            raise UnsafePickleError(f"it adds to a {type(target).__name__}")
        target.update(map(check_key, items))

    # Operations that name and call functions

    def _name(self, argument: object) -> None:
        module, _, name = str(argument).partition(" ")
        self.stack.append(self.find_function(module, name))

    def _stack_name(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise UnsafePickleError(f"it names a function by a {type(name).__name__}")
        self.stack.append(self.find_function(module, name))

    def _call(self, function: object, arguments: object) -> None:
        if not callable(function) or not isinstance(arguments, tuple):
            raise UnsafePickleError(
                f"it calls a {type(function).__name__}, which plain data never does"
            )
        self.stack.append(function(*arguments))

    def _build(self, state: object) -> None:
        target = self.stack[-1]
        change = getattr(type(target), "__setstate__", None)
        if change is None:
            raise UnsafePickleError(f"it gives a state to a {type(target).__name__}")
        change(target, state)

    def _instance(self, argument: object) -> None:
        items = tuple(self._since_mark())
        self._name(argument)
        self._call(self._pop(), items)

    def _object(self) -> None:
        function, *items = self._since_mark()
        self._call(function, tuple(items))

    def _reduce(self) -> None:
        arguments = self._pop()
        self._call(self._pop(), arguments)

    def _outside(self, pid: object) -> None:
        raise UnsafePickleError(f"it refers to an object outside of itself ({short(pid)})")

    def _numbered_class(self, number: object) -> None:
        raise UnsafePickleError(
            f"it names a class by the number {number}, which plain data never does"
        )


def _pairs(items: list[object]) -> Iterable[tuple[object, object]]:
    """Return the pairs of key and value in a list that alternates both."""
    if len(items) % 2:
        raise ValueError("it has a key without a value")
    return zip(map(check_key, items[::2]), items[1::2], strict=True)


def _integer(argument: object) -> int:
    """Return an integer; raise if it is too long."""
    assert isinstance(argument, int)
    if argument.bit_length() > MAX_BITS:
        raise UnsafePickleError(f"it holds a number of {argument.bit_length():,} bits")
    return argument


def _old_string(argument: object) -> bytes:
    """Return a string of Python 2 as bytes; `pickletools` has decoded it."""
    return str(argument).encode("latin1")


def short(value: object) -> str:
    """Return a short text for an error message: the value of a number or string, or the type."""
    if isinstance(value, str | bytes | float | bool | None):
        return ascii(value[:60] if isinstance(value, str | bytes) else value)[:60]
    if isinstance(value, int) and value.bit_length() <= MAX_BITS:
        return str(value)[:60]
    return f"a {type(value).__name__}"


_LITERALS: dict[str, Callable[[object], object]] = {
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _integer),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _old_string),
    **dict.fromkeys(("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"), lambda a: a),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), lambda a: a),
    **dict.fromkeys(("FLOAT", "BINFLOAT"), lambda a: a),
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_LIST": lambda _: [],
    "EMPTY_DICT": lambda _: {},
    "EMPTY_SET": lambda _: set(),
}
_STORE = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
_FETCH = ("GET", "BINGET", "LONG_BINGET")


def _tuple_of(count: int) -> Callable[[PickleInterpreter, object], None]:
    """Return the operation that replaces the last values on the stack by a tuple."""

    def step(interpreter: PickleInterpreter, _: object) -> None:
        items = [interpreter._pop() for _ in range(count)]
        interpreter.stack.append(tuple(reversed(items)))

    return step


_STEPS: dict[str, Callable[[PickleInterpreter, object], None]] = {
    "PROTO": lambda m, a: None,
    "FRAME": lambda m, a: m._frame(a),
    "MARK": lambda m, a: m.marks.append(len(m.stack)),
    "POP": lambda m, a: _discard(m),
    "POP_MARK": lambda m, a: _ignore(m._since_mark()),
    "DUP": lambda m, a: m.stack.append(m.stack[-1]),
    "TUPLE": lambda m, a: m.stack.append(tuple(m._since_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "LIST": lambda m, a: m.stack.append(m._since_mark()),
    "DICT": lambda m, a: m.stack.append(dict(_pairs(m._since_mark()))),
    "FROZENSET": lambda m, a: m.stack.append(frozenset(map(check_key, m._since_mark()))),
    "APPEND": lambda m, a: m._append([m._pop()]),
    "APPENDS": lambda m, a: m._append(m._since_mark()),
    "SETITEM": lambda m, a: m._set_items([m._pop(), m._pop()][::-1]),
    "SETITEMS": lambda m, a: m._set_items(m._since_mark()),
    "ADDITEMS": lambda m, a: m._add_items(m._since_mark()),
    "GLOBAL": lambda m, a: m._name(a),
    "STACK_GLOBAL": lambda m, a: m._stack_name(),
    "REDUCE": lambda m, a: m._reduce(),
    "NEWOBJ": lambda m, a: m._reduce(),
    "INST": lambda m, a: m._instance(a),
    "OBJ": lambda m, a: m._object(),
    "BUILD": lambda m, a: m._build(m._pop()),
    "PERSID": lambda m, a: m._outside(a),
    "BINPERSID": lambda m, a: m._outside(m._pop()),
    "EXT1": lambda m, a: m._numbered_class(a),
    "EXT2": lambda m, a: m._numbered_class(a),
    "EXT4": lambda m, a: m._numbered_class(a),
}


def _discard(interpreter: PickleInterpreter) -> None:
    """Drop the last value, or the last mark if no value follows it."""
    if interpreter.marks and interpreter.marks[-1] == len(interpreter.stack):
        interpreter.marks.pop()
    else:
        interpreter._pop()


def _ignore(_: object) -> None:
    """Do nothing."""
