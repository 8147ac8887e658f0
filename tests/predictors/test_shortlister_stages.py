"""The Shortlister: the choice of its stages, effort, learners and extra rows."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from small_shortlisters import (
    N_CLASSES,
    copy_of,
    coverage,
    fitted,
    levels_of,
    rows,
    shortlister,
    to_candidates,
)

import shortlist as sl
from shortlist.predictors.shortlister.efforts import MANY_ROWS, SOME_ROWS
from shortlist.predictors.shortlister.opinions import GivenScores, LearnerOpinion
from shortlist.predictors.shortlister.pool import Pool
from shortlist.predictors.shortlister.score import (
    MIN_NETWORK_ROWS,
    MIN_ROWS,
    ShortlisterScore,
)

# The stages


def test_features_with_information_on_labels_give_smaller_sets() -> None:
    model = fitted()
    assert model.rescored_
    assert set(model.history_) == {"residual network", "wide network", "sizes"}
    scores, y, x = rows(2000, 2)
    actual = model.frontier(scores, y, x).size_at(0.9)
    plug_in = sl.PlugInSelector().fit(*rows(600, 1)[:2]).frontier(scores, y).size_at(0.9)
    assert actual < 0.6 * plug_in


def test_few_rows_are_re_scored_without_networks() -> None:
    scores, y, x = rows(MIN_NETWORK_ROWS - 1, 1)
    few = shortlister().fit(scores, y, x)
    assert (few.rescored_, few.learned_sizes_, few.history_) == (True, False, {})
    unseen = rows(2000, 2)
    lac = sl.SplitConformal("lac", calibration=None).fit(scores, y).frontier(*unseen[:2])
    assert few.frontier(*unseen).size_at(0.9) < 0.7 * lac.size_at(0.9)
    fewer = shortlister().fit(scores[: MIN_ROWS - 1], y[: MIN_ROWS - 1], x[: MIN_ROWS - 1])
    assert (fewer.rescored_, fewer.learned_sizes_) == (False, False)


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


def test_with_many_rows_a_network_without_the_scores_is_twice_as_wide() -> None:
    score = ShortlisterScore(width=8)
    for n_rows, width in ((MANY_ROWS, 8), (MANY_ROWS + 1, 16)):
        widths = {a.name: a.width for a in score._recipe(n_rows).architectures}
        assert widths == {"residual network": 8, "wide network": width}


def test_the_two_largest_networks_with_one_layer_need_some_rows() -> None:
    score = ShortlisterScore(effort="best", width=8)
    few, many = (
        {a.name: a.width for a in score._recipe(n_rows).architectures}
        for n_rows in (SOME_ROWS, SOME_ROWS + 1)
    )
    assert (len(few), max(few.values())) == (5, 32)
    assert many == few | {"large network": 32, "largest network": 64}


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


def test_both_stages_do_not_depend_on_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores, y, x = rows(600, 1, "reliability")
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            monkeypatch.setenv("SHORTLIST_THREADS", str(threads))
            model = shortlister(rescore=True, learn_sizes=True, max_epochs=3)
            model.fit(scores, y, x)
            assert torch.get_num_threads() == threads
            torch.set_num_threads(1)  # Predict with the same threads.
            results.append(levels_of(model, scores, x).by_rank(3))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)
