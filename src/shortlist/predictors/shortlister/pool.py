"""The log-linear pool of several opinions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor

from shortlist._utils.blocks import row_blocks
from shortlist.learning.process_group import current_group

MAX_VALUES = 1 << 22
"""Maximum number of log-probabilities of one opinion to fit on. If there are more, every second
(third, ...) row is used: exponents need far fewer rows than opinions."""
MAX_STEPS = 30
TOLERANCE = 1e-7
"""Newton's method ends when the loss decreases by less than this."""
MIN_GAIN = 5e-4
"""An opinion is dropped if the mean log-likelihood decreases by less than this without it."""


class Pool:
    """Combine estimates of class probabilities as a product of powers, normalized.

    Parameters
    ----------
    exponents : sequence of float
        Exponent of each table of log-probabilities, not negative.
    """

    def __init__(self, exponents: Sequence[float]) -> None:
        self.exponents = list(exponents)

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
    """

    def __init__(self, tables: Sequence[Tensor], padding: Tensor | None, target: Tensor) -> None:
        stride = math.ceil(current_group().sum(tables[0].numel()) / MAX_VALUES)
        self.tables = [table[::stride] for table in tables]
        self.padding = None if padding is None else padding[::stride]
        self.target = target[::stride]
        self.n_rows = current_group().sum(len(self.target))

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
        current = np.zeros(len(active))
        current[0] = 1.0
        loss, gradient, hessian = self._derivatives(active, current)
        for _ in range(MAX_STEPS):
            # The minimum of the quadratic approximation over exponents that are not negative.
            root = np.linalg.cholesky(hessian)
            step = nnls(root.T, np.linalg.solve(root, hessian @ current - gradient))[0] - current
            factor = 1.0
            while factor > 1e-3:
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
        total = torch.zeros(1 + n + n * n, dtype=torch.float64, device=self.target.device)
        for tables, padding, target in self._blocks(active):
            log_p = pool(list(tables), padding)
            p = log_p.exp()
            weighted = tables * p
            mean = weighted.sum(dim=2)
            own = tables.gather(2, target.expand(n, -1)[..., None])[..., 0]
            second = weighted.flatten(1) @ tables.flatten(1).T - mean @ mean.T
            value = -log_p.gather(1, target[:, None]).sum()
            parts = [value[None], (mean - own).sum(dim=1), second.flatten()]
            total += torch.cat(parts).to(torch.float64)
        total = current_group().sum(total).cpu() / self.n_rows
        loss, gradient = float(total[0]), total[1 : 1 + n].numpy()
        hessian = total[1 + n :].view(n, n).numpy()
        start = np.zeros(n)
        start[0] = 1.0
        away = exponents - start
        penalty = 1.0 / self.n_rows
        return (
            loss + penalty * float(away @ away) / 2,
            gradient + penalty * away,
            hessian + penalty * np.eye(n),
        )

    def _blocks(self, active: Sequence[int]) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
        """Iterate over blocks of the stacked tables, the padding and the labels."""
        width = len(active) * self.tables[0].shape[1]
        for rows in row_blocks(len(self.target), width, self.target.device):
            tables = torch.stack([self.tables[i][rows] for i in active])
            padding = None if self.padding is None else self.padding[rows]
            if padding is not None:  # Their probability is zero, so that any finite value will do.
                tables = tables.masked_fill(padding, 0.0)
            yield tables, padding, self.target[rows]

    def select(self, groups: Sequence[Sequence[int]]) -> tuple[list[int], Pool]:
        """Fit the pool, and drop the opinions that do not help.

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
        kept = list(range(len(groups)))
        while True:
            active = [table for opinion in kept for table in groups[opinion]]
            exponents, hessian = self.exponents(active)
            gains, place = [], 0
            covariance = np.linalg.inv(hessian)
            for opinion in kept:
                own = slice(place, place + len(groups[opinion]))
                place = own.stop
                # The loss without the opinion, by the quadratic approximation.
                gains.append(
                    exponents[own] @ np.linalg.solve(covariance[own, own], exponents[own]) / 2
                )
            least = int(np.argmin(gains))
            if len(kept) == 1 or gains[least] >= MIN_GAIN:
                return kept, Pool(exponents.tolist())
            del kept[least]
