"""Classifiers that are trained anew, with and without extra rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

import shortlist as sl
from shortlist.predictors.splitting import hold_out

RNG = np.random.default_rng(0)
CENTERS = RNG.normal(size=(8, 6)) * 1.2


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features of eight classes, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(8, size=n)
    return CENTERS[y] + rng.normal(size=(n, 6)), y


X, Y = rows(160, 1)
EXTRA_X, EXTRA_Y = rows(2000, 2)
NEW_X, NEW_Y = rows(1000, 3)
NO_SCORES, NEW_NO_SCORES = np.zeros((160, 8)), np.zeros((1000, 8))


def model(name: str, **parameters: object) -> sl.RetrainedClassifier:
    return sl.RetrainedClassifier(name, width=16, members=2, max_epochs=30, **parameters)


@pytest.mark.parametrize("name", ["networks", "logistic"])
def test_extra_rows_make_a_better_classifier(name):
    plain = model(name, calibration=None).fit(NO_SCORES, Y, X)
    both = model(name, calibration=None).fit(
        NO_SCORES, Y, X, extra_features=EXTRA_X, extra_y=EXTRA_Y
    )
    sizes = [float(m.frontier(NEW_NO_SCORES, NEW_Y, NEW_X).size_at(0.9)) for m in (plain, both)]
    assert sizes[1] < 0.95 * sizes[0]


def test_extra_rows_are_no_calibration_rows():
    fitted = model("logistic", calibration=0.5).fit(
        NO_SCORES, Y, X, extra_features=EXTRA_X, extra_y=EXTRA_Y
    )
    assert fitted.n_calibration == 80
    held_out = fitted._calibration.y
    # The labels of the calibration rows have no part in the classifier.
    other = Y.copy()
    kept = hold_out(160, 0.5, seed=0)[1]
    other[kept] = (other[kept] + 1) % 8
    again = clone(fitted).fit(NO_SCORES, other, X, extra_features=EXTRA_X, extra_y=EXTRA_Y)
    for a, b in zip(
        fitted.score_.network_.parameters(), again.score_.network_.parameters(), strict=True
    ):
        assert torch.equal(a, b)
    assert sorted(held_out) == sorted(Y[kept])


def test_extra_rows_do_not_set_the_temperature():
    """Half of the labels are noise, but not those of extra rows: they look too easy."""
    x, y = rows(3000, 4)
    noisy = np.where(np.arange(3000) % 2 == 0, y, np.random.default_rng(5).integers(8, size=3000))
    fitted = model("logistic", calibration=None).fit(
        np.zeros((1000, 8)), noisy[:1000], x[:1000], extra_features=EXTRA_X, extra_y=EXTRA_Y
    )
    log_p = fitted.score_.log_proba(torch.from_numpy(x[1000:]).float())
    assert 0.5 < sl.fit_temperature(log_p, noisy[1000:], "log_proba") < 1.5


def test_extra_rows_need_features_and_labels():
    with pytest.raises(ValueError, match="extra_y is missing"):
        model("logistic").fit(NO_SCORES, Y, X, extra_features=EXTRA_X)
    with pytest.raises(ValueError, match="extra_features need features"):
        model("logistic").fit(NO_SCORES, Y, extra_features=EXTRA_X, extra_y=EXTRA_Y)
