"""One object, several threads: each gets what one thread alone would get."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import pytest
import torch

import shortlist as sl
from shortlist._utils.arrays import to_tensor
from shortlist.conformal.unsorted_levels import UnsortedLevels

DATA = sl.datasets.gaussian(1500, 0.5, n_classes=20, dimension=6)
FIT, NEW = DATA.split(900, 600)
LEVELS = [0.5, 0.7, 0.8, 0.9]
THREADS = 6


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_in_threads(*works: Callable[[], object]) -> list[object]:
    """Run all works at once."""
    start = threading.Barrier(len(works))

    def begin(work: Callable[[], object]) -> object:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [done.result() for done in [pool.submit(begin, work) for work in works]]


def test_sets_that_are_cut_when_they_are_first_used():
    model = sl.SplitConformal("lac").fit(FIT.posterior, FIT.y)

    def predicted() -> list[sl.PredictionSets]:
        return list(model.predict_sets(NEW.posterior, accuracies=LEVELS))

    expected = [sets.labels() for sets in predicted()]
    for _ in range(8):
        for sets, right in zip(predicted(), expected, strict=True):
            results = run_in_threads(*[sets.labels] * THREADS)
            assert all(result == right for result in results)


def test_sets_that_are_still_to_be_cut_can_be_copied():
    model = sl.SplitConformal("lac").fit(FIT.posterior, FIT.y)
    uncut, right = (model.predict_sets(NEW.posterior, accuracies=LEVELS) for _ in range(2))
    for ways in (copy.copy, copy.deepcopy, lambda sets: pickle.loads(pickle.dumps(sets))):
        assert ways(uncut[0]).labels() == right[0].labels()


def test_a_ranking_that_is_top_to_several_depths_at_once():
    scores = NEW.posterior.astype(np.float64)
    whole = sl.Ranking.from_scores(scores).top(20)
    for _ in range(30):
        ranking = sl.Ranking.from_scores(scores)
        depths = (3, 20, 5, 12, 1, 8)
        results = run_in_threads(*(lambda d=d: ranking.top(d) for d in depths))  # noqa: B023
        for depth, (labels, values) in zip(depths, results, strict=True):
            assert torch.equal(labels, whole[0][:, :depth])
            assert torch.equal(values, whole[1][:, :depth])


def test_a_shallow_listing_does_not_take_the_place_of_a_deep_one(monkeypatch):
    """While one thread lists three labels, another lists all of them, and then reads them."""
    ranking = sl.Ranking.from_scores(NEW.posterior)
    top_block = sl.Ranking._top_block

    def overtaken(self: sl.Ranking, rows: slice, depth: int) -> object:
        result = top_block(self, rows, depth)
        if depth == 3:
            monkeypatch.setattr(sl.Ranking, "_top_block", top_block)
            assert ranking.top(20)[0].shape[1] == 20
        return result

    monkeypatch.setattr(sl.Ranking, "_top_block", overtaken)
    assert ranking.top(3)[0].shape[1] == 3
    listed = ranking._top[0].shape[1]
    assert listed == 20


def test_rows_of_a_ranking_that_is_top_meanwhile(monkeypatch):
    """Labels and scores are taken from one and the same listing."""
    ranking = sl.Ranking.from_scores(NEW.posterior)
    deep = sl.Ranking.from_scores(NEW.posterior).top(20)

    class Overtaken(tuple):
        def __getitem__(self, at):
            ranking._top = deep
            return super().__getitem__(at)

    ranking._top = Overtaken(ranking.top(3))
    some = ranking[[1, 2]]
    assert some._top[0].shape == some._top[1].shape


def test_what_is_computed_once_takes_no_lock():
    """In Python 3.11 functools.cached_property has one lock for all objects of a class: threads
    wait for each other, and a process forked meanwhile waits for ever."""
    assert not any(isinstance(value, cached_property) for value in vars(UnsortedLevels).values())


def test_read_only_arrays_leave_the_filters_of_warnings_alone(monkeypatch):
    """They belong to all threads: what one changes and restores, another restores as changed."""
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    seen = []
    from_numpy = torch.from_numpy

    def watched(given: np.ndarray) -> torch.Tensor:
        seen.append(warnings.filters)
        return from_numpy(given)

    monkeypatch.setattr(torch, "from_numpy", watched)
    before = warnings.filters
    tensor = to_tensor(array, "scores")
    assert seen == [before]
    assert seen[0] is before
    assert tensor.tolist() == array.tolist()
    assert tensor.data_ptr() == array.ctypes.data


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i8", "?"])
def test_read_only_arrays_of_any_kind(dtype):
    array = np.arange(12).reshape(3, 4).astype(dtype)
    array.flags.writeable = False
    for view in (array, array[:, ::2], array.T, array[:0], array[1]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tensor = to_tensor(view, "scores")
        assert np.array_equal(tensor.numpy(), view)
    tensor = to_tensor(np.broadcast_to(np.arange(3.0), (4, 3)), "scores")
    del array
    assert tensor.tolist() == [[0.0, 1.0, 2.0]] * 4


# Every method, one fitted model

NAMED = sl.datasets.gaussian(700, 0.6, n_classes=6, dimension=5)
ROWS, ASKED = NAMED.split(450, 250)
TINY = {"max_epochs": 2, "width": 8, "rank_width": 8, "folds": 2}


def candidates(scores: np.ndarray) -> sl.Ranking:
    order = np.argsort(-scores, axis=1)[:, :4]
    return sl.Ranking.from_candidates(order, np.take_along_axis(scores, order, 1), n_classes=6)


def conformal(score: str, **more: object) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        model = sl.SplitConformal(score, **more).fit(ROWS.posterior, ROWS.y)
        return lambda: model.predict_sets(ASKED.posterior, accuracies=LEVELS)

    return make


def with_features(model: sl.SetPredictor, **point: object) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        model.fit(ROWS.posterior, ROWS.y, ROWS.x)
        return lambda: [model.predict_set(ASKED.posterior, ASKED.x, **point)]

    return make


def of_family(model: sl.SetPredictor, **point: object) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        model.fit(ROWS.posterior, ROWS.y)
        return lambda: [model.predict_set(ASKED.posterior, **point)]

    return make


def of_candidates() -> Callable[[], object]:
    model = sl.Shortlister(**TINY, rescore=True, learn_sizes=True)
    model.fit(candidates(ROWS.posterior), ROWS.y, ROWS.x)
    shared = candidates(ASKED.posterior)
    return lambda: model.predict_sets(shared, ASKED.x, accuracies=[0.5, 0.6, 0.7])


def of_one_ranking() -> Callable[[], object]:
    model = sl.SplitConformal("raps").fit(ROWS.posterior, ROWS.y)
    shared = sl.Ranking.from_scores(ASKED.posterior)
    return lambda: model.predict_sets(shared, accuracies=LEVELS)


def of_a_classifier() -> Callable[[], object]:
    model = sl.ShortlistClassifier(
        sl.LinearClassifier(max_epochs=2), method=sl.SplitConformal("aps")
    )
    model.fit(ROWS.x, ROWS.y)
    return lambda: [model.predict_set(ASKED.x)]


METHODS = {
    **{score: conformal(score) for score in ("lac", "aps", "raps", "saps")},
    "raps, randomized": conformal("raps", randomized=True),
    "shortlister": with_features(
        sl.Shortlister(**TINY, rescore=True, learn_sizes=True), accuracy=0.8
    ),
    "shortlister, scores": of_family(sl.Shortlister(cost="log"), mean_size=1.5),
    "shortlister, candidates": of_candidates,
    "one ranking": of_one_ranking,
    "plug-in": of_family(
        sl.PlugInSelector(sl.Conformal("lac", [0.5, 0.8, 0.95])), cost_weight=0.05
    ),
    "fixed": of_family(sl.FixedSelector(sl.DenisHebiri([1.5, 2.5]), index=1)),
    "selector": with_features(
        sl.CardinalitySelector(sl.Threshold([0.5, 0.1]), cost_weight=0.02, max_epochs=2, width=8)
    ),
    "path": with_features(
        sl.CardinalityPath(sl.TopK([1, 2, 4]), cost_weights=[0.5, 0.1], max_epochs=2, width=8),
        cost_weight=0.1,
    ),
    "classifier": of_a_classifier,
}


@pytest.mark.parametrize("method", METHODS)
def test_one_model_predicts_the_same_in_several_threads(method):
    predict = METHODS[method]()
    right = [sets.labels() for sets in predict()]
    for result in run_in_threads(*[lambda: [predict() for _ in range(3)]] * 4):
        for sets in result:
            assert [one.labels() for one in sets] == right
