"""The result of a comparison: measurements, curves and fitted models."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.extras import require
from shortlist._utils.html import card, details, paragraph, table
from shortlist._utils.integrations import ComparisonMixin
from shortlist._utils.tables import WIDTH, format_columns
from shortlist.comparison.measurements import (
    NO_GUARANTEES,
    Measurement,
    legend,
    measurement_tables,
)
from shortlist.comparison.rows import LabeledRows
from shortlist.frontier import Frontier
from shortlist.predictors import SetPredictor

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MAIN_METHOD = "Shortlister"
"""Plots and reports emphasize the method of this name, if there is one."""


@dataclass(frozen=True)
class FittedMethod:
    """The fitted models of a method, and its test rows.

    Parameters
    ----------
    models : dict of float to SetPredictor
        Model for each accuracy. All accuracies have the same model unless the method is tuned.
    curves : dict of float to Frontier
        Curve of the model for each accuracy, on the test rows.
    test : LabeledRows
        The test rows, with re-scored probabilities if the method takes them.
    """

    models: dict[float, SetPredictor]
    curves: dict[float, Frontier]
    test: LabeledRows

    def nearest(self, accuracy: float) -> float:
        """Return the measured accuracy that is nearest to an accuracy; of two, the lower one."""
        return min(self.models, key=lambda a: (abs(a - accuracy), a))

    def model(self, accuracy: float) -> SetPredictor:
        """Return the model of the nearest measured accuracy."""
        return self.models[self.nearest(accuracy)]

    def curve(self, accuracy: float) -> Frontier:
        """Return the curve of the nearest measured accuracy."""
        return self.curves[self.nearest(accuracy)]

    @property
    def is_tuned(self) -> bool:
        """Whether different accuracies have different models."""
        return len({id(model) for model in self.models.values()}) > 1


@dataclass(frozen=True)
class MethodResult:
    """The result of one method.

    Parameters
    ----------
    name : str
        Name of the method.
    measurements : list of Measurement
        The measurement at each accuracy.
    model : SetPredictor
        The model for the last accuracy.
    curve : Frontier
        The points of all models as one curve.
    fitted : FittedMethod
        The model for each accuracy.
    """

    name: str
    measurements: list[Measurement]
    model: SetPredictor
    curve: Frontier
    fitted: FittedMethod


@dataclass
class Comparison(ComparisonMixin):
    """The result of :func:`shortlist.compare`. It prints as a table.

    Parameters
    ----------
    accuracies : tuple of float
        The requested accuracies.
    summary : str
        Numbers of rows and classes, as text.
    n_test : int
        Number of test rows.
    n_calibration : int
        Number of calibration rows.
    measurements : list of Measurement
        The measurement of each method at each accuracy.
    curves : dict of str to Frontier
        Curve of each method on the test rows.
    models : dict of str to SetPredictor
        Fitted model of each method. A method that is tuned for each accuracy, such as RAPS, has
        the model for the last accuracy. Methods named "..., re-scored" take the rows that
        `Shortlister.rescored` returns, and their times do not include re-scoring.
    test_index : array of int, optional
        Row numbers of the test rows, if `compare` chose them.

    Attributes
    ----------
    fitted : dict of str to FittedMethod
        Model and curve of each method at each accuracy, with the test rows.
    """

    accuracies: tuple[float, ...]
    summary: str
    n_test: int
    n_calibration: int = 0
    measurements: list[Measurement] = field(default_factory=list)
    curves: dict[str, Frontier] = field(default_factory=dict)
    models: dict[str, SetPredictor] = field(default_factory=dict)
    test_index: NDArray[np.intp] | None = field(default=None, compare=False)
    fitted: dict[str, FittedMethod] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def add(self, result: MethodResult) -> None:
        """Add the result of a method.

        Parameters
        ----------
        result : MethodResult
            The result to add.
        """
        self.measurements += result.measurements
        self.models[result.name], self.fitted[result.name] = result.model, result.fitted
        self.curves[result.name] = result.curve

    def at(self, method: str, accuracy: float) -> Measurement:
        """Return the measurement of a method at an accuracy.

        Parameters
        ----------
        method : str
            Name of the method.
        accuracy : float
            One of `accuracies`.

        Returns
        -------
        Measurement

        Raises
        ------
        ValueError
            If there is no such measurement.
        """
        for measurement in self.measurements:
            if (measurement.method, measurement.accuracy) == (method, accuracy):
                return measurement
        raise ValueError(
            f"there is no measurement of {method!r} at {accuracy!r}; the methods are "
            f"{list(self.curves)} and the accuracies {list(self.accuracies)}"
        )

    @property
    def main_accuracy(self) -> float:
        """The accuracy whose guarantee a table shows: 0.95 if it is measured, else the first."""
        return 0.95 if 0.95 in self.accuracies else self.accuracies[0]

    def to_frame(self) -> pd.DataFrame:
        """Return the measurements as a pandas frame.

        Returns
        -------
        pandas.DataFrame
            A frame with one row for each method and accuracy. Its columns are the fields of
            `Measurement`.
        """
        require("pandas", "to_frame")
        import pandas as pd

        return pd.DataFrame([vars(measurement) for measurement in self.measurements])

    def plot(self, ax: Axes | None = None, *, band: bool = False) -> Axes:
        """Plot accuracy against mean size for all methods.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to plot on. By default new axes are created.
        band : bool, default=False
            Whether to shade the confidence band of the Shortlister's curve.

        Returns
        -------
        matplotlib.axes.Axes
        """
        require("matplotlib", "plot")
        for i, (name, curve) in enumerate(self.curves.items()):
            is_main, is_rescored = name == MAIN_METHOD, name.endswith("re-scored")
            ax = curve.envelope().plot(
                ax,
                label=name,
                marker="",
                color="black" if is_main else f"C{i % 10}",
                lw=2.5 if is_main else 1.2,
                ls="--" if is_rescored else "-" if i <= 10 else ":",  # There are ten colors.
                # Dashed curves are drawn last, because a solid one would hide them.
                zorder=4 if is_rescored else 3 if is_main else 2,
                band=band and is_main,
            )
        assert ax is not None
        lowest = max(min(self.accuracies) - 0.05, 0.0)
        sizes = np.array([c.size_at([lowest, *self.accuracies]) for c in self.curves.values()])
        # If no curve reaches any of these accuracies, all points are shown.
        if not np.isnan(sizes).all():
            ax.set_xlim(np.nanmin(sizes) * 0.95, np.nanmax(sizes) * 1.05)
            ax.set_ylim(lowest, 1.002)
        ax.legend(loc="lower right", frameon=False)
        return ax

    def __repr__(self) -> str:
        """Return the comparison as tables in plain text, with an explanation of the columns."""
        tables = measurement_tables(self.measurements, self.main_accuracy)
        lines = wrap(self.summary, WIDTH)
        for one in tables:
            lines += ["", *format_columns(one.heading, one.names, one.columns)]
        notes = self._notes(has_guarantee=len(tables) > 1)
        return "\n".join([*lines, "", *notes] if notes else lines)

    def _repr_html_(self) -> str:
        """Return the comparison as HTML, for notebooks."""
        tables = measurement_tables(self.measurements, self.main_accuracy)
        parts = []
        for one in tables:
            titles, cells = zip(*one.columns, strict=True)
            rows = [[name, *row] for name, *row in zip(one.names, *cells, strict=True)]
            parts.append(table([one.heading, *titles], rows))
        notes = self._notes(has_guarantee=len(tables) > 1)
        explained = [details("columns", "\n".join(notes))] if notes else []
        return card("Comparison", paragraph(self.summary), *parts, *explained)

    def _notes(self, *, has_guarantee: bool) -> list[str]:
        """Return the lines below the tables."""
        if has_guarantee:
            return legend(self.main_accuracy, self.n_test)
        return [NO_GUARANTEES] if self.n_calibration else []
