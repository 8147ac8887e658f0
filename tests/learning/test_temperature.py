"""Temperature scaling agrees with a scalar minimizer and with known temperatures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax
from synthetic import SCORE_TYPES, as_score_type, draw, ragged

import shortlist as sl
from shortlist.learning import temperature as module
from shortlist.learning.temperature import MAX_TEMPERATURE, fit_temperature


def reference_temperature(logs: NDArray, target: NDArray) -> float:
    """Compute the temperature by Brent's method."""

    def loss(log_t: float) -> float:
        return -log_softmax(logs / math.exp(log_t), axis=1)[np.arange(len(logs)), target].mean()

    limit = math.log(MAX_TEMPERATURE)
    return math.exp(minimize_scalar(loss, bounds=(-limit, limit), method="bounded").x)


@pytest.mark.parametrize("kind", SCORE_TYPES)
@pytest.mark.parametrize("temperature", [0.1, 0.7, 1.0, 2.5, 20.0])
def test_the_temperature_agrees_with_a_minimizer_and_the_true_one(temperature, kind):
    scores, y = draw(4000, seed=1)
    scores = as_score_type(temperature * scores, kind)
    if kind == "proba":
        scores = np.maximum(
            scores, math.exp(-30)
        )  # Smaller probabilities are replaced by this one.
    if kind == "log_proba":
        scores = np.maximum(scores, -30)
    result = fit_temperature(scores, y)
    logs = np.log(scores) if kind == "proba" else scores
    assert result == pytest.approx(reference_temperature(logs, y), rel=1e-4)
    if temperature < 3 or kind == "logits":
        assert result == pytest.approx(temperature, rel=0.1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_float_type(dtype):
    scores, y = draw(2000, seed=2, temperature=1.7)
    expected = fit_temperature(scores, y)
    assert fit_temperature(scores.astype(dtype), y) == pytest.approx(expected, rel=1e-3)
    tensor = torch.from_numpy(scores.astype(dtype))
    assert fit_temperature(tensor, torch.from_numpy(y)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("spread", [2e-2, 1.0, 1e3])
def test_logits_of_any_range(spread):
    """Logits far below the best one are not cut off."""
    scores, y = draw(3000, seed=3)
    result = fit_temperature(spread * scores, y)
    assert result == pytest.approx(
        min(spread * fit_temperature(scores, y), MAX_TEMPERATURE), rel=1e-3
    )


@pytest.mark.parametrize("kind", ["proba", "log_proba"])
def test_candidates_have_a_column_for_unlisted_labels(kind):
    scores, y = draw(2000, 12, seed=4)
    # The model is over-confident, and its scores are given as candidates.
    proba = as_score_type(2 * scores, "proba")
    candidates = ragged(proba, depth=5)
    candidates["scores"] = (
        np.log(candidates["scores"]) if kind == "log_proba" else candidates["scores"]
    )
    masses = np.where(
        candidates["labels"] >= 0, np.take_along_axis(proba, np.abs(candidates["labels"]), 1), 0
    )
    unlisted = 1 - masses.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        logs = np.log(np.hstack([masses, unlisted]))
    is_label = candidates["labels"] == y[:, None]
    target = np.where(is_label.any(axis=1), is_label.argmax(axis=1), 5)
    assert 100 < (target == 5).sum() < 1900
    logs[:, :5] = np.where(candidates["labels"] >= 0, logs[:, :5].clip(-30), -np.inf)
    logs[:, 5] = logs[:, 5].clip(-30)
    result = fit_temperature(sl.Ranking.from_candidates(**candidates), y)
    assert result == pytest.approx(reference_temperature(logs, target), rel=1e-3)


def test_logits_of_candidates_ignore_rows_with_other_labels():
    scores, y = draw(3000, 12, seed=5, temperature=2.0)
    candidates = ragged(scores, depth=4)
    ranking = sl.Ranking.from_candidates(**candidates)
    listed = np.isfinite(ranking.rank(y))
    assert 0.3 < listed.mean() < 0.95
    logs = np.where(candidates["labels"] >= 0, candidates["scores"], -np.inf)[listed]
    target = np.asarray(ranking.rank(y)[listed], dtype=int)
    result = fit_temperature(ranking, y, "logits")
    assert result == pytest.approx(reference_temperature(logs, target), rel=1e-3)
    assert result == pytest.approx(2.0, rel=0.15)
    assert fit_temperature(ranking[~listed], y[~listed], "logits") == 1.0


def test_padding_has_no_probability_at_any_temperature():
    """Rows of two candidates have the same temperature if another row has fifty."""
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
    with_padding = fit_temperature(
        sl.Ranking.from_candidates(wide, padded, n_classes=60), y, "logits"
    )
    assert alone == pytest.approx(20, rel=0.1)
    assert with_padding == pytest.approx(alone, rel=1e-3)


def test_temperatures_are_finite_if_the_likelihood_has_no_maximum():
    scores, _ = draw(500, seed=6)
    best, worst = scores.argmax(axis=1), scores.argmin(axis=1)
    assert 1 / MAX_TEMPERATURE * (1 - 1e-9) <= fit_temperature(scores, best) < 0.2
    assert 5 < fit_temperature(scores, worst) <= MAX_TEMPERATURE * (1 + 1e-9)
    assert math.isfinite(fit_temperature(np.zeros((50, 3)), np.zeros(50, dtype=int)))
    assert math.isfinite(fit_temperature(np.eye(3), [0, 1, 2]))
    assert math.isfinite(fit_temperature(np.eye(3), [1, 2, 0]))
    assert math.isfinite(fit_temperature(1e6 * scores, best))


def test_one_row():
    assert fit_temperature([[2.0, 0.0, 0.0]], [0]) < 1
    assert fit_temperature([[2.0, 0.0, 0.0]], [1]) > 1


def likelihood_root(scores: NDArray, y: NDArray) -> float:
    """Compute the temperature of all rows by bisection of the derivative, in float64."""
    logs = scores - scores.max(axis=1, keepdims=True)

    def derivative(scale: float) -> float:
        p = np.exp(scale * logs)
        return float(np.mean((p * logs).sum(1) / p.sum(1) - logs[np.arange(len(y)), y]))

    return 1 / brentq(derivative, 1 / MAX_TEMPERATURE, MAX_TEMPERATURE, xtol=1e-10)


def test_newton_finds_the_root_of_the_derivative():
    for seed, spread in ((0, 0.05), (1, 1.0), (2, 40.0)):
        scores, y = draw(1500, seed=seed)
        expected = likelihood_root(spread * scores, y)
        assert fit_temperature(spread * scores, y) == pytest.approx(expected, rel=2e-5)


def test_the_scores_are_limited(monkeypatch):
    scores, y = draw(4000, seed=7, temperature=1.5)
    rows = np.sort(np.random.default_rng(0).permutation(4000)[:1000])
    expected = fit_temperature(scores[rows], y[rows])
    skipped = np.setdiff1d(np.arange(4000), rows)
    scores[skipped], y[skipped] = 1e3, 0  # These rows would change the result.
    monkeypatch.setattr(module, "MAX_SCORES", 1000 * 8)
    assert fit_temperature(scores, y) == pytest.approx(expected, rel=1e-5)


def test_a_sample_is_as_precise_as_stated(monkeypatch):
    """The standard error of a sample is the stated one, also if the model is wrong."""
    monkeypatch.setattr(module, "MAX_STANDARD_ERROR", 0.04)
    monkeypatch.setattr(module, "PILOT_ROWS", 200)
    rows: list[int] = []
    compute = module._Likelihood.__init__

    def record(self, ranking, index, sample, *rest):
        rows.append(len(sample))
        compute(self, ranking, index, sample, *rest)

    monkeypatch.setattr(module._Likelihood, "__init__", record)
    all_scores, all_y = draw(60_000, seed=8, temperature=2.0)
    all_scores[:, 0] += 1  # No temperature corrects this.
    best = math.log(likelihood_root(all_scores, all_y))
    errors = []
    for first in range(0, 60_000, 2000):
        part = slice(first, first + 2000)
        rows.clear()
        errors.append(math.log(fit_temperature(all_scores[part], all_y[part])) - best)
        assert rows[0] == 200
        assert 200 < rows[1] < 2000
    # The relative standard error of a standard deviation of 30 numbers is 13%.
    assert 0.6 * 0.04 < np.std(errors) < 1.4 * 0.04
    assert abs(np.mean(errors)) < 3 * 0.04 / math.sqrt(30)


def test_the_order_of_the_rows_does_not_select_the_sample():
    """Every tenth row has another distribution, which a sample of every tenth row would miss."""
    scores, y = draw(400_000, 3, seed=9)
    scores[::10] *= 4
    scores = scores.astype(np.float32)
    expected = likelihood_root(scores, y)
    assert fit_temperature(scores, y) == pytest.approx(expected, rel=4 * module.MAX_STANDARD_ERROR)


def test_blocks_and_threads_do_not_change_the_temperature(monkeypatch):
    scores, y = draw(9000, seed=8)
    whole = fit_temperature(scores, y)
    monkeypatch.setenv("SHORTLIST_THREADS", "3")
    assert fit_temperature(scores, y) == whole
    monkeypatch.setattr(module, "CACHED_ELEMENTS", 50 * 8)
    assert fit_temperature(scores, y) == pytest.approx(whole, rel=1e-6)


def test_class_names_score_types_and_no_grad():
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
