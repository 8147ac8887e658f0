"""Curves of accuracy against mean size: what a method can do at every operating point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shortlist._utils.arrays import check_count, check_probability, row_blocks

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Band(NamedTuple):
    """Between which mean sizes an accuracy is bought, as far as these rows can tell."""

    accuracy: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


FEW_POINTS = 100
"""So many points are drawn as dots."""


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
    rows : (hits, sizes), each (rows, points), or None
        What every row contributes to the points, if it was kept: whether its set holds the label,
        and the set's size. Needed by `band`. Three bytes for each row and point (five if a set
        holds more than 32,767 labels).

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
        *,
        rows: tuple[ArrayLike, ArrayLike] | None = None,
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
        self.rows = None if rows is None else self._check_rows(*rows)
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
            rows=None if self.rows is None else (self.rows[0][:, at], self.rows[1][:, at]),
        )

    def size_at(self, accuracy: ArrayLike) -> float | NDArray[np.float64]:
        """The mean size at which an accuracy is reached, between points by linear interpolation
        on the envelope (which mixing two points attains); NaN where it is never reached."""
        asked = _accuracies(accuracy)
        found = _read(asked, self.accuracy[self._best], self.mean_size[self._best])
        return found if asked.ndim else float(found)

    def accuracy_at(self, mean_size: ArrayLike) -> float | NDArray[np.float64]:
        """The accuracy that a mean size buys; NaN below the smallest size."""
        accuracies, sizes = self.accuracy[self._best], self.mean_size[self._best]
        asked = np.asarray(mean_size, dtype=np.float64)
        found = np.where(asked < sizes[0], np.nan, np.interp(asked, sizes, accuracies))
        return found if asked.ndim else float(found)

    def band(
        self,
        accuracy: ArrayLike | None = None,
        *,
        level: float = 0.95,
        resamples: int = 200,
        seed: int = 0,
    ) -> Band:
        """Between which mean sizes each accuracy is bought: a confidence band.

        Pointwise, by the percentile bootstrap: the rows are drawn again with replacement, and the
        size is read off each new curve. It tells what another draw of these rows would change, not
        what another training would.

        Parameters
        ----------
        accuracy : accuracies, optional
            Default: 50 of them, evenly spaced over the envelope.
        level : float
            The share of the new curves that the band holds at each accuracy.
        resamples, seed : int
            How many times the rows are drawn, and the seed of the draws.

        Returns
        -------
        accuracy, low, high : arrays
            NaN where the accuracy is not reached: both of them if not by the curve itself, `high`
            if not by so many of the new curves that there is no upper limit.

        Examples
        --------
        >>> hits = np.array([[True, True], [False, True], [True, True], [False, True]] * 25)
        >>> sizes = np.array([[1, 2], [1, 2], [1, 4], [1, 4]] * 25)
        >>> f = Frontier([0.5, 1.0], [1.0, 3.0], [1, 2], rows=(hits, sizes))
        >>> accuracy, low, high = f.band([0.75])
        >>> bool(low[0] < f.size_at(0.75) < high[0])
        True
        """
        if self.rows is None:
            raise ValueError(
                "a band needs to know what each row contributes, and this Frontier did not keep "
                "it; make it with rows=(hits, sizes), or by a set predictor's frontier(...)"
            )
        tail = (1 - check_probability(level, "level")) / 2
        count = check_count(resamples, "resamples")
        ends = self.accuracy[self._best][[0, -1]]
        asked = (
            np.linspace(ends[0], ends[1], 50)
            if accuracy is None
            else np.atleast_1d(_accuracies(accuracy))
        )
        found = np.empty((count, *asked.shape))
        for i, (a, s) in enumerate(_resampled(*self.rows, count, seed)):
            best = _undominated(a, s)
            found[i] = _read(asked, a[best], s[best])
        found[np.isnan(found)] = np.inf  # the curve must go on beyond its last point to reach it
        low = np.quantile(found, tail, axis=0, method="lower")
        high = np.quantile(found, 1 - tail, axis=0, method="higher")
        reached = asked <= ends[1]
        low[~reached | np.isinf(low)] = high[~reached | np.isinf(high)] = np.nan
        return Band(asked, low, high)

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

    def plot(self, ax: Axes | None = None, *, band: bool = False, **style: object) -> Axes:
        """Draw the envelope, accuracy against mean size as in the paper, and, as faint dots, all
        points if they are not too many; with `band=True` also the confidence band, shaded.
        `ax.legend()` then names the curves."""
        from matplotlib import pyplot as plt

        shade = self.band() if band else None  # before anything is drawn: it may be impossible
        axes: Axes = plt.subplots()[1] if ax is None else ax
        options = {"marker": "o", "markersize": 3.5, "label": self.name or None} | style
        curve = self.mean_size[self._best], self.accuracy[self._best]
        (line,) = axes.plot(*curve, **options)  # type: ignore[arg-type]
        if len(self) <= FEW_POINTS:
            axes.plot(self.mean_size, self.accuracy, ".", ms=3, color=line.get_color(), alpha=0.5)
        if shade is not None:
            axes.fill_betweenx(*shade, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.set_xlabel("mean size of the set")
        axes.set_ylabel("accuracy (right label in the set)")
        return axes

    def _check_rows(
        self, hits: ArrayLike, sizes: ArrayLike
    ) -> tuple[NDArray[np.bool_], NDArray[np.integer | np.floating]]:
        held, lengths = np.array(hits), np.asarray(sizes)
        if held.shape != lengths.shape or held.ndim != 2 or held.shape[1] != len(self):
            raise ValueError(
                f"rows of a Frontier are (hits, sizes), each of shape (rows, {len(self)} points); "
                f"got shapes {held.shape} and {lengths.shape}"
            )
        if held.dtype != np.bool_:
            raise ValueError(f"hits of a Frontier must be booleans; got {held.dtype}")
        if not len(held) or not (
            np.allclose(held.mean(axis=0), self.accuracy)
            and np.allclose(lengths.mean(axis=0, dtype=np.float64), self.mean_size)
        ):
            raise ValueError(
                f"the means of the {len(held)} rows of a Frontier are not its accuracy and "
                "mean_size; give a column for each point, in the same order"
            )
        if lengths.dtype.kind not in "iu":
            return held, lengths.astype(np.float32)
        return held, lengths.astype(np.int16 if lengths.max() < 2**15 else np.int32)

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


def _accuracies(given: ArrayLike) -> NDArray[np.float64]:
    asked = np.asarray(given, dtype=np.float64)
    if ((asked < 0) | (asked > 1)).any():
        raise ValueError(f"an accuracy lies between 0 and 1; got {given!r}")
    return asked


def _undominated(accuracy: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.intp]:
    """Indices of the points that no other point beats, both coordinates increasing."""
    order = np.lexsort((-accuracy, size))
    highest = np.maximum.accumulate(accuracy[order])
    best: NDArray[np.intp] = order[np.diff(highest, prepend=-1.0) > 0]
    return best


def _read(
    asked: NDArray[np.float64], accuracies: NDArray[np.float64], sizes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The sizes at the accuracies asked for, on an envelope; NaN beyond its last point."""
    return np.where(asked > accuracies[-1], np.nan, np.interp(asked, accuracies, sizes))


def _resampled(
    hits: NDArray[np.bool_], sizes: NDArray[np.integer | np.floating], resamples: int, seed: int
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Accuracies and mean sizes of rows drawn again: how often each was drawn, times what it has.

    A block of draws at a time, a block of rows at a time. The sums are of integers, so that they
    are exact, and the same on every machine.
    """
    rng = np.random.default_rng(seed)
    n, points = hits.shape
    for block in row_blocks(resamples, n):
        draws = range(block.start, block.stop)
        times = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in draws])
        sums = np.zeros((2, len(times), points))
        for rows in row_blocks(n, points):
            drawn = times[:, rows].astype(np.float64)
            sums[0] += drawn @ hits[rows].astype(np.float64)
            sums[1] += drawn @ sizes[rows].astype(np.float64)
        yield from zip(*(sums / n), strict=True)
