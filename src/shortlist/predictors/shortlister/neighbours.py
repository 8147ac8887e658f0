"""Class probabilities estimated from similar rows, and their pool with those of networks.

The estimate from neighbours is less accurate than that of a network, but its errors are
different. Pooled with it, rare labels to which a network gives almost no probability keep a fair
one, and those labels determine how large sets must be at high accuracies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from shortlist._utils.blocks import row_blocks
from shortlist._utils.out_of_core import Matrix, is_large_matrix
from shortlist.learning.networks import Standardize
from shortlist.learning.process_group import current_group
from shortlist.learning.temperature import MAX_SCORES, MAX_TEMPERATURE

SHARPNESS = 30.0
"""Factor of the cosine in the exponent of a weight: 0.1 more makes the weight 20 times larger."""
SHRINKAGE = 0.1
"""Weight of a multiple of the identity in the shrunken covariance within classes."""
MAX_ROWS = 50_000
"""Maximum number of neighbours. If there are more rows, this many are drawn at random."""
MAX_FEATURES = 4096
"""With more features than this, cosines do not take the covariance into account."""
MIN_SHARE = 1e-7
"""Lower bound of the share of a class."""
Estimates: TypeAlias = tuple[Tensor, Tensor, Tensor | None]
"""Log-probabilities by networks and by neighbours, each of shape (n_rows, n_columns), and a mask
of the columns beyond the end of a row's candidates (None if every class has a column)."""
Blocks: TypeAlias = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""Function that iterates over the features and labels of all rows, one block at a time."""


class Neighbours:
    """Estimate class probabilities from the labels of similar rows.

    Each row kept by `fit` has the weight ``exp(SHARPNESS * cosine)``, and the probability of a
    class is its share of the total weight. Cosines are those of standardized features, in the
    metric of their covariance within classes: directions in which the rows of one class differ
    count little.

    Parameters
    ----------
    standardize : Standardize
        Mean and scale of the features.
    n_classes : int
        Number of classes.
    """

    def __init__(self, standardize: Standardize, n_classes: int) -> None:
        self.standardize, self.n_classes = standardize, n_classes
        self.root: Tensor | None = None

    def fit(self, features: Matrix, index: Tensor, seed: int) -> Neighbours:
        """Keep rows and their labels.

        Parameters
        ----------
        features : matrix of shape (n_rows, n_features)
            Features of the rows.
        index : Tensor of shape (n_rows,)
            Class indices.
        seed : int
            Seed of the draw if there are more than `MAX_ROWS` rows.

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
            generator = torch.Generator().manual_seed(seed)
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
            return self._directions(self.standardize(features[rows]))
        # Rows of a large matrix are read in the order of the file, and a block at a time.
        rising, place = torch.sort(rows)
        directions = torch.empty((len(rows), features.shape[1]), dtype=self.standardize.dtype)
        for block in row_blocks(len(directions), directions.shape[1]):
            x = self.standardize(features[rising[block]])
            directions[place[block]] = self._directions(x)
        return directions

    def __call__(self, features: Tensor) -> Tensor:
        """Return the log-probabilities of all classes.

        Parameters
        ----------
        features : Tensor of shape (n_rows, n_features)
            Features of new rows.

        Returns
        -------
        Tensor of shape (n_rows, n_classes)
        """
        blocks = []
        counts = torch.bincount(self.index, minlength=self.n_classes)
        one = self.directions.new_ones(())
        for rows in row_blocks(len(features), len(self.index), features.device):
            new = self._directions(self.standardize(features[rows])).T
            # The exponent is SHARPNESS * (cosine - 1). It lies between -60 and 0, so that no
            # weight overflows or vanishes.
            exponents = torch.addmm(one, self.directions, new, beta=-SHARPNESS, alpha=SHARPNESS)
            weights = _sum_by_class(exponents.exp_(), self.index, counts)
            blocks.append((weights / weights.sum(dim=0)).T)
        return torch.cat(blocks).clamp_(min=MIN_SHARE).log_()

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
        centred = means[index].neg_().add_(x)
        products = products + centred.T @ centred
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


class Pool:
    """Combine two estimates of class probabilities, p and q, as ``p**a * q**b``, normalized.

    Parameters
    ----------
    a : float, default=1.0
        Exponent of the first estimate.
    b : float, default=0.0
        Exponent of the second estimate.
    """

    def __init__(self, a: float = 1.0, b: float = 0.0) -> None:
        self.a, self.b = a, b

    @classmethod
    def fit(
        cls,
        log_p: Tensor,
        log_q: Tensor,
        padding: Tensor | None,
        target: Tensor,
        *,
        block_rows: int | None = None,
    ) -> Pool:
        """Return the pool with the highest likelihood of the labels.

        Parameters
        ----------
        log_p, log_q : Tensor of shape (n_rows, n_columns)
            Log-probabilities of the two estimates.
        padding : Tensor of bool of shape (n_rows, n_columns), optional
            Mask of the columns beyond the end of a row's candidates.
        target : Tensor of shape (n_rows,)
            Column of the true label of each row.
        block_rows : int, optional
            Number of rows that are processed at a time; by default, all.

        Returns
        -------
        Pool
        """
        group = current_group()
        stride = math.ceil(group.sum(log_p.numel()) / MAX_SCORES)
        log_p, log_q, target = log_p[::stride], log_q[::stride], target[::stride]
        padding = None if padding is None else padding[::stride]
        blocks = list(row_blocks(len(target), 1, elements=block_rows or len(target)))
        count = group.sum(len(target))
        start = torch.tensor([1.0, 0.3], dtype=torch.float64, device=log_p.device)
        unbounded = torch.logit(start / MAX_TEMPERATURE).requires_grad_()
        optimizer = torch.optim.LBFGS([unbounded], max_iter=50, line_search_fn="strong_wolfe")

        def exponents() -> Tensor:
            # The bound belongs in here: exponents clamped after the fit would lose their ratio.
            return MAX_TEMPERATURE * torch.sigmoid(unbounded)

        def loss() -> Tensor:
            optimizer.zero_grad()
            total = torch.zeros_like(start[0])
            for rows in blocks:
                estimates = log_p[rows], log_q[rows], None if padding is None else padding[rows]
                pooled = _pool(*estimates, *exponents().to(log_p.dtype).unbind())
                value = nn.functional.nll_loss(pooled, target[rows]).to(torch.float64)
                value = value * (len(pooled) / count)
                value.backward()  # type: ignore[no-untyped-call]
                total += value.detach()
            assert unbounded.grad is not None
            unbounded.grad = group.sum(unbounded.grad)
            return group.sum(total)

        with torch.enable_grad():
            optimizer.step(loss)  # type: ignore[no-untyped-call]
        fitted = exponents().detach()
        return cls(*fitted.tolist()) if bool(torch.isfinite(fitted).all()) else cls()

    def __call__(self, log_p: Tensor, log_q: Tensor, padding: Tensor | None) -> Tensor:
        """Return the pooled log-probabilities of two estimates, of shape (n_rows, n_columns)."""
        return _pool(log_p, log_q, padding, self.a, self.b)


def align_columns(log_q: Tensor, columns: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the log-probabilities of all classes in the columns of a ranking.

    Parameters
    ----------
    log_q : Tensor of shape (n_rows, n_classes)
        Log-probabilities of all classes.
    columns : Tensor of shape (n_rows, depth + 1), optional
        Class of each column of candidates, `n_classes` beyond their end; the last column stands
        for all other classes. None if column k is class k.

    Returns
    -------
    log_q : Tensor of shape (n_rows, n_columns)
        Log-probabilities by column.
    padding : Tensor of bool of shape (n_rows, n_columns), or None
        Mask of the columns beyond the end of a row's candidates.
    """
    if columns is None:
        return log_q, None
    listed = columns[:, :-1] < log_q.shape[1]
    log_q = log_q.gather(1, columns[:, :-1].clamp(max=log_q.shape[1] - 1))
    shares = torch.where(listed, log_q.exp(), 0)
    rest = (1 - shares.sum(dim=1, keepdim=True)).clamp(min=MIN_SHARE).log()
    return torch.cat([log_q, rest], dim=1), nn.functional.pad(~listed, (0, 1), value=False)


def _pool(
    log_p: Tensor, log_q: Tensor, padding: Tensor | None, a: Tensor | float, b: Tensor | float
) -> Tensor:
    """Return the logarithms of ``p**a * q**b``, normalized; padding gets no probability."""
    pooled = a * log_p + b * log_q
    if padding is not None:
        pooled = pooled.masked_fill(padding, torch.finfo(pooled.dtype).min)
    return torch.log_softmax(pooled, dim=1)
