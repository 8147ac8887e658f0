"""Curves of accuracy against mean size: what a method can do at every operating point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Frontier:
    """Points of (accuracy, mean size), one for each value of a parameter.

    Attributes
    ----------
    accuracy, mean_size, parameter : (points,)
        The points, in the order in which they were measured.
    parameter_name : str
        What was varied: "cost_weight", "size", ….
    name : str
        The method's name, for legends.

    Examples
    --------
    >>> f = Frontier([0.5, 0.75, 0.625], [1.0, 2.0, 2.5], [1, 2, 3])
    >>> f.size_at(0.625), f.accuracy_at(1.5), f.size_at(0.95)
    (1.5, 0.625, nan)
    """

    def __init__(
        self,
        accuracy: ArrayLike,
        mean_size: ArrayLike,
        parameter: ArrayLike,
        parameter_name: str = "cost_weight",
        name: str = "",
    ) -> None:
        self.accuracy = _points(accuracy, "accuracy")
        self.mean_size = _points(mean_size, "mean_size")
        self.parameter = _points(parameter, "parameter")
        self.parameter_name = parameter_name
        self.name = name
        if not len(self.accuracy) == len(self.mean_size) == len(self.parameter):
            raise ValueError(
                f"a Frontier needs as many accuracies ({len(self.accuracy)}) as mean sizes "
                f"({len(self.mean_size)}) and parameters ({len(self.parameter)})"
            )
        self._best = _undominated(self.accuracy, self.mean_size)

    def __len__(self) -> int:
        return len(self.accuracy)

    def envelope(self) -> Frontier:
        """The points that are worth having: no other is at least as accurate and shorter."""
        at = self._best
        return Frontier(
            self.accuracy[at],
            self.mean_size[at],
            self.parameter[at],
            self.parameter_name,
            self.name,
        )

    def size_at(self, accuracy: ArrayLike) -> float | NDArray[np.float64]:
        """The mean size at which an accuracy is reached, between points by linear interpolation
        on the envelope (which mixing two points attains); NaN where it is never reached."""
        accuracies, sizes = self.accuracy[self._best], self.mean_size[self._best]
        asked = np.asarray(accuracy, dtype=np.float64)
        if ((asked < 0) | (asked > 1)).any():
            raise ValueError(f"an accuracy lies between 0 and 1; got {accuracy!r}")
        found = np.where(asked > accuracies[-1], np.nan, np.interp(asked, accuracies, sizes))
        return found if asked.ndim else float(found)

    def accuracy_at(self, mean_size: ArrayLike) -> float | NDArray[np.float64]:
        """The accuracy that a mean size buys; NaN below the smallest size."""
        accuracies, sizes = self.accuracy[self._best], self.mean_size[self._best]
        asked = np.asarray(mean_size, dtype=np.float64)
        found = np.where(asked < sizes[0], np.nan, np.interp(asked, sizes, accuracies))
        return found if asked.ndim else float(found)

    def to_frame(self) -> pd.DataFrame:
        """The points as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(
            {
                self.parameter_name: self.parameter,
                "accuracy": self.accuracy,
                "mean_size": self.mean_size,
            }
        )

    def plot(self, ax: Axes | None = None, **style: object) -> Axes:
        """Draw the envelope, accuracy against mean size as in the paper, and, as faint dots, all
        points. `ax.legend()` then names the curves."""
        from matplotlib import pyplot as plt

        axes: Axes = plt.subplots()[1] if ax is None else ax
        curve = self.envelope()
        options = {"marker": "o", "markersize": 3.5, "label": self.name or None} | style
        (line,) = axes.plot(curve.mean_size, curve.accuracy, **options)  # type: ignore[arg-type]
        axes.plot(self.mean_size, self.accuracy, ".", ms=3, color=line.get_color(), alpha=0.5)
        axes.set_xlabel("mean size of the set")
        axes.set_ylabel("accuracy (right label in the set)")
        return axes

    def __repr__(self) -> str:
        low, high = float(self.accuracy.min()), float(self.accuracy.max())
        return (
            f"Frontier({self.name + ': ' if self.name else ''}{len(self)} points over "
            f"{self.parameter_name}, accuracy {low:.4f} to {high:.4f}, mean size "
            f"{self.mean_size.min():.3f} to {self.mean_size.max():.3f})"
        )


def _points(values: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.array(values, dtype=np.float64)
    wrong = np.isnan(array) if name == "parameter" else ~np.isfinite(array)
    if array.ndim != 1 or not len(array) or wrong.any():
        raise ValueError(f"{name} of a Frontier must be a list of numbers; got {array.tolist()}")
    return array


def _undominated(accuracy: NDArray[np.float64], size: NDArray[np.float64]) -> list[int]:
    """Indices of the points that no other point beats, both coordinates increasing."""
    keep: list[int] = []
    for i in np.lexsort((-accuracy, size)):
        if not keep or accuracy[i] > accuracy[keep[-1]]:
            keep.append(int(i))
    return keep
