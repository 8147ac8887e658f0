"""Claims about sizes at equal accuracy, relative to top-k and to conformal prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shortlist.paper.findings import OPEN, Finding, panels_with_curves, verdict_of
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
from shortlist.paper.results import Results
from shortlist.paper.sources import PANEL_CHOICES, TITLES
from shortlist.paper.tasks import MEAN, SINGLE

HALF, TWO_THIRDS = 0.6, 0.73
"""Ratios up to these limits are called about half, and about two thirds."""
NOTEWORTHY = 0.01
"""Sets that are less than 1% smaller do not support a claim."""
MANY_ROWS = 500_000
"""Number of artificial rows for which the paper claims an advantage over conformal prediction."""
EQUAL_COVARIANCES = (
    "it cannot hold here: with equal covariances the true log-probabilities are linear in x, so "
    "that thresholds on the scores of the linear h, which are conformal prediction, are optimal "
    "up to the error of h"
)


def half_at_98(results: Results) -> Iterator[Finding]:
    """Compare with half of top-k's sizes on the paper's easier data sets."""
    groups = [PANEL_CHOICES[i] for i in (0, 2, 3)]
    claim = "At 98% accuracy, sets have about half of top-k's labels on CIFAR-100, CIFAR-10, SVHN"
    yield from _smaller_than_top_k(results, groups, 0.98, HALF, claim)


def two_thirds_at_95(results: Results) -> Iterator[Finding]:
    """Compare with two thirds of top-k's sizes on ImageNet."""
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
    panels = [p for p in panels_with_curves(results, "settings") if TITLES[p.data] == case.name]
    return [(case, c) for p in panels for c in p.curves if c.is_recipe]


def _panels_of(results: Results, data: str) -> list[Panel]:
    """Return the panels of a data set in the figures about top-k sets that have top-k's curve."""
    panels = [p for name in ("fig1", "fig2", "wide") for p in panels_with_curves(results, name)]
    return [p for p in panels if p.data == data and p.find("top-k") is not None]


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
        verdicts[average] = verdict_of([b.holds for _, _, b in best])
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


def beats_conformal(results: Results) -> Iterator[Finding]:
    """Compare with conformal prediction on artificial data, in both regimes."""
    for data, words in (("gaussian-unequal", "unequal"), ("gaussian-equal", "equal")):
        panels = [
            p for p in panels_with_curves(results, "fig5") if p.data == data and not p.by_rows
        ]
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
            finding = replace(finding, verdict=OPEN, sensitivity=note)
        yield finding


def _similar(results: Results) -> str:
    """Return the ratios for covariances that are more similar, and what the claim depends on."""
    text = "covariances, which the paper does not give: impossible if they are equal"
    panels = [p for p in panels_with_curves(results, "settings") if p.data == "gaussian-similar"]
    for panel in panels:
        lac = panel.find("conformal (LAC)")
        curves = [c for c in panel.curves if c.is_recipe]
        if lac is not None and curves:
            compared = compare_cases(results, [Case("", curves, lac)], [0.95])
            best = next(best_of(c, 1 - NOTEWORTHY) for _, _, c, _ in compared)
            text += f"; {best.text} at 95% if they are more similar (spread 0.2 instead of 0.4)"
    return text


def beats_conformal_weak(results: Results) -> Iterator[Finding]:
    """Compare with conformal prediction for a weak scoring function."""
    cases = []
    for panel in panels_with_curves(results, "fig6"):
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
