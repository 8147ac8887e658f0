"""Objects that several threads share give each thread the result of a single thread."""

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
from shortlist.conformal.levels import UnsortedLevels

DATA = sl.datasets.gaussian(1500, 0.5, n_classes=20, dimension=6)
FIT, NEW = DATA.split(900, 600)
LEVELS = [0.5, 0.7, 0.8, 0.9]
THREADS = 6


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    """Switch between threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_in_threads(*functions: Callable[[], object]) -> list[object]:
    """Call all functions at the same time, each in its own thread."""
    start = threading.Barrier(len(functions))

    def call(function: Callable[[], object]) -> object:
        start.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        futures = [pool.submit(call, function) for function in functions]
        return [future.result() for future in futures]


def test_sets_that_share_labels_are_read_by_several_threads():
    model = sl.SplitConformal("lac").fit(FIT.posterior, FIT.y)

    def predict() -> list[sl.PredictionSets]:
        return list(model.predict_sets(NEW.posterior, accuracies=LEVELS))

    expected = [sets.labels() for sets in predict()]
    for _ in range(8):
        for sets, labels in zip(predict(), expected, strict=True):
            results = run_in_threads(*[sets.labels] * THREADS)
            assert all(result == labels for result in results)


def test_sets_that_share_labels_can_be_copied():
    model = sl.SplitConformal("lac").fit(FIT.posterior, FIT.y)
    sets, expected = (model.predict_sets(NEW.posterior, accuracies=LEVELS) for _ in range(2))
    for duplicate in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        assert duplicate(sets[0]).labels() == expected[0].labels()


def test_a_ranking_is_sorted_to_several_depths_by_several_threads():
    scores = NEW.posterior.astype(np.float64)
    expected = sl.Ranking.from_scores(scores).top(20)
    for _ in range(30):
        ranking = sl.Ranking.from_scores(scores)
        depths = (3, 20, 5, 12, 1, 8)
        results = run_in_threads(*(lambda d=d: ranking.top(d) for d in depths))  # noqa: B023
        for depth, (labels, values) in zip(depths, results, strict=True):
            assert torch.equal(labels, expected[0][:, :depth])
            assert torch.equal(values, expected[1][:, :depth])


def test_a_shallow_ranking_does_not_replace_a_deeper_one_in_the_cache(monkeypatch):
    """While one thread ranks three labels, another one ranks all of them."""
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
    assert ranking._top[0].shape[1] == 20


def test_rows_of_a_ranking_that_another_thread_sorts_deeper(monkeypatch):
    """Labels and scores of the rows have the same depth."""
    ranking = sl.Ranking.from_scores(NEW.posterior)
    deep = sl.Ranking.from_scores(NEW.posterior).top(20)

    class Overtaken(tuple):
        def __getitem__(self, at):
            ranking._top = deep
            return super().__getitem__(at)

    ranking._top = Overtaken(ranking.top(3))
    part = ranking[[1, 2]]
    assert part._top[0].shape == part._top[1].shape


def test_cached_properties_take_no_lock():
    """In Python 3.11, functools.cached_property has one lock for all objects of a class.

    Threads would wait for each other, and a process that is forked meanwhile would wait forever.
    """
    assert not any(isinstance(value, cached_property) for value in vars(UnsortedLevels).values())


def test_read_only_arrays_do_not_change_the_filters_of_warnings(monkeypatch):
    """All threads share the filters, so a temporary change can become permanent."""
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    filters = []
    from_numpy = torch.from_numpy

    def record_filters(array: np.ndarray) -> torch.Tensor:
        filters.append(warnings.filters)
        return from_numpy(array)

    monkeypatch.setattr(torch, "from_numpy", record_filters)
    before = warnings.filters
    tensor = to_tensor(array, "scores")
    assert filters == [before]
    assert filters[0] is before
    assert tensor.tolist() == array.tolist()
    assert tensor.data_ptr() == array.ctypes.data


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i8", "?"])
def test_read_only_arrays_of_any_dtype(dtype):
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


# Every method: several threads share one fitted model.

SMALL = sl.datasets.gaussian(700, 0.6, n_classes=6, dimension=5)
SMALL_FIT, SMALL_NEW = SMALL.split(450, 250)
TINY = {"max_epochs": 2, "width": 8, "rank_width": 8, "folds": 2}


def candidates(scores: np.ndarray) -> sl.Ranking:
    order = np.argsort(-scores, axis=1)[:, :4]
    return sl.Ranking.from_candidates(order, np.take_along_axis(scores, order, 1), n_classes=6)


Setup = Callable[[], Callable[[], object]]
"""Fits a model, and returns a function that predicts with it."""


def conformal(score: str, **options: object) -> Setup:
    def make() -> Callable[[], object]:
        model = sl.SplitConformal(score, **options).fit(SMALL_FIT.posterior, SMALL_FIT.y)
        return lambda: model.predict_sets(SMALL_NEW.posterior, accuracies=LEVELS)

    return make


def with_features(model: sl.SetPredictor, **point: object) -> Setup:
    def make() -> Callable[[], object]:
        model.fit(SMALL_FIT.posterior, SMALL_FIT.y, SMALL_FIT.x)
        return lambda: [model.predict_set(SMALL_NEW.posterior, SMALL_NEW.x, **point)]

    return make


def with_scores(model: sl.SetPredictor, **point: object) -> Setup:
    def make() -> Callable[[], object]:
        model.fit(SMALL_FIT.posterior, SMALL_FIT.y)
        return lambda: [model.predict_set(SMALL_NEW.posterior, **point)]

    return make


def with_candidates() -> Callable[[], object]:
    model = sl.Shortlister(**TINY, rescore=True, learn_sizes=True)
    model.fit(candidates(SMALL_FIT.posterior), SMALL_FIT.y, SMALL_FIT.x)
    shared = candidates(SMALL_NEW.posterior)
    return lambda: model.predict_sets(shared, SMALL_NEW.x, accuracies=[0.5, 0.6, 0.7])


def with_one_ranking() -> Callable[[], object]:
    model = sl.SplitConformal("raps").fit(SMALL_FIT.posterior, SMALL_FIT.y)
    shared = sl.Ranking.from_scores(SMALL_NEW.posterior)
    return lambda: model.predict_sets(shared, accuracies=LEVELS)


def with_classifier() -> Callable[[], object]:
    model = sl.ShortlistClassifier(
        sl.LinearClassifier(max_epochs=2), method=sl.SplitConformal("aps")
    )
    model.fit(SMALL_FIT.x, SMALL_FIT.y)
    return lambda: [model.predict_set(SMALL_NEW.x)]


METHODS = {
    **{score: conformal(score) for score in ("lac", "aps", "raps", "saps")},
    "raps, randomized": conformal("raps", randomized=True),
    "shortlister": with_features(
        sl.Shortlister(**TINY, rescore=True, learn_sizes=True), accuracy=0.8
    ),
    "shortlister, scores": with_scores(sl.Shortlister(cost="log"), mean_size=1.5),
    "shortlister, candidates": with_candidates,
    "one ranking": with_one_ranking,
    "plug-in": with_scores(
        sl.PlugInSelector(sl.Conformal("lac", [0.5, 0.8, 0.95])), cost_weight=0.05
    ),
    "fixed": with_scores(sl.FixedSelector(sl.DenisHebiri([1.5, 2.5]), index=1)),
    "selector": with_features(
        sl.CardinalitySelector(sl.Threshold([0.5, 0.1]), cost_weight=0.02, max_epochs=2, width=8)
    ),
    "path": with_features(
        sl.CardinalityPath(sl.TopK([1, 2, 4]), cost_weights=[0.5, 0.1], max_epochs=2, width=8),
        cost_weight=0.1,
    ),
    "classifier": with_classifier,
}


@pytest.mark.parametrize("method", METHODS)
def test_one_model_predicts_the_same_in_several_threads(method):
    predict = METHODS[method]()
    expected = [sets.labels() for sets in predict()]
    for predictions in run_in_threads(*[lambda: [predict() for _ in range(3)]] * 4):
        for prediction in predictions:
            assert [sets.labels() for sets in prediction] == expected
