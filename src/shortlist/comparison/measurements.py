"""Measurements of methods, and their table in plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shortlist._utils.tables import format_number


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


Columns: TypeAlias = list[tuple[str, list[str]]]


@dataclass(frozen=True)
class MeasurementTable:
    """A table of measurements: headings, names of the methods, and columns of numbers.

    Parameters
    ----------
    heading : str
        What the columns about accuracies show.
    names : list of str
        Names of the methods.
    columns : list of (str, list of str)
        Heading and cells of each column.
    """

    heading: str
    names: list[str]
    columns: Columns


def measurement_tables(
    measurements: Sequence[Measurement], main_accuracy: float
) -> list[MeasurementTable]:
    """Return the sizes of all methods as a table, and what is guaranteed at `main_accuracy`.

    The second table is left out if no method has a guarantee.
    """
    by_method: dict[str, dict[float, Measurement]] = {}
    for measurement in measurements:
        by_method.setdefault(measurement.method, {})[measurement.accuracy] = measurement
    accuracies = dict.fromkeys(measurement.accuracy for measurement in measurements)
    names = list(by_method)
    main = [own[main_accuracy] for own in by_method.values()]
    sizes: Columns = [
        (f"{accuracy:g}", [format_number(own[accuracy].size) for own in by_method.values()])
        for accuracy in accuracies
    ]
    sizes.append(("fit s", [format_number(m.fit_seconds, 1) for m in main]))
    sizes.append(("predict s", [format_number(m.predict_seconds) for m in main]))
    tables = [MeasurementTable("mean size at accuracy", names, sizes)]
    if any(not math.isnan(m.guaranteed_accuracy) for m in measurements):
        guaranteed: Columns = [
            ("accuracy", [format_number(m.guaranteed_accuracy) for m in main]),
            ("size", [format_number(m.guaranteed_size) for m in main]),
            ("violation", [format_number(m.size_stratified_violation) for m in main]),
            ("worst class", [format_number(m.worst_class) for m in main]),
            ("single", [format_number(m.single_share) for m in main]),
        ]
        tables.append(MeasurementTable(f"{main_accuracy:g} guaranteed", names, guaranteed))
    return tables


def legend(accuracy: float, n_test: int) -> list[str]:
    """Return the lines that explain the columns of the tables."""
    error = math.sqrt(accuracy * (1 - accuracy) / n_test)
    return [
        "mean size at accuracy: at equal accuracy on the test rows",
        f"{accuracy:g} guaranteed: sets for which this accuracy is guaranteed, on the test rows",
        f"accuracy: fraction of sets that contain the label (standard error about {error:.1g})",
        "violation: largest gap to the requested accuracy among sets of similar size",
        "worst class: lowest accuracy of a class; single: fraction of sets with one label",
    ]


NO_GUARANTEES = "There are too few calibration rows to guarantee any of these accuracies."
