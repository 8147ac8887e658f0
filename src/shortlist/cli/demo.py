"""The demonstration: every method side by side, on data that needs no files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shortlist._utils.progress import Show
from shortlist.comparison import Comparison, compare
from shortlist.datasets import Samples, digits, gaussian
from shortlist.learning.linear import LinearClassifier


@dataclass(frozen=True)
class Demonstration:
    """What one data set showed."""

    title: str
    found: Comparison


def demonstrate(seed: int = 0, progress: Show = "auto") -> list[Demonstration]:
    """Compare every method on digits and on the artificial Gaussians."""
    weak = LinearClassifier(max_epochs=5, validation_fraction=0)
    return [
        _demonstrate(
            "digits, a classifier that saw 100 rows",
            digits().split(100, 600, seed=seed),
            weak,
            seed,
            progress,
        ),
        _demonstrate(
            "10 Gaussian classes in 100 dimensions",
            gaussian(40_000, seed=seed).split(10_000, 10_000, seed=seed),
            LinearClassifier(max_epochs=20),
            seed,
            progress,
        ),
    ]


def _demonstrate(
    title: str, parts: Sequence[Samples], h: LinearClassifier, seed: int, progress: Show
) -> Demonstration:
    fit, select, test = parts
    h.set_params(random_state=seed, progress=progress).fit(fit.x, fit.y)
    found = compare(
        h.predict_proba(select.x),
        select.y,
        select.x,
        test=(h.predict_proba(test.x), test.y, test.x),
        progress=progress,
        random_state=seed,
    )
    return Demonstration(title, found)


def draw(shown: Sequence[Demonstration], path: str | os.PathLike[str]) -> Path:
    """Save the curves, a panel for each data set, in the paper's axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4 * len(shown), 4.4), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, one in zip(panels, shown, strict=True):
        one.found.plot(axes)
        axes.set_title(one.title, fontsize=10)
        axes.grid(alpha=0.25)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    return target
