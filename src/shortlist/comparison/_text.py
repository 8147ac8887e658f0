"""A comparison as a table in plain text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shortlist.comparison._found import Comparison


def in_words(found: Comparison) -> str:
    """The table, what it was measured on, and what its columns mean."""
    return "\n".join([found.words, "", *_lines(found), *_legend(found)])


def _lines(found: Comparison) -> list[str]:
    """The table in plain text."""
    names = list(found.curves)
    title = "mean size at accuracy"
    wide = max(map(len, [title, *names]))
    sizes = "".join(f"{a:>8g}" for a in found.accuracies)
    promised, middle = _promised(found), middle_of(found)
    head = f"{title:<{wide}}{sizes}"
    first = f"{middle:g} promised: accuracy"
    if promised:
        head += f" | {first}   size  violation  worst class  single"
    lines = [f"{head} |  fit s  predict s"]
    for name in names:
        line = f"{name:<{wide}}" + "".join(
            _number(found.at(name, a).size) for a in found.accuracies
        )
        one = found.at(name, middle)
        if promised:
            line += (
                f" | {_number(one.promised_accuracy, len(first))}{_number(one.promised_size, 7)}"
                f"{_number(one.size_stratified_violation, 11)}{_number(one.worst_class, 13)}"
                f"{_number(one.single_share, 8)}"
            )
        lines.append(f"{line} | {one.fit_seconds:6.1f}{_number(one.predict_seconds, 11)}")
    return lines


def _promised(found: Comparison) -> bool:
    return any(not math.isnan(one.promised_accuracy) for one in found.measured)


def middle_of(found: Comparison) -> float:
    """The accuracy whose promise is shown: 0.95, or the first."""
    return 0.95 if 0.95 in found.accuracies else found.accuracies[0]


def _legend(found: Comparison) -> list[str]:
    """What the columns mean that do not say so themselves."""
    if not _promised(found):
        few = " to calibrate" in found.words
        return ["", "Nothing can be promised with so few rows to calibrate."] if few else []
    middle = middle_of(found)
    error = math.sqrt(middle * (1 - middle) / found.rows)
    return [
        "",
        f"accuracy: of all test rows (standard error about {error:.1g}), and of the worst class",
        "violation: by how much it is off at most among sets of similar size",
        "single: share of sets that hold one label",
    ]


def _number(value: float, width: int = 8) -> str:
    return f"{'-' if math.isnan(value) else f'{value:.3f}':>{width}}"
