"""The temperature with the shortest sets: by brute force, and without loss of the guarantee."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from registered_scores import VARIANTS
from scipy.special import softmax
from scipy.stats import binom
from sklearn.base import clone
from synthetic import draw, ragged

import shortlist as sl
from shortlist.conformal import ConformityScore
from shortlist.conformal.size_temperature import FACTORS, SHARES, mean_size, shortest_scale
from shortlist.predictors.splitting import hold_out

LIKELIHOOD = {"temperature": "auto", "calibration": None, "accuracy": 0.8}
SIZE = {**LIKELIHOOD, "temperature": "size"}


def spread(rows: int, n: int = 40, *, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Return logits of easy and hard rows; APS is long at their true temperature, 1."""
    return draw(rows, n, seed=seed)


def aps_size(logits: NDArray, y: NDArray, temperature: float, accuracy: float) -> float:
    """Return the mean size of APS sets that are never empty, calibrated with the same rows."""
    p = softmax(logits / temperature, axis=1)
    order = np.argsort(-p, axis=1)
    levels = -np.take_along_axis(p, order, axis=1).cumsum(axis=1)
    levels[:, 0] = math.inf
    rank = (order == y[:, None]).argmax(axis=1)
    own = np.sort(levels[np.arange(len(y)), rank])
    counts = np.arange(len(y) + 1)
    likely = [(binom.cdf(counts, len(y), 1 - accuracy) >= share).argmax() for share in SHARES]
    sizes = [(levels >= own[r - 1]).sum(axis=1).mean() for r in likely]
    return float(np.exp(np.log(sizes).mean()))


def test_the_temperature_by_brute_force():
    logits, y = spread(400)
    first = sl.SplitConformal("aps", **LIKELIHOOD).fit(logits, y).temperature_
    model = sl.SplitConformal("aps", **SIZE).fit(logits, y)
    sizes = {f: aps_size(logits, y, first / f, 0.8) for f in FACTORS}
    best = min(sizes, key=lambda f: sizes[f])
    assert sizes[best] < 0.9 * sizes[1.0]
    assert model.temperature_ == pytest.approx(first / best, rel=1e-6)


def own_size(model: sl.ConformalPredictor, scores: object, y: NDArray, x: object = None) -> float:
    """Return the mean size on rows that were learned from, which was minimized."""
    ranking = sl.Ranking.from_scores(scores) if isinstance(scores, np.ndarray) else scores
    features = None if x is None else torch.from_numpy(x)
    index = torch.from_numpy(y)
    return mean_size(model._level_function(), ranking, index, features, model.accuracy)


@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_sets_are_never_longer_on_the_rows_that_choose(name, randomized):
    shorter = 0
    for seed in range(3):
        logits, y = spread(199, seed=seed)
        before, after = (
            own_size(sl.SplitConformal(name, randomized=randomized, **p).fit(logits, y), logits, y)
            for p in (LIKELIHOOD, SIZE)
        )
        # The penalties of RAPS and SAPS are tuned for one threshold, not for several.
        assert after <= before * (1.03 if name in ("raps", "saps") else 1)
        shorter += after < before
    assert shorter or name in ("topk", "raps", "saps")


@pytest.mark.parametrize("name", ["aps", "raps"])
def test_new_rows_get_shorter_sets(name):
    logits, y = spread(3000, seed=5)
    before, after = (
        sl.SplitConformal(name, penalty=0.001, k_reg=1, **options).fit(logits[:1000], y[:1000])
        for options in (LIKELIHOOD, SIZE)
    )
    sizes = [float(m.frontier(logits[1000:], y[1000:]).size_at(0.8)) for m in (before, after)]
    assert sizes[1] < 0.95 * sizes[0]


@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_the_guarantee_is_exact(name, randomized):
    """Over many draws of all rows, with as many that choose as rows that calibrate."""
    n_draws, n_rows, accuracy = 60, 78, 0.8  # alpha (39 + 1) = 8 is an integer.
    rates = []
    for seed in range(n_draws):
        logits, y = draw(n_rows + 100, 5, seed=seed, temperature=2.0)
        model = sl.SplitConformal(
            name,
            temperature="size",
            randomized=randomized,
            calibration=0.5,
            accuracy=accuracy,
            allow_empty=True,
            random_state=seed,
        ).fit(logits[:n_rows], y[:n_rows])
        sets = model.predict_set(logits[n_rows:])
        assert sets.guarantee.n_calibration == 39
        rates.append(sets.accuracy(y[n_rows:]))
    error = 3 * np.std(rates, ddof=1) / math.sqrt(n_draws)
    assert error < 0.04
    assert np.mean(rates) >= accuracy - error
    if name != "topk" or randomized:
        assert np.mean(rates) <= accuracy + 1 / 40 + error


def test_calibration_rows_do_not_choose():
    logits, y = spread(600)
    model = sl.SplitConformal("aps", temperature="size", random_state=4).fit(logits, y)
    learning, kept = hold_out(600, 0.75, seed=4)
    other_logits, other_y = logits.copy(), y.copy()
    other_logits[kept] = np.random.default_rng(0).normal(size=(450, 40)) * 9
    other_y[kept] = 0
    assert clone(model).fit(other_logits, other_y).temperature_ == model.temperature_
    alone = clone(model).set_params(calibration=None).fit(logits[learning], y[learning])
    assert alone.temperature_ == model.temperature_


def test_rows_without_information_keep_the_first_temperature():
    """Every first label is right, so that every temperature has sets of one label."""
    logits = np.tile([3.0, 1.0, 0.0], (50, 1))
    y = np.zeros(50, dtype=int)
    y[:10] = 1  # 20% of the labels are second.
    first, best = (
        sl.SplitConformal("aps", **{**options, "accuracy": 0.5}).fit(logits, y).temperature_
        for options in (LIKELIHOOD, SIZE)
    )
    assert first == best


def test_candidates():
    logits, y = spread(500)
    ranking = sl.Ranking.from_candidates(**ragged(logits, 6))
    first, best = (
        sl.SplitConformal("aps", **{**options, "accuracy": 0.6}).fit(ranking, y)
        for options in (LIKELIHOOD, SIZE)
    )
    assert min(abs(first.temperature_ / best.temperature_ - f) for f in FACTORS) < 1e-6
    assert own_size(best, ranking, y) <= own_size(first, ranking, y)


class _FeatureScore(ConformityScore):
    """Almost APS, times a function of a feature."""

    name = "test-feature"

    def levels(self, ranking, features=None):
        return -ranking.sorted_proba().cumsum(dim=1) * (1 + 0.01 * features[:, :1])


def test_a_score_of_ones_own_with_features():
    logits, y = spread(400)
    x = np.random.default_rng(1).uniform(0.1, 3, size=(400, 1))
    models = [
        sl.ConformalPredictor(_FeatureScore(), **options).fit(logits, y, x)
        for options in (LIKELIHOOD, SIZE)
    ]
    first, best = (own_size(model, logits, y, x) for model in models)
    assert best < first
    sets = models[1].calibrate(logits, y, x).predict_set(logits, x)
    assert sets.accuracy(y) >= 0.8


def test_only_some_rows_choose(monkeypatch):
    logits, y = spread(1000)
    function = sl.SplitConformal("aps", **LIKELIHOOD).fit(logits, y)._level_function()
    every, some = (
        (sl.Ranking.from_scores(logits[::step]), torch.from_numpy(y[::step])) for step in (1, 10)
    )
    expected = shortest_scale(function, *some, None, 0.8)
    assert expected != shortest_scale(function, *every, None, 0.8)
    monkeypatch.setattr("shortlist.conformal.size_temperature.TUNING_ROWS", 100)
    assert shortest_scale(function, *every, None, 0.8) == expected


def test_it_is_tuned_for_its_accuracy():
    assert sl.SplitConformal("aps", temperature="size").is_tuned
    assert sl.PlugInSelector(temperature="size").is_tuned
    assert not sl.SplitConformal("aps").is_tuned
    logits, y = spread(1000)
    temperatures = {
        sl.SplitConformal("aps", **{**SIZE, "accuracy": a}).fit(logits, y).temperature_
        for a in (0.6, 0.8, 0.9, 0.95, 0.99)
    }
    assert len(temperatures) > 1


def test_an_unknown_name():
    with pytest.raises(ValueError, match="temperature must be one of 'auto', 'size'; got 'sizes'"):
        sl.SplitConformal("aps", temperature="sizes").fit(*draw(100))
