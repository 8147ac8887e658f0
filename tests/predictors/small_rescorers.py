"""Re-scoring models that train in a second, and their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor

from shortlist.learning.networks import Standardize
from shortlist.learning.settings import TrainingSettings
from shortlist.predictors.shortlister.folds import draw_folds
from shortlist.predictors.shortlister.opinions import (
    Architecture,
    FoldedRows,
    NetworkOpinion,
)
from shortlist.predictors.shortlister.pool import Pool
from shortlist.predictors.shortlister.rescoring import Recipe, Rescorer
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import sorted_log_proba, target_columns
from shortlist.ranking.score_types import ScoreType

ONE_EPOCH = TrainingSettings(
    learning_rate=0.01,
    batch_size=64,
    max_epochs=1,
    min_steps_per_epoch=20,
    decoupled_weight_decay=True,
    ema_decay=0.9,
)
NO_TRAINING = replace(ONE_EPOCH, learning_rate=1e-30)
"""Settings with which a network stays where it starts."""


def draw_rows(rows: int = 240, n_classes: int = 6, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    scores = rng.normal(size=(rows, n_classes))
    y = (scores + 2 * x[:, :1] * np.arange(n_classes) + rng.gumbel(size=scores.shape)).argmax(1)
    return tuple(map(torch.from_numpy, (scores, y, x)))  # type: ignore[return-value]


def to_candidates(scores: Tensor, depth: int, ragged: bool) -> Ranking:
    """Candidates: the probabilities of the best labels of each row."""
    p, labels = torch.softmax(scores, dim=1).sort(dim=1, descending=True)
    labels = labels[:, :depth].clone()
    if ragged:
        lengths = 1 + torch.arange(len(labels)) % depth
        labels[torch.arange(depth) >= lengths[:, None]] = -1
    return Ranking.from_candidates(labels, p[:, :depth], n_classes=scores.shape[1])


NETWORKS = [Architecture("residual network", 16, residual=True), Architecture("wide network", 16)]


class Oracle(ClassifierMixin, BaseEstimator):
    """A classifier that reads the label off the last feature, if it is an integer."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> Oracle:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        near = np.exp(-5 * np.abs(x[:, -1:] - self.classes_))
        return near / near.sum(axis=1, keepdims=True)


def fit_with_out_of_fold(
    ranking: Ranking,
    y: Tensor,
    x: Tensor,
    score_type: ScoreType,
    settings: TrainingSettings = ONE_EPOCH,
    scale: float = 1.0,
    *,
    networks: Sequence[Architecture] = NETWORKS,
    learners: Sequence[object] = (),
    extra: tuple[Tensor, Tensor] | None = None,
) -> tuple[Rescorer, Ranking]:
    """Return the model, and the rows of the fit re-scored out of fold."""
    model, out_of_fold, _ = Rescorer.fit(
        ranking.with_scale(score_type, scale),
        y,
        x,
        settings,
        Recipe(networks, learners),
        n_folds=3,
        device=torch.device("cpu"),
        progress=False,
        extra=extra,
    )
    return model, out_of_fold


def fit(*arguments: object, **options: object) -> Rescorer:
    """Return the model alone."""
    return fit_with_out_of_fold(*arguments, **options)[0]  # type: ignore[arg-type]


def only(model: Rescorer, position: int) -> Rescorer:
    """Return a model of one opinion, the first table of which counts."""
    opinion = model.opinions[position]
    pool = Pool([1.0] + [0.0] * (opinion.n_tables - 1))
    parts = model.folds, model.index, model.n_classes, model.standardize, model.n_extra
    return Rescorer([opinion], pool, *parts)


def folded_rows(
    ranking: Ranking, y: Tensor, x: Tensor, extra: tuple[Tensor, Tensor] | None = None
) -> FoldedRows:
    return FoldedRows(
        ranking=ranking,
        features=x,
        index=y,
        target=target_columns(ranking, y),
        folds=draw_folds(len(y), 3, 0),
        n_folds=3,
        standardize=Standardize.from_data(x),
        settings=ONE_EPOCH,
        progress=False,
        extra_features=None if extra is None else extra[0],
        extra_index=None if extra is None else extra[1],
    )


def mean_log_likelihood(ranking: Ranking, labels: Tensor) -> float:
    log_p = sorted_log_proba(ranking, "log_proba", ranking.depth).double()
    column = ranking.rank_of(labels).clamp(max=ranking.depth).to(torch.int64)
    return float(log_p.gather(1, column[:, None]).mean())


def kinds(model: Rescorer) -> list[str]:
    """Return the names of the opinions of a model."""
    names = []
    for opinion in model.opinions:
        name = type(opinion).__name__
        if isinstance(opinion, NetworkOpinion):
            name = "residual" if opinion.is_residual else "network"
        names.append(name)
    return names
