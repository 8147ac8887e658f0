"""Verdicts on constructed curves, for which the right verdict is known."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.paper import Scale
from shortlist.paper.claims import NOT, PARTLY, REPRODUCED, Finding, check_claims
from shortlist.paper.figures import make_figures
from shortlist.paper.results import Results
from shortlist.paper.sources import Sources
from shortlist.paper.tasks import Outcome, Task

SCALE = Scale(seeds=2, points=3, fixed_weights=(0.1, 0.05), sample_sizes=(1_000, 2_000, 4_000))
NAMES = ("cifar100", "imagenet", "cifar10")
SIZES = {
    name: {"fit": 100, "select": 4_000, "test": 100, "classes": 100}
    for name in (*NAMES, "gaussian")
}


class AllAvailable(Sources):
    def has(self, name: str) -> bool:
        return name in SIZES


def accuracy(size):
    """Return the accuracy of top-k, which is linear in the size: 98% for 16 labels."""
    return np.minimum(0.7 + 0.0175 * size, 1)


def make_outcome(
    task: Task, factor: float, cost_factor: float = 1.0, shrink: bool = False
) -> Outcome:
    """Return the outcome of a method whose sets have `factor` times the size of top-k's."""
    if task.method == "top-k":
        sizes = np.arange(1, 101, dtype=float)
        return _outcome("size", sizes, sizes, accuracy(sizes))
    if task.method == "cardinality-aware":
        factor = factor * (cost_factor if task.cost == "linear" else 1)
        sizes = np.geomspace(2, 17, len(task.weights))
        if task.family == "top-k" and set(task.weights) <= {0.05, 0.1}:  # K grows in these tasks.
            doublings = len(task.members) if not shrink else 8 - len(task.members)
            sizes = np.full(len(task.weights), 2.0 * doublings)
        return _outcome("cost_weight", task.weights, sizes * factor, accuracy(sizes))
    ratio = {"LAC": 0.8, "Shortlister": 0.5, "Denis and Hebiri": 0.8}.get(task.method, 0.4)
    at = np.linspace(0.72, 0.99, 30)
    return _outcome("accuracy", at, ratio * (at - 0.7) / 0.0175, at)


def _outcome(name, parameter, sizes, accuracies) -> Outcome:
    return Outcome(name, list(parameter), list(accuracies), list(sizes), 1.0, 4_000, 100)


def make_results(factor: float, **options: object) -> Results:
    sources = AllAvailable("nowhere", 4_000, 100, 100)
    names = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6"]
    figures = make_figures(names, sources, SCALE, SIZES)
    outcomes = {
        task.seeded(seed): make_outcome(task, factor, **options)
        for figure in figures
        for task in figure.tasks()
        for seed in range(SCALE.seeds)
    }
    return Results(figures, outcomes, SCALE, SIZES)


def find_claim(results: Results, words: str) -> Finding:
    """Return the finding whose claim contains some words."""
    (finding,) = [finding for finding in check_claims(results) if words in finding.claim]
    return finding


@pytest.mark.parametrize(("factor", "verdict"), [(0.5, REPRODUCED), (0.8, NOT), (1.1, NOT)])
def test_half_at_98(factor, verdict):
    finding = find_claim(make_results(factor), "98% accuracy")
    assert finding.verdict == verdict
    line = next(x for x in finding.evidence if "CIFAR-10," in x and "{1, 2, 4, 8}" in x)
    assert f"top-k 16.00, ratio {factor:.2f} ± 0.00" in line


@pytest.mark.parametrize(("factor", "verdict"), [(0.66, REPRODUCED), (0.9, NOT)])
def test_two_thirds_at_95(factor, verdict):
    finding = find_claim(make_results(factor), "95% accuracy")
    assert finding.verdict == verdict
    assert f"ratio {factor:.2f} ± 0.00" in finding.evidence[0]


@pytest.mark.parametrize(("cost_factor", "verdict"), [(1.0, REPRODUCED), (0.9, NOT)])
def test_the_difference_between_costs_is_negligible(cost_factor, verdict):
    finding = find_claim(make_results(0.7, cost_factor=cost_factor), "negligible")
    assert finding.verdict == verdict
    assert f"by {cost_factor - 1:+.1%} on average" in finding.evidence[0]


@pytest.mark.parametrize(("factor", "verdict"), [(0.7, REPRODUCED), (1.2, NOT)])
def test_better_than_top_k(factor, verdict):
    finding = find_claim(make_results(factor), "At every K")
    assert finding.verdict == verdict
    count = "3 of 3" if factor < 1 else "0 of 3"
    assert count in finding.evidence[0]


@pytest.mark.parametrize(("shrink", "verdict"), [(False, REPRODUCED), (True, NOT)])
def test_sizes_and_accuracies_increase_with_k(shrink, verdict):
    assert find_claim(make_results(0.7, shrink=shrink), "As K grows").verdict == verdict


def test_the_method_of_denis_and_hebiri_is_not_top_k():
    finding = find_claim(make_results(0.7), "Denis")
    assert finding.verdict == NOT
    assert "ratio 0.80 ± 0.00" in finding.evidence[0]


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.7, REPRODUCED), (0.798, NOT), (0.9, NOT)], ids=str
)
def test_better_than_conformal_prediction(factor, verdict):
    """LAC has 0.8 times the labels of top-k. A difference below 1% is ignored."""
    results = make_results(factor)
    assert find_claim(results, "enough data").verdict == verdict
    assert find_claim(results, "weak scoring").verdict == verdict


def test_a_claim_that_holds_for_some_data_is_partly_reproduced():
    half, equal = make_results(0.5), make_results(1.0)
    mixed = {
        task: (half if task.data == "cifar10" else equal).outcomes[task] for task in equal.outcomes
    }
    finding = find_claim(Results(equal.figures, mixed, SCALE, SIZES), "98% accuracy")
    assert finding.verdict == PARTLY


def test_only_claims_about_available_figures_are_checked():
    results = make_results(0.5)
    only_figure_3 = Results([results.figure("fig3")], results.outcomes, SCALE, SIZES)
    assert [finding.where for finding in check_claims(only_figure_3)] == [
        "fig1, fig3, fig4",
        "fig3",
    ]
    assert check_claims(Results([], {}, SCALE, SIZES)) == []
