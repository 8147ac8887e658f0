"""Plots of the figures, with the layout and axes of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shortlist._utils.atomic_write import atomic_write
from shortlist.paper.figures import Curve, Figure, Panel
from shortlist.paper.results import Results, average_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg")
GREYS = {"top-k": "#1f77b4", "LAC": "#7f7f7f", "Denis and Hebiri": "#bcbd22"}
ORANGES = ("#ff7f0e", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#aec7e8")
MAX_LEGEND_INSIDE = 7
"""A legend with more entries is placed below its panel."""
SIZE_ACCURACY = 0.95
"""Accuracy at which mean sizes are plotted against the number of rows."""


def draw(results: Results, figure: Figure, folder: Path) -> list[Path]:
    """Plot a figure and save it in each of `FORMATS`."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    rows = -(-len(figure.panels) // figure.columns)
    height = 4.0 if figure.columns == 4 else 4.6
    canvas = Canvas(figsize=(4.9 * figure.columns + 0.6, height * rows), layout="constrained")
    grid = canvas.subplots(rows, figure.columns, squeeze=False).flatten()
    for axes, panel in zip(grid, figure.panels, strict=False):
        _panel(axes, results, panel)
    for axes in grid[len(figure.panels) :]:
        axes.set_axis_off()
    saved = []
    for ending in FORMATS:
        path = folder / f"{figure.name}.{ending}"
        with atomic_write(path) as temporary:
            # Without a date, and with fixed ids, the same points give the same file.
            metadata = {"Date": None} if ending == "svg" else {"Software": None}
            with rc_context({"svg.hashsalt": figure.name}):
                canvas.savefig(temporary, dpi=150, format=ending, metadata=metadata)
        saved.append(path)
    return saved


def _panel(axes: Axes, results: Results, panel: Panel) -> None:
    axes.set_title(panel.title, fontsize=11)
    if panel.missing:
        axes.text(0.5, 0.5, panel.missing, ha="center", va="center", transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    if panel.by_rows:
        _by_rows(axes, results, panel)
    else:
        _curves(axes, results, panel)
    axes.grid(alpha=0.25)
    if panel.by_rows or len(panel.curves) > MAX_LEGEND_INSIDE:  # Inside, it would cover the curves.
        below = (0.5, -0.13)
        axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=below, ncols=2)
    else:
        axes.legend(fontsize=8, frameon=False)


def _curves(axes: Axes, results: Results, panel: Panel) -> None:
    papers = [curve for curve in panel.curves if curve.is_paper]
    limits: list[float] = []
    lowest: list[float] = []
    for curve in panel.curves:
        sizes, accuracies, spread, wobble = average_curves(results.curves(curve))
        style = _style(curve, papers)
        (line,) = axes.plot(sizes, accuracies, label=curve.label, **style)  # type: ignore[arg-type]
        if curve.is_paper:
            color = line.get_color()
            axes.errorbar(
                sizes, accuracies, wobble, spread, fmt="none", ecolor=color, elinewidth=0.7
            )
            limits.append(float(sizes.max()))
            lowest.append(float(accuracies.min()))
        elif len(sizes) > 1 and curve.task.method != "top-k":
            band = (accuracies, sizes - spread, sizes + spread)
            axes.fill_betweenx(*band, color=line.get_color(), alpha=0.2, linewidth=0)
    # The limits are those of the paper's curves; other curves continue up to all labels.
    right = max([*limits, 2.0])
    axes.set_xlim(1 - 0.03 * right, 1.06 * right)
    bottom = min([*lowest, *_left_ends(results, panel)])
    axes.set_ylim(bottom - 0.05 * (1 - bottom), 1 + 0.02 * (1 - bottom))
    axes.set_xlabel("Cardinality")
    axes.set_ylabel("Accuracy")


def _left_ends(results: Results, panel: Panel) -> list[float]:
    """Return the accuracies at which curves with one label begin."""
    ends = [average_curves(results.curves(c)) for c in panel.curves if c.task.method == "top-k"]
    return [float(accuracies[0]) for _, accuracies, *_ in ends] or [1.0]


def _by_rows(axes: Axes, results: Results, panel: Panel) -> None:
    """Plot mean sizes against the number of rows.

    Sizes are divided by the best possible ones where these are known, since each seed draws
    another problem.
    """
    papers = [curve for curve in panel.curves if curve.is_paper]
    best = [curve for curve in panel.curves if curve.task.method == "Bayes"]
    floor = results.sizes_at(best[0], SIZE_ACCURACY) if best else np.ones(results.scale.seeds)
    for curve in panel.curves:
        style = _style(curve, papers)
        if curve in best:
            axes.axhline(1.0, label=curve.label, color="black", ls=":", lw=1.2)
            continue
        sizes = np.array(
            [
                results.sizes_at(Curve(curve.label, (task,)), SIZE_ACCURACY) / floor
                for task in curve.tasks
            ]
        )
        rows = [task.rows for task in curve.tasks]
        mean, spread = sizes.mean(axis=1), sizes.std(axis=1)
        style |= {"marker": "o", "ms": 4}
        (line,) = axes.plot(rows, mean, label=curve.label, **style)  # type: ignore[arg-type]
        color = line.get_color()
        axes.errorbar(rows, mean, spread, fmt="none", ecolor=color, elinewidth=0.7)
    axes.set_xscale("log")
    axes.set_xlabel("m: rows to select by")
    unit = ", × the best possible" if best else ""
    axes.set_ylabel(f"Cardinality at {SIZE_ACCURACY:.0%}{unit}")


def _style(curve: Curve, papers: list[Curve]) -> dict[str, object]:
    """Return the style of a curve: the paper's with dots, the others without, ours in black."""
    method = curve.task.method
    if curve.is_paper:
        plain = list(dict.fromkeys(_plain(c) for c in papers))
        color = ORANGES[plain.index(_plain(curve)) % len(ORANGES)]
        if (
            curve.task.protocol == "seen"
        ):  # Often a single point, since all selectors return one label.
            return {"color": color, "marker": "x", "ms": 7, "lw": 1.3, "ls": ":"}
        most = max(c.task.rows for c in papers if _plain(c) == _plain(curve))
        fewer = "m =" in curve.label and curve.task.rows < most
        return {"color": color, "marker": "o", "ms": 3.5, "lw": 1.3, "ls": "--" if fewer else "-"}
    if curve.is_shortlister:
        few = curve.task.rows <= 5_000 and "m =" in curve.label
        return {"color": "black", "lw": 1.2 if few else 2.2, "ls": "--" if few else "-"}
    if method == "Bayes":
        return {"color": "#1f77b4", "lw": 1.2, "ls": ":"}
    if method == "Bayes selector":
        color = "#1f77b4" if curve.task.cost == "log" else "#17becf"
        return {"color": color, "marker": "*", "ms": 9, "ls": ""}
    return {
        "color": GREYS.get(method, "#7f7f7f"),
        "lw": 1.5,
        "ls": "--" if method == "LAC" else "-",
    }


def _plain(curve: Curve) -> str:
    """Return the label without protocol and number of rows; such curves share a colour."""
    label = curve.label.removesuffix(", seen rows").removeprefix("cardinality-aware, ")
    return label.split(", m =")[0]
