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

from shortlist._arrays import row_blocks
from shortlist._graphs import fast_products
from shortlist._progress import Show
from shortlist._settings import Training, seeded
from shortlist.networks import Residual, Stack, Standardize, from_zero, perceptron
from shortlist.ranking import Ranking
from shortlist.scores import ScoreType, log_columns, target_columns
from shortlist.selectors._neighbours import Neighbours, Opinions, Pool, aligned
from shortlist.training import History, train


class Rescorer:
    """Re-scores rankings by their features; the result holds log-probabilities."""

    neighbours: Neighbours
    pool: Pool

    def __init__(
        self,
        network: Residual,
        kind: ScoreType,
        folds: Tensor,
        index: Tensor,
        n_classes: int,
        history: History,
        seed: int,
    ) -> None:
        self.network, self.kind, self.history = network, kind, history
        self.folds, self.index, self.n_classes, self.seed = folds, index, n_classes, seed

    @classmethod
    def fit(
        cls,
        ranking: Ranking,
        index: Tensor,
        kind: ScoreType,
        features: Tensor,
        scale: float,
        settings: Training,
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
                    from_zero(
                        perceptron(
                            features.shape[1], outputs, width, 1, dropout=0.5, input_dropout=0.2
                        )
                    )
                    for _ in range(members)
                ]
            )

        standardize = Standardize.of(features)
        network = Residual(standardize, seeded(build, settings.seed), scale).to(device)
        rows = slice(0, len(ranking))
        prior, columns = _prior(ranking, rows, kind)
        target = target_columns(ranking, index)
        inputs = [t.to(device) for t in (features, prior, columns) if t is not None]
        history = train(
            network,
            inputs,
            [target.to(device)],
            cross_entropy,
            settings,
            members=[f"re-scoring network {j}" for j in range(members)],
            folds=folds,
            recorded=True,
            progress=progress,
            what="re-scoring",
        )
        network.requires_grad_(False)
        model = cls(network, kind, folds, index.to(device), n, history, settings.seed)
        with fast_products(
            device
        ):  # for learning alone: promises are made and kept alike everywhere
            opinions = model._without_own_fold(ranking, features)
        model.pool = Pool.fit(*opinions, target.to(device))
        model.neighbours = model._neighbours(inputs[0], slice(None))
        return model, _reranked(ranking, model.pool(*opinions))

    def __call__(self, ranking: Ranking, features: Tensor) -> Ranking:
        """New rows, by the mean of all members' probabilities."""
        opinions = self._opinions(ranking, features, self.neighbours)
        return _reranked(ranking, torch.cat([self.pool(*opinion) for opinion in opinions]))

    def out_of_fold(self, ranking: Ranking, features: Tensor) -> Ranking:
        """The rows of the fit, each by the member, and the neighbours, outside its fold."""
        return _reranked(ranking, self.pool(*self._without_own_fold(ranking, features)))

    @torch.no_grad()
    def _opinions(
        self,
        ranking: Ranking,
        features: Tensor,
        neighbours: Neighbours,
        member: int | None = None,
    ) -> Iterator[Opinions]:
        """What networks (one of them, or all) and neighbours think, a block at a time."""
        device = self.network.scale.device
        network = self.network if member is None else self.network.alone(member)
        for rows in row_blocks(len(ranking), network.stack.widest, device):
            prior, columns = _prior(ranking, rows, self.kind)
            inputs = [t.to(device) for t in (features[rows], prior, columns) if t is not None]
            log_p = combine(torch.log_softmax(network(*inputs), dim=-1))
            places = None if columns is None else columns.to(device)
            yield log_p, *aligned(neighbours(inputs[0]), places)

    def _without_own_fold(self, ranking: Ranking, features: Tensor) -> Opinions:
        """The opinions on each row of the fit of those that did not see its label."""
        found: list[Opinions] = []
        for fold in range(self.network.stack.members):
            own = torch.nonzero(self.folds == fold)[:, 0]
            others = self._neighbours(features.to(own.device), self.folds != fold)
            at = own.to(ranking.device)
            found += self._opinions(ranking[at], features[own.to(features.device)], others, fold)
        back = torch.argsort(torch.argsort(self.folds, stable=True))
        log_p, log_q, ended = zip(*found, strict=True)
        ends = None if ended[0] is None else torch.cat(ended)[back]
        return torch.cat(log_p)[back], torch.cat(log_q)[back], ends

    def _neighbours(self, features: Tensor, rows: slice | Tensor) -> Neighbours:
        """Some of the rows of the fit as neighbours."""
        neighbours = Neighbours(self.network.standardize, self.n_classes)
        return neighbours.fit(features[rows], self.index[rows], self.seed)


def draw_folds(rows: int, members: int, seed: int) -> Tensor:
    """Folds of equal size, at random."""
    generator = torch.Generator().manual_seed(seed)
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


def _prior(ranking: Ranking, rows: slice, kind: ScoreType) -> tuple[Tensor, Tensor | None]:
    """Log scores of some rows, and, of candidates, the class of each (the last: all others)."""
    prior = log_columns(ranking, rows, kind).to(torch.float32)
    if ranking.is_dense:
        return prior, None
    labels = ranking.top(ranking.depth)[0][rows].to(torch.int64)
    others = labels.new_full((len(labels), 1), ranking.n_classes)
    return prior, torch.cat([torch.where(labels >= 0, labels, ranking.n_classes), others], dim=1)


def _reranked(ranking: Ranking, log_p: Tensor) -> Ranking:
    """The ranking by other scores."""
    same = {"classes": ranking.classes, "depth": ranking.depth, "kind": ranking.kind}
    log_p = log_p.to(ranking.device)
    if ranking.is_dense:
        return Ranking(dense=log_p, **same)  # type: ignore[arg-type]
    labels, _ = ranking.top(ranking.depth)
    by_score = torch.where(labels >= 0, log_p[:, :-1], -torch.inf)
    scores, order = torch.sort(by_score, dim=1, descending=True, stable=True)
    labels = labels.gather(1, order)
    listed = (labels, torch.where(labels >= 0, scores, 0))
    return Ranking(listed=listed, **same)  # type: ignore[arg-type]
