"""The opinion of the classifier whose scores are given: with one temperature, or one by class."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist.learning.full_batch import fit_members
from shortlist.learning.process_group import current_group
from shortlist.predictors.shortlister.folds import combine
from shortlist.predictors.shortlister.opinions.base import Block, FoldedRows, Opinion

ROWS_PER_CLASS = 20
"""Minimum mean number of rows of a class for which scores are scaled by class."""
PENALTY = 1e-3
MAX_ITER = 25


class GivenScores(Opinion):
    """The given scores with the temperature that `fit` found.

    Parameters
    ----------
    scale : float
        Inverse temperature.
    """

    description = "the scores"

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def tables(self, block: Block, fold: int | None = None) -> list[Tensor]:
        """Return the log-probabilities; see `Opinion.tables`."""
        return [torch.log_softmax(self.scale * block.prior, dim=1)]


class VectorScaling(nn.Module):
    """Multiply the scores of each class by a factor and add a bias, in several members.

    Parameters
    ----------
    factor, bias : Tensor of shape (members, 1, n_classes)
        Factors and biases of each member.
    """

    def __init__(self, factor: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.factor, self.bias = nn.Parameter(factor), nn.Parameter(bias)

    def forward(self, scores: Tensor) -> Tensor:
        """Return the scaled scores, of shape (members, n_rows, n_classes)."""
        return torch.addcmul(self.bias, self.factor, scores)


class ScaledScores(Opinion):
    """The given scores with a factor and a bias for each class (vector scaling).

    Parameters
    ----------
    scaling : VectorScaling
        Factors and biases; one member for each fold, fitted without it.
    """

    description = "the scores, scaled by class"

    def __init__(self, scaling: VectorScaling) -> None:
        self.scaling = scaling

    @classmethod
    def fit(cls, rows: FoldedRows) -> ScaledScores | None:
        """Fit factors and biases.

        Parameters
        ----------
        rows : FoldedRows
            Rows to learn from.

        Returns
        -------
        ScaledScores or None
            None if there are too few rows for each class, or not every class has a score.
        """
        ranking, shape = rows.ranking, (rows.n_folds, 1, rows.n_classes)
        n_rows = current_group().sum(len(rows.index))
        if not ranking.is_dense or n_rows < ROWS_PER_CLASS * rows.n_classes:
            return None
        bias = torch.zeros(shape, device=rows.index.device)
        scaling = VectorScaling(torch.full_like(bias, ranking.scale), bias)
        fit_members(
            scaling,
            rows.priors(),
            rows.index,
            rows.folds,
            members=rows.n_folds,
            penalty=PENALTY,
            penalized=[scaling.bias],
            max_iter=MAX_ITER,
        )
        return cls(scaling.requires_grad_(False))

    @property
    def n_columns(self) -> int:
        """Number of columns that the given scores must have."""
        return self.scaling.factor.shape[2]

    def tables(self, block: Block, fold: int | None = None) -> list[Tensor]:
        """Return the log-probabilities; see `Opinion.tables`."""
        factor, bias = self.scaling.factor.detach(), self.scaling.bias.detach()
        if fold is not None:
            factor, bias = factor[fold : fold + 1], bias[fold : fold + 1]
        return [combine(torch.log_softmax(torch.addcmul(bias, factor, block.prior), dim=-1))]
