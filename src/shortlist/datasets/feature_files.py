"""Files of arrays (.npz): told apart by the arrays in them, checked, never executed."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, cast, overload

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.arrays import check_choice, check_finite, to_tensor
from shortlist._utils.atomic_write import atomic_write
from shortlist._utils.labels import Classes
from shortlist.datasets.samples import FeatureFile, Samples
from shortlist.datasets.score_files import CandidateFile, ScoreFile
from shortlist.ranking.candidates import read_candidates

DataFile: TypeAlias = FeatureFile | CandidateFile | ScoreFile
ArrayType: TypeAlias = Literal["features", "candidates", "scores"]
Arrays: TypeAlias = "dict[str, NDArray[np.generic]]"

MOST_CLASSES = 10_000_000
"""A label in a file above this is taken for a mistake: room is made for each class."""
PARTS = ("fit", "select", "test")
NEEDED: dict[str, tuple[str, ...]] = {
    "features": tuple(f"{letter}_{part}" for part in PARTS for letter in "xy"),
    "candidates": ("labels", "scores", "y"),
    "scores": ("scores", "y"),
}
LAYOUTS = {
    "features": f"features ({', '.join(NEEDED['features'])}[, classes])",
    "candidates": "ranked candidates (labels, scores, y[, classes or n_classes])",
    "scores": "scores (scores, y[, features, classes])",
}


@overload
def load(path: str | os.PathLike[str], kind: None = None) -> DataFile: ...
@overload
def load(path: str | os.PathLike[str], kind: Literal["features"]) -> FeatureFile: ...
@overload
def load(path: str | os.PathLike[str], kind: Literal["candidates"]) -> CandidateFile: ...
@overload
def load(path: str | os.PathLike[str], kind: Literal["scores"]) -> ScoreFile: ...


def load(path: str | os.PathLike[str], kind: ArrayType | None = None) -> DataFile:
    """Read a file of arrays (.npz). Nothing in the file is executed.

    The arrays say what it is:

    - a `FeatureFile` has `x_fit, y_fit, x_select, y_select, x_test, y_test`;
    - a `CandidateFile` has `labels, scores, y`, and `n_classes` if the classes have no names;
    - a `ScoreFile` has `scores, y`, and `features` if there are any.

    Labels are indices. `classes` holds their names, if they have any.

    Parameters
    ----------
    path : path
        The file.
    kind : {"features", "candidates", "scores"}, optional
        The only kind that will do; another is an error. Type checkers then know what comes back.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/mine.npz", scores=[[0.1, 0.9], [0.7, 0.3]], y=[1, 0])
    ...     load(f"{folder}/mine.npz")
    ScoreFile(2 rows, 2 classes)
    """
    if kind is not None:
        check_choice(kind, "kind", list(LAYOUTS))
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"there is no file at {os.fspath(path)!r}")
    arrays, strangers = read_archive(file)
    found = _kind_of(file.name, arrays, strangers)
    if kind is not None and found != kind:
        raise ValueError(
            f"{file.name} holds {LAYOUTS[found].split(' (')[0]}, not {LAYOUTS[kind]}. "
            f"It has: {', '.join(sorted(arrays))}"
        )
    return _READERS[found](file, arrays)


def save(path: str | os.PathLike[str], file: FeatureFile, *, overwrite: bool = False) -> Path:
    """Write a feature file that `load` reads back as it is.

    It is checked first, written aside, and moved into place: the file is whole or absent.

    Parameters
    ----------
    path : path ending in .npz
        Where to; missing folders are made.
    file : FeatureFile
        What to write. A true posterior is not written.
    overwrite : bool, default=False
        Whether to replace a file that is there.

    Returns
    -------
    Path
        Where the file is.

    Examples
    --------
    >>> import shortlist as sl
    >>> from tempfile import TemporaryDirectory
    >>> file = FeatureFile(*sl.datasets.gaussian(100).split(50, 30))
    >>> with TemporaryDirectory() as folder:
    ...     written = save(f"{folder}/mine.npz", file)
    ...     load(written, "features").select
    Samples(30 × 100, 10 classes)
    """
    target = Path(path)
    check_target(target, overwrite=overwrite)
    if not isinstance(file, FeatureFile):
        raise ValueError(f"save writes a FeatureFile; got {type(file).__name__}")
    arrays = _arrays_of(target, file)
    _features(target, arrays)
    with atomic_write(target) as aside:
        with aside.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
        check_target(target, overwrite=overwrite)  # writing takes time: someone may have been here
    return target


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise where a feature file cannot be written, before any work is done for it."""
    if path.suffix != ".npz":
        raise ValueError(f"a feature file's name ends in .npz; got {str(path)!r}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it")
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"{path} is there already; name another file, or overwrite it (overwrite=True, --force)"
        )


def _arrays_of(target: Path, file: FeatureFile) -> Arrays:
    arrays: Arrays = {}
    for part, samples in zip(PARTS, (file.fit, file.select, file.test), strict=True):
        if not np.array_equal(samples.classes, file.classes):
            raise ValueError(f"{target.name}: fit and {part} must have the same classes")
        arrays |= {f"x_{part}": np.asarray(samples.x), f"y_{part}": np.asarray(samples.y)}
    classes = np.asarray(file.classes)
    if classes.dtype == object and all(isinstance(name, str) for name in classes):
        classes = classes.astype(np.str_)
    return arrays | {"classes": classes}


def read_archive(file: Path) -> tuple[Arrays, list[str]]:
    """All arrays of an .npz file, and the names of what else is in it."""
    try:
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it holds one array (.npy)")
        with archive:
            members = {name: archive[name] for name in archive.files}
    # What numpy raises on a damaged file depends on where the damage is.
    except Exception as error:
        reason: object = error
        if isinstance(error, zipfile.BadZipFile) or not zipfile.is_zipfile(file):
            reason = "it is no zip archive"
        elif "allow_pickle" in str(error):
            reason = "an array of Python objects would have to be executed; y.astype(str) is none"
        raise ValueError(f"{file.name} is not a readable .npz file: {reason}") from error
    arrays = {name: value for name, value in members.items() if isinstance(value, np.ndarray)}
    return arrays, sorted(members.keys() - arrays.keys())


def _kind_of(name: str, arrays: Arrays, strangers: list[str]) -> str:
    """Which of the layouts the arrays have."""
    there = f"It has: {', '.join([*sorted(arrays), *strangers]) or 'nothing'}"
    missing = [key for key in NEEDED["features"] if key not in arrays]
    if not missing:
        return "features"
    for kind in ("candidates", "scores"):
        if arrays.keys() >= set(NEEDED[kind]):
            return kind
    if len(missing) < len(NEEDED["features"]):  # the intention is clear
        raise ValueError(
            f"{name} lacks {', '.join(missing)}; a feature file holds x_ and y_ for "
            f"{', '.join(PARTS)}. {there}"
        )
    raise ValueError(
        f"{name} is none of the files that can be read: {'; '.join(LAYOUTS.values())}. {there}"
    )


# One reader for each layout. A reader checks everything, and says which file is wrong.


def _features(file: Path, arrays: Arrays) -> FeatureFile:
    for part in PARTS:
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.ndim != 2 or y.shape != x.shape[:1] or 0 in x.shape:
            raise ValueError(
                f"{file.name}: x_{part} must be (rows, features) and y_{part} (rows,); "
                f"got {x.shape} and {y.shape}"
            )
        if x.dtype.kind != "f" or y.dtype.kind not in "iu":
            raise ValueError(
                f"{file.name}: x_{part} must hold floats and y_{part} label indices; "
                f"got {x.dtype} and {y.dtype}"
            )
        _check_finite(file.name, x, f"x_{part}")
    columns = [arrays[f"x_{p}"].shape[1] for p in PARTS]
    if len(set(columns)) > 1:
        raise ValueError(
            f"{file.name}: x_fit, x_select and x_test must have the same features; "
            f"got {columns[0]}, {columns[1]} and {columns[2]} columns"
        )
    classes = _classes(file.name, arrays, [f"y_{p}" for p in PARTS])
    fit, select, test = (
        Samples(_floats(arrays[f"x_{p}"]), _integers(arrays[f"y_{p}"]), classes) for p in PARTS
    )
    return FeatureFile(fit, select, test, name=file.stem)


def _candidates(file: Path, arrays: Arrays) -> CandidateFile:
    labels, scores, y = arrays["labels"], arrays["scores"], arrays["y"]
    if scores.ndim != 2 or labels.shape != scores.shape or y.shape != scores.shape[:1]:
        raise ValueError(
            f"{file.name}: labels and scores must be (rows, depth) and y (rows,); "
            f"got {labels.shape}, {scores.shape} and {y.shape}"
        )
    if labels.dtype.kind not in "iu" or scores.dtype.kind != "f" or y.dtype.kind not in "iu":
        raise ValueError(
            f"{file.name}: labels must hold indices (-1 pads), scores floats and y label indices; "
            f"got {labels.dtype}, {scores.dtype} and {y.dtype}"
        )
    if 0 in scores.shape:
        raise ValueError(f"{file.name} is empty: scores have shape {scores.shape}")
    classes = _classes(file.name, arrays, ["labels", "y"], padded="labels")
    try:
        read_candidates(labels, scores, Classes(len(classes)))
    except ValueError as error:
        raise ValueError(f"{file.name}: {error}") from error
    return CandidateFile(_integers(labels), _floats(scores), _integers(y), classes, file.stem)


def _scores(file: Path, arrays: Arrays) -> ScoreFile:
    scores, y, features = arrays["scores"], arrays["y"], arrays.get("features")
    if scores.ndim != 2 or y.shape != scores.shape[:1] or not len(y) or scores.shape[1] < 2:
        raise ValueError(
            f"{file.name}: scores must be (rows, classes), two classes or more, and y (rows,); "
            f"got {scores.shape} and {y.shape}"
        )
    if scores.dtype.kind != "f" or y.dtype.kind not in "iu":
        raise ValueError(
            f"{file.name}: scores must hold floats and y label indices; "
            f"got {scores.dtype} and {y.dtype}"
        )
    _check_finite(file.name, scores, "scores")
    if features is not None:
        if features.ndim != 2 or len(features) != len(y) or not features.shape[1]:
            raise ValueError(
                f"{file.name}: features must be (rows, columns) for {len(y)} rows; "
                f"got {features.shape}"
            )
        if features.dtype.kind != "f":
            raise ValueError(f"{file.name}: features must hold floats; got {features.dtype}")
        _check_finite(file.name, features, "features")
    n = scores.shape[1]
    classes = _classes(file.name, {"n_classes": np.array(n), **arrays}, ["y"])
    if len(classes) != n:
        raise ValueError(
            f"{file.name} has scores of {n} classes, but {len(classes)} names in classes; "
            "give one name for each column, or leave classes out"
        )
    return ScoreFile(
        _floats(scores),
        _integers(y),
        classes,
        None if features is None else _floats(features),
        file.stem,
    )


_READERS: dict[str, Callable[[Path, Arrays], DataFile]] = {
    "features": _features,
    "candidates": _candidates,
    "scores": _scores,
}


def _classes(name: str, arrays: Arrays, keys: list[str], padded: str = "") -> NDArray[np.generic]:
    """The names of the classes, or their numbers; every label must be one of them."""
    largest = max(int(arrays[key].max()) for key in keys)
    for key in keys:
        least = int(arrays[key].min())
        if least < (-1 if key == padded else 0):
            also = "; only -1 pads a short row" if key == padded else ""
            raise ValueError(
                f"{name}: {key} holds {least}; labels are indices counted from 0{also}"
            )
    classes = arrays.get("classes")
    if classes is None:
        count = arrays.get("n_classes", np.array(largest + 1))
        if count.ndim != 0 or count.dtype.kind not in "iu" or int(count) <= largest:
            raise ValueError(
                f"{name} has labels up to {largest}, but n_classes = {count.tolist()}; "
                f"it must be an integer of at least {largest + 1}"
            )
        if int(count) > MOST_CLASSES:
            raise ValueError(
                f"{name} has labels up to {largest} and n_classes = {int(count)}, more than "
                f"{MOST_CLASSES:,}; give labels counted from 0, or classes"
            )
        return np.arange(int(count))
    if classes.ndim != 1 or largest >= len(classes):
        raise ValueError(
            f"{name} has labels up to {largest}, but classes of shape {classes.shape}; "
            f"give {largest + 1} names or more, or leave classes out"
        )
    if classes.dtype.kind not in "biufSU":
        raise ValueError(f"{name}: classes must hold names or numbers; got {classes.dtype}")
    return classes


def _check_finite(name: str, x: NDArray[np.generic], key: str) -> None:
    try:
        check_finite(to_tensor(x, key), key)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _floats(x: NDArray[np.generic]) -> NDArray[np.floating]:
    return cast("NDArray[np.floating]", x)


def _integers(y: NDArray[np.generic]) -> NDArray[np.integer]:
    return cast("NDArray[np.integer]", y)
