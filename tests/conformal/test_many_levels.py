"""Sets at several accuracies in one call, and levels that are not sorted."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from registered_scores import NAMES, RANDOMIZED, make_score
from sklearn.base import clone

import shortlist as sl
from shortlist._utils.ordering import labels_at_least, sort_labels, sort_values
from shortlist.conformal import SCORES
from shortlist.conformal.levels import Levels, UnsortedLevels
from shortlist.conformal.levels import unsorted_levels as _unsorted
from shortlist.conformal.scores.probability import ProbabilityScore, exact
from shortlist.predictors import conformal as _conformal
from shortlist.ranking import Ranking

ACCURACIES = [0.5, 0.99, 0.9, 0.8, 0.9]
DATA = sl.datasets.gaussian(1200, 0.25, n_classes=7, dimension=5, seed=3)
KNOWN, NEW = DATA.split(800)
MODELS = {
    "lac": sl.SplitConformal("lac"),
    "lac as it is": sl.SplitConformal("lac", temperature=None),
    "lac, empty": sl.SplitConformal("lac", allow_empty=True),
    "aps": sl.SplitConformal("aps"),
    "raps": sl.SplitConformal("raps", randomized=True),
    "margin": sl.SplitConformal("margin"),
    "topk": sl.SplitConformal("topk"),
    "plug-in": sl.PlugInSelector(cost="log", calibration=0.5),
    "Shortlister": sl.Shortlister(max_epochs=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_predict_sets_equals_single_calls(name) -> None:
    model = MODELS[name].fit(KNOWN.posterior, KNOWN.y)
    result = model.predict_sets(NEW.posterior, accuracies=ACCURACIES)
    for accuracy, sets in zip(ACCURACIES, result, strict=True):
        assert copy.deepcopy(sets)[3:5] == sets[3:5]  # The labels are computed at first use.
        one = model.predict_set(NEW.posterior, accuracy=accuracy)
        assert sets == one
        assert str(sets.guarantee) == str(one.guarantee)
    assert model.predict_sets(NEW.posterior, accuracies=[]) == []


def test_by_class_and_by_group() -> None:
    groups = np.where(KNOWN.x[:, 0] > 0, "left", "right")
    new = np.where(NEW.x[:, 0] > 0, "left", "right")
    model = sl.SplitConformal("lac").fit(KNOWN.posterior, KNOWN.y, groups=groups)
    for how in ({"by": "class"}, {"by": "group", "groups": new}):
        result = model.predict_sets(NEW.posterior, accuracies=[0.8, 0.6], **how)
        for accuracy, sets in zip([0.8, 0.6], result, strict=True):
            assert sets == model.predict_set(NEW.posterior, accuracy=accuracy, **how)


def test_a_set_of_all_classes_among_others() -> None:
    model = sl.SplitConformal("lac", temperature=None, on_unreachable="all")
    model.fit(KNOWN.posterior[:30], KNOWN.y[:30])
    few, every = model.predict_sets(NEW.posterior, accuracies=[0.8, 0.999])
    assert every.sizes.tolist() == [7] * len(NEW)
    assert few == model.predict_set(NEW.posterior, accuracy=0.8)


def test_accuracies_must_be_a_list() -> None:
    model = MODELS["lac"].fit(KNOWN.posterior, KNOWN.y)
    with pytest.raises(ValueError, match=r"accuracies must be a list of numbers; got 0\.9"):
        model.predict_sets(NEW.posterior, accuracies=0.9)


@pytest.mark.parametrize("allow_empty", [False, True])
@pytest.mark.parametrize("kind", ["proba", "logits"])
def test_unsorted_levels_give_the_sets_of_sorted_ones(allow_empty, kind) -> None:
    """Levels of candidates are sorted, those of dense scores are not."""
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, (400, 9)).astype(np.float32)  # with ties
    scores[:, 0] += 1
    if kind == "proba":
        scores /= scores.sum(axis=1, keepdims=True)
    y = rng.integers(0, 9, 400)
    model = sl.SplitConformal(
        "lac", temperature=None, score_type=kind, allow_empty=allow_empty, calibration=None
    )
    labels = sort_labels(torch.from_numpy(scores), 9).numpy()
    lists = Ranking.from_candidates(labels, np.take_along_axis(scores, labels, 1), 9)
    dense = clone(model).fit(scores, y).calibrate(scores[:200], y[:200])
    result = {a: dense.predict_set(scores[200:], accuracy=a) for a in (0.1, 0.3, 0.6, 0.9)}
    levels = np.sort(dense._calibration.levels)
    p_dense = dense.p_values(scores[200:])
    curve = dense.frontier(scores[200:], y[200:])
    model.fit(lists, y).calibrate(lists[:200], y[:200])
    np.testing.assert_allclose(np.sort(model._calibration.levels), levels, rtol=1e-6)
    for accuracy, sets in result.items():
        assert model.predict_set(lists[200:], accuracy=accuracy).labels() == sets.labels()
    np.testing.assert_allclose(model.p_values(lists[200:]), p_dense)
    other = model.frontier(lists[200:], y[200:])
    np.testing.assert_allclose(other.mean_size, curve.mean_size)
    np.testing.assert_allclose(other.accuracy, curve.accuracy)


@given(
    st.integers(1, 12), st.integers(1, 9), st.sampled_from(["float16", "float32", "float64"]),
    st.integers(0, 1000),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_labels_above_a_threshold_are_in_the_order_of_the_ranking(rows, n, dtype, seed) -> None:
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.integers(-3, 3, (rows, n))).to(getattr(torch, dtype))
    scores = scores * [0.1, -0.0][seed % 2]  # Zeros of both signs tie too.
    values = torch.from_numpy(rng.random((rows, n))).to(scores.dtype)
    inside = values >= 0.5
    row, column = labels_at_least(values, torch.full((rows, 1), 0.5, dtype=scores.dtype), scores)
    expected = [
        [j for j in js if inside[i, j]] for i, js in enumerate(sort_labels(scores, n).tolist())
    ]
    assert [column[row == i].tolist() for i in range(rows)] == expected
    assert row.tolist() == sorted(row.tolist())


@given(
    st.sampled_from([name for name in NAMES if issubclass(SCORES[name], ProbabilityScore)]),
    st.booleans(),
    st.sampled_from(["proba", "logits"]), st.sampled_from([1.0, 0.7]),
    st.sampled_from([np.float16, np.float32, np.float64]), st.booleans(),
    st.integers(2, 40), st.integers(0, 1000),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_scores_of_labels_are_those_of_sorted_rows(
    name, randomized, kind, scale, dtype, always, n, seed
) -> None:
    """Levels for calibration and for prediction are equal to the last bit."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 9, (30, n)) * rng.choice([1.0, 0.3, 1e-9], (30, 1))  # with ties
    if kind == "proba":
        scores[:, 0] += 1e-3
        scores /= scores.sum(axis=1, keepdims=True)
    ranking = Ranking.from_scores(scores.astype(dtype)).with_scale(kind, scale)
    score = make_score(name, 0.07, 2, randomized and name in RANDOMIZED)
    plain = Levels(score.levels(ranking), torch.arange(1, n + 1), always)
    levels = UnsortedLevels(score, ranking, always=always)
    assert (plain.values.diff(dim=1) <= 0).all()  # nested
    index = torch.from_numpy(rng.integers(0, n, 30))
    own = levels.of_labels(ranking, index)
    torch.testing.assert_close(own, plain.of_labels(ranking, index).double(), rtol=0, atol=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_unsorted, "MIN_DEPTH", 2)
        thresholds = [own, own.sort().values, torch.full((30,), float(own[own < np.inf].amin()))]
        labels, longest, lengths = levels.sets_at(ranking, thresholds)
        assert (
            levels.ranking.rank_of(index) < lengths[0]
        ).all()  # Each set contains its own label.
        ranked = Ranking.from_scores(scores.astype(dtype))
        for at, sizes in zip(thresholds, lengths, strict=True):
            torch.testing.assert_close(sizes, plain.sizes_at(at))
        assert torch.equal(labels, ranked.prefix(longest))


@given(st.integers(0, 1000), st.sampled_from([torch.float32, torch.float64]))
@settings(max_examples=50, deadline=None)
def test_masses_are_the_same_in_any_order(seed, dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(8 * torch.randn(500, generator=generator, dtype=dtype), 0)
    shuffled = p[torch.randperm(500, generator=generator)]
    assert exact(p).sum() == exact(shuffled).sum() == exact(p).flip(0).cumsum(0)[-1]
    torch.testing.assert_close(exact(p), p.double(), rtol=0, atol=2.0**-53)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 5), (500, 300), (7,)])
def test_values_are_sorted_as_by_torch(dtype, shape) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    before = x.clone()
    assert torch.equal(sort_values(x), torch.sort(x, dim=-1).values)
    assert torch.equal(x, before)


def test_some_rows_choose_by_mean_size_and_the_others_certify(monkeypatch) -> None:
    monkeypatch.setattr(_conformal, "CHOOSING_VALUES", 7 * 10)
    draws = sl.datasets.gaussian(5000, 0.25, n_classes=7, dimension=5, seed=3)
    model = sl.SplitConformal("lac", temperature=None).fit(draws.posterior, draws.y)
    guarantee = model.predict_set(NEW.posterior, mean_size=2).guarantee
    assert guarantee.kind == "certified"
    assert guarantee.n_calibration == 4000
    assert guarantee.operating_point == "threshold chosen for mean size 2 by 1,000 other rows"


def test_of_a_classifier() -> None:
    for method in (sl.SplitConformal("lac"), sl.CardinalityPath(inputs="scores", max_epochs=1)):
        clf = sl.ShortlistClassifier(method=method).fit(KNOWN.x, KNOWN.y)
        result = clf.predict_sets(NEW.x, accuracies=[0.3, 0.5])
        expected = [clf.predict_set(NEW.x, accuracy=a) for a in (0.3, 0.5)]
        assert result == expected
