"""What an opinion is: an estimate of class probabilities that is pooled with others."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from shortlist._utils.out_of_core import (
    LazyMatrix,
    Matrix,
    RowIndex,
    take_rows,
    to_device,
    vstack,
)
from shortlist._utils.progress import Show
from shortlist.learning.networks import Standardize
from shortlist.learning.settings import TrainingSettings
from shortlist.predictors.row_tables import exceeds_memory
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import log_columns

MIN_SHARE = 1e-7
"""Lower bound of the probability that an opinion without scores gives a class."""


@dataclass(frozen=True)
class Block:
    """Consecutive rows as opinions take them.

    Parameters
    ----------
    features : Tensor of shape (n_rows, n_features)
        Features.
    prior : Tensor of shape (n_rows, n_columns)
        Logarithms of the given scores by column; see `log_columns`.
    columns : Tensor of shape (n_rows, n_columns) or None
        Class of each column of candidates, `n_classes` in the last column, which stands for all
        classes that are not listed, and beyond their end. None if column k is class k.
    """

    features: Tensor
    prior: Tensor
    columns: Tensor | None


@dataclass(frozen=True)
class FoldedRows:
    """Rows to learn from, divided into folds.

    Parameters
    ----------
    ranking : Ranking
        Scores of the rows.
    features : matrix of shape (n_rows, n_features)
        Features of the rows, on the device of the training.
    index, target : Tensor of shape (n_rows,)
        Class indices of the true labels, and their columns; see `target_columns`.
    folds : Tensor of shape (n_rows,)
        Fold of each row.
    n_folds : int
        Number of folds.
    standardize : Standardize
        Mean and scale of the features.
    settings : TrainingSettings
        Settings of the training of networks.
    progress : bool or "auto"
        Whether to show a progress bar.
    extra_features, extra_index : matrix of shape (n_extra, n_features) and Tensor, optional
        Rows without scores. They are in no fold: every model learns from them, and none is judged
        by them.
    """

    ranking: Ranking
    features: Matrix
    index: Tensor
    target: Tensor
    folds: Tensor
    n_folds: int
    standardize: Standardize
    settings: TrainingSettings
    progress: Show
    extra_features: Matrix | None = None
    extra_index: Tensor | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.ranking.n_classes

    def labeled(self, *, extra: bool) -> tuple[Matrix, Tensor, Tensor]:
        """Return features, class indices and folds of the rows, and of the extra ones after them.

        Parameters
        ----------
        extra : bool
            Whether to add the extra rows, whose fold is `n_folds`.

        Returns
        -------
        features : matrix
        index : Tensor
        folds : Tensor
        """
        if not extra:
            return self.features, self.index, self.folds
        assert self.extra_features is not None
        assert self.extra_index is not None
        no_fold = self.folds.new_full((len(self.extra_index),), self.n_folds)
        return (
            vstack(self.features, self.extra_features),
            torch.cat([self.index, self.extra_index]),
            torch.cat([self.folds, no_fold]),
        )

    def without_fold(self, fold: int, *, extra: bool) -> tuple[Matrix, Tensor]:
        """Return features and class indices of the rows outside a fold.

        Parameters
        ----------
        fold : int
            Fold to leave out.
        extra : bool
            Whether to add the extra rows.

        Returns
        -------
        features : matrix
        index : Tensor
        """
        features, index, folds = self.labeled(extra=extra)
        others = (folds != fold).nonzero()[:, 0]
        return take_rows(features, others), index[others]

    def priors(self) -> list[Matrix]:
        """Return the given scores by column, and for candidates the class of each column.

        Returns
        -------
        list of matrix
            On the device of the features; lazy if they exceed memory.
        """
        if not exceeds_memory(self.ranking):
            tables = prior_columns(self.ranking, slice(0, len(self.index)))
            return [table.to(self.index.device) for table in tables if table is not None]

        def lazy(position: int) -> LazyMatrix:
            def read(rows: RowIndex) -> Tensor:
                part = self.ranking[rows]
                table = prior_columns(part, slice(0, len(part)))[position]
                assert table is not None
                return table

            return LazyMatrix(len(self.index), read)

        n_tables = 1 if self.ranking.is_dense else 2
        return [to_device(lazy(position), self.index.device) for position in range(n_tables)]


class Opinion(ABC):
    """An estimate of the class probabilities of each row."""

    description: ClassVar[str]
    """What it is, for a person."""

    n_tables = 1
    """Number of tables of log-probabilities. Each gets an exponent in the pool."""

    needs_extra = False
    """Whether `without_fold` needs the extra rows of the fit."""

    @property
    def n_columns(self) -> int | None:
        """Number of columns that the given scores must have. None: any."""
        return None

    @abstractmethod
    def tables(self, block: Block, fold: int | None = None) -> list[Tensor]:
        """Return log-probabilities of the columns of some rows.

        Parameters
        ----------
        block : Block
            Rows.
        fold : int, optional
            Fold of the rows, if they are rows of the fit: only models that were fitted without
            this fold are used. The default uses all models.

        Returns
        -------
        list of Tensor of shape (n_rows, n_columns)
        """

    def without_fold(self, rows: FoldedRows, fold: int) -> Opinion:
        """Return the opinion to use for the rows of a fold.

        Parameters
        ----------
        rows : FoldedRows
            The rows of the fit.
        fold : int
            The fold.

        Returns
        -------
        Opinion
            This one, if `tables` leaves out the fold itself.
        """
        return self

    def refit(self, rows: FoldedRows) -> None:
        """Fit what new rows need but rows out of fold do not.

        Parameters
        ----------
        rows : FoldedRows
            The rows of the fit.
        """
        return


def prior_columns(ranking: Ranking, rows: slice) -> tuple[Tensor, Tensor | None]:
    """Return `Block.prior` and `Block.columns` of some rows of a ranking.

    Parameters
    ----------
    ranking : Ranking
        All rows.
    rows : slice
        Rows to return.

    Returns
    -------
    prior : Tensor of shape (n_rows, n_columns)
    columns : Tensor of shape (n_rows, n_columns) or None
    """
    prior = log_columns(ranking, rows, ranking.score_type).to(torch.float32)
    if ranking.is_dense:
        return prior, None
    labels = ranking.top(ranking.depth)[0][rows].to(torch.int64)
    others = labels.new_full((len(labels), 1), ranking.n_classes)
    return prior, torch.cat([torch.where(labels >= 0, labels, ranking.n_classes), others], dim=1)


def align_columns(log_p: Tensor, columns: Tensor | None) -> Tensor:
    """Return the log-probabilities of all classes in the columns of a block.

    Parameters
    ----------
    log_p : Tensor of shape (n_rows, n_classes)
        Log-probabilities of all classes.
    columns : Tensor of shape (n_rows, n_columns), optional
        `Block.columns`.

    Returns
    -------
    Tensor of shape (n_rows, n_columns)
    """
    if columns is None:
        return log_p
    listed = log_p.gather(1, columns[:, :-1].clamp(max=log_p.shape[1] - 1))
    # The mass of the other classes is summed, because 1 minus the listed mass is not precise. The
    # columns of padding, and the last one, refer to an additional class.
    others = nn.functional.pad(log_p, (0, 1)).scatter(1, columns, -torch.inf)
    mass = others.logsumexp(dim=1, keepdim=True).clamp(min=math.log(MIN_SHARE))
    return torch.cat([listed, mass], dim=1)


def padding_mask(columns: Tensor | None, n_classes: int) -> Tensor | None:
    """Return a mask of the columns beyond the end of each row's candidates.

    Parameters
    ----------
    columns : Tensor of shape (n_rows, n_columns) or None
        `Block.columns`.
    n_classes : int
        Number of classes.

    Returns
    -------
    Tensor of bool of shape (n_rows, n_columns) or None
        None if every class has a column.
    """
    if columns is None:
        return None
    return nn.functional.pad(columns[:, :-1] >= n_classes, (0, 1), value=False)
