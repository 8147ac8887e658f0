"""Read ranked candidates: ragged lists, names, padding, and errors for invalid input."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, to_tensor
from shortlist._utils.labels import Classes, format_label
from shortlist._utils.ordering import sort_values
from shortlist._utils.validation import check_present, check_tensor
from shortlist.ranking.ranked_rows import TopLabels

PADDING: frozenset[object] = frozenset({None, -1})
"""Labels that stand for no candidate, after a row's last one or between two."""


def read_candidates(labels: ArrayLike, scores: ArrayLike, classes: Classes) -> TopLabels:
    """Validate candidates, and sort them by their scores.

    Parameters
    ----------
    labels, scores : array-like of shape (n_rows, depth), or nested lists
        Candidates and their scores, as in `Ranking.from_candidates`.
    classes : Classes
        Classes that the labels belong to.

    Returns
    -------
    labels : int32 Tensor of shape (n_rows, depth)
        Label indices, best first; -1 after a row's last candidate.
    scores : Tensor of shape (n_rows, depth)
        Scores; 0 after a row's last candidate.

    Raises
    ------
    ValueError
        If shapes differ, a row has no candidate, a label is unknown or occurs twice in a row, or
        a score is not finite.
    """
    labels, scores = _unpack_lists(labels), _unpack_lists(scores)
    if isinstance(labels, list | tuple) and isinstance(scores, list | tuple):
        labels, scores = _pad(_as_rows(labels, "labels"), _as_rows(scores, "scores"))
    values = to_tensor(scores, "scores")
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"candidate scores must have shape (rows, depth), neither zero; "
            f"got shape {tuple(values.shape)}"
        )
    if not values.is_floating_point():
        values = values.to(torch.float64)
    columns = _encode_labels(labels, classes).to(values.device)
    if columns.shape != values.shape:
        raise ValueError(
            f"labels and scores must have the same shape; "
            f"got {tuple(columns.shape)} and {tuple(values.shape)}"
        )
    _check_candidates(columns, values, classes.n)
    return _sort_candidates(columns, values)


def _sort_candidates(columns: Tensor, values: Tensor) -> TopLabels:
    """Sort candidates by decreasing score, padding last, and remove columns of padding."""
    by_score = torch.where(columns >= 0, values, -torch.inf)
    if bool((by_score[:, 1:] > by_score[:, :-1]).any()):
        # A stable sort keeps the order of candidates with equal scores.
        order = torch.sort(by_score, dim=1, descending=True, stable=True).indices
        columns, values = columns.gather(1, order), values.gather(1, order)
    depth = int((columns >= 0).sum(dim=1).max())
    columns, values = columns[:, :depth], values[:, :depth]
    return columns.to(torch.int32), torch.where(columns >= 0, values, 0)


def _unpack_lists(x: ArrayLike) -> ArrayLike:
    """Return a column of lists (of pandas, Polars or Arrow) as nested lists, others unchanged."""
    if isinstance(x, Tensor | list | tuple) or len(getattr(x, "shape", (0,))) != 1:
        return x
    for method in ("to_pylist", "to_list", "tolist"):  # Arrow, Polars, pandas and NumPy
        if hasattr(x, method):
            rows: list[object] = getattr(x, method)()
            is_nested = bool(rows) and isinstance(rows[0], Sequence | np.ndarray)
            return rows if is_nested and not isinstance(rows[0], str) else x
    return x


def _as_rows(nested: Sequence[object], name: str) -> list[list[object]]:
    """Return nested lists, tuples or arrays as a list of lists."""
    rows: list[list[object]] = []
    for i, row in enumerate(nested):
        values = row.tolist() if isinstance(row, np.ndarray | Tensor) else row
        if not isinstance(values, list | tuple):
            raise ValueError(
                f"candidate {name} must be a list for each row; {name}[{i}] = {row!r} is not one"
            )
        rows.append(list(values))
    return rows


def _pad(
    labels: list[list[object]], scores: list[list[object]]
) -> tuple[list[list[object]], list[list[object]]]:
    """Return rows of unequal lengths padded to one length."""
    if len(scores) != len(labels):
        raise ValueError(f"labels have {len(labels)} rows, but scores have {len(scores)}")
    for i, (row, values) in enumerate(zip(labels, scores, strict=True)):
        if len(row) != len(values):
            raise ValueError(f"row {i} has {len(row)} labels, but {len(values)} scores")
    width = max(map(len, labels), default=0)
    return (
        [[*row, *[None] * (width - len(row))] for row in labels],
        # A missing score becomes NaN, which raises later unless its label is padding.
        [
            [*(math.nan if v is None else v for v in row), *[0.0] * (width - len(row))]
            for row in scores
        ],
    )


def _encode_labels(labels: ArrayLike, classes: Classes) -> Tensor:
    """Return labels as column indices (int64), -1 for padding."""
    if isinstance(labels, Tensor):
        check_tensor(labels, "labels")
        is_index = not labels.is_floating_point() and labels.dtype != torch.uint64
        if classes.values is None and is_index:
            return labels.to(torch.int64)
        labels = labels.detach().cpu().numpy()
    array = _label_matrix(labels)
    if array.dtype.kind in "iu" and classes.values is None:
        if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise ValueError(
                f"candidate label {array.max()} is not one of the {classes.n} classes 0 to "
                f"{classes.n - 1} (-1 pads a short row)"
            )
        return torch.from_numpy(array.astype(np.int64))
    if array.dtype.kind == "f":
        raise ValueError(
            f"candidate labels hold floats (first: {array.flat[0]}, dtype {array.dtype}); "
            "give integers, or names and classes=[...]"
        )
    return _encode_names(array, classes)


def _label_matrix(labels: ArrayLike) -> NDArray[np.generic]:
    """Return labels as an array. NumPy alone would convert -1 beside "a" to the string "-1"."""
    if not isinstance(labels, list | tuple):
        check_present(labels, "labels")
        return np.asarray(labels)
    rows = _as_rows(labels, "labels")
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise ValueError(
            f"labels have rows of {min(lengths)} to {max(lengths)} candidates, but scores are "
            "rectangular; pad the short rows with -1"
        )
    array = np.empty((len(rows), *lengths), dtype=object)
    for i, row in enumerate(rows):
        array[i] = row
    return array


def _encode_names(array: NDArray[np.generic], classes: Classes) -> Tensor:
    """Return names as column indices, -1 for padding."""
    # A class that is called -1 cannot pad.
    padding = PADDING if -1 not in classes.array().tolist() else {None}
    flat = array.reshape(-1).tolist()
    is_candidate = np.array([label not in padding for label in flat], dtype=bool)
    names = np.empty(int(is_candidate.sum()), dtype=object)
    names[:] = [label for label in flat if label not in padding]
    codes = classes.codes(names, "candidate labels")
    index = np.full(len(flat), -1, dtype=np.int64)
    index[is_candidate] = codes
    unknown = np.flatnonzero((codes < 0) | (codes >= classes.n))
    if len(unknown):
        row, position = divmod(int(np.flatnonzero(is_candidate)[unknown[0]]), array.shape[1])
        raise ValueError(
            f"candidate label {format_label(names[unknown[0]])} at row {row}, position {position} "
            f"is not one of the {classes.describe()} (-1 or None pads a short row)"
        )
    return torch.from_numpy(index.reshape(array.shape))


def _check_candidates(columns: Tensor, values: Tensor, n: int) -> None:
    """Raise if a label or score is invalid, a label occurs twice, or a row has no candidate."""
    unknown = (columns < -1) | (columns >= n)
    if bool(unknown.any()):
        row, position = _first_true(unknown)
        raise ValueError(
            f"candidate label {int(columns[row, position])} at row {row}, position {position} is "
            f"not one of the {n} classes 0 to {n - 1} (-1 pads a short row)"
        )
    is_candidate = columns >= 0
    empty = ~is_candidate.any(dim=1)
    if bool(empty.any()):
        raise ValueError(
            f"row {int(empty.nonzero()[0])} has no candidates at all; leave such rows out"
        )
    invalid = is_candidate & ~torch.isfinite(values)
    if bool(invalid.any()):
        row, position = _first_true(invalid)
        raise ValueError(
            f"candidate scores hold {float(values[row, position])} at row {row}, position "
            f"{position}; every score must be finite"
        )
    # Distinct negative numbers keep padding from counting as repeated labels.
    padding = -1 - torch.arange(columns.shape[1], device=columns.device)
    ordered = sort_values(torch.where(is_candidate, columns, padding))
    repeated = ordered[:, 1:] == ordered[:, :-1]
    if bool(repeated.any()):
        row, position = _first_true(repeated)
        raise ValueError(f"row {row} lists label {int(ordered[row, position])} twice")


def _first_true(mask: Tensor) -> tuple[int, int]:
    """Return the row and column of the first true value."""
    row, column = mask.nonzero()[0].tolist()
    return row, column
