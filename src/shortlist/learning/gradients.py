"""Clipping of gradients, and their average over processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from shortlist.learning.process_group import current_group


def member_norms(tensors: Iterable[Tensor], members: int) -> Tensor:
    """Return the norm of each member over all tensors, whose first axis is the member."""
    parts = [torch.linalg.vector_norm(t.reshape(members, -1), dim=1) for t in tensors]
    norms: Tensor = torch.linalg.vector_norm(torch.stack(parts), dim=0)
    return norms


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float, members: int) -> None:
    """Scale the gradient of each member down to a maximum norm, without waiting for a GPU.

    Parameters
    ----------
    parameters : sequence of nn.Parameter
        Parameters of a stack, whose first axis is the member, or of another network.
    max_norm : float
        Maximum norm of the gradient of a member.
    members : int
        Number of members, which is 1 if the network is not a stack.
    """
    grads = _gradients(parameters)
    scale = (max_norm / (member_norms(grads, members) + 1e-12)).clamp(max=1)
    for grad in grads:
        grad.mul_(scale if members == 1 else scale.view(-1, *[1] * (grad.ndim - 1)))


def average_over_processes(parameters: Sequence[nn.Parameter], loss: Tensor, rows: int) -> Tensor:
    """Replace gradients by their mean over the rows of all processes, and return the mean loss."""
    group, grads = current_group(), _gradients(parameters)
    if group.world_size == 1:
        return loss
    flat = torch.cat([*(g.flatten() for g in grads), loss.flatten().to(grads[0].dtype)])
    sums = group.sum(torch.cat([flat * rows, flat.new_tensor([rows])]))
    sizes = [*(g.numel() for g in grads), loss.numel()]
    *means, mean_loss = (sums[:-1] / sums[-1]).split(sizes)  # type: ignore[no-untyped-call]
    for grad, mean in zip(grads, means, strict=True):
        grad.copy_(mean.view_as(grad))
    result: Tensor = mean_loss.view_as(loss)
    return result


def _gradients(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Return the gradients of all parameters that have one."""
    return [p.grad for p in parameters if p.grad is not None]
