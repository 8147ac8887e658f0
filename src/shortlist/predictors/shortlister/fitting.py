"""Fit the two stages of the Shortlister, and keep each only if it helps."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from shortlist._utils.out_of_core import LazyMatrix, Matrix, gather_columns
from shortlist._utils.progress import Show
from shortlist.learning.process_group import current_group
from shortlist.learning.settings import TrainingSettings
from shortlist.predictors.shortlister.log_probabilities import all_log_proba, label_log_proba
from shortlist.predictors.shortlister.rank_model import Buckets, RankModel
from shortlist.predictors.shortlister.rescoring import Recipe, Rescorer
from shortlist.ranking import Ranking

STANDARD_ERRORS = 1.0
"""A stage is kept if it increases the mean log-likelihood of rows out of fold by this many standard
errors. One is enough: each row is scored by one network, and the mean of all networks is better."""


@dataclass(frozen=True)
class StageFit:
    """Data and settings from which both stages are fitted.

    Parameters
    ----------
    ranking : Ranking
        Rows to learn from.
    features : matrix of shape (n_rows, n_features) or None
        Features of the rows.
    settings : TrainingSettings
        Settings of the training of both stages.
    folds : int
        Number of networks of each stage.
    device : torch.device
        Where to train.
    progress : bool or "auto"
        Whether to show a progress bar.
    rescore, learn_sizes : bool
        Whether to fit each stage.
    force_rescore, force_sizes : bool
        Whether to keep each stage even if it does not help.
    extra : tuple of matrix and Tensor, optional
        Features and class indices of rows without scores.

    Attributes
    ----------
    history : dict of str to object
        Losses of the training of each stage.
    """

    ranking: Ranking
    features: Matrix | None
    settings: TrainingSettings
    folds: int
    device: torch.device
    progress: Show
    rescore: bool
    force_rescore: bool
    learn_sizes: bool
    force_sizes: bool
    extra: tuple[Matrix, Tensor] | None = None
    history: dict[str, object] = field(default_factory=dict)

    def fit_rescorer(self, y: Tensor, recipe: Recipe) -> tuple[Rescorer | None, Ranking]:
        """Fit stage 1.

        Parameters
        ----------
        y : Tensor of shape (n_rows,)
            Label indices.
        recipe : Recipe
            Which opinions to fit.

        Returns
        -------
        rescorer : Rescorer or None
            The stage; None if it is not kept.
        ranking : Ranking
            The rows that stage 2 learns from: re-scored out of fold if stage 1 is kept.
        """
        if not self.rescore or self.features is None:
            return None, self.ranking
        rescorer, out_of_fold, history = Rescorer.fit(
            self.ranking,
            y,
            self.features,
            self.settings,
            recipe,
            n_folds=self.folds,
            device=self.device,
            progress=self.progress,
            extra=self.extra,
        )
        self.history.update(history)
        before, after = label_log_proba(self.ranking, y), label_log_proba(out_of_fold, y)
        if self.force_rescore or _increases(before, after):
            return rescorer, out_of_fold
        return None, self.ranking

    def fit_rank_model(
        self, ranking: Ranking, y: Tensor, buckets: Buckets, width: int, score_depth: int
    ) -> RankModel | None:
        """Fit stage 2.

        Parameters
        ----------
        ranking : Ranking
            The rows after stage 1.
        y : Tensor of shape (n_rows,)
            Label indices.
        buckets : Buckets
            Buckets of ranks.
        width : int
            Number of hidden units of the networks.
        score_depth : int
            Number of log-probabilities of each row that the networks see.

        Returns
        -------
        RankModel or None
            The stage; None if it is not kept.
        """
        if not self.learn_sizes:
            return None
        log_p, rank = all_log_proba(ranking), ranking.rank_of(y)
        model, masses = RankModel.fit(
            log_p,
            rank,
            buckets,
            self.features,
            self.settings,
            members=self.folds,
            width=width,
            depth=min(score_depth, ranking.depth),
            device=self.device,
            progress=self.progress,
        )
        self.history["sizes"] = model.history
        true_bucket = buckets.of_rank(rank)
        before = gather_columns(_bucket_masses(buckets, log_p), true_bucket)
        after = gather_columns(masses, true_bucket.to(masses.device)).to(true_bucket.device)
        if self.force_sizes or _increases(before.log(), after.log()):
            return model
        return None


def _bucket_masses(buckets: Buckets, log_p: Matrix) -> Matrix:
    """Return the masses of the buckets in all rows; lazily if the matrix is lazy."""
    if isinstance(log_p, Tensor):
        return buckets.masses(log_p)
    return LazyMatrix(
        len(log_p), lambda rows: buckets.masses(log_p[rows]), work_width=log_p.work_width
    )


def _increases(before: Tensor, after: Tensor) -> bool:
    """Return whether log-likelihoods of the same rows increase by more than chance."""
    gain = (after - before).to(torch.float64)
    group = current_group()
    rows = group.sum(len(gain))
    mean = group.sum(gain.sum()) / rows
    error = (group.sum((gain - mean).square().sum()) / (rows - 1) / rows) ** 0.5
    return bool(mean > STANDARD_ERRORS * error)
