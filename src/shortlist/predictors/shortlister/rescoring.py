"""Stage 1 of the Shortlister: a better order and better probabilities, from the features.

`z'(x) = t z(x) + f(x)`: the classifier's scaled logits plus a residual that starts at zero, so
that with no data it is the classifier itself. Several networks learn it together, each without
its own fold of the rows: the fold tells it when to stop and gets out-of-fold scores from it, and
for new rows their probabilities are averaged. Neighbours give a second opinion (`_neighbours`).
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
from shortlist.predictors.shortlister.neighbours import Neighbours, Opinions, Pool, aligned
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import log_columns, target_columns

ROUNDING = 2.0**-10
"""How far apart two computations of a log-probability may be, in other batches, with other threads
or on another device: a hundred times what was seen, and a thousandth of a probability."""


class Rescorer:
    """Re-scores rankings by their features; the result holds log-probabilities."""

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
        """Learn; the model, and the rows re-scored by what did not see their labels."""
        folds = draw_folds(len(ranking), members, settings.seed).to(device)
        n = ranking.n_classes
        outputs = n + (0 if ranking.is_dense else 1)

        def build() -> Stack:
            return Stack(
                [
                    zero_last_layer(
                        perceptron(
                            features.shape[1], outputs, width, 1, dropout=0.5, input_dropout=0.2
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
        model = cls(network, folds, index.to(device), n, history, settings.seed)
        with allow_tf32(
            device
        ):  # for learning alone: guarantees are made and kept alike everywhere
            reranked = model._fit_pool(ranking, features, target.to(device))
        model.neighbours = model._neighbours(inputs[0], slice(None))
        return model, reranked

    def _fit_pool(self, ranking: Ranking, features: Matrix, target: Tensor) -> Ranking:
        """Weigh the two opinions; the rows of the fit by both."""
        if not exceeds_memory(ranking) and current_group().world_size == 1:
            opinions = self._without_own_fold(ranking, features)
            self.pool = Pool.fit(*opinions, target)
            return _reranked(ranking, self.pool(*opinions))
        columns = ranking.n_classes if ranking.is_dense else ranking.depth + 1
        every = math.ceil(current_group().sum(len(ranking)) * columns / MAX_SCORES)
        sample = torch.arange(0, len(ranking), every)
        opinions = self._without_own_fold(ranking, features, sample)
        at_once = max(1, BLOCK_ELEMENTS // columns)
        self.pool = Pool.fit(*opinions, target[sample], at_once=at_once)
        del opinions
        # In the order of the folds, as they come, so that the file is written from end to end.
        log_p, written = out_of_core.allocate_tensor((len(ranking), columns)), 0
        for found in self._each_without_own_fold(ranking, features):
            pooled = self.pool(*found)
            log_p[written : written + len(pooled)] = pooled
            written += len(pooled)
        back = torch.argsort(torch.argsort(self.folds, stable=True))
        return _reranked(ranking, log_p, back)

    def __call__(self, ranking: Ranking, features: Tensor) -> Ranking:
        """New rows, by the mean of all members' probabilities."""
        opinions = self._opinions(ranking, features, self.neighbours)
        return _reranked(ranking, torch.cat([self.pool(*opinion) for opinion in opinions]))

    def out_of_fold(self, ranking: Ranking, features: Matrix) -> Ranking:
        """The rows of the fit, each by the member, and the neighbours, outside its fold."""
        return _reranked(ranking, self.pool(*self._without_own_fold(ranking, features)))

    @torch.no_grad()
    def _opinions(
        self,
        ranking: Ranking,
        features: Matrix,
        neighbours: Neighbours,
        member: int | None = None,
    ) -> Iterator[Opinions]:
        """What networks (one of them, or all) and neighbours think, a block at a time."""
        device = self.network.scale.device
        network = self.network if member is None else self.network.select_member(member)
        for rows in row_blocks(len(ranking), network.stack.widest, device):
            prior, columns = _prior(ranking, rows)
            inputs = [t.to(device) for t in (features[rows], prior, columns) if t is not None]
            log_p = combine(torch.log_softmax(network(*inputs), dim=-1))
            places = None if columns is None else columns.to(device)
            yield log_p, *aligned(neighbours(inputs[0]), places)

    def _without_own_fold(
        self, ranking: Ranking, features: Matrix, sample: Tensor | None = None
    ) -> Opinions:
        """The opinions on each row of the fit, or on some, of those that did not see its label."""
        folds = self.folds if sample is None else self.folds[sample]
        order, done = torch.argsort(folds, stable=True), 0
        whole: list[Tensor] = []
        for found in self._each_without_own_fold(ranking, features, sample):
            parts = [part for part in found if part is not None]
            whole = whole or [part.new_empty((len(folds), part.shape[1])) for part in parts]
            rows, done = order[done : done + len(parts[0])], done + len(parts[0])
            for table, part in zip(whole, parts, strict=True):
                table[rows] = part
        return whole[0], whole[1], whole[2] if len(whole) > 2 else None

    def _each_without_own_fold(
        self, ranking: Ranking, features: Matrix, sample: Tensor | None = None
    ) -> Iterator[Opinions]:
        """The same, a block at a time: the rows of a fold after those of the one before."""
        rows = torch.arange(len(self.folds), device=self.folds.device) if sample is None else sample
        for fold in range(self.network.stack.members):
            own = rows[self.folds[rows] == fold]
            others = self._neighbours(to_device(features, own.device), self.folds != fold)
            if not len(own):
                continue
            x = take_rows(features, own.to(features.device))
            yield from self._opinions(ranking[own.to(ranking.device)], x, others, fold)

    def _neighbours(self, features: Matrix, rows: slice | Tensor) -> Neighbours:
        """Some of the rows of the fit as neighbours."""
        neighbours = Neighbours(self.network.standardize, self.n_classes)
        x = features if isinstance(rows, slice) else take_rows(features, rows.nonzero()[:, 0])
        return neighbours.fit(x, self.index[rows], self.seed)


def draw_folds(rows: int, members: int, seed: int) -> Tensor:
    """Folds of equal size, at random; of rows in several processes, in each of them."""
    generator = torch.Generator().manual_seed(seed + (current_group().rank << 40))
    return torch.randperm(rows, generator=generator) % members


def cross_entropy(outputs: Tensor, target: Tensor) -> Tensor:
    """The loss of each member and row, from outputs (members, rows, columns) and targets (rows,),
    or (members, rows) if each member has rows of its own."""
    each = target.expand(outputs.shape[:-1]).reshape(-1)
    flat = nn.functional.cross_entropy(outputs.flatten(0, 1), each, reduction="none")
    return flat.view(outputs.shape[:-1])


def combine(log_p: Tensor, folds: Tensor | None = None) -> Tensor:
    """Members' log-probabilities (members, rows, columns): averaged, or each row's own fold's."""
    if folds is None:
        return log_p.logsumexp(dim=0) - math.log(len(log_p))
    return log_p[folds, torch.arange(log_p.shape[1], device=log_p.device)]


def _priors(ranking: Ranking) -> list[Matrix]:
    """`_prior` of all rows: the log scores, and, of candidates, their classes."""
    if not exceeds_memory(ranking):
        return [t for t in _prior(ranking, slice(0, len(ranking))) if t is not None]

    def column(i: int) -> LazyMatrix:
        def made(rows: RowIndex) -> Tensor:
            part = ranking[rows]
            found = _prior(part, slice(0, len(part)))[i]
            assert found is not None
            return found

        return LazyMatrix(len(ranking), made)

    return [column(0)] if ranking.is_dense else [column(0), column(1)]


def _prior(ranking: Ranking, rows: slice) -> tuple[Tensor, Tensor | None]:
    """Log scores of some rows, and, of candidates, the class of each (the last: all others)."""
    prior = log_columns(ranking, rows, ranking.score_type).to(torch.float32)
    if ranking.is_dense:
        return prior, None
    labels = ranking.top(ranking.depth)[0][rows].to(torch.int64)
    others = labels.new_full((len(labels), 1), ranking.n_classes)
    return prior, torch.cat([torch.where(labels >= 0, labels, ranking.n_classes), others], dim=1)


def _reranked(ranking: Ranking, log_p: Tensor, rows: Tensor | None = None) -> Ranking:
    """The ranking by other scores; `rows`, if given, says which row of them each row has."""
    log_p = log_p.to(ranking.device)
    if ranking.is_dense:
        dense = log_p if rows is None else RowView(log_p, rows)
        reranked = ranking.derive(dense=dense, score_type="log_proba")
    else:
        log_p = log_p if rows is None else log_p[rows]
        labels, _ = ranking.top(ranking.depth)
        by_score = torch.where(labels >= 0, log_p[:, :-1], -torch.inf)
        scores, order = torch.sort(by_score, dim=1, descending=True, stable=True)
        labels = labels.gather(1, order)
        listed = (labels, torch.where(labels >= 0, scores, 0))
        reranked = ranking.derive(listed=listed, score_type="log_proba")
    reranked.rounding = ROUNDING
    return reranked
