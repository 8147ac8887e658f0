"""The claims of the paper, with evidence and a verdict for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist.frontier import Frontier
from shortlist.paper.panels import Curve, Panel
from shortlist.paper.results import Results
from shortlist.paper.sources import TITLES

REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not reproduced"
HALF, TWO_THIRDS = 0.6, 0.73
"""Ratios up to these limits are called about half, and about two thirds."""
LOWER_ACCURACIES = (0.98, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Accuracies to compare at if the accuracy of a claim is not reached."""
NEGLIGIBLE = 0.03
"""Differences in size up to 3% are called negligible."""
NOTEWORTHY = 0.01
"""Sets that are less than 1% smaller do not support a claim."""


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, the figures that show it, the evidence, and a verdict."""

    claim: str
    where: str
    evidence: tuple[str, ...]
    verdict: str


def check_claims(results: Results) -> list[Finding]:
    """Return a finding for each claim that the available figures show."""
    return [finding for claim in CLAIMS for finding in claim(results)]


def _half_at_98(results: Results) -> Iterator[Finding]:
    yield from _smaller_than_top_k(
        results,
        ("cifar100", "cifar10", "svhn"),
        0.98,
        HALF,
        "At 98% accuracy, sets have about half of top-k's labels on CIFAR-100, CIFAR-10 and SVHN",
    )


def _two_thirds_at_95(results: Results) -> Iterator[Finding]:
    yield from _smaller_than_top_k(
        results,
        ("imagenet", "tinyimagenet"),
        0.95,
        TWO_THIRDS,
        "At 95% accuracy, sets have about two thirds of top-k's labels on ImageNet",
    )


def _smaller_than_top_k(
    results: Results, names: Sequence[str], accuracy: float, bound: float, claim: str
) -> Iterator[Finding]:
    lines, ratios = [], []
    for panel in _panels(results, "fig1", names):
        top = results.curves(_find_curve(panel, "top-k"))
        best: float | None = None
        for curves, description in _compared_selectors(results, panel):
            at = _reached(curves, accuracy)
            name = f"{TITLES[panel.data]}{description}"
            note = "" if at == accuracy else f"{100 * accuracy:.4g}% is not reached; "
            if at is None:
                lines.append(f"{name}: {note}almost every set has one label")
                continue
            ratio = _ratios(curves, top, at)
            lines.append(f"{name}: {note}{_describe_ratio(ratio, at, 'top-k')}")
            if at == accuracy and "seen" not in description:
                mean = float(ratio.ratio.mean())
                best = mean if best is None else min(best, mean)
        ratios.append(np.inf if best is None else best)
    if lines:
        yield Finding(claim, "fig1, fig3", tuple(lines), _verdict(ratios, bound))


def _compared_selectors(results: Results, panel: Panel) -> Iterator[tuple[list[Frontier], str]]:
    """Yield the selectors that are compared with top-k on a data set, and their descriptions."""
    yield results.curves(_find_curve(panel, "cardinality-aware")), ", K = {1, 2, 4, 8}"
    wider = _figure_3_curves(results, panel.data)
    if wider:
        yield wider, ", all K and λ of figure 3"
    seen = _find_curve(panel, "cardinality-aware, seen rows")
    yield results.curves(seen), ", K = {1, 2, 4, 8}, trained on seen rows"


def _reached(curves: Sequence[Frontier], accuracy: float) -> float | None:
    """Return the accuracy if the curves of all seeds reach it, or else the next lower one.

    All curves must also have a point below the accuracy. The result is None if there is no such
    accuracy, which means that almost every set has one label.
    """
    low = max(float(c.accuracy.min()) for c in curves)
    for at in (accuracy, *(a for a in LOWER_ACCURACIES if a < accuracy)):
        if low < at <= _highest(curves):
            return at
    return None


def _cost_negligible(results: Results) -> Iterator[Finding]:
    lines, differences = [], []
    for panel in _panels(results, "fig2"):
        curves = [results.curves(_find_curve(panel, label)) for label in ("cost log k", "cost k")]
        low = max(float(c.accuracy.min()) for both in curves for c in both) + 0.002
        high = min(map(_highest, curves))
        at = np.arange(low, high, 0.002)
        if not len(at):
            continue
        relative = np.array(
            [
                np.asarray(b.size_at(at)) / np.asarray(a.size_at(at)) - 1
                for a, b in zip(*curves, strict=True)
            ]
        ).mean(axis=0)
        typical = float(np.abs(relative).mean())
        differences.append(typical)
        lines.append(
            f"{TITLES[panel.data]}: cost k changes the mean size at equal accuracy by "
            f"{relative.mean():+.1%} on average ({relative.min():+.1%} to {relative.max():+.1%}, "
            f"mean absolute value {typical:.1%}), for accuracies from {low:.1%} to {high:.1%}"
        )
    if lines:
        claim = "The difference between the costs log k and k is negligible"
        yield Finding(claim, "fig2", tuple(lines), _verdict(differences, NEGLIGIBLE))


def _outperforms_top_k(results: Results) -> Iterator[Finding]:
    lines, shares = [], []
    for name in ("fig1", "fig3", "fig4"):
        for panel in _panels(results, name):
            top = results.curves(_find_curve(panel, "top-k"))
            gains = np.concatenate(
                [
                    _gain(results.curves(curve), top)
                    for curve in panel.curves
                    if curve.is_paper and curve.task.protocol == "held-out"
                ]
            )
            gains = gains[~np.isnan(gains)]
            if not len(gains):
                continue
            shares.append(float((gains > 0).mean()))
            lines.append(
                f"{TITLES[panel.data]}, {name.replace('fig', 'figure ')}: {(gains > 0).sum()} of "
                f"{len(gains)} points lie above top-k's curve; the difference in accuracy at equal "
                f"size is {gains.min():+.2%} to {gains.max():+.2%}, with median "
                f"{np.median(gains):+.2%}"
            )
    if lines:
        claim = "At every K and λ the selector is more accurate than top-k at equal size"
        verdict = REPRODUCED if min(shares) >= 0.95 else PARTLY if np.mean(shares) > 0.5 else NOT
        yield Finding(claim, "fig1, fig3, fig4", tuple(lines), verdict)


def _gain(curves: Sequence[Frontier], top: Sequence[Frontier]) -> NDArray[np.float64]:
    """Return how much more accurate each point is than top-k at equal size, averaged over seeds.

    The value is NaN for a point where almost every set has one label.
    """
    gains = []
    for curve, fixed in zip(curves, top, strict=True):
        gain = curve.accuracy - np.asarray(fixed.accuracy_at(curve.mean_size))
        gains.append(np.where(curve.mean_size > 1.01, gain, np.nan))
    mean: NDArray[np.float64] = np.array(gains).mean(axis=0)
    return mean


def _grows_with_k(results: Results) -> Iterator[Finding]:
    lines, shares = [], []
    for panel in _panels(results, "fig3"):
        steps, drops = [], []
        for curve in panel.curves:
            if not curve.is_paper or curve.task.protocol == "seen":
                continue
            frontiers = results.curves(curve)
            sizes = np.mean([c.mean_size for c in frontiers], axis=0)
            accuracies = np.mean([c.accuracy for c in frontiers], axis=0)
            both = (np.diff(sizes) >= 0) & (np.diff(accuracies) >= 0)
            steps.extend(both.tolist())
            drops.append(float(np.minimum(np.diff(accuracies), 0).min()))
        shares.append(float(np.mean(steps)))
        lines.append(
            f"{TITLES[panel.data]}: both increase in {sum(steps)} of {len(steps)} doublings of K; "
            f"accuracy decreases by at most {abs(min(drops)):.2%}"
        )
    if lines:
        claim = "As K grows, accuracy and mean size increase"
        verdict = REPRODUCED if min(shares) >= 0.9 else PARTLY if np.mean(shares) > 0.5 else NOT
        yield Finding(claim, "fig3", tuple(lines), verdict)


def _denis_hebiri(results: Results) -> Iterator[Finding]:
    lines, ratios = [], []
    for panel in _panels(results, "fig6"):
        sets, top = (results.curves(_find_curve(panel, c)) for c in ("Denis and Hebiri", "top-k"))
        at = min(0.95, float(np.floor(_highest(sets) * 100) / 100))
        ratio = _ratios(sets, top, at)
        ratios.append(abs(float(ratio.ratio.mean()) - 1))
        lines.append(f"{TITLES[panel.data]}, weak h: {_describe_ratio(ratio, at, 'top-k')}")
    if lines:
        lines.append(
            "if the size of each set is bounded, their method is top-k; if the mean size is "
            "bounded, as in their paper and on this page, it is one threshold on the probabilities"
        )
        claim = "The method of Denis and Hebiri performs like top-k"
        yield Finding(claim, "fig6", tuple(lines), _verdict(ratios, NEGLIGIBLE))


def _beats_conformal(results: Results) -> Iterator[Finding]:
    figure = results.figure("fig5")
    if figure is None:
        return
    panel = figure.panels[0]
    selectors = [c for c in panel.curves if c.is_paper]
    most = max(c.task.rows for c in selectors)
    lines: list[str] = []
    best: dict[float, float] = {}
    for curve in selectors:
        for at, ratio in _against_conformal(results, panel, curve):
            lines.append(f"{curve.label}: {_describe_ratio(ratio, at, 'LAC')}")
            if curve.task.rows == most:
                best[at] = min(best.get(at, np.inf), float(ratio.ratio.mean()))
    for curve in panel.curves:
        if curve.task.method == "Bayes selector":  # The selector that unlimited data would give.
            for at, ratio in _against_conformal(results, panel, curve):
                description = f"{curve.label}, the optimal selector"
                lines.append(f"{description}: {_describe_ratio(ratio, at, 'LAC')}")
    if lines:
        claim = "With enough data, the selector beats conformal prediction (artificial data)"
        yield Finding(claim, "fig5", tuple(lines), _verdict_of_ratios(list(best.values())))


def _beats_conformal_weak(results: Results) -> Iterator[Finding]:
    lines: list[str] = []
    ratios: list[float] = []
    for panel in _panels(results, "fig6"):
        best: dict[float, float] = {}
        for curve in panel.curves:
            if not curve.is_paper:
                continue
            compared = list(_against_conformal(results, panel, curve))
            for at, ratio in compared:
                name = f"{TITLES[panel.data]}, {curve.label}"
                lines.append(f"{name}: {_describe_ratio(ratio, at, 'LAC')}")
                if curve.task.protocol == "held-out":
                    best[at] = min(best.get(at, np.inf), float(ratio.ratio.mean()))
            if not compared:
                lines.append(f"{TITLES[panel.data]}, {curve.label}: 80% is not reached")
        ratios.extend(best.values())
    if lines:
        claim = "With a weak scoring function, the selector beats conformal prediction on real data"
        yield Finding(claim, "fig6", tuple(lines), _verdict_of_ratios(ratios))


def _against_conformal(
    results: Results, panel: Panel, curve: Curve
) -> Iterator[tuple[float, Ratio]]:
    """Yield the accuracies that a selector reaches, with the ratio of its sizes to LAC's."""
    lac = next(c for c in panel.curves if c.task.method == "LAC")
    curves = results.curves(curve)
    for at in (0.8, 0.9, 0.95):
        if at <= _highest(curves):
            yield at, _ratios(curves, results.curves(lac), at)


CLAIMS: tuple[Callable[[Results], Iterator[Finding]], ...] = (
    _half_at_98,
    _two_thirds_at_95,
    _cost_negligible,
    _outperforms_top_k,
    _grows_with_k,
    _denis_hebiri,
    _beats_conformal,
    _beats_conformal_weak,
)


@dataclass(frozen=True)
class Ratio:
    """Mean sizes of a method and of a reference at one accuracy, for each seed."""

    size: NDArray[np.float64]
    reference: NDArray[np.float64]

    @property
    def ratio(self) -> NDArray[np.float64]:
        """Size of the method divided by that of the reference."""
        quotient: NDArray[np.float64] = self.size / self.reference
        return quotient


def _ratios(curves: Sequence[Frontier], reference: Sequence[Frontier], at: float) -> Ratio:
    sizes = [np.array([float(c.size_at(at)) for c in both]) for both in (curves, reference)]
    return Ratio(*sizes)


def _describe_ratio(ratio: Ratio, at: float, reference: str) -> str:
    """Return sizes at an accuracy, and their ratio, as text."""
    std = f" ± {ratio.ratio.std():.2f}" if len(ratio.ratio) > 1 else ""
    return (
        f"{ratio.size.mean():.2f} labels at {100 * at:.4g}%, {reference} "
        f"{ratio.reference.mean():.2f}, ratio {ratio.ratio.mean():.2f}{std}"
    )


def _verdict(values: Sequence[float], bound: float) -> str:
    """Return "reproduced" if all values are within the bound, and "partly" if some are."""
    within = [value <= bound for value in values]
    return REPRODUCED if all(within) else PARTLY if any(within) else NOT


def _verdict_of_ratios(ratios: Sequence[float]) -> str:
    """Return "reproduced" if all ratios are noteworthily below 1, and "partly" if some are."""
    smaller = [ratio < 1 - NOTEWORTHY for ratio in ratios]
    return REPRODUCED if smaller and all(smaller) else PARTLY if any(smaller) else NOT


def _highest(curves: Sequence[Frontier]) -> float:
    """Return the highest accuracy that the curves of all seeds reach."""
    return min(float(c.accuracy.max()) for c in curves)


def _panels(results: Results, figure: str, names: Sequence[str] | None = None) -> list[Panel]:
    """Return the panels of a figure that have curves."""
    definition = results.figure(figure)
    panels = () if definition is None else definition.panels
    return [p for p in panels if p.curves and (names is None or p.data in names)]


def _find_curve(panel: Panel, label: str) -> Curve:
    return next(curve for curve in panel.curves if curve.label == label)


def _figure_3_curves(results: Results, data: str) -> list[Frontier]:
    """Return all held-out points of figure 3 as one curve for each seed."""
    curves = [
        results.curves(curve)
        for panel in _panels(results, "fig3", [data])
        for curve in panel.curves
        if curve.is_paper and curve.task.protocol == "held-out"
    ]
    return [
        Frontier(
            np.concatenate([c.accuracy for c in of_seed]),
            np.concatenate([c.mean_size for c in of_seed]),
            np.concatenate([c.parameter for c in of_seed]),
        )
        for of_seed in zip(*curves, strict=True)
    ]
