"""Features with labels, and the three splits of a feature file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Samples:
    """Features and labels.

    Parameters
    ----------
    x : array of shape (n_rows, n_features)
        Features.
    y : array of shape (n_rows,)
        True labels, as indices into `classes`.
    classes : array of shape (n_classes,)
        Names of the classes.
    posterior : array of shape (n_rows, n_classes), optional
        True conditional probability of each class, if it is known.
    """

    x: NDArray[np.floating]
    y: NDArray[np.integer]
    classes: NDArray[np.generic]
    posterior: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Self:
        p = self.posterior
        return replace(
            self, x=self.x[rows], y=self.y[rows], posterior=None if p is None else p[rows]
        )

    def split(self, *sizes: int, seed: int = 0) -> list[Self]:
        """Split the rows at random into disjoint parts.

        Parameters
        ----------
        *sizes : int
            Number of rows of each part.
        seed : int, default=0
            Seed of the permutation.

        Returns
        -------
        list of Samples
            A part for each size. If rows remain, they are the last part.

        Raises
        ------
        ValueError
            If a size is less than 1, or there are too few rows.

        Examples
        --------
        >>> import shortlist as sl
        >>> [len(part) for part in sl.datasets.gaussian(100).split(60, 30)]
        [60, 30, 10]
        """
        if sum(sizes) > len(self) or min(sizes, default=1) < 1:
            raise ValueError(f"cannot split {len(self)} rows into parts of sizes {sizes}")
        order = np.random.default_rng(seed).permutation(len(self))
        ends = np.cumsum([0, *sizes])
        parts = [self[order[a:b]] for a, b in pairwise(ends)]
        return parts if ends[-1] == len(self) else [*parts, self[order[ends[-1] :]]]

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({len(self):,} × {self.x.shape[1]}, {len(self.classes)} classes)"


@dataclass(frozen=True, repr=False)
class GaussianSamples(Samples):
    """Features and labels with the true probability of each class.

    Parameters
    ----------
    x : array of shape (n_rows, n_features)
        Features.
    y : array of shape (n_rows,)
        True labels, as indices into `classes`.
    classes : array of shape (n_classes,)
        Names of the classes.
    posterior : array of shape (n_rows, n_classes)
        True conditional probability of each class.
    """

    posterior: NDArray[np.floating]


@dataclass(frozen=True)
class FeatureFile:
    """Three disjoint splits of a data set.

    Parameters
    ----------
    fit : Samples
        Rows to train a classifier on.
    select : Samples
        Rows to fit and calibrate a set predictor on.
    test : Samples
        Test rows.
    name : str, default=""
        Name of the data set.
    """

    fit: Samples
    select: Samples
    test: Samples
    name: str = ""

    @property
    def classes(self) -> NDArray[np.generic]:
        """Names of the classes."""
        return self.fit.classes
