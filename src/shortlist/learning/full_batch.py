"""Fit linear models by L-BFGS: all rows in each step, and several models together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from shortlist._utils.blocks import row_blocks
from shortlist._utils.out_of_core import Matrix
from shortlist.learning.process_group import current_group

MAX_VALUES = 1 << 30
"""Maximum number of inputs and outputs in one step. If there are more rows, every second (third,
...) row is used."""
HISTORY_SIZE = 10


def fit_members(
    network: nn.Module,
    inputs: Sequence[Matrix],
    target: Tensor,
    folds: Tensor,
    *,
    members: int,
    penalty: float,
    penalized: Iterable[Tensor],
    max_iter: int,
) -> None:
    """Minimize the penalized cross-entropy of each member of a network, in place.

    Member j learns from the rows whose fold is not j.

    Parameters
    ----------
    network : nn.Module
        Returns logits of shape (members, n_rows, n_columns), linear in its parameters. Every
        parameter has the member as first axis.
    inputs : sequence of matrix of shape (n_rows, ...)
        Arguments of the network.
    target : Tensor of shape (n_rows,)
        Columns of the true labels.
    folds : Tensor of shape (n_rows,)
        Fold of each row.
    members : int
        Number of members.
    penalty : float
        Factor of the sum of squares of the penalized parameters.
    penalized : iterable of Tensor
        Penalized parameters of the network.
    max_iter : int
        Maximum number of iterations.
    """
    group, parameters = current_group(), list(network.parameters())
    width = max(inputs[0].shape[1], *(parameter.shape[-1] for parameter in parameters))
    stride = math.ceil(group.sum(len(target)) * width / MAX_VALUES)
    rows = torch.arange(0, len(target), stride, device=target.device)
    member = torch.arange(members, device=target.device)[:, None]
    counts = group.sum((folds[rows] != member).sum(dim=1))
    blocks = list(row_blocks(len(rows), members * width, target.device))
    shrunk = list(penalized)
    optimizer = torch.optim.LBFGS(
        parameters, max_iter=max_iter, history_size=HISTORY_SIZE, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), dtype=torch.float64, device=target.device)
        for block in blocks:
            at = rows[block] if stride > 1 else block
            logits = network(*[matrix[at] for matrix in inputs])
            weight = (folds[at] != member) / counts[:, None]
            value, gradient = _cross_entropy(logits.detach(), target[at], weight.to(logits.dtype))
            logits.backward(gradient)
            total += value
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad = group.sum(parameter.grad)
        total = group.sum(total)
        for parameter in shrunk:
            assert parameter.grad is not None
            parameter.grad.add_(parameter.detach(), alpha=2 * penalty)
            total += penalty * parameter.detach().square().sum()
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]


def _cross_entropy(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted sum of cross-entropies and its gradient, which autograd would copy."""
    log_p = torch.log_softmax(logits, dim=-1)
    column = target.expand(logits.shape[:-1])[..., None]
    own = log_p.gather(-1, column)
    gradient = log_p.exp_().mul_(weight[..., None])
    gradient.scatter_add_(-1, column, -weight[..., None])
    return -(own[..., 0] * weight).sum().to(torch.float64), gradient
