"""Constrained losses: a sum of `Phi` over scores that sum to zero, for labels or for costs.

The losses subtract the mean of the scores, so that the constraint `sum_k r_k = 0` holds for the
outputs of any network.
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
    scores : Tensor of shape (..., n)
        Floating-point scores `h(x, .)` of at least two labels. Their mean over the last axis is
        subtracted.
    labels : Tensor of shape (...)
        Integer labels y, from 0 to n - 1.
    loss : str, default="constrained_exp"
        A loss of the table above, or a loss registered with `register_loss`.
    rho : float, default=1.0
        Margin of the loss "margin", above 0.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples. "none" keeps the shape `(...)`.
    validate : bool, default=True
        Whether to check the range of the labels. The check waits for the device. Without it,
        the result for a label out of range is undefined.

    Returns
    -------
    Tensor
        The loss, in the dtype of the scores. For half-precision scores it is computed and
        returned in float32.

    Raises
    ------
    TypeError, ValueError
        If the loss, a parameter, or the type, shape or range of a tensor is invalid.

    Notes
    -----
    Of the losses in the table, only "constrained_exp" can be infinite. This happens where `e^h`
    of a wrong label exceeds the largest number of the dtype, for example for a centered float32
    score above 88. The gradient is then not finite either.

    Examples
    --------
    >>> scores = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    >>> constrained(scores, torch.tensor([0, 2]))
    tensor(1.8222)
    >>> constrained(scores, torch.tensor([0, 2]), "hinge", reduction="none")
    tensor([0.6667, 2.3333])
    """
    record = find_loss(loss, "constrained", rho, reduction)
    scores = prepare_scores(scores, min_classes=2)
    labels = prepare_labels(labels, scores, validate=validate)
    weights = torch.ones_like(scores).scatter(-1, labels.unsqueeze(-1), 0.0)
    return reduce(weighted_phi(record, weights, _center(scores)).sum(dim=-1), reduction)


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

    The loss is `sum_k c(x, k, y) Phi(-r(x, k))` with `sum_k r(x, k) = 0`. If one label has cost 0
    and all others have cost 1, it equals `constrained`.

    Parameters
    ----------
    scores : Tensor of shape (..., n)
        Floating-point scores `r(x, .)` of the members of a family of sets, at least one. Their
        mean over the last axis is subtracted.
    costs : Tensor of shape (..., n)
        Costs `c(x, ., y)` in [0, 1]. They receive no gradient, and their dtype does not affect
        the dtype of the loss.
    loss : str, default="constrained_exp"
        A loss of the table in `constrained`, or a loss registered with `register_loss`.
    rho : float, default=1.0
        Margin of the loss "margin", above 0.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples. "none" keeps the shape `(...)`.
    validate : bool, default=True
        Whether to check the range of the costs. The check waits for the device.

    Returns
    -------
    Tensor
        The loss, in the dtype of the scores. For half-precision scores it is computed and
        returned in float32.

    Raises
    ------
    TypeError, ValueError
        If the loss, a parameter, or the type, shape or range of a tensor is invalid.

    Notes
    -----
    A cost of exactly 0 contributes exactly 0 and no gradient, even where Phi overflows. Of the
    paper's losses, only "constrained_exp" can be infinite, where the weighted sum exceeds the
    largest number of the dtype.

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
    scores = prepare_scores(scores, min_classes=1)
    weights = prepare_costs(costs, scores, validate=validate).to(scores.dtype)
    return reduce(weighted_phi(record, weights, _center(scores)).sum(dim=-1), reduction)


def _center(scores: Tensor) -> Tensor:
    """Subtract the mean over the last axis."""
    # The mean is subtracted twice, because the first mean contains the rounding error of a large
    # offset that is common to all scores. The result does not depend on that offset, so the
    # first mean needs no gradient.
    scores = scores - scores.detach().mean(dim=-1, keepdim=True)
    return scores - scores.mean(dim=-1, keepdim=True)


class _ConstrainedModule(LossModule):
    """Base class of the two constrained modules."""

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
        "constrained_exp", "squared_hinge", "hinge", "margin", or a constrained loss registered
        with `register_loss`.
    rho : float, default=1.0
        Margin of the loss "margin", above 0.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples.
    validate : bool, default=True
        Whether each call checks the range of the labels. The check waits for the device.

    Examples
    --------
    >>> ConstrainedLoss("margin", rho=0.5)
    ConstrainedLoss('margin', rho=0.5, reduction='mean')
    >>> ConstrainedLoss("hinge")(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]))
    tensor(0.6667)
    """

    function = staticmethod(constrained)


class CostSensitiveConstrainedLoss(_ConstrainedModule):
    """Compute `cost_sensitive_constrained` as a module.

    Parameters
    ----------
    loss : str, default="constrained_exp"
        "constrained_exp", "squared_hinge", "hinge", "margin", or a constrained loss registered
        with `register_loss`.
    rho : float, default=1.0
        Margin of the loss "margin", above 0.
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples.
    validate : bool, default=True
        Whether each call checks the range of the costs. The check waits for the device.

    Examples
    --------
    >>> CostSensitiveConstrainedLoss("hinge", validate=False)
    CostSensitiveConstrainedLoss('hinge', reduction='mean', validate=False)
    >>> loss = CostSensitiveConstrainedLoss("constrained_exp")
    >>> loss(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([[0.0, 0.8, 0.6]]))
    tensor(0.7314)
    """

    function = staticmethod(cost_sensitive_constrained)
