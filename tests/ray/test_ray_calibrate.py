"""Calibrations on a cluster of two workers are those of one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.base import clone
from tables import N_CLASSES, SCORES, Y, as_lists, candidates, read_labels

import shortlist as sl
from shortlist.predictors import conformal

pytestmark = pytest.mark.usefixtures("cluster")
APS = sl.SplitConformal("aps", temperature=None, randomized=True, calibration=None)
LAC_OF_CANDIDATES = sl.SplitConformal("lac", temperature=None, calibration=None, score_type="proba")


def fitted(model: sl.SplitConformal = APS) -> sl.SplitConformal:
    return clone(model).fit(SCORES[:2000], Y[:2000])


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_calibration_is_that_of_one_process(dense: Path, score: str) -> None:
    model = sl.SplitConformal(score, temperature=None, calibration=None)
    here, on_cluster = fitted(model).calibrate(SCORES, Y), sl.ray.calibrate(dense, fitted(model))
    for name in ("levels", "y", "thresholds", "mean_sizes"):
        np.testing.assert_array_equal(
            getattr(on_cluster._calibration, name), getattr(here._calibration, name)
        )
    assert on_cluster._calibration.schema == here._calibration.schema
    for point in ({"accuracy": 0.9}, {"mean_size": 3.0}, {"accuracy": 0.8, "by": "class"}):
        sets, expected = (m.predict_set(SCORES[:500], **point) for m in (on_cluster, here))
        assert sets == expected
        assert str(sets.guarantee) == str(expected.guarantee)


def test_candidates_in_lists_of_any_length(tmp_path: Path) -> None:
    labels, scores = candidates(5)
    lengths = np.random.default_rng(0).integers(1, 6, len(Y))
    table = pa.table(
        {
            "labels": pa.array([row[:k].tolist() for row, k in zip(labels, lengths, strict=True)]),
            "scores": pa.array([row[:k].tolist() for row, k in zip(scores, lengths, strict=True)]),
            "y": Y,
        }
    )
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=5000)
    padded = np.where(np.arange(5) < lengths[:, None], labels, -1)
    ranking = sl.Ranking.from_candidates(padded, scores.astype(np.float64), N_CLASSES)
    model = clone(LAC_OF_CANDIDATES).fit(ranking[:500], Y[:500])
    on_cluster = sl.ray.calibrate(tmp_path, clone(LAC_OF_CANDIDATES).fit(ranking[:500], Y[:500]))
    here = model.calibrate(ranking, Y)
    for name in ("levels", "mean_sizes"):
        np.testing.assert_array_equal(
            getattr(on_cluster._calibration, name), getattr(here._calibration, name)
        )
    summary = sl.ray.predict_set(
        tmp_path / "rows.parquet", on_cluster, tmp_path / "sets", accuracy=0.35
    )
    expected = here.predict_set(ranking, accuracy=0.35)
    assert read_labels(tmp_path / "sets") == expected.labels()
    assert summary.accuracy == expected.accuracy(Y)


def test_the_longest_list_decides_how_many_rows_choose(tmp_path: Path, monkeypatch) -> None:
    """The schema of the table, which has room for longer lists, does not."""
    monkeypatch.setattr(conformal, "CHOOSING_VALUES", 5 * 4000)
    labels, scores = candidates(5)
    padded = np.pad(labels, ((0, 0), (0, 3)), constant_values=-1), np.pad(scores, ((0, 0), (0, 3)))
    table = pa.table({"labels": as_lists(padded[0]), "scores": as_lists(padded[1]), "y": Y})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=5000)
    ranking = sl.Ranking.from_candidates(*padded, N_CLASSES)
    here, there = (clone(LAC_OF_CANDIDATES).fit(ranking[:500], Y[:500]) for _ in range(2))
    here.calibrate(ranking, Y)
    sl.ray.calibrate(tmp_path, there)
    assert there._calibration.n_choosing == here._calibration.n_choosing == 4000
    np.testing.assert_array_equal(there._calibration.mean_sizes, here._calibration.mean_sizes)


def test_sets_from_counted_scores_are_hardly_larger(dense: Path) -> None:
    here, counted = fitted().calibrate(SCORES, Y), fitted()
    sl.ray.calibrate(dense, counted, exact=False)
    assert len(counted._calibration.levels) <= len(Y)
    for accuracy in (0.5, 0.9, 0.99):
        expected, sets = (m.predict_set(SCORES, accuracy=accuracy) for m in (here, counted))
        assert abs(expected.mean_size - sets.mean_size) < 0.1
        assert sets.accuracy(Y) > accuracy - 0.01
    assert counted.predict_set(SCORES[:9], mean_size=3).guarantee.kind == "certified"
    with pytest.raises(ValueError, match="calibrate with exact=True"):
        counted.predict_set(SCORES[:9], accuracy=0.9, by="class")


def test_the_calibration_of_a_path_is_that_of_one_process(dense: Path) -> None:
    model = sl.CardinalityPath(inputs="scores", cost_weights=[0.3, 0.1, 0.03], max_epochs=2)
    model.fit(SCORES[:2000], Y[:2000])
    sl.ray.calibrate(dense, model)
    on_cluster = model._path_calibration
    model.calibrate(SCORES, Y)
    assert on_cluster == model._path_calibration


def test_bad_rows_are_skipped(tmp_path: Path) -> None:
    scores = SCORES[:6000].copy()
    scores[4321, 3] = np.nan
    table = pa.table({"scores": as_lists(scores), "y": Y[:6000]})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=1000)
    with pytest.warns(UserWarning, match="1 bad row was skipped"):
        model = sl.ray.calibrate(tmp_path / "rows.parquet", fitted(), on_bad_rows="skip")
    valid = np.delete(np.arange(6000), 4321)
    here = fitted().calibrate(scores[valid], Y[valid])
    np.testing.assert_array_equal(model._calibration.levels, here._calibration.levels)
