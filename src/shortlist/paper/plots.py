"""Plots of the figures, with the layout and the axes of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shortlist._utils.atomic_write import atomic_write
from shortlist._utils.extras import require
from shortlist.paper.panels import Curve, Figure, Panel
from shortlist.paper.results import Results, average_curves
from shortlist.paper.tasks import SINGLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg")
METHOD_COLORS = {"top-k": "#1f77b4", "LAC": "#7f7f7f", "Bayes": "black"}
COST_COLORS = {"log": "#ff7f0e", "linear": "#d62728"}
VARIANT_COLORS = {"log": "#2ca02c", "linear": "#9467bd"}
OTHER_COLORS = (
    "#ff7f0e", "#d62728", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#aec7e8", "#ffbb78",
    "#98df8a", "#c5b0d5", "#c49c94", "#f7b6d2",
)  # fmt: skip
MARGIN = 0.06
SIZE_ACCURACY = 0.95
"""Accuracy at which mean sizes are plotted against the number of rows."""


def draw(results: Results, figure: Figure, folder: Path) -> list[Path]:
    """Plot a figure and save it in each of `FORMATS`."""
    require("matplotlib", "plotting the figures")
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    panels, columns = figure.panels, min(figure.columns, len(figure.panels))
    rows = -(-len(panels) // columns)
    canvas = Canvas(figsize=(4.9 * columns + 0.6, 4.3 * rows + 0.9), layout="constrained")
    grid = canvas.subplots(rows, columns, squeeze=False).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, results, panel)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    # The panels of most figures have the same curves, so that one legend is enough.
    legend = dict(
        pair
        for axes in grid
        for pair in zip(*reversed(axes.get_legend_handles_labels()), strict=True)
    )
    if legend:
        keys, options = list(legend), {"fontsize": 8, "frameon": False}
        canvas.legend(
            [legend[k] for k in keys], keys, loc="outside lower center", ncols=columns, **options
        )
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


def _draw_curves(axes: Axes, results: Results, panel: Panel) -> None:
    """Plot accuracy against mean size."""
    largest: list[float] = []
    lowest: list[float] = []
    styles = _styles(panel)
    for curve in panel.curves:
        sizes, accuracies, size_std, accuracy_std = average_curves(results.curves(curve))
        (line,) = axes.plot(sizes, accuracies, label=curve.label, **styles[curve.label])  # type: ignore[arg-type]
        if curve.is_selector:
            color = line.get_color()
            axes.errorbar(
                sizes, accuracies, accuracy_std, size_std, fmt="none", ecolor=color, elinewidth=0.6
            )
            largest.append(float(sizes.max()))
            lowest.append(float(accuracies.min()))
        elif len(sizes) > 1 and curve.task.method in ("LAC", "Bayes"):
            band = (accuracies, sizes - size_std, sizes + size_std)
            axes.fill_betweenx(*band, color=line.get_color(), alpha=0.2, linewidth=0)
    # The paper's curves determine the limits, because the others continue up to all labels.
    right = max([*largest, 2.0])
    logarithmic = right > 20
    if logarithmic:
        axes.set_xscale("log")
        ticks = [float(2**i) for i in range(int(right).bit_length())]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
    axes.set_xlim(0.95 if logarithmic else 1 - 0.03 * right, (1 + MARGIN) * right)
    bottom = min([*lowest, *_top_1_accuracies(results, panel)])
    axes.set_ylim(bottom - 0.05 * (1 - bottom), 1 + 0.02 * (1 - bottom))
    axes.set_xlabel("Cardinality")
    axes.set_ylabel("Accuracy")


def _top_1_accuracies(results: Results, panel: Panel) -> list[float]:
    """Return the accuracy of the first label, as a list of one value; 1 if it is not known."""
    curves = [average_curves(results.curves(c)) for c in panel.curves if c.task.method == "top-k"]
    return [float(accuracies[0]) for _, accuracies, *_ in curves] or [1.0]


def _draw_sizes_by_rows(axes: Axes, results: Results, panel: Panel) -> None:
    """Plot the mean size at one accuracy against the number of rows."""
    styles = _styles(panel)
    for curve in panel.curves:
        parts = [Curve(curve.label, (task,), curve.cost, curve.average) for task in curve.tasks]
        sizes = np.array([results.sizes_at(part, SIZE_ACCURACY) for part in parts])
        mean, std = sizes.mean(axis=1), sizes.std(axis=1)
        style = styles[curve.label]
        if len(parts) == 1:
            solid = str(style["color"])
            axes.axhline(float(mean[0]), label=curve.label, color=solid, ls=":", lw=1.2)
            continue
        rows = [task.rows for task in curve.tasks]
        style |= {"marker": "o", "ms": 4}
        (line,) = axes.plot(rows, mean, label=curve.label, **style)  # type: ignore[arg-type]
        color = line.get_color()
        axes.errorbar(rows, mean, std, fmt="none", ecolor=color, elinewidth=0.7)
    axes.set_xscale("log")
    axes.set_ylim(0.9, (1 + MARGIN) * max(axes.get_ylim()[1], 2.0))
    axes.set_xlabel("m: rows to train the selector on")
    axes.set_ylabel(f"Cardinality at {SIZE_ACCURACY:.0%}")


def _styles(panel: Panel) -> dict[str, dict[str, object]]:
    """Return the style of each curve by its label.

    The paper's recipe has dots, and a line of its own style for averaged scores; our variant has
    triangles.
    """
    kinds = [(curve.task.inputs, curve.cost) for curve in panel.curves if _is_plain(curve)]
    distinct = len(set(kinds)) == len(kinds)
    colors = iter(OTHER_COLORS * (1 + len(panel.curves) // len(OTHER_COLORS)))
    return {curve.label: _style(curve, colors, by_cost=distinct) for curve in panel.curves}


def _is_plain(curve: Curve) -> bool:
    """Return whether a curve is that of a single selector on held-out rows."""
    return curve.is_selector and curve.average == SINGLE and curve.task.protocol == "held-out"


def _style(curve: Curve, colors: Iterator[str], *, by_cost: bool) -> dict[str, object]:
    method, task = curve.task.method, curve.task
    if method == "Bayes selector":
        return {"color": COST_COLORS[curve.cost], "marker": "*", "ms": 9, "ls": "", "mec": "black"}
    if not curve.is_selector:
        return {"color": METHOD_COLORS[method], "lw": 1.6, "ls": "--" if method == "LAC" else "-"}
    if task.protocol == "seen":
        # The curve is often a single point, because all of its selectors return one label.
        return {"color": "#8c564b", "marker": "x", "ms": 7, "lw": 1.2, "ls": ":"}
    palette = COST_COLORS if task.inputs == "features" else VARIANT_COLORS
    color = palette[curve.cost] if by_cost else next(colors)
    marker = "o" if task.inputs == "features" else "^"
    line = "-" if curve.average == SINGLE else (0, (4, 1.5))
    face = color if curve.average == SINGLE else "white"
    return {"color": color, "marker": marker, "ms": 3.5, "lw": 1.2, "ls": line, "mfc": face}
