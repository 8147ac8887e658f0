"""Multinomial logistic regression of several members, with a penalty that is chosen out of fold."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from shortlist._utils.blocks import row_blocks
from shortlist._utils.out_of_core import Matrix
from shortlist.learning.full_batch import Preconditioner, fit_members
from shortlist.learning.gram import gram_matrix
from shortlist.learning.networks import Ensemble
from shortlist.learning.process_group import current_group

PENALTIES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
"""Penalties, tried in this order until the loss out of fold increases."""
MAX_ITER = 6
"""Maximum number of iterations for each penalty. Each starts where the one before ended."""
MAX_FEATURES = 4096
"""Maximum number of features whose covariance is used to precondition the steps."""


def fit_logistic_members(network: Ensemble, features: Matrix, index: Tensor, folds: Tensor) -> None:
    """Fit the members of a linear network in place, by L-BFGS.

    Member j learns from the rows whose fold is not j. All members have the penalty with the
    smallest mean loss of the rows by the members that were fitted without their fold.

    Parameters
    ----------
    network : Ensemble
        Network of one layer.
    features : matrix of shape (n_rows, n_features)
        Features of the rows.
    index : Tensor of shape (n_rows,)
        Class indices.
    folds : Tensor of shape (n_rows,)
        Fold of each row. If no row is in the fold of a member, the first penalty is used.
    """
    is_judged = bool(current_group().sum(int((folds < network.stack.members).sum())))
    covariance = _covariance(network, features)
    best, best_loss = _copied_state(network), math.inf
    for penalty in PENALTIES:
        fit_members(
            network,
            [features],
            index,
            folds,
            members=network.stack.members,
            penalty=penalty,
            penalized=network.stack.weights,
            max_iter=MAX_ITER,
            precondition=_preconditioner(network, covariance, penalty),
        )
        if not is_judged:
            return
        loss = out_of_fold_loss(network, features, index, folds)
        if not loss < best_loss:
            break
        best, best_loss = _copied_state(network), loss
    network.load_state_dict(best)


@torch.no_grad()
def out_of_fold_loss(network: Ensemble, features: Matrix, index: Tensor, folds: Tensor) -> float:
    """Return the mean cross-entropy of rows by the member that was fitted without their fold.

    Parameters
    ----------
    network : Ensemble
        Fitted network.
    features : matrix of shape (n_rows, n_features)
        Features of the rows.
    index : Tensor of shape (n_rows,)
        Class indices.
    folds : Tensor of shape (n_rows,)
        Fold of each row. Rows of other folds than those of the members are left out.

    Returns
    -------
    float
    """
    total = torch.zeros((), dtype=torch.float64, device=index.device)
    n_rows, width = 0, max(network.stack.weights[0].shape[1:])
    for fold in range(network.stack.members):
        own, member = (folds == fold).nonzero()[:, 0], network.select_member(fold)
        for block in row_blocks(len(own), width, index.device):
            rows = own[block]
            logits = member(features[rows])[0]
            total += nn.functional.cross_entropy(logits, index[rows], reduction="sum")
        n_rows += len(own)
    group = current_group()
    return float(group.sum(total)) / group.sum(n_rows)


@torch.no_grad()
def _covariance(network: Ensemble, features: Matrix) -> Tensor | None:
    """Return the covariance of the standardized features; None if there are very many."""
    n_features = features.shape[1]
    if n_features > MAX_FEATURES:
        return None
    products = torch.zeros((n_features, n_features), device=features.device)
    for rows in row_blocks(len(features), n_features, features.device):
        products += gram_matrix(network.standardize(features[rows]))
    return current_group().sum(products) / current_group().sum(len(features))


def _preconditioner(
    network: Ensemble, covariance: Tensor | None, penalty: float
) -> Preconditioner | None:
    """Return the inverse of the Hessian where all classes are equally likely, as a function."""
    if covariance is None or not bool(torch.isfinite(covariance).all()):
        return None
    n_features, n_classes = network.stack.weights[0].shape[1:]
    hessian = covariance / n_classes
    hessian.diagonal().add_(2 * penalty)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian))
    sizes = [parameter[0].numel() for parameter in network.parameters()]

    def precondition(gradient: Tensor) -> Tensor:
        weights, bias = gradient.split(sizes, dim=1)  # type: ignore[no-untyped-call]
        steps = inverse @ weights.view(-1, n_features, n_classes)
        return torch.cat([steps.flatten(1), bias * n_classes], dim=1)

    return precondition


def _copied_state(network: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the parameters and buffers of a network."""
    return {name: value.clone() for name, value in network.state_dict().items()}
