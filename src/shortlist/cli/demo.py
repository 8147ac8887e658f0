"""The demonstration: a comparison of all methods on built-in data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from shortlist._utils.progress import Show
from shortlist.comparison import Comparison, compare
from shortlist.datasets import Samples, digits, gaussian


@dataclass(frozen=True)
class Demonstration:
    """The comparison of all methods on one data set."""

    title: str
    comparison: Comparison


NOISE = 0.4
"""Standard deviation of the noise on the pixels of the digits, which lie between 0 and 1."""
GAUSSIAN_ROWS = (5000, 10_000)
"""Labeled rows and test rows of the Gaussian classes."""


def demonstrate(seed: int = 0, progress: Show = "auto") -> list[Demonstration]:
    """Compare all methods on noisy digits and on synthetic Gaussians.

    All methods get the same labeled rows and the scores of the same classifier, which are
    out-of-fold scores.
    """
    noisy = _add_noise(digits(), seed)
    return [
        _demonstrate("noisy digits", noisy.split(1200, seed=seed), seed, progress),
        _demonstrate(
            "10 Gaussian classes in 100 dimensions",
            gaussian(sum(GAUSSIAN_ROWS), seed=seed).split(GAUSSIAN_ROWS[0], seed=seed),
            seed,
            progress,
        ),
    ]


def _add_noise(samples: Samples, seed: int) -> Samples:
    """Return samples with Gaussian noise on the features."""
    noise = np.random.default_rng(seed).normal(0, NOISE, samples.x.shape)
    return replace(samples, x=(samples.x + noise).astype(np.float32))


def _demonstrate(title: str, splits: Sequence[Samples], seed: int, progress: Show) -> Demonstration:
    labeled, test = splits
    classifier = LogisticRegression(C=0.1, max_iter=300)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    scores = cross_val_predict(classifier, labeled.x, labeled.y, cv=folds, method="predict_proba")
    test_scores = classifier.fit(labeled.x, labeled.y).predict_proba(test.x)
    comparison = compare(
        scores,
        labeled.y,
        labeled.x,
        test=(test_scores, test.y, test.x),
        progress=progress,
        random_state=seed,
    )
    return Demonstration(title, comparison)


def draw(demonstrations: Sequence[Demonstration], path: str | os.PathLike[str]) -> Path:
    """Plot the curves of each data set in a panel, with the axes of the paper, and save it."""
    from matplotlib.figure import Figure

    count = len(demonstrations)
    figure = Figure(figsize=(5.0 * count + 2.2, 4.2), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    for axes, demonstration in zip(panels, demonstrations, strict=True):
        demonstration.comparison.plot(axes)
        axes.set_title(demonstration.title, fontsize=10)
        axes.grid(alpha=0.25)
        axes.get_legend().remove()
    figure.legend(
        *panels[-1].get_legend_handles_labels(), loc="outside right center", frameon=False
    )
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    return target
