"""What a report says in words: what was found in short, what is guaranteed, and what is not."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shortlist.html_report.content import Content, Method
from shortlist.predictors import SetPredictor
from shortlist.predictors.nested import NestedSelector


def percent(share: float) -> str:
    """A share as a person writes it.

    >>> percent(0.95), percent(0.9875), percent(0.07)
    ('95%', '98.75%', '7%')
    """
    return f"{100 * share:.10g}%"


def measured(share: float) -> str:
    """A share that was counted.

    >>> measured(0.95), measured(2 / 3)
    ('95.0%', '66.7%')
    """
    return f"{100 * share:.1f}%"


def quote(name: str) -> str:
    """A name in quotation marks if it has a comma, which would end it."""
    return f"“{name}”" if ", " in name else name


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b", "c, d"])
    ('a', 'a, b and “c, d”')
    """
    quoted = [quote(name) for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def rows(n: int, kind: str = "test") -> str:
    """
    >>> rows(1), rows(1000, "calibration")
    ('1 test row', '1,000 calibration rows')
    """
    return f"{n:,} {kind} row{'' if n == 1 else 's'}"


def in_short(content: Content) -> list[str]:
    """What a hurried reader should know."""
    asked = percent(content.accuracies[content.start])
    said = [
        "A short list of labels for each row: one label where the case is clear, more where it is "
        "not. This page shows how long the lists must be for the right label to be on them as "
        "often as you ask.",
        f"The classifier’s first label alone is right in {measured(content.first_right)} of the "
        f"{rows(content.rows)}.",
    ]
    sizes = {m.name: m.size[content.start] for m in content.methods}
    reached = {name: size for name, size in sizes.items() if not math.isnan(size)}
    if not reached:
        return [*said, f"No method’s lists reach {asked}."]
    order = sorted(reached, key=reached.__getitem__)
    best = f"{reached[order[0]]:.2f}"
    equal = [name for name in order if f"{reached[name]:.2f}" == best]
    words = f"To be right in {asked}, lists need {best} labels on average with {listed(equal)}"
    others = order[len(equal) :]
    if others:
        words += f", {reached[others[0]]:.2f} with {quote(others[0])}, the next"
    if len(others) > 1:
        words += f", and {reached[others[-1]]:.2f} with {quote(others[-1])}"
    return [*said, words + "."]


def guarantees(content: Content) -> dict[str, list[str]]:
    """Headings, and under each what there is to say."""
    method = content.methods[content.main]
    able = [m for m in content.methods if m.guarantee]
    if able and not method.guarantee:
        method = able[0]
    parts = {"What is guaranteed": _guaranteed(content, method)}
    if method.guarantee:
        parts["What was kept"] = _kept(content, method)
    parts["What is not guaranteed"] = _not_guaranteed(content, bool(able))
    how = _how(content)
    return parts | {"How it was measured": how}


def _guaranteed(content: Content, method: Method) -> list[str]:
    if not method.guarantee:
        return [
            "Nothing: no labelled rows were kept aside to calibrate with, or too few. All "
            "accuracies on this page are what was counted on the test rows."
        ]
    asked = percent(content.accuracies[content.start])
    model = _model(content, method)
    by = getattr(model, "by", None)
    whom = {"class": "a new row of any one class", "group": "a new row of any one group"}.get(
        str(by), "a new row"
    )
    words = (
        f"You name an accuracy, say {asked}. Then the list of {whom} holds the right label with a "
        f"probability of at least {asked}: guaranteed {method.guarantee}, "
        "that is, by labelled rows that were kept aside and served for nothing else."
    )
    said = [words]
    if isinstance(model, NestedSelector) and model._calibration is not None:
        n, a = len(model._calibration), content.accuracies[content.start]
        if by is None:
            said.append(
                "That probability is over new rows and calibration rows together. With the "
                f"{rows(n, 'calibration')} at hand, the share among very many new rows may be a "
                "little higher or lower, typically by "
                f"{100 * math.sqrt(a * (1 - a) / (n + 2)):.1g} percentage points."
            )
    if "with probability" in method.guarantee:
        said.append(
            "“With probability” is over the draw of the calibration rows: so often the accuracy on "
            "new rows is at least the one asked for."
        )
    said.append(
        "The guarantee needs new rows that come about as the calibration rows did. It needs "
        "nothing of the classifier: a bad one gets longer lists, not fewer right ones."
    )
    other = [m.name for m in content.methods if not m.guarantee]
    if other:
        said.append(f"No guarantee here: {listed(other)}.")
    return said


def _kept(content: Content, method: Method) -> list[str]:
    said = []
    for accuracy in content.found.accuracies:
        at = method.at[content.accuracies.index(accuracy)]
        if at < 0 or not method.points[at].guaranteed:
            said.append(f"{percent(accuracy)} could not be guaranteed.")
            continue
        point = method.points[at]
        share = point.hits / content.rows
        error = math.sqrt(share * (1 - share) / content.rows)
        said.append(
            f"{percent(accuracy)} guaranteed: {method.name}’s lists held the right label in "
            f"{measured(share)} of the {rows(content.rows)} (standard error {100 * error:.2g} "
            f"percentage points), with {point.labels / content.rows:.2f} labels on average"
            f"{_by_chance(share, accuracy, content, method)}."
        )
    if any(point.guaranteed and point.labels == content.rows for point in method.points):
        said.append(
            "A list is never empty: where all of them have one label, they are right as often as "
            "the first label is, which may be more often than asked for."
        )
    return [
        *said,
        "A standard error is how far such a count is typically off by chance: about one time in "
        "three by more, one time in twenty by more than twice that.",
    ]


def _by_chance(share: float, accuracy: float, content: Content, method: Method) -> str:
    """What to make of a share that is smaller than the accuracy guaranteed."""
    kept = getattr(_model(content, method), "_calibration", None)
    draws = 1 / content.rows + (0 if kept is None else 1 / len(kept))
    if share >= accuracy:
        return ""
    if share >= accuracy - 2 * math.sqrt(accuracy * (1 - accuracy) * draws):
        return ": a little less, as may happen by chance with so few rows"
    return ": less than chance explains. Were these rows drawn as the calibration rows were?"


def _not_guaranteed(content: Content, any_guarantee: bool) -> list[str]:
    said = [
        "Single rows. An accuracy is a share among many rows: it says nothing of one row’s list, "
        "and lists of some classes, or kinds of rows, may be right less often.",
        "Changed data: another time, place, device or population, or a classifier that was trained "
        "anew. Calibrate again with rows of the new kind.",
        "The length of the lists. Mean sizes, and the accuracies of classes, are what was counted "
        "on the test rows.",
    ]
    if len(content.methods) > 1:
        said.append(
            "That the method which looks best here is the best: the best of several is partly "
            "lucky, and the shades around the curves tell how much luck there may be."
        )
    return said if any_guarantee else said[:1] + said[2:]


def _how(content: Content) -> list[str]:
    said = [
        "“At equal accuracy”: each method’s threshold is moved until its lists hold the right "
        "label in just that share of the test rows; between two points of a curve, linearly. That "
        "compares methods fairly, but uses the test rows’ labels, and so is no guarantee.",
    ]
    tuned = [
        method.name
        for method, one in zip(content.methods, content.found._fitted.values(), strict=True)
        if len({id(model) for model in one.models.values()}) > 1
    ]
    if tuned:
        accuracies = listed([percent(a) for a in content.found.accuracies])
        said.append(
            f"{listed(tuned)}: tuned anew for each of {accuracies}, on rows that were not used to "
            "calibrate. At other accuracies, the slider and the curve show the one that was tuned "
            "for the nearest of these."
        )
    return said


def _model(content: Content, method: Method) -> SetPredictor:
    at = content.methods.index(method)
    fitted = list(content.found._fitted.values())[at]
    return fitted.model(content.accuracies[content.start])
