"""Rows that nothing can be made of: what is wrong with which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.warnings import warn
from shortlist.datasets.rows import Rows, are_indices
from shortlist.ranking.candidates import PADDING

if TYPE_CHECKING:
    import pyarrow as pa


def warn_of_bad_rows(count: int) -> None:
    """Say how many rows were left out, if any were."""
    if count:
        warn(f"{count:,} bad row{' was' if count == 1 else 's were'} left out")


def wrong_rows(
    rows: Rows, classes: NDArray[np.generic] | None, *, check_y: bool = True
) -> dict[int, str]:
    """What is wrong with which rows; `check_y`: whether a label of no known class is wrong."""
    found: dict[int, str] = {}
    labels: Any = rows.labels
    if isinstance(labels, np.ndarray) and labels.dtype.kind not in "iu":
        labels = labels.tolist()
    for name, values in (("scores", rows.scores), ("features", rows.features)):
        if values is None:
            continue
        of = labels if name == "scores" else None
        if isinstance(values, np.ndarray):
            found |= _wrong_matrix(values, name, of)
        else:
            found |= _wrong_lists(values, name, of)
    if classes is not None:
        count = len(classes)
        numbered = are_indices(classes)
        if rows.y is not None and check_y:
            outside = _outside(rows.y, classes, numbered)
            for i in np.flatnonzero(outside).tolist():
                (label,) = rows.y[i : i + 1].tolist()
                found.setdefault(i, f"y is {label!r}, which is not one of {count:,} classes")
        if isinstance(labels, np.ndarray) and numbered:
            if labels.size and not -1 <= labels.min() <= labels.max() < count:
                for i in np.flatnonzero(((labels < -1) | (labels >= count)).any(axis=1)).tolist():
                    wrong = next(v for v in labels[i].tolist() if not -1 <= v < count)
                    found.setdefault(i, _no_class(wrong, count))
        elif labels is not None:
            lists = labels.tolist() if isinstance(labels, np.ndarray) else labels
            found |= _wrong_candidates(lists, set(classes.tolist()))
    if labels is not None:
        found |= _not_once(labels)
    return found


def _wrong_matrix(matrix: NDArray[Any], name: str, labels: Any) -> dict[int, str]:
    """Rows with numbers that are none; where there is no label, any will do."""
    if matrix.dtype.kind != "f" or np.isfinite(matrix.sum()):
        return {}
    wrong = ~np.isfinite(matrix)
    if labels is not None:
        wrong &= [[label not in PADDING for label in row] for row in labels]
    first = wrong.argmax(axis=1)
    return {
        int(i): f"{name} hold {matrix[i, first[i]]} at place {first[i]}"
        for i in np.flatnonzero(wrong.any(axis=1))
    }


def _not_once(labels: NDArray[Any] | Sequence[Sequence[Any]]) -> dict[int, str]:
    """Rows that list a label twice, or none."""
    suspects: Sequence[int] = range(len(labels))
    if isinstance(labels, np.ndarray):
        rising = np.sort(labels, axis=1)
        twice = (rising[:, 1:] == rising[:, :-1]) & (rising[:, 1:] >= 0)
        suspects = np.flatnonzero(twice.any(axis=1) | (rising[:, -1] < 0)).tolist()
    found = {}
    for i in suspects:
        seen: set[object] = set()
        for label in labels[i].tolist() if isinstance(labels, np.ndarray) else labels[i]:
            if label in seen:
                found[i] = f"label {label!r} is listed twice"
                break
            if label not in PADDING:
                seen.add(label)
        if not seen:
            found[i] = "there are no candidates"
    return found


def _no_class(label: object, count: int) -> str:
    return f"labels hold {label!r}, which is not one of {count:,} classes"


def _wrong_candidates(rows: Sequence[Sequence[object]], classes: set[object]) -> dict[int, str]:
    """Lists of candidates that hold what is no class."""
    known = classes | PADDING
    found = {}
    for i, row in enumerate(rows):
        strange = [label for label in row if label not in known]
        if strange:
            found[i] = _no_class(strange[0], len(classes))
    return found


def _wrong_lists(
    rows: Sequence[Sequence[object]], name: str, labels: Sequence[Sequence[object]] | None
) -> dict[int, str]:
    """The same of lists of any length."""
    found = {}
    for i, row in enumerate(rows):
        for place, value in enumerate(row):
            ended = labels is not None and labels[i][place] in PADDING
            if not ended and (value is None or not np.isfinite(value)):  # type: ignore[call-overload]
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


def missing_values(table: pa.Table, columns: Sequence[str]) -> dict[int, str]:
    """Rows without a value in a column."""
    found: dict[int, str] = {}
    for name in columns:
        if table[name].null_count:
            nulls = table[name].combine_chunks().is_null().to_numpy(zero_copy_only=False)
            found |= {int(i): f"{name} is missing" for i in np.flatnonzero(nulls)}
    return found


def uneven_lists(table: pa.Table) -> dict[int, str]:
    """Rows with more candidates than scores, or fewer; those without any among them."""
    from pyarrow import compute

    labels, scores = (
        compute.list_value_length(table[name]).to_numpy() for name in ("labels", "scores")
    )
    return {
        int(i): f"there are {labels[i]} labels, but {scores[i]} scores"
        for i in np.flatnonzero(labels != scores)
    }
