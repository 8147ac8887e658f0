"""Measurements equal those of each method that is fitted without `compare`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compared_methods import ComparedMethods
from numpy.typing import NDArray
from small_methods import (
    GUARANTEED_FIELDS,
    N_CLASSES,
    conformal,
    draw_candidates,
    draw_rows,
    only_lac,
    shortlister,
)

import shortlist as sl
from shortlist import metrics
from shortlist.comparison import ACCURACIES

METHODS = ["Shortlister", "top-k", "LAC", "APS", "RAPS", "SAPS", "plug-in", "path", "fixed"]


@pytest.mark.parametrize("name", METHODS)
def test_sizes_are_those_of_the_frontier(name: str, compared: ComparedMethods) -> None:
    for accuracy in compared.comparison.accuracies:
        curve = compared.fit_by_hand(name, accuracy).frontier(*compared.test)
        assert compared.comparison.at(name, accuracy).size == curve.size_at(accuracy) > 0


@pytest.mark.parametrize("name", [name for name in METHODS if name != "fixed"])
def test_guaranteed_fields_are_those_of_predict_set(name: str, compared: ComparedMethods) -> None:
    scores, y, x = compared.test
    n_reachable = 0
    for accuracy in compared.comparison.accuracies:
        measurement = compared.comparison.at(name, accuracy)
        model = compared.fit_by_hand(name, accuracy)
        try:
            sets = model.predict_set(scores, x, accuracy=accuracy)
        except sl.conformal.UnreachableError:
            assert math.isnan(measurement.guaranteed_accuracy)
            continue
        n_reachable += 1
        assert measurement.guaranteed_accuracy == metrics.accuracy(sets, y)
        assert measurement.guaranteed_size == metrics.mean_size(sets)
        violation = metrics.size_stratified_violation(sets, y, accuracy)
        assert measurement.size_stratified_violation == violation
        assert measurement.worst_class == min(metrics.class_accuracy(sets, y))
        assert measurement.single_share == metrics.single_share(sets)
        assert measurement.predict_seconds >= 0
    assert n_reachable


def test_the_worst_class_has_test_rows() -> None:
    scores, y, _ = draw_rows(300, 1)
    test_scores, test_y, _ = draw_rows(100, 2)
    others = test_y != 3
    test = (test_scores[others], test_y[others])
    comparison = sl.compare(scores, y, test=test, accuracies=[0.9], methods=only_lac())
    assert 0 < comparison.measurements[0].worst_class < 1


def test_lac_has_smaller_sets_than_top_k_on_true_probabilities() -> None:
    data = sl.datasets.gaussian(4000)
    methods = {"top-k": conformal("topk"), "LAC": conformal()}
    comparison = sl.compare(data.posterior, data.y, methods=methods)
    for accuracy in ACCURACIES:
        lac, top_k = comparison.at("LAC", accuracy), comparison.at("top-k", accuracy)
        assert 1 < lac.size < top_k.size
        assert 1 < lac.guaranteed_size < top_k.guaranteed_size
        for measurement in (lac, top_k):
            assert measurement.guaranteed_accuracy > accuracy - 0.03
    sizes = [comparison.at("LAC", accuracy).size for accuracy in ACCURACIES]
    assert sizes == sorted(sizes)


def _fitted_parameters(model: sl.SetPredictor) -> dict[str, object]:
    score = model.score_  # type: ignore[attr-defined]
    return {name: value for name, value in vars(score).items() if name.endswith("_")}


@pytest.mark.parametrize("name", ["RAPS", "SAPS"])
def test_raps_and_saps_are_tuned_for_each_accuracy(name: str, compared: ComparedMethods) -> None:
    comparison = compared.comparison
    models = {accuracy: compared.fit_by_hand(name, accuracy) for accuracy in comparison.accuracies}
    low, high = (_fitted_parameters(model) for model in models.values())
    assert low != high, "the accuracies must be far enough apart to need different parameters"
    curves = {accuracy: model.frontier(*compared.test) for accuracy, model in models.items()}
    for accuracy, curve in curves.items():
        assert comparison.at(name, accuracy).size == curve.size_at(accuracy)
    # The curve of the method has the points of all models, hence the best size at each accuracy.
    for accuracy in np.linspace(0.6, 0.99, 20):
        best = min(curve.size_at(accuracy) for curve in curves.values())
        assert comparison.curves[name].size_at(accuracy) <= best + 1e-12
    assert len(comparison.curves[name]) == sum(map(len, curves.values()))


def test_accuracies_that_cannot_be_guaranteed_are_nan() -> None:
    # There are 15 calibration rows. An accuracy of 0.9 needs 9 of them, and 0.95 needs 19.
    comparison = sl.compare(*draw_rows(60, 1), test=draw_rows(80, 2), methods=only_lac())
    reachable, unreachable = comparison.at("LAC", 0.9), comparison.at("LAC", 0.95)
    assert reachable.guaranteed_accuracy > 0.8
    assert all(math.isnan(getattr(unreachable, name)) for name in GUARANTEED_FIELDS)
    assert unreachable.size >= reachable.size >= 1
    assert unreachable.fit_seconds >= 0


def test_accuracies_that_candidates_do_not_reach_are_nan() -> None:
    candidates, y = draw_candidates(600, depth=3)
    methods = {"Shortlister": shortlister(), "LAC": conformal(), "fixed": sl.FixedSelector()}
    comparison = sl.compare(candidates, y, methods=methods, accuracies=[0.5, 0.99])
    for name in methods:
        assert 1 <= comparison.at(name, 0.5).size <= 3
        assert math.isnan(comparison.at(name, 0.99).size)
        assert math.isnan(comparison.at(name, 0.99).guaranteed_size)
    assert 1 <= comparison.at("LAC", 0.5).guaranteed_size <= 3


def test_methods_without_a_guarantee_have_a_size_only() -> None:
    def same_parity(ranking: sl.Ranking) -> NDArray[np.bool_]:
        group = np.arange(ranking.n_classes) % 2
        return group[None] == group[ranking.labels[:, :1]]

    def all_labels(ranking: sl.Ranking) -> NDArray[np.bool_]:
        return np.ones((len(ranking), ranking.n_classes), dtype=bool)

    methods = {
        "fixed": sl.FixedSelector(),
        "one cost weight": sl.CardinalitySelector(inputs="both", width=4, max_epochs=1),
        "not nested": sl.PlugInSelector(sl.Custom.from_masks(same_parity, all_labels)),
    }
    frame = sl.compare(*draw_rows(200, 1), methods=methods, accuracies=[0.5]).to_frame()
    assert frame[GUARANTEED_FIELDS].isna().all(axis=None)
    assert frame["size"].between(1, N_CLASSES).all()
