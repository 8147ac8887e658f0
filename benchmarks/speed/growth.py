"""How time and memory grow: slopes on logarithmic axes, and the picture of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

AXES = {"rows": "rows", "classes": "classes", "|K|": "members"}
WORDS = {"seconds": "time", "memory": "peak memory over the input"}
LEAST = {"seconds": 0.001, "memory": 5.0}
"""Less than this many seconds or megabytes is chance."""
LAST = 3
"""A slope is that of the largest sizes, where what does not grow no longer counts."""


def curves(results: list[dict[str, Any]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The results by axis and method, in order of the size."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for one in results:
        method, axis = one["label"].split(", ")
        found.setdefault(axis, {}).setdefault(method, []).append(one)
    for axis, methods in found.items():
        for points in methods.values():
            points.sort(key=lambda one: int(one[AXES[axis]]))
    return found


def slope(points: list[dict[str, Any]], axis: str, what: str) -> float | None:
    """The exponent of the growth of time or memory; None where it cannot be told."""
    used = [one for one in points[-LAST:] if (one[what] or 0) >= LEAST[what]]
    if len(used) < 2:
        return None
    x, y = np.log([[one[AXES[axis]], one[what]] for one in used]).T
    return float(np.polyfit(x, y, 1)[0])


def draw_growth(results: list[dict[str, Any]], path: Path) -> None:
    """Time above, memory below, one column for each axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    found = curves(results)
    figure, grid = plt.subplots(2, len(found), figsize=(4 * len(found), 6), squeeze=False)
    for column, (axis, methods) in zip(grid.T, found.items(), strict=True):
        for ax, what, unit in zip(column, ("seconds", "memory"), ("s", "MB"), strict=True):
            for method, points in methods.items():
                at = slope(points, axis, what)
                name = method if at is None else f"{method}: slope {at:.2f}"
                shown = [one for one in points if (one[what] or 0) >= LEAST[what]]
                sizes = [one[AXES[axis]] for one in shown]
                ax.loglog(sizes, [one[what] for one in shown], "o-", ms=3, label=name)
            ax.set_xlabel(axis)
            ax.set_ylabel(f"{WORDS[what]} ({unit})")
            ax.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
