"""The result of a comparison: measurements, curves and models, as a table, a frame or a plot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import row_index
from shortlist._utils.integrations import ComparisonMixin
from shortlist.frontier import Frontier
from shortlist.predictors import SetPredictor
from shortlist.ranking import Ranking

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MAIN_METHOD = "Shortlister"
"""Plots and reports emphasize the method of this name, if there is one."""


class LabelledRows(NamedTuple):
    """Rows in the order in which `fit`, `calibrate` and `frontier` take them."""

    ranking: Ranking
    y: NDArray[np.generic]
    features: Tensor | None

    def take(self, which: NDArray[np.intp]) -> LabelledRows:
        """Return some of the rows."""
        x = self.features
        x = None if x is None else x[row_index(which, len(x), x.device)]
        return LabelledRows(self.ranking[which], self.y[which], x)


@dataclass(frozen=True)
class Measurement:
    """One method at one accuracy, on the test rows.

    Attributes
    ----------
    method : str
        Name of the method.
    accuracy : float
        The requested accuracy.
    size : float
        Mean size at which the method's curve reaches that accuracy on the test rows; NaN if it
        does not.
    guaranteed_accuracy, guaranteed_size : float
        Accuracy and mean size, on the test rows, of the sets for which the requested accuracy is
        guaranteed. These and the following ones are NaN if it cannot be guaranteed.
    size_stratified_violation : float
        Largest gap to the requested accuracy among sets of similar size.
    worst_class : float
        Lowest accuracy of a class.
    single_share : float
        Fraction of sets with exactly one label.
    fit_seconds, predict_seconds : float
        Seconds that fitting and prediction took.
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


@dataclass(frozen=True)
class FittedMethod:
    """The fitted models of a method, and the test rows as it sees them.

    Attributes
    ----------
    models : dict of float to SetPredictor
        Model for each accuracy. It is the same for all accuracies unless the method is tuned.
    curves : dict of float to Frontier
        Curves of these models on the test rows.
    test : LabelledRows
        The test rows, with re-scored probabilities if the method uses them.
    """

    models: dict[float, SetPredictor]
    curves: dict[float, Frontier]
    test: LabelledRows

    def nearest(self, accuracy: float) -> float:
        """Return the measured accuracy whose model is used for another accuracy."""
        return min(self.models, key=lambda a: (abs(a - accuracy), a))

    def model(self, accuracy: float) -> SetPredictor:
        """Return the model that is used for an accuracy."""
        return self.models[self.nearest(accuracy)]

    def curve(self, accuracy: float) -> Frontier:
        """Return the curve of the model that is used for an accuracy."""
        return self.curves[self.nearest(accuracy)]

    @property
    def is_tuned(self) -> bool:
        """Whether different accuracies have different models."""
        return len({id(model) for model in self.models.values()}) > 1


@dataclass(frozen=True)
class MethodResult:
    """The result of one method."""

    name: str
    measurements: list[Measurement]
    model: SetPredictor
    curve: Frontier
    fitted: FittedMethod


@dataclass
class Comparison(ComparisonMixin):
    """The result of :func:`shortlist.compare`. It prints as a table.

    Attributes
    ----------
    accuracies : tuple of float
        The requested accuracies.
    summary : str
        Numbers of rows and classes, in words.
    n_test : int
        Number of test rows.
    n_calibration : int
        Number of calibration rows.
    measurements : list of Measurement
        One for each method and accuracy. `to_frame` returns them as a pandas frame.
    curves : dict of str to Frontier
        Curve of each method on the test rows.
    models : dict of str to SetPredictor
        Fitted models. For a method that is tuned for each accuracy, such as RAPS, the one for the
        last accuracy. Methods named "..., re-scored" take the rows that `Shortlister.rescored`
        returns, and their times do not include re-scoring.
    test_index : array or None
        Which of the given rows are the test rows, if `compare` chose them.
    """

    accuracies: tuple[float, ...]
    summary: str
    n_test: int
    n_calibration: int = 0
    measurements: list[Measurement] = field(default_factory=list)
    curves: dict[str, Frontier] = field(default_factory=dict)
    models: dict[str, SetPredictor] = field(default_factory=dict)
    test_index: NDArray[np.intp] | None = field(default=None, compare=False)
    _fitted: dict[str, FittedMethod] = field(default_factory=dict, repr=False, compare=False)

    def add(self, result: MethodResult) -> None:
        """Add the result of a method.

        Parameters
        ----------
        result : MethodResult
            Measurements, model and curve of the method.
        """
        self.measurements += result.measurements
        self.models[result.name], self._fitted[result.name] = result.model, result.fitted
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
        for one in self.measurements:
            if (one.method, one.accuracy) == (method, accuracy):
                return one
        raise ValueError(
            f"there is no measurement of {method!r} at {accuracy!r}; the methods are "
            f"{list(self.curves)} and the accuracies {list(self.accuracies)}"
        )

    @property
    def main_accuracy(self) -> float:
        """The accuracy whose guarantee tables and reports show: 0.95, or else the first one."""
        return 0.95 if 0.95 in self.accuracies else self.accuracies[0]

    def to_frame(self) -> pd.DataFrame:
        """Return the measurements as a pandas frame.

        Returns
        -------
        pandas.DataFrame
            One row for each method and accuracy; the columns are the fields of `Measurement`.
        """
        import pandas as pd

        return pd.DataFrame([vars(one) for one in self.measurements])

    def plot(self, ax: Axes | None = None, *, band: bool = False) -> Axes:
        """Plot accuracy against mean size for all methods.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to plot. New axes by default.
        band : bool, default=False
            Whether to shade the confidence band of the Shortlister's curve.

        Returns
        -------
        matplotlib.axes.Axes
        """
        for i, (name, curve) in enumerate(self.curves.items()):
            main, rescored = name == MAIN_METHOD, name.endswith("re-scored")
            ax = curve.envelope().plot(
                ax,
                label=name,
                marker="",
                color="black" if main else f"C{i % 10}",
                lw=2.5 if main else 1.2,
                ls="--" if rescored else "-",
                zorder=4 if rescored else 3 if main else 2,  # Dashes stay visible on top.
                band=band and main,
            )
        assert ax is not None
        lowest = max(min(self.accuracies) - 0.05, 0.0)
        shown = np.array([c.size_at([lowest, *self.accuracies]) for c in self.curves.values()])
        if not np.isnan(shown).all():  # Otherwise all of every curve is shown.
            ax.set_xlim(np.nanmin(shown) * 0.95, np.nanmax(shown) * 1.05)
            ax.set_ylim(lowest, 1.002)
        ax.legend(loc="lower right", frameon=False)
        return ax

    def __repr__(self) -> str:
        """Return the comparison as a table in plain text."""
        return "\n".join([self.summary, "", *_table(self), *_legend(self)])


def _table(comparison: Comparison) -> list[str]:
    """Return the lines of the table."""
    names, accuracy = list(comparison.curves), comparison.main_accuracy
    title = "mean size at accuracy"
    width = max(map(len, [title, *names]))
    first = f"{accuracy:g} guaranteed: accuracy"
    with_guarantee = _has_guarantee(comparison)
    head = f"{title:<{width}}" + "".join(f"{a:>8g}" for a in comparison.accuracies)
    if with_guarantee:
        head += f" | {first}   size  violation  worst class  single"
    lines = [f"{head} |  fit s  predict s"]
    for name in names:
        sizes = [_number(comparison.at(name, a).size) for a in comparison.accuracies]
        line = f"{name:<{width}}" + "".join(sizes)
        one = comparison.at(name, accuracy)
        if with_guarantee:
            line += (
                f" | {_number(one.guaranteed_accuracy, len(first))}"
                f"{_number(one.guaranteed_size, 7)}"
                f"{_number(one.size_stratified_violation, 11)}{_number(one.worst_class, 13)}"
                f"{_number(one.single_share, 8)}"
            )
        lines.append(f"{line} | {one.fit_seconds:6.1f}{_number(one.predict_seconds, 11)}")
    return lines


def _has_guarantee(comparison: Comparison) -> bool:
    return any(not math.isnan(one.guaranteed_accuracy) for one in comparison.measurements)


def _legend(comparison: Comparison) -> list[str]:
    """Return the lines that explain the columns."""
    if not _has_guarantee(comparison):
        if not comparison.n_calibration:
            return []
        return ["", "There are too few calibration rows to guarantee any of these accuracies."]
    accuracy = comparison.main_accuracy
    error = math.sqrt(accuracy * (1 - accuracy) / comparison.n_test)
    return [
        "",
        "mean size at accuracy: at equal accuracy on the test rows",
        f"{accuracy:g} guaranteed: sets for which this accuracy is guaranteed, on the test rows",
        f"accuracy: fraction of sets that contain the label (standard error about {error:.1g})",
        "violation: largest gap to the requested accuracy among sets of similar size",
        "worst class: lowest accuracy of a class; single: fraction of sets with one label",
    ]


def _number(value: float, width: int = 8) -> str:
    return f"{'-' if math.isnan(value) else f'{value:.3f}':>{width}}"
