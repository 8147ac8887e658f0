"""Growth of time and memory: slopes on logarithmic axes, and a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

AXES = {"rows": "rows", "classes": "classes", "|K|": "members"}
QUANTITIES = {"seconds": "time", "memory": "additional peak memory"}
MIN_VALUES = {"seconds": 0.001, "memory": 5.0}
"""Fewer seconds or megabytes than these are measurement noise."""
FIT_POINTS = 3
"""A slope is fitted to this many of the largest sizes, where fixed costs no longer matter."""


def curves(results: list[dict[str, Any]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Group results by axis and method, and sort them by size."""
    grouped: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for result in results:
        method, axis = result["label"].split(", ")
        grouped.setdefault(axis, {}).setdefault(method, []).append(result)
    for axis, methods in grouped.items():
        for points in methods.values():
            points.sort(key=lambda result: int(result[AXES[axis]]))
    return grouped


def slope(points: list[dict[str, Any]], axis: str, quantity: str) -> float | None:
    """Return the exponent of the growth of time or memory; None if values are too small."""
    used = [p for p in points[-FIT_POINTS:] if (p[quantity] or 0) >= MIN_VALUES[quantity]]
    if len(used) < 2:
        return None
    x, y = np.log([[p[AXES[axis]], p[quantity]] for p in used]).T
    return float(np.polyfit(x, y, 1)[0])


def draw_growth(results: list[dict[str, Any]], path: Path) -> None:
    """Plot time in the first row and memory in the second, with one column for each axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    grouped = curves(results)
    figure, grid = plt.subplots(2, len(grouped), figsize=(4 * len(grouped), 6), squeeze=False)
    for column, (axis, methods) in zip(grid.T, grouped.items(), strict=True):
        for ax, quantity, unit in zip(column, ("seconds", "memory"), ("s", "MB"), strict=True):
            for method, points in methods.items():
                exponent = slope(points, axis, quantity)
                name = method if exponent is None else f"{method}: slope {exponent:.2f}"
                shown = [p for p in points if (p[quantity] or 0) >= MIN_VALUES[quantity]]
                sizes = [p[AXES[axis]] for p in shown]
                ax.loglog(sizes, [p[quantity] for p in shown], "o-", ms=3, label=name)
            ax.set_xlabel(axis)
            ax.set_ylabel(f"{QUANTITIES[quantity]} ({unit})")
            ax.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
