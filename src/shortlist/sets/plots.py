"""Plots of set sizes and of the accuracy of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.extras import require
from shortlist._utils.proportions import standard_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_sizes(sizes: NDArray[np.int64], ax: Axes | None, style: dict[str, object]) -> Axes:
    """Plot the fraction of rows with each size; see `PredictionSets.plot_sizes`."""
    require("matplotlib", "plot_sizes")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    if not len(sizes):
        raise ValueError("there are no rows, so there are no sizes to plot")
    axes: Axes = plt.subplots()[1] if ax is None else ax
    counts = np.bincount(sizes)
    bars = np.arange(0 if counts[0] else 1, len(counts))
    axes.bar(bars, counts[bars] / len(sizes), **{"width": 0.9, **style})  # type: ignore[arg-type]
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if np.count_nonzero(counts) == 1:  # A single bar would fill the axes.
        axes.set_xlim(max(bars[-1] - 2, 0) - 0.5, bars[-1] + 2.5)
    axes.set_xlabel(f"labels in a set (mean {sizes.mean():.4g})")
    axes.set_ylabel("share of rows")
    return axes


def plot_classes(
    names: NDArray[np.generic],
    rows: NDArray[np.int64],
    hits: NDArray[np.int64],
    ax: Axes | None,
    max_classes: int,
    style: dict[str, object],
) -> Axes:
    """Plot the accuracy of each class; see `PredictionSets.plot_classes`.

    `rows` and `hits` are the numbers of rows, and of sets that contain the label, of each class.
    """
    require("matplotlib", "plot_classes")
    from matplotlib import pyplot as plt

    if not rows.any():
        raise ValueError("there are no rows, so there are no accuracies to plot")
    present = np.flatnonzero(rows)
    accuracies = hits[present] / rows[present]
    order = np.argsort(accuracies, kind="stable")[:max_classes]
    shown, lowest = present[order], accuracies[order]
    axes: Axes = plt.subplots()[1] if ax is None else ax
    errors = standard_error(hits[shown], rows[shown])
    options = {"xerr": errors, "height": 0.8, "error_kw": {"elinewidth": 0.8}, **style}
    axes.barh([str(name) for name in names[shown]], lowest, **options)  # type: ignore[arg-type]
    axes.axvline(hits.sum() / rows.sum(), color="black", ls="--", lw=1)
    axes.invert_yaxis()
    some = f", the {len(shown)} lowest of {len(present)}" if len(shown) < len(present) else ""
    axes.set_xlabel(f"accuracy of each class{some}")
    return axes
