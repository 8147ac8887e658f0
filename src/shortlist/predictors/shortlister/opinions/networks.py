"""Opinions of networks: logistic regression and perceptrons, with or without the given scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.learning.ensembles import EnsembleFit, train_ensembles
from shortlist.learning.logistic import fit_logistic_members
from shortlist.learning.networks import Ensemble, Residual, Stack, perceptron, zero_last_layer
from shortlist.learning.settings import build_with_seed
from shortlist.learning.training import History
from shortlist.predictors.shortlister.folds import combine, cross_entropy
from shortlist.predictors.shortlister.opinions.base import (
    Block,
    FoldedRows,
    Opinion,
    align_columns,
)


@dataclass(frozen=True)
class Architecture:
    """A perceptron.

    Parameters
    ----------
    name : str
        Name in messages and in the history.
    width : int
        Units of a hidden layer.
    hidden : int, default=1
        Number of hidden layers.
    dropout, input_dropout : float
        Fraction of the units, and of the inputs, that are dropped.
    residual : bool, default=False
        Whether the outputs are added to the given scores.
    """

    name: str
    width: int
    hidden: int = 1
    dropout: float = 0.5
    input_dropout: float = 0.2
    residual: bool = False


class NetworkOpinion(Opinion):
    """The mean probabilities of networks, each of which was trained without one fold.

    Parameters
    ----------
    network : Ensemble
        Networks, one for each fold.
    """

    description = "networks"

    def __init__(self, network: Ensemble) -> None:
        self.network = network

    @property
    def is_residual(self) -> bool:
        """Whether the networks add their outputs to the given scores."""
        return self.network.takes_prior

    @property
    def n_columns(self) -> int | None:
        """Number of columns that the given scores must have. None: any."""
        return self.network.stack.weights[-1].shape[2] if self.is_residual else None

    def tables(self, block: Block, fold: int | None = None) -> list[Tensor]:
        """Return the log-probabilities; see `Opinion.tables`."""
        network = self.network if fold is None else self.network.select_member(fold)
        if self.is_residual:
            columns = () if block.columns is None else (block.columns,)
            return [_mean_log_proba(network(block.features, block.prior, *columns))]
        return [align_columns(_mean_log_proba(network(block.features)), block.columns)]


def fit_networks(
    rows: FoldedRows, architectures: Sequence[Architecture], *, extra: bool
) -> list[tuple[NetworkOpinion, History]]:
    """Train networks by mini-batches, each until the loss on its own fold no longer decreases.

    Parameters
    ----------
    rows : FoldedRows
        Rows to learn from.
    architectures : sequence of Architecture
        Layers of the networks.
    extra : bool
        Whether to learn from the extra rows, too.

    Returns
    -------
    list of tuple of NetworkOpinion and History
        The opinion of each architecture, and the losses of its training.
    """
    fits = [_prepare_fit(rows, architecture, extra=extra) for architecture in architectures]
    histories = train_ensembles(fits, cross_entropy, rows.settings, rows.progress)
    return [
        (NetworkOpinion(fit.network.requires_grad_(False)), history)
        for fit, history in zip(fits, histories, strict=True)
    ]


def _prepare_fit(rows: FoldedRows, architecture: Architecture, *, extra: bool) -> EnsembleFit:
    """Build the networks of an architecture, with the rows that they learn from."""
    features, index, folds = rows.labeled(extra=extra)
    inputs, target = [features], index
    n_outputs = rows.n_classes
    if architecture.residual:
        n_outputs += 0 if rows.ranking.is_dense else 1
        inputs, target = [features, *rows.priors()], rows.target

    def build() -> Stack:
        return Stack(
            [
                zero_last_layer(
                    perceptron(
                        features.shape[1],
                        n_outputs,
                        architecture.width,
                        architecture.hidden,
                        dropout=architecture.dropout,
                        input_dropout=architecture.input_dropout,
                    )
                )
                for _ in range(rows.n_folds)
            ]
        )

    stack = build_with_seed(build, rows.settings.seed)
    network = Ensemble(rows.standardize, stack)
    if architecture.residual:
        network = Residual(rows.standardize, stack, rows.ranking.scale)
    network = network.to(rows.index.device)
    return EnsembleFit(architecture.name, architecture.name, network, inputs, target, folds)


def fit_logistic(rows: FoldedRows, *, extra: bool) -> NetworkOpinion:
    """Fit multinomial logistic regression by L-BFGS, with the best of several penalties.

    Parameters
    ----------
    rows : FoldedRows
        Rows to learn from.
    extra : bool
        Whether to learn from the extra rows, too.

    Returns
    -------
    NetworkOpinion
    """
    features, index, folds = rows.labeled(extra=extra)

    def build() -> Stack:
        layer = zero_last_layer(perceptron(features.shape[1], rows.n_classes, hidden=0))
        return Stack(layer, members=rows.n_folds)

    # The initial weights are zero, but torch draws others first.
    stack = build_with_seed(build, rows.settings.seed)
    network = Ensemble(rows.standardize, stack).to(index.device)
    fit_logistic_members(network, features, index, folds)
    return NetworkOpinion(network.requires_grad_(False))


def _mean_log_proba(logits: Tensor) -> Tensor:
    """Return the logarithm of the mean probabilities of all members."""
    return combine(torch.log_softmax(logits, dim=-1))
