"""Plots of the figures, with the layout and the axes of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shortlist._utils.atomic_write import atomic_write
from shortlist._utils.extras import require
from shortlist.paper.panels import Curve, Figure, Panel
from shortlist.paper.results import Results, average_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg")
METHOD_COLORS = {"top-k": "#1f77b4", "LAC": "#7f7f7f", "Denis and Hebiri": "#bcbd22"}
SELECTOR_COLORS = (
    "#ff7f0e",
    "#d62728",
    "#2ca02c",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#17becf",
    "#aec7e8",
)
MAX_LEGEND_INSIDE = 7
"""Legends with more entries are placed below the panel, because they would cover the curves."""
SIZE_ACCURACY = 0.95
"""Accuracy at which mean sizes are plotted against the number of rows."""


def draw(results: Results, figure: Figure, folder: Path) -> list[Path]:
    """Plot a figure and save it in each of `FORMATS`."""
    require("matplotlib", "plotting the figures")
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    rows = -(-len(figure.panels) // figure.columns)
    height = 4.0 if figure.columns == 4 else 4.6
    canvas = Canvas(figsize=(4.9 * figure.columns + 0.6, height * rows), layout="constrained")
    grid = canvas.subplots(rows, figure.columns, squeeze=False).flatten()
    for axes, panel in zip(grid, figure.panels, strict=False):
        _draw_panel(axes, results, panel)
    for axes in grid[len(figure.panels) :]:
        axes.set_axis_off()
    paths = []
    for file_format in FORMATS:
        path = folder / f"{figure.name}.{file_format}"
        with atomic_write(path) as temporary:
            # Without a date and with fixed ids, the same points give the same file.
            metadata = {"Date": None} if file_format == "svg" else {"Software": None}
            with rc_context({"svg.hashsalt": figure.name}):
                canvas.savefig(temporary, dpi=150, format=file_format, metadata=metadata)
        paths.append(path)
    return paths


def _draw_panel(axes: Axes, results: Results, panel: Panel) -> None:
    axes.set_title(panel.title, fontsize=11)
    if panel.missing:
        axes.text(0.5, 0.5, panel.missing, ha="center", va="center", transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    if panel.by_rows:
        _draw_sizes_by_rows(axes, results, panel)
    else:
        _draw_curves(axes, results, panel)
    axes.grid(alpha=0.25)
    if panel.by_rows or len(panel.curves) > MAX_LEGEND_INSIDE:
        below = (0.5, -0.13)
        axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=below, ncols=2)
    else:
        axes.legend(fontsize=8, frameon=False)


def _draw_curves(axes: Axes, results: Results, panel: Panel) -> None:
    """Plot accuracy against mean size."""
    selectors = [curve for curve in panel.curves if curve.is_paper]
    largest: list[float] = []
    lowest: list[float] = []
    for curve in panel.curves:
        sizes, accuracies, size_std, accuracy_std = average_curves(results.curves(curve))
        style = _style(curve, selectors)
        (line,) = axes.plot(sizes, accuracies, label=curve.label, **style)  # type: ignore[arg-type]
        if curve.is_paper:
            color = line.get_color()
            axes.errorbar(
                sizes, accuracies, accuracy_std, size_std, fmt="none", ecolor=color, elinewidth=0.7
            )
            largest.append(float(sizes.max()))
            lowest.append(float(accuracies.min()))
        elif len(sizes) > 1 and curve.task.method != "top-k":
            band = (accuracies, sizes - size_std, sizes + size_std)
            axes.fill_betweenx(*band, color=line.get_color(), alpha=0.2, linewidth=0)
    # The paper's curves determine the limits, because the others continue up to all labels.
    right = max([*largest, 2.0])
    axes.set_xlim(1 - 0.03 * right, 1.06 * right)
    bottom = min([*lowest, *_top_1_accuracies(results, panel)])
    axes.set_ylim(bottom - 0.05 * (1 - bottom), 1 + 0.02 * (1 - bottom))
    axes.set_xlabel("Cardinality")
    axes.set_ylabel("Accuracy")


def _top_1_accuracies(results: Results, panel: Panel) -> list[float]:
    """Return the accuracy of the first label, as a list of one value; 1 if it is not known."""
    curves = [average_curves(results.curves(c)) for c in panel.curves if c.task.method == "top-k"]
    return [float(accuracies[0]) for _, accuracies, *_ in curves] or [1.0]


def _draw_sizes_by_rows(axes: Axes, results: Results, panel: Panel) -> None:
    """Plot the mean size at one accuracy against the number of rows.

    Sizes of artificial data are divided by the smallest possible ones, because each seed draws
    other classes.
    """
    selectors = [curve for curve in panel.curves if curve.is_paper]
    optimal = [curve for curve in panel.curves if curve.task.method == "Bayes"]
    unit = results.sizes_at(optimal[0], SIZE_ACCURACY) if optimal else np.ones(results.scale.seeds)
    for curve in panel.curves:
        style = _style(curve, selectors)
        if curve in optimal:
            axes.axhline(1.0, label=curve.label, color="black", ls=":", lw=1.2)
            continue
        sizes = np.array(
            [
                results.sizes_at(Curve(curve.label, (task,)), SIZE_ACCURACY) / unit
                for task in curve.tasks
            ]
        )
        rows = [task.rows for task in curve.tasks]
        mean, std = sizes.mean(axis=1), sizes.std(axis=1)
        style |= {"marker": "o", "ms": 4}
        (line,) = axes.plot(rows, mean, label=curve.label, **style)  # type: ignore[arg-type]
        color = line.get_color()
        axes.errorbar(rows, mean, std, fmt="none", ecolor=color, elinewidth=0.7)
    axes.set_xscale("log")
    axes.set_xlabel("m: rows to select by")
    relative = ", × the best possible" if optimal else ""
    axes.set_ylabel(f"Cardinality at {SIZE_ACCURACY:.0%}{relative}")


def _style(curve: Curve, selectors: list[Curve]) -> dict[str, object]:
    """Return the style of a curve: dots for the paper's selectors, black for the Shortlister."""
    method = curve.task.method
    if curve.is_paper:
        names = list(dict.fromkeys(_short_label(c) for c in selectors))
        color = SELECTOR_COLORS[names.index(_short_label(curve)) % len(SELECTOR_COLORS)]
        if curve.task.protocol == "seen":
            # The curve is often a single point, because all of its selectors return one label.
            return {"color": color, "marker": "x", "ms": 7, "lw": 1.3, "ls": ":"}
        most = max(c.task.rows for c in selectors if _short_label(c) == _short_label(curve))
        has_fewer = "m =" in curve.label and curve.task.rows < most
        line = "--" if has_fewer else "-"
        return {"color": color, "marker": "o", "ms": 3.5, "lw": 1.3, "ls": line}
    if curve.is_shortlister:
        has_few = "m =" in curve.label and curve.task.rows <= 5_000
        return {"color": "black", "lw": 1.2 if has_few else 2.2, "ls": "--" if has_few else "-"}
    if method == "Bayes":
        return {"color": "#1f77b4", "lw": 1.2, "ls": ":"}
    if method == "Bayes selector":
        color = "#1f77b4" if curve.task.cost == "log" else "#17becf"
        return {"color": color, "marker": "*", "ms": 9, "ls": ""}
    return {"color": METHOD_COLORS[method], "lw": 1.5, "ls": "--" if method == "LAC" else "-"}


def _short_label(curve: Curve) -> str:
    """Return the label without protocol and number of rows. Curves that share it share a color."""
    label = curve.label.removesuffix(", seen rows").removeprefix("cardinality-aware, ")
    return label.split(", m =")[0]
