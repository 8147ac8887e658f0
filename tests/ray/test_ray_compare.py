"""Comparisons on a cluster have the results of a single process."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tables import N_CLASSES, SCORES, X, Y, candidates

import shortlist as sl
from shortlist.comparison import Measurement

pytestmark = pytest.mark.usefixtures("cluster")
METHODS = {
    "Shortlister": sl.Shortlister(max_epochs=2, folds=2, width=32, progress=False),
    "LAC": sl.SplitConformal("lac"),
    "RAPS": sl.SplitConformal("raps"),
}


def without_times(comparison: sl.Comparison) -> list[Measurement]:
    return [
        dataclasses.replace(one, fit_seconds=0.0, predict_seconds=0.0)
        for one in comparison.measurements
    ]


def test_results_are_those_of_one_process(dense: Path) -> None:
    options = {"methods": METHODS, "accuracies": [0.8, 0.9], "stages": True, "max_epochs": 2}
    on_cluster = sl.ray.compare(dense, **options)
    here = sl.compare(SCORES, Y, X, **options)
    assert without_times(on_cluster) == without_times(here)
    assert list(on_cluster.curves) == list(here.curves)
    assert "LAC, re-scored" in on_cluster.curves or not on_cluster.models["Shortlister"].rescored_
    assert (on_cluster.summary, on_cluster.n_test) == (here.summary, here.n_test)
    assert on_cluster.at("LAC", 0.9).size > 1


def test_a_sample_of_candidates(listed: Path) -> None:
    methods = {"LAC": METHODS["LAC"]}
    options = {"methods": methods, "accuracies": [0.5]}
    on_cluster = sl.ray.compare(listed, rows=5000, n_classes=N_CLASSES, **options)
    labels, scores = candidates(5)
    here = sl.compare(sl.Ranking.from_candidates(labels, scores, N_CLASSES), Y, **options)
    assert 0.27 * 5000 < on_cluster.n_test < 0.33 * 5000
    assert on_cluster.at("LAC", 0.5).size == pytest.approx(here.at("LAC", 0.5).size, rel=0.1)
