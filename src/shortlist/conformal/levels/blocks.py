"""Levels of many rows, a block at a time, on a CPU in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.threads import map_in_threads
from shortlist.conformal.levels.protocol import Block

Result = TypeVar("Result")


class LevelBlocks:
    """Blocks of rows with their rankings and levels, computed whenever they are needed.

    Parameters
    ----------
    slices : list of slice
        Rows of the blocks, in order.
    compute : callable
        Function that returns the block of a slice. It must depend on these rows alone.
    width : int or None
        Number of scores of a row. None if the levels need more work than that, such as networks:
        few rows are then computed in a thread too, where their operations are single-threaded.
    device : torch.device
        Device of the rows. Blocks on a CPU are computed in threads.
    """

    def __init__(
        self,
        slices: list[slice],
        compute: Callable[[slice], Block],
        width: int | None,
        device: torch.device,
    ) -> None:
        self.slices, self.width, self.device = slices, width, device
        self._compute = compute

    @property
    def n_rows(self) -> int:
        """Number of rows of all blocks."""
        return sum(rows.stop - rows.start for rows in self.slices)

    def __len__(self) -> int:
        return len(self.slices)

    def __iter__(self) -> Iterator[Block]:
        return map(self._compute, self.slices)

    def __getitem__(self, which: slice) -> LevelBlocks:
        """Return some of the blocks."""
        return LevelBlocks(self.slices[which], self._compute, self.width, self.device)

    def keep(self) -> LevelBlocks:
        """Return the same blocks, which keep in memory what they have computed."""
        blocks = dict(zip((rows.start for rows in self.slices), self, strict=True))
        return LevelBlocks(self.slices, lambda rows: blocks[rows.start], self.width, self.device)

    def map(self, work: Callable[[Block], Result]) -> list[Result]:
        """Apply a function to all blocks.

        Parameters
        ----------
        work : callable
            Function of a block. It may be called in several threads at the same time.

        Returns
        -------
        list
            Results, in the order of the rows.
        """
        if self.device.type != "cpu":
            return [work(block) for block in self]
        size = None if self.width is None else self.n_rows * self.width
        return map_in_threads(lambda rows: work(self._compute(rows)), self.slices, size=size)

    def label_levels(self, index: Tensor, *, lowest: bool = False) -> Tensor:
        """Return the level of each row's label; see `NestedLevels.of_labels` for `lowest`.

        Parameters
        ----------
        index : Tensor of shape (n_rows,)
            Label indices.
        lowest : bool, default=False
            Whether a label has the lowest rank that the rounding of scores can give it.

        Returns
        -------
        float64 Tensor of shape (n_rows,)
            Levels.
        """
        # One buffer, since small results between large temporaries fragment the memory.
        result = torch.empty(len(index), dtype=torch.float64, device=index.device)

        def compute(block: Block) -> None:
            rows, ranked, levels = block
            result[rows] = levels.of_labels(ranked, index[rows], lowest=lowest).to(torch.float64)

        self.map(compute)
        return result

    def mean_sizes(self, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean set size of all rows at each of several decreasing thresholds."""
        rising = torch.from_numpy(thresholds[::-1].copy()).to(self.device)
        # Totals are whole numbers, so that their sum does not depend on the blocks.
        total = torch.stack(self.map(lambda block: block[2].totals(rising))).sum(dim=0)
        sizes: NDArray[np.float64] = (total / self.n_rows).cpu().numpy()[::-1].copy()
        return sizes
