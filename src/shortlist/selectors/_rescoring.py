"""Stage 1 of the Shortlister: a better order and better probabilities, from the features.

`z'(x) = t z(x) + f(x)`: the classifier's scaled logits plus a residual that starts at zero, so
that with no data it is the classifier itself. Several networks learn it together, each without
its own fold of the rows: the fold tells it when to stop and gets out-of-fold scores from it, and
for new rows their probabilities are averaged. Class means give a second opinion (`_prototypes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from shortlist._arrays import row_blocks
from shortlist._progress import Show
from shortlist._settings import Training, seeded
from shortlist.networks import Residual, Stack, Standardize, from_zero, perceptron
from shortlist.ranking import Ranking
from shortlist.scores import ScoreType, log_columns, target_columns
from shortlist.selectors._prototypes import Mixture, Prototypes
from shortlist.temperature import ENOUGH
from shortlist.training import History, train


class Rescorer:
    """Re-scores rankings by their features; the result holds log-probabilities."""

    mixture: Mixture

    def __init__(
        self,
        network: Residual,
        prototypes: Prototypes,
        kind: ScoreType,
        folds: Tensor,
        history: History,
    ) -> None:
        self.network, self.prototypes = network, prototypes
        self.kind, self.folds, self.history = kind, folds, history

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
    ) -> Rescorer:
        folds = draw_folds(len(ranking), members, settings.seed).to(device)
        outputs = ranking.n_classes + (0 if ranking.is_dense else 1)

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
            progress=progress,
            what="re-scoring",
        )
        network.requires_grad_(False)
        prototypes = Prototypes.of(
            network.standardize, inputs[0], index.to(device), ranking.n_classes, folds
        )
        model = cls(network, prototypes, kind, folds, history)
        every = math.ceil(len(ranking) * outputs / ENOUGH)
        opinions = model._opinions(ranking[::every], features[::every], folds[::every])
        log_p, cosines, places = (
            None if part[0] is None else torch.cat(part) for part in zip(*opinions, strict=True)
        )
        assert log_p is not None
        assert cosines is not None
        model.mixture = Mixture.fit(log_p, cosines, places, target[::every].to(device))
        return model

    @torch.no_grad()
    def __call__(self, ranking: Ranking, features: Tensor) -> Ranking:
        """New rows, by the mean of all members' probabilities."""
        return self._apply(ranking, features, None)

    @torch.no_grad()
    def out_of_fold(self, ranking: Ranking, features: Tensor) -> Ranking:
        """The rows of the fit, each by the member that did not see it."""
        return self._apply(ranking, features, self.folds)

    def _apply(self, ranking: Ranking, features: Tensor, folds: Tensor | None) -> Ranking:
        opinions = self._opinions(ranking, features, folds)
        return _reranked(
            ranking, torch.cat([self.mixture(*o).to(ranking.device) for o in opinions])
        )

    @torch.no_grad()
    def _opinions(
        self, ranking: Ranking, features: Tensor, folds: Tensor | None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """The networks' log-probabilities, the cosines, and which class each column is."""
        device = self.network.scale.device
        for rows in row_blocks(len(ranking), self.network.stack.widest):
            prior, columns = _prior(ranking, rows, self.kind)
            inputs = [t.to(device) for t in (features[rows], prior, columns) if t is not None]
            log_p = torch.log_softmax(self.network(*inputs), dim=-1)
            fold = None if folds is None else folds[rows]
            places = None if columns is None else columns.to(device)
            yield combine(log_p, fold), self.prototypes.cosines(inputs[0], fold), places


def draw_folds(rows: int, members: int, seed: int) -> Tensor:
    """Folds of equal size, at random."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(rows, generator=generator) % members


def cross_entropy(outputs: Tensor, target: Tensor) -> Tensor:
    """The loss of each member and row, from outputs (members, rows, columns)."""
    members, rows, _ = outputs.shape
    flat = nn.functional.cross_entropy(
        outputs.flatten(0, 1), target.repeat(members), reduction="none"
    )
    return flat.view(members, rows)


def combine(log_p: Tensor, folds: Tensor | None) -> Tensor:
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
    if ranking.is_dense:
        return Ranking(dense=log_p, **same)  # type: ignore[arg-type]
    labels, _ = ranking.top(ranking.depth)
    by_score = torch.where(labels >= 0, log_p[:, :-1], -torch.inf)
    scores, order = torch.sort(by_score, dim=1, descending=True, stable=True)
    labels = labels.gather(1, order)
    listed = (labels, torch.where(labels >= 0, scores, 0))
    return Ranking(listed=listed, **same)  # type: ignore[arg-type]
