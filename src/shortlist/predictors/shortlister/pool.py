"""The log-linear pool of several opinions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor

from shortlist._utils.blocks import RANKED_ELEMENTS, row_blocks
from shortlist._utils.threads import map_in_threads
from shortlist.learning.process_group import current_group

MAX_VALUES = 1 << 22
"""Maximum number of log-probabilities of one opinion to fit on. If there are more, every second
(third, ...) row is used: exponents need far fewer rows than opinions."""
MIN_LOG_PROBA = -1e4
"""Lower bound of the log-probabilities in a fit, so that no sum of their squares overflows."""
MAX_STEPS = 30
TOLERANCE = 1e-7
"""Newton's method ends when the loss decreases by less than this."""
MIN_FACTOR = 1e-6
"""Newton's method ends when no fraction of a step above this one decreases the loss."""
MIN_GAIN = 5e-4
"""An opinion is dropped if the mean log-likelihood decreases by less than this without it."""


class Pool:
    """Combine estimates of class probabilities as a product of powers, normalized.

    Parameters
    ----------
    exponents : sequence of float
        Exponent of each table of log-probabilities, not negative.
    bias : float, default=0.0
        Logarithm of a factor of the last column, for candidates: all labels that are not listed.
    """

    def __init__(self, exponents: Sequence[float], bias: float = 0.0) -> None:
        self.exponents, self.bias = list(exponents), bias

    @property
    def amplification(self) -> float:
        """By how much rounding errors of the tables grow in the pool, at least 1."""
        return max(1.0, sum(self.exponents))

    def __call__(self, tables: Sequence[Tensor], padding: Tensor | None = None) -> Tensor:
        """Return the pooled log-probabilities.

        Parameters
        ----------
        tables : sequence of Tensor of shape (n_rows, n_columns)
            Log-probabilities of each estimate.
        padding : Tensor of bool of shape (n_rows, n_columns), optional
            Columns beyond the end of a row's candidates, which get no probability.

        Returns
        -------
        Tensor of shape (n_rows, n_columns)
        """
        pooled = tables[0] * self.exponents[0]
        for table, exponent in zip(tables[1:], self.exponents[1:], strict=True):
            pooled.add_(table, alpha=exponent)
        if self.bias:
            pooled[:, -1] += self.bias
        if padding is not None:
            pooled.masked_fill_(padding, torch.finfo(pooled.dtype).min)
        return torch.log_softmax(pooled, dim=1)


class PoolFit:
    """Fit the exponents of a pool to rows with known labels.

    The mean log-likelihood is concave in the exponents, so that Newton's method finds the best
    ones. A penalty worth one row draws them to the first table alone.

    Parameters
    ----------
    tables : sequence of Tensor of shape (n_rows, n_columns)
        Log-probabilities of each estimate, of rows that it was not fitted to.
    padding : Tensor of bool of shape (n_rows, n_columns), optional
        Columns beyond the end of a row's candidates.
    target : Tensor of shape (n_rows,)
        Column of the true label of each row.
    others_last : bool, default=False
        Whether the last column stands for all labels that are not listed. Powers of probabilities
        leave it a wrong mass, since it is a sum of many, so that the pool gets a bias for it.
    """

    def __init__(
        self,
        tables: Sequence[Tensor],
        padding: Tensor | None,
        target: Tensor,
        *,
        others_last: bool = False,
    ) -> None:
        stride = math.ceil(current_group().sum(tables[0].numel()) / MAX_VALUES)
        self.tables = [table[::stride] for table in tables]
        self.bias_tables: list[int] = []
        if others_last:
            # The bias is the exponent of the first of these tables, minus that of the second.
            last = torch.zeros_like(self.tables[0][:1])
            last[:, -1] = 1
            self.bias_tables = [len(tables), len(tables) + 1]
            self.tables += [part.expand_as(self.tables[0]) for part in (last, -last)]
        self.padding = None if padding is None else padding[::stride]
        self.target = target[::stride]
        self.n_rows = current_group().sum(len(self.target))
        self.penalty = 1.0 / self.n_rows

    def exponents(self, active: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the best exponents of some tables, and the Hessian of the loss there.

        Parameters
        ----------
        active : sequence of int
            Indices of the tables that may be used.

        Returns
        -------
        exponents : ndarray of shape (n_active,)
        hessian : ndarray of shape (n_active, n_active)
        """
        # Newton's method starts at the first table alone or, if it contradicts labels, at none.
        starts = np.eye(2, len(active))
        starts[1:] = 0.0
        derivatives = [self._derivatives(active, start) for start in starts]
        best_start = int(derivatives[1][0] < derivatives[0][0])
        current, (loss, gradient, hessian) = starts[best_start], derivatives[best_start]
        for _ in range(MAX_STEPS):
            best = _non_negative_minimum(hessian, hessian @ current - gradient)
            if best is None:
                break
            step, factor = best - current, 1.0
            while factor > MIN_FACTOR:
                candidate = self._derivatives(active, current + factor * step)
                if candidate[0] <= loss:
                    break
                factor /= 2
            else:
                break
            decrease = loss - candidate[0]
            current, (loss, gradient, hessian) = current + factor * step, candidate
            if decrease < TOLERANCE:
                break
        return current, hessian

    def _derivatives(
        self, active: Sequence[int], exponents: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean loss of the rows, its gradient and its Hessian."""
        n = len(active)
        pool = Pool(exponents.tolist())

        def sums(rows: slice) -> Tensor:
            tables, padding, target = self._block(active, rows)
            log_p = pool(list(tables), padding)
            p = log_p.exp()
            mean = (tables * p).sum(dim=2, keepdim=True)
            own = tables.gather(2, target.expand(n, -1)[..., None])
            # Differences to the mean keep the precision of covariances of tables that are close.
            centered = tables - mean
            second = (centered * p).flatten(1) @ centered.flatten(1).T
            value = -log_p.gather(1, target[:, None]).sum()
            parts = [value[None], (mean - own).sum(dim=(1, 2)), second.flatten()]
            return torch.cat(parts).to(torch.float64)

        size, device = n * self.tables[0].numel(), self.target.device
        # Each thread has several tables as large as its block.
        elements = None if device.type == "cuda" else RANKED_ELEMENTS
        width = size // max(1, len(self.target))
        blocks = list(row_blocks(len(self.target), width, device, elements=elements))
        results = map_in_threads(sums, blocks, size=0 if device.type == "cuda" else size)
        total = torch.zeros(1 + n + n * n, dtype=torch.float64, device=device)
        for result in results:
            total += result
        total = current_group().sum(total).cpu() / self.n_rows
        loss, gradient = float(total[0]), total[1 : 1 + n].numpy()
        hessian = total[1 + n :].view(n, n).numpy()
        away = exponents.copy()
        away[0] -= 1
        # Rounding could make a covariance indefinite. The eigenvalues of its sum with the penalty
        # are at least the penalty.
        values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
        hessian = (vectors * (values.clip(min=0) + self.penalty)) @ vectors.T
        return loss + self._penalty(exponents), gradient + self.penalty * away, hessian

    def _block(self, active: Sequence[int], rows: slice) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the stacked tables, the padding and the labels of some rows."""
        tables = torch.stack([self.tables[i][rows] for i in active])
        tables.clamp_(min=MIN_LOG_PROBA)
        padding = None if self.padding is None else self.padding[rows]
        if padding is not None:  # Their probability is zero, so that any finite value will do.
            tables.masked_fill_(padding, 0.0)
        return tables, padding, self.target[rows]

    def select(self, groups: Sequence[Sequence[int]]) -> tuple[list[int], Pool]:
        """Fit the pool, and drop the opinions that do not help.

        Opinions with a log-probability that is not finite are dropped first. If no opinion is
        left, the first one is kept with its first table alone.

        Parameters
        ----------
        groups : sequence of sequence of int
            Indices of the tables of each opinion.

        Returns
        -------
        kept : list of int
            Opinions that are kept, at least one.
        pool : Pool
            Pool of their tables.
        """
        finite = [self._is_finite(table) for table in range(len(self.tables))]
        kept = [i for i, tables in enumerate(groups) if all(finite[table] for table in tables)]
        if not kept:
            return [0], Pool([1.0] + [0.0] * (len(groups[0]) - 1))
        while True:
            active = [table for opinion in kept for table in groups[opinion]]
            exponents, hessian = self.exponents([*active, *self.bias_tables])
            sizes = [len(groups[opinion]) for opinion in kept]
            gains = self._gains(exponents, hessian, sizes)
            # Of opinions that help equally little, the last is dropped.
            least = len(kept) - 1 - int(np.argmin(gains[::-1]))
            if len(kept) == 1 or gains[least] >= MIN_GAIN:
                bias = exponents[len(active) :]
                difference = float(bias[0] - bias[1]) if len(bias) else 0.0
                return kept, Pool(exponents[: len(active)].tolist(), difference)
            del kept[least]

    def _gains(
        self, exponents: NDArray[np.float64], hessian: NDArray[np.float64], sizes: Sequence[int]
    ) -> list[float]:
        """Return the decrease of the mean log-likelihood without each opinion, approximately.

        `sizes` are the numbers of tables of the opinions.
        """
        gains, place, covariance = [], 0, np.linalg.inv(hessian)
        for size in sizes:
            own = slice(place, place + size)
            place = own.stop
            # The minimum without the opinion, by the quadratic approximation of the loss.
            force = np.linalg.solve(covariance[own, own], exponents[own])
            others = exponents - covariance[:, own] @ force
            increase = exponents[own] @ force / 2
            gain = float(increase) - self._penalty(others) + self._penalty(exponents)
            gains.append(gain)
        return gains

    def _penalty(self, exponents: NDArray[np.float64]) -> float:
        """Return the penalty of exponents: their squared distance to the first table alone."""
        away = exponents.copy()
        away[0] -= 1
        return self.penalty * float(away @ away) / 2

    def _is_finite(self, table: int) -> bool:
        """Return whether all log-probabilities of a table are finite, except padding."""
        is_finite = torch.isfinite(self.tables[table])
        if self.padding is not None:
            is_finite |= self.padding
        return bool(current_group().min(int(is_finite.all())))


def _non_negative_minimum(
    hessian: NDArray[np.float64], linear: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Return the minimum of ``x @ hessian @ x / 2 - linear @ x`` over x >= 0; None if not found."""
    root = np.linalg.cholesky(hessian)
    try:
        minimum: NDArray[np.float64] = nnls(root.T, np.linalg.solve(root, linear))[0]
    except RuntimeError:  # The maximum number of iterations was reached.
        return None
    return minimum
