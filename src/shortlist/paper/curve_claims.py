"""Claims about whole curves: the two costs, the points above top-k's curve, and growing K."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shortlist.paper.findings import (
    OPEN,
    Finding,
    panels_with_curves,
    verdict_of,
    verdict_of_shares,
)
from shortlist.paper.panels import Curve, Panel
from shortlist.paper.ratios import AVERAGES
from shortlist.paper.reading import sizes_at
from shortlist.paper.results import Results
from shortlist.paper.sources import TITLES
from shortlist.paper.tasks import MEAN, SINGLE

NEGLIGIBLE = 0.03
"""Differences in size up to 3% are called negligible."""
LOWEST_WEIGHT = 0.01
"""Lowest lambda of the paper's plots."""


def cost_negligible(results: Results) -> Iterator[Finding]:
    """Compare the sizes with cost log k and with cost k at equal accuracy."""
    lines: list[str] = []
    typical: dict[str, dict[str, float]] = {SINGLE: {}, MEAN: {}}
    wide: list[str] = []
    for figure in ("fig2", "wide"):
        for panel in panels_with_curves(results, figure):
            for average in AVERAGES:
                difference = _cost_difference(results, panel, average)
                if difference is None:
                    continue
                mean, text = difference
                kind = "single selector" if average == SINGLE else "averaged scores"
                lines.append(f"{TITLES[panel.data]}, {figure}, {kind}: {text}")
                if figure == "fig2":
                    typical[average][TITLES[panel.data]] = mean
                elif average == SINGLE:
                    wide.append(f"{TITLES[panel.data]} {mean:.1%}")
    panels = panels_with_curves(results, "fig2")
    if not any(curve.is_recipe for panel in panels for curve in panel.curves):
        return
    capped = any(results.capped(c) for p in panels for c in p.curves if c.is_recipe)
    texts = {a: "; ".join(f"{d}: {v:.1%}" for d, v in each.items()) for a, each in typical.items()}
    verdicts = {
        a: OPEN if capped else verdict_of([v <= NEGLIGIBLE for v in each.values()])
        for a, each in typical.items()
    }
    yield Finding(
        "The difference between the costs log k and k is negligible",
        "fig2",
        verdicts[SINGLE],
        texts[SINGLE] or "no points near",
        f"{texts[MEAN]} ({verdicts[MEAN]})" if typical[MEAN] else "not computed",
        f"K: with the largest K the difference is {'; '.join(wide)}" if wide else "",
        tuple(lines),
    )


def _cost_difference(results: Results, panel: Panel, average: str) -> tuple[float, str] | None:
    """Return the mean absolute difference of the sizes of the two costs, and all of it as text."""
    curves = {c.cost: c for c in panel.curves if c.is_recipe and c.average == average}
    if set(curves) != {"log", "linear"}:
        return None
    frontiers = {cost: results.curves(curve) for cost, curve in curves.items()}
    each = [f for of_cost in frontiers.values() for f in of_cost]
    low, high = max(f.accuracy.min() for f in each), min(f.accuracy.max() for f in each)
    at = np.arange(float(low) + 0.002, float(high), 0.002)
    sizes = {
        cost: np.array([sizes_at(f, at) for f in of_cost]) for cost, of_cost in frontiers.items()
    }
    relative = sizes["linear"] / sizes["log"] - 1
    relative = relative[:, ~np.isnan(relative).any(axis=0)]
    if not relative.size:
        return None
    by_seed = np.abs(relative).mean(axis=1)
    mean = relative.mean(axis=0)
    text = (
        f"cost k changes the mean size at equal accuracy by {mean.mean():+.1%} on average "
        f"({mean.min():+.1%} to {mean.max():+.1%}); its absolute value is "
        f"{100 * by_seed.mean():.1f}{f' ± {100 * by_seed.std():.1f}' if len(by_seed) > 1 else ''}% "
        f"over {relative.shape[1]} accuracies from {low:.1%} to {high:.1%}"
    )
    return float(by_seed.mean()), text


def outperforms_top_k(results: Results) -> Iterator[Finding]:
    """Count the points that lie above top-k's curve."""
    lines: list[str] = []
    shares: dict[str, list[float]] = {SINGLE: [], MEAN: []}
    capped = False
    for figure in ("fig1", "fig2", "fig3", "fig4"):
        for panel in panels_with_curves(results, figure):
            top = panel.find("top-k")
            if top is None:
                continue
            for average in AVERAGES:
                by_cost: dict[str, list[NDArray[np.float64]]] = {}
                for curve in panel.curves:
                    if curve.is_recipe and curve.average == average:
                        capped |= results.capped(curve)
                        by_cost.setdefault(curve.cost, []).append(_gain(results, curve, top))
                gains = {c: np.concatenate(g) for c, g in by_cost.items() if sum(map(len, g))}
                if not gains:
                    continue
                best = max(gains, key=lambda c: float((gains[c] > 0).mean()))
                gain = gains[best]
                shares[average].append(float((gain > 0).mean()))
                kind = "single selector" if average == SINGLE else "averaged scores"
                lines.append(
                    f"{TITLES[panel.data]}, {figure}, {kind}, better cost: {(gain > 0).sum()} of "
                    f"{len(gain)} points of all seeds lie above top-k's curve; the difference in "
                    f"accuracy at equal size is {gain.min():+.2%} to {gain.max():+.2%}, with "
                    f"median {np.median(gain):+.2%}"
                )
    if not lines:
        return
    verdicts = {a: OPEN if capped else verdict_of_shares(each) for a, each in shares.items()}
    texts = {a: _share_text(each) for a, each in shares.items()}
    yield Finding(
        "At every K and λ the selector is more accurate than top-k at equal size",
        "fig1 to fig4",
        verdicts[SINGLE],
        texts[SINGLE],
        f"{texts[MEAN]} ({verdicts[MEAN]})" if shares[MEAN] else "not computed",
        "the data: the evidence has the share of each panel",
        tuple(lines),
    )


def _share_text(shares: Sequence[float]) -> str:
    if not shares:
        return ""
    low, high = min(shares), max(shares)
    return f"{low:.0%} to {high:.0%} of a panel's points, on average {np.mean(shares):.0%}"


def _gain(results: Results, curve: Curve, top: Curve) -> NDArray[np.float64]:
    """Return how much more accurate each point of each seed is than top-k at equal size.

    Points with a lambda below the paper's, and those where almost every set is the smallest or the
    largest one, are left out: there both methods are the same.
    """
    gains = []
    for frontier, fixed in zip(results.curves(curve), results.curves(top), strict=True):
        gain = frontier.accuracy - np.asarray(fixed.accuracy_at(frontier.mean_size))
        largest = curve.task.members[-1]
        kept = (frontier.mean_size > 1.01) & (frontier.mean_size < 0.99 * largest)
        if curve.weight is None:
            kept &= frontier.parameter >= LOWEST_WEIGHT
        gains.append(gain[kept])
    return np.concatenate(gains)


def grows_with_k(results: Results) -> Iterator[Finding]:
    """Count the doublings of K that increase both accuracy and mean size."""
    lines, shares = [], []
    capped = False
    for panel in panels_with_curves(results, "fig3"):
        steps: list[bool] = []
        drops: list[float] = []
        for curve in panel.curves:
            if not curve.is_single:
                continue
            capped |= results.capped(curve)
            frontiers = results.curves(curve)
            sizes = np.mean([c.mean_size for c in frontiers], axis=0)
            accuracies = np.mean([c.accuracy for c in frontiers], axis=0)
            both = (np.diff(sizes) >= 0) & (np.diff(accuracies) >= 0)
            steps.extend(both.tolist())
            drops.append(float(np.minimum(np.diff(accuracies), 0).min()))
        if not steps:
            continue
        shares.append(float(np.mean(steps)))
        lines.append(
            f"{TITLES[panel.data]}: both increase in {sum(steps)} of {len(steps)} doublings of K; "
            f"accuracy decreases by at most {abs(min(drops)):.2%}"
        )
    if lines:
        yield Finding(
            "As K grows, accuracy and mean size increase",
            "fig3",
            OPEN if capped else verdict_of_shares(shares, 0.9),
            f"{min(shares):.0%} to {max(shares):.0%} of the doublings, by data set",
            "not computed",
            "the data: the evidence has the largest decrease of each",
            tuple(lines),
        )
