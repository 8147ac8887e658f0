"""The guarantee of a calibrated path, and the errors if an accuracy cannot be guaranteed."""

from __future__ import annotations

import math
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from two_regimes import Problem, draw_problem

import shortlist as sl
from shortlist.conformal import UnreachableError, accuracy_bound
from shortlist.conformal.path_calibration import PathCalibration
from shortlist.frontier import Frontier

N_CLASSES = 8
WEIGHTS = [0.02, 0.6, 0.25, 0.2, 0.12, 0.07, 0.01, 0.3]  # Not sorted.

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def draw_rows(n: int, seed: int) -> Rows:
    """Logits of easy and hard rows, and labels drawn from their probabilities."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, N_CLASSES)) * rng.choice([1.0, 4.0], size=(n, 1))
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return scores, y


def fit_path(family: sl.Family, weights: list[float]) -> sl.CardinalityPath:
    path = sl.CardinalityPath(
        family, cost_weights=weights, inputs="scores", width=16, max_epochs=8, learning_rate=0.01
    )
    return path.fit(*draw_rows(1500, seed=0))


def rank_window(k: int):  # type: ignore[no-untyped-def]
    """The `k + 1` best labels, without the very best if k is odd, so that sets are not nested."""

    def mask(ranking: sl.Ranking) -> NDArray[np.bool_]:
        order = np.argsort(-np.asarray(ranking.scores_of(slice(None))), axis=1)
        chosen = np.zeros((len(ranking), N_CLASSES), dtype=bool)
        np.put_along_axis(chosen, order[:, k % 2 : k + 1 + k % 2], True, axis=1)
        return chosen

    return mask


@pytest.fixture(scope="module")
def pool() -> Rows:
    return draw_rows(20_000, seed=1)


@pytest.fixture(scope="module", params=["nested", "not nested"])
def path(request: pytest.FixtureRequest) -> sl.CardinalityPath:
    nested = request.param == "nested"
    family = (
        sl.TopK([1, 2, 4, 6, 8]) if nested else sl.Custom.from_masks(*map(rank_window, range(7)))
    )
    return fit_path(family, WEIGHTS)


@pytest.fixture(scope="module")
def truth(path: sl.CardinalityPath, pool: Rows) -> Frontier:
    """Accuracy and mean size of each member on the pool that calibration rows are drawn from."""
    return path.frontier(*pool)


def chosen_weight(sets: sl.PredictionSets) -> float:
    """Return the value of `cost_weight` in the text of a guarantee."""
    match = re.search(r"cost_weight = (\S+) chosen", str(sets.guarantee))
    assert match
    return float(match[1])


def test_the_members_differ(truth: Frontier) -> None:
    """Without this, the tests below would prove nothing."""
    assert len(set(truth.mean_size.tolist())) >= 6
    assert truth.accuracy.max() > 0.85
    assert truth.accuracy.min() < 0.8


@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_the_guarantee_holds_over_the_calibration_draw(
    delta: float, path: sl.CardinalityPath, pool: Rows, truth: Frontier
) -> None:
    rng = np.random.default_rng(7)
    draws, m = 300, 400
    scores, y = pool
    # Just above the accuracy of a member in the middle, where a wrong choice is most likely.
    accuracy = round(float(np.sort(truth.accuracy)[3]) + 0.001, 4)
    by_weight = dict(zip(truth.parameter.tolist(), truth.accuracy, strict=True))
    n_failed = n_guaranteed = n_naive_failures = 0
    for _ in range(draws):
        drawn = rng.integers(len(y), size=m)
        path.calibrate(scores[drawn], y[drawn])
        measured = path.frontier(scores[drawn], y[drawn])
        naive = [a for a, s in zip(truth.accuracy, measured.accuracy, strict=True) if s >= accuracy]
        n_naive_failures += bool(naive) and min(naive) < accuracy
        try:
            sets = path.predict_set(scores[:1], accuracy=accuracy, delta=delta)
        except UnreachableError:
            continue
        n_guaranteed += 1
        n_failed += by_weight[chosen_weight(sets)] < accuracy
    assert n_failed / draws <= delta + 3 * math.sqrt(delta * (1 - delta) / draws)
    assert n_failed / draws >= delta / 4  # The test is not too conservative.
    assert n_guaranteed > draws / 2
    # Choosing a member by its accuracy on the calibration rows alone fails often.
    assert n_naive_failures / draws > 0.3


def test_the_sets_are_those_of_the_guaranteed_member(path: sl.CardinalityPath, pool: Rows) -> None:
    scores, y = pool
    path.calibrate(scores[:1000], y[:1000])
    sets = path.predict_set(scores[1000:1200], accuracy=0.8)
    assert str(sets.guarantee) == (
        "accuracy >= 0.8 guaranteed with probability 0.95 by 1,000 calibration rows; "
        f"cost_weight = {chosen_weight(sets):g} chosen by fixed-sequence testing"
    )
    assert sets == path.predict_set(scores[1000:1200], cost_weight=chosen_weight(sets))
    stricter = path.predict_set(scores[1000:1200], accuracy=0.8, delta=0.001)
    assert "with probability 0.999 by" in str(stricter.guarantee)
    assert "no accuracy is guaranteed" in str(
        path.predict_set(scores[:5], cost_weight=0.6).guarantee
    )


def test_one_calibration_serves_all_accuracies(
    path: sl.CardinalityPath, pool: Rows, truth: Frontier
) -> None:
    scores, y = pool
    path.calibrate(scores, y)
    means = dict(zip(truth.parameter.tolist(), truth.mean_size, strict=True))
    top = truth.accuracy[WEIGHTS.index(min(WEIGHTS))] - 0.01
    accuracies = np.linspace(0.3, top, 15).round(4).tolist()
    sizes = [means[chosen_weight(path.predict_set(scores[:1], accuracy=a))] for a in accuracies]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) >= 3


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_the_member_equals_that_of_a_brute_force_search(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    weights = data.draw(st.permutations([0.1 * i for i in range(n)]))
    hits = data.draw(st.lists(st.integers(60, 100), min_size=n, max_size=n))
    labels = data.draw(st.lists(st.integers(100, 105), min_size=n, max_size=n))
    delta = data.draw(st.sampled_from([0.01, 0.1, 0.5]))
    calibration = PathCalibration(weights, 100, hits, labels)
    passed = []
    for weight in sorted(weights):
        i = weights.index(weight)
        if binom.cdf(100 - hits[i], 100, 0.2) > delta:  # The probability of as few misses.
            break
        passed.append((labels[i], -hits[i], weight))
    if passed:
        member = calibration.member(0.8, delta)
        assert (labels[member], -hits[member], weights[member]) == min(passed)
    else:
        with pytest.raises(UnreachableError):
            calibration.member(0.8, delta)


def test_a_member_after_a_failure_is_not_used_even_if_it_is_accurate() -> None:
    calibration = PathCalibration([0.3, 0.2, 0.1], 1000, [1000, 500, 990], [1000, 1500, 2000])
    assert calibration.member(accuracy=0.9, delta=0.05) == 2


def test_the_more_accurate_of_two_members_with_equal_sizes_is_used() -> None:
    for hits in ([99, 100], [100, 99]):
        calibration = PathCalibration([0.2, 0.1], 100, hits, [150, 150])
        assert calibration.member(accuracy=0.9, delta=0.05) == hits.index(100)


def test_unreachable_accuracies_are_explained(learn: Problem, unseen: Problem) -> None:
    path = sl.CardinalityPath(
        sl.TopK([1, 2, 4]), cost_weights=[1.0, 0.01], inputs="both", max_epochs=20
    ).fit(learn.scores, learn.y, learn.x)
    path.calibrate(unseen.scores, unseen.y, unseen.x)
    hits = round(path.frontier(unseen.scores, unseen.y, unseen.x).accuracy[1] * 400)
    inputs = unseen.scores, unseen.x
    with pytest.raises(UnreachableError) as error:
        path.predict_set(*inputs, accuracy=0.999)
    assert "accuracy = 0.999 (delta = 0.05) cannot be guaranteed with 400 calibration rows" in str(
        error.value
    )
    assert "Calibrate with at least 2,995 rows" in str(error.value)

    noisy = unseen.y.copy()
    noisy[:40] = (unseen.scores[:40].argmin(axis=1)) % 6  # Labels outside the largest sets.
    path.calibrate(unseen.scores, noisy, unseen.x)
    hits = round(path.frontier(unseen.scores, noisy, unseen.x).accuracy[1] * 400)
    with pytest.raises(UnreachableError) as error:
        path.predict_set(*inputs, accuracy=0.95, delta=0.1)
    message = str(error.value)
    assert f"cost_weight, 0.01, contain the true label of {hits} rows" in message
    assert "Train a smaller cost_weight or a family with larger sets, or add" in message
    match = re.search(r"at most (\S+) can be", message)
    assert match
    largest = float(match[1])
    assert largest == pytest.approx(accuracy_bound(hits, 400, 0.1), abs=1e-5)
    # The accuracy in the message can be guaranteed, and a slightly higher one cannot.
    assert largest > 0.8
    path.predict_set(*inputs, accuracy=largest, delta=0.1)
    with pytest.raises(UnreachableError):
        path.predict_set(*inputs, accuracy=largest + 1e-4, delta=0.1)


def test_ambiguous_or_invalid_operating_points_are_refused(learn: Problem) -> None:
    path = sl.CardinalityPath(
        sl.TopK([1, 2, 6]), cost_weights=[1.0, 0.0], cost_weight=1.0, max_epochs=1
    )
    with pytest.raises(NotFittedError):
        path.calibrate(learn.scores, learn.y, learn.x)
    path.fit(learn.scores, learn.y, learn.x)
    inputs = learn.scores, learn.x
    with pytest.raises(ValueError, match=r"accuracy = 0\.9 can be guaranteed after calibrate"):
        path.predict_set(*inputs, accuracy=0.9)
    path.calibrate(learn.scores, learn.y, learn.x)
    with pytest.raises(
        ValueError, match=r"accuracy = 0\.9 and cost_weight = 1\.0: .*give only one"
    ):
        path.predict_set(*inputs, accuracy=0.9, cost_weight=1.0)
    for options, message in [
        ({"accuracy": 90}, "accuracy must lie strictly between 0 and 1; got 90"),
        ({"accuracy": 0.9, "delta": 0.0}, "delta must lie strictly between 0 and 1; got 0.0"),
        ({"accuracy": 0.9, "delta": None}, "delta must be a number; got None"),
    ]:
        with pytest.raises(ValueError, match=message):
            path.predict_set(*inputs, **options)  # type: ignore[arg-type]
    # By default, the cost_weight of the constructor is used.
    assert "cost_weight = 1; no accuracy" in str(path.predict_set(*inputs).guarantee)
    assert path.predict_set(*inputs, accuracy=0.99).mean_size == 6
    with pytest.raises(ValueError, match="features"):
        path.calibrate(learn.scores, learn.y)


def test_a_calibration_is_replaced_saved_and_reset(learn: Problem, unseen: Problem) -> None:
    path = sl.CardinalityPath(
        sl.TopK([1, 2, 4, 6]), cost_weights=[1.0, 0.1, 0.0], inputs="both", max_epochs=10
    ).fit(learn.scores, learn.y, learn.x)
    inputs = unseen.scores, unseen.x
    assert path.calibrate(unseen.scores, unseen.y, unseen.x) is path
    first = path.predict_set(*inputs, accuracy=0.9)
    assert first.accuracy(unseen.y) > 0.9
    again = pickle.loads(pickle.dumps(path)).predict_set(*inputs, accuracy=0.9)
    assert again == first
    assert str(again.guarantee) == str(first.guarantee)
    with pytest.raises(ValueError, match="labels, but the scores"):
        path.calibrate(unseen.scores, unseen.y[:-1], unseen.x)
    # The failed call did not change the calibration.
    assert str(path.predict_set(*inputs, accuracy=0.9).guarantee) == str(first.guarantee)
    path.calibrate(unseen.scores[:100], unseen.y[:100], unseen.x[:100])
    assert "by 100 calibration rows" in str(path.predict_set(*inputs, accuracy=0.9).guarantee)
    with pytest.raises(ValueError, match="after calibrate"):
        path.fit(learn.scores, learn.y, learn.x).predict_set(*inputs, accuracy=0.9)
    with pytest.raises(NotFittedError):
        clone(path).predict_set(*inputs, accuracy=0.9)


def test_a_path_without_a_network_can_be_calibrated(learn: Problem) -> None:
    path = sl.CardinalityPath(sl.TopK([6]), cost_weights=[0.5, 0.1], inputs="scores")
    path.fit(learn.scores, learn.y).calibrate(learn.scores, learn.y)
    assert path.predict_set(learn.scores, accuracy=0.99).mean_size == 6


def test_labels_outside_the_candidates_are_misses(learn: Problem, unseen: Problem) -> None:
    def to_candidates(p: Problem) -> sl.Ranking:
        order = np.argsort(-p.scores, axis=1)[:, :3]
        return sl.Ranking.from_candidates(
            order, np.take_along_axis(p.scores, order, axis=1), n_classes=6
        )

    path = sl.CardinalityPath(
        sl.TopK([1, 2, 3]), cost_weights=[1.0, 0.0], inputs="scores", max_epochs=5
    ).fit(to_candidates(learn), learn.y)
    path.calibrate(to_candidates(unseen), unseen.y)
    unlisted = 1 - path.frontier(to_candidates(unseen), unseen.y).accuracy[1]
    assert 0.05 < unlisted < 0.3
    with pytest.raises(UnreachableError, match="larger sets"):
        path.predict_set(to_candidates(unseen), accuracy=0.95)


def test_inside_the_scikit_learn_wrapper() -> None:
    p = draw_problem(1200, seed=5)
    path = sl.CardinalityPath(sl.TopK([1, 2, 4, 6]), cost_weights=[0.5, 0.05, 0.0], max_epochs=10)
    model = sl.ShortlistClassifier(
        LogisticRegression(max_iter=2000),
        method=path,
        features=lambda x: x[:, :3],
        calibration=0.25,
    )
    model.fit(np.hstack([p.x, p.scores]), p.y)
    new = draw_problem(1000, seed=6)
    sets = model.predict_set(np.hstack([new.x, new.scores]), accuracy=0.9)
    assert "by 300 calibration rows" in str(sets.guarantee)
    assert sets.accuracy(new.y) > 0.88
    assert sets.mean_size < 6
