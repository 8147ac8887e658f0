"""The second opinion of stage 1: the labels of the rows that lie near.

Neighbours know less than a network, but err elsewhere: pooled with them, the rare labels that a
network all but rules out keep a fair probability, and those decide how long sets must be at high
accuracies.
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
"""A row whose cosine is larger by 0.1 counts twenty times as much."""
SHRINKAGE = 0.1
"""How far the covariance within classes is drawn to a multiple of the identity."""
MOST_ROWS = 50_000
"""Of more rows, so many are drawn to be neighbours."""
MOST_FEATURES = 4096
"""With more features their covariance is left alone."""
Opinions: TypeAlias = tuple[Tensor, Tensor, Tensor | None]
"""The logarithms of p and q, (rows, columns), and which places are past the end of a list."""
Parts: TypeAlias = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""Gives features and labels of all rows, some of them at a time."""
LEAST = 1e-7
"""The share of a class that no neighbour has."""


class Neighbours:
    """`q_k(x)`: class k's share of all rows, each weighted by `exp(SHARPNESS cos(x, row))`.

    Cosines are those of standardised features, in the metric of their covariance within classes:
    directions in which rows of one class differ count little.
    """

    def __init__(self, standardize: Standardize, n_classes: int) -> None:
        self.standardize, self.n_classes = standardize, n_classes
        self.root: Tensor | None = None

    def fit(self, features: Matrix, index: Tensor, seed: int) -> Neighbours:
        """Remember rows and their labels."""
        rows = torch.sort(index, stable=True).indices
        if features.shape[1] <= MOST_FEATURES:
            self.root = _root_of_covariance(self._parts(features, index, rows), self.n_classes)
        group = current_group()
        every = group.sum(len(rows))
        if every > MOST_ROWS:
            generator = torch.Generator().manual_seed(seed)
            most = MOST_ROWS * len(rows) // every
            drawn = torch.randperm(len(rows), generator=generator)[:most].sort().values
            rows = rows[drawn.to(rows.device)]
        self.directions, self.index = self._directions_of(features, rows), index[rows]
        if group.world_size > 1:
            everyone, directions = group.gather(self.index), group.gather(self.directions)
            self.index, by_class = torch.sort(everyone, stable=True)
            self.directions = directions[by_class]
        return self

    def _parts(self, features: Matrix, index: Tensor, by_class: Tensor) -> Parts:
        """All rows, standardised, and their labels: sorted by these, or, of many, as they lie."""
        if not is_large_matrix(features):
            whole = self.standardize(features[by_class]), index[by_class]
            return lambda: [whole]
        blocks = list(row_blocks(len(features), features.shape[1]))
        return lambda: ((self.standardize(features[at]), index[at]) for at in blocks)

    def _directions_of(self, features: Matrix, rows: Tensor) -> Tensor:
        """The directions of some rows."""
        if not is_large_matrix(features):
            return self._directions(self.standardize(features[rows]))
        rising, place = torch.sort(rows)  # read as they lie, and no more than needed at a time
        found = torch.empty((len(rows), features.shape[1]), dtype=self.standardize.dtype)
        for at in row_blocks(len(found), found.shape[1]):
            found[place[at]] = self._directions(self.standardize(features[rising[at]]))
        return found

    def __call__(self, features: Tensor) -> Tensor:
        """The logarithms of all classes' shares: (rows, classes)."""
        found = []
        counts = torch.bincount(self.index, minlength=self.n_classes)
        one = self.directions.new_ones(())
        for rows in row_blocks(len(features), len(self.index), features.device):
            asked = self._directions(self.standardize(features[rows])).T
            # Counted from a cosine of one: e^-60, in the opposite direction, is still a number.
            near = torch.addmm(one, self.directions, asked, beta=-SHARPNESS, alpha=SHARPNESS)
            shares = _sums(near.exp_(), self.index, counts)
            found.append((shares / shares.sum(dim=0)).T)
        return torch.cat(found).clamp_(min=LEAST).log_()

    def _directions(self, x: Tensor) -> Tensor:
        if self.root is not None:
            x = torch.linalg.solve_triangular(self.root, x.T, upper=False).T
        return nn.functional.normalize(x, dim=1)


def _root_of_covariance(parts: Parts, n_classes: int) -> Tensor:
    """The Cholesky factor of the shrunken covariance within classes."""
    # Begun with zeros of no axes, to which the first part is added without rounding.
    sums = counts = products = torch.zeros((), dtype=torch.int64)
    for x, index in parts():
        counted = torch.bincount(index, minlength=n_classes)
        sums, counts = sums + _sums(x, index, counted), counts + counted
    sums, counts = current_group().sum(sums), current_group().sum(counts)
    means = sums / counts.clamp(min=1)[:, None]
    for x, index in parts():
        within = means[index].neg_().add_(x)
        products = products + within.T @ within
    covariance = current_group().sum(products) / int(counts.sum())
    spread = covariance.diagonal().mean().clamp(min=1e-6)
    covariance *= 1 - SHRINKAGE
    covariance.diagonal().add_(SHRINKAGE * spread)
    root: Tensor = torch.linalg.cholesky(covariance)
    return root


def _sums(x: Tensor, index: Tensor, counts: Tensor) -> Tensor:
    """The sum of each class's rows, which stand together (`index` is sorted); `counts` of them."""
    if x.is_cuda:  # index_add_ adds in no fixed order there, and would not repeat itself
        sums: Tensor = torch.segment_reduce(
            x, "sum", lengths=counts, axis=0, initial=0, unsafe=True
        )
        return sums
    return x.new_zeros((len(counts), x.shape[1])).index_add_(0, index, x)


class Pool:
    """`p^a q^b`, normalised: two opinions weighed against one another."""

    def __init__(self, a: float = 1.0, b: float = 0.0) -> None:
        self.a, self.b = a, b

    @classmethod
    def fit(
        cls,
        log_p: Tensor,
        log_q: Tensor,
        ended: Tensor | None,
        target: Tensor,
        *,
        at_once: int | None = None,
    ) -> Pool:
        """The exponents that give the labels the highest likelihood; `at_once`: how many rows are
        worked on at a time, if not all."""
        group = current_group()
        every = math.ceil(group.sum(log_p.numel()) / MAX_SCORES)
        log_p, log_q, target = log_p[::every], log_q[::every], target[::every]
        ended = None if ended is None else ended[::every]
        parts = list(row_blocks(len(target), 1, elements=at_once or len(target)))
        count = group.sum(len(target))
        start = torch.tensor([1.0, 0.3], dtype=torch.float64, device=log_p.device)
        free = torch.logit(start / MAX_TEMPERATURE).requires_grad_()
        optimizer = torch.optim.LBFGS([free], max_iter=50, line_search_fn="strong_wolfe")

        def exponents() -> Tensor:
            # Bounded here, not at the end: where both are large, it is their ratio that counts.
            return MAX_TEMPERATURE * torch.sigmoid(free)

        def loss() -> Tensor:
            optimizer.zero_grad()
            total = torch.zeros_like(start[0])
            for rows in parts:
                opinions = log_p[rows], log_q[rows], None if ended is None else ended[rows]
                pooled = _pooled(*opinions, *exponents().to(log_p.dtype).unbind())
                value = nn.functional.nll_loss(pooled, target[rows]).to(torch.float64)
                value = value * (len(pooled) / count)
                value.backward()  # type: ignore[no-untyped-call]
                total += value.detach()
            assert free.grad is not None
            free.grad = group.sum(free.grad)
            return group.sum(total)

        with torch.enable_grad():
            optimizer.step(loss)  # type: ignore[no-untyped-call]
        found = exponents().detach()
        return cls(*found.tolist()) if bool(torch.isfinite(found).all()) else cls()

    def __call__(self, log_p: Tensor, log_q: Tensor, ended: Tensor | None) -> Tensor:
        return _pooled(log_p, log_q, ended, self.a, self.b)


def aligned(log_q: Tensor, columns: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The shares of all classes in the columns of `log_columns`, and which of these are places
    past the end of a list; `columns`, of candidates, says which class each is."""
    if columns is None:
        return log_q, None
    listed = columns[:, :-1] < log_q.shape[1]
    log_q = log_q.gather(1, columns[:, :-1].clamp(max=log_q.shape[1] - 1))
    shares = torch.where(listed, log_q.exp(), 0)
    rest = (1 - shares.sum(dim=1, keepdim=True)).clamp(min=LEAST).log()
    return torch.cat([log_q, rest], dim=1), nn.functional.pad(~listed, (0, 1), value=False)


def _pooled(
    log_p: Tensor, log_q: Tensor, ended: Tensor | None, a: Tensor | float, b: Tensor | float
) -> Tensor:
    pooled = a * log_p + b * log_q
    if ended is not None:  # nothing there, whatever the exponents
        pooled = pooled.masked_fill(ended, torch.finfo(pooled.dtype).min)
    return torch.log_softmax(pooled, dim=1)
