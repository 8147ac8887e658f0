"""The order of a row's scores, best first. Ties are settled here and nowhere else: among equal
scores the highest index goes first.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import run_in_threads, sort_values

SORTED_TOGETHER = 200
"""About so many whole numbers are sorted at a time: several times faster than thousands."""


def sort_labels(scores: Tensor, depth: int) -> Tensor:
    """Columns of the `depth` best scores of each row, best first; among ties the highest index.

    The one place that settles ties. Rows without ties take the fast partial sort, whose order
    among equal scores is arbitrary; rows with ties, inside the prefix or across its end, are
    sorted again with a stable sort of the reversed columns.

    >>> sort_labels(torch.tensor([[0.2, 0.4, 0.4, 0.0]]), depth=3).tolist()
    [[2, 1, 0]]
    """
    n = scores.shape[1]
    if depth > n // 4:
        return _stable_order(scores)[:, :depth]
    values, columns = torch.topk(scores, depth + 1, dim=1)
    tied = (values[:, 1:] == values[:, :-1]).any(dim=1)
    columns = columns[:, :depth]
    if bool(tied.any()):
        columns[tied] = _stable_order(scores[tied])[:, :depth]
    return columns


def _stable_order(scores: Tensor) -> Tensor:
    reversed_columns = torch.sort(scores.flip(1), dim=1, descending=True, stable=True).indices
    return scores.shape[1] - 1 - reversed_columns


def labels_reaching(values: Tensor, least: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the values (rows, classes) that reach their row's `least`, (rows, 1) or
    (1, 1) for all, one row after the other, each in the order of its scores, best first.

    >>> values, scores = torch.tensor([[0.3, 0.3, 0.1, 0.3]]), torch.zeros(1, 4)
    >>> labels_reaching(values, torch.tensor([[0.2]]), scores)[1].tolist()
    [3, 1, 0]
    """
    wide = (torch.float32, torch.float64)
    if not values.is_cuda and values.dtype in wide and scores.dtype == torch.float32:
        found = _reaching(values.numpy(), least.numpy(), scores.numpy())
        return torch.from_numpy(found[0]), torch.from_numpy(found[1])
    row, column = (values >= least).nonzero(as_tuple=True)
    picked = scores[row, column]
    if picked.dtype == torch.float64:
        # Backwards: of what is equal a stable sort then leaves the last column first.
        last = torch.arange(len(row) - 1, -1, -1, device=row.device)
        last = last[torch.sort(picked[last], descending=True, stable=True).indices]
        last = last[torch.sort(row[last], stable=True).indices]
        return row[last], column[last]
    bits = (picked.to(torch.float32) + 0.0).view(torch.int32).to(torch.int64)
    falling = torch.where(bits < 0, -(bits + (1 << 31)), bits).neg_().add_(1 << 31)
    return _unpack(sort_values(_pack(row, falling, column, scores.shape[1])), scores.shape[1])


def _reaching(
    values: NDArray[Any], least: NDArray[Any], scores: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same in NumPy, which is faster at it."""
    n = scores.shape[1]

    def sorted_keys(rows: slice) -> NDArray[np.int64]:
        flat = np.flatnonzero(values[rows] >= (least if len(least) == 1 else least[rows]))
        row = flat // n
        bits = (scores[rows].reshape(-1)[flat] + np.float32(0)).view(np.int32).astype(np.int64)
        falling = (1 << 31) - np.where(bits < 0, -(bits + (1 << 31)), bits)
        keys: NDArray[np.int64] = _pack(row + rows.start, falling, flat - row * n, n)
        _sort_few(keys, np.searchsorted(row, row[SORTED_TOGETHER::SORTED_TOGETHER]))
        return keys

    # To compare with one number is too quick a work for threads.
    size = 0 if len(least) == 1 else values.size
    parts = run_in_threads(sorted_keys, len(values), size)
    return _unpack(parts[0] if len(parts) == 1 else np.concatenate(parts), n)


def _sort_few(keys: NDArray[np.int64], ends: NDArray[np.intp]) -> None:
    """Sort keys that are in order but for what is between each of some rising ends and the next."""
    for start, end in pairwise([0, *ends.tolist(), len(keys)]):
        keys[start:end].sort()


Integers = TypeVar("Integers", Tensor, "NDArray[np.int64]")


def _pack(row: Integers, falling: Integers, column: Integers, n: int) -> Integers:
    """One whole number for row, score from the best down, and column from the last."""
    return ((((row << 33) + falling) << n.bit_length()) + (n - 1)) - column


def _unpack(keys: Integers, n: int) -> tuple[Integers, Integers]:
    """The row and the column that were packed."""
    return keys >> (33 + n.bit_length()), n - 1 - (keys & ((1 << n.bit_length()) - 1))


def prefix_to(values: Tensor, last: Tensor, scores: Tensor, sizes: Tensor) -> Tensor:
    """The first `sizes[i]` labels of every row i, one row after the other (int32).

    `values` (rows, classes) rank no two labels otherwise than the scores do, though they may make
    ties of them, and `last` (rows, 1) is the value of the last label wanted.

    >>> v = torch.tensor([[0.5, 0.2, 0.3]])
    >>> prefix_to(v, torch.tensor([[0.3]]), v, torch.tensor([2])).tolist()
    [0, 2]
    """
    row, column = labels_reaching(values, torch.where(sizes[:, None] > 0, last, torch.inf), scores)
    if len(column) == int(sizes.sum()):
        return column.to(torch.int32)
    # More than wanted, where the last ones tie.
    begin = torch.searchsorted(row, torch.arange(len(sizes), device=row.device))
    place = torch.arange(len(row), device=row.device) - begin[row]
    return column[place < sizes[row]].to(torch.int32)


def first_label(scores: Tensor) -> Tensor:
    """Index of the largest value along the last axis; among ties the highest index.

    >>> first_label(torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]])).tolist()
    [2, 1]
    """
    return scores.shape[-1] - 1 - scores.flip(-1).argmax(dim=-1)


def any_ties(block: Tensor, own: Tensor, among: Tensor) -> bool:
    """Whether any of some rows (a mask) has two scores that equal its `own`."""
    if block.dtype not in (torch.float32, torch.float64) or block.is_cuda:
        return True  # it could be
    at = among.numpy().nonzero()[0]
    return int(np.count_nonzero(block.numpy()[at] == own.numpy()[at])) > len(at)


def ties_before(block: Tensor, own: Tensor, y: Tensor) -> Tensor:
    """How many scores equal each row's `own`, that of the label `y`, and go before it."""
    columns = torch.arange(block.shape[1], device=block.device)
    if block.is_cuda or torch.compiler.is_compiling():  # without a look at the values
        return count_true((block == own) & (columns > y))
    # Which rows have ties at all is told faster by differences, of which those that are not zero
    # are counted, than by what is equal.
    others = (block - own).sign_().abs_().sum(dim=1, dtype=torch.float32)
    ties = torch.zeros(len(block), dtype=torch.int32)
    several = (others < block.shape[1] - 1).nonzero()[:, 0]
    if len(several):
        equal = block[several] == own[several]
        ties[several] = count_true(equal & (columns > y[several]))
    return ties


def count_true(inside: Tensor) -> Tensor:
    """How many of each row are true. As whole numbers of the same width as what was compared,
    which is faster than as long ones."""
    return inside.sum(dim=1, dtype=torch.int32)
