"""Curves of accuracy against mean size, over all operating points of a method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shortlist._utils.blocks import row_blocks
from shortlist._utils.extras import require
from shortlist._utils.html import card, curve, paragraph, table
from shortlist._utils.tables import NAME_WIDTH, format_columns, format_number, shorten
from shortlist._utils.validation import check_count, check_probability

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Band(NamedTuple):
    """Pointwise confidence limits of the mean size that reaches an accuracy."""

    accuracy: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


COMMON_ACCURACIES = (0.8, 0.9, 0.95, 0.98, 0.99)
"""Accuracies at which a printed curve shows its mean size."""
MAX_MARKERS = 100
"""Curves with at most this many points show each of them."""


class Frontier:
    """Points of accuracy and mean size, one for each value of a parameter.

    Parameters
    ----------
    accuracy, mean_size, parameter : array-like of shape (n_points,)
        The points, in the order in which they were measured.
    parameter_name : str, default="cost_weight"
        Name of the parameter, such as "cost_weight" or "threshold".
    name : str, default=""
        Name of the method, for legends.
    rows : tuple (hits, sizes) of arrays of shape (n_rows, n_points), optional
        Whether each row's set contains its label, and the size of the set. Needed by `band`. They
        take three bytes for each row and point (five if a set has more than 32,767 labels).

    Attributes
    ----------
    accuracy, mean_size, parameter : array of shape (n_points,)
        The points.
    rows : tuple of arrays or None
        As given.

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
        self._envelope = _pareto_points(self.accuracy, self.mean_size)

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.accuracy)

    def envelope(self) -> Frontier:
        """Return the points that no other point dominates, in order of increasing size.

        Returns
        -------
        Frontier
            Points for which no other one is at least as accurate with smaller sets.
        """
        best = self._envelope
        return Frontier(
            self.accuracy[best],
            self.mean_size[best],
            self.parameter[best],
            self.parameter_name,
            self.name,
            rows=None if self.rows is None else (self.rows[0][:, best], self.rows[1][:, best]),
        )

    @overload
    def size_at(self, accuracy: float) -> float: ...
    @overload
    def size_at(self, accuracy: ArrayLike) -> float | NDArray[np.float64]: ...
    def size_at(self, accuracy: ArrayLike) -> float | NDArray[np.float64]:
        """Return the mean size at which an accuracy is reached.

        The envelope is interpolated linearly between its points. A random choice between the sets
        of two points attains the interpolated size.

        Parameters
        ----------
        accuracy : float or array-like
            Accuracies between 0 and 1.

        Returns
        -------
        float or array
            Mean sizes; NaN for accuracies that are not reached.
        """
        targets = _check_accuracies(accuracy)
        sizes = _interpolate(targets, self.accuracy[self._envelope], self.mean_size[self._envelope])
        return sizes if targets.ndim else float(sizes)

    @overload
    def accuracy_at(self, mean_size: float) -> float: ...
    @overload
    def accuracy_at(self, mean_size: ArrayLike) -> float | NDArray[np.float64]: ...
    def accuracy_at(self, mean_size: ArrayLike) -> float | NDArray[np.float64]:
        """Return the accuracy that is reached at a mean size.

        Parameters
        ----------
        mean_size : float or array-like
            Mean sizes.

        Returns
        -------
        float or array
            Accuracies; NaN below the smallest size.
        """
        accuracies, sizes = self.accuracy[self._envelope], self.mean_size[self._envelope]
        at = np.asarray(mean_size, dtype=np.float64)
        result = np.where(at < sizes[0], np.nan, np.interp(at, sizes, accuracies))
        return result if at.ndim else float(result)

    def band(
        self,
        accuracy: ArrayLike | None = None,
        *,
        level: float = 0.95,
        resamples: int = 200,
        seed: int = 0,
    ) -> Band:
        """Return pointwise confidence limits of the mean size at each accuracy.

        The limits are those of the percentile bootstrap over rows. They account for the draw of
        the rows, but not for the randomness of training.

        Parameters
        ----------
        accuracy : array-like, optional
            Accuracies. By default 50 values, evenly spaced over the envelope.
        level : float, default=0.95
            Confidence level.
        resamples : int, default=200
            Number of bootstrap samples.
        seed : int, default=0
            Seed of the bootstrap.

        Returns
        -------
        Band
            Arrays `accuracy`, `low` and `high`. Both limits are NaN for accuracies that the curve
            does not reach. `high` is NaN if too many bootstrap curves do not reach the accuracy.

        Raises
        ------
        ValueError
            If the frontier has no `rows`.

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
                "a band needs the hits and sizes of each row, but this Frontier has none; build it "
                "with rows=(hits, sizes), or with the method frontier of a set predictor"
            )
        tail = (1 - check_probability(level, "level")) / 2
        count = check_count(resamples, "resamples")
        ends = self.accuracy[self._envelope][[0, -1]]
        targets = (
            np.linspace(ends[0], ends[1], 50)
            if accuracy is None
            else np.atleast_1d(_check_accuracies(accuracy))
        )
        sizes = np.empty((count, *targets.shape))
        for i, (a, s) in enumerate(_bootstrap(*self.rows, count, seed)):
            best = _pareto_points(a, s)
            sizes[i] = _interpolate(targets, a[best], s[best])
        sizes[np.isnan(sizes)] = np.inf  # An accuracy that is not reached has no finite size.
        low = np.quantile(sizes, tail, axis=0, method="lower")
        high = np.quantile(sizes, 1 - tail, axis=0, method="higher")
        reached = targets <= ends[1]
        low[~reached | np.isinf(low)] = high[~reached | np.isinf(high)] = np.nan
        return Band(targets, low, high)

    def to_frame(self) -> pd.DataFrame:
        """Return the points as a pandas frame.

        Returns
        -------
        pandas.DataFrame
            One row for each point.
        """
        require("pandas", "to_frame")
        import pandas as pd

        return pd.DataFrame(
            {
                self.parameter_name: self.parameter,
                "accuracy": self.accuracy,
                "mean_size": self.mean_size,
            }
        )

    def plot(self, ax: Axes | None = None, *, band: bool = False, **style: object) -> Axes:
        """Plot accuracy against mean size.

        The envelope is a line. The points are shown as dots if there are at most 100.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to plot. New axes by default.
        band : bool, default=False
            Whether to shade the confidence band.
        **style
            Options of `matplotlib.axes.Axes.plot`.

        Returns
        -------
        matplotlib.axes.Axes
            Call ``legend()`` on it to show the names of the curves.
        """
        require("matplotlib", "plot")
        from matplotlib import pyplot as plt

        shade = self.band() if band else None  # First, since it may raise.
        axes: Axes = plt.subplots()[1] if ax is None else ax
        options = {"marker": "o", "markersize": 3.5, "label": self.name or None} | style
        curve = self.mean_size[self._envelope], self.accuracy[self._envelope]
        (line,) = axes.plot(*curve, **options)  # type: ignore[arg-type]
        if len(self) <= MAX_MARKERS:
            axes.plot(self.mean_size, self.accuracy, ".", ms=3, color=line.get_color(), alpha=0.5)
        if shade is not None:
            axes.fill_betweenx(*shade, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.set_xlabel("mean set size")
        axes.set_ylabel("accuracy (label in the set)")
        return axes

    def _check_rows(
        self, hits: ArrayLike, sizes: ArrayLike
    ) -> tuple[NDArray[np.bool_], NDArray[np.integer | np.floating]]:
        """Return the hits and sizes of each row, validated, in types that need little memory."""
        contained, lengths = np.array(hits), np.asarray(sizes)
        if (
            contained.shape != lengths.shape
            or contained.ndim != 2
            or contained.shape[1] != len(self)
        ):
            raise ValueError(
                f"rows of a Frontier are (hits, sizes), each of shape (rows, {len(self)} points); "
                f"got shapes {contained.shape} and {lengths.shape}"
            )
        if contained.dtype != np.bool_:
            raise ValueError(f"hits of a Frontier must be booleans; got {contained.dtype}")
        if not len(contained) or not (
            np.allclose(contained.mean(axis=0), self.accuracy)
            and np.allclose(lengths.mean(axis=0, dtype=np.float64), self.mean_size)
        ):
            raise ValueError(
                f"the means of the {len(contained)} rows of a Frontier are not its accuracy and "
                "mean_size; give a column for each point, in the same order"
            )
        if lengths.dtype.kind not in "iu":
            return contained, lengths.astype(np.float32)
        return contained, lengths.astype(np.int16 if lengths.max() < 2**15 else np.int32)

    def __repr__(self) -> str:
        """Return the ranges of accuracy and mean size, and the sizes at common accuracies."""
        columns = [(title, [cell]) for title, cell in self._common_sizes()]
        sizes = format_columns("accuracy", ["mean size"], columns)
        return "\n".join([f"Frontier: {self._title()}", self._ranges(), *sizes])

    def _repr_html_(self) -> str:
        """Return the ranges, the curve and the sizes at common accuracies, for notebooks."""
        titles, cells = zip(*self._common_sizes(), strict=True)
        best = self._envelope
        return card(
            f"Frontier: {self._title()}",
            paragraph(self._ranges()),
            curve(
                self.mean_size[best].tolist(),
                self.accuracy[best].tolist(),
                "accuracy against mean size",
            ),
            table(["accuracy", *titles], [["mean size", *cells]]),
        )

    def _title(self) -> str:
        """Return the name of the method, and the number of points."""
        name = f"{shorten(self.name, NAME_WIDTH)}, " if self.name else ""
        points = "1 point" if len(self) == 1 else f"{len(self):,} points"
        return f"{name}{points} over {self.parameter_name}"

    def _ranges(self) -> str:
        low, high = float(self.accuracy.min()), float(self.accuracy.max())
        return (
            f"accuracy {low:.4f} to {high:.4f}, mean size {self.mean_size.min():.3f} to "
            f"{self.mean_size.max():.3f}"
        )

    def _common_sizes(self) -> list[tuple[str, str]]:
        """Return common accuracies, and the mean size at which each is reached."""
        return [(f"{a:g}", format_number(self.size_at(a))) for a in COMMON_ACCURACIES]


def _points(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return the values of the points as an array, validated."""
    array = np.array(values, dtype=np.float64)
    wrong = np.isnan(array) if name == "parameter" else ~np.isfinite(array)
    if array.ndim != 1 or not len(array) or wrong.any():
        raise ValueError(f"{name} of a Frontier must be a list of numbers; got {array.tolist()}")
    return array


def _check_accuracies(given: ArrayLike) -> NDArray[np.float64]:
    """Return accuracies as an array; raise if one is not between 0 and 1."""
    targets = np.asarray(given, dtype=np.float64)
    if ((targets < 0) | (targets > 1)).any():
        raise ValueError(f"an accuracy must be between 0 and 1; got {given!r}")
    return targets


def _pareto_points(accuracy: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the indices of the points that no other one dominates, by increasing size."""
    order = np.lexsort((-accuracy, size))
    highest = np.maximum.accumulate(accuracy[order])
    best: NDArray[np.intp] = order[np.diff(highest, prepend=-1.0) > 0]
    return best


def _interpolate(
    targets: NDArray[np.float64], accuracies: NDArray[np.float64], sizes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return sizes at accuracies on an envelope; NaN beyond its last point."""
    return np.where(targets > accuracies[-1], np.nan, np.interp(targets, accuracies, sizes))


def _bootstrap(
    hits: NDArray[np.bool_], sizes: NDArray[np.integer | np.floating], resamples: int, seed: int
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield accuracies and mean sizes of bootstrap samples.

    Each row is weighted by the number of times it was drawn. Sums are computed by blocks of
    samples and of rows. They are sums of integers, so they are exact, and the same on every
    machine.
    """
    rng = np.random.default_rng(seed)
    n, points = hits.shape
    for block in row_blocks(resamples, n):
        samples = range(block.start, block.stop)
        counts = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in samples])
        sums = np.zeros((2, len(counts), points))
        for rows in row_blocks(n, points):
            weights = counts[:, rows].astype(np.float64)
            sums[0] += weights @ hits[rows].astype(np.float64)
            sums[1] += weights @ sizes[rows].astype(np.float64)
        yield from zip(*(sums / n), strict=True)
