"""Fit linear models by L-BFGS: all rows in each step, and several models together.

The models share the passes over the rows, but neither directions nor step sizes, so that each is
the model that a fit of its own would return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import TypeAlias

import torch
from torch import Tensor, nn

from shortlist._utils.blocks import row_blocks
from shortlist._utils.out_of_core import Matrix
from shortlist._utils.threads import map_in_threads, single_threaded
from shortlist.learning.process_group import current_group

MAX_PRODUCTS = 1 << 35
"""Maximum number of products (rows times parameters) in one step. If there are more, every second
(third, ...) row is used."""
MAX_PARTS = 16
"""Maximum number of parts of the rows that threads process at the same time."""
MAX_GRADIENT_VALUES = 1 << 25
"""Maximum number of values of the gradients of all parts, if there are more than two parts."""
GPU_FACTOR = 64
"""How many times more products a step may have on a GPU."""
HISTORY_SIZE = 10
"""Number of steps from which L-BFGS estimates the curvature."""
MAX_TRIALS = 20
"""Maximum number of step sizes that are tried in an iteration."""
SUFFICIENT_DECREASE = 1e-4
"""A step must decrease the loss by this fraction of what the gradient promises."""
ROUNDING = 1e-8
"""Relative error of a loss."""
MIN_DECREASE = 1e-9
"""A member is finished if its loss decreases by less than this."""
MIN_GRADIENT = 1e-7
"""A member is finished if no derivative is larger than this."""

Objective: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Function from the parameters of all members, of shape (members, n_parameters), to the losses, of
shape (members,), and their gradients."""

Preconditioner: TypeAlias = Callable[[Tensor], Tensor]
"""Function that multiplies the gradients of all members by an approximate inverse of the Hessian,
which is positive definite."""


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
    precondition: Preconditioner | None = None,
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
    precondition : callable, optional
        Approximate inverse Hessian from which L-BFGS starts; a multiple of the identity by default.
    """
    group, parameters = current_group(), list(network.parameters())
    n_outputs = max(parameter.shape[-1] for parameter in parameters)
    n_parameters = sum(parameter.numel() for parameter in parameters)
    limit = MAX_PRODUCTS * (GPU_FACTOR if target.is_cuda else 1)
    stride = math.ceil(group.sum(len(target)) * n_parameters / limit)
    rows = torch.arange(0, len(target), stride, device=target.device)
    member = torch.arange(members, device=target.device)[:, None]
    counts = group.sum((folds[rows] != member).sum(dim=1))
    width = max(inputs[0].shape[1], members * n_outputs)
    parts = _divide(list(row_blocks(len(rows), width, target.device)), n_parameters)
    shrunk = [any(parameter is other for other in penalized) for parameter in parameters]

    def sum_losses(blocks: Sequence[slice]) -> tuple[Tensor, list[Tensor]]:
        """Return the losses of some rows, and their gradients."""
        total = torch.zeros(members, dtype=torch.float64, device=target.device)
        gradients = [torch.zeros_like(parameter) for parameter in parameters]
        for block in blocks:
            at = rows[block] if stride > 1 else block
            logits = network(*[matrix[at] for matrix in inputs])
            weight = (folds[at] != member) / counts[:, None]
            values, gradient = _cross_entropy(logits.detach(), target[at], weight.to(logits.dtype))
            # The gradients of all threads would be added to `parameter.grad` in any order.
            torch._foreach_add_(gradients, torch.autograd.grad(logits, parameters, gradient))
            total += values
        return total, gradients

    are_in_memory = all(isinstance(matrix, Tensor) for matrix in inputs)
    use_threads = are_in_memory and target.device.type == "cpu"

    def objective(x: Tensor) -> tuple[Tensor, Tensor]:
        _set_parameters(parameters, x)
        if use_threads:
            results = map_in_threads(sum_losses, parts, size=len(rows) * n_parameters)
        else:
            results = [sum_losses(part) for part in parts]
        total, gradients = results[0]
        for losses, more in results[1:]:
            total += losses
            torch._foreach_add_(gradients, more)
        losses = group.sum(total)
        for parameter, gradient, is_penalized in zip(parameters, gradients, shrunk, strict=True):
            if is_penalized:
                # The penalty is the same in all processes, whose gradients are added.
                gradient.add_(parameter.detach(), alpha=2 * penalty / group.world_size)
                losses += penalty * parameter.detach().square().flatten(1).sum(dim=1)
        return losses, group.sum(_flatten(gradients))

    start = _flatten([parameter.detach() for parameter in parameters])
    # Between the passes over the rows, the operations are too small to be worth a barrier each.
    with single_threaded() if use_threads else nullcontext():
        _set_parameters(parameters, minimize_members(objective, start, max_iter, precondition))


def _divide(blocks: Sequence[slice], n_parameters: int) -> list[Sequence[slice]]:
    """Divide blocks of rows into parts, each of which has gradients of its own.

    The parts do not depend on the number of threads, because the sum of the gradients does.
    """
    n_parts = min(max(MAX_GRADIENT_VALUES // n_parameters, 2), MAX_PARTS, len(blocks))
    length = -(-len(blocks) // max(1, n_parts))
    return [blocks[i : i + length] for i in range(0, len(blocks), max(1, length))] or [[]]


@torch.no_grad()
def _set_parameters(parameters: Sequence[Tensor], x: Tensor) -> None:
    """Copy the rows of a matrix to the members of all parameters."""
    sizes = [parameter[0].numel() for parameter in parameters]
    for parameter, values in zip(parameters, x.split(sizes, dim=1), strict=True):  # type: ignore[no-untyped-call]
        parameter.copy_(values.view_as(parameter))


def _flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Return a matrix with a row for each member."""
    return torch.cat([tensor.flatten(1) for tensor in tensors], dim=1)


@torch.no_grad()
def minimize_members(
    objective: Objective,
    start: Tensor,
    max_iter: int,
    precondition: Preconditioner | None = None,
) -> Tensor:
    """Minimize the convex loss of each member by L-BFGS with backtracking.

    Parameters
    ----------
    objective : callable
        Losses and gradients. Those of a member depend on its own parameters alone.
    start : Tensor of shape (members, n_parameters)
        Parameters to start from.
    max_iter : int
        Maximum number of iterations.
    precondition : callable, optional
        Approximate inverse Hessian.

    Returns
    -------
    Tensor of shape (members, n_parameters)
        The parameters, whose loss is at most that of the start.
    """
    x = start.clone()
    with torch.enable_grad():
        loss, gradient = objective(x)
    is_active = torch.isfinite(loss) & (gradient.abs().amax(dim=1) > MIN_GRADIENT)
    memory = _Curvature(precondition)
    for _ in range(max_iter):
        if not bool(is_active.any()):
            break
        direction = memory.direction(gradient)
        slope = _dot(gradient, direction).to(torch.float64)
        step = torch.where(is_active, memory.first_step(gradient).to(torch.float64), 0.0)
        pending = is_active.clone()
        for _ in range(MAX_TRIALS):
            candidate = x + step[:, None].to(x.dtype) * direction
            with torch.enable_grad():
                new_loss, new_gradient = objective(candidate)
            limit = loss + SUFFICIENT_DECREASE * step * slope + ROUNDING * loss.abs()
            pending &= ~(new_loss <= limit)
            if not bool(pending.any()):
                break
            # The minimum of a parabola, if it is between a tenth and a half of the step.
            best = -slope * step.square() / (2 * (new_loss - loss - slope * step))
            shorter = torch.maximum(torch.minimum(best, step / 2), step / 10)
            shorter = torch.where(torch.isfinite(shorter), shorter, step / 10)
            step = torch.where(pending, shorter, step)
        moved = (is_active & ~pending)[:, None]
        new_x = torch.where(moved, candidate, x)
        new_gradient = torch.where(moved, new_gradient, gradient)
        new_loss = torch.where(moved[:, 0], new_loss, loss)
        memory.add(new_x - x, new_gradient - gradient)
        is_active &= moved[:, 0] & (loss - new_loss > MIN_DECREASE)
        x, loss, gradient = new_x, new_loss, new_gradient
        is_active &= gradient.abs().amax(dim=1) > MIN_GRADIENT
    return x


class _Curvature:
    """The last steps of L-BFGS and the changes of the gradients, of all members."""

    def __init__(self, precondition: Preconditioner | None) -> None:
        self._precondition = precondition
        self._pairs: list[tuple[Tensor, Tensor, Tensor]] = []
        self._scale: Tensor | None = None

    def add(self, step: Tensor, change: Tensor) -> None:
        """Add a step. Members whose gradient did not change along it do not use it."""
        curvature, squares = _dot(step, change), _dot(change, change)
        is_used = curvature > 1e-10 * squares.sqrt() * _dot(step, step).sqrt()
        inverse = torch.where(is_used, 1 / curvature, 0)
        if self._precondition is not None:
            squares = _dot(change, self._precondition(change))
        scale = torch.where(is_used, curvature / squares, 1 if self._scale is None else self._scale)
        self._scale = scale
        self._pairs = [*self._pairs[1 - HISTORY_SIZE :], (step, change, inverse[:, None])]

    def first_step(self, gradient: Tensor) -> Tensor:
        """Return the step sizes to try first."""
        if self._scale is None and self._precondition is None:
            return (1 / gradient.abs().sum(dim=1)).clamp(max=1)
        return gradient.new_ones(len(gradient))

    def direction(self, gradient: Tensor) -> Tensor:
        """Return the directions of the next steps, by the two-loop recursion."""
        direction = -gradient
        factors = []
        for step, change, inverse in reversed(self._pairs):
            factor = inverse * _dot(step, direction)[:, None]
            direction = direction - factor * change
            factors.append(factor)
        if self._precondition is not None:
            direction = self._precondition(direction)
        if self._scale is not None:
            direction = direction * self._scale[:, None]
        for (step, change, inverse), factor in zip(self._pairs, reversed(factors), strict=True):
            direction = direction + step * (factor - inverse * _dot(change, direction)[:, None])
        return direction


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner product of each row."""
    return (a * b).sum(dim=1)


def _cross_entropy(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted sums of cross-entropies and their gradient, which autograd would copy."""
    log_p = torch.log_softmax(logits, dim=-1)
    column = target.expand(logits.shape[:-1])[..., None]
    own = log_p.gather(-1, column)
    gradient = log_p.exp_().mul_(weight[..., None])
    gradient.scatter_add_(-1, column, -weight[..., None])
    return -(own[..., 0] * weight).to(torch.float64).sum(dim=-1), gradient
