"""Temperature scaling against a scalar minimiser, and on scores whose temperature is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from synthetic import SCORE_TYPES, as_score_type, draw, ragged

import shortlist as sl
from shortlist.learning import temperature as module
from shortlist.learning.temperature import MAX_TEMPERATURE, fit_temperature


def minimised(logs: NDArray, target: NDArray) -> float:
    """The temperature by Brent's method."""

    def loss(log_t: float) -> float:
        return -log_softmax(logs / math.exp(log_t), axis=1)[np.arange(len(logs)), target].mean()

    limit = math.log(MAX_TEMPERATURE)
    return math.exp(minimize_scalar(loss, bounds=(-limit, limit), method="bounded").x)


@pytest.mark.parametrize("kind", SCORE_TYPES)
@pytest.mark.parametrize("temperature", [0.1, 0.7, 1.0, 2.5, 20.0])
def test_the_temperature_is_the_minimisers_and_the_true_one(temperature, kind):
    scores, y = draw(4000, seed=1)
    scores = as_score_type(temperature * scores, kind)
    if kind == "proba":
        scores = np.maximum(scores, math.exp(-30))  # where the logarithm is floored
    if kind == "log_proba":
        scores = np.maximum(scores, -30)
    found = fit_temperature(scores, y)
    logs = np.log(scores) if kind == "proba" else scores
    assert found == pytest.approx(minimised(logs, y), rel=1e-4)
    if temperature < 3 or kind == "logits":
        assert found == pytest.approx(temperature, rel=0.1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_float_type(dtype):
    scores, y = draw(2000, seed=2, temperature=1.7)
    expected = fit_temperature(scores, y)
    assert fit_temperature(scores.astype(dtype), y) == pytest.approx(expected, rel=1e-3)
    tensor = torch.from_numpy(scores.astype(dtype))
    assert fit_temperature(tensor, torch.from_numpy(y)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("spread", [2e-2, 1.0, 1e3])
def test_logits_of_any_range(spread):
    """No logit is cut off, however far below the best."""
    scores, y = draw(3000, seed=3)
    found = fit_temperature(spread * scores, y)
    assert found == pytest.approx(
        min(spread * fit_temperature(scores, y), MAX_TEMPERATURE), rel=1e-3
    )


@pytest.mark.parametrize("kind", ["proba", "log_proba"])
def test_candidates_have_one_more_label(kind):
    scores, y = draw(2000, 12, seed=4)
    # A model that is surer than it should be, given as lists.
    proba = as_score_type(2 * scores, "proba")
    lists = ragged(proba, depth=5)
    lists["scores"] = np.log(lists["scores"]) if kind == "log_proba" else lists["scores"]
    masses = np.where(
        lists["labels"] >= 0, np.take_along_axis(proba, np.abs(lists["labels"]), 1), 0
    )
    rest = 1 - masses.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        logs = np.log(np.hstack([masses, rest]))
    at = lists["labels"] == y[:, None]
    target = np.where(at.any(axis=1), at.argmax(axis=1), 5)
    assert 100 < (target == 5).sum() < 1900
    logs[:, :5] = np.where(lists["labels"] >= 0, logs[:, :5].clip(-30), -np.inf)
    logs[:, 5] = logs[:, 5].clip(-30)
    found = fit_temperature(sl.Ranking.from_candidates(**lists), y)
    assert found == pytest.approx(minimised(logs, target), rel=1e-3)


def test_logits_of_candidates_ignore_rows_with_other_labels():
    scores, y = draw(3000, 12, seed=5, temperature=2.0)
    lists = ragged(scores, depth=4)
    ranking = sl.Ranking.from_candidates(**lists)
    listed = np.isfinite(ranking.rank(y))
    assert 0.3 < listed.mean() < 0.95
    logs = np.where(lists["labels"] >= 0, lists["scores"], -np.inf)[listed]
    target = np.asarray(ranking.rank(y)[listed], dtype=int)
    found = fit_temperature(ranking, y, "logits")
    assert found == pytest.approx(minimised(logs, target), rel=1e-3)
    assert found == pytest.approx(2.0, rel=0.15)
    assert fit_temperature(ranking[~listed], y[~listed], "logits") == 1.0


def test_padding_has_no_probability_at_any_temperature():
    """Lists of two among lists of fifty have the temperature that they have alone."""
    rng = np.random.default_rng(0)
    scores = np.sort(rng.normal(size=(2000, 2)) * 20, axis=1)[:, ::-1]
    labels = np.tile([0, 1], (2000, 1))
    y = (rng.random(2000) > 1 / (1 + np.exp(-(scores[:, 0] - scores[:, 1]) / 20))).astype(int)
    alone = fit_temperature(sl.Ranking.from_candidates(labels, scores, n_classes=60), y, "logits")
    wide = np.full((2000, 50), -1)
    wide[:, :2] = labels
    wide[0] = np.arange(50)
    padded = np.zeros((2000, 50))
    padded[:, :2] = scores
    padded[0, 2:] = -1e3
    together = fit_temperature(sl.Ranking.from_candidates(wide, padded, n_classes=60), y, "logits")
    assert alone == pytest.approx(20, rel=0.1)
    assert together == pytest.approx(alone, rel=1e-3)


def test_where_the_likelihood_has_no_maximum():
    scores, _ = draw(500, seed=6)
    right, wrong = scores.argmax(axis=1), scores.argmin(axis=1)
    assert 1 / MAX_TEMPERATURE * (1 - 1e-9) <= fit_temperature(scores, right) < 0.2
    assert 5 < fit_temperature(scores, wrong) <= MAX_TEMPERATURE * (1 + 1e-9)
    assert math.isfinite(fit_temperature(np.zeros((50, 3)), np.zeros(50, dtype=int)))
    assert math.isfinite(fit_temperature(np.eye(3), [0, 1, 2]))
    assert math.isfinite(fit_temperature(np.eye(3), [1, 2, 0]))
    assert math.isfinite(fit_temperature(1e6 * scores, right))


def test_one_row():
    assert fit_temperature([[2.0, 0.0, 0.0]], [0]) < 1
    assert fit_temperature([[2.0, 0.0, 0.0]], [1]) > 1


def test_many_rows_are_subsampled(monkeypatch):
    scores, y = draw(4000, seed=7, temperature=1.5)
    scores[1::4], y[1::4] = 1e3, 0  # rows that would spoil it
    scores[2::4], y[2::4] = 1e3, 0
    scores[3::4], y[3::4] = 1e3, 0
    expected = fit_temperature(scores[::4], y[::4])
    monkeypatch.setattr(module, "MAX_SCORES", 4000 * 8 // 4)
    assert fit_temperature(scores, y) == expected


def test_blocks_make_no_difference(monkeypatch):
    scores, y = draw(1000, seed=8)
    whole = fit_temperature(scores, y)
    blocks = module.row_blocks
    monkeypatch.setattr(
        module, "row_blocks", lambda rows, width, _: blocks(rows, width, elements=50 * width)
    )
    assert fit_temperature(scores, y) == pytest.approx(whole, rel=1e-6)


def test_names_kinds_and_gradients():
    scores, y = draw(200, 3, seed=9)
    expected = fit_temperature(scores, y)
    with torch.no_grad():
        assert fit_temperature(scores, y) == expected
    named = sl.Ranking.from_scores(scores, classes=["a", "b", "c"])
    assert fit_temperature(named, np.array(["a", "b", "c"])[y]) == expected
    with pytest.raises(ValueError, match="'proba', but the scores run from"):
        fit_temperature(scores, y, "proba")
    with pytest.raises(ValueError, match="199 labels, but the scores have 200 rows"):
        fit_temperature(scores, y[1:])
