"""Which rows each part of a `ShortlistClassifier` sees."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import TimeSeriesSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import shortlist as sl
from shortlist.predictors.splitting import hold_out

N = 480
RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=N)
X = RNG.normal(size=(N, 4)) + Y[:, None]
X[RNG.uniform(size=X.shape) < 0.1] = np.nan
NEW = RNG.normal(size=(50, 4)) + RNG.integers(3, size=50)[:, None]
METHODS = {
    "shortlister": sl.Shortlister(effort="fast", folds=2, rescore=True),
    "retrained": sl.RetrainedClassifier("logistic"),
    "temperature for size": sl.SplitConformal("aps", temperature="size"),
}


def changed(rows: NDArray[np.intp]) -> tuple[NDArray, NDArray]:
    """Return all rows, with other features, gaps and labels in some of them."""
    x, y = X.copy(), Y.copy()
    x[rows] = 50 + 9 * RNG.normal(size=(len(rows), 4))
    x[rows, 1] = np.nan
    y[rows] = (y[rows] + 1) % 3
    return x, y


def curve_of(model: sl.ShortlistClassifier) -> NDArray:
    """Return the curve on new rows, which depends on everything but the calibration rows."""
    x = NEW.copy()
    x[::3, 2] = np.nan  # Replaced by the mean of the column.
    sets = model.method_.frontier(*_parts(model, x))
    return np.concatenate([sets.accuracy, sets.mean_size, sets.parameter])


def _parts(model: sl.ShortlistClassifier, x: NDArray) -> tuple[NDArray, NDArray, object]:
    return model._inputs.scores(x), np.arange(50) % 3, model._inputs.features(x)


@pytest.mark.parametrize("name", METHODS)
def test_calibration_rows_change_nothing_but_thresholds(name):
    """Neither classifier, method, scaling nor the means of missing values depend on them."""
    model = sl.ShortlistClassifier(
        HistGradientBoostingClassifier(max_iter=3), method=METHODS[name], cv=2, random_state=3
    )
    learning, held_out = hold_out(N, 0.25, seed=3)
    fitted = clone(model).fit(X, Y)
    other = clone(model).fit(*changed(held_out))
    assert fitted.method_.n_calibration == len(held_out)
    np.testing.assert_array_equal(fitted._encoder.means, other._encoder.means)
    np.testing.assert_array_equal(curve_of(fitted), curve_of(other))
    levels = [np.sort(m.method_._calibration.levels) for m in (fitted, other)]
    assert not np.array_equal(*levels)
    # The test can fail: rows to learn from change all of it.
    unlike = clone(model).fit(*changed(learning[:100]))
    assert not np.array_equal(fitted._encoder.means, unlike._encoder.means)
    assert not np.array_equal(curve_of(fitted), curve_of(unlike))


class _Recording(sl.Shortlister):
    """Records the rows that it is given."""

    def fit(self, scores, y, features=None, **options):
        self.rows_ = np.asarray(features)[:, 0], options
        return super().fit(scores, y, features, **options)


def test_rows_that_no_fold_tests_are_extra_rows():
    """The classifier of each fold learns from them, so that they have no honest scores."""
    x = np.column_stack([np.arange(N, dtype=float), np.nan_to_num(X)])
    model = sl.ShortlistClassifier(
        DecisionTreeClassifier(max_depth=3),
        method=_Recording(effort="fast", folds=2, rescore=True),
        cv=TimeSeriesSplit(3),
    ).fit(x, Y)
    learning, _ = hold_out(N, 0.25, seed=0)
    scored, options = model.method_.rows_
    extra = options["extra_features"][:, 0]
    assert len(extra) == 90
    np.testing.assert_array_equal(np.concatenate([extra, scored]), learning)
    np.testing.assert_array_equal(options["extra_y"], Y[learning[:90]])
    without = sl.ShortlistClassifier(
        DecisionTreeClassifier(max_depth=3),
        method=sl.SplitConformal("lac"),
        cv=TimeSeriesSplit(3),
    ).fit(x, Y)
    assert without.predict_set(x[:3]).guarantee.n_calibration == 120


def test_probabilities_of_float32_rows_are_probabilities() -> None:
    """Naive Bayes in float32 returns rows that sum to 1.01, which would be taken for logits."""
    data = sl.datasets.digits()
    x = data.x.astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = sl.ShortlistClassifier(GaussianNB(), method=sl.SplitConformal("lac")).fit(x, data.y)
        clf.predict_set(x[:50])
    assert clf.method_.score_type_ == "proba"
