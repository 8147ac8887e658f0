"""A report as one page of HTML that needs nothing else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files

from shortlist._version import __version__
from shortlist.comparison.result import middle_of
from shortlist.html_report.content import Content, Method, Point
from shortlist.html_report.prose import guarantees, in_short, listed, measured, percent


def page(content: Content, title: str) -> str:
    """The whole page."""
    found = content.found
    parts = {
        "title": escape(title),
        "version": escape(__version__),
        "style": _file("page.css"),
        "words": escape(f"{found.words}."),
        "short": "\n".join(f"<p>{escape(line)}</p>" for line in in_short(content)),
        "table": "\n".join(_table(content)),
        "hard": "\n".join(_hard(content)),
        "guarantee": "\n".join(_guarantees(content)),
        "data": embedded(_data(content)),
        "script": "\n".join(map(_file, ("base.js", "charts.js", "page.js"))),
    }
    # In one pass: what is put in is never read as a place to put something in.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _file("page.html"))


def _file(name: str) -> str:
    return files("shortlist.html_report").joinpath(name).read_text(encoding="utf-8")


def embedded(data: object) -> str:
    """JSON that is safe inside a script element, whatever strings it holds.

    >>> embedded(["</script>", "a & b"])
    '["\\\\u003c/script\\\\u003e","a \\\\u0026 b"]'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for c in "<>&\u2028\u2029":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


def _data(content: Content) -> dict[str, object]:
    """What the script looks up."""
    used = sorted(_used(content))
    place = {label: k for k, label in enumerate(used)}
    others = len(content.names) - len(content.classes)
    return {
        "accuracies": content.accuracies,
        "asked": [percent(a) for a in content.accuracies],
        "start": content.start,
        "main": content.main,
        "rows": content.rows,
        "names": [content.names[label] for label in used],
        "classes": [place[label] for label in content.classes],
        "classRows": content.class_rows,
        "others": f"{others:,} other classes together",
        "bins": content.bins,
        "methods": [_method(method, place) for method in content.methods],
        "examples": [[name, place[label]] for name, label in content.examples],
    }


def _used(content: Content) -> set[int]:
    """The labels whose names the script needs."""
    used = {*content.classes, *(label for _, label in content.examples)}
    for method in content.methods:
        for order in method.order or []:
            used.update(order)
        for point in method.points:
            for labels in point.lists or ():
                used.update(labels)
    return used


def _method(method: Method, place: dict[int, int]) -> dict[str, object]:
    order = method.order
    return {
        "name": method.name,
        "guarantee": method.guarantee,
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
    if point.lists is None:
        del data["lists"]
    else:
        data["lists"] = [[place[k] for k in labels] for labels in point.lists]
    return data


def _or_null(value: float, digits: int = 17) -> float | None:
    return None if math.isnan(value) else float(f"{value:.{digits}g}")


# Tables and words


def _scrolling(table: Iterable[str], name: str) -> Iterator[str]:
    """A table that scrolls by itself where it is wider than the screen."""
    yield f'<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0"><table>'
    yield from table
    yield "</table></div>"


def _table(content: Content) -> Iterator[str]:
    """The table of the comparison."""
    found, middle = content.found, middle_of(content.found)
    wide = len(found.accuracies)
    yield "<p>Mean number of labels in a list, at equal accuracy on the test rows; then the lists "
    yield f"for which {percent(middle)} was guaranteed.</p>"

    def lines() -> Iterator[str]:
        yield '<thead><tr><th></th><th class="span first" scope="colgroup" '
        yield f'colspan="{wide}">mean size at accuracy</th>'
        yield '<th class="span first" scope="colgroup" colspan="5">'
        yield f"{percent(middle)} guaranteed</th>"
        yield '<th class="span first" scope="colgroup" colspan="2">seconds</th></tr>'
        heads = [percent(a) for a in found.accuracies]
        heads += [
            "accuracy",
            "mean size",
            "violation",
            "worst class",
            "one label",
            "fit",
            "predict",
        ]
        first = {0, wide, wide + 5}
        cells = [
            f'<th scope="col"{_first(i in first)}>{escape(h)}</th>' for i, h in enumerate(heads)
        ]
        yield f'<tr><th scope="col">method</th>{"".join(cells)}</tr></thead><tbody>'
        for k, name in enumerate(found._fitted):
            one = found.at(name, middle)
            cells = [_number(found.at(name, a).size, 3) for a in found.accuracies]
            cells += [_share(one.guaranteed_accuracy), _number(one.guaranteed_size, 3)]
            cells += [_number(one.size_stratified_violation, 3)]
            cells += [_share(one.worst_class), _share(one.single_share)]
            cells += [_number(one.fit_seconds, 1), _number(one.predict_seconds, 2)]
            shown = [f"<td{_first(i in first)}>{cell}</td>" for i, cell in enumerate(cells)]
            kind = ' class="main"' if k == content.main else ""
            named = f'<th scope="row"><bdi>{escape(content.methods[k].name)}</bdi></th>'
            yield f"<tr{kind}>{named}{''.join(shown)}</tr>"
        yield "</tbody>"

    yield from _scrolling(lines(), "Every method, side by side")
    error = 100 * math.sqrt(middle * (1 - middle) / content.rows)
    yield (
        '<p class="soft">accuracy: of all test rows; by chance it is off by about '
        f"{error:.2g} percentage points (standard error). violation: by how much the accuracy is "
        "off at most among lists of similar length. worst class: the accuracy of the class that "
        "has the lowest. one label: the share of lists with a single label. A dash: cannot be had."
        "</p>"
    )


def _first(is_first: bool) -> str:
    return ' class="first"' if is_first else ""


def _number(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else measured(value)


def _hard(content: Content) -> Iterator[str]:
    """The hardest classes, and groups that are taken for each other."""
    if not content.hardest:
        yield "<p>Nothing to show: the lists are not known.</p>"
        return
    method = content.methods[content.main]
    asked = percent(content.accuracies[content.start])
    known = method.points[method.at[content.start]]
    what = "for which {} was guaranteed" if known.guaranteed else "that reach {} on the test rows"
    lists = f"the lists of {escape(method.name)} {what.format(asked)}"
    yield f"<p>The classes that need the longest lists: {lists}.</p>"

    def lines() -> Iterator[str]:
        heads = ("class", "test rows", "first label right", "on the list", "labels in the list")
        yield f"<thead><tr>{''.join(f'<th scope=col>{head}</th>' for head in heads)}</tr></thead>"
        yield "<tbody>"
        for one in content.hardest:
            yield (
                f'<tr><td class="wraps"><bdi>{escape(content.names[one.label])}</bdi></td>'
                f"<td>{one.rows:,}</td><td>{measured(one.first)}</td>"
                f"<td>{measured(one.held)}</td><td>{one.mean_size:.2f}</td></tr>"
            )
        yield "</tbody>"

    yield from _scrolling(lines(), "The hardest classes")
    if not content.groups:
        yield "<p>No two classes share more than one list in fifty.</p>"
        return
    yield "<h3>Classes that are taken for each other</h3>"
    yield f"<p>Groups of classes that are often on one list ({lists}). The share: how often a row "
    yield "of one of them has another one on its list, on average over the pairs.</p>"
    yield '<ol class="groups">'
    for group in content.groups:
        names = listed([f"<bdi>{escape(content.names[k])}</bdi>" for k in group.labels])
        words = f"<strong>{names}</strong> share {100 * group.share:.0f}% of their lists."
        if group.mistake is not None:
            right, first, times = group.mistake
            words += (
                f" Most often mistaken: <bdi>{escape(content.names[right])}</bdi> for "
                f"<bdi>{escape(content.names[first])}</bdi>, "
                f"{'once' if times == 1 else f'{times:,} times'}."
            )
        yield f"<li>{words}</li>"
    yield "</ol>"


def _guarantees(content: Content) -> Iterator[str]:
    for heading, said in guarantees(content).items():
        yield f"<h3>{escape(heading)}</h3>"
        yield '<ul class="plain">'
        for words in said:
            yield f"<li>{escape(words)}</li>"
        yield "</ul>"
