"""Comparisons and reports accept scores and predictors that are defined outside the package."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from synthetic import draw

import shortlist as sl
from shortlist.conformal import RAPS, ClassConditional, ConformityScore
from shortlist.html_report.content import make_content
from shortlist.html_report.prose import guarantee_basis


class Odds(ConformityScore):
    """Score a label by its odds against the first label of the ranking."""

    def __init__(self, power: float = 1.0) -> None:
        self.power = power

    def levels(self, ranking: sl.Ranking, features: torch.Tensor | None = None) -> torch.Tensor:
        p = ranking.sorted_proba()
        return (p / p[:, :1]) ** self.power


class AtLeast(sl.SetPredictor):
    """Predict all labels with at least a minimum probability, with a guarantee."""

    def __init__(self, minimum: float = 0.1, score_type: str = "proba") -> None:
        self.minimum = minimum
        self.score_type = score_type

    def fit(self, scores: Any, y: Any, features: Any = None, *, classes: Any = None) -> AtLeast:
        ranking, _, score_type = self._validate_fit(scores, y, classes)
        self._finalize_fit(ranking, score_type)
        return self

    def calibrate(self, scores: Any, y: Any, features: Any = None) -> AtLeast:
        ranking, index = self._validate_labeled(scores, y)
        self.levels_ = np.sort(_label_levels(ranking, index))
        return self

    @property
    def n_calibration(self) -> int:
        return len(getattr(self, "levels_", []))

    def _sets(self, ranking: sl.Ranking, threshold: float) -> sl.PredictionSets:
        p = np.asarray(ranking.scores_of(slice(None)))
        labels = [np.flatnonzero(row >= min(threshold, row.max())).tolist() for row in p]
        return sl.PredictionSets.from_lists(labels, n_classes=ranking.n_classes)

    def predict_set(
        self, scores: Any, features: Any = None, *, accuracy: float | None = None
    ) -> sl.PredictionSets:
        ranking = self._validate_scores(scores)
        if accuracy is None:
            return self._sets(ranking, self.minimum)
        rank = math.floor((1 - accuracy) * (self.n_calibration + 1))
        if rank < 1:
            raise sl.conformal.UnreachableError("too few calibration rows")
        return self._sets(ranking, float(self.levels_[rank - 1]))

    def frontier(self, scores: Any, y: Any, features: Any = None) -> sl.Frontier:
        ranking = self._validate_scores(scores)
        minima = np.geomspace(0.5, 1e-4, 40)
        sets = [self._sets(ranking, m) for m in minima]
        accuracy, size = ([s.accuracy(y) for s in sets], [s.mean_size for s in sets])
        return sl.Frontier(accuracy, size, minima, "minimum", "at least")


def _label_levels(ranking: sl.Ranking, index: torch.Tensor) -> NDArray[np.float64]:
    """Return the probability of each row's label, or infinity if it is the row's maximum."""
    p = np.asarray(ranking.scores_of(slice(None)))
    label_p = p[np.arange(len(p)), index.numpy()]
    return np.where(label_p >= p.max(axis=1), np.inf, label_p)


def draw_proba(n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    scores, y = draw(n, n=6, seed=seed)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), y


METHODS: dict[str, sl.SetPredictor] = {
    "odds": sl.ConformalPredictor(Odds()),
    "odds by class": sl.ConformalPredictor(Odds(power=2), ClassConditional()),
    "RAPS": sl.ConformalPredictor(RAPS()),
    "at least": AtLeast(),
}


@pytest.fixture(scope="module")
def comparison() -> sl.Comparison:
    test = (*draw_proba(500, 2), None)
    return sl.compare(*draw_proba(1200, 1), test=test, methods=METHODS, accuracies=[0.8, 0.9])


@pytest.mark.parametrize("name", METHODS)
def test_measurements_are_those_of_predict_set(name: str, comparison: sl.Comparison) -> None:
    scores, y = draw_proba(500, 2)
    for accuracy in comparison.accuracies:
        measurement = comparison.at(name, accuracy)
        model: Any = comparison.fitted[name].models[accuracy]
        sets = model.predict_set(scores, accuracy=accuracy)
        assert measurement.guaranteed_accuracy == sets.accuracy(y)
        assert measurement.guaranteed_size == sets.mean_size
        error = math.sqrt(accuracy * (1 - accuracy) * (1 / 300 + 1 / 500))
        assert measurement.guaranteed_accuracy > accuracy - 4 * error
        assert 1 <= measurement.size < 6
    assert name in repr(comparison)


def test_a_score_inside_a_predictor_is_tuned_for_each_accuracy(comparison: sl.Comparison) -> None:
    models = comparison.fitted["RAPS"].models
    assert models[0.8] is not models[0.9]
    for accuracy, model in models.items():
        assert model.get_params()["score__accuracy"] == accuracy
    assert not METHODS["odds"].is_tuned
    assert not sl.ConformalPredictor(RAPS(penalty=0.1, k_reg=2)).is_tuned


def test_a_report_shows_own_methods(comparison: sl.Comparison) -> None:
    content = make_content(comparison)
    basis = {method.name: guarantee_basis(method.guarantee) for method in content.methods}
    assert basis["odds"] == "by 300 calibration rows"
    assert basis["odds by class"] == "for each class by 300 calibration rows"
    start, y = content.start, draw_proba(500, 2)[1]
    for method in content.methods:
        model: Any = comparison.fitted[method.name].model(content.accuracies[start])
        sets = model.predict_set(draw_proba(500, 2)[0], accuracy=content.accuracies[start])
        point = method.points[method.at[start]]
        assert point.guaranteed
        assert (point.hits, point.labels) == (sets.contains(y).sum(), sets.sizes.sum())
        assert (method.order is None) == (method.name in ("odds by class", "at least"))


@pytest.mark.parametrize("name", METHODS)
def test_a_fitted_model_reports_and_plots(
    name: str, comparison: sl.Comparison, tmp_path: Path
) -> None:
    model: Any = comparison.models[name]
    scores, y = draw_proba(500, 2)
    path = model.report(scores, y, path=tmp_path / "report.html")
    source = path.read_text(encoding="utf-8")
    match = re.search(r'id="data">(.*?)</script>', source, flags=re.S)
    assert match is not None
    first, reference = json.loads(match[1])["methods"]
    assert reference["name"] == "sets of one size"
    assert first["name"] in ("Odds", "raps", "at least")
    assert any(point["guaranteed"] for point in first["points"])
    ax = model.plot_guarantee(scores, y, accuracies=[0.8, 0.9])
    expected = [model.predict_set(scores, accuracy=a).accuracy(y) for a in (0.8, 0.9)]
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), expected)


def test_calibrate_must_change_n_calibration() -> None:
    class NoCount(AtLeast):
        n_calibration = 0  # type: ignore[assignment]

    message = "NoCount.n_calibration is 0 after calibrate; override"
    with pytest.raises(ValueError, match=message):
        sl.compare(*draw_proba(100, 1), methods={"no count": NoCount()})
