"""Render the content of a report as one self-contained HTML page."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files

from shortlist._version import __version__
from shortlist.comparison import Measurement
from shortlist.html_report.content import Content
from shortlist.html_report.method_content import Method, Point
from shortlist.html_report.prose import (
    enumerate_names,
    guarantee_basis,
    guarantee_sections,
    percent,
    rounded_percent,
    summary,
)

COLUMNS = ("accuracy", "mean size", "violation", "worst class", "one label", "fit", "predict")
"""Columns of the table after the mean sizes: five for guaranteed sets, two for run times."""


def page(content: Content, title: str) -> str:
    """Return the page as HTML."""
    parts = {
        "title": escape(title),
        "version": escape(__version__),
        "style": _file("page.css"),
        "rows": escape(f"{content.comparison.summary}."),
        "summary": "\n".join(f"<p>{escape(line)}</p>" for line in summary(content)),
        "table": "\n".join(_table(content)),
        "hard": "\n".join([*_hard_classes(content), *_groups(content)]),
        "guarantee": "\n".join(_guarantees(content)),
        "data": embed_json(_data(content)),
        "script": "\n".join(map(_file, ("base.js", "charts.js", "page.js"))),
    }
    # All places are filled in one pass, so that "{{data}}" in a name is not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _file("page.html"))


def _file(name: str) -> str:
    return files("shortlist.html_report").joinpath(name).read_text(encoding="utf-8")


def embed_json(data: object) -> str:
    r"""Return JSON that is safe inside a script element, whatever strings it contains.

    Examples
    --------
    >>> embed_json(["</script>", "a & b"])
    '["\\u003c/script\\u003e","a \\u0026 b"]'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for c in "<>&\u2028\u2029":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


def _data(content: Content) -> dict[str, object]:
    """Return the data for the scripts."""
    used = sorted(_used_labels(content))
    place = {label: k for k, label in enumerate(used)}
    others = len(content.names) - len(content.classes)
    return {
        "accuracies": content.accuracies,
        "asked": [percent(a) for a in content.accuracies],
        "start": content.start,
        "main": content.main,
        "nTest": content.n_test,
        "names": [content.names[label] for label in used],
        "classes": [place[label] for label in content.classes],
        "classRows": content.class_rows,
        "others": f"{others:,} other classes together",
        "bins": content.bins,
        "methods": [_method(method, place) for method in content.methods],
        "examples": [[name, place[label]] for name, label in content.examples],
    }


def _used_labels(content: Content) -> set[int]:
    """Return the labels whose names the scripts need."""
    used = {*content.classes, *(label for _, label in content.examples)}
    for method in content.methods:
        for order in method.order or []:
            used.update(order)
        for point in method.points:
            for labels in point.sets or ():
                used.update(labels)
    return used


def _method(method: Method, place: dict[int, int]) -> dict[str, object]:
    order = method.order
    return {
        "name": method.name,
        "guarantee": guarantee_basis(method.guarantee),
        "curve": [[float(f"{v:.6g}") for v in values] for values in method.curve],
        "size": [_or_null(v) for v in method.size],
        "low": [_or_null(v, 5) for v in method.low],
        "high": [_or_null(v, 5) for v in method.high],
        "at": method.at,
        "points": [_point(point, place) for point in method.points],
        "order": None if order is None else [[place[k] for k in row] for row in order],
    }


def _point(point: Point, place: dict[int, int]) -> dict[str, object]:
    data: dict[str, object] = dict(vars(point))
    if point.sets is None:
        del data["sets"]
    else:
        data["sets"] = [[place[k] for k in labels] for labels in point.sets]
    return data


def _or_null(value: float, digits: int = 17) -> float | None:
    return None if math.isnan(value) else float(f"{value:.{digits}g}")


# Tables and sentences


def _scrolling(table: Iterable[str], name: str) -> Iterator[str]:
    """Yield a table that scrolls horizontally if it is wider than the screen."""
    yield f'<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0"><table>'
    yield from table
    yield "</table></div>"


def _table(content: Content) -> Iterator[str]:
    """Yield the table of the comparison, and the definitions of its columns."""
    accuracy = content.comparison.main_accuracy
    yield "<p>The first columns show the mean set size at equal accuracy on the test rows. The "
    yield f"next columns describe the sets for which {percent(accuracy)} is guaranteed.</p>"
    yield from _scrolling([*_table_head(content), *_table_body(content)], "Comparison of methods")
    error = 100 * math.sqrt(accuracy * (1 - accuracy) / content.n_test)
    definitions = {
        "accuracy": "fraction of the test rows whose set contains the true label (standard error "
        f"about {error:.2g} percentage points)",
        "violation": "largest difference between the requested accuracy and the accuracy of sets "
        "of similar size",
        "worst class": "lowest accuracy of a class",
        "one label": "fraction of the sets that have one label",
        "fit, predict": "run times in seconds",
        "–": "the value is not available",
    }
    yield '<dl class="terms">'
    for term, definition in definitions.items():
        yield f"<div><dt>{term}</dt><dd>{definition}</dd></div>"
    yield "</dl>"


def _group_starts(content: Content) -> set[int]:
    """Return the columns with which a group of columns begins."""
    n_sizes = len(content.comparison.accuracies)
    return {0, n_sizes, n_sizes + 5}


def _table_head(content: Content) -> Iterator[str]:
    accuracies, accuracy = content.comparison.accuracies, content.comparison.main_accuracy
    groups = (
        ("mean size at accuracy", len(accuracies)),
        (f"{percent(accuracy)} guaranteed", 5),
        ("seconds", 2),
    )
    yield "<thead><tr><th></th>"
    for name, width in groups:
        yield f'<th class="span first" scope="colgroup" colspan="{width}">{name}</th>'
    yield "</tr>"
    starts = _group_starts(content)
    heads = [*map(percent, accuracies), *COLUMNS]
    cells = [f'<th scope="col"{_first(i in starts)}>{h}</th>' for i, h in enumerate(heads)]
    yield f'<tr><th scope="col">method</th>{"".join(cells)}</tr></thead>'


def _table_body(content: Content) -> Iterator[str]:
    comparison, starts = content.comparison, _group_starts(content)
    yield "<tbody>"
    for k, name in enumerate(comparison.fitted):
        sizes = [_number(comparison.at(name, a).size, 3) for a in comparison.accuracies]
        values = [*sizes, *_cells(comparison.at(name, comparison.main_accuracy))]
        cells = [f"<td{_first(i in starts)}>{value}</td>" for i, value in enumerate(values)]
        style = ' class="main"' if k == content.main else ""
        head = f'<th scope="row"><bdi>{escape(content.methods[k].name)}</bdi></th>'
        yield f"<tr{style}>{head}{''.join(cells)}</tr>"
    yield "</tbody>"


def _cells(one: Measurement) -> list[str]:
    """Return the values of `COLUMNS`."""
    return [
        _share(one.guaranteed_accuracy),
        _number(one.guaranteed_size, 3),
        _number(one.size_stratified_violation, 3),
        _share(one.worst_class),
        _share(one.single_share),
        _number(one.fit_seconds, 1),
        _number(one.predict_seconds, 2),
    ]


def _first(is_first: bool) -> str:
    return ' class="first"' if is_first else ""


def _number(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else rounded_percent(value)


def _whose_sets(content: Content) -> str:
    """Return which sets the hard classes and the confused groups are computed from, as HTML."""
    method = content.methods[content.main]
    asked = percent(content.accuracies[content.start])
    guaranteed = method.points[method.at[content.start]].guaranteed
    how = f"for which {asked} is guaranteed" if guaranteed else f"that reach {asked}"
    return f"the sets of {escape(method.name)} {how}, on the test rows"


def _hard_classes(content: Content) -> Iterator[str]:
    """Yield the table of the hardest classes."""
    if not content.hardest:
        yield "<p>Hard classes cannot be shown, because the sets are not known.</p>"
        return
    yield f"<p>The classes with the largest mean set size, for {_whose_sets(content)}.</p>"
    heads = ("class", "test rows", "first label correct", "accuracy", "mean size")
    lines = [f"<thead><tr>{''.join(f'<th scope=col>{h}</th>' for h in heads)}</tr></thead><tbody>"]
    lines += [
        f'<tr><td class="wraps"><bdi>{escape(content.names[one.label])}</bdi></td>'
        f"<td>{one.n_rows:,}</td><td>{rounded_percent(one.first_accuracy)}</td>"
        f"<td>{rounded_percent(one.accuracy)}</td><td>{one.mean_size:.2f}</td></tr>"
        for one in content.hardest
    ]
    yield from _scrolling([*lines, "</tbody>"], "Hard classes")


def _groups(content: Content) -> Iterator[str]:
    """Yield the groups of classes that are confused with each other."""
    if not content.hardest:
        return
    if not content.groups:
        yield "<p>No two classes share more than 2% of their sets.</p>"
        return
    yield "<h3>Classes that are confused with each other</h3>"
    yield f"<p>Groups of classes that are often in the same set, for {_whose_sets(content)}. The "
    yield "percentage is the fraction of the rows of two classes whose set contains the other "
    yield 'class, on average over all pairs of the group.</p><ol class="groups">'
    for group in content.groups:
        names = enumerate_names([f"<bdi>{escape(content.names[k])}</bdi>" for k in group.labels])
        text = f"<strong>{names}</strong> share {100 * group.share:.0f}% of their sets."
        if group.mistake is not None:
            label, first, times = group.mistake
            text += (
                f" Most frequent mistake: <bdi>{escape(content.names[first])}</bdi> is the first "
                f"label of a row of <bdi>{escape(content.names[label])}</bdi> "
                f"({'once' if times == 1 else f'{times:,} times'})."
            )
        yield f"<li>{text}</li>"
    yield "</ol>"


def _guarantees(content: Content) -> Iterator[str]:
    """Yield the sections about guarantees."""
    for heading, sentences in guarantee_sections(content).items():
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        yield f'<h3>{escape(heading)}</h3><ul class="plain">{items}</ul>'
