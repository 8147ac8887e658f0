"""Fit a model on a cluster: sample its training rows, or train networks on all of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from shortlist._utils import out_of_core
from shortlist._utils.arrays import ArrayLike
from shortlist._utils.validation import check_count
from shortlist.datasets.rows import Rows, are_indices
from shortlist.learning.process_group import SingleProcess, use_process_group
from shortlist.learning.settings import resolve_seed
from shortlist.predictors import SetPredictor, Shortlister
from shortlist.ranking import Ranking
from shortlist.ranking.score_types import infer_score_type
from shortlist.ray.calibration import calibrate_on_table
from shortlist.ray.cluster import check_capacity, connect, count_cores, run_tasks
from shortlist.ray.parquet_files import Paths
from shortlist.ray.sampling import SAMPLE_ROWS, RandomRows, sample_rows
from shortlist.ray.table import Piece, Table
from shortlist.ray.training import train_on_workers


def fit(
    dataset: Paths,
    model: SetPredictor | None = None,
    *,
    classes: ArrayLike | None = None,
    n_classes: int | None = None,
    on_bad_rows: str = "raise",
    workers: int | None = None,
    threads: int = 1,
    use_gpu: bool = False,
    storage: str | os.PathLike[str] | None = None,
    max_failures: int = 10,
    address: str | None = None,
) -> SetPredictor:
    """Fit a model on a table, on a Ray cluster.

    Networks are trained data-parallel with Ray Train: each worker stores its part of the rows on
    its own disk, and gradients are averaged over all workers. The batch of a single process is
    divided among the workers. If a worker dies, training is resumed from the last checkpoint.
    Methods without networks are fitted on a sample of 200,000 rows. At the end, the model is
    calibrated on all rows that were held out, as by :func:`shortlist.ray.calibrate`.

    Parameters
    ----------
    dataset : path-like or sequence of path-like
        Parquet files or folders of them, with labels `y`. See :func:`shortlist.ray.predict_set`
        for the columns.
    model : SetPredictor, optional
        Model to fit, which is not changed. By default a :class:`shortlist.Shortlister`. Its
        parameter `calibration` is the share of the rows to hold out for calibration.
    classes : array-like, optional
        Names of all classes, in the order of the scores. By default integers from 0 if labels are
        integers, and otherwise all labels that occur, sorted.
    n_classes : int, optional
        Number of classes, for candidates that are integers. By default one more than the largest
        label.
    on_bad_rows : {"raise", "skip"}, default="raise"
        What to do about rows that cannot be used. See :func:`shortlist.ray.predict_set`.
    workers : int, optional
        Number of processes. By default as many as the cores of the cluster allow.
    threads : int, default=1
        Number of threads of each process.
    use_gpu : bool, default=False
        Whether each worker trains on a GPU.
    storage : path-like, optional
        Folder for checkpoints that all workers can access. By default a temporary folder, which
        is enough for a cluster of one machine.
    max_failures : int, default=10
        Maximum number of times that training is resumed after a worker has died.
    address : str, optional
        Address of the cluster. See :func:`shortlist.ray.predict_set`.

    Returns
    -------
    SetPredictor
        The fitted model. It does not need Ray and can be saved, loaded and exported.
    """
    fitted: SetPredictor = clone(Shortlister() if model is None else model)
    table = Table.open(dataset, needs_y=True, on_bad_rows=on_bad_rows)
    connect(address)
    if workers is None:
        workers = max(1, count_cores() // threads)
    check_count(workers, "workers")
    seed = resolve_seed(fitted.random_state) if hasattr(fitted, "random_state") else 0
    parameters = fitted.get_params(deep=False)
    share = parameters.get("calibration")
    # A method that learns nothing is calibrated on all rows.
    held_out = None if share is None or not fitted._learns() else RandomRows(float(share), seed)
    names = _find_classes(table, classes, n_classes, workers, threads)
    sample = sample_rows(table, SAMPLE_ROWS, names, seed, workers, threads, held_out=held_out)
    ranking = sample.ranking(names)
    # The score type is inferred once, for all workers. Calibration rows are held out here.
    fitted.set_params(score_type=infer_score_type(ranking, fitted.score_type))
    if "calibration" in parameters:
        fitted.set_params(calibration=None)
    if not fitted.trains_networks:
        assert sample.y is not None
        fitted.fit(ranking, sample.y, sample.features, classes=_column_names(names))
    else:
        check_capacity(workers, threads, use_gpu)
        fitted = train_on_workers(
            FitTask(table, fitted, names, held_out),
            workers=workers,
            threads=threads,
            use_gpu=use_gpu,
            storage=storage,
            max_failures=max_failures,
        )
    changed = [name for name in ("score_type", "calibration") if name in parameters]
    fitted.set_params(**{name: parameters[name] for name in changed})
    if share is not None:
        calibrate_on_table(table, fitted, held_out=held_out, workers=workers, threads=threads)
    return fitted


def _column_names(classes: NDArray[np.generic]) -> NDArray[np.generic] | None:
    """Return the names of the score columns; None if they are not named."""
    return None if are_indices(classes) else classes


def _find_classes(
    table: Table,
    classes: ArrayLike | None,
    n_classes: int | None,
    workers: int,
    threads: int,
) -> NDArray[np.generic]:
    """Return all classes: as given, as the schema of the table defines them, or as they occur."""
    if classes is not None:
        return np.asarray(classes)
    if n_classes is not None:
        return np.arange(check_count(n_classes, "n_classes"))
    if table.is_dense and table.width is not None and table.has_integer_labels:
        return np.arange(table.width)
    labels: set[Any] = set()
    for _, part in run_tasks(
        LabelsTask(table), table.pieces, "collecting labels", workers=workers, threads=threads
    ):
        labels |= part
    if all(isinstance(label, int) for label in labels):
        return np.arange(max(labels) + 1)
    return np.array(sorted(map(str, labels)))


@dataclass(frozen=True)
class LabelsTask:
    """Collect the distinct labels of a piece."""

    table: Table

    def __call__(self, piece: Piece) -> set[Any]:
        """Return all true labels and candidates, without padding."""
        labels: set[Any] = set()
        for block in self.table.read(piece, None):
            if block.rows.y is not None:
                labels.update(np.unique(block.rows.y).tolist())
            if isinstance(block.rows.labels, np.ndarray):
                labels.update(np.unique(block.rows.labels).tolist())
            elif block.rows.labels is not None:
                labels.update(label for row in block.rows.labels for label in row)
        return labels - {-1, None}


@dataclass(frozen=True)
class FitTask:
    """Fit a model in one of several workers, on this worker's part of the rows."""

    table: Table
    model: SetPredictor
    classes: NDArray[np.generic]
    held_out: RandomRows | None

    def __call__(self, group: SingleProcess) -> SetPredictor:
        """Return the fitted model, which is the same in all workers."""
        with use_process_group(group):
            rows = self._read_rows_or_raise_in_all(group)
            ranking = rows.ranking(self.classes)
            if not ranking.is_dense:
                ranking = _with_depth(ranking, group.max(ranking.depth))
            assert rows.y is not None
            names = _column_names(self.classes)
            self.model.fit(ranking, rows.y, rows.features, classes=names)
        self.model.forget_rows()
        return self.model

    def _read_rows_or_raise_in_all(self, group: SingleProcess) -> Rows:
        """Read this worker's rows. If one worker fails, raise in all: the others would wait."""
        rows, own_error = None, None
        try:
            rows = self._read_rows(group)
        except (ValueError, OSError) as error:
            own_error = str(error)
        for message in group.gather_objects(own_error):
            if message is not None:
                raise ValueError(message)
        assert rows is not None
        return rows

    def _read_rows(self, group: SingleProcess) -> Rows:
        """Read this worker's part of the rows, large matrices into memory-mapped files."""
        first, end = (
            i * self.table.n_rows // group.world_size for i in (group.rank, group.rank + 1)
        )
        builder = RowsBuilder(end - first)
        for piece in self.table.pieces:
            if piece.table_range.stop <= first or piece.table_range.start >= end:
                continue
            for block in self.table.read(piece, self.classes):
                mask = (block.table_numbers >= first) & (block.table_numbers < end)
                if self.held_out is not None:
                    mask &= ~self.held_out.contains(block.table_numbers)
                if mask.any():
                    builder.append(block.rows[mask])
        return builder.build()


class RowsBuilder:
    """Rows that are collected block by block.

    Parameters
    ----------
    max_rows : int
        Maximum number of rows.
    """

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.tables: dict[str, out_of_core.TableBuilder] = {}
        self.y: list[NDArray[Any]] = []
        self.ragged: list[Rows] = []
        self.first: Rows | None = None

    def append(self, rows: Rows) -> None:
        """Add rows at the end. Rows with lists of other lengths than the first ones follow all."""
        self.first = rows if self.first is None else self.first
        assert rows.y is not None
        if not self._fits(rows.scores) or not isinstance(rows.labels, np.ndarray | None):
            self.ragged.append(rows)
            return
        for name in ("scores", "labels", "features"):
            values = getattr(rows, name)
            if values is None:
                continue
            if name in self.tables:
                self.tables[name].append(values)
            else:
                self.tables[name] = out_of_core.TableBuilder(self.max_rows, values)
        self.y.append(rows.y)

    def _fits(self, scores: object) -> bool:
        """Return whether scores are a matrix, of the same width as the first one."""
        if not isinstance(scores, np.ndarray):
            return False
        return "scores" not in self.tables or self.tables["scores"].fits(scores)

    def build(self) -> Rows:
        """Return all rows."""
        if self.first is None:
            raise ValueError("a worker has no rows to fit on; use fewer workers")
        if not self.y:
            return Rows.concatenate(self.ragged)
        matrices = {name: table.build() for name, table in self.tables.items()}
        rows = Rows(
            **matrices,  # type: ignore[arg-type]
            y=np.concatenate(self.y),
            name=self.first.name,
            feature_names=self.first.feature_names,
        )
        return Rows.concatenate([rows, *self.ragged]) if self.ragged else rows


def _with_depth(ranking: Ranking, depth: int) -> Ranking:
    """Return a ranking of candidates, padded to the depth of the other workers' rankings."""
    return Ranking(
        depth=depth,
        top=ranking.top(depth),
        classes=ranking.classes,
        array_type=ranking.array_type,
    )
