"""Fits on a cluster of two workers: as good as in one process, whatever dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tables import CLASSES, SCORES, X, Y, candidates, lists, workers

import shortlist as sl
from shortlist.ray import training as _train

pytestmark = pytest.mark.usefixtures("cluster")
LEARN, NEW = slice(0, 18_000), slice(18_000, 24_000)
WEAK = 0.5 * np.log(SCORES + 1e-9) + np.random.default_rng(0).standard_normal(SCORES.shape)
WEAK = WEAK.astype(np.float32)  # logits that the features can mend


@pytest.fixture(scope="module")
def weak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weak")
    for k, rows in enumerate(np.array_split(np.arange(18_000), 3)):
        columns = {"scores": lists(WEAK[rows]), "y": Y[rows], "features": lists(X[rows])}
        parquet.write_table(pa.table(columns), folder / f"{k}.parquet", row_group_size=2000)
    return folder


def method(**options) -> sl.Shortlister:
    return sl.Shortlister(max_epochs=6, patience=6, progress=False, **options)


@pytest.fixture(scope="module")
def undisturbed(weak: Path) -> sl.Shortlister:
    return sl.ray.fit(weak, method(), workers=2)


def test_it_is_as_good_as_that_of_one_process(undisturbed, tmp_path: Path) -> None:
    there, here = undisturbed, method().fit(WEAK[LEARN], Y[LEARN], X[LEARN])
    assert there.rescored_
    assert there.get_params() == here.get_params()
    one, two = (m.frontier(WEAK[NEW], Y[NEW], X[NEW]) for m in (here, there))
    for accuracy in (0.6, 0.8, 0.9):
        assert two.size_at(accuracy) == pytest.approx(one.size_at(accuracy), rel=0.04)
    sets = there.predict_set(WEAK[NEW], X[NEW], accuracy=0.8)
    # Of 4,500 calibration and 6,000 new rows: three standard errors.
    assert sets.accuracy(Y[NEW]) == pytest.approx(0.8, abs=0.025)
    assert "calibration rows" in str(sets.guarantee)
    assert 0.2 * 18_000 < len(there._calibration) < 0.3 * 18_000
    there.save(tmp_path / "model")  # an ordinary model
    assert sl.load(tmp_path / "model").predict_set(WEAK[NEW], X[NEW], accuracy=0.8) == sets


def test_of_candidates_with_names(tmp_path: Path) -> None:
    labels, scores = candidates(5)
    names = np.array([f"class {i:02}" for i in range(CLASSES)])
    lengths = np.where(np.arange(18_000) < 9000, 3, 5)  # the first worker's lists are shorter
    table = pa.table(
        {
            "labels": [
                row[:k].tolist() for row, k in zip(names[labels[LEARN]], lengths, strict=True)
            ],
            "scores": [row[:k].tolist() for row, k in zip(scores[LEARN], lengths, strict=True)],
            "y": names[Y[LEARN]],
        }
    )
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=3000)
    model = sl.ray.fit(tmp_path, method(), workers=2)
    assert model.classes_.tolist() == names.tolist()
    ranking = sl.Ranking.from_candidates(names[labels[NEW]], scores[NEW], classes=names)
    sets = model.predict_set(ranking, accuracy=0.4)
    assert sets.accuracy(names[Y[NEW]]) == pytest.approx(0.4, abs=0.12)


@pytest.mark.parametrize(
    "model",
    [
        sl.SplitConformal("raps"),
        sl.SplitConformal("lac", temperature=None),
        sl.PlugInSelector(cost="log", calibration=0.3),
        sl.CardinalityPath(inputs="both", cost_weights=[0.2, 0.05], max_epochs=5, progress=False),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_method(weak: Path, model) -> None:
    there = sl.ray.fit(weak, model, workers=2)
    here = model.fit(WEAK[LEARN], Y[LEARN], X[LEARN])
    one, two = (m.frontier(WEAK[NEW], Y[NEW], X[NEW]) for m in (here, there))
    at = np.linspace(0.3, 0.9, 5)
    np.testing.assert_allclose(two.size_at(at), one.size_at(at), rtol=0.06)
    if not isinstance(model, sl.CardinalityPath):
        sets = there.predict_set(WEAK[NEW], accuracy=0.8)
        assert sets.accuracy(Y[NEW]) == pytest.approx(0.8, abs=0.03)


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    scores = WEAK[:4000].copy()
    scores[3456, 2] = np.inf
    table = pa.table({"scores": lists(scores), "y": Y[:4000]})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=1000)
    with pytest.raises(ValueError, match=r"rows\.parquet, row 3456: scores hold inf at place 2"):
        sl.ray.fit(tmp_path, method(), workers=2)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds the workers by /proc")
@pytest.mark.study
def test_a_killed_worker_costs_time_and_nothing_else(
    weak: Path, undisturbed, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(_train, "EVERY", 0.0)
    killed: list[int] = []

    def kill() -> None:
        for _ in range(6000):
            if any(tmp_path.glob("*/checkpoint*/stages/*")) and workers(b"TrainWorker"):
                killed.append(workers(b"TrainWorker")[0])
                os.kill(killed[0], signal.SIGKILL)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    there = sl.ray.fit(weak, method(), workers=2, storage=tmp_path)
    thread.join()
    assert killed
    assert len(there.history_["re-scoring"]) == 6
    for accuracy in (0.8, 0.9):  # to the last label
        one, two = (
            m.predict_set(WEAK[NEW], X[NEW], accuracy=accuracy) for m in (there, undisturbed)
        )
        assert one == two
