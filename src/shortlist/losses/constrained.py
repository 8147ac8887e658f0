"""Constrained losses: `Phi` of every score but the label's, for scores that sum to zero.

The constraint `sum_k r_k = 0` is met by centring the scores inside the loss, so that any
network can be trained with it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from shortlist.losses.common import (
    LossModule,
    find_loss,
    prepare_costs,
    prepare_labels,
    prepare_scores,
    reduce,
    weighted_phi,
)
from shortlist.losses.record import SurrogateLoss


def constrained(
    scores: Tensor,
    labels: Tensor,
    loss: str = "constrained_exp",
    *,
    rho: float = 1.0,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """Return the constrained loss of a classifier.

    The loss is `sum_{y' != y} Phi(-h(x, y'))` with `sum_y h(x, y) = 0`.

    =============== ============================== ================
    loss            Phi(-h)                        Phi(t)
    =============== ============================== ================
    constrained_exp e^h                            e^-t
    squared_hinge   max(0, 1 + h)^2                max(0, 1 - t)^2
    hinge           max(0, 1 + h)                  max(0, 1 - t)
    margin          min(max(0, 1 + h / rho), 1)    rho-margin
    =============== ============================== ================

    Parameters
    ----------
    scores : floating Tensor of shape (..., n)
        Scores `h(x, .)` of at least two labels. Their mean over the last axis is subtracted.
    labels : integer Tensor of shape (...)
        Labels y, from 0 to n - 1.
    loss : str, default="constrained_exp"
        A loss of the table, or one of your own (`register_loss`).
    rho : float, default=1.0
        The margin of "margin", above 0.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples; "none" keeps the shape `(...)`.
    validate : bool, default=True
        Check the range of the labels, which waits for the device. Without the check, a
        label out of range is undefined behaviour.

    Returns
    -------
    Tensor
        The loss, in the dtype of the scores; in float32 for half-precision scores.

    Raises
    ------
    TypeError, ValueError
        If the loss, a parameter, or the dtype, shape or range of a tensor is not valid.

    Notes
    -----
    Only "constrained_exp" can be infinite: where `e^h` of a wrong label exceeds the largest
    number of its dtype (a centred score of 88 in float32). Its gradient is then not finite
    either.

    Examples
    --------
    >>> scores = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    >>> constrained(scores, torch.tensor([0, 2]))
    tensor(1.8222)
    >>> constrained(scores, torch.tensor([0, 2]), "hinge", reduction="none")
    tensor([0.6667, 2.3333])
    """
    record = find_loss(loss, "constrained", rho, reduction)
    return reduce(_label_losses(record, scores, labels, validate), reduction)


def cost_sensitive_constrained(
    scores: Tensor,
    costs: Tensor,
    loss: str = "constrained_exp",
    *,
    rho: float = 1.0,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """Return the cost-sensitive constrained loss of a selector.

    The loss is `sum_k c(x, k, y) Phi(-r(x, k))` with `sum_k r(x, k) = 0`. `constrained` is the
    special case of cost 0 at one label and cost 1 elsewhere.

    Parameters
    ----------
    scores : floating Tensor of shape (..., n)
        Scores `r(x, .)` of at least one member. Their mean over the last axis is subtracted.
    costs : Tensor of shape (..., n)
        Costs `c(x, ., y)` in [0, 1]. They are data: no gradient flows to them, and their dtype
        does not change that of the loss.
    loss : str, default="constrained_exp"
        A loss of the table in `constrained`, or one of your own (`register_loss`).
    rho : float, default=1.0
        The margin of "margin", above 0.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples; "none" keeps the shape `(...)`.
    validate : bool, default=True
        Check the range of the costs, which waits for the device.

    Returns
    -------
    Tensor
        The loss, in the dtype of the scores; in float32 for half-precision scores.

    Raises
    ------
    TypeError, ValueError
        If the loss, a parameter, or the dtype, shape or range of a tensor is not valid.

    Notes
    -----
    A cost of exactly 0 adds exactly 0, with no gradient, even where Phi overflows. Only
    "constrained_exp" can be infinite: where the weighted sum exceeds the largest number of its
    dtype.

    Examples
    --------
    >>> scores = torch.tensor([[2.0, 0.0, -1.0]])
    >>> cost_sensitive_constrained(scores, torch.tensor([[0.0, 0.8, 0.6]]))
    tensor(0.7314)
    >>> cost_sensitive_constrained(scores, torch.tensor([[0, 1, 1]])) == constrained(
    ...     scores, torch.tensor([0])
    ... )
    tensor(True)
    """
    record = find_loss(loss, "constrained", rho, reduction)
    return reduce(_cost_losses(record, scores, costs, validate), reduction)


def _centre(scores: Tensor) -> Tensor:
    """Subtract the mean over the last axis."""
    # Twice: a large offset common to all scores leaves its rounding in the first mean. The
    # result does not depend on that offset, so no gradient needs to flow through it.
    scores = scores - scores.detach().mean(dim=-1, keepdim=True)
    return scores - scores.mean(dim=-1, keepdim=True)


def _label_losses(record: SurrogateLoss, scores: Tensor, labels: Tensor, validate: bool) -> Tensor:
    """Return the loss of each example for its label."""
    scores = prepare_scores(scores, at_least=2)
    labels = prepare_labels(labels, scores, validate=validate)
    weights = torch.ones_like(scores).scatter(-1, labels.unsqueeze(-1), 0.0)
    return weighted_phi(record, weights, _centre(scores)).sum(dim=-1)


def _cost_losses(record: SurrogateLoss, scores: Tensor, costs: Tensor, validate: bool) -> Tensor:
    """Return the loss of each example for its costs."""
    scores = prepare_scores(scores, at_least=1)
    weights = prepare_costs(costs, scores, validate=validate).to(scores.dtype)
    return weighted_phi(record, weights, _centre(scores)).sum(dim=-1)


class _ConstrainedModule(LossModule):
    """Base of the two constrained modules."""

    family: ClassVar[Literal["constrained"]] = "constrained"
    rho: float

    def __init__(
        self,
        loss: str = "constrained_exp",
        *,
        rho: float = 1.0,
        reduction: str = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(loss, rho, reduction, validate)


class ConstrainedLoss(_ConstrainedModule):
    """Compute `constrained` as a module.

    Parameters
    ----------
    loss : str, default="constrained_exp"
        "constrained_exp", "squared_hinge", "hinge", "margin", or a constrained loss of your own
        (`register_loss`).
    rho : float, default=1.0
        The margin of "margin", above 0.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples.
    validate : bool, default=True
        Check the range of the labels at each call, which waits for the device.

    Examples
    --------
    >>> ConstrainedLoss("margin", rho=0.5)
    ConstrainedLoss('margin', rho=0.5, reduction='mean')
    >>> ConstrainedLoss("hinge")(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]))
    tensor(0.6667)
    """

    def _losses(self, scores: Tensor, target: Tensor) -> Tensor:
        return _label_losses(self.record, scores, target, self.validate)


class CostSensitiveConstrainedLoss(_ConstrainedModule):
    """Compute `cost_sensitive_constrained` as a module.

    Parameters
    ----------
    loss : str, default="constrained_exp"
        "constrained_exp", "squared_hinge", "hinge", "margin", or a constrained loss of your own
        (`register_loss`).
    rho : float, default=1.0
        The margin of "margin", above 0.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples.
    validate : bool, default=True
        Check the range of the costs at each call, which waits for the device.

    Examples
    --------
    >>> CostSensitiveConstrainedLoss("hinge", validate=False)
    CostSensitiveConstrainedLoss('hinge', reduction='mean', validate=False)
    >>> loss = CostSensitiveConstrainedLoss("constrained_exp")
    >>> loss(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([[0.0, 0.8, 0.6]]))
    tensor(0.7314)
    """

    def _losses(self, scores: Tensor, target: Tensor) -> Tensor:
        return _cost_losses(self.record, scores, target, self.validate)
