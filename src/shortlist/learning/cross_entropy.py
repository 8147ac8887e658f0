"""Cross-entropy without denormal numbers, with which CPUs compute many times more slowly."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

MIN_LOG_PROBA = -35.0
"""Log-probabilities below this have no gradient: less than 1e-15, which is lost in a sum."""


def positive_proba(log_p: Tensor) -> Tensor:
    """Return probabilities, in place of their logarithms. Negligible ones are exactly zero.

    Parameters
    ----------
    log_p : Tensor
        Log-probabilities, which are overwritten.

    Returns
    -------
    Tensor
    """
    p = torch.nn.functional.threshold_(log_p, MIN_LOG_PROBA, -torch.inf)
    return p.exp_()


class CrossEntropy(torch.autograd.Function):
    """Cross-entropy of each row, for logits of any number of leading dimensions."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        """Return the losses, of the shape of `target`."""
        log_p = torch.log_softmax(logits, dim=-1)
        column = target[..., None]
        losses = -log_p.gather(-1, column)[..., 0]
        ctx.save_for_backward(positive_proba(log_p), column)
        return losses

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the logits."""
        p, column = ctx.saved_tensors
        weight = gradient[..., None]
        result = p * weight
        result.scatter_add_(-1, column, -weight)
        return result, None
