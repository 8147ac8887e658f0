"""Match the columns of data frames by name, and reorder them as they were in fit.

Names are compared as text, so that the column "2" of a CSV file is the class 2. Columns that are
numbered 0, 1, 2, … in order count as unnamed, because a frame made from an array has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

MAX_NAMES_SHOWN = 3
"""Maximum number of names listed in a message."""


def frame_columns(x: object) -> list[object] | None:
    """Return the names of a frame's columns, or None for anything else.

    Parameters
    ----------
    x : object
        Frame of pandas, Polars or Arrow, or any other object.

    Returns
    -------
    list or None
        Names, of any type.

    Examples
    --------
    >>> import pandas as pd
    >>> frame_columns(pd.DataFrame({"a": [1.0], 7: [2.0]}))
    ['a', 7]
    """
    if type(x).__name__ == "LazyFrame":  # It warns that names are expensive.
        return None
    names = getattr(x, "column_names", None)  # Arrow's `columns` are the values.
    names = getattr(x, "columns", None) if not isinstance(names, list) else names
    if names is None or callable(names) or isinstance(x, type):
        return None
    return [name.item() if isinstance(name, np.generic) else name for name in names]


def are_numbered(names: Sequence[object]) -> bool:
    """Return whether columns are numbered 0, 1, 2, … in order, and so have no names.

    Examples
    --------
    >>> are_numbered([0, 1, 2]), are_numbered([1, 0, 2]), are_numbered(["0", "1"])
    (True, False, False)
    """
    whole = all(isinstance(name, int) and not isinstance(name, bool) for name in names)
    return whole and list(names) == list(range(len(names)))


def column_names(x: object) -> list[str] | None:
    """Return the names of a frame's columns as text, or None without names.

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
    numbers = []
    for name in names:
        if isinstance(name, bool) or not isinstance(name, int | str):
            return None
        try:
            number = int(name)
        except ValueError:
            return None
        if str(number) != str(name):
            return None
        numbers.append(number)
    return numbers


def check_distinct(names: Sequence[object], owner: str, verb: str = "have") -> None:
    """Raise if two columns have the same name."""
    name, times = max(Counter(map(str, names)).items(), key=itemgetter(1), default=("", 0))
    if times > 1:
        raise ValueError(f"{owner} {verb} two columns named {name!r}; leave one of them out")


def column_order(
    names: Sequence[object], known: Sequence[object], owner: str, *, strict: bool = True
) -> list[int] | None:
    """Return the position of each known column among the names; None if they are in order.

    Parameters
    ----------
    names : sequence
        Names of the columns of a frame.
    known : sequence
        Names in fit, or the classes.
    owner : str
        What the frame contains, for messages.
    strict : bool, default=True
        Raise if no name is known. If False, such names are ignored.

    Returns
    -------
    list of int or None
        Positions, in the order of the known columns.

    Raises
    ------
    ValueError
        If a column is missing, unknown or duplicated.

    Examples
    --------
    >>> column_order(["b", "c", "a"], ["a", "b", "c"], "features")
    [2, 0, 1]
    """
    text, wanted = [str(name) for name in names], [str(name) for name in known]
    if text == wanted:
        return None
    position = {name: i for i, name in enumerate(text)}
    missing = [name for name in wanted if name not in position]
    unknown = [name for name in text if name not in set(wanted)]
    if not missing and not unknown and len(text) == len(wanted):
        return [position[name] for name in wanted]
    if are_numbered(names) or (not strict and len(missing) == len(wanted)):
        return None
    check_distinct(names, owner, verb="has" if owner == "X" else "have")
    lacks, has = ("lacks", "has") if owner == "X" else ("lack", "have")
    lack = f"{lacks} {format_names(missing, MAX_NAMES_SHOWN)}, which fit saw" if missing else ""
    have = (
        f"{has} {format_names(unknown, MAX_NAMES_SHOWN)}, which fit did not see" if unknown else ""
    )
    problem = ", and ".join(part for part in (lack, have) if part)
    raise ValueError(f"{owner} {problem}; give the columns of fit, in any order")


def format_names(names: Sequence[object], limit: int = 5) -> str:
    """Return the first few names of columns, groups or classes, for a message."""
    return ", ".join(map(repr, names[:limit])) + (", …" if len(names) > limit else "")


def match_columns(x: object, known: Sequence[str] | None, owner: str) -> object:
    """Return a frame with its columns in the order of fit, and other objects unchanged.

    Parameters
    ----------
    x : object
        Frame, or any other object.
    known : sequence of str or None
        Names in fit. If None, names that are numbers are column positions.
    owner : str
        What the frame contains, for messages.

    Returns
    -------
    object
        The same object if its columns are in order.

    Raises
    ------
    ValueError
        If a column is missing, unknown or duplicated.

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
    order = column_order(names, known, owner)
    return x if order is None else take_columns(x, order)


def take_columns(x: object, order: Sequence[int]) -> object:
    """Return some columns of a frame, by position."""
    if hasattr(x, "iloc"):
        return x.iloc[:, list(order)]
    names = frame_columns(x) or []
    if hasattr(x, "select"):  # Polars, Arrow
        return x.select([names[i] for i in order])
    return np.asarray(x)[:, list(order)]


def classes_of_columns(
    names: Sequence[object], y: NDArray[np.generic]
) -> list[object] | NDArray[np.generic] | None:
    """Return the classes that score columns are named after, or None if labels are positions.

    Parameters
    ----------
    names : sequence
        Names of the columns.
    y : ndarray
        Labels of the rows.

    Returns
    -------
    list or ndarray or None
        Classes, in the order of the columns.

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
    if labels <= set(text):  # Labels "0", "1", …, "10" sort differently from the columns.
        return list(text)
    return list(names) if labels <= set(names) else None


def check_classes(names: Sequence[object], classes: Sequence[object]) -> None:
    """Raise if classes contradict the names of the columns that they are given for.

    Parameters
    ----------
    names : sequence
        Names of the columns.
    classes : sequence
        Classes given by the user. If none is a column's name, they rename the columns.

    Raises
    ------
    ValueError
        If some classes are names of columns, but in another order or not all.
    """
    text, given = [str(name) for name in names], [str(name) for name in classes]
    if text == given or are_numbered(names) or not set(text) & set(given):
        return
    raise ValueError(
        f"the columns of the scores are {list(names)}, but classes = {list(classes)}; "
        "leave classes out, or give it in that order"
    )
