"""Two processes fit the same model, which is as good as a model of one process."""

from __future__ import annotations

import pickle
import socket
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import distributed, multiprocessing

import shortlist as sl
from shortlist.learning.process_group import (
    ProcessGroup,
    SingleProcess,
    current_group,
    use_process_group,
)

DATA = sl.datasets.gaussian(6000, 0.25, n_classes=8, dimension=6, seed=5)
LEARN, NEW = slice(0, 4000), slice(4000, 6000)
P, X = (a.astype(np.float32) for a in (DATA.posterior, DATA.x))
WEAK = 0.5 * np.log(P + 1e-9) + np.random.default_rng(0).standard_normal(P.shape)
WEAK = WEAK.astype(np.float32)  # The features improve on these logits.
SMALL = {"calibration": None, "folds": 2, "width": 128, "rank_width": 32, "progress": False}
MODELS = {
    "Shortlister": sl.Shortlister(max_epochs=12, **SMALL),
    "no features": sl.Shortlister(max_epochs=6, rescore=False, **SMALL),
    "path": sl.CardinalityPath(
        inputs="both", cost_weights=[0.2, 0.05], max_epochs=15, progress=False
    ),
    "LAC": sl.SplitConformal("lac", calibration=None),
}


def _fit(rank: int, port: int, folder: str) -> None:
    """Fit the models in one of two processes, on about half of the rows."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", address, rank=rank, world_size=2)
    mine = np.arange(4000)[rank::2] if rank else np.arange(4000)[:-400:2]  # The sizes differ.
    results = {}
    with use_process_group(ProcessGroup()):
        sums = current_group().sum(torch.tensor([1.0, rank]))
        rows = current_group().gather(torch.full((1 + rank, 2), rank))
        results["collectives"] = (
            sums.tolist(), rows.tolist(), current_group().sum(rank + 3),
            current_group().min(rank + 3),
            current_group().max(rank + 3), current_group().broadcast(f"of {rank}"),
        )  # fmt: skip
        for name, model in MODELS.items():
            x = None if name in ("no features", "LAC") else X[mine]
            model.fit(WEAK[mine], DATA.y[mine], x, classes=range(8))
            results[name] = model
    Path(folder, str(rank)).write_bytes(pickle.dumps(results))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(_fit, (port, str(folder)), nprocs=2)
    return [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(2)]


@cache
def single_process_model(name: str) -> sl.SetPredictor:
    x = None if name in ("no features", "LAC") else X[LEARN]
    return MODELS[name].fit(WEAK[LEARN], DATA.y[LEARN], x, classes=range(8))


def test_a_single_process_returns_its_arguments() -> None:
    x = torch.arange(3.0)
    assert current_group().sum(x) is x
    assert current_group().gather(x) is x
    assert (
        current_group().sum(5),
        current_group().broadcast("this"),
        current_group().store("a"),
    ) == (
        5,
        "this",
        None,
    )
    with use_process_group(group := SingleProcess()):
        assert current_group() is group
    assert current_group() is not group


def test_learners_are_not_fitted_in_several_processes() -> None:
    class Two(SingleProcess):
        world_size = 2

    model = sl.Shortlister(learners=[LogisticRegression()], effort="fast", progress=False)
    with (
        use_process_group(Two()),
        pytest.raises(ValueError, match="learners are not available in a fit by several"),
    ):
        model.fit(WEAK[:400], DATA.y[:400], X[:400], classes=range(8))


def test_collectives_use_all_processes(fitted) -> None:
    expected = ([2.0, 1.0], [[0, 0], [1, 1], [1, 1]], 7, 3, 4, "of 0")
    assert [one["collectives"] for one in fitted] == [expected, expected]


@pytest.mark.parametrize("name", MODELS)
def test_both_processes_have_the_same_model(fitted, name) -> None:
    x = None if name in ("no features", "LAC") else X[NEW]
    curves = [one[name].frontier(WEAK[NEW], DATA.y[NEW], x) for one in fitted]
    np.testing.assert_array_equal(curves[0].mean_size, curves[1].mean_size)
    np.testing.assert_array_equal(curves[0].accuracy, curves[1].accuracy)


@pytest.mark.parametrize("name", ["Shortlister", "no features"])
def test_the_model_is_as_good_as_in_one_process(fitted, name) -> None:
    x = None if name == "no features" else X[NEW]
    one, two = (
        model.frontier(WEAK[NEW], DATA.y[NEW], x)
        for model in (single_process_model(name), fitted[0][name])
    )
    for accuracy in (0.7, 0.8, 0.9):
        assert two.size_at(accuracy) == pytest.approx(one.size_at(accuracy), rel=0.03)
    if name == "Shortlister":
        assert single_process_model(name).rescored_
        assert fitted[0][name].rescored_
        lac = single_process_model("LAC").frontier(WEAK[NEW], DATA.y[NEW])
        assert two.size_at(0.8) < 0.9 * lac.size_at(0.8)


def test_paths_and_temperatures_are_as_good_as_in_one_process(fitted) -> None:
    one, two = (
        m.frontier(WEAK[NEW], DATA.y[NEW], X[NEW])
        for m in (single_process_model("path"), fitted[0]["path"])
    )
    np.testing.assert_allclose(two.accuracy, one.accuracy, atol=0.03)
    np.testing.assert_allclose(two.mean_size, one.mean_size, rtol=0.08)
    assert fitted[0]["LAC"].temperature_ == pytest.approx(
        single_process_model("LAC").temperature_, rel=0.05
    )
