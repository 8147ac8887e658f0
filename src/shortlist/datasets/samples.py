"""Samples: rows, their labels, and the three parts of a study."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Samples:
    """Rows `x`, their labels `y` (indices into `classes`), and the true posterior if known."""

    x: NDArray[np.floating]
    y: NDArray[np.integer]
    classes: NDArray[np.generic]
    posterior: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Samples:
        p = self.posterior
        return Samples(self.x[rows], self.y[rows], self.classes, None if p is None else p[rows])

    def split(self, *sizes: int, seed: int = 0) -> list[Samples]:
        """Disjoint random parts of the given sizes; the rest, if any, comes last.

        >>> import shortlist as sl
        >>> [len(part) for part in sl.datasets.gaussian(100).split(60, 30)]
        [60, 30, 10]
        """
        if sum(sizes) > len(self) or min(sizes, default=1) < 1:
            raise ValueError(f"cannot take parts of {sizes} out of {len(self)} rows")
        order = np.random.default_rng(seed).permutation(len(self))
        ends = np.cumsum([0, *sizes])
        parts = [self[order[a:b]] for a, b in pairwise(ends)]
        return parts if ends[-1] == len(self) else [*parts, self[order[ends[-1] :]]]

    def __repr__(self) -> str:
        return f"Samples({len(self):,} × {self.x.shape[1]}, {len(self.classes)} classes)"


@dataclass(frozen=True)
class FeatureFile:
    """Three disjoint parts: `fit` for the classifier, `select` for the selector, `test`."""

    fit: Samples
    select: Samples
    test: Samples
    name: str = ""

    @property
    def classes(self) -> NDArray[np.generic]:
        return self.fit.classes
