"""What the fields of a saved model may hold, checked before an object is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from shortlist.io.persistence import ModelFileError

MOST = 1 << 26
"""So many classes, features or rows a model has at most."""
LARGEST = 1e300
"""Numbers beyond it are infinite as soon as anything is done with them."""
Values: TypeAlias = "Tensor | np.ndarray[tuple[int, ...], np.dtype[np.generic]]"


@dataclass(frozen=True)
class Field:
    """What a value must be, and how that is said."""

    words: str
    fits: Callable[[object], bool]

    def check(self, name: str, value: object) -> None:
        """Raise if a value is something else."""
        if not self.fits(value):
            raise ModelFileError(f"{name} is {shown(value)}, not {self.words}")

    def __or__(self, other: Field) -> Field:
        return Field(f"{self.words} or {other.words}", lambda v: self.fits(v) or other.fits(v))


def shown(value: object) -> str:
    """A value of a file in a few words."""
    if isinstance(value, Tensor | np.ndarray):
        return f"an array of {value.dtype} of shape {tuple(value.shape)}"
    text = " ".join(repr(value).split()) if _plain(value) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}…"


def _plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def whole(least: int = 0, most: int = MOST) -> Field:
    """A whole number."""
    return Field(
        f"a whole number from {least} to {most:,}",
        lambda v: _is_whole(v) and least <= v <= most,  # type: ignore[operator]
    )


def number(least: float = -math.inf, most: float = math.inf, *, above: bool = False) -> Field:
    """A finite number, in a range whose lower end may be left out."""

    def fits(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not abs(value) <= (LARGEST if isinstance(value, float) else 2**63 - 1):
            return False
        return least <= value <= most and not (above and value == least)

    limits = "" if math.isinf(least) else f" {'above' if above else 'from'} {least:g}"
    return Field(f"a finite number{limits}" + ("" if math.isinf(most) else f" to {most:g}"), fits)


def choice(*names: str) -> Field:
    """One of some names."""
    words = " or ".join(map(repr, names))
    return Field(words, lambda v: isinstance(v, str) and v in names)


def of(*classes: type) -> Field:
    """An object of a class."""
    return Field(" or ".join(cls.__name__ for cls in classes), lambda v: isinstance(v, classes))


def listed(field: Field, least: int = 0, kind: type = list) -> Field:
    """A list, each of whose values is as it should be."""
    words = f"a {kind.__name__} of at least {least} values, each {field.words}"
    return Field(
        words,
        lambda v: isinstance(v, kind) and len(v) >= least and all(map(field.fits, v)),  # type: ignore[arg-type,call-overload]
    )


def array(kinds: str, ndim: int, *, finite: bool = True, kind: type = np.ndarray) -> Field:
    """An array of numbers: `kinds` are numpy's letters; NaN is never among them."""

    def fits(value: object) -> bool:
        if not isinstance(value, kind) or not isinstance(value, Tensor | np.ndarray):
            return False
        letter = _letter(value)
        if value.ndim != ndim or letter not in kinds:
            return False
        return letter != "f" or _right(value, finite)

    names = {"f": "floats", "i": "integers"}
    words = " or ".join(names.get(letter, letter) for letter in kinds)
    infinite = "" if not finite else "finite "
    return Field(f"an array of {infinite}{words} of {ndim} axes", fits)


def tensor(kinds: str, ndim: int) -> Field:
    """The same as a tensor."""
    return array(kinds, ndim, kind=Tensor)


def _letter(value: Values) -> str:
    if isinstance(value, np.ndarray):
        return value.dtype.kind
    floats = (torch.float16, torch.float32, torch.float64)
    wholes = (torch.int8, torch.int16, torch.int32, torch.int64)
    return "f" if value.dtype in floats else "i" if value.dtype in wholes else "?"


def _right(value: Values, finite: bool) -> bool:
    there = torch.from_numpy(value) if isinstance(value, np.ndarray) else value.detach()
    return bool(torch.isfinite(there).all() if finite else ~torch.isnan(there).any())


ANYTHING = Field("anything", lambda v: True)
PLAIN = Field("a number, a text or nothing", _plain)
TEXT = Field("a text", lambda v: isinstance(v, str))
FLAG = Field("True or False", lambda v: isinstance(v, bool))
NOTHING = Field("nothing", lambda v: v is None)
COUNT = whole(1)
SHARE = number(0, 1)
SCALE = number(1e-9, 1e9)
WEIGHT = number(0)
LEVEL = Field(
    "a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v == v
)
SEED = whole(0, 2**63 - 1)
LABEL = Field("a label", lambda v: _is_label(v))


def _is_label(value: object) -> bool:
    return _plain(value) or (isinstance(value, tuple) and all(map(_is_label, value)))


def need(right: object, words: str) -> None:
    """Raise, in these words, unless fields go together."""
    if not right:
        raise ModelFileError(words)
