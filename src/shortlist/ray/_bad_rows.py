"""Rows that nothing can be made of: what is wrong with which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shortlist._warnings import warn
from shortlist.rows import Rows, counts_columns

if TYPE_CHECKING:
    import pyarrow as pa


def warn_of_bad_rows(count: int) -> None:
    """Say how many rows were left out, if any were."""
    if count:
        warn(f"{count:,} bad row{' was' if count == 1 else 's were'} left out")


def wrong_rows(rows: Rows, classes: NDArray[np.generic] | None) -> dict[int, str]:
    """What is wrong with which rows."""
    found: dict[int, str] = {}
    for name, values in (("scores", rows.scores), ("features", rows.features)):
        if values is None:
            continue
        if not isinstance(values, np.ndarray):
            found |= _wrong_lists(values, name)
            continue
        matrix: NDArray[Any] = values
        if matrix.dtype.kind == "f" and not np.isfinite(matrix.sum()):
            for i in np.flatnonzero(~np.isfinite(matrix).all(axis=1)).tolist():
                column = int(np.flatnonzero(~np.isfinite(matrix[i]))[0])
                found.setdefault(i, f"{name} hold {matrix[i, column]} at place {column}")
    if classes is not None:
        count = len(classes)
        numbered = counts_columns(classes)
        if rows.y is not None:
            outside = _outside(rows.y, classes, numbered)
            for i in np.flatnonzero(outside).tolist():
                (label,) = rows.y[i : i + 1].tolist()
                found.setdefault(i, f"y is {label!r}, which is not one of {count:,} classes")
        if isinstance(rows.labels, np.ndarray) and rows.labels.dtype.kind in "iu" and numbered:
            labels: NDArray[Any] = rows.labels
            if labels.size and not -1 <= labels.min() <= labels.max() < count:
                for i in np.flatnonzero(((labels < -1) | (labels >= count)).any(axis=1)).tolist():
                    wrong = next(v for v in labels[i].tolist() if not -1 <= v < count)
                    found.setdefault(i, _no_class(wrong, count))
        elif rows.labels is not None:
            lists = rows.labels.tolist() if isinstance(rows.labels, np.ndarray) else rows.labels
            found |= _wrong_candidates(lists, set(classes.tolist()))
    return found


def _no_class(label: object, count: int) -> str:
    return f"labels hold {label!r}, which is not one of {count:,} classes"


def _wrong_candidates(rows: Sequence[Sequence[object]], classes: set[object]) -> dict[int, str]:
    """Lists of candidates that hold what is no class."""
    known = classes | {None, -1}
    found = {}
    for i, row in enumerate(rows):
        strange = [label for label in row if label not in known]
        if strange:
            found[i] = _no_class(strange[0], len(classes))
    return found


def _wrong_lists(rows: Sequence[Sequence[object]], name: str) -> dict[int, str]:
    found = {}
    for i, row in enumerate(rows):
        for place, value in enumerate(row):
            if value is None or not np.isfinite(value):  # type: ignore[call-overload]
                found[i] = f"{name} hold {value} at place {place}"
                break
    return found


def _outside(y: NDArray[Any], classes: NDArray[np.generic], numbered: bool) -> NDArray[np.bool_]:
    if numbered and y.dtype.kind in "iu":
        return np.asarray((y < 0) | (y >= len(classes)))
    return ~np.isin(y.astype(classes.dtype), classes)


def good_rows(rows: int, wrong: dict[int, str]) -> NDArray[np.bool_]:
    """A mask of the others."""
    mask = np.ones(rows, dtype=bool)
    mask[list(wrong)] = False
    return mask


def missing_values(table: pa.Table, columns: Sequence[str]) -> list[tuple[int, str]]:
    """Rows without a value in a column."""
    found = []
    for name in columns:
        if table[name].null_count:
            nulls = table[name].combine_chunks().is_null().to_numpy(zero_copy_only=False)
            found += [(int(i), name) for i in np.flatnonzero(nulls)]
    return found
