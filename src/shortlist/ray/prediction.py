"""Sets for a table, on a cluster: one file of sets for each piece, whole or absent."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import NotFittedError

from shortlist._utils.atomic_write import atomic_write
from shortlist._utils.staging import PART, sweep
from shortlist._utils.validation import check_count
from shortlist.datasets import Rows
from shortlist.io.models import digest
from shortlist.io.set_files import sets_table
from shortlist.predictors import SetPredictor
from shortlist.predictors.cardinality.inputs import feature_names_of
from shortlist.ray.cluster import connect, spread
from shortlist.ray.table import PIECE_ROWS, Paths, Piece, Table, filesystem_of
from shortlist.sets import PredictionSets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

NOTE = b"shortlist"
"""The key, in a file's metadata, of what it was made of."""
SUMMARY = "_sets.json"
"""The file that is written last."""


@dataclass(frozen=True)
class Predicted:
    """What `shortlist.ray.predict_set` wrote.

    Attributes
    ----------
    output : str
        The folder. Its Parquet files have columns `file`, `row` (counted in that file), those that
        were kept, `size` and `labels`.
    rows, skipped : int
        How many rows have a set, and how many were left out as they are bad.
    mean_size : float
    accuracy : float or None
        The share of rows whose set holds the right label, if the table has labels.
    guarantee : str
    done_before : int
        How many of the files were there already.
    """

    output: str
    files: int
    rows: int
    skipped: int
    mean_size: float
    accuracy: float | None
    guarantee: str
    done_before: int

    def __repr__(self) -> str:
        known = "" if self.accuracy is None else f", {self.accuracy:.4f} accurate"
        lost = f", {self.skipped:,} bad rows left out" if self.skipped else ""
        return (
            f"{self.output}: {self.rows:,} sets in {self.files:,} "
            f"{'file' if self.files == 1 else 'files'}, {self.mean_size:.4g} "
            f"labels on average{known}{lost}\n{self.guarantee}"
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
) -> Predicted:
    """The prediction set of each row of a table, on a cluster.

    The sets are those of `model.predict_set`. Rows stream through the workers, which hold a few
    thousand of them at a time. Each file of the output is whole or absent: if workers die, others
    do their work; if this process dies, the same call goes on where it stopped.

    Parameters
    ----------
    dataset : path, or several
        Parquet files, or folders of them: local, or such as "s3://bucket/folder". Columns: `scores`
        (a list, of one number for each class), or `labels` and `scores` (lists of candidates);
        `features` (a list, or columns `x_…`) if the model takes them; `y` if it is known.
    model : a fitted set predictor
    output : path
        A folder, local (one that all workers see) or in an object store.
    accuracy, delta, mean_size, cost_weight, by
        The operating point, as in `predict_set` of the model.
    keep : str, or several
        Columns of the table to be copied to the output, such as an identifier.
    on_bad_rows : "raise" or "skip"
        What to do about rows with NaN, or labels that are not classes: an error that names the
        file and the row, or leave them out, and count them.
    overwrite : bool
        Whether sets of another model, or operating point, may be replaced.
    rows_per_file : int
        About how many rows a task works on, and a file of sets holds: whole row groups, one at
        least.
    workers : int, optional
        How many processes; default: as many as the cluster has cores.
    threads : int
        Threads of each.
    address : str, optional
        Of the cluster. Default: the one this process is connected to; else the one that Ray finds;
        else one of this machine alone.

    Returns
    -------
    Predicted

    Examples
    --------
    >>> from shortlist.ray import predict_set
    >>> predict_set("s3://logs/2026", model, "s3://sets/2026", accuracy=0.9)  # doctest: +SKIP
    """
    keep = [keep] if isinstance(keep, str) else list(keep)
    check_model(model)
    table = Table.open(
        dataset,
        needs_y=False,
        on_bad_rows=on_bad_rows,
        extra=keep,
        piece_rows=check_count(rows_per_file, "rows_per_file"),
    )
    asked: dict[str, object] = {
        "accuracy": accuracy,
        "delta": delta,
        "mean_size": mean_size,
        "cost_weight": cost_weight,
        "by": by,
    }
    point = {name: value for name, value in asked.items() if value is not None}
    target = Target.open(output)
    work = PredictPiece(table, model, point, tuple(keep), target, _identity(model, point, keep))
    guarantee = work.guarantee()
    there = target.notes()
    others = [title for title, note in there.items() if note["identity"] != work.identity]
    if others and not overwrite:
        raise FileExistsError(
            f"{target.shown} holds sets of another model, operating point, table or kept columns "
            f"(such as {others[0]}.parquet); choose another folder, or say overwrite=True"
        )
    stamps = {piece.name: piece.stamp for piece in table.pieces}
    changed = [
        n["file"] for n in there.values() if stamps.get(n["file"], n["written"]) != n["written"]
    ]
    if changed and not overwrite:
        raise FileExistsError(
            f"{target.shown} holds sets of {changed[0]} as it was before it was written anew; "
            "choose another folder, or say overwrite=True"
        )
    done = {title: note for title, note in there.items() if note["identity"] == work.identity}
    done = {p.title: done[p.title] for p in table.pieces if _same(p, done.get(p.title))}
    left = [piece for piece in table.pieces if piece.title not in done]
    before = len(done)
    if left:
        connect(address)
        for at, note in spread(work, left, "predicting", workers=workers, threads=threads):
            done[left[at].title] = note
    target.remove([title for title in there if title not in done])
    target.sweep()
    rows, labels, hits, skipped = (
        sum(note[name] for note in done.values()) for name in ("rows", "labels", "hits", "skipped")
    )
    found = Predicted(
        output=target.shown,
        files=len(done),
        rows=rows,
        skipped=skipped,
        mean_size=labels / rows if rows else float("nan"),
        accuracy=hits / rows if table.has_y and rows else None,
        guarantee=guarantee,
        done_before=before,
    )
    target.summarise(found)
    return found


def check_model(model: object) -> None:
    """Raise if it is not a fitted set predictor."""
    if isinstance(model, str | os.PathLike):
        raise ValueError(f"model = {os.fspath(model)!r} is a path; load it: sl.load(path)")
    if not isinstance(model, SetPredictor):
        raise ValueError(
            f"a {type(model).__name__} makes its own scores; on a cluster scores are given: take "
            "a set predictor, such as model.method_ of a ShortlistClassifier"
        )
    if not hasattr(model, "classes_"):
        raise NotFittedError(
            f"this {type(model).__name__} is not fitted yet; sl.ray.fit(table, model) fits it"
        )


def _same(piece: Piece, note: dict[str, Any] | None) -> bool:
    """Whether a file of sets is that of a piece."""
    return note is not None and all(note[k] == v for k, v in _note(piece).items())


def _note(piece: Piece) -> dict[str, object]:
    """Which rows a file of sets is of."""
    whence = {"file": piece.name, "written": piece.stamp}
    return {**whence, "first": piece.first, "came": piece.rows}


def _identity(model: SetPredictor, point: dict[str, object], keep: Sequence[str]) -> str:
    """What tells these sets from others."""
    words = json.dumps([digest(model), point, list(keep)], sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class PredictPiece:
    """The work of one task."""

    table: Table
    model: SetPredictor
    point: dict[str, object]
    keep: tuple[str, ...]
    target: Target
    identity: str

    def guarantee(self) -> str:
        """What is guaranteed, in words; raises, before any work starts, what is wrong."""
        for block in self.table.read(
            self.table.pieces[0], self.model.classes_, rows=64, check_y=False
        ):
            if len(block.numbers):
                return str(self._sets(block.rows).guarantee)
        return "no rows"

    def _sets(self, rows: Rows) -> PredictionSets:
        part = rows.match_columns(self.model.classes_, feature_names_of(self.model))
        return self.model.predict_set(
            part.ranking(self.model.classes_),
            part.features,
            **self.point,
        )

    def __call__(self, piece: Piece) -> dict[str, object]:
        import pyarrow as pa
        from pyarrow import parquet

        note = {"identity": self.identity, **_note(piece)}
        rows = labels = hits = skipped = 0
        with self.target.writing(piece.title) as file:
            writer: parquet.ParquetWriter | None = None
            for block in self.table.read(
                piece, self.model.classes_, extra=self.keep, check_y=False
            ):
                skipped += block.skipped
                if not len(block.numbers):
                    continue
                sets = self._sets(block.rows)
                rows, labels = rows + len(sets), labels + int(sets.sizes.sum())
                if block.rows.y is not None:
                    hits += int(sets.contains(block.rows.y).sum())
                made = self._made(sets, block.numbers, block.extra, piece.name)
                if writer is None:
                    writer = parquet.ParquetWriter(
                        file, made.schema.with_metadata({"guarantee": str(sets.guarantee)})
                    )
                writer.write_table(made.cast(writer.schema))
            note |= {"rows": rows, "labels": labels, "hits": hits, "skipped": skipped}
            if writer is None:  # nothing but bad rows
                writer = parquet.ParquetWriter(file, pa.schema([("row", pa.int64())]))
            writer.add_key_value_metadata({NOTE: json.dumps(note)})
            writer.close()
        return note

    def _made(
        self, sets: PredictionSets, numbers: np.ndarray, extra: pa.Table, name: str
    ) -> pa.Table:
        """A table of sets, with the file they belong to and the columns that are kept."""
        import pyarrow as pa

        made = sets_table(sets, numbers)
        made = made.add_column(0, "file", pa.repeat(name, len(made)))
        for at, column in enumerate(extra.column_names):
            made = made.add_column(2 + at, column, extra[column])
        return made


@dataclass(frozen=True)
class Target:
    """The folder that sets are written to."""

    filesystem: FileSystem
    folder: str
    shown: str

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Target:
        from pyarrow import fs

        text = os.fspath(path)
        filesystem, folder = filesystem_of(text)
        if filesystem.get_file_info(folder).type == fs.FileType.File:
            raise FileExistsError(f"{text!r} is a file; sets go to a folder")
        filesystem.create_dir(folder, recursive=True)
        return cls(filesystem, folder.rstrip("/"), text)

    @property
    def is_local(self) -> bool:
        return str(self.filesystem.type_name) == "local"

    def _path(self, title: str) -> str:
        return f"{self.folder}/{title}.parquet"

    @contextmanager
    def writing(self, title: str) -> Iterator[IO[bytes] | str]:
        """Where to write a file that appears whole, or not at all."""
        if self.is_local:
            with atomic_write(self._path(title)) as aside:
                yield str(aside)
            return
        # In an object store a file is there when it is closed, and not before.
        with self.filesystem.open_output_stream(self._path(title)) as stream:
            yield stream

    def notes(self) -> dict[str, dict[str, Any]]:
        """What the files that are there say of themselves, by their titles."""
        from pyarrow import fs, parquet

        found: dict[str, dict[str, Any]] = {}
        for info in self.filesystem.get_file_info(fs.FileSelector(self.folder)):
            name = info.base_name
            if not info.is_file or not name.endswith(".parquet"):
                continue
            if name.startswith("."):  # left behind by a worker that died
                continue
            with parquet.ParquetFile(info.path, filesystem=self.filesystem) as opened:
                said = (opened.metadata.metadata or {}).get(NOTE)
            if said is None:
                raise FileExistsError(
                    f"{self.shown} holds {name}, which was not written by shortlist; choose a "
                    "folder of their own for the sets"
                )
            found[name.removesuffix(".parquet")] = json.loads(said)
        return found

    def remove(self, titles: Sequence[str]) -> None:
        for title in titles:
            self.filesystem.delete_file(self._path(title))

    def sweep(self) -> None:
        """Remove what workers that died have left behind."""
        if self.is_local:
            sweep(Path(self.folder), None, PART)

    def summarise(self, found: Predicted) -> None:
        """Say that all is there, in a file that is written last."""
        text = json.dumps({k: v for k, v in vars(found).items() if k != "done_before"}, indent=1)
        if self.is_local:
            with atomic_write(f"{self.folder}/{SUMMARY}") as aside:
                Path(aside).write_text(text + "\n")
            return
        with self.filesystem.open_output_stream(f"{self.folder}/{SUMMARY}") as stream:
            stream.write(text.encode())
