"""Stage 1 of the Shortlister: re-score the labels of each row from its features.

The new logits are ``t z(x) + f(x)``: the classifier's logits z times a factor t, plus a residual
f that starts at zero, so that training starts at the classifier itself. An ensemble of networks is
trained, each without its own fold of the rows. The fold decides when its network stops, and the
network gives the fold out-of-fold scores. For new rows the probabilities of all networks are
averaged. These probabilities are then pooled with those of `Neighbours`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from shortlist._utils import out_of_core
from shortlist._utils.blocks import BLOCK_ELEMENTS, row_blocks
from shortlist._utils.out_of_core import LazyMatrix, Matrix, RowIndex, RowView, take_rows, to_device
from shortlist._utils.progress import Show
from shortlist.learning.cuda_graphs import allow_tf32
from shortlist.learning.networks import Residual, Stack, Standardize, perceptron, zero_last_layer
from shortlist.learning.process_group import current_group
from shortlist.learning.settings import TrainingSettings, build_with_seed
from shortlist.learning.temperature import MAX_SCORES
from shortlist.learning.training import History, train
from shortlist.predictors.row_tables import exceeds_memory
from shortlist.predictors.shortlister.neighbours import Estimates, Neighbours, Pool, align_columns
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import log_columns, target_columns

ROUNDING = 2.0**-10
"""Bound on the difference between two computations of a log-probability that differ in batch,
threads or device: about a thousandth of the probability, a hundred times the largest measured."""


class Rescorer:
    """Re-score rankings from the features of their rows.

    Parameters
    ----------
    network : Residual
        Ensemble of networks, one for each fold.
    folds : Tensor of shape (n_rows,)
        Fold of each row that `fit` learned from.
    index : Tensor of shape (n_rows,)
        Class indices of the same rows.
    n_classes : int
        Number of classes.
    history : History
        Losses of the training.
    seed : int
        Seed of the neighbours that are drawn.
    """

    neighbours: Neighbours
    pool: Pool

    def __init__(
        self,
        network: Residual,
        folds: Tensor,
        index: Tensor,
        n_classes: int,
        history: History,
        seed: int,
    ) -> None:
        self.network, self.history = network, history
        self.folds, self.index, self.n_classes, self.seed = folds, index, n_classes, seed

    @classmethod
    def fit(
        cls,
        ranking: Ranking,
        index: Tensor,
        features: Matrix,
        settings: TrainingSettings,
        *,
        members: int,
        width: int,
        device: torch.device,
        progress: Show,
    ) -> tuple[Rescorer, Ranking]:
        """Fit the networks, the neighbours and their pool.

        Parameters
        ----------
        ranking : Ranking
            Rows to learn from.
        index : Tensor of shape (n_rows,)
            Class indices of the true labels.
        features : matrix of shape (n_rows, n_features)
            Features of the rows.
        settings : TrainingSettings
            Settings of the training.
        members : int
            Number of networks and folds.
        width : int
            Number of hidden units of each network.
        device : torch.device
            Where to train.
        progress : bool or "auto"
            Whether to show a progress bar.

        Returns
        -------
        rescorer : Rescorer
        out_of_fold : Ranking
            The same rows, each re-scored by models that were fitted without its label.
        """
        folds = draw_folds(len(ranking), members, settings.seed).to(device)
        n_classes = ranking.n_classes
        n_outputs = n_classes + (0 if ranking.is_dense else 1)

        def build() -> Stack:
            return Stack(
                [
                    zero_last_layer(
                        perceptron(
                            features.shape[1], n_outputs, width, 1, dropout=0.5, input_dropout=0.2
                        )
                    )
                    for _ in range(members)
                ]
            )

        standardize = Standardize.from_data(features)
        network = Residual(standardize, build_with_seed(build, settings.seed), ranking.scale).to(
            device
        )
        target = target_columns(ranking, index)
        inputs = [to_device(matrix, device) for matrix in (features, *_priors(ranking))]
        history = train(
            network,
            inputs,
            [target.to(device)],
            cross_entropy,
            settings,
            members=[f"re-scoring network {j}" for j in range(members)],
            folds=folds,
            use_cuda_graph=True,
            progress=progress,
            name="re-scoring",
        )
        network.requires_grad_(False)
        model = cls(network, folds, index.to(device), n_classes, history, settings.seed)
        # TF32 is for fitting alone. Calibration and prediction compute with the same precision.
        with allow_tf32(device):
            out_of_fold = model._fit_pool(ranking, features, target.to(device))
        model.neighbours = model._fit_neighbours(inputs[0])
        return model, out_of_fold

    def _fit_pool(self, ranking: Ranking, features: Matrix, target: Tensor) -> Ranking:
        """Fit the pool to out-of-fold estimates, and return the rows of the fit out of fold."""
        if not exceeds_memory(ranking) and current_group().world_size == 1:
            estimates = self._out_of_fold_estimates(ranking, features)
            self.pool = Pool.fit(*estimates, target)
            return _reranked(ranking, self.pool(*estimates))
        n_columns = ranking.n_classes if ranking.is_dense else ranking.depth + 1
        stride = math.ceil(current_group().sum(len(ranking)) * n_columns / MAX_SCORES)
        sample = torch.arange(0, len(ranking), stride)
        estimates = self._out_of_fold_estimates(ranking, features, sample)
        block_rows = max(1, BLOCK_ELEMENTS // n_columns)
        self.pool = Pool.fit(*estimates, target[sample], block_rows=block_rows)
        del estimates  # They would take memory during the pass over all rows.
        # Rows are written in the order of the folds, so that the file grows from start to end.
        log_p, n_written = out_of_core.allocate_tensor((len(ranking), n_columns)), 0
        for block in self._out_of_fold_blocks(ranking, features):
            pooled = self.pool(*block)
            log_p[n_written : n_written + len(pooled)] = pooled
            n_written += len(pooled)
        place = torch.argsort(torch.argsort(self.folds, stable=True))
        return _reranked(ranking, log_p, place)

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
        blocks = self._estimates(ranking, features, self.neighbours)
        return _reranked(ranking, torch.cat([self.pool(*block) for block in blocks]))

    def out_of_fold(self, ranking: Ranking, features: Matrix) -> Ranking:
        """Re-score the rows of `fit` by the models that were fitted without their folds.

        Parameters
        ----------
        ranking : Ranking
            The rows of `fit`.
        features : matrix of shape (n_rows, n_features)
            Features of the rows.

        Returns
        -------
        Ranking
        """
        return _reranked(ranking, self.pool(*self._out_of_fold_estimates(ranking, features)))

    @torch.no_grad()
    def _estimates(
        self,
        ranking: Ranking,
        features: Matrix,
        neighbours: Neighbours,
        member: int | None = None,
    ) -> Iterator[Estimates]:
        """Iterate over blocks of estimates by one network, or the mean of all, and neighbours."""
        device = self.network.scale.device
        network = self.network if member is None else self.network.select_member(member)
        for rows in row_blocks(len(ranking), network.stack.widest, device):
            prior, columns = _prior(ranking, rows)
            inputs = [t.to(device) for t in (features[rows], prior, columns) if t is not None]
            log_p = combine(torch.log_softmax(network(*inputs), dim=-1))
            columns = None if columns is None else columns.to(device)
            yield log_p, *align_columns(neighbours(inputs[0]), columns)

    def _out_of_fold_estimates(
        self, ranking: Ranking, features: Matrix, sample: Tensor | None = None
    ) -> Estimates:
        """Return the estimates of `_out_of_fold_blocks` in the order of the rows."""
        folds = self.folds if sample is None else self.folds[sample]
        order, n_filled = torch.argsort(folds, stable=True), 0
        tables: list[Tensor] = []
        for estimates in self._out_of_fold_blocks(ranking, features, sample):
            blocks = [block for block in estimates if block is not None]
            tables = tables or [b.new_empty((len(folds), b.shape[1])) for b in blocks]
            rows = order[n_filled : n_filled + len(blocks[0])]
            n_filled += len(rows)
            for table, block in zip(tables, blocks, strict=True):
                table[rows] = block
        return tables[0], tables[1], tables[2] if len(tables) > 2 else None

    def _out_of_fold_blocks(
        self, ranking: Ranking, features: Matrix, sample: Tensor | None = None
    ) -> Iterator[Estimates]:
        """Iterate over blocks of estimates, fold by fold, by models fitted without the fold."""
        rows = torch.arange(len(self.folds), device=self.folds.device) if sample is None else sample
        for fold in range(self.network.stack.members):
            own = rows[self.folds[rows] == fold]
            others = (self.folds != fold).nonzero()[:, 0]
            neighbours = self._fit_neighbours(to_device(features, own.device), others)
            if not len(own):  # Neighbours are fitted even so: all processes take part in the fit.
                continue
            x = take_rows(features, own.to(features.device))
            yield from self._estimates(ranking[own.to(ranking.device)], x, neighbours, fold)

    def _fit_neighbours(self, features: Matrix, rows: Tensor | None = None) -> Neighbours:
        """Return neighbours among some rows of the fit, or among all of them."""
        neighbours = Neighbours(self.network.standardize, self.n_classes)
        if rows is None:
            return neighbours.fit(features, self.index, self.seed)
        return neighbours.fit(take_rows(features, rows), self.index[rows], self.seed)


def draw_folds(rows: int, members: int, seed: int) -> Tensor:
    """Return the fold of each row: folds of equal size, drawn at random in each process."""
    generator = torch.Generator().manual_seed(seed + (current_group().rank << 40))
    return torch.randperm(rows, generator=generator) % members


def cross_entropy(outputs: Tensor, target: Tensor) -> Tensor:
    """Return the loss of each network and row, of shape (members, n_rows).

    Parameters
    ----------
    outputs : Tensor of shape (members, n_rows, n_columns)
        Logits of each network.
    target : Tensor of shape (n_rows,) or (members, n_rows)
        Columns of the true labels; two-dimensional if each network has its own rows.

    Returns
    -------
    Tensor of shape (members, n_rows)
    """
    target = target.expand(outputs.shape[:-1]).reshape(-1)
    flat = nn.functional.cross_entropy(outputs.flatten(0, 1), target, reduction="none")
    return flat.view(outputs.shape[:-1])


def combine(log_p: Tensor, folds: Tensor | None = None) -> Tensor:
    """Combine the log-probabilities of several networks.

    Parameters
    ----------
    log_p : Tensor of shape (members, n_rows, n_columns)
        Log-probabilities of each network.
    folds : Tensor of shape (n_rows,), optional
        Fold of each row. If given, each row gets the output of the network that was trained
        without its fold. By default, the probabilities of all networks are averaged.

    Returns
    -------
    Tensor of shape (n_rows, n_columns)
    """
    if folds is None:
        return log_p.logsumexp(dim=0) - math.log(len(log_p))
    return log_p[folds, torch.arange(log_p.shape[1], device=log_p.device)]


def _priors(ranking: Ranking) -> list[Matrix]:
    """Return the inputs of the networks besides the features; lazily if they exceed memory."""
    if not exceeds_memory(ranking):
        return [t for t in _prior(ranking, slice(0, len(ranking))) if t is not None]

    def lazy(position: int) -> LazyMatrix:
        def read(rows: RowIndex) -> Tensor:
            part = ranking[rows]
            table = _prior(part, slice(0, len(part)))[position]
            assert table is not None
            return table

        return LazyMatrix(len(ranking), read)

    return [lazy(0)] if ranking.is_dense else [lazy(0), lazy(1)]


def _prior(ranking: Ranking, rows: slice) -> tuple[Tensor, Tensor | None]:
    """Return the log scores of some rows and, for candidates, the class of each column.

    The last column of candidates stands for all classes that are not listed.
    """
    prior = log_columns(ranking, rows, ranking.score_type).to(torch.float32)
    if ranking.is_dense:
        return prior, None
    labels = ranking.top(ranking.depth)[0][rows].to(torch.int64)
    others = labels.new_full((len(labels), 1), ranking.n_classes)
    return prior, torch.cat([torch.where(labels >= 0, labels, ranking.n_classes), others], dim=1)


def _reranked(ranking: Ranking, log_p: Tensor, place: Tensor | None = None) -> Ranking:
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
    reranked.rounding = ROUNDING
    return reranked
