"""Tables in plain text, which fit the width of a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

WIDTH = 80
"""Number of characters of a line."""
NAME_WIDTH = 36
"""Longer names of rows are shortened."""


def shorten(text: str, width: int) -> str:
    """Return a text with at most `width` characters; an ellipsis replaces the middle.

    Examples
    --------
    >>> shorten("Shortlister", 20), shorten("Shortlister", 7)
    ('Shortlister', 'Sho…ter')
    """
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def summarize_names(names: Sequence[object], shown: int = 5) -> str:
    """Return the number of names and the first of them.

    Examples
    --------
    >>> summarize_names(["ant", "bee"]), summarize_names(range(1000), shown=2)
    ('2 (ant, bee)', '1,000 (0, 1, …)')
    """
    first = ", ".join(shorten(str(name), 30) for name in names[:shown])
    return f"{len(names):,} ({first}{', …' if len(names) > shown else ''})"


def format_columns(
    heading: str, names: Sequence[str], columns: Sequence[tuple[str, Sequence[str]]]
) -> list[str]:
    """Return the lines of a table. Columns that exceed the width continue below.

    Parameters
    ----------
    heading : str
        Heading of the column of names.
    names : sequence of str
        Name of each row.
    columns : sequence of (str, sequence of str)
        Heading and cells of each column.

    Returns
    -------
    list of str

    Examples
    --------
    >>> for line in format_columns("size", ["LAC", "APS"], [("0.9", ["1.2", "10.5"])]):
    ...     print(line)
    size   0.9
    LAC    1.2
    APS   10.5
    """
    shown = [shorten(name, NAME_WIDTH) for name in [heading, *names]]
    name_width = max(map(len, shown))
    lines: list[str] = []
    block = [f"{name:<{name_width}}" for name in shown]
    for title, cells in columns:
        cell_width = max(map(len, [title, *cells])) + 2
        if len(block[0]) + cell_width > WIDTH and len(block[0]) > name_width:
            lines += [*block, ""]
            block = [f"{name:<{name_width}}" for name in shown]
        block = [
            f"{line}{cell:>{cell_width}}" for line, cell in zip(block, [title, *cells], strict=True)
        ]
    return lines + block


def format_number(value: float, digits: int = 3) -> str:
    """Return a number with some decimals, or "-" for NaN.

    Examples
    --------
    >>> format_number(1.23456), format_number(float("nan"))
    ('1.235', '-')
    """
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
