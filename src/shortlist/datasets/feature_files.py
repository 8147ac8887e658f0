"""Feature files (.npz): features and labels in the splits `fit`, `select` and `test`."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.arrays import to_tensor
from shortlist._utils.atomic_write import atomic_write, check_target
from shortlist._utils.validation import check_finite
from shortlist.datasets.array_files import LABEL_TYPES, ROW_LAYOUTS, read_archive
from shortlist.datasets.rows import MAX_CLASSES
from shortlist.datasets.samples import FeatureFile, Samples

Arrays: TypeAlias = "dict[str, NDArray[np.generic]]"

SPLITS = ("fit", "select", "test")
REQUIRED = tuple(f"{letter}_{split}" for split in SPLITS for letter in "xy")


def load(path: str | os.PathLike[str]) -> FeatureFile:
    """Read a feature file. Nothing in the file is executed.

    Parameters
    ----------
    path : path
        An .npz file with the arrays `x_fit`, `y_fit`, `x_select`, `y_select`, `x_test` and
        `y_test`, and optionally `classes`, the names of the classes. The labels `y_…` are indices
        of classes.

    Returns
    -------
    FeatureFile
        The three splits.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, lacks an array, or an array is not valid.

    See Also
    --------
    read_rows : Read scores or ranked candidates.

    Examples
    --------
    >>> import shortlist as sl
    >>> from tempfile import TemporaryDirectory
    >>> file = FeatureFile(*sl.datasets.gaussian(100).split(50, 30))
    >>> with TemporaryDirectory() as folder:
    ...     load(save(f"{folder}/mine.npz", file)).select
    Samples(30 × 100, 10 classes)
    """
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"there is no file at {os.fspath(path)!r}")
    arrays, others = read_archive(file)
    missing = [key for key in REQUIRED if key not in arrays]
    if missing:
        content = f"It has: {', '.join([*sorted(arrays), *others]) or 'nothing'}"
        if "scores" in arrays:
            raise ValueError(
                f"{file.name} holds scores, not features ({', '.join(REQUIRED)}); read it with "
                f"read_rows. {content}"
            )
        if len(missing) < len(REQUIRED):
            raise ValueError(
                f"{file.name} lacks {', '.join(missing)}; a feature file has x_ and y_ for "
                f"{', '.join(SPLITS)}. {content}"
            )
        raise ValueError(
            f"{file.name} is not a feature file ({', '.join(REQUIRED)}[, classes]), nor a file of "
            f"rows ({ROW_LAYOUTS}). {content}"
        )
    return _feature_file(file, arrays)


def is_feature_file(path: str | os.PathLike[str]) -> bool:
    """Return whether the names of the arrays in an .npz file are those of a feature file."""
    file = Path(path)
    if file.suffix != ".npz" or not file.is_file():
        return False
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    # A damaged file can raise any error. The function that reads it explains what is wrong.
    except Exception:
        return False
    return "scores" not in names and any(name.startswith("x_") for name in names)


def save(path: str | os.PathLike[str], file: FeatureFile, *, overwrite: bool = False) -> Path:
    """Write a feature file that :func:`load` reads.

    The content is checked first. The file is written under a temporary name and then renamed, so
    that an incomplete file never has the requested name.

    Parameters
    ----------
    path : path
        The file to write. Its name must end in .npz. Missing folders are created.
    file : FeatureFile
        The splits. The posterior is not written.
    overwrite : bool, default=False
        Whether to replace an existing file.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    FileExistsError
        If the file exists, and `overwrite` is False.
    ValueError
        If the name does not end in .npz, or the splits are not valid.

    Examples
    --------
    >>> import shortlist as sl
    >>> from tempfile import TemporaryDirectory
    >>> file = FeatureFile(*sl.datasets.gaussian(100).split(50, 30))
    >>> with TemporaryDirectory() as folder:
    ...     save(f"{folder}/mine.npz", file).name
    'mine.npz'
    """
    target = Path(path)
    check_name(target, overwrite=overwrite)
    if not isinstance(file, FeatureFile):
        raise ValueError(f"save writes a FeatureFile; got {type(file).__name__}")
    arrays = _arrays_of(target, file)
    _feature_file(target, arrays)
    with atomic_write(target) as temporary:
        with temporary.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
        # Another process may have written the file in the meantime.
        check_name(target, overwrite=overwrite)
    return target


def check_name(path: Path, *, overwrite: bool) -> None:
    """Raise if a feature file cannot be written to a path."""
    if path.suffix != ".npz":
        raise ValueError(f"the name of a feature file must end in .npz; got {str(path)!r}")
    check_target(path, overwrite=overwrite, example="features.npz")


def _arrays_of(target: Path, file: FeatureFile) -> Arrays:
    """Return the arrays to write for a feature file."""
    arrays: Arrays = {}
    for split, samples in zip(SPLITS, (file.fit, file.select, file.test), strict=True):
        if not np.array_equal(samples.classes, file.classes):
            raise ValueError(f"{target.name}: fit and {split} must have the same classes")
        arrays |= {f"x_{split}": np.asarray(samples.x), f"y_{split}": np.asarray(samples.y)}
    classes = np.asarray(file.classes)
    if classes.dtype == object and all(isinstance(name, str) for name in classes):
        classes = classes.astype(np.str_)
    return arrays | {"classes": classes}


def _feature_file(file: Path, arrays: Arrays) -> FeatureFile:
    """Return the splits in the arrays of a file; raise if they are not valid."""
    for split in SPLITS:
        x, y = arrays[f"x_{split}"], arrays[f"y_{split}"]
        if x.ndim != 2 or y.shape != x.shape[:1] or 0 in x.shape:
            raise ValueError(
                f"{file.name}: x_{split} must be (rows, features) and y_{split} (rows,); "
                f"got {x.shape} and {y.shape}"
            )
        if x.dtype.kind != "f" or y.dtype.kind not in "iu":
            raise ValueError(
                f"{file.name}: x_{split} must hold floats and y_{split} label indices; "
                f"got {x.dtype} and {y.dtype}"
            )
        try:
            check_finite(to_tensor(x, f"x_{split}"), f"x_{split}")
        except ValueError as error:
            raise ValueError(f"{file.name}: {error}") from error
    columns = [arrays[f"x_{split}"].shape[1] for split in SPLITS]
    if len(set(columns)) > 1:
        raise ValueError(
            f"{file.name}: x_fit, x_select and x_test must have the same features; "
            f"got {columns[0]}, {columns[1]} and {columns[2]} columns"
        )
    classes = _classes(file.name, arrays, [f"y_{split}" for split in SPLITS])
    fit, select, test = (
        Samples(
            cast("NDArray[np.floating]", arrays[f"x_{split}"]),
            cast("NDArray[np.integer]", arrays[f"y_{split}"]),
            classes,
        )
        for split in SPLITS
    )
    return FeatureFile(fit, select, test, name=file.stem)


def _classes(name: str, arrays: Arrays, keys: Sequence[str]) -> NDArray[np.generic]:
    """Return the names of the classes, or their indices; raise if a label is not one of them."""
    largest = max(int(arrays[key].max()) for key in keys)
    for key in keys:
        smallest = int(arrays[key].min())
        if smallest < 0:
            raise ValueError(f"{name}: {key} holds {smallest}; labels are indices from 0")
    classes = arrays.get("classes")
    if classes is None:
        if largest >= MAX_CLASSES:
            raise ValueError(
                f"{name} has labels up to {largest}, above the maximum of {MAX_CLASSES:,} classes; "
                "give labels counted from 0, or classes"
            )
        return np.arange(largest + 1)
    if classes.ndim != 1 or largest >= len(classes):
        raise ValueError(
            f"{name} has labels up to {largest}, but classes of shape {classes.shape}; "
            f"give {largest + 1} names or more, or leave classes out"
        )
    if classes.dtype.kind not in LABEL_TYPES:
        raise ValueError(f"{name}: classes must hold names or numbers; got {classes.dtype}")
    return classes
