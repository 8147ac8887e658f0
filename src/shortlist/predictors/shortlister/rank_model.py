"""Stage 2 of the Shortlister: estimate the distribution of the true label's rank in each row.

A grid of sizes divides the ranks into buckets. The logits of the buckets are
``t log(masses) + f(input)``: the logarithms of the masses that the probabilities give them, times
a factor t, plus a residual f that starts at zero, so that training starts at the plug-in rule.
Labels that are not among the candidates are one more bucket.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.blocks import row_blocks
from shortlist._utils.out_of_core import (
    LazyMatrix,
    Matrix,
    RowIndex,
    hstack,
    materialize,
    to_device,
)
from shortlist._utils.progress import Show
from shortlist._utils.threads import map_in_threads
from shortlist.conformal.envelope import bucket_masses
from shortlist.learning.ensembles import EnsembleFit, train_ensembles
from shortlist.learning.networks import Residual, Stack, Standardize, perceptron, zero_last_layer
from shortlist.learning.settings import TrainingSettings, build_with_seed
from shortlist.learning.training import History
from shortlist.predictors.shortlister.folds import combine, cross_entropy, draw_folds
from shortlist.ranking.probabilities import MIN_LOG_PROBA

LARGEST_CONSECUTIVE_SIZE = 16
"""The grid contains every size up to this one."""
MAX_SPACED_SIZES = 24
"""Maximum number of larger sizes in the grid, evenly spaced in logarithm."""
MIN_DEVIATION = 1e-3
"""Log-probabilities with a smaller standard deviation are not scaled: it would magnify rounding."""


def size_grid(depth: int) -> list[int]:
    """Return the set sizes that the model chooses from.

    Parameters
    ----------
    depth : int
        Largest size.

    Returns
    -------
    list of int
        Increasing sizes from 1 to `depth`.

    Examples
    --------
    >>> size_grid(5), size_grid(100)[14:20], size_grid(100)[-1]
    ([1, 2, 3, 4, 5], [15, 16, 17, 19, 20, 22], 100)
    """
    consecutive = range(1, min(depth, LARGEST_CONSECUTIVE_SIZE) + 1)
    if depth <= LARGEST_CONSECUTIVE_SIZE:
        return list(consecutive)
    spaced = np.geomspace(LARGEST_CONSECUTIVE_SIZE, depth, MAX_SPACED_SIZES + 1).round().astype(int)
    return sorted({*consecutive, *spaced.tolist()})


class Buckets:
    """Divide the ranks of labels into buckets.

    Parameters
    ----------
    sizes : list of int
        Increasing set sizes. A rank is in the bucket of the smallest set that contains it.
    outside : bool
        Whether a last bucket stands for labels that are not in the ranking.
    """

    def __init__(self, sizes: list[int], outside: bool) -> None:
        self.sizes = sizes
        self.outside = outside

    def masses(self, log_p: Tensor) -> Tensor:
        """Return the probability of each bucket.

        Parameters
        ----------
        log_p : Tensor of shape (n_rows, depth + 1)
            Sorted log-probabilities. The last column is the mass of all other labels.

        Returns
        -------
        Tensor of shape (n_rows, n_buckets)
        """
        inside = bucket_masses(log_p[:, :-1], self.sizes)
        if not self.outside:
            return inside
        return torch.cat([inside, log_p[:, -1:].to(torch.float64).exp()], dim=1)

    def spread(self, levels: Tensor, log_p: Tensor) -> Tensor:
        """Return levels of every rank, given levels of the buckets.

        Within a bucket, levels are proportional to the probabilities of the labels. They are
        bounded by the levels of the previous and the next bucket and never increase.

        Parameters
        ----------
        levels : Tensor of shape (n_rows, n_sizes)
            Levels of the buckets, non-increasing along each row.
        log_p : Tensor of shape (n_rows, depth + 1)
            Sorted log-probabilities. The last column is the mass of all other labels.

        Returns
        -------
        Tensor of shape (n_rows, depth)
        """
        ends = torch.tensor(self.sizes, device=levels.device)
        depth = self.sizes[-1]
        bucket = torch.searchsorted(ends, torch.arange(1, depth + 1, device=levels.device))
        lengths = torch.diff(ends, prepend=ends.new_zeros(1))
        p = log_p[:, :depth].to(torch.float64).exp()
        mean = bucket_masses(log_p[:, :-1], self.sizes) / lengths
        by_rank = p.div_(mean[:, bucket]).mul_(levels[:, bucket])
        previous = torch.cat([levels.new_full((len(levels), 1), torch.inf), levels[:, :-1]], dim=1)
        following = torch.cat([levels[:, 1:], torch.zeros_like(levels[:, :1])], dim=1)
        torch.maximum(by_rank, following[:, bucket], out=by_rank)
        torch.minimum(by_rank, previous[:, bucket], out=by_rank)
        non_increasing: Tensor = by_rank.cummin(dim=1).values
        return non_increasing

    def of_rank(self, rank: Tensor) -> Tensor:
        """Return the bucket of each rank; an infinite rank is outside the ranking."""
        edges = torch.tensor(self.sizes, dtype=rank.dtype, device=rank.device)
        return torch.searchsorted(edges, rank, right=True)


class RankModel:
    """Estimate the probability of each bucket of ranks.

    Parameters
    ----------
    network : Residual
        Ensemble of networks, one for each fold.
    buckets : Buckets
        Buckets of ranks.
    depth : int
        Number of log-probabilities of each row that the networks see.
    history : History
        Losses of the training.
    """

    def __init__(
        self,
        network: Residual,
        buckets: Buckets,
        depth: int,
        history: History,
    ) -> None:
        self.network, self.buckets, self.depth = network, buckets, depth
        self.history = history

    @classmethod
    def fit(
        cls,
        log_p: Matrix,
        rank: Tensor,
        buckets: Buckets,
        features: Matrix | None,
        settings: TrainingSettings,
        *,
        members: int,
        width: int,
        depth: int,
        device: torch.device,
        progress: Show,
    ) -> tuple[RankModel, Matrix]:
        """Fit the networks.

        Parameters
        ----------
        log_p : matrix of shape (n_rows, depth + 1)
            Sorted log-probabilities. The last column is the mass of all other labels.
        rank : Tensor of shape (n_rows,)
            Rank of the true label; infinite if it is not in the ranking.
        buckets : Buckets
            Buckets of ranks.
        features : matrix of shape (n_rows, n_features), optional
            Features of the rows.
        settings : TrainingSettings
            Settings of the training.
        members : int
            Number of networks and folds.
        width : int
            Number of hidden units of each layer.
        depth : int
            Number of log-probabilities of each row that the networks see.
        device : torch.device
            Where to train.
        progress : bool or "auto"
            Whether to show a progress bar.

        Returns
        -------
        model : RankModel
        masses : matrix of shape (n_rows, n_buckets)
            Probabilities of the buckets for the same rows, each by the network that was trained
            without the row's fold.
        """
        x, prior = (
            to_device(table, device) for table in _input_tables(log_p, buckets, depth, features)
        )
        folds = draw_folds(len(x), members, settings.seed + 1).to(device)

        def build() -> Stack:
            return Stack(
                [
                    zero_last_layer(
                        perceptron(
                            x.shape[1], prior.shape[1], width, 2, dropout=0.3, input_dropout=0.3
                        )
                    )
                    for _ in range(members)
                ]
            )

        standardize = Standardize.from_data(x)
        log_proba_scale = standardize.scale[-2 * depth :]
        log_proba_scale[log_proba_scale < MIN_DEVIATION] = 1.0
        network = Residual(standardize, build_with_seed(build, settings.seed)).to(device)
        fit = EnsembleFit(
            "rank network",
            "rank of the true label",
            network,
            [x, prior],
            buckets.of_rank(rank).to(device),
            folds,
        )
        (history,) = train_ensembles([fit], cross_entropy, settings, progress)
        model = cls(network, buckets, depth, history)
        if isinstance(x, Tensor) and not isinstance(log_p, LazyMatrix):
            return model, model._masses(x, prior, folds)
        return model, LazyMatrix(
            len(x),
            lambda rows: model._masses(x[rows], prior[rows], folds[rows]),
            work_width=network.stack.widest,
        )

    @property
    def standardize(self) -> Standardize:
        """Mean and scale of the inputs: the features first."""
        return self.network.standardize

    def __call__(self, log_p: Tensor, features: Tensor | None) -> Tensor:
        """Return the probabilities of the buckets for new rows.

        Parameters
        ----------
        log_p : Tensor of shape (n_rows, depth + 1)
            Sorted log-probabilities. The last column is the mass of all other labels.
        features : Tensor of shape (n_rows, n_features), optional
            Features of the rows.

        Returns
        -------
        Tensor of float64 of shape (n_rows, n_buckets)
        """
        device = self.network.scale.device
        x = rank_inputs(log_p, self.depth, features).to(device)
        prior = _log(self.buckets.masses(log_p)).to(device)
        return self._masses(x, prior, None).to(log_p.device)

    @torch.no_grad()
    def _masses(self, x: Matrix, prior: Matrix, folds: Tensor | None) -> Tensor:
        """Return bucket probabilities, out of fold if the folds of the rows are given."""

        def masses(rows: slice) -> Tensor:
            log_mass = torch.log_softmax(self.network(x[rows], prior[rows]).to(torch.float64), -1)
            return combine(log_mass, None if folds is None else folds[rows]).exp()

        width = self.network.stack.widest
        blocks = list(row_blocks(len(x), width, x.device))
        size = 0 if x.device.type == "cuda" else len(x) * width
        return torch.cat(map_in_threads(masses, blocks, size=size))


def _input_tables(
    log_p: Matrix, buckets: Buckets, depth: int, features: Matrix | None
) -> tuple[Matrix, Matrix]:
    """Return the inputs of the networks and the log masses of the buckets for all rows."""

    def compute(rows: RowIndex) -> tuple[Tensor, Tensor]:
        part = log_p[rows]
        return rank_inputs(part, depth, None), _log(buckets.masses(part))

    if isinstance(log_p, Tensor):
        summary, prior = compute(slice(None))
    else:  # Both tables are computed in a single pass over the rows.
        joined = LazyMatrix(
            len(log_p), lambda rows: torch.cat(compute(rows), dim=1), work_width=log_p.work_width
        )
        summary, prior = materialize(joined).tensor_split([2 * depth], dim=1)
    return summary if features is None else hstack(features, summary), prior


def rank_inputs(log_p: Tensor, depth: int, features: Tensor | None) -> Tensor:
    """Return the inputs of the networks.

    Parameters
    ----------
    log_p : Tensor of shape (n_rows, n_labels + 1)
        Sorted log-probabilities. The last column is the mass of all other labels.
    depth : int
        Number of log-probabilities to use.
    features : Tensor of shape (n_rows, n_features), optional
        Features of the rows.

    Returns
    -------
    Tensor of shape (n_rows, n_features + 2 * depth)
        The features, the log-probabilities of the first `depth` labels, and the log mass of all
        labels after each of these.
    """
    first, rest = log_p[:, :depth], log_p[:, depth:].logsumexp(dim=1, keepdim=True)
    tails = torch.cat([first, rest], dim=1).flip(1).logcumsumexp(dim=1).flip(1)[:, 1:]
    summary = torch.cat([first, tails.clamp(min=MIN_LOG_PROBA, max=0)], dim=1).to(torch.float32)
    if features is None:
        return summary
    # Large float64 columns are rounded after they are standardized, not before.
    dtype = torch.promote_types(features.dtype, summary.dtype)
    return torch.cat([features.to(summary.device, dtype), summary.to(dtype)], dim=1)


def _log(masses: Tensor) -> Tensor:
    """Return logarithms in float32, floored at `MIN_LOG_PROBA`."""
    return masses.log().clamp(min=MIN_LOG_PROBA).to(torch.float32)
