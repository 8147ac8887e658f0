"""Stage 1 of the Shortlister: re-score the labels of each row from its features.

Several opinions estimate the class probabilities: the given scores, logistic regression, networks
with and without the given scores, neighbors, and classifiers of the user. Each is cross-fitted:
the probabilities of a row come from models that were fitted without its fold, and those of new
rows are averaged over all models. A pool weighs the opinions by how well they predict rows out of
fold, and opinions that do not help are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shortlist._utils import out_of_core
from shortlist._utils.blocks import row_blocks
from shortlist._utils.out_of_core import Matrix, RowView, take_rows, to_device
from shortlist._utils.progress import Show
from shortlist.learning.cuda_graphs import allow_tf32
from shortlist.learning.networks import Standardize
from shortlist.learning.process_group import current_group
from shortlist.learning.settings import TrainingSettings
from shortlist.learning.training import History
from shortlist.predictors.row_tables import exceeds_memory
from shortlist.predictors.shortlister.folds import draw_folds
from shortlist.predictors.shortlister.opinions import (
    Architecture,
    Block,
    FoldedRows,
    GivenScores,
    LearnerOpinion,
    Neighbors,
    Opinion,
    ScaledScores,
    fit_logistic,
    fit_networks,
    padding_mask,
    prior_columns,
)
from shortlist.predictors.shortlister.pool import MAX_VALUES, Pool, PoolFit
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import target_columns

ROUNDING = 2.0**-10
"""Bound on the difference between two computations of a log-probability that differ in batch,
threads or device: about a thousandth of the probability, a hundred times the largest measured."""
MAX_TABLE_VALUES = 1 << 27
"""Maximum number of log-probabilities out of fold, of all opinions, that are kept in memory."""
MAX_SAMPLE_VALUES = 5 * MAX_VALUES
"""If there are more, the pool is fitted to a sample of rows with this many."""
GPU_FACTOR = 16
"""How many times more are kept on a GPU."""
BLOCK_FACTOR = 16
"""Approximate number of tables as large as the scores in a block of rows."""


@dataclass(frozen=True)
class Recipe:
    """Which opinions are fitted.

    Parameters
    ----------
    architectures : sequence of Architecture
        Networks.
    learners : sequence of classifier
        Classifiers of the user.
    """

    architectures: Sequence[Architecture] = ()
    learners: Sequence[Any] = ()


class Rescorer:
    """Re-score rankings from the features of their rows.

    Parameters
    ----------
    opinions : sequence of Opinion
        Fitted opinions.
    pool : Pool
        Exponents of their tables.
    folds : Tensor of shape (n_rows,)
        Fold of each row that `fit` learned from.
    index : Tensor of shape (n_rows,)
        Class indices of the same rows.
    n_classes : int
        Number of classes.
    standardize : Standardize
        Mean and scale of the features.
    n_extra : int, default=0
        Number of extra rows that `fit` learned from.
    """

    def __init__(
        self,
        opinions: Sequence[Opinion],
        pool: Pool,
        folds: Tensor,
        index: Tensor,
        n_classes: int,
        standardize: Standardize,
        n_extra: int = 0,
    ) -> None:
        self.opinions, self.pool = list(opinions), pool
        self.folds, self.index, self.n_classes = folds, index, n_classes
        self.standardize, self.n_extra = standardize, n_extra

    @classmethod
    def fit(
        cls,
        ranking: Ranking,
        index: Tensor,
        features: Matrix,
        settings: TrainingSettings,
        recipe: Recipe,
        *,
        n_folds: int,
        device: torch.device,
        progress: Show,
        extra: tuple[Matrix, Tensor] | None = None,
    ) -> tuple[Rescorer, Ranking, dict[str, History]]:
        """Fit the opinions and their pool.

        Parameters
        ----------
        ranking : Ranking
            Rows to learn from.
        index : Tensor of shape (n_rows,)
            Class indices of the true labels.
        features : matrix of shape (n_rows, n_features)
            Features of the rows.
        settings : TrainingSettings
            Settings of the training of networks.
        recipe : Recipe
            Which opinions to fit.
        n_folds : int
            Number of folds.
        device : torch.device
            Where to train.
        progress : bool or "auto"
            Whether to show a progress bar.
        extra : tuple of matrix and Tensor, optional
            Features and class indices of rows without scores.

        Returns
        -------
        rescorer : Rescorer
        out_of_fold : Ranking
            The same rows, each re-scored by models that were fitted without its label.
        history : dict of str to History
            Losses of the training of networks.
        """
        rows = FoldedRows(
            ranking=ranking,
            features=to_device(features, device),
            index=index.to(device),
            target=target_columns(ranking, index).to(device),
            folds=draw_folds(len(ranking), n_folds, settings.seed).to(device),
            n_folds=n_folds,
            standardize=Standardize.from_data(features).to(device),
            settings=settings,
            progress=progress,
            extra_features=None if extra is None else to_device(extra[0], device),
            extra_index=None if extra is None else extra[1].to(device),
        )
        # TF32 is for fitting alone. Calibration and prediction compute with the same precision.
        with allow_tf32(device):
            opinions, history = _fit_opinions(rows, recipe)
            model, out_of_fold = cls._fit_pool(opinions, rows)
        for opinion in model.opinions:
            opinion.refit(rows)
        return model, out_of_fold, history

    @property
    def rounding(self) -> float:
        """Bound on the difference between two computations of a pooled log-probability."""
        return min(1.0, ROUNDING * self.pool.amplification)

    @classmethod
    def _fit_pool(cls, opinions: list[Opinion], rows: FoldedRows) -> tuple[Rescorer, Ranking]:
        """Fit the pool to rows out of fold, and return these rows re-scored."""
        groups, n_tables = [], 0
        for opinion in opinions:
            groups.append(list(range(n_tables, n_tables + opinion.n_tables)))
            n_tables += opinion.n_tables
        ranking, n_rows = rows.ranking, current_group().sum(len(rows.index))
        n_columns = ranking.n_classes if ranking.is_dense else ranking.depth + 1
        limit = MAX_TABLE_VALUES * (GPU_FACTOR if rows.index.is_cuda else 1)
        fits = current_group().world_size == 1 and not exceeds_memory(ranking)
        sample = None
        if not fits or n_tables * n_rows * n_columns > limit:
            stride = math.ceil(n_tables * n_rows * n_columns / MAX_SAMPLE_VALUES)
            sample = torch.arange(0, len(rows.index), stride, device=rows.index.device)
        tables, padding = _out_of_fold_tables(opinions, rows, sample)
        target = rows.target if sample is None else rows.target[sample]
        fit = PoolFit(tables, padding, target, others_last=not ranking.is_dense)
        kept, pool = fit.select(groups)
        model = cls(
            [opinions[i] for i in kept],
            pool,
            rows.folds,
            rows.index,
            rows.n_classes,
            rows.standardize,
            0 if rows.extra_index is None else len(rows.extra_index),
        )
        if sample is not None:
            del tables  # They would take memory during the pass over all rows.
            return model, model._out_of_fold_by_blocks(rows, n_columns)
        kept_tables = [tables[i] for opinion in kept for i in groups[opinion]]
        return model, _reranked(ranking, pool(kept_tables, padding), model.rounding)

    def _out_of_fold_by_blocks(self, rows: FoldedRows, n_columns: int) -> Ranking:
        """Return the rows re-scored out of fold, in a file if they are large."""
        # Rows are written in the order of the folds, so that the file grows from start to end.
        log_p, n_written = out_of_core.allocate_tensor((len(rows.index), n_columns)), 0
        for tables, padding in _out_of_fold_blocks(self.opinions, rows):
            pooled = self.pool(tables, padding)
            log_p[n_written : n_written + len(pooled)] = pooled.to(log_p.device)
            n_written += len(pooled)
        place = torch.argsort(torch.argsort(rows.folds, stable=True)).to(log_p.device)
        return _reranked(rows.ranking, log_p, self.rounding, place)

    @torch.no_grad()
    def __call__(self, ranking: Ranking, features: Tensor) -> Ranking:
        """Re-score new rows.

        Parameters
        ----------
        ranking : Ranking
            New rows.
        features : Tensor of shape (n_rows, n_features)
            Features of the rows.

        Returns
        -------
        Ranking
            The same labels in a new order, with log-probabilities as scores.
        """
        blocks = _blocks(ranking, features, self.index.device)
        parts = [
            self.pool(
                [table for opinion in self.opinions for table in opinion.tables(block)],
                padding_mask(block.columns, self.n_classes),
            )
            for block in blocks
        ]
        return _reranked(ranking, torch.cat(parts), self.rounding)

    def out_of_fold(
        self,
        ranking: Ranking,
        features: Matrix,
        settings: TrainingSettings,
        extra: tuple[Matrix, Tensor] | None = None,
    ) -> Ranking:
        """Re-score the rows of `fit` by the models that were fitted without their folds.

        Parameters
        ----------
        ranking : Ranking
            The rows of `fit`.
        features : matrix of shape (n_rows, n_features)
            Features of the rows.
        settings : TrainingSettings
            Settings of the fit.
        extra : tuple of matrix and Tensor, optional
            Features and class indices of the extra rows of `fit`.

        Returns
        -------
        Ranking

        Raises
        ------
        ValueError
            If the extra rows are missing, or their number is not that of `fit`.
        """
        n_extra = 0 if extra is None else len(extra[1])
        missing = extra is None and not any(opinion.needs_extra for opinion in self.opinions)
        if n_extra != self.n_extra and not missing:
            raise ValueError(
                f"{n_extra} extra rows were given, but fit learned from {self.n_extra}; give the "
                "same extra_features and extra_y as to fit"
            )
        device = self.index.device
        rows = FoldedRows(
            ranking=ranking,
            features=to_device(features, device),
            index=self.index,
            target=target_columns(ranking, self.index.to(ranking.device)).to(device),
            folds=self.folds,
            n_folds=int(self.folds.max()) + 1,
            standardize=self.standardize,
            settings=settings,
            progress=False,
            extra_features=None if extra is None else to_device(extra[0], device),
            extra_index=None if extra is None else extra[1].to(device),
        )
        tables, padding = _out_of_fold_tables(self.opinions, rows)
        return _reranked(ranking, self.pool(tables, padding), self.rounding)


def _fit_opinions(rows: FoldedRows, recipe: Recipe) -> tuple[list[Opinion], dict[str, History]]:
    """Fit all opinions of a recipe, those without scores with and without the extra rows."""
    variants = (False,) if rows.extra_features is None else (False, True)
    history: dict[str, History] = {}
    opinions: list[Opinion] = [GivenScores(rows.ranking.scale)]
    scaled = ScaledScores.fit(rows)
    opinions += [] if scaled is None else [scaled]
    for extra in variants:
        opinions.append(fit_logistic(rows, extra=extra))
        opinions.append(Neighbors(rows.standardize, rows.n_classes, rows.settings.seed, extra))
        opinions += [LearnerOpinion.fit(rows, one, extra=extra) for one in recipe.learners]
        # Extra rows have no scores.
        architectures = [one for one in recipe.architectures if not (extra and one.residual)]
        fits = fit_networks(rows, architectures, extra=extra)
        for architecture, (opinion, losses) in zip(architectures, fits, strict=True):
            history[architecture.name + (", extra rows" if extra else "")] = losses
            opinions.append(opinion)
    return opinions, history


def _blocks(ranking: Ranking, features: Matrix, device: torch.device) -> Iterator[Block]:
    """Iterate over blocks of rows on a device."""
    n_columns = ranking.n_classes if ranking.is_dense else ranking.depth + 1
    for rows in row_blocks(len(ranking), BLOCK_FACTOR * n_columns, device):
        prior, columns = prior_columns(ranking, rows)
        yield Block(
            features[rows].to(device),
            prior.to(device),
            None if columns is None else columns.to(device),
        )


@torch.no_grad()
def _out_of_fold_blocks(
    opinions: Sequence[Opinion], rows: FoldedRows, sample: Tensor | None = None
) -> Iterator[tuple[list[Tensor], Tensor | None]]:
    """Iterate over blocks of tables and padding, fold by fold, by models without the fold."""
    device = rows.index.device
    chosen = torch.arange(len(rows.index), device=device) if sample is None else sample
    for fold in range(rows.n_folds):
        own = chosen[rows.folds[chosen] == fold]
        # Models are fitted even if no row needs them: all processes take part in a fit.
        others = [opinion.without_fold(rows, fold) for opinion in opinions]
        if not len(own):
            continue
        part = rows.ranking[own.to(rows.ranking.device)]
        for block in _blocks(part, take_rows(rows.features, own), device):
            tables = [table for opinion in others for table in opinion.tables(block, fold)]
            yield tables, padding_mask(block.columns, rows.n_classes)


def _out_of_fold_tables(
    opinions: Sequence[Opinion], rows: FoldedRows, sample: Tensor | None = None
) -> tuple[list[Tensor], Tensor | None]:
    """Return the blocks of `_out_of_fold_blocks` in the order of the rows."""
    folds = rows.folds if sample is None else rows.folds[sample]
    order, n_filled = torch.argsort(folds, stable=True), 0
    results: list[Tensor] = []
    has_padding = False
    for tables, padding in _out_of_fold_blocks(opinions, rows, sample):
        has_padding = padding is not None
        parts = tables if padding is None else [*tables, padding]
        results = results or [p.new_empty((len(folds), p.shape[1])) for p in parts]
        at = order[n_filled : n_filled + len(parts[0])]
        n_filled += len(at)
        for result, part in zip(results, parts, strict=True):
            result[at] = part
    return (results[:-1], results[-1]) if has_padding else (results, None)


def _reranked(
    ranking: Ranking, log_p: Tensor, rounding: float, place: Tensor | None = None
) -> Ranking:
    """Return the ranking by new log-probabilities; `place` is the row of `log_p` for each row."""
    log_p = log_p.to(ranking.device)
    if ranking.is_dense:
        dense = log_p if place is None else RowView(log_p, place)
        reranked = ranking.derive(dense=dense, score_type="log_proba")
    else:
        log_p = log_p if place is None else log_p[place]
        labels, _ = ranking.top(ranking.depth)
        by_score = torch.where(labels >= 0, log_p[:, :-1], -torch.inf)
        scores, order = torch.sort(by_score, dim=1, descending=True, stable=True)
        labels = labels.gather(1, order)
        top = (labels, torch.where(labels >= 0, scores, 0))
        reranked = ranking.derive(top=top, score_type="log_proba")
    reranked.rounding = rounding
    return reranked
