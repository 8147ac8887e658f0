"""Calibrate a model with the rows of a table."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from shortlist.conformal.path_calibration import PathCalibration
from shortlist.predictors import CardinalityPath, SetPredictor
from shortlist.ray.cluster import connect, run_tasks
from shortlist.ray.levels import LevelCollector, LevelsTask, validate_rows
from shortlist.ray.parquet_files import Paths
from shortlist.ray.prediction import check_model
from shortlist.ray.sampling import ListedRows, RandomRows, select_rows
from shortlist.ray.table import Piece, Table

MAX_EXACT_ROWS = 1 << 25
"""Conformal scores of more rows than this are rounded and counted."""


def calibrate(
    dataset: Paths,
    model: SetPredictor,
    *,
    exact: bool | None = None,
    on_bad_rows: str = "raise",
    workers: int | None = None,
    threads: int = 1,
    address: str | None = None,
) -> SetPredictor:
    """Replace the calibration rows of a model by those of a table, on a Ray cluster.

    Up to 33 million rows, guarantees and sets are exactly those of `model.calibrate`. For more
    rows, conformal scores are rounded down and counted. The guarantees hold as well, and sets are
    larger by at most what 0.0002% of accuracy costs.

    Parameters
    ----------
    dataset : path-like or sequence of path-like
        Parquet files or folders of them, with labels `y`. See :func:`shortlist.ray.predict_set`
        for the columns.
    model : SetPredictor
        Fitted model, which is changed and returned.
    exact : bool, optional
        Whether to keep the conformal score of each row, which guarantees for each class need. By
        default only up to 33 million rows.
    on_bad_rows : {"raise", "skip"}, default="raise"
        What to do about rows that cannot be used. See :func:`shortlist.ray.predict_set`.
    workers : int, optional
        Number of processes. By default as many as the cores of the cluster allow.
    threads : int, default=1
        Number of threads of each process.
    address : str, optional
        Address of the cluster. See :func:`shortlist.ray.predict_set`.

    Returns
    -------
    SetPredictor
        The same model.
    """
    check_model(model)
    table = Table.open(dataset, needs_y=True, on_bad_rows=on_bad_rows)
    connect(address)
    return calibrate_on_table(table, model, exact=exact, workers=workers, threads=threads)


def calibrate_on_table(
    table: Table,
    model: SetPredictor,
    *,
    held_out: RandomRows | None = None,
    exact: bool | None = None,
    workers: int | None,
    threads: int,
) -> SetPredictor:
    """Calibrate a model with the rows of a table that were held out; by default all rows."""
    if not hasattr(model, "calibrate"):
        raise ValueError(f"a {type(model).__name__} makes no guarantees and cannot be calibrated")
    run = partial(run_tasks, items=table.pieces, workers=workers, threads=threads)
    if model.has_additive_calibration:
        results = run(PathTask(table, model, held_out), description="calibrating")
        model._path_calibration = _sum([part for _, part in results if part is not None])
        return model
    model._check_parameters()
    if exact is None:
        share = 1.0 if held_out is None else held_out.share
        exact = table.n_rows * share <= MAX_EXACT_ROWS
    collector = LevelCollector(model, table, exact, held_out)
    task = LevelsTask(table, model, held_out, exact, collector.choose_in_advance())
    for i, part in run(task, description="calibrating"):
        collector.add(i, part)
    collector.check()
    if exact and not collector.has_choosing_rows():
        task = replace(task, choosing=ListedRows(collector.choosing_numbers()), choosing_only=True)
        results = run(task, description="reading rows again")
        collector.choosing = [rows for _, part in results for rows in part.choosing]
    model._calibration = collector.calibration()
    return model


@dataclass(frozen=True)
class PathTask:
    """Count the hits and sum the sizes of the members of a path on a piece."""

    table: Table
    model: CardinalityPath
    held_out: RandomRows | None

    def __call__(self, piece: Piece) -> PathCalibration | None:
        """Return the counts; None if no row of the piece is held out."""
        parts: list[PathCalibration] = []
        for block in self.table.read(piece, self.model.classes_, check_y=False):
            numbers, rows = select_rows(block, self.held_out)
            if len(numbers):
                model = copy.copy(self.model)
                ranking, _, x = validate_rows(model, rows)
                assert rows.y is not None
                model.calibrate(ranking, rows.y, x)
                assert model._path_calibration is not None
                parts.append(model._path_calibration)
        return _sum(parts) if parts else None


def _sum(parts: Sequence[PathCalibration]) -> PathCalibration:
    """Return the calibration by the rows of all parts."""
    if not parts:
        raise ValueError("no rows are left to calibrate with")
    hits = np.sum([part.hits for part in parts], axis=0).tolist()
    total_sizes = np.sum([part.total_sizes for part in parts], axis=0).tolist()
    n_rows = sum(part.n_rows for part in parts)
    return PathCalibration(parts[0].cost_weights, n_rows, hits, total_sizes)
