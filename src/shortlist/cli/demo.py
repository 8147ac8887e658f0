"""The demonstration: a comparison of all methods on built-in data."""

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
    """The comparison of all methods on one data set."""

    title: str
    comparison: Comparison


def demonstrate(seed: int = 0, progress: Show = "auto") -> list[Demonstration]:
    """Compare all methods on digits and on synthetic Gaussians."""
    weak = LinearClassifier(max_epochs=5, validation_fraction=0)
    return [
        _demonstrate(
            "digits, with a classifier trained on 100 rows",
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
    title: str, splits: Sequence[Samples], classifier: LinearClassifier, seed: int, progress: Show
) -> Demonstration:
    fit, select, test = splits
    classifier.set_params(random_state=seed, progress=progress).fit(fit.x, fit.y)
    comparison = compare(
        classifier.predict_proba(select.x),
        select.y,
        select.x,
        test=(classifier.predict_proba(test.x), test.y, test.x),
        progress=progress,
        random_state=seed,
    )
    return Demonstration(title, comparison)


def draw(demonstrations: Sequence[Demonstration], path: str | os.PathLike[str]) -> Path:
    """Plot the curves of each data set in a panel, with the paper's axes, and save the figure."""
    from matplotlib.figure import Figure

    count = len(demonstrations)
    figure = Figure(figsize=(5.4 * count, 4.4), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    for axes, demonstration in zip(panels, demonstrations, strict=True):
        demonstration.comparison.plot(axes)
        axes.set_title(demonstration.title, fontsize=10)
        axes.grid(alpha=0.25)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    return target
