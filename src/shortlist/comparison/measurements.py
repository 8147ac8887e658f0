"""Measurements of methods, and their table in plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """The measurement of one method at one accuracy, on the test rows.

    All numbers from `guaranteed_accuracy` to `single_share`, and `predict_seconds`, describe the
    sets for which the requested accuracy is guaranteed. They are NaN if it cannot be guaranteed.

    Parameters
    ----------
    method : str
        Name of the method.
    accuracy : float
        The requested accuracy.
    size : float
        Mean size at which the method's curve reaches the requested accuracy on the test rows. It
        is NaN if the curve does not reach it.
    guaranteed_accuracy : float
        Fraction of the sets that contain the label.
    guaranteed_size : float
        Mean size of the sets.
    size_stratified_violation : float
        Largest gap to the requested accuracy among sets of similar size.
    worst_class : float
        Lowest accuracy of a class.
    single_share : float
        Fraction of sets with exactly one label.
    fit_seconds : float
        Seconds that fitting and calibration took.
    predict_seconds : float
        Seconds that prediction took.
    """

    method: str
    accuracy: float
    size: float
    guaranteed_accuracy: float
    guaranteed_size: float
    size_stratified_violation: float
    worst_class: float
    single_share: float
    fit_seconds: float
    predict_seconds: float


def format_table(
    measurements: Sequence[Measurement], main_accuracy: float, n_calibration: int, n_test: int
) -> str:
    """Return measurements as a table in plain text, with an explanation of its columns.

    The columns about a guarantee are for `main_accuracy`. They are left out if no method has one.
    """
    has_guarantee = any(not math.isnan(m.guaranteed_accuracy) for m in measurements)
    lines = _table(measurements, main_accuracy, has_guarantee)
    if has_guarantee:
        lines += ["", *_legend(main_accuracy, n_test)]
    elif n_calibration:
        lines += ["", "There are too few calibration rows to guarantee any of these accuracies."]
    return "\n".join(lines)


def _table(
    measurements: Sequence[Measurement], main_accuracy: float, has_guarantee: bool
) -> list[str]:
    """Return the lines of the table: a heading, and a line for each method."""
    by_method: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        by_method.setdefault(measurement.method, []).append(measurement)
    title, guarantee_title = "mean size at accuracy", f"{main_accuracy:g} guaranteed: accuracy"
    width = max(map(len, [title, *by_method]))
    accuracies = dict.fromkeys(measurement.accuracy for measurement in measurements)
    head = f"{title:<{width}}" + "".join(f"{accuracy:>8g}" for accuracy in accuracies)
    if has_guarantee:
        head += f" | {guarantee_title}   size  violation  worst class  single"
    lines = [f"{head} |  fit s  predict s"]
    for name, own in by_method.items():
        line = f"{name:<{width}}" + "".join(_format(measurement.size) for measurement in own)
        main = next(m for m in own if m.accuracy == main_accuracy)
        if has_guarantee:
            line += (
                f" | {_format(main.guaranteed_accuracy, len(guarantee_title))}"
                f"{_format(main.guaranteed_size, 7)}"
                f"{_format(main.size_stratified_violation, 11)}{_format(main.worst_class, 13)}"
                f"{_format(main.single_share, 8)}"
            )
        lines.append(f"{line} | {main.fit_seconds:6.1f}{_format(main.predict_seconds, 11)}")
    return lines


def _legend(accuracy: float, n_test: int) -> list[str]:
    """Return the lines that explain the columns."""
    error = math.sqrt(accuracy * (1 - accuracy) / n_test)
    return [
        "mean size at accuracy: at equal accuracy on the test rows",
        f"{accuracy:g} guaranteed: sets for which this accuracy is guaranteed, on the test rows",
        f"accuracy: fraction of sets that contain the label (standard error about {error:.1g})",
        "violation: largest gap to the requested accuracy among sets of similar size",
        "worst class: lowest accuracy of a class; single: fraction of sets with one label",
    ]


def _format(value: float, width: int = 8) -> str:
    return f"{'-' if math.isnan(value) else f'{value:.3f}':>{width}}"
