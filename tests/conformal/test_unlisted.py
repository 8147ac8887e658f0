"""Labels that no set can contain: not among the candidates, or of an unknown class.

They are misses, in the calibration and for new rows. An accuracy that cannot be reached is refused,
so that the accuracy also holds on average over the calibrations that are not refused.
"""

from __future__ import annotations

import contextlib
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import shortlist as sl
from shortlist.conformal.bounds import accuracy_bound
from shortlist.conformal.quantiles import UnreachableError, threshold
from shortlist.conformal.ranks import (
    LISTING_ERROR,
    RARE,
    listed_rank,
    min_calibration_size,
    quantile_rank,
)

ROWS = (50, 200, 1000)
LISTED = (0.8, 0.85, 0.899, 0.905, 0.92, 0.94, 0.97, 0.995)


def exact(rows: int, listed: float, accuracy: float) -> tuple[float, float, float]:
    """Return three exact numbers, by summation over the number of unlisted labels.

    These are the probability that the accuracy is not refused; the mean accuracy in these cases;
    and the probability that it is not refused and the accuracy given that number is too low.
    """
    chances = binom.pmf(np.arange(rows + 1), rows, 1 - listed)
    ranks = np.array([listed_rank(rows, lost, accuracy) for lost in range(rows + 1)])
    lost = np.arange(rows + 1)
    answered = ranks > lost
    kept = listed * (1 - (ranks - lost) / (rows - lost + 1))
    total = chances[answered].sum()
    mean = (chances * kept)[answered].sum() / total if total else 1.0
    return float(total), float(mean), float(chances[answered & (kept < accuracy - 1e-12)].sum())


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("accuracy", [0.8, 0.9, 0.91])
def test_the_accuracy_is_kept_over_calibrations_not_refused(rows: int, accuracy: float) -> None:
    for listed in LISTED:
        answered, mean, short = exact(rows, listed, accuracy)
        if listed < accuracy:
            assert answered <= LISTING_ERROR
        # Both parts of the statement in docs/guarantees.md.
        assert short <= LISTING_ERROR or mean >= accuracy - RARE
        if answered > 2 * LISTING_ERROR:
            assert mean >= accuracy - RARE


def test_the_rank_is_exact_if_refusals_are_rare() -> None:
    assert listed_rank(1000, 5, 0.9) == quantile_rank(1000, 0.9)
    assert exact(1000, 0.995, 0.9)[1] == pytest.approx(0.9, abs=2e-3)
    assert exact(1000, 0.995, 0.9)[0] == pytest.approx(1.0)


@given(st.integers(1, 400), st.integers(0, 60), st.floats(0.3, 0.99))
@settings(max_examples=150, deadline=None)
def test_the_rank_is_monotone_and_never_above_the_exact_one(
    rows: int, lost: int, accuracy: float
) -> None:
    lost = min(lost, rows)
    rank = listed_rank(rows, lost, accuracy)
    assert rank == 0 or lost < rank <= quantile_rank(rows, accuracy)
    if lost < rows and rank:  # One unlisted label less is never refused either.
        assert listed_rank(rows, max(lost - 1, 0), accuracy) > 0
    bound = Fraction(accuracy_bound(rows - lost, rows, LISTING_ERROR)) if lost < rows else 0
    if bound <= Fraction(repr(accuracy)):
        assert rank == 0


@pytest.mark.parametrize("accuracy", [0.5, 0.9, 0.99])
def test_the_min_calibration_size_of_candidates(accuracy: float) -> None:
    rows = min_calibration_size(accuracy, exhaustive=False)
    assert listed_rank(rows, 0, accuracy) > 0
    assert not any(listed_rank(fewer, 0, accuracy) for fewer in range(1, rows))
    assert threshold(np.arange(float(rows)), accuracy, exhaustive=False) == 0.0
    with pytest.raises(UnreachableError, match=f"{rows:,} are needed"):
        threshold(np.arange(float(rows - 1)), accuracy, exhaustive=False)


def lists(rows: int, listed: float, seed: int) -> tuple[sl.Ranking, np.ndarray]:
    """Draw rows of five candidates, of which a share `listed` contains the label."""
    rng = np.random.default_rng(seed)
    labels = np.argsort(rng.random((rows, 20)), axis=1)[:, :6]
    scores = -np.sort(-rng.dirichlet(np.ones(6), size=rows), axis=1)[:, :5]
    place = np.where(rng.random(rows) < listed, rng.integers(0, 5, size=rows), 5)
    return sl.Ranking.from_candidates(labels[:, :5], scores, n_classes=20), labels[
        np.arange(rows), place
    ]


def test_unreachable_accuracies_of_candidates_are_refused() -> None:
    """89.9% of the rows contain their label, and an accuracy of 91% is requested 200 times."""
    answers = 0
    model = sl.SplitConformal("lac", temperature=None).fit(*lists(300, 0.899, 0))
    for seed in range(200):
        model.calibrate(*lists(300, 0.899, 1 + seed))
        with contextlib.suppress(UnreachableError):
            model.predict_set(lists(2, 0.899, 0)[0], accuracy=0.91)
            answers += 1
    assert answers <= 200 * LISTING_ERROR + 8  # 2.5 standard deviations above the mean.


def test_the_guarantee_of_candidates_states_the_test() -> None:
    ranking, y = lists(400, 0.99, 3)
    model = sl.SplitConformal("lac", temperature=None).fit(ranking, y)
    tested = "; a test with confidence 0.95 showed that this accuracy can be reached"
    assert str(model.predict_set(ranking, accuracy=0.8).guarantee).endswith(tested)
    assert tested not in str(model.predict_set(ranking, accuracy=0.8, delta=0.1).guarantee)
    model.set_params(on_unreachable="all")
    assert tested not in str(model.predict_set(ranking, accuracy=0.8).guarantee)


def test_with_all_classes_no_test_is_needed() -> None:
    """With on_unreachable="all" the accuracy is exact over all calibrations."""
    kept = []
    model = sl.SplitConformal("lac", temperature=None, on_unreachable="all", allow_empty=True)
    model.fit(*lists(300, 0.899, 0))
    ranking, y = lists(2000, 0.899, 7)
    for seed in range(60):
        model.calibrate(*lists(150, 0.899, 100 + seed))
        kept.append(model.predict_set(ranking, accuracy=0.9).accuracy(y))
    error = np.std(kept, ddof=1) / np.sqrt(len(kept))
    assert np.mean(kept) > 0.9 - 3 * error


# Unknown classes


def rare_classes(rows: int, classes: int, seed: int, zipf: bool) -> tuple[np.ndarray, np.ndarray]:
    """Draw points around the centres of many classes, most of which have few rows or none."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, classes + 1) ** (1.1 if zipf else 0.0)
    y = rng.choice(classes, size=rows, p=weights / weights.sum())
    centres = np.random.default_rng(99).normal(size=(classes, 8)) * 3
    return centres[y] + rng.normal(size=(rows, 8)), y


@pytest.mark.parametrize(("classes", "zipf"), [(2000, True), (1000, False)])
def test_calibration_rows_of_unknown_classes_are_misses(classes: int, zipf: bool) -> None:
    x, y = rare_classes(600, classes, 0, zipf)
    model = sl.ShortlistClassifier(GaussianNB(), method=sl.SplitConformal("lac"))
    with pytest.warns(UserWarning, match=r"labels .* are of classes that the model does not know"):
        model.fit(x, y)
    learned = model.classes_
    assert len(learned) < len(np.unique(y))
    with pytest.raises(UnreachableError, match="its class was never learned") as error:
        model.predict_set(x[:2], accuracy=0.9)
    most = float(str(error.value).split("At most ")[1].split(" can")[0])
    new, labels = rare_classes(4000, classes, 1, zipf)
    reached = np.isin(labels, learned).mean()
    assert 0 < most < reached + 0.02
    if most > 0.3:
        held = np.array(
            [label in row for label, row in zip(labels, model.predict_set(new, accuracy=0.3))]  # noqa: B905
        )
        assert held.mean() > 0.27


def test_a_calibration_with_new_labels() -> None:
    x, y = rare_classes(900, 6, 3, zipf=False)
    base = LogisticRegression(max_iter=500)
    model = sl.ShortlistClassifier(base, method=sl.SplitConformal("lac")).fit(x[:400], y[:400] % 5)
    with pytest.warns(UserWarning, match=r"are of classes that the model does not know"):
        model.calibrate(x[400:], y[400:])
    unknown = float((y[400:] == 5).mean())
    assert np.isneginf(model.method_._calibration.levels).mean() == unknown  # type: ignore[union-attr]
    with pytest.raises(UnreachableError):
        model.predict_set(x[:3], accuracy=0.95)
    assert len(model.predict_set(x[:3], accuracy=0.6)) == 3
    with pytest.raises(ValueError, match=r"y\[0\] = 77 is not one of the classes"):
        model.calibrate(x[:5], np.full(5, 77))


def test_the_path_counts_unknown_labels_as_misses() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(400, 4))
    y = scores.argmax(axis=1)
    path = sl.CardinalityPath(sl.TopK([1, 4]), cost_weights=[0.0], inputs="scores").fit(scores, y)
    unknown = np.where(np.arange(400) < 100, 9, y)
    with pytest.warns(UserWarning, match="count as misses"):
        path.calibrate(scores + 1e-3, unknown)
    assert path._path_calibration is not None
    assert path._path_calibration.hits[0] == 300


def test_rows_of_unnamed_classes_are_not_used_for_learning() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(500, 3))
    y = np.array(["a", "b", "c"])[scores.argmax(axis=1)]
    y[rng.random(500) < 0.2] = "d"
    with pytest.warns(UserWarning, match=r"\('d'\) are of classes that the model does not know"):
        model = sl.SplitConformal("lac").fit(scores, y, classes=["a", "b", "c"])
    assert model.classes_.tolist() == ["a", "b", "c"]
    with pytest.raises(UnreachableError, match="have a label that no set can contain"):
        model.predict_set(scores, accuracy=0.9)


# Missing values


def test_means_for_missing_values_come_from_learning_rows_alone() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    y = (x[:, 0] > 0).astype(int)
    x[rng.random(300) < 0.3, 1] = np.nan
    forest = RandomForestClassifier(5, random_state=0)
    model = sl.ShortlistClassifier(forest, method=sl.SplitConformal("lac"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        means = model.fit(x, y)._encoder.means  # type: ignore[union-attr]
        changed = 0
        for row in range(300):
            other = x.copy()
            other[row, 1] = 1e6
            changed += not np.array_equal(model.fit(other, y)._encoder.means, means)
            if row >= 30:
                break
    # A quarter of the rows calibrate, and do not affect the means.
    assert 10 < changed < 31
