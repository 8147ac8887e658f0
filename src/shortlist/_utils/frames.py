"""Frames: columns that have names, matched with those of fit and put in their order.

A name is compared by its text, so that the column "2" of a CSV file is the class 2. Columns that
are numbered 0, 1, 2, … in this order have no names: that is what a frame of a plain array has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

SHOWN = 3
"""So many names are listed in a message."""


def frame_columns(x: object) -> list[object] | None:
    """Return the names of a frame's columns, or None for anything else.

    Parameters
    ----------
    x : object
        A frame of pandas, Polars or Arrow, or anything.

    Returns
    -------
    list or None
        Names as they are, of any type.

    Examples
    --------
    >>> import pandas as pd
    >>> frame_columns(pd.DataFrame({"a": [1.0], 7: [2.0]}))
    ['a', 7]
    """
    names = getattr(x, "column_names", None)  # Arrow's columns are the values themselves
    names = getattr(x, "columns", None) if not isinstance(names, list) else names
    if names is None or callable(names) or isinstance(x, type):
        return None
    return [name.item() if isinstance(name, np.generic) else name for name in names]


def are_numbered(names: Sequence[object]) -> bool:
    """Whether columns are numbered from 0 in order, which says nothing of them.

    Examples
    --------
    >>> are_numbered([0, 1, 2]), are_numbered([1, 0, 2]), are_numbered(["0", "1"])
    (True, False, False)
    """
    whole = all(isinstance(name, int) and not isinstance(name, bool) for name in names)
    return whole and list(names) == list(range(len(names)))


def column_names(x: object) -> list[str] | None:
    """Return the names of a frame's columns as text, or None if it is no frame or has no names.

    Examples
    --------
    >>> import pandas as pd
    >>> column_names(pd.DataFrame([[1.0, 2.0]], columns=["a", "b"]))
    ['a', 'b']
    >>> column_names(pd.DataFrame([[1.0, 2.0]])) is None
    True
    """
    names = frame_columns(x)
    return None if not names or are_numbered(names) else [str(name) for name in names]


def whole_numbers(names: Sequence[object]) -> list[int] | None:
    """Return names that are integers, or their digits, as integers; None if any is not.

    Examples
    --------
    >>> whole_numbers(["2", 0, "10"]), whole_numbers(["01", "2"])
    ([2, 0, 10], None)
    """
    found = []
    for name in names:
        if isinstance(name, bool) or not isinstance(name, int | str):
            return None
        try:
            number = int(name)
        except ValueError:
            return None
        if str(number) != str(name):
            return None
        found.append(number)
    return found


def check_distinct(names: Sequence[object], what: str, verb: str = "have") -> None:
    """Raise if two columns have one name."""
    name, times = max(Counter(map(str, names)).items(), key=itemgetter(1), default=("", 0))
    if times > 1:
        raise ValueError(f"{what} {verb} two columns named {name!r}; leave one of them out")


def column_order(
    names: Sequence[object], known: Sequence[object], what: str, *, strict: bool = True
) -> list[int] | None:
    """Return where each known column is among the names; None if they are in order.

    Parameters
    ----------
    names : sequence
        The names of a frame's columns.
    known : sequence
        The names that fit saw, or the classes.
    what : str
        What the frame holds, for messages.
    strict : bool, default=True
        Whether names that have nothing in common with the known ones are an error. If not, they
        say nothing.

    Returns
    -------
    list of int or None
        Places, for columns in the order of the known ones.

    Raises
    ------
    ValueError
        If a column is missing, unknown, or there twice.

    Examples
    --------
    >>> column_order(["b", "c", "a"], ["a", "b", "c"], "features")
    [2, 0, 1]
    """
    text, wanted = [str(name) for name in names], [str(name) for name in known]
    if text == wanted:
        return None
    place, asked = {name: i for i, name in enumerate(text)}, set(wanted)
    missing = [name for name in wanted if name not in place]
    strange = [name for name in text if name not in asked]
    if not missing and not strange and len(text) == len(wanted):
        return [place[name] for name in wanted]
    if are_numbered(names) or (not strict and len(missing) == len(wanted)):
        return None
    check_distinct(names, what)
    lack = f"lack {_few(missing)}, which fit saw" if missing else ""
    have = f"have {_few(strange)}, which fit did not see" if strange else ""
    both = ", and ".join(part for part in (lack, have) if part)
    raise ValueError(f"{what} {both}; give the columns of fit, in any order")


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:SHOWN])) + (", …" if len(names) > SHOWN else "")


def match_columns(x: object, known: Sequence[str] | None, what: str) -> object:
    """Return a frame with its columns in the order of fit, and anything else as it is.

    Parameters
    ----------
    x : object
        A frame, or anything.
    known : sequence of str or None
        The names that fit saw; None if it saw none. Numbers are then the places themselves.
    what : str
        What the frame holds, for messages.

    Returns
    -------
    object
        The same object if nothing has to be moved.

    Raises
    ------
    ValueError
        If a column is missing, unknown, or there twice.

    Examples
    --------
    >>> import pandas as pd
    >>> match_columns(pd.DataFrame({"b": [1.0], "a": [2.0]}), ["a", "b"], "features").to_numpy()
    array([[2., 1.]])
    """
    names = frame_columns(x)
    if not names:
        return x
    if known is None:
        numbers = whole_numbers(names)
        if numbers is None or sorted(numbers) != list(range(len(numbers))):
            return x
        known = [str(i) for i in range(len(numbers))]
    order = column_order(names, known, what)
    return x if order is None else take_columns(x, order)


def take_columns(x: object, order: Sequence[int]) -> object:
    """Return some columns of a frame, by their places."""
    if hasattr(x, "iloc"):
        return x.iloc[:, list(order)]
    names = frame_columns(x) or []
    if hasattr(x, "select"):  # Polars, Arrow
        return x.select([names[i] for i in order])
    return np.asarray(x)[:, list(order)]


def classes_of_columns(
    names: Sequence[object], y: NDArray[np.generic]
) -> list[object] | NDArray[np.generic] | None:
    """Return the classes that columns of scores name, or None if labels count the columns.

    Parameters
    ----------
    names : sequence
        The names of the columns.
    y : ndarray
        The labels of the rows.

    Returns
    -------
    list or ndarray or None
        The classes, in the order of the columns.

    Examples
    --------
    >>> classes_of_columns(["b", "a"], np.array(["a", "b", "a"]))
    ['b', 'a']
    >>> classes_of_columns([10, 20], np.array([10, 20, 20]))
    [10, 20]
    >>> classes_of_columns(["b", "a"], np.array([0, 1, 1])) is None
    True
    """
    text = [str(name) for name in names]
    if y.dtype.kind == "b":
        return np.array([True, False]) if text == ["True", "False"] else None
    if y.dtype.kind in "iu":
        numbers = whole_numbers(names)
        return None if are_numbered(numbers or ["none"]) else numbers  # type: ignore[return-value]
    if all(isinstance(name, str) for name in names):
        return list(names)
    labels = set(y.tolist())
    if labels <= set(text):  # the columns 0, 1, …, 10 are not in the order of their texts
        return list(text)
    return list(names) if labels <= set(names) else None


def check_classes(names: Sequence[object], classes: Sequence[object]) -> None:
    """Raise if classes contradict the names of the columns that they are given for.

    Parameters
    ----------
    names : sequence
        The names of the columns.
    classes : sequence
        The classes that someone gave for them. Where none is a column's name, they rename columns.
    """
    text, given = [str(name) for name in names], [str(name) for name in classes]
    if text == given or are_numbered(names) or not set(text) & set(given):
        return
    raise ValueError(
        f"the scores' columns are {list(names)}, but classes = {list(classes)}; leave classes out, "
        "or give it in that order"
    )
