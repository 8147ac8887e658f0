"""Files of rows as arrays: .npz files and folders of .npy files. Nothing in them is executed."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.datasets.column_roles import DEFAULT_ROLES, ColumnRoles
from shortlist.datasets.rows import MAX_CLASSES, Rows

Arrays: TypeAlias = "Mapping[str, NDArray[np.generic]]"

ROW_LAYOUTS = (
    "scores [, y, features, classes], or ranked candidates: labels, scores [, y, features, classes "
    "or n_classes]"
)
LABEL_TYPES = "biufSU"
"""Type codes of NumPy that labels in a file can have: booleans, numbers and strings."""
NUMBER_TYPES = "biuf"
"""Type codes of NumPy that scores and features in a file can have."""


def read_arrays(path: Path, roles: ColumnRoles = DEFAULT_ROLES) -> Rows:
    """Read the rows of an .npz file, or memory-map the rows in a folder of .npy files."""
    if not path.is_dir():
        return rows_from_arrays(read_archive(path)[0], path.name, roles)
    if (path / "model.json").exists():
        raise ValueError(f"{str(path)!r} is a saved model; give rows with scores and y")
    files = sorted(path.glob("*.npy"))
    tables = sorted(path.glob("*.parquet"))
    if tables and not files:
        raise ValueError(
            f"the folder {str(path)!r} holds Parquet files ({len(tables)}); give one of them, such "
            f"as {tables[0].name}, or read all of them with Ray (shortlist.ray, --ray local)"
        )
    return rows_from_arrays(
        {file.stem: _map_array(file) for file in files}, f"the folder {str(path)!r}", roles
    )


def read_archive(path: Path) -> tuple[dict[str, NDArray[np.generic]], list[str]]:
    """Return the arrays of an .npz file by name, and the names of members that are not arrays."""
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it contains a single array (.npy)")
        with archive:
            members = {name: archive[name] for name in archive.files}
    # The type of NumPy's error depends on where a file is damaged.
    except Exception as error:
        reason: object = error
        if isinstance(error, zipfile.BadZipFile) or not zipfile.is_zipfile(path):
            reason = "it is not a zip archive"
        elif "allow_pickle" in str(error):
            reason = "arrays of Python objects are not read; save y.astype(str) instead"
        raise ValueError(f"{path.name} is not a readable .npz file: {reason}") from error
    arrays = {name: value for name, value in members.items() if isinstance(value, np.ndarray)}
    return arrays, sorted(members.keys() - arrays.keys())


def _map_array(file: Path) -> NDArray[np.generic]:
    """Memory-map an .npy file."""
    try:
        # The shape in a damaged header can overflow.
        with np.errstate(over="ignore"):
            array: NDArray[np.generic] = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        reason = " ".join(str(error).split())[:150]
        raise ValueError(f"{file.name} is not a readable .npy file: {reason}") from error
    return array


def rows_from_arrays(arrays: Arrays, name: str, roles: ColumnRoles = DEFAULT_ROLES) -> Rows:
    """Return arrays by name as rows.

    Names, shapes and types are checked. Values are checked when they are used, because
    memory-mapped arrays can be larger than memory.

    Parameters
    ----------
    arrays : mapping of str to array
        Arrays by name.
    name : str
        Name of the file, for error messages.
    roles : ColumnRoles, optional
        Names of the arrays of labels and groups, and of arrays to keep or to ignore.

    Returns
    -------
    Rows
        The rows.
    """
    roles.check(list(arrays), name)
    arrays = {key: value for key, value in arrays.items() if key not in roles.ignore}
    if roles.label in arrays:
        arrays = {**arrays, "y": arrays[roles.label]}
    if "scores" not in arrays:
        raise ValueError(
            f"{name} has no array named scores; a file of rows contains {ROW_LAYOUTS}. "
            f"It has: {', '.join(sorted(arrays)) or 'nothing'}"
        )
    scores, labels, y = arrays["scores"], arrays.get("labels"), arrays.get("y")
    classes = arrays.get("classes")
    _check_matrices(arrays, name)
    if y is not None and y.dtype.kind not in LABEL_TYPES:
        raise ValueError(f"{name}: y must hold labels (names or numbers); got {y.dtype}")
    _check_classes(arrays, name)
    names: list[list[object]] | None = None
    if classes is not None and classes.dtype.kind in "US":
        if y is not None and y.dtype.kind in "iu":
            y = _label_names(y, classes, name)
        if labels is not None and labels.dtype.kind in "iu":
            names = _candidate_names(labels, classes, name)
    count = arrays.get("n_classes")
    columns = {key: arrays[key] for key in (*roles.keep, roles.groups) if key is not None}
    for key, values in columns.items():
        if values.ndim != 1 or len(values) != len(scores):
            raise ValueError(
                f"{name}: {key} must have one value for each of {len(scores)} rows; got shape "
                f"{values.shape}"
            )
    return Rows(
        scores,
        labels if names is None else names,
        y,
        arrays.get("features"),
        classes,
        None if count is None else int(count),
        name,
        groups=None if roles.groups is None else columns[roles.groups],
        extra={key: columns[key] for key in roles.keep} or None,
    )


def _check_matrices(arrays: Arrays, name: str) -> None:
    """Raise unless the shapes and types of the arrays are those of rows."""
    scores, labels = arrays["scores"], arrays.get("labels")
    if scores.ndim != 2:
        raise ValueError(f"{name}: scores must be (rows, classes); got shape {scores.shape}")
    if not len(scores):
        raise ValueError(f"{name}: there are no rows; scores have shape {scores.shape}")
    if labels is not None and labels.shape != scores.shape:
        raise ValueError(
            f"{name}: labels and scores of candidates must have the same shape; got {labels.shape} "
            f"and {scores.shape}"
        )
    for key in ("y", "features"):
        if key in arrays and (not arrays[key].ndim or len(arrays[key]) != len(scores)):
            raise ValueError(
                f"{name}: {key} has shape {arrays[key].shape}, but there are {len(scores)} rows"
            )
    features = arrays.get("features")
    if features is not None and (features.ndim != 2 or not features.shape[1]):
        raise ValueError(f"{name}: features must be (rows, columns); got shape {features.shape}")
    for key in ("scores", "features"):
        if key in arrays and arrays[key].dtype.kind not in NUMBER_TYPES:
            raise ValueError(f"{name}: {key} must hold numbers; got {arrays[key].dtype}")


def _check_classes(arrays: Arrays, name: str) -> None:
    """Raise unless `n_classes` and `classes`, where they are given, are valid."""
    count, classes = arrays.get("n_classes"), arrays.get("classes")
    if count is not None and (count.ndim or count.dtype.kind not in "iu"):
        raise ValueError(
            f"{name}: n_classes must be one integer; got {count.dtype} of shape {count.shape}"
        )
    if count is not None and not 2 <= int(count) <= MAX_CLASSES:
        raise ValueError(
            f"{name}: n_classes = {int(count)}, but it must be from 2 to {MAX_CLASSES:,}"
        )
    if classes is None:
        return
    if classes.ndim != 1 or classes.dtype.kind not in LABEL_TYPES:
        raise ValueError(
            f"{name}: classes must be one name or number for each class; got {classes.dtype} of "
            f"shape {classes.shape}"
        )
    columns = arrays["scores"].shape[1]
    if "labels" not in arrays and len(classes) != columns:
        raise ValueError(
            f"{name} has scores for {columns} classes, but {len(classes)} names in classes; give "
            "one name for each column, or leave classes out"
        )


def _label_names(
    y: NDArray[np.generic], classes: NDArray[np.generic], name: str
) -> NDArray[np.generic]:
    """Return the names of the true labels, which a file stores as indices."""
    index = np.asarray(y).astype(np.int64)
    invalid = (index < 0) | (index >= len(classes))
    if invalid.any():
        at = np.argwhere(invalid)[0].tolist()
        raise ValueError(
            f"{name}: y{at} = {index[tuple(at)]}, but there are {len(classes)} classes, counted "
            "from 0"
        )
    return classes[index]


def _candidate_names(
    labels: NDArray[np.generic], classes: NDArray[np.generic], name: str
) -> list[list[object]]:
    """Return the names of candidates, which a file stores as indices; None for the padding -1."""
    index = np.asarray(labels).astype(np.int64)
    invalid = (index < -1) | (index >= len(classes))
    if invalid.any():
        row, place = (int(i) for i in np.argwhere(invalid)[0])
        raise ValueError(
            f"{name}: a label is {index[row, place]} (row {row}, place {place}), but there are "
            f"{len(classes)} classes, counted from 0 (-1 pads a short row)"
        )
    names: list[object] = [*classes, None]  # The index -1 gives None.
    return [[names[i] for i in row] for row in index.tolist()]
