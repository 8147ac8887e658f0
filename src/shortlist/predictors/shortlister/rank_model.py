"""Stage 2 of the Shortlister: the distribution of the right label's rank, for one row at a time.

The rank is cut into buckets by a grid of sizes. Their logits are `t log(masses) + f(input)`, the
masses that the probabilities give them plus a residual that starts at zero: with no data it is
the plug-in rule, data corrects it. What lies outside a list of candidates is one more bucket.
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
from shortlist.conformal.envelope import bucket_masses
from shortlist.learning.networks import Residual, Stack, Standardize, perceptron, zero_last_layer
from shortlist.learning.settings import TrainingSettings, build_with_seed
from shortlist.learning.training import History, train
from shortlist.predictors.shortlister.rescoring import combine, cross_entropy, draw_folds
from shortlist.ranking.probabilities import LEAST_LOG_PROBA

EVERY_SIZE = 16
"""Every size up to this one is in the grid, …"""
LEAST_DEVIATION = 1e-3
"""Log-probabilities that deviate by less than this are left as they are."""
MORE_SIZES = 24
"""… then this many, evenly spaced in logarithm, up to the longest list."""


def size_grid(depth: int) -> list[int]:
    """The sizes to choose from.

    >>> size_grid(5), size_grid(100)[14:20], size_grid(100)[-1]
    ([1, 2, 3, 4, 5], [15, 16, 17, 19, 20, 22], 100)
    """
    every = range(1, min(depth, EVERY_SIZE) + 1)
    if depth <= EVERY_SIZE:
        return list(every)
    longer = np.geomspace(EVERY_SIZE, depth, MORE_SIZES + 1).round().astype(int)
    return sorted({*every, *longer.tolist()})


class Buckets:
    """Buckets of the rank: their masses by given probabilities, and the one that a rank is in."""

    def __init__(self, sizes: list[int], outside: bool) -> None:
        self.sizes = sizes
        self.outside = outside

    def masses(self, log_p: Tensor) -> Tensor:
        """(rows, buckets) from sorted log-probabilities with the mass of all others last."""
        inside = bucket_masses(log_p[:, :-1], self.sizes)
        return (
            torch.cat([inside, log_p[:, -1:].to(torch.float64).exp()], 1)
            if self.outside
            else inside
        )

    def spread(self, levels: Tensor, log_p: Tensor) -> Tensor:
        """Levels of the buckets (rows, sizes) as levels of every rank (rows, depth).

        Within a bucket the labels' own probabilities decide, between the levels of the buckets
        before and after, and never above the rank before: levels still never increase.
        """
        ends = torch.tensor(self.sizes, device=levels.device)
        depth = self.sizes[-1]
        bucket = torch.searchsorted(ends, torch.arange(1, depth + 1, device=levels.device))
        lengths = torch.diff(ends, prepend=ends.new_zeros(1))
        p = log_p[:, :depth].to(torch.float64).exp()
        mean = bucket_masses(log_p[:, :-1], self.sizes) / lengths
        found = p.div_(mean[:, bucket]).mul_(levels[:, bucket])
        before = torch.cat([levels.new_full((len(levels), 1), torch.inf), levels[:, :-1]], dim=1)
        after = torch.cat([levels[:, 1:], torch.zeros_like(levels[:, :1])], dim=1)
        torch.maximum(found, after[:, bucket], out=found)
        torch.minimum(found, before[:, bucket], out=found)
        falling: Tensor = found.cummin(dim=1).values
        return falling

    def of_rank(self, rank: Tensor) -> Tensor:
        """The bucket of each rank (infinity: outside)."""
        edges = torch.tensor(self.sizes, dtype=rank.dtype, device=rank.device)
        return torch.searchsorted(edges, rank, right=True)


class RankModel:
    """Estimates the bucket masses of new rows."""

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
        """The model, and the masses that it gives the rows of the fit out of fold."""
        x, prior = (
            to_device(matrix, device) for matrix in _tables(log_p, buckets, depth, features)
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
        # What varies by less than this is rounding, which a small deviation would magnify.
        known = standardize.scale[-2 * depth :]
        known[known < LEAST_DEVIATION] = 1.0
        network = Residual(standardize, build_with_seed(build, settings.seed)).to(device)
        history = train(
            network,
            [x, prior],
            [buckets.of_rank(rank).to(device)],
            cross_entropy,
            settings,
            members=[f"rank network {j}" for j in range(members)],
            folds=folds,
            use_cuda_graph=True,
            progress=progress,
            name="rank of the right label",
        )
        model = cls(network, buckets, depth, history)
        if isinstance(x, Tensor) and not isinstance(log_p, LazyMatrix):
            return model, model._masses(x, prior, folds)
        return model, LazyMatrix(
            len(x),
            lambda rows: model._masses(x[rows], prior[rows], folds[rows]),
            work_width=network.stack.widest,
        )

    def __call__(self, log_p: Tensor, features: Tensor | None) -> Tensor:
        """The masses of new rows: (rows, buckets), float64."""
        device = self.network.scale.device
        x = rank_inputs(log_p, self.depth, features).to(device)
        prior = _log(self.buckets.masses(log_p)).to(device)
        return self._masses(x, prior, None).to(log_p.device)

    @torch.no_grad()
    def _masses(self, x: Matrix, prior: Matrix, folds: Tensor | None) -> Tensor:
        found = []
        for rows in row_blocks(len(x), self.network.stack.widest, x.device):
            log_mass = torch.log_softmax(self.network(x[rows], prior[rows]).to(torch.float64), -1)
            found.append(combine(log_mass, None if folds is None else folds[rows]).exp())
        return torch.cat(found)


def _tables(
    log_p: Matrix, buckets: Buckets, depth: int, features: Matrix | None
) -> tuple[Matrix, Matrix]:
    """What the model sees of all rows, and the logarithms of the masses that it starts from."""

    def made(rows: RowIndex) -> tuple[Tensor, Tensor]:
        part = log_p[rows]
        return rank_inputs(part, depth, None), _log(buckets.masses(part))

    if isinstance(log_p, Tensor):
        known, prior = made(slice(None))
    else:  # one look at each row for the two
        wide = LazyMatrix(
            len(log_p), lambda rows: torch.cat(made(rows), dim=1), work_width=log_p.work_width
        )
        known, prior = materialize(wide).tensor_split([2 * depth], dim=1)
    return known if features is None else hstack(features, known), prior


def rank_inputs(log_p: Tensor, depth: int, features: Tensor | None) -> Tensor:
    """What the model sees of a row: log-probabilities of its best labels, the log masses of all
    labels after each, and the features."""
    first, rest = log_p[:, :depth], log_p[:, depth:].logsumexp(dim=1, keepdim=True)
    tails = torch.cat([first, rest], dim=1).flip(1).logcumsumexp(dim=1).flip(1)[:, 1:]
    known = torch.cat([first, tails.clamp(min=LEAST_LOG_PROBA, max=0)], dim=1).to(torch.float32)
    if features is None:
        return known
    # Large float64 columns are rounded after they are standardised, not before.
    wide = torch.promote_types(features.dtype, known.dtype)
    return torch.cat([features.to(known.device, wide), known.to(wide)], dim=1)


def _log(masses: Tensor) -> Tensor:
    return masses.log().clamp(min=LEAST_LOG_PROBA).to(torch.float32)
