"""Families of fixed sizes and of fixed thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.validation import check_count
from shortlist.families.base import Family
from shortlist.ranking import Ranking


class TopK(Family):
    """Sets of the `k` best labels, for each `k` of a list of sizes.

    Parameters
    ----------
    sizes : sequence of int
        Sizes, increasing.

    Examples
    --------
    >>> family = TopK([1, 2])
    >>> family.hits([[0.1, 0.6, 0.3]], [2]).tolist()
    [[False, True]]
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        if not isinstance(sizes, Iterable):
            raise ValueError(f"TopK takes a list of sizes, such as [1, 2, 4]; got {sizes!r}")
        self.k = [check_count(k, "each size of TopK") for k in sizes]
        if not self.k:
            raise ValueError("TopK needs at least one size; got none")
        if any(a >= b for a, b in pairwise(self.k)):
            raise ValueError(f"the sizes of TopK must increase; got {self.k}")

    @classmethod
    def dense(cls, n: int) -> TopK:
        """Return the family of every size from 1 to `n`.

        Parameters
        ----------
        n : int
            Largest size.

        Returns
        -------
        TopK
        """
        return cls(range(1, check_count(n, "n") + 1))

    @classmethod
    def doubling(cls, n: int, largest: int = 64) -> TopK:
        """Return the family of the sizes 1, 2, 4, 8, …, as in the paper.

        Parameters
        ----------
        n : int
            Number of classes, which no size exceeds.
        largest : int, default=64
            Another upper bound on the sizes.

        Returns
        -------
        TopK
        """
        bound = min(check_count(n, "n"), check_count(largest, "largest"))
        return cls([1 << i for i in range(bound.bit_length())])

    def __len__(self) -> int:
        return len(self.k)

    def possible_sizes(self, ranking: Ranking) -> Iterable[int]:
        """Return the sizes that can occur; see `Family.possible_sizes`."""
        # Rows can have fewer than k candidates.
        return self.k if ranking.is_dense else range(1, self.k[-1] + 1)

    def check(self, ranking: Ranking) -> None:
        """Raise if the largest size exceeds the depth of the ranking."""
        ranking.check_depth(self.k[-1], f"TopK goes up to size {self.k[-1]}")

    def fixed_sizes(self, ranking: Ranking) -> list[int] | None:
        """Return the sizes if every class has a score, else None."""
        return self.k if ranking.is_dense else None

    def max_size(self, depth: int) -> int:
        """Return the largest possible size in rankings of a depth."""
        return min(self.k[-1], depth)

    def is_exhaustive(self, ranking: Ranking) -> bool:
        """Return whether the largest size is the number of classes, and all are ranked."""
        return ranking.is_complete and self.k[-1] == ranking.n_classes

    def onnx_sizes(self, rows: Any) -> Any:
        """Return the sizes as an array, or as a value of an ONNX graph for candidates."""
        sizes, lengths = np.array(self.k, dtype=np.int64), rows.lengths()
        return sizes if lengths is None else rows.minimum(sizes[None], lengths)

    def sizes_of(self, ranking: Ranking) -> Tensor:
        """Return the size of each member's set in each row; see `Family.sizes_of`."""
        k = torch.tensor(self.k, dtype=torch.int32, device=ranking.device)
        if ranking.is_dense:
            return k.expand(len(ranking), -1)
        return torch.minimum(k, ranking.lengths()[:, None])

    def __repr__(self) -> str:
        dense = self.k == list(range(1, len(self.k) + 1)) and len(self.k) > 8
        return f"TopK.dense({len(self.k)})" if dense else f"TopK({self.k})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopK) and self.k == other.k

    def __hash__(self) -> int:
        return hash(("TopK", *self.k))


class Threshold(Family):
    """Sets of the labels whose score exceeds a threshold, for each threshold of a list.

    If no score exceeds the threshold, the set contains the best label.

    Parameters
    ----------
    thresholds : sequence of float
        Thresholds, decreasing, so that the sets grow. They are rounded to the floating-point type
        of the scores, and compared with the scores as they were given.

    Examples
    --------
    >>> Threshold([0.5, 0.3, 0.05]).sizes([[0.1, 0.6, 0.3], [0.4, 0.3, 0.3]]).tolist()
    [[1, 1, 3], [1, 1, 3]]
    """

    def __init__(self, thresholds: Sequence[float]) -> None:
        try:
            values = np.asarray(thresholds, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.empty(0)
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
            raise ValueError(f"Threshold needs a list of finite numbers; got {thresholds!r}")
        self.thresholds: list[float] = values.tolist()
        if (np.diff(values) >= 0).any():
            raise ValueError(
                f"thresholds must decrease, so that the sets grow; got {self.thresholds}"
            )

    def __len__(self) -> int:
        return len(self.thresholds)

    def possible_sizes(self, ranking: Ranking) -> Iterable[int]:
        """Return the sizes that can occur; see `Family.possible_sizes`."""
        return range(1, ranking.depth + 1)

    def sizes_of(self, ranking: Ranking) -> Tensor:
        """Return the size of each member's set in each row; see `Family.sizes_of`."""
        return ranking.count_above(self.thresholds).clamp_(min=1)

    def onnx_sizes(self, rows: Any) -> Any:
        """Return `sizes_of` as a value of an ONNX graph; see `Family.onnx_sizes`."""
        return rows.count_above(self.thresholds).clamp(min=1, max=rows.depth)

    def __repr__(self) -> str:
        return f"Threshold({self.thresholds})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Threshold) and self.thresholds == other.thresholds

    def __hash__(self) -> int:
        return hash(("Threshold", *self.thresholds))
