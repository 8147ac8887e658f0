"""The Shortlister: candidates, types of rows, repeated fits and invalid input."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from small_shortlisters import (
    N_CLASSES,
    SMALL,
    copy_of,
    fitted,
    levels_of,
    plain,
    reranked,
    rows,
    shortlister,
    to_candidates,
    wide_rows,
    with_both_stages,
)

import shortlist as sl
from shortlist.conformal.quantiles import UnreachableError
from shortlist.predictors.shortlister.log_probabilities import log_proba

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
