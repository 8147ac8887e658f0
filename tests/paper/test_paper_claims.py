"""Verdicts on constructed curves, for which the right verdict is known."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from shortlist.paper.claims import check_claims
from shortlist.paper.figures import make_figures
from shortlist.paper.findings import NOT, OPEN, PARTLY, REPRODUCED, Finding
from shortlist.paper.ratio_claims import EQUAL_COVARIANCES
from shortlist.paper.results import Results
from shortlist.paper.scale import FULL, QUICK
from shortlist.paper.sources import Sources
from shortlist.paper.tasks import MEAN, SINGLE, Outcome, Task, Trace, Training

SCALE = replace(FULL, seeds=2, points=24, fixed_weights=(0.1, 0.05), sensitivity=False)
NAMES = ("cifar100_finetuned", "cifar100", "imagenet", "cifar10", "svhn")
SIZES = {
    name: {"fit": 100, "select": 500_000, "test": 100, "classes": 100}
    for name in (*NAMES, "gaussian-equal", "gaussian-unequal")
}
FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "wide")
CONVERGED = Training("selectors", 3, 100, 10, 100, 50, [3, 4, 5], capped=0)


class AllAvailable(Sources):
    def has(self, name: str) -> bool:
        return name in SIZES


def accuracy(size):
    """Return the accuracy of top-k, which is linear in the size: 98% for 16 labels."""
    return np.minimum(0.7 + 0.0175 * size, 1)


def make_outcome(
    task: Task,
    factor: float,
    *,
    cost_factor: float = 1.0,
    mean_factor: float = 1.0,
    shrink: bool = False,
    points: int = 24,
    capped: int = 0,
) -> Outcome:
    """Return the outcome of a method whose sets have `factor` times the size of top-k's."""
    if task.method == "top-k":
        sizes = np.arange(1, 101, dtype=float)
        return _outcome([Trace("", SINGLE, "size", *_lists(sizes, accuracy(sizes), sizes))])
    if task.method in ("selectors", "Bayes selector"):
        traces = []
        for cost, weights in zip(task.costs, task.weights, strict=True):
            grid = np.asarray(weights)[:: max(1, len(weights) // points)]
            sizes = np.geomspace(2, 17, len(grid))
            if task.family == "top-k" and task.refinements == 0:  # K grows in these tasks.
                doublings = len(task.members) if not shrink else 8 - len(task.members)
                sizes = np.full(len(grid), 2.0 * doublings)
            by_cost = factor * (cost_factor if cost == "linear" else 1)
            for average in (SINGLE, MEAN)[: 2 if task.selectors > 1 else 1]:
                scaled = sizes * by_cost * (mean_factor if average == MEAN else 1)
                values = _lists(grid, accuracy(sizes), scaled)
                traces.append(Trace(cost, average, "cost_weight", *values))
        return _outcome(traces, replace(CONVERGED, capped=capped))
    ratio = 0.8 if task.method == "LAC" else 0.4
    at = np.linspace(0.72, 0.99, 100)
    return _outcome([Trace("", SINGLE, "accuracy", *_lists(at, at, ratio * (at - 0.7) / 0.0175))])


def _lists(*arrays) -> list[list[float]]:
    return [np.asarray(array, dtype=float).tolist() for array in arrays]


def _outcome(traces, *trainings) -> Outcome:
    return Outcome(list(traces), 1.0, 4_000, 100, list(trainings))


@cache
def make_results(factor: float, scale=SCALE, **options: object) -> Results:
    sources = AllAvailable("nowhere", 500_000, 100, 100)
    figures = make_figures(FIGURES, sources, scale, SIZES)
    outcomes = {
        task.seeded(seed): make_outcome(task, factor * (1 + 0.01 * seed), **options)
        for figure in figures
        for task in figure.tasks()
        for seed in range(2)
    }
    return Results(figures, outcomes, scale, SIZES, [0, 1])


def mixed(one: Results, other: Results, is_other) -> Results:
    """Return results whose outcomes are those of `other` for some tasks."""
    outcomes = {t: (other if is_other(t) else one).outcomes[t] for t in one.outcomes}
    return replace(one, outcomes=outcomes)


def find_claim(results: Results, words: str) -> Finding:
    """Return the finding whose claim contains some words."""
    (finding,) = [finding for finding in check_claims(results) if words in finding.claim]
    return finding


@pytest.mark.parametrize(("factor", "verdict"), [(0.5, REPRODUCED), (0.8, NOT), (1.1, NOT)])
def test_half_at_98(factor, verdict):
    finding = find_claim(make_results(factor), "98% accuracy")
    assert finding.verdict == verdict
    assert f"CIFAR-100: {factor * 1.005:.2f} ± {factor * 0.005:.2f}" in finding.single
    assert f"SVHN: {factor * 1.005:.2f}" in finding.single
    line = next(x for x in finding.evidence if x.startswith("CIFAR-10,") and "{1, 2, 4, 8}" in x)
    assert "top-k 16.00" in line
    assert any(x.startswith("CIFAR-100 (small ResNet), ") for x in finding.evidence)


@pytest.mark.parametrize(("factor", "verdict"), [(0.66, REPRODUCED), (0.9, NOT)])
def test_two_thirds_at_95(factor, verdict):
    finding = find_claim(make_results(factor), "95% accuracy")
    assert finding.verdict == verdict
    assert finding.single.startswith(f"{factor * 1.005:.2f}")


def test_a_claim_is_judged_with_the_better_cost():
    finding = find_claim(make_results(0.8, cost_factor=0.65), "98% accuracy")
    assert finding.verdict == REPRODUCED
    assert "0.52 to 0.80" in finding.sensitivity


def test_the_averaged_scores_have_a_verdict_of_their_own():
    finding = find_claim(make_results(0.8, mean_factor=0.6), "98% accuracy")
    assert finding.verdict == NOT
    assert "CIFAR-10: 0.48" in finding.mean
    assert finding.mean.endswith(f"({REPRODUCED})")


def test_the_variant_does_not_count():
    results = mixed(make_results(0.9), make_results(0.4), lambda task: task.inputs == "both")
    finding = find_claim(results, "98% accuracy")
    assert finding.verdict == NOT
    assert any("our variant" in line and "ratio 0.40" in line for line in finding.evidence)


def test_capped_training_gives_no_verdict():
    findings = check_claims(make_results(0.5, capped=1))
    assert {finding.verdict for finding in findings} == {OPEN}
    line = find_claim(make_results(0.5, capped=1), "98% accuracy").evidence[0]
    assert "the maximum number of epochs ended training" in line


def test_a_capped_curve_is_not_needed_if_another_one_satisfies_the_claim():
    capped = make_results(0.5, capped=1)
    results = mixed(make_results(0.5), capped, lambda task: len(task.members) > 4)
    assert find_claim(results, "98% accuracy").verdict == REPRODUCED
    worse = make_results(0.9)
    results = mixed(worse, capped, lambda task: len(task.members) > 4)
    assert find_claim(results, "98% accuracy").verdict == OPEN


def test_a_coarse_grid_gives_no_verdict():
    finding = find_claim(make_results(0.5, points=3), "98% accuracy")
    assert finding.verdict == OPEN
    assert "no point near" in finding.single
    assert any("far apart" in line for line in finding.evidence)


@pytest.mark.parametrize(("cost_factor", "verdict"), [(1.0, REPRODUCED), (0.9, NOT)])
def test_the_difference_between_costs_is_negligible(cost_factor, verdict):
    finding = find_claim(make_results(0.7, cost_factor=cost_factor), "negligible")
    assert finding.verdict == verdict
    assert f"by {cost_factor - 1:+.1%} on average" in finding.evidence[0]
    assert f"CIFAR-10: {1 - cost_factor:.1%}" in finding.single


@pytest.mark.parametrize(("factor", "verdict"), [(0.7, REPRODUCED), (1.2, NOT)])
def test_better_than_top_k(factor, verdict):
    finding = find_claim(make_results(factor), "At every K")
    assert finding.verdict == verdict
    line = next(x for x in finding.evidence if "fig3" in x)
    count = line.split("better cost: ")[1].split(" of ")[0]
    assert (int(count) > 0) == (factor < 1)


@pytest.mark.parametrize(("shrink", "verdict"), [(False, REPRODUCED), (True, NOT)])
def test_sizes_and_accuracies_increase_with_k(shrink, verdict):
    assert find_claim(make_results(0.7, shrink=shrink), "As K grows").verdict == verdict


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.7, REPRODUCED), (0.795, NOT), (0.9, NOT)], ids=str
)
def test_better_than_conformal_prediction(factor, verdict):
    """LAC has 0.8 times the labels of top-k. A difference below 1% is ignored."""
    results = make_results(factor)
    assert find_claim(results, "unequal covariances").verdict == verdict
    assert find_claim(results, "weak scoring").verdict == verdict


def test_the_two_regimes_have_their_own_verdicts():
    results = mixed(make_results(0.7), make_results(0.9), lambda t: t.data == "gaussian-equal")
    assert find_claim(results, ", unequal covariances").verdict == REPRODUCED
    equal = find_claim(results, ", equal covariances")
    assert equal.verdict == NOT
    assert equal.sensitivity == EQUAL_COVARIANCES


def test_the_claim_about_many_rows_needs_them():
    few = replace(SCALE, sample_sizes=(1_000, 50_000))
    finding = find_claim(make_results(0.7, few), "unequal covariances")
    assert finding.verdict == OPEN
    assert "this study has 50,000" in finding.sensitivity


def test_a_claim_that_holds_for_some_data_is_partly_reproduced():
    results = mixed(make_results(1.0), make_results(0.5), lambda task: task.data == "cifar10")
    assert find_claim(results, "98% accuracy").verdict == PARTLY


def test_a_quick_study_gives_no_verdicts():
    results = make_results(0.5)
    assert check_claims(results)
    assert check_claims(replace(results, scale=QUICK)) == []


def test_only_claims_about_available_figures_are_checked():
    results = make_results(0.5)
    only_figure_3 = replace(results, figures=[results.figure("fig3")])
    assert [finding.where for finding in check_claims(only_figure_3)] == ["fig1 to fig4", "fig3"]
    assert check_claims(replace(results, figures=[])) == []
