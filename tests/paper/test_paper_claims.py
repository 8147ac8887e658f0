"""Verdicts, on curves that were made up so that the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.paper import Scale
from shortlist.paper.claims import NOT, PARTLY, REPRODUCED, check_claims
from shortlist.paper.figures import make_figures
from shortlist.paper.results import Results
from shortlist.paper.sources import Sources
from shortlist.paper.tasks import Outcome, Task

SCALE = Scale(seeds=2, points=3, fixed_weights=(0.1, 0.05), sample_sizes=(1_000, 2_000, 4_000))
NAMES = ("cifar100", "imagenet", "cifar10")
KNOWN = {
    name: {"fit": 100, "select": 4_000, "test": 100, "classes": 100}
    for name in (*NAMES, "gaussian")
}


class Everywhere(Sources):
    def has(self, name: str) -> bool:
        return name in KNOWN


def accuracy(size):
    """Top-k's, as straight as the lines between points: 98% at 16 labels."""
    return np.minimum(0.7 + 0.0175 * size, 1)


def make_outcome(
    task: Task, factor: float, cost_factor: float = 1.0, shrink: bool = False
) -> Outcome:
    """A method whose sets are `factor` times as long as top-k's at equal accuracy."""
    if task.method == "top-k":
        sizes = np.arange(1, 101, dtype=float)
        return _outcome("size", sizes, sizes, accuracy(sizes))
    if task.method == "cardinality-aware":
        factor = factor * (cost_factor if task.cost == "linear" else 1)
        sizes = np.geomspace(2, 17, len(task.weights))
        if task.family == "top-k" and set(task.weights) <= {0.05, 0.1}:  # one of a growing_sizes K
            doublings = len(task.members) if not shrink else 8 - len(task.members)
            sizes = np.full(len(task.weights), 2.0 * doublings)
        return _outcome("cost_weight", task.weights, sizes * factor, accuracy(sizes))
    share = {"LAC": 0.8, "Shortlister": 0.5, "Denis and Hebiri": 0.8}.get(task.method, 0.4)
    at = np.linspace(0.72, 0.99, 30)
    return _outcome("accuracy", at, share * (at - 0.7) / 0.0175, at)


def _outcome(name, parameter, sizes, accuracies) -> Outcome:
    return Outcome(name, list(parameter), list(accuracies), list(sizes), 1.0, 4_000, 100)


def results(factor: float, **more: object) -> Results:
    sources = Everywhere("nowhere", 4_000, 100, 100)
    names = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6"]
    figures = make_figures(names, sources, SCALE, KNOWN)
    outcomes = {
        task.seeded(seed): make_outcome(task, factor, **more)
        for figure in figures
        for task in figure.tasks()
        for seed in range(SCALE.seeds)
    }
    return Results(figures, outcomes, SCALE, KNOWN)


def finding_of(results: Results, words: str):
    """Return the finding whose claim contains some words."""
    (finding,) = [one for one in check_claims(results) if words in one.claim]
    return finding


@pytest.mark.parametrize(("factor", "verdict"), [(0.5, REPRODUCED), (0.8, NOT), (1.1, NOT)])
def test_half_at_98(factor, verdict):
    finding = finding_of(results(factor), "98% accuracy")
    assert finding.verdict == verdict
    line = next(x for x in finding.evidence if "CIFAR-10," in x and "{1, 2, 4, 8}" in x)
    assert f"where top-k has 16.00: {factor:.2f} ± 0.00 times" in line


@pytest.mark.parametrize(("factor", "verdict"), [(0.66, REPRODUCED), (0.9, NOT)])
def test_two_thirds_at_95(factor, verdict):
    finding = finding_of(results(factor), "95% accuracy")
    assert finding.verdict == verdict
    assert f"{factor:.2f} ± 0.00 times" in finding.evidence[0]


@pytest.mark.parametrize(("cost_factor", "verdict"), [(1.0, REPRODUCED), (0.9, NOT)])
def test_the_cost_is_negligible(cost_factor, verdict):
    finding = finding_of(results(0.7, cost_factor=cost_factor), "negligible")
    assert finding.verdict == verdict
    assert f"{cost_factor - 1:+.1%} in size" in finding.evidence[0]


@pytest.mark.parametrize(("factor", "verdict"), [(0.7, REPRODUCED), (1.2, NOT)])
def test_better_than_top_k(factor, verdict):
    finding = finding_of(results(factor), "At every K")
    assert finding.verdict == verdict
    share = "3 of 3" if factor < 1 else "0 of 3"
    assert share in finding.evidence[0]


@pytest.mark.parametrize(("shrink", "verdict"), [(False, REPRODUCED), (True, NOT)])
def test_growing_with_k(shrink, verdict):
    assert finding_of(results(0.7, shrink=shrink), "As K grows").verdict == verdict


def test_denis_and_hebiri_are_a_threshold():
    finding = finding_of(results(0.7), "Denis")
    assert finding.verdict == NOT
    assert "0.80 ± 0.00 times" in finding.evidence[0]


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.7, REPRODUCED), (0.798, NOT), (0.9, NOT)], ids=str
)
def test_conformal_is_beaten(factor, verdict):
    """LAC has 0.8 of top-k's labels; a difference below 1% does not count."""
    study = results(factor)
    assert finding_of(study, "enough data").verdict == verdict
    assert finding_of(study, "weak scoring").verdict == verdict


def test_a_claim_that_holds_for_some_data_holds_partly():
    half, whole = results(0.5), results(1.0)
    mixed = {
        task: (half if task.data == "cifar10" else whole).outcomes[task] for task in whole.outcomes
    }
    finding = finding_of(Results(whole.figures, mixed, SCALE, KNOWN), "98% accuracy")
    assert finding.verdict == PARTLY


def test_without_a_figure_nothing_is_claimed_of_it():
    whole = results(0.5)
    only = Results([whole.figure("fig3")], whole.outcomes, SCALE, KNOWN)
    assert [one.where for one in check_claims(only)] == ["fig1, fig3, fig4", "fig3"]
    assert check_claims(Results([], {}, SCALE, KNOWN)) == []
