"""The opinion of neighbors: class probabilities from the labels of similar rows.

This estimate is less accurate than that of a network, but its errors are different. Pooled with
it, rare labels to which a network gives almost no probability keep a fair one, and those labels
determine how large sets must be at high accuracies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from shortlist._utils.blocks import BLOCK_ELEMENTS, row_blocks
from shortlist._utils.out_of_core import Matrix, is_large_matrix
from shortlist._utils.threads import map_blocks, map_in_threads
from shortlist.learning.gram import gram_matrix
from shortlist.learning.networks import Standardize
from shortlist.learning.process_group import current_group
from shortlist.predictors.shortlister.opinions.base import (
    MIN_SHARE,
    Block,
    FoldedRows,
    Opinion,
    align_columns,
)

SHARPNESS = 30.0
"""Factor of the cosine in the exponent of a weight: 0.1 more makes the weight 20 times larger."""
SHRINKAGE = 0.1
"""Weight of a multiple of the identity in the shrunken covariance within classes."""
MAX_ROWS = 50_000
"""Maximum number of neighbors. If there are more rows, this many are drawn at random."""
MAX_FEATURES = 4096
"""With more features than this, cosines do not take the covariance into account."""
Blocks: TypeAlias = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""Function that iterates over the features and labels of all rows, one block at a time."""


class Neighbors(Opinion):
    """Estimate class probabilities from the labels of similar rows.

    Each row kept by `fit` has the weight ``exp(SHARPNESS * cosine)``, and the probability of a
    class is its share of the total weight. A second table takes the squares of the weights, which
    count nearer rows more. Cosines are those of standardized features, in the metric of their
    covariance within classes: directions in which the rows of one class differ count little.

    Parameters
    ----------
    standardize : Standardize
        Mean and scale of the features.
    n_classes : int
        Number of classes.
    seed : int
        Seed of the draw if there are more than `MAX_ROWS` rows.
    extra : bool, default=False
        Whether the extra rows are neighbors, too.
    """

    description = "similar rows"

    n_tables = 2

    def __init__(
        self, standardize: Standardize, n_classes: int, seed: int, extra: bool = False
    ) -> None:
        self.standardize, self.n_classes = standardize, n_classes
        self.seed, self.extra = seed, extra
        self.needs_extra = extra
        self.root: Tensor | None = None

    def without_fold(self, rows: FoldedRows, fold: int) -> Neighbors:
        """Return neighbors that are not in a fold; see `Opinion.without_fold`."""
        others = Neighbors(self.standardize, self.n_classes, self.seed, self.extra)
        return others.fit(*rows.without_fold(fold, extra=self.extra))

    def refit(self, rows: FoldedRows) -> None:
        """Take all rows as neighbors; see `Opinion.refit`."""
        self.fit(*rows.labeled(extra=self.extra)[:2])

    def tables(self, block: Block, fold: int | None = None) -> list[Tensor]:
        """Return the log-probabilities by weights and by their squares; see `Opinion.tables`."""
        return [align_columns(log_p, block.columns) for log_p in self(block.features)]

    def fit(self, features: Matrix, index: Tensor) -> Neighbors:
        """Keep rows and their labels.

        Parameters
        ----------
        features : matrix of shape (n_rows, n_features)
            Features of the rows.
        index : Tensor of shape (n_rows,)
            Class indices.

        Returns
        -------
        self
        """
        rows = torch.sort(index, stable=True).indices
        if features.shape[1] <= MAX_FEATURES:
            self.root = _covariance_root(self._blocks(features, index, rows), self.n_classes)
        group = current_group()
        total = group.sum(len(rows))
        if total > MAX_ROWS:
            generator = torch.Generator().manual_seed(self.seed)
            n_drawn = MAX_ROWS * len(rows) // total
            drawn = torch.randperm(len(rows), generator=generator)[:n_drawn].sort().values
            rows = rows[drawn.to(rows.device)]
        self.directions, self.index = self._read_directions(features, rows), index[rows]
        if group.world_size > 1:
            gathered, directions = group.gather(self.index), group.gather(self.directions)
            self.index, by_class = torch.sort(gathered, stable=True)
            self.directions = directions[by_class]
        return self

    def _blocks(self, features: Matrix, index: Tensor, by_class: Tensor) -> Blocks:
        """Return blocks of standardized rows; small matrices are one block, sorted by class."""
        if not is_large_matrix(features):
            whole = self.standardize(features[by_class]), index[by_class]
            return lambda: [whole]
        slices = list(row_blocks(len(features), features.shape[1]))
        return lambda: ((self.standardize(features[rows]), index[rows]) for rows in slices)

    def _read_directions(self, features: Matrix, rows: Tensor) -> Tensor:
        """Return the directions of some rows."""
        if not is_large_matrix(features):
            return self._directions_in_threads(self.standardize(features[rows]))
        # Rows of a large matrix are read in the order of the file, and a block at a time.
        rising, place = torch.sort(rows)
        directions = torch.empty((len(rows), features.shape[1]), dtype=self.standardize.dtype)
        for block in row_blocks(len(directions), directions.shape[1]):
            x = self.standardize(features[rising[block]])
            directions[place[block]] = self._directions(x)
        return directions

    def __call__(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities of all classes, by weights and by their squares.

        Parameters
        ----------
        features : Tensor of shape (n_rows, n_features)
            Features of new rows.

        Returns
        -------
        tuple of two Tensor of shape (n_rows, n_classes)
        """
        counts = torch.bincount(self.index, minlength=self.n_classes)
        one = self.directions.new_ones(())

        def shares(rows: slice) -> tuple[Tensor, Tensor]:
            new = self._directions(self.standardize(features[rows])).T
            # The exponent is SHARPNESS * (cosine - 1). It lies between -60 and 0, so that no
            # weight overflows or vanishes. Squares are taken relative to the largest weight.
            weights = torch.addmm(
                one, self.directions, new, beta=-SHARPNESS, alpha=SHARPNESS
            ).exp_()
            first = self._shares(weights, counts)
            weights /= weights.amax(dim=0)
            return first, self._shares(weights.square_(), counts)

        blocks = list(row_blocks(len(features), len(self.index), features.device))
        if features.is_cuda:
            results = [shares(rows) for rows in blocks]
        else:
            results = map_in_threads(shares, blocks, size=len(features) * len(self.index))
        first, second = (torch.cat(part) for part in zip(*results, strict=True))
        return first, second

    def _shares(self, weights: Tensor, counts: Tensor) -> Tensor:
        """Return the log share of each class in the weights of neighbors, (n_rows, n_classes)."""
        sums = _sum_by_class(weights, self.index, counts)
        return (sums / sums.sum(dim=0)).T.clamp(min=MIN_SHARE).log()

    def _directions_in_threads(self, x: Tensor) -> Tensor:
        """Return the directions of many standardized rows."""
        if x.is_cuda:
            return self._directions(x)
        n_rows, width = x.shape
        return torch.cat(
            map_blocks(
                lambda rows: self._directions(x[rows]), n_rows, width, elements=BLOCK_ELEMENTS
            )
        )

    def _directions(self, x: Tensor) -> Tensor:
        """Return unit vectors of standardized rows, in the metric of the covariance."""
        if self.root is not None:
            x = torch.linalg.solve_triangular(self.root, x.T, upper=False).T
        return nn.functional.normalize(x, dim=1)


def _covariance_root(blocks: Blocks, n_classes: int) -> Tensor:
    """Return the Cholesky factor of the shrunken covariance within classes."""
    # A scalar zero takes the shape of the first block, and adds no rounding to it.
    sums = counts = products = torch.zeros((), dtype=torch.int64)
    for x, index in blocks():
        block_counts = torch.bincount(index, minlength=n_classes)
        sums, counts = sums + _sum_by_class(x, index, block_counts), counts + block_counts
    sums, counts = current_group().sum(sums), current_group().sum(counts)
    means = sums / counts.clamp(min=1)[:, None]
    for x, index in blocks():
        centered = means[index].neg_().add_(x)
        products = products + gram_matrix(centered)
    covariance = current_group().sum(products) / int(counts.sum())
    mean_variance = covariance.diagonal().mean().clamp(min=1e-6)
    covariance *= 1 - SHRINKAGE
    covariance.diagonal().add_(SHRINKAGE * mean_variance)
    root: Tensor = torch.linalg.cholesky(covariance)
    return root


def _sum_by_class(x: Tensor, index: Tensor, counts: Tensor) -> Tensor:
    """Return the sum of the rows of each class, where `counts` are the class sizes.

    On CUDA `index` must be sorted.
    """
    if x.is_cuda:  # There index_add_ adds in no fixed order and is not reproducible.
        sums: Tensor = torch.segment_reduce(
            x, "sum", lengths=counts, axis=0, initial=0, unsafe=True
        )
        return sums
    return x.new_zeros((len(counts), x.shape[1])).index_add_(0, index, x)
