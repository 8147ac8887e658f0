"""Find the rows of a table that cannot be used, and describe the defect of each.

The functions that find rows return a dictionary from the position of each bad row to the
description.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.warnings import warn
from shortlist.datasets.rows import Rows, RowValues, are_indices
from shortlist.ranking.candidates import PADDING

if TYPE_CHECKING:
    import pyarrow as pa

Defects: TypeAlias = dict[int, str]
ON_BAD_ROWS = ("raise", "skip")
"""What to do with bad rows."""


def warn_if_skipped(count: int) -> None:
    """Warn that bad rows were skipped, if there were any."""
    if count:
        warn(f"{count:,} bad row{' was' if count == 1 else 's were'} skipped")


@dataclass
class SkippedRows:
    """Number of the bad rows that were left out, and the defect of the first.

    Attributes
    ----------
    count : int
        Number of bad rows.
    first : str
        Number and defect of the first one.
    """

    count: int = 0
    first: str = ""
    _lowest: float = np.inf

    def add(self, defects: Defects, numbers: NDArray[np.generic]) -> None:
        """Count bad rows.

        Parameters
        ----------
        defects : dict
            Description of the defect of each bad row, by position.
        numbers : array of int
            Number of the row at each position, counted in the file.
        """
        if not defects:
            return
        at = min(defects)
        number = int(numbers[at])
        if number < self._lowest:
            self._lowest, self.first = number, f"row {number}: {defects[at]}"
        self.count += len(defects)

    def clear(self) -> None:
        """Forget all rows that were counted."""
        self.count, self.first, self._lowest = 0, "", np.inf

    def warn(self, name: str) -> None:
        """Warn about the bad rows of the file `name`, if there are any."""
        if self.count:
            were = "row was" if self.count == 1 else "rows were"
            warn(f"{name}: {self.count:,} bad {were} skipped; the first is {self.first}")


def without_bad_rows(
    rows: Rows,
    skipped: SkippedRows,
    classes: NDArray[np.generic] | None = None,
    *,
    check_y: bool = True,
) -> Rows:
    """Return the rows that have no defect.

    Parameters
    ----------
    rows : Rows
        Rows to check.
    skipped : SkippedRows
        Counts the rows that are left out.
    classes : array of shape (n_classes,), optional
        All classes. Without it, labels are not checked.
    check_y : bool, default=True
        Whether a row is bad if its label `y` is not one of the classes.

    Returns
    -------
    Rows
        The rows without bad ones. `numbers` are their numbers in the file.
    """
    numbers = np.arange(len(rows)) if rows.numbers is None else rows.numbers
    defects = find_bad_rows(rows, classes, check_y=check_y)
    if not defects:
        return replace(rows, numbers=numbers)
    skipped.add(defects, numbers)
    return replace(rows, numbers=numbers)[valid_mask(len(rows), defects)]


def valid_mask(n_rows: int, defects: Defects) -> NDArray[np.bool_]:
    """Return a mask of the rows that have no defect."""
    mask = np.ones(n_rows, dtype=bool)
    mask[list(defects)] = False
    return mask


def missing_values(table: pa.Table, columns: Sequence[str]) -> Defects:
    """Find rows that have no value in one of the columns."""
    defects: Defects = {}
    for name in columns:
        if table[name].null_count:
            nulls = table[name].combine_chunks().is_null().to_numpy(zero_copy_only=False)
            defects |= {int(i): f"{name} is missing" for i in np.flatnonzero(nulls)}
    return defects


def unequal_lengths(table: pa.Table) -> Defects:
    """Find rows whose number of candidates differs from their number of scores."""
    from pyarrow import compute

    labels, scores = (
        compute.list_value_length(table[name]).to_numpy() for name in ("labels", "scores")
    )
    return {
        int(i): f"there are {labels[i]} labels, but {scores[i]} scores"
        for i in np.flatnonzero(labels != scores)
    }


def find_bad_rows(
    rows: Rows, classes: NDArray[np.generic] | None, *, check_y: bool = True
) -> Defects:
    """Find rows with values that are not finite, with unknown labels or without candidates.

    Parameters
    ----------
    rows : Rows
        Rows to check.
    classes : array of shape (n_classes,), optional
        All classes. Without it, labels are not checked.
    check_y : bool, default=True
        Whether a row is bad if its label `y` is not one of the classes.

    Returns
    -------
    dict
        Description of the defect of each bad row.
    """
    labels = rows.labels
    if isinstance(labels, np.ndarray) and labels.dtype.kind not in "iu":
        labels = labels.tolist()
    defects = _not_finite(rows.scores, "scores", labels) | _not_finite(rows.features, "features")
    if rows.y is not None and rows.y.dtype.kind == "f":
        defects |= {int(i): "y is missing" for i in np.flatnonzero(np.isnan(rows.y))}
    if classes is not None and check_y and rows.y is not None:
        defects = _unknown_y(rows.y, classes) | defects
    if classes is not None and labels is not None:
        defects = _unknown_candidates(labels, classes) | defects
    if labels is not None:
        defects |= _repeated_candidates(labels)
    return defects


def _not_finite(values: RowValues | None, name: str, labels: RowValues | None = None) -> Defects:
    """Find rows with a value that is not a finite number; padding may have any value."""
    if values is None:
        return {}
    if isinstance(values, np.ndarray):
        return _not_finite_in_matrix(values, name, labels)
    defects: Defects = {}
    for i, row in enumerate(values):
        for place, value in enumerate(row):
            is_padding = labels is not None and labels[i][place] in PADDING
            if not is_padding and (value is None or not np.isfinite(value)):  # type: ignore[call-overload]
                defects[i] = f"{name} contain {value} at position {place}"
                break
    return defects


def _not_finite_in_matrix(matrix: NDArray[Any], name: str, labels: RowValues | None) -> Defects:
    if matrix.dtype.kind != "f" or np.isfinite(matrix.sum()):  # The sum is fast to check.
        return {}
    invalid = ~np.isfinite(matrix)
    if labels is not None:
        invalid &= [[label not in PADDING for label in row] for row in labels]
    first = invalid.argmax(axis=1)
    return {
        int(i): f"{name} contain {matrix[i, first[i]]} at position {first[i]}"
        for i in np.flatnonzero(invalid.any(axis=1))
    }


def _unknown_y(y: NDArray[Any], classes: NDArray[np.generic]) -> Defects:
    """Find rows whose label is not one of the classes."""
    if are_indices(classes) and y.dtype.kind in "iu":
        unknown = (y < 0) | (y >= len(classes))
    else:
        unknown = ~np.isin(y.astype(classes.dtype), classes)
    return {
        i: f"y is {y[i : i + 1].tolist()[0]!r}, which is not one of {len(classes):,} classes"
        for i in np.flatnonzero(unknown).tolist()
    }


def _unknown_candidates(
    labels: NDArray[Any] | Sequence[Sequence[object]], classes: NDArray[np.generic]
) -> Defects:
    """Find rows with a candidate that is neither one of the classes nor padding."""
    count = len(classes)
    suspects: Sequence[int] = range(len(labels))
    if isinstance(labels, np.ndarray) and are_indices(classes):
        suspects = np.flatnonzero(((labels < -1) | (labels >= count)).any(axis=1)).tolist()
    if not suspects:
        return {}
    known = {*classes.tolist(), *PADDING}
    defects = {}
    for i in suspects:
        unknown = [label for label in _as_list(labels[i]) if label not in known]
        if unknown:
            defects[i] = f"the candidate {unknown[0]!r} is not one of {count:,} classes"
    return defects


def _repeated_candidates(labels: NDArray[Any] | Sequence[Sequence[object]]) -> Defects:
    """Find rows in which a candidate occurs twice, and rows without candidates."""
    suspects: Sequence[int] = range(len(labels))
    if isinstance(labels, np.ndarray):
        rising = np.sort(labels, axis=1)
        repeated = (rising[:, 1:] == rising[:, :-1]) & (rising[:, 1:] >= 0)
        suspects = np.flatnonzero(repeated.any(axis=1) | (rising[:, -1] < 0)).tolist()
    defects = {}
    for i in suspects:
        candidates = [label for label in _as_list(labels[i]) if label not in PADDING]
        if not candidates:
            defects[i] = "there are no candidates"
        elif len(set(candidates)) < len(candidates):
            repeats = (c for k, c in enumerate(candidates) if c in candidates[:k])
            defects[i] = f"the candidate {next(repeats)!r} occurs twice"
    return defects


def _as_list(row: Any) -> list[Any]:
    return row.tolist() if isinstance(row, np.ndarray) else list(row)
