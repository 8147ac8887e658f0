"""The Shortlister: its guarantee, and parameters set after the calibration."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from small_shortlisters import (
    N_CLASSES,
    copy_of,
    coverage,
    fitted,
    plain,
    rows,
    shortlister,
    wide_rows,
    with_both_stages,
)

import shortlist as sl
from shortlist.conformal.quantiles import UnreachableError


@pytest.mark.parametrize("accuracy", [0.6, 0.9, 0.97])
def test_the_accuracy_is_the_guaranteed_one(accuracy: float) -> None:
    m, splits = 99, 60
    model = fitted(n=600, calibration=None, allow_empty=True)
    measured = coverage(model, splits, m, accuracy)
    error = measured.std(ddof=1) / splits**0.5
    assert accuracy - 3 * error <= measured.mean() <= accuracy + 1 / (m + 1) + 3 * error
    assert error < 0.012


@pytest.mark.parametrize("accuracy", [0.3, 0.9])
def test_the_accuracy_is_higher_if_sets_are_never_empty(accuracy: float) -> None:
    measured = coverage(fitted(n=600, calibration=None), 40, 99, accuracy)
    error = measured.std(ddof=1) / 40**0.5
    assert measured.mean() >= accuracy - 3 * error
    if accuracy == 0.3:  # This is below the accuracy of the first label.
        assert measured.mean() > 0.4


def test_delta_bounds_the_probability_of_a_calibration_that_fails() -> None:
    model = fitted(n=600, calibration=None, allow_empty=True)
    marginal = coverage(model, 40, 200, 0.9)
    confident = coverage(model, 40, 200, 0.9, delta=0.1)
    assert (marginal < 0.9).mean() > 0.2
    assert (confident < 0.9).sum() <= 4 + 3 * (40 * 0.1 * 0.9) ** 0.5  # Three binomial deviations.
    assert confident.mean() > marginal.mean() + 0.01


def test_a_guarantee_for_each_class_and_each_group() -> None:
    scores, y, x = rows(3000, 5)
    unseen, labels, features = rows(3000, 6)
    model = fitted(n=600, calibration=None)
    groups = np.where(x[:, 0] > 1, "far", "near")
    model.calibrate(scores, y, x, groups=groups)

    def worst_class(sets: sl.PredictionSets) -> float:
        hits = np.asarray(sets.contains(labels))
        return min(float(hits[labels == k].mean()) for k in range(N_CLASSES))

    sets = model.predict_set(unseen, features, accuracy=0.9, by="class")
    assert "for each class" in str(sets.guarantee)
    # The rarest class has 255 calibration rows and about as many test rows: three standard errors
    # are 0.08.
    assert worst_class(model.predict_set(unseen, features, accuracy=0.9)) < 0.82
    assert worst_class(sets) > 0.82
    new = np.where(features[:, 0] > 1, "far", "near")
    sets = model.predict_set(unseen, features, accuracy=0.9, by="group", groups=new)
    hits = np.asarray(sets.contains(labels))
    assert all(0.86 < hits[new == g].mean() < 0.94 for g in ("far", "near"))
    with pytest.raises(ValueError, match=r"groups=\.\.\."):
        model.predict_set(unseen, features, by="group")


def test_a_mean_size_has_a_certified_accuracy() -> None:
    scores, y, x = rows(3000, 6)
    sets = fitted().predict_set(scores, x, mean_size=2.0)
    assert 1.7 < sets.mean_size < 2.3
    assert sets.guarantee.kind == "certified"
    certified = float(str(sets.guarantee).split("accuracy >= ")[1].split(" ")[0])
    assert 0.5 < certified <= sets.accuracy(y) + 0.02
    with pytest.raises(ValueError, match=r"mean_size = 0\.5 is less than the smallest"):
        fitted().predict_set(scores, x, mean_size=0.5)


def test_the_guarantee_of_each_operating_point() -> None:
    scores, _, x = rows(100, 6)
    model = fitted()
    assert str(model.predict_set(scores, x).guarantee) == (
        "accuracy >= 0.95 guaranteed by 150 calibration rows"
    )
    by_weight = clone(model).set_params(cost_weight=0.1, learn_sizes=False, rescore=False)
    by_weight.fit(*rows(300, 1)[:2])
    assert "cost_weight = 0.1; no accuracy is guaranteed" in str(
        by_weight.predict_set(scores).guarantee
    )
    assert "0.8 guaranteed" in str(by_weight.predict_set(scores, accuracy=0.8).guarantee)
    with pytest.raises(
        ValueError, match=r"accuracy = 0\.9 and cost_weight = 0\.1 were given; choose"
    ):
        model.predict_set(scores, x, accuracy=0.9, cost_weight=0.1)
    with pytest.raises(UnreachableError, match=r"accuracy = 0\.999 .* 150 .*999 are needed"):
        model.predict_set(scores, x, accuracy=0.999)
    with pytest.raises(ValueError, match="not calibrated"):
        with_both_stages().predict_set(*[wide_rows(10, 3)[i] for i in (0, 2)])


def test_p_values_and_sets_agree() -> None:
    scores, _, x = rows(200, 6)
    model = fitted(allow_empty=True)
    p = np.asarray(model.p_values(scores, x))
    for accuracy in (0.75, 0.9, 0.95):
        masks = [set(row) for row in model.predict_set(scores, x, accuracy=accuracy).labels()]
        assert masks == [set(np.flatnonzero(row > 1 - accuracy + 1e-12)) for row in p]


def table(top: float = 8.0) -> list[float]:
    return [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, top]


def squared(size: int) -> float:
    return float(size**2)


@pytest.mark.parametrize("stages", [False, True])
def test_a_cost_set_after_calibration_needs_another_calibration(stages: bool) -> None:
    (scores, y, x), (unseen, labels, features) = rows(600, 1), rows(400, 2)
    parameters = {"rescore": stages, "learn_sizes": stages, "max_epochs": 2}
    model = shortlister(**parameters).fit(scores, y, features=x)
    before = model.predict_set(unseen, features, accuracy=0.9)
    by_weight = model.predict_set(unseen, features, cost_weight=0.05)
    model.set_params(cost="log")
    message = r"cost = 'log', but it was 'linear' at calibration; call calibrate again"
    for options in ({"accuracy": 0.9}, {"mean_size": 2.0}, {"accuracy": 0.8, "by": "class"}, {}):
        with pytest.raises(ValueError, match=message):
            model.predict_set(unseen, features, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        model.p_values(unseen, features)
    # A cost_weight guarantees nothing, so the new cost can be used without a calibration.
    fresh = shortlister(cost="log", **parameters).fit(scores, y, features=x)
    now = model.predict_set(unseen, features, cost_weight=0.05)
    assert now == fresh.predict_set(unseen, features, cost_weight=0.05)
    assert now != by_weight
    curves = (m.frontier(unseen, labels, features) for m in (model, fresh))
    assert np.array_equal(*(curve.mean_size for curve in curves))
    # The calibration is valid again for the old cost, or after another one for the new cost.
    model.set_params(cost="linear")
    assert model.predict_set(unseen, features, accuracy=0.9) == before
    again = rows(500, 3)
    for one in (model.set_params(cost="log"), fresh):
        one.calibrate(again[0], again[1], again[2])
    after = model.predict_set(unseen, features, accuracy=0.9)
    assert after == fresh.predict_set(unseen, features, accuracy=0.9)
    assert str(after.guarantee) == "accuracy >= 0.9 guaranteed by 500 calibration rows"
    with pytest.raises(ValueError, match="cost = 'linear', but it was 'log' at calibration"):
        model.set_params(cost="linear").predict_set(unseen, features, accuracy=0.9)


@pytest.mark.parametrize(
    ("first", "same", "other"),
    [
        (tuple(table()), (table(), np.array(table())), (table(9.0), np.array(table(9.0)))),
        ("linear", ("".join(["lin", "ear"]),), ("log", tuple(table(9.0)), squared)),
        (squared, (squared,), ("linear", lambda size: 2.0 * size, tuple(table()))),
    ],
)
def test_an_equal_cost_is_the_same_cost(
    first: object, same: tuple[object, ...], other: tuple[object, ...]
) -> None:
    scores, _, x = rows(100, 2)
    expected = plain(cost=first).predict_set(scores, x, accuracy=0.9)
    for cost in same:
        model = copy_of(plain(cost=first)).set_params(cost=cost)
        assert model.predict_set(scores, x, accuracy=0.9) == expected
    for cost in other:
        model = copy_of(plain(cost=first)).set_params(cost=cost)
        with pytest.raises(ValueError, match="at calibration; call calibrate"):
            model.predict_set(scores, x, accuracy=0.9)
        assert model.predict_set(scores, x, cost_weight=0.01).mean_size >= 1


def test_an_equal_table_is_the_same_cost_and_another_is_not() -> None:
    scores, y, x = rows(300, 1)
    by_size = dict(enumerate(table(), start=1))
    model = shortlister(cost=by_size, rescore=False, learn_sizes=False).fit(scores, y, features=x)
    expected = model.predict_set(scores, x, accuracy=0.9)
    assert model.set_params(cost=dict(by_size)).predict_set(scores, x, accuracy=0.9) == expected
    with pytest.raises(ValueError, match=r"cost = \{.*8: 9.0\}, but it was \{.*8: 8.0\}"):
        model.set_params(cost=by_size | {8: 9.0}).predict_set(scores, x, accuracy=0.9)


def test_allow_empty_set_after_calibration_needs_another_calibration() -> None:
    scores, y, x = rows(400, 2)
    model = copy_of(plain()).set_params(allow_empty=True)
    with pytest.raises(ValueError, match="allow_empty = True, but it was False at calibration"):
        model.predict_set(scores, x, accuracy=0.3)
    assert np.asarray(model.predict_set(scores, x, cost_weight=0.9).sizes).min() == 0
    sets = model.calibrate(scores, y, x).predict_set(scores, x, accuracy=0.3)
    assert np.asarray(sets.sizes).min() == 0
