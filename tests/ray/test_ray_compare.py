"""The table of methods on a cluster."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tables import CLASSES, SCORES, X, Y, candidates

import shortlist as sl
from shortlist.comparison import Measurement

pytestmark = pytest.mark.usefixtures("cluster")
METHODS = {
    "Shortlister": sl.Shortlister(max_epochs=2, progress=False),
    "LAC": sl.SplitConformal("lac"),
    "RAPS": sl.SplitConformal("raps"),
}


def without_times(found: sl.Comparison) -> list[Measurement]:
    return [
        dataclasses.replace(one, fit_seconds=0.0, predict_seconds=0.0) for one in found.measurements
    ]


def test_it_is_that_of_one_process(dense: Path) -> None:
    options = {"methods": METHODS, "accuracies": [0.8, 0.9], "stages": True, "max_epochs": 2}
    there = sl.ray.compare(dense, **options)
    here = sl.compare(SCORES, Y, X, **options)
    assert without_times(there) == without_times(here)
    assert list(there.curves) == list(here.curves)
    assert "LAC, re-scored" in there.curves or not there.models["Shortlister"].rescored_
    assert (there.summary, there.n_test) == (here.summary, here.n_test)
    assert there.at("LAC", 0.9).size > 1


def test_of_a_sample_of_candidates(listed: Path) -> None:
    few = {"LAC": METHODS["LAC"]}
    there = sl.ray.compare(listed, rows=5000, methods=few, accuracies=[0.5], n_classes=CLASSES)
    labels, scores = candidates(5)
    ranking = sl.Ranking.from_candidates(labels, scores, CLASSES)
    here = sl.compare(ranking, Y, methods=few, accuracies=[0.5])
    assert 0.27 * 5000 < there.n_test < 0.33 * 5000
    assert there.at("LAC", 0.5).size == pytest.approx(here.at("LAC", 0.5).size, rel=0.1)
