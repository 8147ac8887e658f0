"""The plug-in rule, compared with enumeration and with LAC."""

from __future__ import annotations

import math
import pickle
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from synthetic import SCORE_TYPES, as_score_type, draw, in_64ths, ragged

import shortlist as sl
from shortlist.conformal.quantiles import UnreachableError

COSTS = {
    "log": lambda s: math.log(s) if s else 0.0,
    "linear": float,
    "table": lambda s: [0.0, 0.5, 0.5, 0.75, 3.0, 3.5][s - 1] if s else 0.0,
}
TABLE = [0.0, 0.5, 0.5, 0.75, 3.0, 3.5]


def pairs(width: int):
    """Return the best label and its neighbors, which are not a prefix."""

    def masks(ranking: sl.Ranking) -> np.ndarray:
        columns = np.arange(ranking.n_classes)
        return np.abs(columns - np.asarray(ranking.labels)[:, :1]) <= width

    return masks


FAMILIES = {
    "dense": None,
    "topk": sl.TopK([1, 3, 6]),
    "threshold": sl.Threshold([0.4, 0.2, 0.1, 0.05, 0.01]),
    "conformal": sl.Conformal("aps", [0.5, 0.8, 0.9]),
    "custom": sl.Custom.from_masks(pairs(0), pairs(1), pairs(2)),
}


def bayes(p: list[float], sets: list[list[int]], cost, weight: float) -> set[float]:
    """Return the sizes of the sets with the smallest expected loss, up to rounding."""
    losses = [1 - math.fsum(p[label] for label in s) + weight * cost(len(s)) for s in sets]
    return {len(s) for s, loss in zip(sets, losses, strict=True) if loss < min(losses) + 1e-9}


@pytest.mark.parametrize("weight", [0.0, 0.003, 0.05, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_choice_by_enumeration(family, cost, weight):
    p, y = as_score_type(draw(250, 6, seed=1)[0], "proba"), draw(250, 6, seed=1)[1]
    model = sl.PlugInSelector(
        FAMILIES[family], TABLE if cost == "table" else cost, weight, temperature=2.0
    ).fit(p[:200], y[:200])
    tempered = np.sqrt(p[200:])
    tempered /= tempered.sum(axis=1, keepdims=True)
    sets = model.predict_set(p[200:])
    ranking = sl.Ranking.from_scores(p[200:])
    members = [
        model.family_.select(ranking, torch.full((len(ranking),), k)).labels()
        for k in range(len(model.family_))
    ]
    for i, got in enumerate(sets.labels()):
        options = [member[i] for member in members]
        best = bayes(tempered[i].tolist(), options, COSTS[cost], weight)
        assert len(got) == max(best)  # ties to the larger set
        assert got in options
    assert str(sets.guarantee) == f"cost_weight = {weight:g}; no accuracy is guaranteed"
    assert model.temperature_ == 2.0


@given(st.integers(2, 6), st.integers(0, 12), st.integers(0, 500))
@settings(max_examples=60, deadline=None)
def test_exact_ties_go_to_the_larger_set(n, sixtyfourths, seed):
    p, y = in_64ths(20, n, seed)
    weight = sixtyfourths / 64
    model = sl.PlugInSelector(None, "linear", weight, temperature=None, score_type="proba")
    sizes = model.fit(p, y).predict_set(p).sizes
    for row, size in zip(p.tolist(), sizes, strict=True):
        # In logarithms and back a probability may lose its last digits.
        first = sorted(row, reverse=True)[1:]
        assert 1 + sum(v > weight + 1e-9 for v in first) <= size
        assert size <= 1 + sum(v >= weight - 1e-9 for v in first)


@given(
    st.sampled_from(["dense", "topk", "threshold", "conformal"]),
    st.sampled_from(["log", "linear"]),
    st.lists(st.floats(0, 2), min_size=2, max_size=6),
    st.integers(0, 100),
)
@settings(max_examples=60, deadline=None)
def test_sets_grow_as_the_cost_weight_falls(family, cost, weights, seed):
    scores, y = draw(60, 6, seed=seed)
    scores = as_score_type(scores, "proba")
    model = sl.PlugInSelector(FAMILIES[family], cost).fit(scores, y)
    before = None
    for weight in sorted(weights, reverse=True):
        sets = model.predict_set(scores, cost_weight=weight).labels()
        if before is not None:
            assert all(new[: len(old)] == old for old, new in zip(before, sets, strict=True))
        before = sets


@pytest.mark.parametrize("allow_empty", [True, False])
@pytest.mark.parametrize("kind", SCORE_TYPES)
def test_with_every_size_and_linear_cost_it_is_lac(kind, allow_empty):
    scores, y = draw(1500, 9, seed=2, temperature=1.5)
    scores = as_score_type(scores, kind)
    settings_ = {"allow_empty": allow_empty, "temperature": 1.4}
    lac = sl.SplitConformal("lac", **settings_).fit(scores[:1000], y[:1000])
    plug = sl.PlugInSelector(calibration=0.5, **settings_).fit(scores[:100], y[:100])
    plug.calibrate(scores[:1000], y[:1000])
    for accuracy in (0.5, 0.8, 0.9, 0.98):
        a, b = (m.predict_set(scores[1000:], accuracy=accuracy) for m in (lac, plug))
        assert (
            str(a.guarantee)
            == str(b.guarantee)
            == f"accuracy >= {accuracy} guaranteed by 1,000 calibration rows"
        )
        assert (a.sizes == b.sizes).mean() > 0.995
        assert np.abs(np.asarray(a.sizes) - b.sizes).max() <= 1


def test_the_temperature_is_fitted_on_the_rows_that_do_not_calibrate():
    scores, y = draw(800, seed=3, temperature=3.0)
    model = sl.PlugInSelector(calibration=0.5, random_state=2).fit(scores, y)
    assert model.temperature_ == pytest.approx(3.0, rel=0.3)
    assert "400 calibration rows" in str(model.predict_set(scores, accuracy=0.9).guarantee)
    assert sl.PlugInSelector(temperature=None).fit(scores, y).temperature_ == 1.0
    all_rows = sl.PlugInSelector().fit(scores, y)
    assert all_rows.temperature_ == pytest.approx(sl.fit_temperature(scores, y))
    with pytest.raises(ValueError, match="this model is not calibrated"):
        all_rows.predict_set(scores, accuracy=0.9)


@pytest.mark.parametrize("kind", SCORE_TYPES)
@pytest.mark.parametrize("family", [None, sl.Threshold([0.4, 0.1, -1, -3]), FAMILIES["custom"]])
def test_candidates(family, kind):
    """Sets contain candidates only, and do not depend on the batch."""
    scores, y = draw(300, 12, seed=4)
    ranking = sl.Ranking.from_candidates(**ragged(as_score_type(scores, kind), depth=5))
    model = sl.PlugInSelector(family, "linear", 0.05, score_type=kind)
    model.fit(ranking[:250], y[:250])
    new = ranking[250:]
    sets = model.predict_set(new)
    if model.family_.nested:
        assert (sets.sizes <= new.lengths().numpy()).all()
    assert len(set(sets.sizes.tolist())) > 1
    for i in range(50):
        assert model.predict_set(new[[i]]).labels() == [sets.labels()[i]]


def test_mass_outside_the_candidates_is_no_gain():
    """Half of the mass is outside the candidates, so that longer sets do not gain it."""
    ranking = sl.Ranking.from_candidates([[3, 1, 0]] * 4, [[0.25, 0.125, 0.125]] * 4, n_classes=9)
    model = sl.PlugInSelector(temperature=None).fit(ranking, [3, 1, 0, 8])
    sizes = [model.predict_set(ranking, cost_weight=w).sizes[0] for w in (0.2, 0.13, 0.12, 0.0)]
    assert sizes == [1, 1, 3, 3]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_one_row_at_a_time(family, dtype):
    scores, y = draw(300, 6, seed=5)
    scores[100:] = scores[100:].round()
    p = as_score_type(scores, "proba").astype(dtype)
    model = sl.PlugInSelector(FAMILIES[family], "log", 0.1, score_type="proba")
    model.fit(p[:200], y[:200])
    batch = model.predict_set(p[200:])
    for i in range(200, 300):
        assert model.predict_set(p[i : i + 1]).labels() == [batch.labels()[i - 200]]


def test_all_operating_points_after_one_fit():
    scores, y = draw(2000, seed=6)
    model = sl.PlugInSelector(calibration=0.5).fit(scores[:1000], y[:1000])
    new, labels = scores[1000:], y[1000:]
    curve = model.frontier(new, labels)
    assert curve.parameter_name == "cost_weight"
    middle = len(curve) // 2
    sets = model.predict_set(new, cost_weight=curve.parameter[middle])
    assert sets.mean_size == pytest.approx(curve.mean_size[middle])
    assert sets.accuracy(labels) == curve.accuracy[middle]
    assert model.predict_set(new, mean_size=2.0).mean_size == pytest.approx(2.0, rel=0.1)
    assert model.predict_set(new, accuracy=0.9).accuracy(labels) > 0.87
    plain = clone(model).set_params(cost_weight=None, accuracy=0.8).fit(scores[:1000], y[:1000])
    assert "accuracy >= 0.8 guaranteed" in str(plain.predict_set(new).guarantee)
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_set(new, accuracy=0.9) == model.predict_set(new, accuracy=0.9)


def test_frontiers_of_families_that_are_not_nested():
    scores, y = draw(400, 6, seed=7)
    model = sl.PlugInSelector(FAMILIES["custom"]).fit(scores, y)
    curve = model.frontier(scores, y)
    at = 10
    sets = model.predict_set(scores, cost_weight=curve.parameter[at])
    assert (curve.mean_size[at], curve.accuracy[at]) == (sets.mean_size, sets.accuracy(y))
    assert curve.mean_size[0] < curve.mean_size[-1]
    for point in ({"accuracy": 0.9}, {"mean_size": 2.0}):
        with pytest.raises(ValueError, match=r"sets of Custom\(3\) are not nested"):
            model.predict_set(scores, **point)
    unfit = sl.PlugInSelector(FAMILIES["custom"], calibration=0.5)
    with pytest.raises(ValueError, match="are not nested"):
        unfit.fit(scores, y)
    with pytest.raises(NotFittedError):
        unfit.predict_set(scores)


def test_a_family_whose_largest_set_is_too_small():
    scores, y = draw(400, 6, seed=8)
    model = sl.PlugInSelector(sl.TopK([1, 2]), calibration=0.5, temperature=None)
    model.fit(scores, y)
    with pytest.raises(UnreachableError, match="or in the largest set"):
        model.predict_set(scores, accuracy=0.97)
    model.set_params(on_unreachable="all")
    assert model.predict_set(scores, accuracy=0.97).sizes.tolist() == [6] * 400


@pytest.mark.parametrize(
    ("parameters", "point", "message"),
    [
        ({"cost_weight": -1}, {}, "cost_weight must be finite and not negative; got -1"),
        ({"temperature": "hot"}, {}, "temperature must be one of 'auto', 'size'; got 'hot'"),
        ({"temperature": 0}, {}, "temperature must be positive; got 0"),
        ({"family": [1, 2]}, {}, "family must be a Family, such as TopK([1, 2, 4]); got [1, 2]"),
        ({"family": sl.TopK([1, 9])}, {}, "size 9, but there are only 6 classes"),
        ({"cost": "square"}, {}, "got 'square'"),
        ({"cost": [1.0, 2.0]}, {}, "size 3 occurs"),
        (
            {},
            {"accuracy": 0.9, "cost_weight": 0.1},
            "accuracy = 0.9 and cost_weight = 0.1 were given",
        ),
        (
            {},
            {"mean_size": 2, "cost_weight": 0.1},
            "mean_size = 2 and cost_weight = 0.1 were given",
        ),
        (
            {},
            {"cost_weight": 0.1, "delta": 0.1},
            "cost_weight guarantees no accuracy, so that it",
        ),
        ({}, {"cost_weight": -0.1}, "cost_weight must be finite and not negative; got -0.1"),
        ({}, {"cost_weight": math.nan}, "cost_weight must be finite"),
    ],
)
def test_invalid_requests_raise(parameters, point, message):
    scores, y = draw(100, 6)
    with pytest.raises(ValueError, match=re.escape(message)):
        sl.PlugInSelector(**parameters).fit(scores, y).predict_set(scores, **point)


def test_ties_of_members_that_are_not_nested_go_to_the_later_one():
    def only(label: int):
        return lambda ranking: np.tile(np.arange(3) == label, (len(ranking), 1))

    family = sl.Custom.from_masks(only(0), only(1), only(2))
    model = sl.PlugInSelector(family, temperature=None).fit([[0.5, 0.5, 0.0]] * 3, [0, 1, 2])
    assert model.predict_set([[0.5, 0.5, 0.0]]).labels() == [[1]]
