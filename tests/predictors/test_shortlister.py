"""The Shortlister: the choice of its stages, its nested sets and its guarantee."""

from __future__ import annotations

import itertools
import pickle
import random
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import shortlist as sl
from shortlist.conformal.levels import Levels
from shortlist.conformal.quantiles import UnreachableError
from shortlist.predictors.shortlister.log_probabilities import log_proba
from shortlist.predictors.shortlister.opinions import GivenScores, LearnerOpinion
from shortlist.predictors.shortlister.pool import Pool

N_CLASSES = 8
SMALL: dict[str, object] = {
    "learning_rate": 3e-3,
    "batch_size": 128,
    "width": 32,
    "rank_width": 16,
    "max_epochs": 8,
    "folds": 3,
    "progress": False,
}
"""Parameters of networks that train in a second."""

Rows = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


@cache
def rows(n: int, seed: int, signal: str = "labels") -> Rows:
    """Logits, labels and features.

    The features contain information on the labels that the logits do not have ("labels"), or on
    how reliable the logits are ("reliability"), or no information ("nothing").
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    scores = 2 * rng.normal(size=(n, N_CLASSES))
    truth = {
        "labels": scores + 1.5 * x @ np.random.default_rng(99).normal(size=(4, N_CLASSES)),
        "reliability": scores * np.where(x[:, :1] > 0, 3.0, 0.3),
        "nothing": scores,
    }[signal]
    return scores, (truth + rng.gumbel(size=truth.shape)).argmax(axis=1), x


def shortlister(**parameters: object) -> sl.Shortlister:
    return sl.Shortlister(**(SMALL | parameters))  # type: ignore[arg-type]


@cache
def fitted(signal: str = "labels", n: int = 600, **parameters: object) -> sl.Shortlister:
    scores, y, x = rows(n, 1, signal)
    return shortlister(**parameters).fit(scores, y, features=x)


@cache
def with_both_stages() -> sl.Shortlister:
    """A model with both stages, a size grid that skips sizes, and no calibration."""
    scores, y, x = wide_rows(600, 1)
    model = shortlister(rescore=True, learn_sizes=True, calibration=None, max_epochs=4)
    return model.fit(scores, y, features=x)


@cache
def wide_rows(n: int, seed: int) -> Rows:
    """Rows of forty classes, so that the size grid skips some sizes."""
    rng = np.random.default_rng(seed)
    x, scores = rng.normal(size=(n, 4)), 2 * rng.normal(size=(n, 40))
    truth = scores + x @ np.random.default_rng(98).normal(size=(4, 40))
    return scores, (truth + rng.gumbel(size=truth.shape)).argmax(axis=1), x


def to_candidates(scores: NDArray[np.float64], depth: int, score_type: str = "proba") -> sl.Ranking:
    """The best labels of each row as candidates; every third row has one less."""
    p = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
    labels = np.argsort(-p, axis=1)[:, :depth]
    values = np.take_along_axis({"proba": p, "logits": scores}[score_type], labels, axis=1)
    labels[::3, -1] = -1
    return sl.Ranking.from_candidates(labels, values, n_classes=scores.shape[1])


def levels_of(model: sl.Shortlister, scores: object, x: object) -> Levels:
    ranking, features = model._validate_rows(scores, x)  # type: ignore[arg-type]
    ranked = reranked(model, ranking, features)
    return model._current_score().nested_levels(ranked, features)  # type: ignore[return-value]


def reranked(model: sl.Shortlister, ranking: sl.Ranking, features: object) -> sl.Ranking:
    scaled = ranking.with_scale(model.score_type_, 1 / model.temperature_)
    return model.score_.rerank(scaled, features)  # type: ignore[arg-type]


# The stages


def test_features_with_information_on_labels_give_smaller_sets() -> None:
    model = fitted()
    assert model.rescored_
    assert set(model.history_) == {"residual network", "wide network", "sizes"}
    scores, y, x = rows(2000, 2)
    actual = model.frontier(scores, y, x).size_at(0.9)
    plug_in = sl.PlugInSelector().fit(*rows(600, 1)[:2]).frontier(scores, y).size_at(0.9)
    assert actual < 0.6 * plug_in


@pytest.mark.parametrize("rescore", ["auto", False])
def test_features_with_information_on_reliability_give_smaller_sets_by_stage_2(
    rescore: bool | str,
) -> None:
    model = fitted("reliability", n=900, rescore=rescore)
    assert model.learned_sizes_
    scores, y, x = rows(2000, 2, "reliability")
    actual = model.frontier(scores, y, x).size_at(0.9)
    plug_in = (
        sl.PlugInSelector().fit(*rows(900, 1, "reliability")[:2]).frontier(scores, y).size_at(0.9)
    )
    assert actual < 0.9 * plug_in


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_without_signal_no_stage_is_kept_and_sets_equal_those_of_lac(seed: int) -> None:
    scores, y, x = rows(600, seed, "nothing")
    model = shortlister(allow_empty=True).fit(scores, y, features=x)
    assert (model.rescored_, model.learned_sizes_) == (False, False)
    unseen, _, features = rows(1000, 9, "nothing")
    lac = sl.SplitConformal(calibration=0.25, allow_empty=True).fit(scores, y)
    for accuracy in (0.5, 0.9, 0.95, 0.98):
        actual = model.predict_set(unseen, features, accuracy=accuracy)
        assert actual == lac.predict_set(unseen, accuracy=accuracy)


def test_forced_stages_without_signal_hardly_increase_the_mean_size() -> None:
    model = fitted("nothing", n=900, rescore=True, learn_sizes=True)
    scores, y, x = rows(4000, 2, "nothing")
    lac = sl.PlugInSelector().fit(*rows(900, 1, "nothing")[:2]).frontier(scores, y)
    actual = model.frontier(scores, y, x)
    for accuracy in (0.9, 0.95, 0.98):
        assert actual.size_at(accuracy) < 1.06 * lac.size_at(accuracy)


def test_stages_can_be_forced_and_forbidden() -> None:
    model = fitted("nothing", n=300, rescore=True, learn_sizes=True, max_epochs=1)
    assert (model.rescored_, model.learned_sizes_) == (True, True)
    model = fitted("labels", n=300, rescore=False, learn_sizes=False)
    assert (model.rescored_, model.learned_sizes_) == (False, False)
    assert model.history_ == {}
    numpys = fitted("labels", n=300, rescore=np.bool_(False), learn_sizes=np.bool_(False))
    assert (numpys.rescored_, numpys.history_) == (False, {})
    few = shortlister(rescore=True, learn_sizes=True, max_epochs=1)
    scores, y, x = rows(30, 1)
    few.fit(scores, y, features=x)
    assert (few.rescored_, few.learned_sizes_) == (True, True)


def test_training_starts_at_the_classifier() -> None:
    """Untrained, the two stages are the plug-in rule."""
    scores, y, x = rows(600, 1)
    model = shortlister(rescore=True, learn_sizes=True, learning_rate=1e-30, max_epochs=1)
    model.fit(scores, y, features=x)
    rescorer = model.score_.rescorer_
    assert rescorer is not None
    rescorer.opinions, rescorer.pool = [GivenScores(1 / model.temperature_)], Pool([1.0])
    plug_in = sl.PlugInSelector(calibration=0.25).fit(scores, y)
    assert model.temperature_ == plug_in.temperature_
    unseen, _, features = rows(500, 2)
    actual = levels_of(model, unseen, features).values
    ranking = plug_in._validate_scores(unseen)
    scaled = ranking.with_scale(plug_in.score_type_, 1 / plug_in.temperature_)
    expected = plug_in.score_.nested_levels(scaled).values  # type: ignore[attr-defined]
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-7)


def test_out_of_fold_scores_are_out_of_fold() -> None:
    """They are as accurate as those of new rows, and less accurate than those in sample."""
    rng = np.random.default_rng(0)
    y, scores = rng.integers(N_CLASSES, size=900), rng.normal(size=(900, N_CLASSES))
    x = rng.normal(size=(900, 60)) + 1.5 * np.eye(N_CLASSES, 60)[y]
    new, (scores, y, x) = (v[300:] for v in (scores, y, x)), (v[:300] for v in (scores, y, x))
    model = shortlister(rescore=True, calibration=None, learn_sizes=False, max_epochs=30)
    model.fit(scores, y, features=x)
    folds = model.score_.rescorer_.folds  # type: ignore[union-attr]
    unseen, labels, features = new
    hits = {
        "in sample": (np.asarray(model.rescored(scores, x).rank(y)) == 0).mean(),
        "out of fold": (np.asarray(model.out_of_fold(scores, x).rank(y)) == 0).mean(),
        "new": (np.asarray(model.rescored(unseen, features).rank(labels)) == 0).mean(),
    }
    assert hits["in sample"] > hits["out of fold"] + 0.15
    assert abs(hits["new"] - hits["out of fold"]) < 0.1
    assert torch.bincount(folds).tolist() == [100, 100, 100]
    with pytest.raises(ValueError, match="299 rows were given, but fit learned from 300"):
        model.out_of_fold(scores[:299], x[:299])


def test_without_features_stage_2_corrects_the_probabilities() -> None:
    scores, y, _ = rows(600, 1, "nothing")
    scores = np.sign(scores) * np.abs(scores) ** 2  # A temperature cannot calibrate these scores.
    model = shortlister(max_epochs=20).fit(scores, y)
    assert (model.rescored_, model.learned_sizes_) == (False, True)
    sets = model.predict_set(scores, accuracy=0.9)
    assert len(sets) == 600
    with pytest.raises(ValueError, match="features were given, but fit saw none"):
        model.predict_set(scores, rows(600, 1)[2], accuracy=0.9)
    with pytest.raises(ValueError, match="rescore=True needs features"):
        shortlister(rescore=True).fit(scores, y)


# Effort, learners and extra rows


def test_the_effort_decides_which_networks_are_trained() -> None:
    scores, y, x = rows(600, 1)
    trained = {}
    for effort in ("fast", "standard", "best"):
        model = shortlister(effort=effort, learn_sizes=True, max_epochs=1, width=8)
        trained[effort] = list(model.fit(scores, y, features=x).history_)
    assert trained["fast"] == ["sizes"]
    assert trained["standard"] == ["residual network", "wide network", "sizes"]
    assert len(trained["best"]) == 6
    neither = shortlister(effort="best", learn_sizes=False, rescore=False)
    assert neither.fit(scores, y).history_ == {}


def test_a_fast_fit_uses_the_features_and_learns_no_sizes() -> None:
    scores, y, x = rows(600, 1)
    model = shortlister(effort="fast").fit(scores, y, features=x)
    assert (model.rescored_, model.learned_sizes_, model.history_) == (True, False, {})
    unseen, labels, features = rows(2000, 2)
    mine = model.frontier(unseen, labels, features).size_at(0.9)
    plug_in = sl.PlugInSelector().fit(scores, y).frontier(unseen, labels).size_at(0.9)
    assert mine < 0.6 * plug_in


def test_a_learner_that_helps_is_used_and_the_one_given_is_not_changed() -> None:
    scores, y, x = rows(900, 1, "nothing")
    square = np.where(x[:, :1] * x[:, 1:2] > 0, 4.0, -4.0) * np.array([1, 1, 1, 1, 0, 0, 0, 0])
    y = (scores + square + np.random.default_rng(0).gumbel(size=scores.shape)).argmax(axis=1)
    forest = RandomForestClassifier(50, min_samples_leaf=5, random_state=0)
    model = shortlister(effort="fast", learners=[forest]).fit(scores, y, features=x)
    assert not hasattr(forest, "classes_")
    opinions = model.score_.rescorer_.opinions  # type: ignore[union-attr]
    assert any(isinstance(opinion, LearnerOpinion) for opinion in opinions)
    assert model.predict_set(scores, x, accuracy=0.8).mean_size > 0
    again = clone(model).fit(scores, y, features=x)
    assert again.predict_set(scores, x) == model.predict_set(scores, x)
    unpickled = pickle.loads(pickle.dumps(model))
    assert unpickled.predict_set(scores, x) == model.predict_set(scores, x)


def test_extra_rows_shorten_the_sets_and_keep_the_guarantee() -> None:
    scores, y, x = rows(300, 1)
    _, extra_y, extra_x = rows(3000, 3)
    more = {"extra_features": extra_x, "extra_y": extra_y}
    model = shortlister(effort="fast", calibration=None, allow_empty=True, learn_sizes=False)
    plain = copy_of(model.fit(scores, y, features=x))
    model.fit(scores, y, features=x, **more)
    unseen, labels, features = rows(3000, 2)
    sizes = [m.frontier(unseen, labels, features).size_at(0.9) for m in (plain, model)]
    assert sizes[1] < sizes[0]
    found = coverage(model, 40, 99, 0.9)
    error = found.std(ddof=1) / 40**0.5
    assert 0.9 - 3 * error <= found.mean() <= 0.91 + 3 * error


@pytest.mark.parametrize("listed", [False, True])
def test_out_of_fold_takes_the_extra_rows(listed: bool) -> None:
    scores, y, x = rows(300, 1)
    given = to_candidates(scores, 5) if listed else scores
    _, extra_y, extra_x = rows(300, 3)
    more = {"extra_features": extra_x, "extra_y": extra_y}
    model = shortlister(effort="fast", calibration=None, rescore=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shortlist.predictors.shortlister.pool.MIN_GAIN", -np.inf)
        model.fit(given, y, features=x, **more)
    ranking = model.out_of_fold(given, x, **more)
    assert not np.allclose(ranking.scores, model.rescored(given, x).scores)
    with pytest.raises(ValueError, match="fit learned from 300; give the same extra_features"):
        model.out_of_fold(given, x)
    with pytest.raises(ValueError, match="extra_y is missing"):
        model.out_of_fold(given, x, extra_features=extra_x)
    with pytest.raises(ValueError, match="extra_features have 3 columns, but features have 4"):
        model.out_of_fold(given, x, extra_features=extra_x[:, :3], extra_y=extra_y)


def test_extra_rows_that_cannot_be_right() -> None:
    scores, y, x = rows(300, 1)
    model = shortlister(effort="fast")
    wrong: list[tuple[dict[str, object], str]] = [
        ({"extra_y": y}, "extra_features is missing; give extra_features and extra_y together"),
        ({"extra_features": x}, "extra_y is missing"),
        ({"extra_features": x[:, :2], "extra_y": y}, "extra_features have 2 columns, but features"),
        ({"extra_features": x[:9], "extra_y": y}, "extra_y has 300 labels for 9 rows of extra_fea"),
        ({"extra_features": np.where(x > 0, np.nan, x), "extra_y": y}, "extra_features .*nan"),
        ({"extra_features": x, "extra_y": y + 1}, "extra_y"),
    ]
    for extra, message in wrong:
        with pytest.raises(ValueError, match=message):
            model.fit(scores, y, features=x, **extra)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="extra_features need features"):
        model.fit(scores, y, extra_features=x, extra_y=y)


@pytest.mark.parametrize("with_extra", [False, True])
def test_nothing_that_learns_sees_a_calibration_row(with_extra: bool) -> None:
    """The stages are the same, whatever the scores, features and labels of these rows are."""
    scores, y, x = rows(400, 1)
    rng = np.random.default_rng(0)
    _, extra_y, extra_x = rows(200, 3)
    more = {"extra_features": extra_x, "extra_y": extra_y} if with_extra else {}
    forest = RandomForestClassifier(10, random_state=0)
    model = shortlister(
        learners=[forest], max_epochs=2, rescore=True, learn_sizes=True, score_type="logits"
    )
    first = copy_of(model.fit(scores, y, features=x, **more))
    _, held_out = model._split(400)
    assert len(held_out) == 100
    scores, y, x = scores.copy(), y.copy(), x.copy()
    scores[held_out] = 5 * rng.normal(size=(100, N_CLASSES))
    y[held_out] = (y[held_out] + 1) % N_CLASSES
    x[held_out] = 100 + rng.normal(size=(100, 4))
    other = model.fit(scores, y, features=x, **more)
    unseen, _, features = rows(300, 2)
    levels = [levels_of(m, unseen, features).values for m in (first, other)]
    assert torch.equal(*levels)
    assert first.temperature_ == other.temperature_
    assert not np.array_equal(first._calibration.levels, other._calibration.levels)


# The ranking after stage 1


def assert_sets_are_prefixes(model: sl.Shortlister, scores: object, x: object) -> None:
    """Sets are the first labels of `rescored`, whose scores do not increase."""
    ranking = model.rescored(scores, x)  # type: ignore[arg-type]
    order, log_p = np.asarray(ranking.labels), np.asarray(ranking.scores)
    for weight in (0.0, 0.03, 0.2):
        sets = model.predict_set(scores, x, cost_weight=weight)  # type: ignore[arg-type]
        for row, first in zip(sets.labels(), order, strict=True):
            assert row == first[: len(row)].tolist()
    listed = (order >= 0).sum(axis=1)
    whole = model.predict_set(scores, x, cost_weight=0.0)  # type: ignore[arg-type]
    assert np.array_equal(whole.sizes, listed)
    assert (np.diff(np.where(order >= 0, log_p, -np.inf)[:, : listed.min()]) <= 0).all()
    rank = np.asarray(ranking.rank(order[:, 1]))
    assert (rank == 1).all()


@pytest.mark.parametrize("sizes", [False, True])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("score_type", ["logits", "proba", "log_proba", "float32"])
def test_rescored_rows_are_log_probabilities_in_the_order_of_the_sets(
    score_type: str, kept: bool, sizes: bool
) -> None:
    """This includes probabilities far below the lower bound of log-probabilities."""
    (scores, y, x), (unseen, _, features) = rows(300, 1), rows(200, 2)
    log_p = [30 * s - np.logaddexp.reduce(30 * s, axis=1, keepdims=True) for s in (scores, unseen)]
    train, new = {
        "logits": [30 * scores, 30 * unseen],
        "proba": [np.exp(v) for v in log_p],
        "log_proba": log_p,
        "float32": [np.exp(v).astype(np.float32) for v in log_p],
    }[score_type]
    assert log_p[1].min() < -100
    model = shortlister(rescore=kept, learn_sizes=sizes, max_epochs=2).fit(train, y, features=x)
    log_proba_rows = np.asarray(model.rescored(new, features).scores, dtype=np.float64)
    assert log_proba_rows.shape == (200, N_CLASSES)
    np.testing.assert_allclose(np.exp(log_proba_rows).sum(axis=1), 1, atol=1e-5)
    assert_sets_are_prefixes(model, new, features)
    if not kept:
        floored = np.maximum(log_p[1], -30) if score_type != "logits" else log_p[1]
        expected = floored / model.temperature_
        expected -= np.logaddexp.reduce(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(
            log_proba_rows, -np.sort(-expected, axis=1), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("sizes", [False, True])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("score_type", ["logits", "proba"])
def test_rescored_candidates_leave_mass_for_unlisted_labels(
    score_type: str, kept: bool, sizes: bool
) -> None:
    (scores, y, x), (unseen, _, features) = rows(300, 1), rows(200, 2)
    train, new = to_candidates(scores, 5, score_type), to_candidates(unseen, 5, score_type)
    model = shortlister(rescore=kept, learn_sizes=sizes, max_epochs=2).fit(train, y, features=x)
    ranking = model.rescored(new, features)
    before, after = (np.sort(np.asarray(r.labels), axis=1) for r in (new, ranking))
    assert np.array_equal(before, after)
    listed, log_p = np.asarray(ranking.labels) >= 0, np.asarray(ranking.scores)
    mass = np.where(listed, np.exp(log_p), 0).sum(axis=1)
    assert (mass <= 1 + 1e-5).all()
    assert (mass > 0.02).all()
    assert mass.mean() > 0.7
    # Logits of candidates leave no mass for unlisted labels, unless a stage learned their share.
    assert (mass < 1 - 1e-4).all() == (score_type == "proba" or kept or sizes)
    assert_sets_are_prefixes(model, new, features)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_out_of_fold_rows_are_log_probabilities(kept: bool, listed: bool) -> None:
    scores, y, x = rows(300, 1)
    train = to_candidates(scores, 5) if listed else scores
    model = shortlister(rescore=kept, calibration=None, learn_sizes=False, max_epochs=2)
    model.fit(train, y, features=x)
    ranking = model.out_of_fold(train, x)
    log_p = np.where(np.asarray(ranking.labels) >= 0, np.asarray(ranking.scores), -np.inf)
    mass = np.exp(log_p).sum(axis=1)
    assert (mass <= 1 + 1e-5).all()
    assert listed or (mass > 1 - 1e-5).all()
    same = np.allclose(ranking.scores, model.rescored(train, x).scores)
    assert same != kept  # Without stage 1, no label is used.


# Few rows


@pytest.mark.parametrize("allow_empty", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_with_fifty_rows_sets_equal_those_of_the_plug_in_rule(
    listed: bool, allow_empty: bool
) -> None:
    scores, y, x = rows(50, 1)
    unseen, _, features = rows(400, 2)
    train, new = (to_candidates(s, 6) if listed else s for s in (scores, unseen))
    model = shortlister(allow_empty=allow_empty, on_unreachable="all")
    model.fit(train, y, features=x)
    plug_in = sl.PlugInSelector(
        calibration=0.25, cost_weight=None, allow_empty=allow_empty, on_unreachable="all"
    ).fit(train, y)
    assert model.temperature_ == plug_in.temperature_
    for weight in (0.0, 1e-6, 0.003, 0.02, 0.1, 0.3, 2.0):
        actual = model.predict_set(new, features, cost_weight=weight)
        assert actual == plug_in.predict_set(new, cost_weight=weight)
    for accuracy in (0.3, 0.6, 0.8, 0.92, 0.99):
        actual = model.predict_set(new, features, accuracy=accuracy)
        expected = plug_in.predict_set(new, accuracy=accuracy)
        assert actual == expected
        assert str(actual.guarantee) == str(expected.guarantee)


# Nested sets


TABLE = tuple(float(v) for v in np.cumsum([0, 3, 0, 0, 1, 0.1, 5, 0] * 5))


@given(
    cost=st.sampled_from(["linear", "log", TABLE]),
    weights=st.lists(st.floats(0, 2) | st.sampled_from([0.0, 1e-9, 1e3]), min_size=2, max_size=5),
    allow_empty=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_sets_are_nested_in_lambda(cost: object, weights: list[float], allow_empty: bool) -> None:
    scores, _, x = wide_rows(120, 3)
    model = clone(with_both_stages(), safe=False)
    model.__dict__.update(with_both_stages().__dict__)
    model.cost, model.allow_empty = cost, allow_empty  # type: ignore[assignment]
    sets = [
        model.predict_set(scores, x, cost_weight=weight).labels()
        for weight in sorted(weights, reverse=True)
    ]
    for smaller, larger in itertools.pairwise(sets):
        assert all(b[: len(a)] == a for a, b in zip(smaller, larger, strict=True))
    assert allow_empty or all(len(a) >= 1 for a in sets[0])


@pytest.mark.parametrize("cost", ["linear", "log", TABLE])
def test_levels_never_increase_and_are_the_best_choice_of_the_grid(cost: object) -> None:
    scores, _, x = wide_rows(300, 3)
    model = clone(with_both_stages(), safe=False)
    model.__dict__.update(with_both_stages().__dict__)
    model.cost = cost  # type: ignore[assignment]
    levels = levels_of(model, scores, x)
    assert levels.values.shape == (300, 40)
    assert (levels.values[:, 1:] <= levels.values[:, :-1]).all()
    # At consecutive sizes of the grid, the set minimizes P(miss) + cost_weight * cost(size).
    ranking, features = model._validate_rows(scores, x)
    ranked = reranked(model, ranking, features)
    masses = model.score_.rank_model_(log_proba(ranked, 40), features)  # type: ignore[misc]
    grid = model.score_.buckets_.sizes
    assert len(grid) < 40
    costs = torch.tensor([sl.costs.cost_table(cost, grid)[size] for size in grid])  # type: ignore[arg-type]
    compared = 0
    for weight in (0.3, 0.05, 0.01):
        total = 1 - masses[:, : len(grid)].cumsum(dim=1) + weight * costs
        chosen = torch.tensor(grid)[total.argmin(dim=1)]
        sizes = torch.from_numpy(
            np.asarray(model.predict_set(ranking, x, cost_weight=weight).sizes)
        )
        exact = (chosen <= 16) & (sizes <= 16)
        compared += int(exact.sum())
        least = total.min(dim=1).values
        column = torch.searchsorted(torch.tensor(grid), sizes[exact])
        torch.testing.assert_close(total[exact].gather(1, column[:, None])[:, 0], least[exact])
    assert compared > 100


# The guarantee


def coverage(
    model: sl.Shortlister, splits: int, n_calibration: int, accuracy: float, **options: object
) -> NDArray[np.float64]:
    """The accuracy on test rows, for many splits into calibration and test rows."""
    scores, y, x = rows(3000, 5)
    rng = np.random.default_rng(0)
    accuracies = []
    for _ in range(splits):
        order = rng.permutation(len(y))
        a, b = order[:n_calibration], order[n_calibration:]
        model.calibrate(scores[a], y[a], x[a])
        sets = model.predict_set(scores[b], x[b], accuracy=accuracy, **options)  # type: ignore[arg-type]
        accuracies.append(sets.accuracy(y[b]))
    return np.array(accuracies)


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


# Ranked candidates


@pytest.mark.parametrize("score_type", ["proba", "logits"])
@pytest.mark.parametrize("with_features", [False, True])
def test_ranked_candidates(score_type: str, with_features: bool) -> None:
    scores, y, x = rows(900, 1)
    ranking = to_candidates(scores, 5, score_type)
    model = shortlister(learn_sizes=True, calibration=None)
    model.fit(ranking, y, features=x if with_features else None)
    assert model.rescored_ == with_features
    unseen, labels, features = rows(2000, 2)
    x_new, new = features if with_features else None, to_candidates(unseen, 5, score_type)
    outside = ~np.isfinite(np.asarray(new.rank(labels)))
    assert 0.1 < outside.mean() < 0.4
    # The mass of unlisted labels is learned, even if the scores say that it is zero.
    checked = model._validate_rows(new, x_new)
    ranked, known = reranked(model, *checked), model.score_._check_features(checked[1])
    masses = model.score_.rank_model_(log_proba(ranked, 5), known)  # type: ignore[misc]
    assert masses.shape == (2000, 6)
    assert abs(float(masses[:, -1].mean()) - outside.mean()) < 0.08
    others, their_y, their_x = rows(1000, 3)
    model.calibrate(
        to_candidates(others, 5, score_type), their_y, their_x if with_features else None
    )
    sets = model.predict_set(new, x_new, accuracy=0.7)
    assert 0.65 < sets.accuracy(labels) < 0.75
    listed = np.asarray(new.labels)
    assert all(
        set(row) <= set(top[top >= 0].tolist()) for row, top in zip(sets, listed, strict=True)
    )
    with pytest.raises(UnreachableError, match="not among the candidates"):
        model.predict_set(new, x_new, accuracy=0.99)
    model.on_unreachable = "all"
    assert (np.asarray(model.predict_set(new, x_new, accuracy=0.99).sizes) == N_CLASSES).all()


def test_fewer_candidates_at_prediction() -> None:
    scores, y, x = rows(600, 1)
    model = shortlister(rescore=True, learn_sizes=True).fit(to_candidates(scores, 5), y, features=x)
    unseen, labels, features = rows(300, 2)
    short = to_candidates(unseen, 2)
    sets = model.predict_set(short, features, cost_weight=0.0)
    assert np.array_equal(sets.sizes, np.where(np.arange(300) % 3 == 0, 1, 2))
    curve = model.frontier(short, labels, features)
    assert curve.mean_size.max() <= sets.mean_size
    assert curve.accuracy.max() == sets.accuracy(labels)


def test_a_dense_ranking_of_limited_depth() -> None:
    scores, y, x = rows(900, 1)
    model = shortlister(learn_sizes=True, max_epochs=20, calibration=None)
    model.fit(sl.Ranking.from_scores(scores, depth=3), y, features=x)
    assert model.score_.buckets_.outside
    unseen, labels, features = rows(1000, 2)
    new = sl.Ranking.from_scores(unseen, depth=3)
    sets = model.predict_set(new, features, cost_weight=0.0)
    assert (np.asarray(sets.sizes) == 3).all()
    x = torch.from_numpy(features)
    masses = model.score_.rank_model_(log_proba(reranked(model, new, x), 3), x)  # type: ignore[misc]
    missed = 1 - sets.accuracy(labels)
    assert 0.02 < missed < 0.3
    assert abs(float(masses[:, -1].mean()) - missed) < 0.05


# Edges


def test_numpy_in_numpy_out_torch_in_torch_out() -> None:
    scores, y, x = rows(300, 1)
    model = shortlister(max_epochs=2, learn_sizes=True, rescore=True)
    actual = model.fit(scores, y, features=x).predict_set(scores, x)
    assert isinstance(actual.sizes, np.ndarray)
    assert isinstance(model.rescored(scores, x).scores, np.ndarray)
    tensors = [torch.from_numpy(v) for v in (scores, y, x)]
    expected = clone(model).fit(tensors[0], tensors[1], features=tensors[2])
    tensor_sets = expected.predict_set(tensors[0], tensors[2])
    assert isinstance(tensor_sets.sizes, torch.Tensor)
    assert isinstance(expected.p_values(tensors[0], tensors[2]), torch.Tensor)
    assert tensor_sets == actual


def test_classes_with_names() -> None:
    scores, y, x = rows(300, 1)
    names = np.array([f"class {k}" for k in range(N_CLASSES)])
    model = shortlister(max_epochs=2, learn_sizes=True, rescore=True)
    named = clone(model).fit(scores, names[y], features=x)
    plain = model.fit(scores, y, features=x).predict_set(scores, x)
    assert named.classes_.tolist() == names.tolist()
    sets = named.predict_set(scores, x)
    assert sets.labels() == [names[row].tolist() for row in plain.labels()]
    assert sets.accuracy(names[y]) == plain.accuracy(y)


def test_sets_do_not_depend_on_the_batch() -> None:
    scores, _, x = wide_rows(60, 3)
    model = with_both_stages()
    for weight in (0.1, 0.01):
        sets = model.predict_set(scores, x, cost_weight=weight)
        values = levels_of(model, scores, x).values
        is_clear = ((values - weight).abs() > 1e-5).all(dim=1)
        assert is_clear.double().mean() > 0.9
        for i in is_clear.nonzero()[:, 0].tolist():
            alone = model.predict_set(scores[i : i + 1], x[i : i + 1], cost_weight=weight)
            assert alone.labels()[0] == sets.labels()[i]
    alone = torch.cat([levels_of(model, scores[i : i + 1], x[i : i + 1]).values for i in range(60)])
    torch.testing.assert_close(alone, values, rtol=0, atol=1e-5)


def test_sets_do_not_depend_on_the_order_of_rows() -> None:
    scores, _, x = rows(500, 6)
    order = np.random.default_rng(0).permutation(500)
    model = fitted()
    sets, mixed = model.predict_set(scores, x), model.predict_set(scores[order], x[order])
    same = [mixed.labels()[i] == sets.labels()[j] for i, j in enumerate(order)]
    assert np.mean(same) > 0.99  # Rounding matters at the threshold itself.
    assert mixed.mean_size > 1


def test_fit_is_reproducible_and_does_not_change_global_random_states() -> None:
    scores, y, x = rows(300, 1)
    model = shortlister(max_epochs=2, learn_sizes=True, rescore=True, random_state=3)
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    first = clone(model).fit(scores, y, features=x)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert random.getstate() == states[2]
    torch.manual_seed(5)
    again = clone(model).fit(scores, y, features=x)
    other = clone(model).set_params(random_state=4).fit(scores, y, features=x)
    actual, same, different = (levels_of(m, scores, x).values for m in (first, again, other))
    assert torch.equal(actual, same)
    assert not torch.allclose(actual, different)
    assert first.predict_set(scores, x) == again.predict_set(scores, x)


def test_clones_and_pickles() -> None:
    scores, _, x = rows(300, 6)
    model = fitted()
    assert {k: model.get_params()[k] for k in SMALL} == SMALL
    assert "learn_sizes" in model.get_params()
    with pytest.raises(NotFittedError):
        clone(model).predict_set(scores, x)
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_set(scores, x) == model.predict_set(scores, x)
    assert str(again.predict_set(scores, x).guarantee) == str(
        model.predict_set(scores, x).guarantee
    )


def test_a_refitted_model_equals_a_fresh_one() -> None:
    model = clone(fitted())
    scores, y, x = rows(600, 1)
    model.fit(scores, y, features=x)
    assert model.rescored_
    other, labels, _ = wide_rows(100, 1)
    model.fit(other, labels)
    fresh = clone(model).fit(other, labels)
    assert (model.rescored_, model.learned_sizes_, model.history_) == (False, False, {})
    assert model.predict_set(other, accuracy=0.9) == fresh.predict_set(other, accuracy=0.9)


@pytest.mark.parametrize("wrong", ["cost", "device", "features", "loss", "labels"])
def test_a_failed_fit_does_not_change_the_model(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, y, x = rows(300, 1)
    model = shortlister(max_epochs=2, learn_sizes=True, rescore=True)
    model.fit(scores, y, features=x)
    before = model.predict_set(scores, x)
    other, labels, features = (v.copy() for v in rows(400, 2, "nothing"))
    parameters: dict[str, object] = {}
    match wrong:
        case "cost":
            parameters = {
                "cost": {k: k for k in range(1, N_CLASSES)}
            }  # The largest size has no cost.
        case "device":
            parameters = {"device": "nowhere"}
        case "features":
            features[7, 1] = np.nan
        case "loss":
            parameters = {"learning_rate": 1e30}
        case "labels":
            labels[3] = N_CLASSES
    kept = model.get_params()
    model.set_params(**parameters)
    with pytest.raises((ValueError, FloatingPointError)):
        model.fit(other, labels, features=features)
    model.set_params(**kept)
    assert model.predict_set(scores, x) == before


def test_a_table_must_cost_every_size_that_can_occur() -> None:
    scores, y, _ = wide_rows(100, 1)
    grid = {size: size for size in with_both_stages().score_.buckets_.sizes}
    with pytest.raises(ValueError, match="cost has no entry for size 30"):
        shortlister(cost=grid, calibration=None).fit(scores, y)


def test_costs_of_every_type() -> None:
    scores, y, x = rows(300, 1)
    linear = {size: float(size) for size in range(1, N_CLASSES + 1)}
    parameters = {"max_epochs": 2, "learn_sizes": True, "rescore": True}
    sets = {
        name: shortlister(cost=cost, **parameters).fit(scores, y, features=x).predict_set(scores, x)
        for name, cost in {
            "linear": "linear",
            "table": linear,
            "log": "log",
            "list": [np.log(k) for k in range(1, N_CLASSES + 1)],
            "function": lambda size: size**2,
        }.items()
    }
    assert sets["linear"] == sets["table"]
    assert sets["log"] == sets["list"]
    assert len({tuple(np.asarray(s.sizes)) for s in sets.values()}) == 3
    longest = {name: int(np.asarray(s.sizes).max()) for name, s in sets.items()}
    assert longest["function"] <= longest["linear"] <= longest["log"]


# Parameters set after the calibration


@cache
def plain(**parameters: object) -> sl.Shortlister:
    """A model without stages, which is fitted quickly."""
    return fitted(n=300, rescore=False, learn_sizes=False, **parameters)


def copy_of(model: sl.Shortlister) -> sl.Shortlister:
    """Return a copy of a fitted model, so that its parameters can be set."""
    return pickle.loads(pickle.dumps(model))  # type: ignore[no-any-return]


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
    message = r"cost = 'log', but it was 'linear' at calibration; call calibrate\(scores, y\) again"
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


# Invalid input


def test_features_of_another_width_are_refused_even_if_no_stage_uses_them() -> None:
    scores, y, x = rows(50, 6)
    model = plain()
    assert (model.rescored_, model.learned_sizes_) == (False, False)
    message = "features have 3 columns, but fit saw 4; give the same features"
    wrong = x[:, :3]
    for ask in (
        lambda: model.predict_set(scores, wrong, accuracy=0.9),
        lambda: model.predict_set(scores, wrong, cost_weight=0.1),
        lambda: model.rescored(scores, wrong),
        lambda: model.out_of_fold(scores, wrong),
        lambda: model.p_values(scores, wrong),
        lambda: model.frontier(scores, y, wrong),
        lambda: copy_of(model).calibrate(scores, y, wrong),
    ):
        with pytest.raises(ValueError, match=message):
            ask()
    expected = model.predict_set(scores, x, accuracy=0.9)
    assert model.predict_set(scores, accuracy=0.9) == expected  # They can be left out.


def test_missing_or_wrong_features_are_refused() -> None:
    scores, y, x = rows(50, 6)
    model = fitted()
    with pytest.raises(ValueError, match="features are missing: fit saw 4 of them"):
        model.predict_set(scores)
    with pytest.raises(ValueError, match="features have 3 columns, but fit saw 4"):
        model.predict_set(scores, x[:, :3])
    with pytest.raises(ValueError, match="features have 49 rows, but the scores have 50"):
        model.predict_set(scores, x[:49])
    with pytest.raises(ValueError, match="features have 49 rows, but the scores have 50"):
        shortlister().fit(scores, y, features=x[:49])
    with pytest.raises(ValueError, match=r"features holds nan at row 3, column 2"):
        model.predict_set(scores, np.where(np.arange(200).reshape(50, 4) == 14, np.nan, x))
    with pytest.raises(ValueError, match="scores have 7 classes, but fit saw 8"):
        model.predict_set(scores[:, :7], x)


def test_half_precision_features() -> None:
    scores, y, x = rows(600, 1)
    model = shortlister().fit(scores, y, features=x.astype(np.float16))
    assert model.rescored_
    unseen, labels, features = rows(1000, 2)
    sets = model.predict_set(unseen, features.astype(np.float16), accuracy=0.9)
    assert 0.82 < sets.accuracy(labels) < 0.98  # 150 calibration rows.
    assert sets.mean_size < 1.1 * fitted().predict_set(unseen, features, accuracy=0.9).mean_size


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rescore", "always", """rescore must be "auto", True or False; got 'always'"""),
        ("rescore", 1, "rescore must be .*; got 1"),
        ("learn_sizes", None, "learn_sizes must be .*; got None"),
        ("folds", 1, "folds must be an integer of at least 2; got 1"),
        ("width", 0, "width must be .*; got 0"),
        ("rank_width", 2.5, r"rank_width must be .*; got 2\.5"),
        ("score_depth", 0, "score_depth must be .*; got 0"),
        ("accuracy", 1.0, r"accuracy must .*; got 1\.0"),
        ("calibration", 1.5, r"calibration must .*; got 1\.5"),
        ("cost_weight", -1, "cost_weight must .*; got -1"),
        ("cost", "cubic", "cost must be one of .*; got 'cubic'"),
        ("by", "klass", "by must be one of .*; got 'klass'; did you mean 'class'"),
        ("on_unreachable", "pass", "on_unreachable must be one of .*; got 'pass'"),
        ("learning_rate", -1.0, r"learning_rate must be positive; got -1\.0"),
        ("batch_size", 0, "batch_size must be .*; got 0"),
        ("max_epochs", 0, "max_epochs must be .*; got 0"),
        ("weight_decay", -1.0, r"weight_decay must .*; got -1\.0"),
        ("random_state", -1, "random_state must .*; got -1"),
        ("score_type", "odds", "score_type must be one of .*; got 'odds'"),
        ("device", "nowhere", "device = 'nowhere' is not available"),
        ("folds", 400, "folds = 400 is more than the 225 rows to learn from"),
        ("effort", "bst", "effort must be one of .*; got 'bst'; did you mean 'best'"),
        ("effort", 2, "effort must be one of .*; got 2"),
        ("learners", "forest", "learners must be a list of scikit-learn classifiers; got 'forest'"),
        ("learners", LogisticRegression(), "learners must be a list of scikit-learn classifiers"),
        ("learners", [LogisticRegression], r"not classes; write LogisticRegression\(\)"),
        ("learners", [LinearSVC()], "each of learners needs fit and predict_proba; LinearSVC"),
        ("learners", [None], "each of learners needs fit and predict_proba; None"),
    ],
)
def test_invalid_parameters_are_refused(name: str, value: object, message: str) -> None:
    scores, y, x = rows(300, 1)
    with pytest.raises(ValueError, match=message):
        shortlister(**{name: value}).fit(scores, y, features=x)


def test_sets_are_no_larger_than_the_depth_of_the_training_rows() -> None:
    scores, y, _ = rows(600, 0)
    listed = sl.Ranking.from_scores(scores, depth=2)
    model = shortlister(learn_sizes=False, calibration=None).fit(listed, y)
    model.calibrate(scores, y)
    assert model.predict_set(scores, cost_weight=0).sizes.max() == 2
    with pytest.raises(UnreachableError):
        model.predict_set(scores, accuracy=0.999)


def test_the_level_of_a_probability_of_zero_is_positive() -> None:
    one_hot = np.eye(4).repeat(30, axis=0)
    model = shortlister(learn_sizes=False, score_type="proba").fit(one_hot, one_hot.argmax(axis=1))
    assert model.predict_set(one_hot, cost_weight=1e-14).sizes.tolist() == [4] * 120
