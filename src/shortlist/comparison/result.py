"""What a comparison found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.integrations import ComparisonMixin
from shortlist.frontier import Frontier
from shortlist.predictors import SetPredictor
from shortlist.ranking import Ranking

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Rows = tuple[Ranking, "NDArray[np.generic]", "Tensor | None"]


@dataclass(frozen=True)
class Measured:
    """One method at one accuracy, on the test rows. NaN where it cannot be had."""

    method: str
    accuracy: float
    """What was asked for."""
    size: float
    """Mean size where the test curve reaches that accuracy."""
    guaranteed_accuracy: float
    """Accuracy of the sets for which it was guaranteed, …"""
    guaranteed_size: float
    """… and their mean size."""
    size_stratified_violation: float
    worst_class: float
    single_share: float
    fit_seconds: float
    predict_seconds: float


@dataclass(frozen=True)
class Fitted:
    """A method's models, and the test rows as they are given to it (re-scored, perhaps)."""

    models: dict[float, SetPredictor]
    """The one for each accuracy; the same for all, unless the method is tuned for one."""
    curves: dict[float, Frontier]
    """Their curves on the test rows."""
    judged: Rows

    def nearest(self, accuracy: float) -> float:
        """The accuracy, of those measured, whose model is used for another one."""
        return min(self.models, key=lambda a: (abs(a - accuracy), a))

    def model(self, accuracy: float) -> SetPredictor:
        return self.models[self.nearest(accuracy)]


@dataclass(frozen=True)
class Part:
    """What was found of one method."""

    name: str
    measured: list[Measured]
    model: SetPredictor
    curve: Frontier
    fitted: Fitted


@dataclass
class Comparison(ComparisonMixin):
    """What `compare` found.

    Attributes
    ----------
    measured : list of Measured
        A row for each method and accuracy; `to_frame()` gives them as a pandas frame.
    curves : dict of Frontier
        Each method's curve on the test rows.
    models : dict of fitted set predictors
        Of RAPS and SAPS, the one for the last accuracy. Those on re-scored probabilities take what
        `Shortlister.rescored` gives; their times are without it.
    """

    accuracies: tuple[float, ...]
    words: str
    rows: int
    """How many rows it was judged by."""
    measured: list[Measured] = field(default_factory=list)
    curves: dict[str, Frontier] = field(default_factory=dict)
    models: dict[str, SetPredictor] = field(default_factory=dict)
    row_numbers: NDArray[np.intp] | None = field(default=None, compare=False)
    """Which of the rows given these are, where `compare` chose them."""
    _fitted: dict[str, Fitted] = field(default_factory=dict, repr=False, compare=False)

    def add(self, part: Part) -> None:
        """Take in what was found of a method."""
        self.measured += part.measured
        self.models[part.name], self._fitted[part.name] = part.model, part.fitted
        self.curves[part.name] = part.curve

    def at(self, method: str, accuracy: float) -> Measured:
        """What was measured of a method at an accuracy."""
        for one in self.measured:
            if (one.method, one.accuracy) == (method, accuracy):
                return one
        raise ValueError(
            f"nothing was measured of {method!r} at {accuracy!r}; there are methods "
            f"{list(self.curves)} and accuracies {list(self.accuracies)}"
        )

    def to_frame(self) -> pd.DataFrame:
        """A row for each method and accuracy."""
        import pandas as pd

        return pd.DataFrame([vars(one) for one in self.measured])

    def plot(self, ax: Axes | None = None, *, band: bool = False) -> Axes:
        """All curves in the paper's axes."""
        for i, (name, curve) in enumerate(self.curves.items()):
            main, rescored = name == "Shortlister", name.endswith("re-scored")
            ax = curve.envelope().plot(
                ax,
                label=name,
                marker="",
                color="black" if main else f"C{i % 10}",
                lw=2.5 if main else 1.2,
                ls="--" if rescored else "-",
                zorder=4 if rescored else 3 if main else 2,  # dashes are seen on what they cover
                band=band and main,
            )
        assert ax is not None
        lowest = max(min(self.accuracies) - 0.05, 0.0)
        shown = np.array([c.size_at([lowest, *self.accuracies]) for c in self.curves.values()])
        if not np.isnan(shown).all():  # else no curve comes so far, and all of each is shown
            ax.set_xlim(np.nanmin(shown) * 0.95, np.nanmax(shown) * 1.05)
            ax.set_ylim(lowest, 1.002)
        ax.legend(loc="lower right", frameon=False)
        return ax

    def __repr__(self) -> str:
        return in_words(self)


def in_words(found: Comparison) -> str:
    """The table, what it was measured on, and what its columns mean."""
    return "\n".join([found.words, "", *_lines(found), *_legend(found)])


def _lines(found: Comparison) -> list[str]:
    """The table in plain text."""
    names = list(found.curves)
    title = "mean size at accuracy"
    wide = max(map(len, [title, *names]))
    sizes = "".join(f"{a:>8g}" for a in found.accuracies)
    guaranteed, middle = _guaranteed(found), middle_of(found)
    head = f"{title:<{wide}}{sizes}"
    first = f"{middle:g} guaranteed: accuracy"
    if guaranteed:
        head += f" | {first}   size  violation  worst class  single"
    lines = [f"{head} |  fit s  predict s"]
    for name in names:
        line = f"{name:<{wide}}" + "".join(
            _number(found.at(name, a).size) for a in found.accuracies
        )
        one = found.at(name, middle)
        if guaranteed:
            line += (
                f" | {_number(one.guaranteed_accuracy, len(first))}"
                f"{_number(one.guaranteed_size, 7)}"
                f"{_number(one.size_stratified_violation, 11)}{_number(one.worst_class, 13)}"
                f"{_number(one.single_share, 8)}"
            )
        lines.append(f"{line} | {one.fit_seconds:6.1f}{_number(one.predict_seconds, 11)}")
    return lines


def _guaranteed(found: Comparison) -> bool:
    return any(not math.isnan(one.guaranteed_accuracy) for one in found.measured)


def middle_of(found: Comparison) -> float:
    """The accuracy whose guarantee is shown: 0.95, or the first."""
    return 0.95 if 0.95 in found.accuracies else found.accuracies[0]


def _legend(found: Comparison) -> list[str]:
    """What the columns mean that do not say so themselves."""
    if not _guaranteed(found):
        few = " to calibrate" in found.words
        return ["", "Nothing can be guaranteed with so few rows to calibrate."] if few else []
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
