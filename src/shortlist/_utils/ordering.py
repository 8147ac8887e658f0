"""Order the labels of each row by score, best first.

This is the only module that breaks ties: among equal scores the highest index comes first.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.threads import map_blocks

SORT_CHUNK = 200
"""Approximate number of keys sorted at a time, which is several times faster than thousands."""
SCORE_BITS = 33
"""Bits of a sort key that contain the score."""

Integers = TypeVar("Integers", Tensor, "NDArray[np.int64]")


def sort_values(x: Tensor) -> Tensor:
    """Return the values sorted along the last axis, smallest first.

    NumPy is used on a CPU because it is several times faster.
    """
    if x.is_cuda:
        return torch.sort(x, dim=-1).values
    exact = x if x.dtype in (torch.float32, torch.float64, torch.int64) else x.to(torch.float32)
    array = exact.contiguous().numpy()
    if array.ndim == 1:
        return torch.from_numpy(np.sort(array)).to(x.dtype)
    out = np.empty_like(array)

    def sort(rows: slice) -> None:
        out[rows] = array[rows]
        out[rows].sort()

    map_blocks(sort, *array.shape)
    return torch.from_numpy(out).to(x.dtype)


def sort_labels(scores: Tensor, depth: int) -> Tensor:
    """Return the columns of the `depth` best scores of each row, best first.

    Rows without ties use a fast partial sort, whose order among equal scores is arbitrary. Rows
    with ties, inside the prefix or across its end, are sorted again with a stable sort of the
    reversed columns.

    Examples
    --------
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
    """Return the columns by decreasing score, and by decreasing index among equal scores."""
    reversed_columns = torch.sort(scores.flip(1), dim=1, descending=True, stable=True).indices
    return scores.shape[1] - 1 - reversed_columns


def top_label(scores: Tensor) -> Tensor:
    """Return the index of the largest value along the last axis; of equal values, the highest.

    Examples
    --------
    >>> top_label(torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]])).tolist()
    [2, 1]
    """
    return scores.shape[-1] - 1 - scores.flip(-1).argmax(dim=-1)


class Columns(Protocol):
    """A matrix whose values are computed for some rows at a time."""

    shape: tuple[int, int]
    dtype: torch.dtype

    def __getitem__(self, rows: slice) -> Tensor:
        """Return the values of some rows."""
        ...

    def block(self, rows: slice) -> Tensor:
        """Return the values of some rows in memory that the thread's next block may overwrite."""
        ...


def labels_at_least(
    values: Tensor | Columns, thresholds: Tensor, scores: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the labels whose value is at least the threshold of their row.

    Parameters
    ----------
    values : Tensor or Columns of shape (n_rows, n_classes)
        Values to compare.
    thresholds : Tensor of shape (n_rows, 1) or (1, 1)
        One threshold for each row, or one for all.
    scores : Tensor of shape (n_rows, n_classes)
        Scores that order the labels within a row.

    Returns
    -------
    rows, columns : Tensor
        Sorted by row, then by score, best first.

    Examples
    --------
    >>> values, scores = torch.tensor([[0.3, 0.3, 0.1, 0.3]]), torch.zeros(1, 4)
    >>> labels_at_least(values, torch.tensor([[0.2]]), scores)[1].tolist()
    [3, 1, 0]
    """
    if (
        not scores.is_cuda
        and values.dtype in (torch.float32, torch.float64)
        and scores.dtype == torch.float32
    ):
        rows, columns = _labels_at_least(values, thresholds.numpy(), scores.numpy())
        return torch.from_numpy(rows), torch.from_numpy(columns)
    row, column = (values[:] >= thresholds).nonzero(as_tuple=True)
    own = scores[row, column]
    if own.dtype == torch.float64:  # Too many bits for a key.
        # Stable sorts of the reversed labels put the highest of equal columns first.
        order = torch.arange(len(row) - 1, -1, -1, device=row.device)
        order = order[torch.sort(own[order], descending=True, stable=True).indices]
        order = order[torch.sort(row[order], stable=True).indices]
        return row[order], column[order]
    # Adding zero turns -0 into 0. The integer decreases where the score increases.
    bits = (own.to(torch.float32) + 0.0).view(torch.int32).to(torch.int64)
    descending = torch.where(bits < 0, -(bits + (1 << 31)), bits).neg_().add_(1 << 31)
    n = scores.shape[1]
    return _unpack_keys(sort_values(_pack_keys(row, descending, column, n)), n)


def _labels_at_least(
    values: Tensor | Columns, thresholds: NDArray[Any], scores: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Compute `labels_at_least` with NumPy, which is faster on a CPU."""
    n = scores.shape[1]
    block_of = values.__getitem__ if isinstance(values, Tensor) else values.block

    def sorted_keys(rows: slice) -> NDArray[np.int64]:
        flat = np.flatnonzero(
            block_of(rows).numpy() >= (thresholds if len(thresholds) == 1 else thresholds[rows])
        )
        row = flat // n
        bits = (scores[rows].reshape(-1)[flat] + np.float32(0)).view(np.int32).astype(np.int64)
        descending = (1 << 31) - np.where(bits < 0, -(bits + (1 << 31)), bits)
        keys: NDArray[np.int64] = _pack_keys(row + rows.start, descending, flat - row * n, n)
        _sort_chunks(keys, np.searchsorted(row, row[SORT_CHUNK::SORT_CHUNK]))
        return keys

    parts = map_blocks(sorted_keys, *scores.shape)
    return _unpack_keys(parts[0] if len(parts) == 1 else np.concatenate(parts), n)


def _sort_chunks(keys: NDArray[np.int64], ends: NDArray[np.intp]) -> None:
    """Sort keys in place, of which only those between consecutive ends can be out of order."""
    for start, end in pairwise([0, *ends.tolist(), len(keys)]):
        keys[start:end].sort()


def _pack_keys(row: Integers, descending: Integers, column: Integers, n: int) -> Integers:
    """Return integers that sort by row, then by score, best first, then by column, last first."""
    return ((((row << SCORE_BITS) + descending) << n.bit_length()) + (n - 1)) - column


def _unpack_keys(keys: Integers, n: int) -> tuple[Integers, Integers]:
    """Return the row and the column of each key."""
    bits = n.bit_length()
    return keys >> (SCORE_BITS + bits), n - 1 - (keys & ((1 << bits) - 1))


def prefix_labels(values: Tensor, last: Tensor, scores: Tensor, sizes: Tensor) -> Tensor:
    """Return the first labels of each row, concatenated (int32).

    Parameters
    ----------
    values : Tensor of shape (n_rows, n_classes)
        A non-decreasing function of the scores: it can create ties, but does not reorder labels.
    last : Tensor of shape (n_rows, 1)
        Value of the last label of each prefix.
    scores : Tensor of shape (n_rows, n_classes)
        Scores that order the labels.
    sizes : Tensor of shape (n_rows,)
        Number of labels to return for each row.

    Returns
    -------
    Tensor of shape (sizes.sum(),)
        Labels, one row after another, best first.

    Examples
    --------
    >>> v = torch.tensor([[0.5, 0.2, 0.3]])
    >>> prefix_labels(v, torch.tensor([[0.3]]), v, torch.tensor([2])).tolist()
    [0, 2]
    """
    row, column = labels_at_least(values, torch.where(sizes[:, None] > 0, last, torch.inf), scores)
    if len(column) == int(sizes.sum()):
        return column.to(torch.int32)
    # Labels that tie with the last one were returned too.
    begin = torch.searchsorted(row, torch.arange(len(sizes), device=row.device))
    place = torch.arange(len(row), device=row.device) - begin[row]
    return column[place < sizes[row]].to(torch.int32)


def any_ties(block: Tensor, own: Tensor, among: Tensor) -> bool:
    """Return whether any label can have the same score as another one of its row.

    Parameters
    ----------
    block : Tensor of shape (n_rows, n_classes)
        Scores.
    own : Tensor of shape (n_rows, 1)
        Score of one label of each row.
    among : bool Tensor of shape (n_rows,)
        Rows to check.

    Returns
    -------
    bool
        False if there is no tie. True if there is one, or where a check would be slow: on a GPU,
        or in half precision.
    """
    if block.dtype not in (torch.float32, torch.float64) or block.is_cuda:
        return True
    rows = among.numpy().nonzero()[0]
    return int(np.count_nonzero(block.numpy()[rows] == own.numpy()[rows])) > len(rows)


def ties_before(block: Tensor, own: Tensor, y: Tensor) -> Tensor:
    """Count the labels of each row that tie with a label and come before it.

    Parameters
    ----------
    block : Tensor of shape (n_rows, n_classes)
        Scores.
    own : Tensor of shape (n_rows, 1)
        Score of the label.
    y : Tensor of shape (n_rows, 1)
        Index of the label.

    Returns
    -------
    int32 Tensor of shape (n_rows,)
    """
    columns = torch.arange(block.shape[1], device=block.device)
    if block.is_cuda or torch.compiler.is_compiling():  # Branching would read the values.
        return count_true((block == own) & (columns > y))
    # Counting nonzero differences finds the rows with ties faster than comparing for equality.
    others = (block - own).sign_().abs_().sum(dim=1, dtype=torch.float32)
    ties = torch.zeros(len(block), dtype=torch.int32)
    tied_rows = (others < block.shape[1] - 1).nonzero()[:, 0]
    if len(tied_rows):
        equal = block[tied_rows] == own[tied_rows]
        ties[tied_rows] = count_true(equal & (columns > y[tied_rows]))
    return ties


def count_true(mask: Tensor) -> Tensor:
    """Count the true values of each row, in int32, which is faster than int64."""
    return mask.sum(dim=1, dtype=torch.int32)
