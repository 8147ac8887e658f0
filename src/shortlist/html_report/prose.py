"""The sentences of a report: the summary, and the sections about guarantees."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shortlist._utils.proportions import standard_error
from shortlist.guarantee import Guarantee, complement, count_rows
from shortlist.html_report.content import Content
from shortlist.html_report.method_content import Method


def percent(share: float) -> str:
    """Return a requested fraction as a percentage, without rounding.

    Examples
    --------
    >>> percent(0.95), percent(0.9875), percent(0.07)
    ('95%', '98.75%', '7%')
    """
    return f"{100 * share:.10g}%"


def rounded_percent(share: float) -> str:
    """Return a measured fraction as a percentage with one decimal.

    Examples
    --------
    >>> rounded_percent(0.95), rounded_percent(2 / 3)
    ('95.0%', '66.7%')
    """
    return f"{100 * share:.1f}%"


def quote(name: str) -> str:
    """Return a name, in quotation marks if it contains a comma."""
    return f"“{name}”" if ", " in name else name


def enumerate_names(names: Sequence[str]) -> str:
    """Return names as an enumeration for a sentence.

    Examples
    --------
    >>> enumerate_names(["a"]), enumerate_names(["a", "b", "c, d"])
    ('a', 'a, b and “c, d”')
    """
    quoted = [quote(name) for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def count_test_rows(n: int) -> str:
    """Return a number of test rows in words.

    Examples
    --------
    >>> count_test_rows(1), count_test_rows(1000)
    ('1 test row', '1,000 test rows')
    """
    return f"{n:,} test row{'' if n == 1 else 's'}"


def guarantee_basis(guarantee: Guarantee) -> str:
    """Return the confidence and the calibration rows of a guarantee; "" if there is none.

    Examples
    --------
    >>> guarantee_basis(Guarantee("confidence", accuracy=0.9, delta=0.05, n_calibration=150))
    'with probability 0.95 by 150 calibration rows'
    """
    if not guarantee:
        return ""
    parts = [] if guarantee.delta is None else [f"with probability {complement(guarantee.delta):g}"]
    parts += [] if guarantee.conditional_on is None else [f"for each {guarantee.conditional_on}"]
    return " ".join([*parts, f"by {count_rows(guarantee.n_calibration)}"])


def summary(content: Content) -> list[str]:
    """Return the summary at the top of the page."""
    asked = percent(content.accuracies[content.start])
    sentences = [
        "A prediction set contains one label if the case is clear, and several labels if it is "
        "not. This page shows how large the sets must be to contain the true label as often as you "
        "request. The fraction of the sets that contain the true label is called the accuracy "
        "(“coverage” in the literature on conformal prediction).",
        "The label with the highest score is the true label for "
        f"{rounded_percent(content.first_accuracy)} of the {count_test_rows(content.n_test)}.",
    ]
    sizes = {m.name: m.size[content.start] for m in content.methods}
    reached = {name: size for name, size in sizes.items() if not math.isnan(size)}
    if not reached:
        return [*sentences, f"No method reaches an accuracy of {asked} on the test rows."]
    order = sorted(reached, key=reached.__getitem__)
    best = f"{reached[order[0]]:.2f}"
    equal = [name for name in order if f"{reached[name]:.2f}" == best]
    text = f"At an accuracy of {asked} on the test rows, the mean set size is {best} with "
    text += enumerate_names(equal)
    others = order[len(equal) :]
    if others:
        text += " (the smallest sets)"
        text += f", {reached[others[0]]:.2f} with {quote(others[0])} (the second smallest)"
    if len(others) > 1:
        text += f", and {reached[others[-1]]:.2f} with {quote(others[-1])} (the largest)"
    return [*sentences, text + "."]


def guarantee_sections(content: Content) -> dict[str, list[str]]:
    """Return the sections about guarantees: headings, and the sentences under each."""
    method = content.methods[content.main]
    calibrated = [m for m in content.methods if m.guarantee]
    if calibrated and not method.guarantee:
        method = calibrated[0]
    sections = {"What is guaranteed": _guaranteed(content, method)}
    if method.guarantee:
        sections["What was measured"] = _measured(content, method)
    sections["What is not guaranteed"] = _not_guaranteed(content, bool(calibrated))
    return sections | {"How methods are compared": _how_compared(content)}


def _guaranteed(content: Content, method: Method) -> list[str]:
    guarantee = method.guarantee
    if not guarantee:
        return [
            "Nothing is guaranteed: there are no calibration rows, or too few of them. All "
            "accuracies on this page were measured on the test rows."
        ]
    accuracy = content.accuracies[content.start]
    asked = percent(accuracy)
    which = f" of any {guarantee.conditional_on}" if guarantee.conditional_on else ""
    sentences = [
        f"You choose an accuracy, for example {asked}. The prediction set of a new row{which} then "
        f"contains the true label with a probability of at least {asked}. This is guaranteed "
        f"{guarantee_basis(guarantee)}, which were used for nothing else."
    ]
    if guarantee.kind == "marginal" and guarantee.conditional_on is None:
        n = guarantee.n_calibration
        deviation = 100 * math.sqrt(accuracy * (1 - accuracy) / (n + 2))
        sentences.append(
            "This probability is over the draw of the new row and of the calibration rows. For "
            f"these {count_rows(n)}, the accuracy on many new rows can be higher or lower, "
            f"typically by {deviation:.1g} percentage points."
        )
    if guarantee.delta is not None:
        sentences.append(
            f"In a fraction of at least {complement(guarantee.delta):g} of all draws of the "
            "calibration rows, the accuracy on new rows is at least the requested accuracy."
        )
    sentences.append(
        "The guarantee requires that new rows are exchangeable with the calibration rows: they "
        "must come from the same source and be collected in the same way. It holds for any "
        "classifier: a poor classifier leads to larger sets, not to less accurate sets."
    )
    without = [m.name for m in content.methods if not m.guarantee]
    if without:
        sentences.append(f"Methods without a guarantee: {enumerate_names(without)}.")
    return sentences


def _measured(content: Content, method: Method) -> list[str]:
    sentences = []
    for accuracy in content.comparison.accuracies:
        at = method.at[content.accuracies.index(accuracy)]
        if at < 0 or not method.points[at].guaranteed:
            sentences.append(f"{percent(accuracy)} cannot be guaranteed with these rows.")
            continue
        point = method.points[at]
        n = content.n_test
        share = point.hits / n
        error = float(standard_error(point.hits, n))
        sentences.append(
            f"{percent(accuracy)} guaranteed: the sets of {method.name} contain the true label "
            f"for {rounded_percent(share)} of the {count_test_rows(n)} (standard error "
            f"{100 * error:.2g} percentage points), with {point.labels / n:.2f} labels on average"
            f"{_shortfall(share, accuracy, content, method)}."
        )
    if any(point.guaranteed and point.labels == content.n_test for point in method.points):
        sentences.append(
            "No set is empty. If all sets have one label, their accuracy is that of the label with "
            "the highest score, which can exceed the requested accuracy."
        )
    return [
        *sentences,
        "The standard error measures how much such a number varies by chance: it differs from its "
        "expectation by more than one standard error in about one of three cases, and by more than "
        "two standard errors in about one of twenty.",
    ]


def _shortfall(share: float, accuracy: float, content: Content, method: Method) -> str:
    """Return a remark about a measured accuracy below the guaranteed one."""
    if share >= accuracy:
        return ""
    marginal = method.guarantee.kind == "marginal"
    draws = 1 / content.n_test + (1 / method.guarantee.n_calibration if marginal else 0)
    if share >= accuracy - 2 * math.sqrt(accuracy * (1 - accuracy) * draws):
        return ". This is less than guaranteed, but within the variation of this many rows"
    return (
        ". This is less than chance explains; check that the test rows come from the same source "
        "as the calibration rows"
    )


def _not_guaranteed(content: Content, any_guarantee: bool) -> list[str]:
    sentences = [
        "Single rows: the accuracy is a fraction of many rows. It says nothing about the set of "
        "one row, and the sets of some classes or kinds of rows can be less accurate.",
        "Changed data: the guarantee does not hold for another time, place, device or population, "
        "or after the classifier has been trained again. Calibrate again with new rows.",
        "The size of the sets: mean sizes and the accuracies of classes are measurements on the "
        "test rows.",
    ]
    if len(content.methods) > 1:
        sentences.append(
            "The choice of a method: the method that is best on this page is partly best by "
            "chance. The shaded bands around the curves show how much chance can contribute."
        )
    return sentences if any_guarantee else sentences[:1] + sentences[2:]


def _how_compared(content: Content) -> list[str]:
    sentences = [
        "“At equal accuracy” means that the threshold of each method is adjusted until its sets "
        "contain the true label for exactly that fraction of the test rows, with linear "
        "interpolation between two points of the curve. This uses the labels of the test rows, so "
        "it compares methods fairly, but it is not a guarantee.",
    ]
    fitted = content.comparison.fitted.values()
    tuned = [m.name for m, one in zip(content.methods, fitted, strict=True) if one.is_tuned]
    if tuned:
        accuracies = enumerate_names([percent(a) for a in content.comparison.accuracies])
        sentences.append(
            f"Tuned separately for {accuracies}: {enumerate_names(tuned)}. Rows that are used for "
            "tuning are not used for calibration. At other accuracies, the slider and the curve "
            "show the model that was tuned for the nearest of these accuracies."
        )
    return sentences
