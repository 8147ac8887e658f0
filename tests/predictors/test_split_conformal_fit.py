"""Split conformal prediction: what is learned, and invalid parameters."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from split_predictors import EASY, threshold_of
from synthetic import draw

import shortlist as sl
from shortlist.predictors.splitting import hold_out

# Learning


@pytest.mark.parametrize("name", ["lac", "raps", "saps"])
def test_learning_does_not_use_the_calibration_rows(name):
    scores, y = draw(600, 12, seed=18, temperature=3.0)
    model = sl.SplitConformal(name, accuracy=0.9, random_state=4).fit(scores, y)
    learning, kept = hold_out(600, 0.75, seed=4)
    assert len(kept) == 450
    rng = np.random.default_rng(0)
    other_scores, other_y = scores.copy(), y.copy()
    other_scores[kept] = rng.normal(size=(450, 12)) * 9
    other_y[kept] = rng.integers(12, size=450)
    other = clone(model).fit(other_scores, other_y)
    assert vars(other.score_) == vars(model.score_)
    assert other.temperature_ == model.temperature_
    assert threshold_of(other, 0.9) != threshold_of(model, 0.9)
    # The thresholds depend on the calibration rows alone.
    expected = clone(model).fit(scores[learning], y[learning]).set_params(calibration=None)
    expected.fit(scores[learning], y[learning]).calibrate(scores[kept], y[kept])
    assert vars(expected.score_) == vars(model.score_)
    assert np.array_equal(np.sort(expected._calibration.levels), np.sort(model._calibration.levels))
    other_y = y.copy()
    other_y[learning] = rng.integers(12, size=150)
    assert clone(model).fit(scores, other_y).score_ != model.score_


def test_tuning_shortens_the_sets():
    """Sets are nearly as short as those of the best of a few settings on other rows."""
    scores, y = draw(6000, 30, seed=19)
    for name in ("raps", "saps"):
        sizes = []
        for penalty in ("auto", 0.001, 0.05, 1.0):
            model = sl.SplitConformal(name, penalty=penalty, k_reg="auto", accuracy=0.9)
            sizes.append(model.fit(scores[:4000], y[:4000]).predict_set(scores[4000:]).mean_size)
        assert sizes[0] < 1.03 * min(sizes[1:])
        assert max(sizes[1:]) > 1.1 * min(sizes[1:])


def test_tuning_uses_rows_from_all_parts_of_the_data(monkeypatch):
    """Rows may be sorted by difficulty."""
    monkeypatch.setattr("shortlist.conformal.scores.tuning.TUNING_ROWS", 100)
    scores, y = draw(2000, 12, seed=20)
    order = np.argsort(scores.max(axis=1))
    model = sl.SplitConformal("saps", temperature=None, calibration=None)
    in_order = model.fit(scores[order], y[order]).score_.penalty_
    first = clone(model).fit(scores[order][:100], y[order][:100]).score_.penalty_
    every = clone(model).fit(scores[order][::20], y[order][::20]).score_.penalty_
    assert in_order == every
    assert in_order != first


@pytest.mark.parametrize(
    ("parameters", "rows"),
    [
        ({"score": "lac", "temperature": None}, 200),
        ({"score": "lac", "temperature": 2.0}, 200),
        ({"score": "raps", **EASY}, 200),
        ({"score": "saps", "temperature": None, "penalty": 0.1}, 200),
        ({"score": "lac"}, 150),
        ({"score": "raps", "temperature": None, "penalty": 0.1}, 150),
        ({"score": "saps", "temperature": 1.0}, 150),
        ({"score": "lac", "calibration": 0.5}, 100),
    ],
)
def test_if_nothing_is_learned_all_rows_calibrate(parameters, rows):
    scores, y = draw(200, seed=21)
    sets = sl.SplitConformal(**parameters).fit(scores, y).predict_set(scores, accuracy=0.9)
    assert str(sets.guarantee) == f"accuracy >= 0.9 guaranteed by {rows} calibration rows"


def test_a_given_temperature_is_used():
    scores, y = draw(300, seed=22)
    model = sl.SplitConformal("lac", temperature=2.0).fit(scores[:200], y[:200])
    halved = sl.SplitConformal("lac", temperature=None).fit(scores[:200] / 2, y[:200])
    assert model.predict_set(scores, accuracy=0.9) == halved.predict_set(scores / 2, accuracy=0.9)
    assert model.temperature_ == 2


def test_a_calibration_is_replaced():
    scores, y = draw(500, seed=23)
    model = sl.SplitConformal("aps").fit(scores[:200], y[:200])
    before = model.score_
    new = scores[400:]
    first = model.predict_set(new, accuracy=0.9)
    assert model.calibrate(scores[200:400], np.roll(y[200:400], 1)) is model  # Wrong labels.
    second = model.predict_set(new, accuracy=0.9)
    assert model.score_ == before
    assert str(second.guarantee) == "accuracy >= 0.9 guaranteed by 200 calibration rows"
    assert second.mean_size > first.mean_size + 1
    with pytest.raises(ValueError, match="labels, but the scores"):
        model.calibrate(scores[:10], y[:9])
    assert model.predict_set(new, accuracy=0.9) == second  # A failed calibration changes nothing.
    model.fit(scores[:200], y[:200])
    assert model.predict_set(new, accuracy=0.9) == first


def test_the_default_accuracy_is_the_parameter():
    scores, y = draw(300, seed=24)
    model = sl.SplitConformal("lac", accuracy=0.75, **EASY).fit(scores, y)
    assert model.predict_set(scores) == model.predict_set(scores, accuracy=0.75)
    assert "accuracy >= 0.75 guaranteed" in str(model.predict_set(scores).guarantee)


@pytest.mark.parametrize(
    ("accuracy", "delta", "message"),
    [
        (0.9, 0.05, "accuracy >= 0.9 guaranteed with probability 0.95 by 3,000 calibration rows"),
        (0.999, 0.1, "accuracy >= 0.999 guaranteed with probability 0.9 by 3,000"),
        (0.9990001, None, "accuracy >= 0.9990001 guaranteed by"),
    ],
)
def test_the_text_of_guarantees(accuracy, delta, message):
    scores, y = draw(3000, 4, seed=25)
    model = sl.SplitConformal("lac", **EASY).fit(scores, y)
    assert message in str(model.predict_set(scores[:3], accuracy=accuracy, delta=delta).guarantee)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"score": "aps2"}, "got 'aps2'; did you mean 'aps'?"),
        ({"score": "lac", "randomized": True}, "score = 'lac' cannot be randomized"),
        ({"accuracy": 95}, "accuracy must lie strictly between 0 and 1; got 95"),
        ({"temperature": "warm"}, "temperature must be one of 'auto', 'size'; got 'warm'"),
        ({"temperature": 0.0}, "temperature must be positive; got 0"),
        ({"temperature": -1.0}, "temperature must be finite and not negative; got -1.0"),
        ({"score": "raps", "penalty": "best"}, "penalty must be one of 'auto'; got 'best'"),
        ({"score": "raps", "penalty": -1.0}, "penalty must be finite and not negative"),
        ({"score": "raps", "k_reg": 1.5}, "k_reg must be an integer of at least 0; got 1.5"),
        ({"calibration": 1.5}, "calibration must lie strictly between 0 and 1; got 1.5"),
        ({"calibration": 1.5, "temperature": None}, "calibration must lie strictly"),
        ({"by": "row"}, "got 'row'"),
        ({"on_unreachable": "any"}, "on_unreachable must be one of 'raise', 'all'; got 'any'"),
        ({"score_type": "odds"}, "got 'odds'"),
    ],
)
def test_invalid_parameters_raise(parameters, message):
    scores, y = draw(50)
    model = sl.SplitConformal(**parameters)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(scores, y)
    with pytest.raises(NotFittedError, match="this SplitConformal is not fitted yet"):
        model.predict_set(scores)


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"accuracy": 0.9, "mean_size": 2}, "accuracy = 0.9 and mean_size = 2 were given"),
        ({"accuracy": 0.0}, "accuracy must lie strictly between 0 and 1; got 0.0"),
        ({"accuracy": 0.9, "delta": 1}, "delta must lie strictly between 0 and 1; got 1"),
        ({"mean_size": 2, "by": "class"}, "mean_size = 2 cannot be combined with by = 'class'"),
        ({"mean_size": 0.5}, "mean_size = 0.5 is less than the smallest mean size, 1"),
        ({"mean_size": "two"}, "mean_size must be a number; got 'two'"),
        ({"mean_size": 2, "delta": 0}, "delta must lie strictly between 0 and 1; got 0"),
        ({"accuracy": 0.5, "by": "row"}, "got 'row'"),
        ({"accuracy": 0.5, "by": "group"}, "but the calibration rows have no groups"),
        ({"accuracy": 0.999}, "with 200 calibration rows: 999 are needed. At most 0.99502 can"),
    ],
)
def test_invalid_requests_raise(point, message):
    scores, y = draw(200)
    model = sl.SplitConformal("lac", **EASY).fit(scores, y)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.predict_set(scores, **point)


def test_a_predictor_without_calibration_guarantees_nothing():
    scores, y = draw(200)
    model = sl.SplitConformal("lac", calibration=None).fit(scores, y)
    for point in ({"accuracy": 0.9}, {"mean_size": 2}, {"accuracy": 0.9, "by": "class"}):
        with pytest.raises(ValueError, match="is not calibrated and cannot guarantee an accuracy"):
            model.predict_set(scores, **point)
    with pytest.raises(ValueError, match="is not calibrated"):
        model.p_values(scores)
    assert len(model.frontier(scores, y)) > 10
    assert model.calibrate(scores, y).predict_set(scores, accuracy=0.9).accuracy(y) >= 0.9


def test_changing_allow_empty_needs_a_new_calibration():
    scores, y = draw(200)
    model = sl.SplitConformal("lac", **EASY).fit(scores, y)
    model.set_params(allow_empty=True)
    with pytest.raises(ValueError, match="it was False at calibration; call calibrate"):
        model.predict_set(scores, accuracy=0.5)
    sets = model.calibrate(scores, y).predict_set(scores, accuracy=0.3)
    assert sets.sizes.min() == 0
    full = model.set_params(allow_empty=False).calibrate(scores, y)
    assert full.predict_set(scores, accuracy=0.3).sizes.tolist() == [1] * 200


def test_all_sets_may_be_empty():
    p = np.array([[0.75, 0.25]] * 9 + [[0.5, 0.5]] * 2)
    model = sl.SplitConformal("lac", allow_empty=True, **EASY).fit(p[:9], [0] * 9)
    assert model.predict_set(p[9:], accuracy=0.5).labels() == [[], []]
