"""Predict the sets of a table: one task and one file of sets for each piece."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sklearn.exceptions import NotFittedError

from shortlist._utils.labels import count_unknown_labels
from shortlist._utils.validation import check_count
from shortlist._utils.warnings import warn
from shortlist.datasets import Rows
from shortlist.io.models import digest
from shortlist.io.set_files import sets_table
from shortlist.predictors import SetPredictor
from shortlist.ray.cluster import connect, run_tasks
from shortlist.ray.output_folder import METADATA_KEY, FileRecord, OutputFolder
from shortlist.ray.parquet_files import Paths
from shortlist.ray.table import PIECE_ROWS, Block, Piece, Table
from shortlist.sets import PredictionSets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet


@dataclass(frozen=True)
class PredictionSummary:
    """Summary of the prediction sets that :func:`shortlist.ray.predict_set` wrote.

    Parameters
    ----------
    output : str
        The folder. Its Parquet files have the columns `file`, `row` (counted in that file), the
        columns that are kept, `size` and `labels`.
    files : int
        Number of files.
    rows : int
        Number of sets.
    skipped : int
        Number of bad rows, which have no set.
    mean_size : float
        Mean size of the sets.
    accuracy : float or None
        Fraction of the sets that contain the true label, if the table has labels.
    guarantee : str
        The guarantee of the sets.
    reused_files : int
        Number of files that an earlier call had written.
    """

    output: str
    files: int
    rows: int
    skipped: int
    mean_size: float
    accuracy: float | None
    guarantee: str
    reused_files: int

    def __repr__(self) -> str:
        files = f"{self.files:,} {'file' if self.files == 1 else 'files'}"
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy:.4f}"
        skipped = f", {self.skipped:,} bad rows skipped" if self.skipped else ""
        return (
            f"{self.output}: {self.rows:,} sets in {files}, mean size {self.mean_size:.4g}"
            f"{accuracy}{skipped}\n{self.guarantee}"
        )


def predict_set(
    dataset: Paths,
    model: SetPredictor,
    output: str | os.PathLike[str],
    *,
    accuracy: float | None = None,
    delta: float | None = None,
    mean_size: float | None = None,
    cost_weight: float | None = None,
    by: str | None = None,
    keep: str | Sequence[str] = (),
    on_bad_rows: str = "raise",
    overwrite: bool = False,
    rows_per_file: int = PIECE_ROWS,
    workers: int | None = None,
    threads: int = 1,
    address: str | None = None,
) -> PredictionSummary:
    """Predict the set of each row of a table, on a Ray cluster.

    The sets are those of `model.predict_set`. Rows stream through the workers, which hold a few
    thousand of them in memory at a time. Each output file is complete or absent. If a worker
    dies, another one repeats its task. If this process dies, the same call resumes the work.

    Parameters
    ----------
    dataset : path-like or sequence of path-like
        Parquet files or folders of them, local or in an object store ("s3://bucket/folder"). The
        columns are `scores` (a list with one number for each class), or `labels` and `scores`
        (lists of candidates and of their scores); `features` (a list, or columns `x_…`) if the
        model uses them; and `y` if the true labels are known.
    model : SetPredictor
        Fitted model.
    output : path-like
        Folder to write to, local (and shared by all workers) or in an object store.
    accuracy : float, optional
        Accuracy to guarantee.
    delta : float, optional
        Probability with which the guarantee may fail over the draw of the calibration rows.
    mean_size : float, optional
        Target mean set size.
    cost_weight : float, optional
        The paper's lambda.
    by : str, optional
        "class" to guarantee the accuracy for each class.
    keep : str or sequence of str, optional
        Columns of the table to copy to the output, such as an identifier.
    on_bad_rows : {"raise", "skip"}, default="raise"
        What to do about rows with missing or infinite values, or with labels that are not one of
        the classes: raise an error that names the file and the row, or skip and count them.
    overwrite : bool, default=False
        Whether to replace sets of another model, operating point or table.
    rows_per_file : int, default=500,000
        Approximate number of rows of a task and of an output file. Row groups are not split.
    workers : int, optional
        Number of processes. By default as many as the cores of the cluster allow.
    threads : int, default=1
        Number of threads of each process.
    address : str, optional
        Address of the cluster. By default the cluster that this process is connected to, or else
        the one at RAY_ADDRESS, or else a new one on this machine.

    Returns
    -------
    PredictionSummary
        Counts, mean size and accuracy of the sets.

    Raises
    ------
    ValueError
        If a column is missing or a row is bad.
    FileExistsError
        If the folder contains other sets, and `overwrite` is False.

    Examples
    --------
    >>> from shortlist.ray import predict_set
    >>> predict_set("s3://logs/2026", model, "s3://sets/2026", accuracy=0.9)  # doctest: +SKIP
    """
    kept = [keep] if isinstance(keep, str) else list(keep)
    check_model(model)
    piece_rows = check_count(rows_per_file, "rows_per_file")
    table = Table.open(
        dataset, needs_y=False, on_bad_rows=on_bad_rows, extra=kept, piece_rows=piece_rows
    )
    options: dict[str, object] = {
        "accuracy": accuracy,
        "delta": delta,
        "mean_size": mean_size,
        "cost_weight": cost_weight,
        "by": by,
    }
    point = {name: value for name, value in options.items() if value is not None}
    folder = OutputFolder.open(output)
    task = PredictTask(table, model, point, tuple(kept), folder, _fingerprint(model, point, kept))
    guarantee = task.check()
    existing = folder.records()
    if not overwrite:
        _check_existing(existing, task)
    done = {
        piece.title: existing[piece.title]
        for piece in table.pieces
        if piece.title in existing
        and existing[piece.title].fingerprint == task.fingerprint
        and existing[piece.title].has_input(piece)
    }
    reused = len(done)
    left = [piece for piece in table.pieces if piece.title not in done]
    if left:
        connect(address)
        for i, record in run_tasks(task, left, "predicting", workers=workers, threads=threads):
            done[left[i].title] = record
    folder.remove([title for title in existing if title not in done])
    folder.remove_temporary_files()
    records = done.values()
    n_rows = sum(record.n_rows for record in records)
    summary = PredictionSummary(
        output=folder.name,
        files=len(done),
        rows=n_rows,
        skipped=sum(record.n_skipped for record in records),
        mean_size=sum(record.n_labels for record in records) / n_rows if n_rows else float("nan"),
        accuracy=sum(r.n_hits for r in records) / n_rows if table.has_y and n_rows else None,
        guarantee=guarantee,
        reused_files=reused,
    )
    folder.write_summary({k: v for k, v in vars(summary).items() if k != "reused_files"})
    return summary


def check_model(model: object) -> None:
    """Raise if a model is not a fitted set predictor."""
    if isinstance(model, str | os.PathLike):
        raise ValueError(f"model = {os.fspath(model)!r} is a path; load it: sl.load(path)")
    if not isinstance(model, SetPredictor):
        raise ValueError(
            f"a {type(model).__name__} computes scores itself, but on a cluster scores are given; "
            "use a set predictor, such as method_ of a ShortlistClassifier"
        )
    if not hasattr(model, "classes_"):
        raise NotFittedError(
            f"this {type(model).__name__} is not fitted yet; call sl.ray.fit(table, model)"
        )


def _fingerprint(model: SetPredictor, point: dict[str, object], keep: Sequence[str]) -> str:
    """Return a hash of everything but the rows that sets depend on."""
    text = json.dumps([digest(model), point, list(keep)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _check_existing(existing: dict[str, FileRecord], task: PredictTask) -> None:
    """Raise if the output folder contains sets that this task would not write."""
    advice = "give another folder, or pass overwrite=True"
    stamps = {piece.name: piece.stamp for piece in task.table.pieces}
    for title, record in existing.items():
        if record.fingerprint != task.fingerprint:
            raise FileExistsError(
                f"{task.folder.name} contains sets of another model, operating point or kept "
                f"columns (such as {title}.parquet); {advice}"
            )
        if record.file not in stamps:
            raise FileExistsError(
                f"{task.folder.name} contains sets of {record.file}, which is not part of this "
                f"table; {advice}"
            )
        if record.stamp != stamps[record.file]:
            raise FileExistsError(
                f"{task.folder.name} contains sets of an earlier version of {record.file}; {advice}"
            )


@dataclass(frozen=True)
class PredictTask:
    """Predict the sets of a piece and write them to a file."""

    table: Table
    model: SetPredictor
    point: dict[str, object]
    keep: tuple[str, ...]
    folder: OutputFolder
    fingerprint: str

    def check(self) -> str:
        """Predict the first rows, so that errors are raised early, and return the guarantee."""
        blocks = self.table.read(
            self.table.pieces[0], self.model.classes_, block_rows=64, check_y=False
        )
        for block in blocks:
            if len(block.numbers):
                return str(self._predict(block.rows).guarantee)
        return "no rows"

    def _predict(self, rows: Rows) -> PredictionSets:
        matched = rows.match_columns(self.model.classes_, self.model.feature_names)
        return self.model.predict_set(
            matched.ranking(self.model.classes_), matched.features, **self.point
        )

    def __call__(self, piece: Piece) -> FileRecord:
        """Write the file, and return its record."""
        import pyarrow as pa
        from pyarrow import parquet

        record = FileRecord.of(piece, self.fingerprint)
        with self.folder.writing(piece.title) as file, count_unknown_labels() as unknown:
            writer: parquet.ParquetWriter | None = None
            for block in self.table.read(
                piece, self.model.classes_, extra=self.keep, check_y=False
            ):
                record = replace(record, n_skipped=record.n_skipped + block.n_skipped)
                if not len(block.numbers):
                    continue
                sets = self._predict(block.rows)
                y = block.rows.y
                record = replace(
                    record,
                    n_rows=record.n_rows + len(sets),
                    n_labels=record.n_labels + int(sets.sizes.sum()),
                    n_hits=record.n_hits + (0 if y is None else int(sets.contains(y).sum())),
                )
                output = _output_table(sets, block, piece.name)
                if writer is None:
                    guarantee = {"guarantee": str(sets.guarantee)}
                    writer = parquet.ParquetWriter(file, output.schema.with_metadata(guarantee))
                writer.write_table(output.cast(writer.schema))
            if writer is None:  # All rows are bad.
                writer = parquet.ParquetWriter(file, pa.schema([("row", pa.int64())]))
            writer.add_key_value_metadata({METADATA_KEY: record.to_json()})
            writer.close()
        if unknown.n_unknown:
            warn(f"{piece.title}: {unknown.describe(record.n_rows)}")
        return record


def _output_table(sets: PredictionSets, block: Block, name: str) -> pa.Table:
    """Return an Arrow table of sets, with the name of their file and the kept columns."""
    import pyarrow as pa

    output = sets_table(sets, block.numbers)
    output = output.add_column(0, "file", pa.repeat(name, len(output)))
    for i, column in enumerate(block.extra.column_names):
        output = output.add_column(2 + i, column, block.extra[column])
    return output
