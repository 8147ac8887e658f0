"""A machine for pickles of plain data, whose work is bounded by the length of the pickle.

Python's own machine runs whatever a pickle asks for, and a pickle of 200 bytes can ask for years
of work: tuples that hold the one before twice, thirty times over, are hashed by walking a billion
paths. Here every operation takes a time in proportion to its own bytes; what a function copies is
counted; and only numbers and strings can be keys, so that nothing nested is ever hashed.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable
from typing import TypeAlias

MOST_BITS = 1024
"""Longer integers are refused. Python's arithmetic on them is slower than linear."""
KEY_BITS = 60
"""Integer keys above this would collide where someone wants them to."""
SPARE = 1000
"""Work that any pickle may ask for, however short it is."""

Call: TypeAlias = "Callable[[str, str], Callable[..., object]]"


class Refused(ValueError):
    """The pickle asks for something that plain data never needs."""


class Budget:
    """The copies that the functions of a pickle may make, in items or bytes."""

    def __init__(self, length: int) -> None:
        self.left = length + SPARE

    def spend(self, amount: int) -> None:
        """Take an amount of work, or raise if there is not so much left."""
        self.left -= amount
        if self.left < 0:
            raise Refused("it copies its parts over and over, which plain data never does")


def check_key(value: object) -> object:
    """Raise unless the value is a number, a string or None: what is nested is slow to hash."""
    if not isinstance(value, str | bytes | int | float | None):
        raise Refused(f"it has a key of type {type(value).__name__}, which plain data never does")
    if isinstance(value, int) and value.bit_length() > KEY_BITS:
        raise Refused(f"it has an integer of {value.bit_length()} bits as a key")
    return value


class Machine:
    """Runs the operations of one pickle.

    Parameters
    ----------
    content : bytes
        The pickle.
    find : function
        Gives the function that stands for a module's name, or raises `Refused`.
    """

    def __init__(self, content: bytes, find: Call) -> None:
        self.content = content
        self.find = find
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def run(self) -> object:
        """Return what the pickle holds."""
        for operation, argument, position in pickletools.genops(self.content):
            name = operation.name
            if name == "STOP":
                return self._pop()
            if name in _LITERALS:
                self.stack.append(_LITERALS[name](argument))
            elif name in _MEMORISE:
                self._put(name, argument, position or 0)
            elif name in _RECALL:
                self.stack.append(self.memo[int(str(argument))])
            elif name in _STEPS:
                _STEPS[name](self, argument)
            else:
                raise Refused(f"it uses {name} ({short(argument)}), which plain data never does")
        raise ValueError("it has no end")

    def _frame(self, length: object) -> None:
        if int(str(length)) > len(self.content):
            raise ValueError("it is shorter than its frame")

    # The stack

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
        # A true number is below the position; others would be made to take up memory.
        if not 0 <= number <= position:
            raise Refused(f"it numbers an object {number}, but is not so long")
        self.memo[number] = self.stack[-1]

    # Containers

    def _set_items(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise Refused(f"it gives keys to a {type(target).__name__}")
        target.update(_pairs(items))

    def _append(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise Refused(f"it appends to a {type(target).__name__}")
        target.extend(items)

    def _add_items(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, set):
            raise Refused(f"it adds to a {type(target).__name__}")
        target.update(map(check_key, items))

    # Functions

    def _name(self, argument: object) -> None:
        module, _, name = str(argument).partition(" ")
        self.stack.append(self.find(module, name))

    def _stack_name(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise Refused(f"it names a function by a {type(name).__name__}")
        self.stack.append(self.find(module, name))

    def _call(self, function: object, arguments: object) -> None:
        if not callable(function) or not isinstance(arguments, tuple):
            raise Refused(f"it calls a {type(function).__name__}, which plain data never does")
        self.stack.append(function(*arguments))

    def _build(self, state: object) -> None:
        target = self.stack[-1]
        change = getattr(type(target), "__setstate__", None)
        if change is None:
            raise Refused(f"it gives a state to a {type(target).__name__}")
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
        raise Refused(f"it refers to an object outside of itself ({short(pid)})")

    def _numbered_class(self, number: object) -> None:
        raise Refused(f"it names a class by the number {number}, which plain data never does")


def _pairs(items: list[object]) -> Iterable[tuple[object, object]]:
    if len(items) % 2:
        raise ValueError("it has a key without a value")
    return zip(map(check_key, items[::2]), items[1::2], strict=True)


def _integer(argument: object) -> int:
    assert isinstance(argument, int)
    if argument.bit_length() > MOST_BITS:
        raise Refused(f"it holds a number of {argument.bit_length():,} bits")
    return argument


def _old_string(argument: object) -> bytes:
    """Python 2's strings, which `pickletools` gives as text."""
    return str(argument).encode("latin1")


def short(value: object) -> str:
    """Numbers and strings in a few words; of anything else the type, as it may be endless."""
    if isinstance(value, str | bytes | float | bool | None):
        return ascii(value[:60] if isinstance(value, str | bytes) else value)[:60]
    if isinstance(value, int) and value.bit_length() <= MOST_BITS:
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
_MEMORISE = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
_RECALL = ("GET", "BINGET", "LONG_BINGET")


def _tuple_of(count: int) -> Callable[[Machine, object], None]:
    def step(machine: Machine, _: object) -> None:
        items = [machine._pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(items)))

    return step


_STEPS: dict[str, Callable[[Machine, object], None]] = {
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


def _discard(machine: Machine) -> None:
    """Drop the last value, or, where there is none since a mark, that mark."""
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine._pop()


def _ignore(_: object) -> None:
    """Do nothing."""
