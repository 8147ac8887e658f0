"""The claims of the paper, with a verdict for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist.paper.panels import Curve, Panel
from shortlist.paper.ratios import (
    AVERAGES,
    Best,
    Case,
    Comparison,
    best_of,
    compare_cases,
    of_average,
)
from shortlist.paper.reading import sizes_at
from shortlist.paper.results import Results
from shortlist.paper.sources import PANEL_CHOICES, TITLES
from shortlist.paper.tasks import MEAN, SINGLE

REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not on these data"
OPEN = "no verdict"
HALF, TWO_THIRDS = 0.6, 0.73
"""Ratios up to these limits are called about half, and about two thirds."""
NEGLIGIBLE = 0.03
"""Differences in size up to 3% are called negligible."""
NOTEWORTHY = 0.01
"""Sets that are less than 1% smaller do not support a claim."""
ALMOST_ALL = 0.95
"""Share of points from which a claim about all points holds."""
LOWEST_WEIGHT = 0.01
"""Lowest lambda of the paper's plots."""
MANY_ROWS = 500_000
"""Number of artificial rows for which the paper claims an advantage over conformal prediction."""
EQUAL_COVARIANCES = (
    "it cannot hold here: with equal covariances the true log-probabilities are linear in x, so "
    "that thresholds on the scores of the linear h, which are conformal prediction, are optimal "
    "up to the error of h"
)


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, and a verdict.

    Parameters
    ----------
    claim : str
        The claim.
    where : str
        Figures that show it.
    verdict : str
        The verdict, for the paper's recipe with a single selector.
    single : str
        The number that the verdict rests on, with its spread over seeds.
    mean : str
        The same number and verdict with the averaged scores of several selectors.
    sensitivity : str
        What the number is sensitive to.
    evidence : tuple of str
        All numbers.
    """

    claim: str
    where: str
    verdict: str
    single: str
    mean: str
    sensitivity: str
    evidence: tuple[str, ...]


def check_claims(results: Results) -> list[Finding]:
    """Return a finding for each claim that the figures show; none if the study is too small."""
    if not results.scale.verdicts:
        return []
    return [finding for claim in CLAIMS for finding in claim(results)]


def _half_at_98(results: Results) -> Iterator[Finding]:
    groups = [PANEL_CHOICES[i] for i in (0, 2, 3)]
    claim = "At 98% accuracy, sets have about half of top-k's labels on CIFAR-100, CIFAR-10, SVHN"
    yield from _smaller_than_top_k(results, groups, 0.98, HALF, claim)


def _two_thirds_at_95(results: Results) -> Iterator[Finding]:
    claim = "At 95% accuracy, sets have about two thirds of top-k's labels on ImageNet"
    yield from _smaller_than_top_k(results, [PANEL_CHOICES[1]], 0.95, TWO_THIRDS, claim)


def _smaller_than_top_k(
    results: Results, groups: Sequence[Sequence[str]], at: float, bound: float, claim: str
) -> Iterator[Finding]:
    panels = [_panels_of(results, name) for group in groups for name in group]
    shown = [each for each in panels if each]
    # The paper's panels count. A second data set of the same name is shown as evidence.
    first = [next((e for e in shown if e[0].data in group), None) for group in groups]
    cases = [_top_k_case(each) for each in first if each]
    seconds = [_top_k_case(each) for each in shown if each not in first]
    if not cases:
        return
    settings = [c for case in cases for c in _setting_curves(results, case)]
    yield _ratio_finding(
        results,
        claim,
        "fig1, fig2, wide",
        cases,
        [at],
        bound,
        evidence_cases=seconds,
        settings=settings,
    )


def _top_k_case(panels: Sequence[Panel]) -> Case:
    """Return the curves of a data set in several figures, to be compared with top-k."""
    curves = {(c.tasks, c.cost, c.average): c for panel in panels for c in panel.curves}
    top = next(c for c in curves.values() if c.task.method == "top-k")
    others = [c for c in curves.values() if c.is_selector and not c.is_recipe]
    recipe = [c for c in curves.values() if c.is_recipe]
    return Case(TITLES[panels[0].data], recipe, top, others)


def _setting_curves(results: Results, case: Case) -> list[tuple[Case, Curve]]:
    """Return the curves of a data set with other settings."""
    panels = [p for p in _panels(results, "settings") if TITLES[p.data] == case.name]
    return [(case, c) for p in panels for c in p.curves if c.is_recipe]


def _ratio_finding(
    results: Results,
    claim: str,
    where: str,
    cases: Sequence[Case],
    accuracies: Sequence[float],
    bound: float,
    *,
    evidence_cases: Sequence[Case] = (),
    settings: Sequence[tuple[Case, Curve]] = (),
    remark: str = "",
) -> Finding:
    """Return a finding about the ratio of the sizes of two methods at equal accuracy."""
    verdicts, numbers = {}, {}
    compared = list(compare_cases(results, cases, accuracies))
    for average in AVERAGES:
        best = [(case, at, best_of(of_average(c, average), bound)) for case, at, c, _ in compared]
        verdicts[average] = _verdict([b.holds for _, _, b in best])
        numbers[average] = _number(best)
    more = list(compare_cases(results, evidence_cases, accuracies))
    lines = [c.describe() for *_, counted, others in [*compared, *more] for c in counted + others]
    counted = [c for _, _, comparisons, _ in compared for c in comparisons if not c.problem]
    other_settings = [
        c
        for case, curve in settings
        for _, _, of_case, _ in compare_cases(
            results, [Case(case.name, [curve], case.reference)], accuracies
        )
        for c in of_case
    ]
    lines += [c.describe() for c in other_settings]
    return Finding(
        claim,
        where,
        verdicts[SINGLE],
        numbers[SINGLE],
        f"{numbers[MEAN]} ({verdicts[MEAN]})" if _has_mean(cases) else "not computed",
        remark or _ranges([*counted, *(c for c in other_settings if not c.problem)], results),
        tuple(dict.fromkeys(lines)),
    )


def _number(best: Sequence[tuple[Case, float, Best]]) -> str:
    """Return the ratios of each data set at each accuracy as text."""
    cases = list(dict.fromkeys(case.name for case, _, _ in best))
    parts = []
    for name in cases:
        of_case = [(at, b.text) for case, at, b in best if case.name == name]
        several = len(of_case) > 1
        texts = [f"{text} at {100 * at:.4g}%" if several else text for at, text in of_case]
        start = f"{name.split(' (')[0]}: " if len(cases) > 1 else ""
        parts.append(start + ", ".join(texts))
    return "; ".join(parts)


def _has_mean(cases: Sequence[Case]) -> bool:
    return any(curve.average == MEAN for case in cases for curve in case.curves)


def _ranges(comparisons: Sequence[Comparison], results: Results) -> str:
    """Return the range of ratios over all curves, for each data set and accuracy."""
    ranges: dict[tuple[str, float], list[float]] = {}
    for c in comparisons:
        ranges.setdefault((c.name, c.accuracy), []).append(float(c.ratio.mean()))
    parts = [
        f"{name.split(' (')[0]} at {100 * at:.4g}%: {min(each):.2f} to {max(each):.2f}"
        for (name, at), each in ranges.items()
    ]
    varied = "costs, K and averaging"
    if results.figure("settings") is not None:
        varied = f"{varied}, width, learning rate, initialization and standardization"
    return f"{varied}: {'; '.join(parts)}" if parts else ""


def _cost_negligible(results: Results) -> Iterator[Finding]:
    lines: list[str] = []
    typical: dict[str, dict[str, float]] = {SINGLE: {}, MEAN: {}}
    wide: list[str] = []
    for figure in ("fig2", "wide"):
        for panel in _panels(results, figure):
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
    panels = _panels(results, "fig2")
    if not any(curve.is_recipe for panel in panels for curve in panel.curves):
        return
    capped = any(results.capped(c) for p in panels for c in p.curves if c.is_recipe)
    texts = {a: "; ".join(f"{d}: {v:.1%}" for d, v in each.items()) for a, each in typical.items()}
    verdicts = {
        a: OPEN if capped else _verdict([v <= NEGLIGIBLE for v in each.values()])
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


def _outperforms_top_k(results: Results) -> Iterator[Finding]:
    lines: list[str] = []
    shares: dict[str, list[float]] = {SINGLE: [], MEAN: []}
    capped = False
    for figure in ("fig1", "fig2", "fig3", "fig4"):
        for panel in _panels(results, figure):
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
    verdicts = {a: OPEN if capped else _verdict_of_shares(each) for a, each in shares.items()}
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


def _grows_with_k(results: Results) -> Iterator[Finding]:
    lines, shares = [], []
    capped = False
    for panel in _panels(results, "fig3"):
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
            OPEN if capped else _verdict_of_shares(shares, 0.9),
            f"{min(shares):.0%} to {max(shares):.0%} of the doublings, by data set",
            "not computed",
            "the data: the evidence has the largest decrease of each",
            tuple(lines),
        )


def _beats_conformal(results: Results) -> Iterator[Finding]:
    for data, words in (("gaussian-unequal", "unequal"), ("gaussian-equal", "equal")):
        panels = [p for p in _panels(results, "fig5") if p.data == data and not p.by_rows]
        lac = panels[0].find("conformal (LAC)") if panels else None
        recipe = [c for p in panels for c in p.curves if c.is_recipe]
        if lac is None or not recipe:
            continue
        most = max(c.task.rows for c in recipe)
        counted = [c for c in recipe if c.task.rows == most]
        others = [c for c in panels[0].curves if c not in counted]
        others = [c for c in others if c.is_selector or c.task.method == "Bayes selector"]
        case = Case(TITLES[data], counted, lac, others)
        finding = _ratio_finding(
            results,
            "With 500,000 rows, the selector beats conformal prediction on Gaussian classes, "
            f"{words} covariances",
            "fig5",
            [case],
            (0.8, 0.9, 0.95, 0.98),
            1 - NOTEWORTHY,
            remark=EQUAL_COVARIANCES if data == "gaussian-equal" else _similar(results),
        )
        if most < MANY_ROWS:
            note = f"the claim is about {MANY_ROWS:,} rows; this study has {most:,}"
            finding = _without_verdict(finding, note)
        yield finding


def _similar(results: Results) -> str:
    """Return the ratios for covariances that are more similar, and what the claim depends on."""
    text = "covariances, which the paper does not give: impossible if they are equal"
    panels = [p for p in _panels(results, "settings") if p.data == "gaussian-similar"]
    for panel in panels:
        lac = panel.find("conformal (LAC)")
        curves = [c for c in panel.curves if c.is_recipe]
        if lac is not None and curves:
            compared = compare_cases(results, [Case("", curves, lac)], [0.95])
            best = next(best_of(c, 1 - NOTEWORTHY) for _, _, c, _ in compared)
            text += f"; {best.text} at 95% if they are more similar (spread 0.2 instead of 0.4)"
    return text


def _without_verdict(finding: Finding, note: str) -> Finding:
    """Return a finding without a verdict, and why."""
    return Finding(
        finding.claim, finding.where, OPEN, finding.single, finding.mean, note, finding.evidence
    )


def _beats_conformal_weak(results: Results) -> Iterator[Finding]:
    cases = []
    for panel in _panels(results, "fig6"):
        lac = panel.find("conformal (LAC)")
        recipe = [c for c in panel.curves if c.is_recipe]
        others = [c for c in panel.curves if c.is_selector and not c.is_recipe]
        if lac is not None and recipe:
            cases.append(Case(TITLES[panel.data], recipe, lac, others))
    if cases:
        yield _ratio_finding(
            results,
            "With a weak scoring function, the selector beats conformal prediction on real data",
            "fig6",
            cases,
            (0.8, 0.9, 0.95),
            1 - NOTEWORTHY,
        )


CLAIMS: tuple[Callable[[Results], Iterator[Finding]], ...] = (
    _half_at_98,
    _two_thirds_at_95,
    _cost_negligible,
    _outperforms_top_k,
    _grows_with_k,
    _beats_conformal,
    _beats_conformal_weak,
)


def _verdict(holds: Sequence[bool | None]) -> str:
    """Return "reproduced" if a claim holds in all cases, and "partly" if it does in some.

    A case without an answer leaves the verdict open, unless the others already differ.
    """
    if True in holds and False in holds:
        return PARTLY
    if None in holds or not holds:
        return OPEN
    return REPRODUCED if True in holds else NOT


def _verdict_of_shares(shares: Sequence[float], enough: float = ALMOST_ALL) -> str:
    """Return "reproduced" if almost all points support a claim, and "partly" if most do."""
    if not shares:
        return OPEN
    return REPRODUCED if min(shares) >= enough else PARTLY if np.mean(shares) > 0.5 else NOT


def _panels(results: Results, figure: str) -> list[Panel]:
    """Return the panels of a figure that have curves."""
    definition = results.figure(figure)
    return [] if definition is None else [p for p in definition.panels if p.curves]


def _panels_of(results: Results, data: str) -> list[Panel]:
    """Return the panels of a data set in the figures about top-k sets that have top-k's curve."""
    panels = [p for name in ("fig1", "fig2", "wide") for p in _panels(results, name)]
    return [p for p in panels if p.data == data and p.find("top-k") is not None]
