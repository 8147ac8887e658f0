"""Fits on a cluster of two workers are as good as in one process, also if a worker dies."""

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
from tables import N_CLASSES, SCORES, X, Y, as_lists, candidates, find_workers

import shortlist as sl
from shortlist.ray import training

pytestmark = pytest.mark.usefixtures("cluster")
FIT, NEW = slice(0, 18_000), slice(18_000, 24_000)
NOISE = np.random.default_rng(0).standard_normal(SCORES.shape)
# Logits that the features can improve.
WEAK = (0.5 * np.log(SCORES + 1e-9) + NOISE).astype(np.float32)


@pytest.fixture(scope="module")
def weak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of files with weak scores, labels and features."""
    folder = tmp_path_factory.mktemp("weak")
    for k, rows in enumerate(np.array_split(np.arange(18_000), 3)):
        columns = {"scores": as_lists(WEAK[rows]), "y": Y[rows], "features": as_lists(X[rows])}
        parquet.write_table(pa.table(columns), folder / f"{k}.parquet", row_group_size=2000)
    return folder


def shortlister(max_epochs: int = 6) -> sl.Shortlister:
    small = {"folds": 2, "width": 64, "rank_width": 16}
    return sl.Shortlister(max_epochs=max_epochs, patience=6, progress=False, **small)


@pytest.fixture(scope="module")
def fitted(weak: Path) -> sl.Shortlister:
    return sl.ray.fit(weak, shortlister(), workers=2)


def test_the_fit_is_as_good_as_in_one_process(fitted, tmp_path: Path) -> None:
    here = shortlister().fit(WEAK[FIT], Y[FIT], X[FIT])
    assert fitted.rescored_
    assert fitted.get_params() == here.get_params()
    one, two = (m.frontier(WEAK[NEW], Y[NEW], X[NEW]) for m in (here, fitted))
    for accuracy in (0.6, 0.8, 0.9):
        assert two.size_at(accuracy) == pytest.approx(one.size_at(accuracy), rel=0.04)
    sets = fitted.predict_set(WEAK[NEW], X[NEW], accuracy=0.8)
    # The tolerance is three standard errors of 4,500 calibration rows and 6,000 new rows.
    assert sets.accuracy(Y[NEW]) == pytest.approx(0.8, abs=0.025)
    assert "calibration rows" in str(sets.guarantee)
    assert 0.2 * 18_000 < len(fitted._calibration) < 0.3 * 18_000
    fitted.save(tmp_path / "model")
    assert sl.load(tmp_path / "model").predict_set(WEAK[NEW], X[NEW], accuracy=0.8) == sets


def test_named_candidates(tmp_path: Path) -> None:
    labels, scores = candidates(5)
    names = np.array([f"class {i:02}" for i in range(N_CLASSES)])
    lengths = np.where(np.arange(18_000) < 9000, 3, 5)  # The first worker has shorter lists.
    table = pa.table(
        {
            "labels": [
                row[:k].tolist() for row, k in zip(names[labels[FIT]], lengths, strict=True)
            ],
            "scores": [row[:k].tolist() for row, k in zip(scores[FIT], lengths, strict=True)],
            "y": names[Y[FIT]],
        }
    )
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=3000)
    model = sl.ray.fit(tmp_path, shortlister(max_epochs=2), workers=2)
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
    on_cluster = sl.ray.fit(weak, model, workers=2)
    here = model.fit(WEAK[FIT], Y[FIT], X[FIT])
    one, two = (m.frontier(WEAK[NEW], Y[NEW], X[NEW]) for m in (here, on_cluster))
    accuracies = np.linspace(0.3, 0.9, 5)
    np.testing.assert_allclose(two.size_at(accuracies), one.size_at(accuracies), rtol=0.06)
    if not isinstance(model, sl.CardinalityPath):
        sets = on_cluster.predict_set(WEAK[NEW], accuracy=0.8)
        assert sets.accuracy(Y[NEW]) == pytest.approx(0.8, abs=0.03)


def test_a_bad_row_raises_in_all_workers(tmp_path: Path) -> None:
    scores = WEAK[:4000].copy()
    scores[3456, 2] = np.inf
    table = pa.table({"scores": as_lists(scores), "y": Y[:4000]})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=1000)
    message = r"rows\.parquet, row 3456: scores contain inf at position 2"
    with pytest.raises(ValueError, match=message):
        sl.ray.fit(tmp_path, shortlister(), workers=2)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="workers are found in /proc")
@pytest.mark.study
def test_after_a_killed_worker_the_model_is_the_same(
    weak: Path, fitted, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    killed: list[int] = []

    def kill() -> None:
        for _ in range(6000):
            states = any(tmp_path.glob(f"*/checkpoint*/{training.STATES_FOLDER}/*"))
            if states and find_workers(b"TrainWorker"):
                killed.append(find_workers(b"TrainWorker")[0])
                os.kill(killed[0], signal.SIGKILL)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    resumed = sl.ray.fit(weak, shortlister(), workers=2, storage=tmp_path)
    thread.join()
    assert killed
    assert len(resumed.history_["residual network"]) == 6
    for accuracy in (0.8, 0.9):
        one, two = (m.predict_set(WEAK[NEW], X[NEW], accuracy=accuracy) for m in (resumed, fitted))
        assert one == two
