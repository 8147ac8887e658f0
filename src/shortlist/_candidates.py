"""Reading ranked candidates: ragged lists, names, padding, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._arrays import ArrayLike, to_tensor
from shortlist._labels import Classes


def read_candidates(
    labels: ArrayLike, scores: ArrayLike, classes: Classes
) -> tuple[Tensor, Tensor]:
    """Candidates as two checked rectangles: column indices (int64, -1 for padding) and scores."""
    if isinstance(labels, list | tuple) and isinstance(scores, list | tuple):
        labels, scores = _pad(labels, scores)
    values = to_tensor(scores, "scores")
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"candidate scores must have shape (rows, depth), neither zero; "
            f"got shape {tuple(values.shape)}"
        )
    if not values.is_floating_point():
        values = values.to(torch.float64)
    if isinstance(labels, Tensor):
        columns = labels.detach().to(device=values.device, dtype=torch.int64)
    else:
        columns = _encode(np.asarray(labels), classes).to(values.device)
    if columns.shape != values.shape:
        raise ValueError(
            f"labels and scores must have the same shape; "
            f"got {tuple(columns.shape)} and {tuple(values.shape)}"
        )
    _check(columns, values, classes.n)
    return columns, values


def _pad(
    labels: Sequence[Sequence[object]], scores: Sequence[Sequence[object]]
) -> tuple[list[list[object]], list[list[object]]]:
    lengths = [len(row) for row in labels]
    if len(scores) != len(labels):
        raise ValueError(f"labels have {len(labels)} rows, scores {len(scores)}")
    for at, (length, row) in enumerate(zip(lengths, scores, strict=True)):
        if len(row) != length:
            raise ValueError(f"row {at} has {length} labels, but {len(row)} scores")
    width = max(lengths, default=0)
    return (
        [[*row, *[None] * (width - len(row))] for row in labels],
        [[*row, *[0.0] * (width - len(row))] for row in scores],
    )


def _encode(array: NDArray[np.generic], classes: Classes) -> Tensor:
    if array.dtype.kind in "iu" and classes.values is None:
        return torch.from_numpy(array.astype(np.int64))
    if array.dtype.kind == "f":
        raise ValueError(f"candidate labels hold floats (dtype {array.dtype}); give integers")
    flat = array.reshape(-1).tolist()
    real = [v is not None and not (isinstance(v, int) and v == -1) for v in flat]
    index = np.full(len(flat), -1, dtype=np.int64)
    names = np.empty(sum(real), dtype=object)
    names[:] = [v for v, r in zip(flat, real, strict=True) if r]
    if classes.values is None:
        names = names.astype(np.int64)
    index[np.asarray(real)] = classes.encode(names, name="candidate labels").numpy()
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
        raise ValueError(f"row {int(empty.nonzero()[0])} has no candidates at all")
    wrong = real & ~torch.isfinite(values)
    if bool(wrong.any()):
        row, place = (int(v) for v in wrong.nonzero()[0])
        raise ValueError(
            f"candidate scores hold {float(values[row, place])} at row {row}, place {place}; "
            "every score must be finite"
        )
    by_label = torch.where(real, columns, -1 - torch.arange(columns.shape[1]).to(columns.device))
    by_label = by_label.sort(dim=1).values
    twice = by_label[:, 1:] == by_label[:, :-1]
    if bool(twice.any()):
        row, place = (int(v) for v in twice.nonzero()[0])
        raise ValueError(f"row {row} lists label {int(by_label[row, place])} twice")
