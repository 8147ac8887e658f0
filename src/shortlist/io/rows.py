"""Rows in files, of any format: scores or candidates, labels, features.

| format | what is read |
|---|---|
| `.npz`, folder of `.npy` | arrays `scores`, `y`, `features`, `classes`; with `labels` beside `scores`: candidates |
| `.parquet`, `.csv`, `-` | columns: `y`; `scores` (a list), or one column for each class; `labels` beside a list of `scores`: candidates; `features` (a list), or columns `x_…` |
"""  # noqa: E501

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.datasets import FeatureFile, load
from shortlist.datasets.feature_files import MOST_CLASSES, read_archive
from shortlist.io.columns import Columns, csv_parts, parquet_parts, parquet_whole, together
from shortlist.io.set_files import STANDARD
from shortlist.predictors import SetPredictor
from shortlist.predictors.cardinality.inputs import feature_names_of
from shortlist.ranking import Ranking
from shortlist.ranking.candidates import PADDING

ENDINGS_IN = (".npz", ".parquet", ".csv")
BLOCK_ROWS = 50_000
"""How many rows are worked on at once."""


@dataclass(frozen=True)
class Rows:
    """Rows with scores or candidates, and what else is known of them."""

    scores: NDArray[np.generic] | Sequence[Sequence[object]]
    labels: NDArray[np.generic] | Sequence[Sequence[object]] | None = None
    """The candidates' labels, if the scores are theirs."""
    y: NDArray[np.generic] | None = None
    features: NDArray[np.generic] | None = None
    classes: NDArray[np.generic] | None = None
    n_classes: int | None = None
    name: str = ""
    feature_names: list[str] | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, rows: slice | NDArray[np.generic]) -> Rows:
        """Some of the rows: a slice, a boolean mask, or their numbers."""
        return replace(self, **{name: _picked(getattr(self, name), rows) for name in BY_ROW})

    @staticmethod
    def together(parts: Sequence[Rows]) -> Rows:
        """Rows one after the other."""
        return replace(
            parts[0], **{name: _joined([getattr(part, name) for part in parts]) for name in BY_ROW}
        )

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Rows]:
        """A part of the rows after the other; of a folder, only that part is read."""
        for start in range(0, len(self), rows):
            yield self[slice(start, start + rows)]

    def given(self, classes: NDArray[np.generic] | None = None) -> NDArray[np.generic] | Ranking:
        """What a model takes: scores, or a ranking of the candidates.

        `classes` are those of the model, where the file itself does not name them.
        """
        if self.labels is None:
            return np.asarray(self.scores)
        names = self.classes if self.classes is not None else classes
        if names is not None and counts_columns(names):
            return Ranking.from_candidates(self.labels, self.scores, len(names))
        if names is None and not self._numbered():
            names = np.array(self._named_labels())
        if names is not None:
            return Ranking.from_candidates(self.labels, self.scores, classes=names)
        return Ranking.from_candidates(self.labels, self.scores, self._count())

    def _numbered(self) -> bool:
        """Whether the candidates' labels are numbers, not names."""
        assert self.labels is not None
        if isinstance(self.labels, np.ndarray):
            return self.labels.dtype.kind in "iu"
        labels = (label for row in self.labels for label in row if label not in PADDING)
        return isinstance(next(labels, 0), int | np.integer)

    def _named_labels(self) -> list[str]:
        """All names that occur, in order: those of candidates, and of right labels."""
        assert self.labels is not None
        found = {str(label) for row in self.labels for label in row if label not in PADDING}
        return sorted(found if self.y is None else found | {str(label) for label in self.y})

    def _count(self) -> int:
        if self.n_classes is not None:
            return self.n_classes
        listed = [] if self.labels is None else self.labels
        numbers = [int(v) for row in listed for v in row if v not in PADDING]  # type: ignore[arg-type]
        largest = max([*numbers, -1 if self.y is None else int(np.max(self.y))])
        if largest >= MOST_CLASSES:
            raise ValueError(
                f"{self.name}: a label is {largest}, of more than {MOST_CLASSES:,} classes; give "
                "labels counted from 0, or names"
            )
        return 1 + largest

    def in_order_of(self, model: SetPredictor) -> Rows:
        """The same rows with columns in the order of a fitted model."""
        return self.for_model(model.classes_, feature_names_of(model))

    def for_model(self, classes: NDArray[np.generic], features: list[str] | None) -> Rows:
        """The same rows with columns in the order of a model, by their names, if they have any."""
        found = self
        if self.labels is None and self.classes is not None:
            at = self._order(self.classes.tolist(), classes.tolist(), "classes")
            if at is not None:
                scores = np.asarray(self.scores)[:, at]
                found = replace(found, scores=scores, classes=np.asarray(classes))
        if self.features is not None and self.feature_names and features:
            at = self._order(self.feature_names, features, "features")
            if at is not None:
                found = replace(found, features=self.features[:, at], feature_names=features)
        return found

    def _order(
        self, ours: Sequence[object], theirs: Sequence[object], what: str
    ) -> list[int] | None:
        """Where each of a model's columns is found here; None if they are in order."""
        if ours == theirs:
            return None
        missing = [name for name in theirs if name not in ours]
        strange = [name for name in ours if name not in theirs]
        if missing or strange:
            one = f"no {missing[0]!r}" if missing else f"{strange[0]!r}, which it does not know"
            raise ValueError(
                f"{self.name} has {len(ours)} {what}, and the model {len(theirs)}: there is {one}"
                + (f", but {strange[0]!r}" if missing and strange else "")
            )
        place = {name: i for i, name in enumerate(ours)}
        return [place[name] for name in theirs]


BY_ROW = ("scores", "labels", "y", "features")


def _picked(values: Any, rows: slice | NDArray[np.generic]) -> Any:
    """Some rows of an array, or of a list of lists."""
    if values is None or isinstance(rows, slice) or isinstance(values, np.ndarray):
        return None if values is None else values[rows]
    numbers = np.flatnonzero(rows) if rows.dtype == bool else rows
    return [values[i] for i in numbers.tolist()]


def _joined(parts: list[Any]) -> Any:
    if parts[0] is None:
        return None
    if all(isinstance(p, np.ndarray) for p in parts) and len({p.shape[1:] for p in parts}) == 1:
        return np.concatenate(parts)
    return [row for p in parts for row in (p.tolist() if isinstance(p, np.ndarray) else p)]


def counts_columns(names: NDArray[np.generic]) -> bool:
    """Whether the names of classes are 0, 1, 2, …"""
    return names.dtype.kind in "iu" and np.array_equal(names, np.arange(len(names)))


def read(path: str | os.PathLike[str]) -> Rows | FeatureFile:
    """Rows, or, if an .npz file holds the arrays of one, a feature file."""
    if Path(path).suffix == ".npz" and Path(path).is_file():
        arrays, _ = read_archive(Path(path))
        if "scores" not in arrays and any(name.startswith("x_") for name in arrays):
            return load(path, "features")
    return read_rows(path)


def read_rows(path: str | os.PathLike[str]) -> Rows:
    """Rows from a file or folder, or, from "-", CSV on the standard input."""
    if Path(path).suffix == ".parquet" and Path(path).is_file():
        return from_columns(parquet_whole(Path(path)))
    parts = _columns_of(path, None)
    if parts is not None:
        return from_columns(together(parts))
    return _arrays_of(path)


def stream_rows(path: str | os.PathLike[str], rows: int = BLOCK_ROWS) -> Iterator[Rows]:
    """The same, a part of the rows after the other: no more is in memory at a time."""
    parts = _columns_of(path, rows)
    if parts is not None:
        yield from (from_columns(part) for part in parts)
    else:
        yield from _arrays_of(path).blocks(rows)


def _columns_of(path: str | os.PathLike[str], rows: int | None) -> Iterator[Columns] | None:
    """The parts of a file of columns; None if it holds arrays."""
    text = os.fspath(path)
    if text == STANDARD:
        return csv_parts(None, rows)
    file = Path(text)
    if not file.exists():
        raise FileNotFoundError(f"there is no file or folder at {text!r}")
    if file.suffix == ".csv":
        return csv_parts(file, rows)
    return parquet_parts(file, rows) if file.suffix == ".parquet" else None


def _arrays_of(path: str | os.PathLike[str]) -> Rows:
    file = Path(path)
    if file.is_dir():
        if (file / "model.json").exists():
            raise ValueError(f"{str(file)!r} is a model; here rows are needed, with scores and y")
        found = sorted(file.glob("*.npy"))
        tables = sorted(file.glob("*.parquet"))
        if tables and not found:
            raise ValueError(
                f"the folder {str(file)!r} holds Parquet files ({len(tables)}); give one of them, "
                f"such as {tables[0].name}, or read all of them on Ray: shortlist.ray, --ray local"
            )
        return from_arrays({one.stem: _array(one) for one in found}, f"the folder {str(file)!r}")
    if file.suffix == ".npz":
        return from_arrays(read_archive(file)[0], file.name)
    raise ValueError(
        f"{file.name} cannot be read: known are {', '.join(ENDINGS_IN)}, folders of .npy, and - "
        "for CSV on the standard input"
    )


def _array(file: Path) -> NDArray[np.generic]:
    try:
        with np.errstate(over="ignore"):  # a header may say any shape
            array: NDArray[np.generic] = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        words = " ".join(str(error).split())[:150]
        raise ValueError(f"{file.name} is not a readable .npy file: {words}") from error
    return array


def from_arrays(arrays: Mapping[str, NDArray[np.generic]], name: str) -> Rows:
    """Rows from named arrays."""
    there = f"it has: {', '.join(sorted(arrays)) or 'nothing'}"
    if "scores" not in arrays:
        raise ValueError(f"{name} has no array named scores; {there}")
    scores = arrays["scores"]
    labels: NDArray[np.generic] | None = arrays.get("labels")
    if scores.ndim != 2 or not len(scores):
        empty = ": there are no rows" if scores.ndim == 2 and not len(scores) else ""
        raise ValueError(f"{name}: scores must be (rows, classes); got shape {scores.shape}{empty}")
    if labels is not None and labels.shape != scores.shape:
        raise ValueError(
            f"{name}: labels and scores of candidates must have one shape; got {labels.shape} and "
            f"{scores.shape}"
        )
    for key in ("y", "features"):
        if key in arrays and (not arrays[key].ndim or len(arrays[key]) != len(scores)):
            raise ValueError(
                f"{name}: {key} has shape {arrays[key].shape}, but there are {len(scores)} rows"
            )
    count = arrays.get("n_classes")
    if count is not None and (count.ndim or count.dtype.kind not in "iu"):
        raise ValueError(
            f"{name}: n_classes must be one integer; got {count.dtype} of shape {count.shape}"
        )
    if count is not None and not 2 <= int(count) <= MOST_CLASSES:
        raise ValueError(
            f"{name}: n_classes = {int(count)}, but it is from 2 to {MOST_CLASSES:,} in a file"
        )
    classes = arrays.get("classes")
    if classes is not None and (classes.ndim != 1 or classes.dtype.kind not in "biufSU"):
        raise ValueError(
            f"{name}: classes must be a list of names or numbers; got {classes.dtype} of shape "
            f"{classes.shape}"
        )
    y = arrays.get("y")
    if y is not None and y.dtype.kind not in "biufSU":
        raise ValueError(f"{name}: y must hold labels, names or numbers; got {y.dtype}")
    names: list[list[object]] | None = None
    if classes is not None and classes.dtype.kind in "US":
        if y is not None and y.dtype.kind in "iu":
            y = _named(y, classes, name)
        if labels is not None and labels.dtype.kind in "iu":
            names = _names_of(labels, classes, name)
    return Rows(
        scores,
        labels if names is None else names,
        y,
        arrays.get("features"),
        classes,
        None if count is None else int(count),
        name,
    )


def from_columns(columns: Columns) -> Rows:
    """Rows from columns."""
    return Rows(
        columns.scores,
        columns.labels,
        columns.y,
        columns.features,
        columns.classes,
        name=columns.name,
        feature_names=columns.feature_names,
    )


def _named(y: NDArray[np.generic], classes: NDArray[np.generic], name: str) -> NDArray[np.generic]:
    """Labels by their names, where a file numbers them and has names too."""
    numbers = np.asarray(y).astype(np.int64)
    wrong = (numbers < 0) | (numbers >= len(classes))
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(
            f"{name}: y[{at}] = {numbers[at]}, but there are {len(classes)} classes, counted from 0"
        )
    return classes[numbers]


def _names_of(
    labels: NDArray[np.generic], classes: NDArray[np.generic], name: str
) -> list[list[object]]:
    """The names of candidates, with None where -1 pads: each stays beside its score."""
    numbers = np.asarray(labels).astype(np.int64)
    wrong = (numbers < -1) | (numbers >= len(classes))
    if wrong.any():
        row, place = (int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"{name}: a label is {numbers[row, place]} (row {row}, place {place}), but there are "
            f"{len(classes)} classes, counted from 0 (-1 pads a short row)"
        )
    names: list[object] = [*classes, None]
    return [[names[i] for i in row] for row in numbers.tolist()]
