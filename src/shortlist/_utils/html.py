"""HTML representations for notebooks: small cards of text and tables.

All text is escaped, because labels are data. Colors are those of the page, so that a card can be
read in light and dark themes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NewType

Html = NewType("Html", str)
"""Text that is HTML already."""

LINE = "1px solid rgba(128,128,128,.4)"
CARD = (
    f"display:inline-block;max-width:100%;overflow-x:auto;border:{LINE};border-radius:6px;"
    "padding:8px 12px;margin:2px 0;color:inherit;background:transparent;"
    "font:13px/1.45 system-ui,sans-serif"
)
TABLE = "border-collapse:collapse;font:inherit;margin:4px 0 0;color:inherit;background:transparent"
CELL = "padding:2px 10px 2px 0;border:0;background:transparent;color:inherit;vertical-align:top"


def card(title: str, *parts: Html) -> str:
    """Return a card with a title.

    Parameters
    ----------
    title : str
        Title, as text.
    *parts : Html
        Contents.

    Returns
    -------
    str

    Examples
    --------
    >>> "&lt;b&gt;" in card("<b>")
    True
    """
    head = f'<div style="font-weight:600">{escape(title)}</div>'
    return f'<div class="shortlist" style="{CARD}">{head}{"".join(parts)}</div>'


def paragraph(text: str) -> Html:
    """Return a text as a paragraph.

    Examples
    --------
    >>> paragraph("1 < 2")
    '<div style="max-width:44em">1 &lt; 2</div>'
    """
    return Html(f'<div style="max-width:44em">{escape(text)}</div>')


def details(title: str, text: str) -> Html:
    """Return a text that is shown on a click.

    Examples
    --------
    >>> "<summary" in details("parameters", "LAC()")
    True
    """
    code = f'<code style="white-space:pre-wrap">{escape(text)}</code>'
    summary = f'<summary style="cursor:pointer">{escape(title)}</summary>'
    return Html(f'<details style="margin-top:4px">{summary}{code}</details>')


def facts(values: Mapping[str, str]) -> Html:
    """Return names and values as a table with two columns.

    Examples
    --------
    >>> "<bdi>0.9</bdi>" in facts({"accuracy": "0.9"})
    True
    """
    name_style = f"{CELL};text-align:left;opacity:.75;font-weight:400;white-space:nowrap"
    rows = "".join(
        f'<tr style="background:transparent"><th scope="row" style="{name_style}">{escape(name)}'
        f'</th><td style="{CELL};text-align:left;max-width:40em"><bdi>{escape(value)}</bdi></td>'
        "</tr>"
        for name, value in values.items()
    )
    return Html(f'<table style="{TABLE}"><tbody>{rows}</tbody></table>')


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, n_text: int = 1) -> Html:
    """Return a table.

    Parameters
    ----------
    titles : sequence of str
        Headings of the columns.
    rows : sequence of sequences of str
        Cells of each row.
    n_text : int, default=1
        Number of columns, from the left, that are text. The others are numbers, aligned right.

    Returns
    -------
    Html

    Examples
    --------
    >>> "&lt;script&gt;" in table(["label"], [["<script>"]])
    True
    """

    def cells(tag: str, values: Sequence[str], style: str) -> str:
        aligned = [f"text-align:{'left' if i < n_text else 'right'}" for i in range(len(values))]
        return "".join(
            f'<{tag} style="{CELL};{align};{style}"><bdi>{escape(value)}</bdi></{tag}>'
            for align, value in zip(aligned, values, strict=True)
        )

    line = '<tr style="background:transparent">'
    head = f"{line}{cells('th', titles, f'border-bottom:{LINE};font-weight:600')}</tr>"
    body = "".join(
        f"{line}{cells('td', row, 'font-variant-numeric:tabular-nums')}</tr>" for row in rows
    )
    return Html(f'<table style="{TABLE}"><thead>{head}</thead><tbody>{body}</tbody></table>')


def curve(x: Sequence[float], y: Sequence[float], label: str) -> Html:
    """Return a small plot of a curve, in the color of the text.

    Parameters
    ----------
    x, y : sequence of float
        Points, at least one.
    label : str
        What the plot shows, for screen readers.

    Returns
    -------
    Html

    Examples
    --------
    >>> curve([0, 1], [0, 1], "accuracy against size").count("<polyline")
    1
    """
    width, height, margin = 260, 90, 4

    def scaled(values: Sequence[float], extent: int) -> list[float]:
        low, high = min(values), max(values)
        return [margin + (extent - 2 * margin) * (v - low) / ((high - low) or 1) for v in values]

    points = " ".join(
        f"{a:.1f},{height - b:.1f}"
        for a, b in zip(scaled(x, width), scaled(y, height), strict=True)
    )
    return Html(
        f'<svg role="img" aria-label="{escape(label)}" width="{width}" height="{height}" '
        f'style="display:block;margin-top:4px;border-left:{LINE};border-bottom:{LINE}">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )
