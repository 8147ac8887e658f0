"""The demonstration: the paper's selector against fixed top-k, on data that needs no files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shortlist._progress import Show
from shortlist.datasets import Samples, digits, gaussian
from shortlist.families import Family, Threshold, TopK
from shortlist.frontier import Frontier
from shortlist.linear import LinearClassifier
from shortlist.selectors import CardinalityPath, FixedSelector

COST_WEIGHTS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01)


@dataclass(frozen=True)
class Demonstration:
    """What one data set showed: curves on its test part."""

    title: str
    family: Family
    top_k: Frontier
    threshold: Frontier
    selector: Frontier

    def needed(self) -> list[tuple[float, float]]:
        """For each lambda: the mean sizes that fixed top-k and one fixed threshold need for the
        same accuracy. Two sizes, or two thresholds, may be mixed: that is generous to them."""
        sizes = (f.size_at(self.selector.accuracy) for f in (self.top_k, self.threshold))
        return list(zip(*(np.asarray(s).tolist() for s in sizes), strict=True))


def demonstrate(seed: int = 0, progress: Show = "auto") -> list[Demonstration]:
    """Train the paper's selector on digits and on the artificial Gaussians."""
    weak = LinearClassifier(max_epochs=5, validation_fraction=0)
    return [
        _demonstrate(
            "digits, a classifier that saw 100 rows",
            digits().split(100, 1100, seed=seed),
            weak,
            TopK([1, 2, 4, 8]),
            seed,
            progress,
        ),
        _demonstrate(
            "10 Gaussian classes in 100 dimensions",
            gaussian(60_000, seed=seed).split(20_000, 25_000, seed=seed),
            LinearClassifier(max_epochs=20),
            Threshold([0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01]),
            seed,
            progress,
        ),
    ]


def _demonstrate(
    title: str,
    parts: Sequence[Samples],
    h: LinearClassifier,
    family: Family,
    seed: int,
    progress: Show,
) -> Demonstration:
    fit, select, test = parts
    h.set_params(random_state=seed, progress=progress).fit(fit.x, fit.y)
    scores, test_scores = h.predict_proba(select.x), h.predict_proba(test.x)

    def fixed(members: Family) -> Frontier:
        return FixedSelector(members).fit(scores, select.y).frontier(test_scores, test.y)

    path = CardinalityPath(
        family,
        cost="log",
        cost_weights=COST_WEIGHTS,
        inputs="both",
        random_state=seed,
        progress=progress,
    ).fit(scores, select.y, select.x)
    return Demonstration(
        title,
        family,
        top_k=fixed(TopK.dense(len(fit.classes))),
        threshold=fixed(Threshold(np.geomspace(0.999, 1e-4, 200).tolist())),
        selector=path.frontier(test_scores, test.y, test.x),
    )


def draw(shown: Sequence[Demonstration], path: str | os.PathLike[str]) -> Path:
    """Save the curves, a panel for each data set, in the paper's axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(shown), 4.2), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, one in zip(panels, shown, strict=True):
        one.top_k.plot(axes, color="0.45", marker="s", label="fixed top-k")
        one.threshold.plot(axes, color="#d98c21", marker="", label="one threshold")
        one.selector.plot(axes, color="#1f6fb4", label="cardinality-aware")
        axes.set_title(one.title, fontsize=10)
        axes.set_xlim(0.9, 1.15 * float(one.selector.mean_size.max()))
        axes.grid(alpha=0.25)
        axes.legend(loc="lower right", frameon=False)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    return target
