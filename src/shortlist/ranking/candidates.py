"""Reading ranked candidates: ragged lists, names, padding, and what can be wrong with them."""

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

PADDING: frozenset[object] = frozenset({None, -1})
"""What stands where a row has no candidate: after its last one, or in a gap."""


def read_candidates(
    labels: ArrayLike, scores: ArrayLike, classes: Classes
) -> tuple[Tensor, Tensor]:
    """Candidates as two checked rectangles: column indices (int64, -1 for padding) and scores."""
    if isinstance(labels, list | tuple) and isinstance(scores, list | tuple):
        labels, scores = _pad(_rows(labels, "labels"), _rows(scores, "scores"))
    values = to_tensor(scores, "scores")
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"candidate scores must have shape (rows, depth), neither zero; "
            f"got shape {tuple(values.shape)}"
        )
    if not values.is_floating_point():
        values = values.to(torch.float64)
    if isinstance(labels, Tensor):
        check_tensor(labels, "labels")
    if isinstance(labels, Tensor) and (
        classes.values is not None or labels.is_floating_point() or labels.dtype == torch.uint64
    ):
        labels = labels.detach().cpu().numpy()  # names to look up, floats or large labels to refuse
    if isinstance(labels, Tensor):
        columns = labels.to(device=values.device, dtype=torch.int64)
    else:
        columns = _encode(_label_matrix(labels), classes).to(values.device)
    if columns.shape != values.shape:
        raise ValueError(
            f"labels and scores must have the same shape; "
            f"got {tuple(columns.shape)} and {tuple(values.shape)}"
        )
    _check(columns, values, classes.n)
    return columns, values


def _rows(nested: Sequence[object], name: str) -> list[list[object]]:
    """The rows of nested lists; a row may be a list, a tuple or an array."""
    rows: list[list[object]] = []
    for at, row in enumerate(nested):
        plain = row.tolist() if isinstance(row, np.ndarray | Tensor) else row
        if not isinstance(plain, list | tuple):
            raise ValueError(
                f"candidate {name} must be a list for each row; {name}[{at}] = {row!r} is none"
            )
        rows.append(list(plain))
    return rows


def _pad(
    labels: list[list[object]], scores: list[list[object]]
) -> tuple[list[list[object]], list[list[object]]]:
    if len(scores) != len(labels):
        raise ValueError(f"labels have {len(labels)} rows, but scores {len(scores)}")
    for at, (row, values) in enumerate(zip(labels, scores, strict=True)):
        if len(row) != len(values):
            raise ValueError(f"row {at} has {len(row)} labels, but {len(values)} scores")
    width = max(map(len, labels), default=0)
    return (
        [[*row, *[None] * (width - len(row))] for row in labels],
        # The score of padding is ignored: a missing one is refused elsewhere only.
        [
            [*(math.nan if v is None else v for v in row), *[0.0] * (width - len(row))]
            for row in scores
        ],
    )


def _label_matrix(labels: ArrayLike) -> NDArray[np.generic]:
    """Labels as an array; from lists of objects, since numpy would write -1 beside "a" as "-1"."""
    if not isinstance(labels, list | tuple):
        check_present(labels, "labels")
        return np.asarray(labels)
    rows = _rows(labels, "labels")
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise ValueError(
            f"labels have rows of {min(lengths)} to {max(lengths)} candidates beside a rectangle "
            "of scores; pad the short ones with -1"
        )
    array = np.empty((len(rows), *lengths), dtype=object)
    for at, row in enumerate(rows):
        array[at] = row
    return array


def _encode(array: NDArray[np.generic], classes: Classes) -> Tensor:
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
    padding = PADDING if -1 not in classes.array().tolist() else {None}
    flat = array.reshape(-1).tolist()
    real = np.array([v not in padding for v in flat], dtype=bool)
    names = np.empty(int(real.sum()), dtype=object)
    names[:] = [v for v in flat if v not in padding]
    codes = classes.codes(names, "candidate labels")
    index = np.full(len(flat), -1, dtype=np.int64)
    index[real] = codes
    unknown = np.flatnonzero((codes < 0) | (codes >= classes.n))
    if len(unknown):
        row, place = divmod(int(np.flatnonzero(real)[unknown[0]]), array.shape[1])
        given = format_label(names[unknown[0]])
        raise ValueError(
            f"candidate label {given} at row {row}, place {place} is not one of the "
            f"{classes.describe()} (-1 or None pads a short row)"
        )
    return torch.from_numpy(index.reshape(array.shape))


def _check(columns: Tensor, values: Tensor, n: int) -> None:
    outside = (columns < -1) | (columns >= n)
    if bool(outside.any()):
        row, place = (int(v) for v in outside.nonzero()[0])
        raise ValueError(
            f"candidate label {int(columns[row, place])} at row {row}, place {place} is not one of "
            f"the {n} classes 0 to {n - 1} (-1 pads a short row)"
        )
    real = columns >= 0
    empty = ~real.any(dim=1)
    if bool(empty.any()):
        raise ValueError(
            f"row {int(empty.nonzero()[0])} has no candidates at all; leave such rows out"
        )
    wrong = real & ~torch.isfinite(values)
    if bool(wrong.any()):
        row, place = (int(v) for v in wrong.nonzero()[0])
        raise ValueError(
            f"candidate scores hold {float(values[row, place])} at row {row}, place {place}; "
            "every score must be finite"
        )
    by_label = torch.where(real, columns, -1 - torch.arange(columns.shape[1]).to(columns.device))
    by_label = sort_values(by_label)
    twice = by_label[:, 1:] == by_label[:, :-1]
    if bool(twice.any()):
        row, place = (int(v) for v in twice.nonzero()[0])
        raise ValueError(f"row {row} lists label {int(by_label[row, place])} twice")
