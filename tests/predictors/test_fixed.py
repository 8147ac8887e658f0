"""The fixed selector, and the methods that all set predictors share."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from two_regimes import N_CLASSES, Problem

import shortlist as sl


@pytest.mark.parametrize("k", range(1, N_CLASSES + 1))
def test_a_member_of_top_k(k: int, learn: Problem) -> None:
    model = sl.FixedSelector(index=k - 1).fit(learn.scores, learn.y)
    order = np.argsort(-learn.scores, axis=1)[:, :k]
    sets = model.predict_set(learn.scores)
    assert sets.labels() == order.tolist()
    assert sets.accuracy(learn.y) == (order == learn.y[:, None]).any(axis=1).mean()
    assert "no accuracy is guaranteed" in str(sets.guarantee)


def test_a_member_of_thresholds(learn: Problem) -> None:
    model = sl.FixedSelector(sl.Threshold([5.0, 2.0]), index=1).fit(learn.scores, learn.y)
    for row, labels in zip(learn.scores, model.predict_set(learn.scores).labels(), strict=True):
        assert set(labels) == set(np.flatnonzero(row > 2.0) if row.max() > 2 else [row.argmax()])


def test_the_frontier_has_a_point_for_every_member(learn: Problem, unseen: Problem) -> None:
    family = sl.TopK([1, 3, 6])
    curve = sl.FixedSelector(family).fit(learn.scores, learn.y).frontier(unseen.scores, unseen.y)
    for i in range(3):
        sets = sl.FixedSelector(family, i).fit(learn.scores, learn.y).predict_set(unseen.scores)
        assert curve.accuracy[i] == pytest.approx(sets.accuracy(unseen.y))
        assert curve.mean_size[i] == sets.mean_size
    assert curve.parameter_name == "index"
    assert curve.name == "fixed"


def test_kinds_names_and_score_types(learn: Problem) -> None:
    names = np.array(list("abcdef"))
    model = sl.FixedSelector(sl.TopK([2])).fit(torch.from_numpy(learn.scores), names[learn.y])
    sets = model.predict_set(torch.from_numpy(learn.scores))
    assert isinstance(sets.sizes, torch.Tensor)
    assert sets.labels()[0] == [names[i] for i in np.argsort(-learn.scores[0])[:2]]
    assert model.score_type_ == "logits"
    p = np.full((3, 4), 0.25)
    assert sl.FixedSelector().fit(p, [0, 1, 2]).score_type_ == "proba"
    assert sl.FixedSelector(score_type="logits").fit(p, [0, 1, 2]).score_type_ == "logits"


def test_clone_pickle_and_a_change_of_index(learn: Problem) -> None:
    model = sl.FixedSelector(sl.TopK([1, 2]), index=1).fit(learn.scores, learn.y)
    sets = model.predict_set(learn.scores)
    assert pickle.loads(pickle.dumps(model)).predict_set(learn.scores) == sets
    with pytest.raises(NotFittedError, match="this FixedSelector is not fitted"):
        clone(model).predict_set(learn.scores)
    model.set_params(index=0)
    assert model.predict_set(learn.scores).mean_size == 1
    model.set_params(index=2)
    with pytest.raises(ValueError, match=r"index = 2.*2 members"):
        model.predict_set(learn.scores)


@pytest.mark.parametrize("index", [-1, 3, 1.5, "1"])
def test_an_index_outside_the_family(index: object, learn: Problem) -> None:
    model = sl.FixedSelector(sl.TopK([1, 2, 3]), index=index)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"index.*{index}"):
        model.fit(learn.scores, learn.y)
    with pytest.raises(NotFittedError):  # A failed fit leaves no fitted model.
        model.predict_set(learn.scores)


def test_candidates_that_are_shorter_than_the_set(learn: Problem) -> None:
    ranking = sl.Ranking.from_candidates(
        [[3, 1, 0], [2, -1, -1]], [[0.5, 0.3, 0.1], [0.9, 0, 0]], 6
    )
    model = sl.FixedSelector(sl.TopK([1, 3]), index=1).fit(ranking, [0, 5])
    assert model.predict_set(ranking).labels() == [[3, 1, 0], [2]]
    assert model.frontier(ranking, [0, 5]).accuracy.tolist() == [0.0, 0.5]


def test_every_set_predictor_has_the_same_three_methods() -> None:
    for method in (sl.FixedSelector, sl.CardinalitySelector, sl.CardinalityPath):
        assert issubclass(method, sl.SetPredictor)
    with pytest.raises(TypeError, match="abstract"):
        sl.SetPredictor()
