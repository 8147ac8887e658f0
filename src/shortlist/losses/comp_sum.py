"""Comp-sum losses: `Phi` of a sum of exponentials, for a label or weighted by costs.

With `u_k = sum_{k' != k} exp(r_k' - r_k)` and `S = softmax(r)`, `1 + u_k = 1 / S_k`. Every loss
is computed from `t = log(1 + u) = -log S`, which never overflows.
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


def comp_sum(
    scores: Tensor,
    labels: Tensor,
    loss: str = "log",
    *,
    q: float = 0.7,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """Return the comp-sum loss of a classifier.

    The loss is `Phi(u)` with `u = sum_{y' != y} exp(h(x, y') - h(x, y))`.

    ===== ====================== ================== =====================================
    loss  Phi(u)                 on the softmax     also known as
    ===== ====================== ================== =====================================
    log   log(1 + u)             -log S_y           (multinomial) logistic, cross-entropy
    exp   u                      1 / S_y - 1        sum-exponential
    gce   (1 - (1 + u)^-q) / q   (1 - S_y^q) / q    generalized cross-entropy
    mae   1 - 1 / (1 + u)        1 - S_y            mean absolute error
    ===== ====================== ================== =====================================

    Parameters
    ----------
    scores : floating Tensor of shape (..., n)
        Scores `h(x, .)` of at least two labels.
    labels : integer Tensor of shape (...)
        Labels y, from 0 to n - 1.
    loss : str, default="log"
        A loss of the table, or one of your own (`register_loss`).
    q : float, default=0.7
        Exponent of "gce", in (0, 1). The limits 0 and 1 are "log" and "mae".
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
    Values and gradients keep their relative precision for any u, however small or large.
    Only "exp" can be infinite: where u itself exceeds the largest number of its dtype
    (a gap of 88 between two scores in float32). Its gradient is then not finite either.

    Examples
    --------
    >>> scores = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    >>> comp_sum(scores, torch.tensor([0, 2]))
    tensor(0.8606)
    >>> comp_sum(scores, torch.tensor([0, 2]), "mae", reduction="none")
    tensor([0.1562, 0.7881])
    """
    record = find_loss(loss, "comp_sum", q, reduction)
    return reduce(_label_losses(record, scores, labels, validate), reduction)


def cost_sensitive_comp_sum(
    scores: Tensor,
    costs: Tensor,
    loss: str = "log",
    *,
    q: float = 0.7,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """Return the cost-sensitive comp-sum loss of a selector.

    The loss is `sum_k (1 - c(x, k, y)) Phi(u_k)` with
    `u_k = sum_{k' != k} exp(r(x, k') - r(x, k))`. `comp_sum` is the special case of cost 0 at
    one label and cost 1 elsewhere.

    Parameters
    ----------
    scores : floating Tensor of shape (..., n)
        Scores `r(x, .)` of at least one member.
    costs : Tensor of shape (..., n)
        Costs `c(x, ., y)` in [0, 1]. They are data: no gradient flows to them, and their dtype
        does not change that of the loss.
    loss : str, default="log"
        A loss of the table in `comp_sum`, or one of your own (`register_loss`).
    q : float, default=0.7
        Exponent of "gce", in (0, 1).
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
    A cost of exactly 1 adds exactly 0, with no gradient, even where Phi overflows. Only
    "exp" can be infinite: where the weighted sum exceeds the largest number of its dtype.

    Examples
    --------
    >>> scores = torch.tensor([[2.0, 0.0, -1.0]])
    >>> cost_sensitive_comp_sum(scores, torch.tensor([[1.0, 0.2, 0.4]]))
    tensor(3.6378)
    >>> cost_sensitive_comp_sum(scores, torch.tensor([[0, 1, 1]])) == comp_sum(
    ...     scores, torch.tensor([0])
    ... )
    tensor(True)
    """
    record = find_loss(loss, "comp_sum", q, reduction)
    return reduce(_cost_losses(record, scores, costs, validate), reduction)


def _log1p_u(scores: Tensor) -> Tensor:
    """Return `t_k = log(1 + u_k) = -log S_k` for every k, to full relative precision.

    The leading score enters as the 1 of `log1p`. `log_softmax` adds it to the sum before it
    takes the logarithm, and so returns 0 for every `u` below 6e-8 in float32.
    """
    top, at = scores.max(dim=-1, keepdim=True)
    # Set to 0, not left to be 0: else +1 and -1 would cancel in the leading score's gradient.
    lags = (scores - top).scatter(-1, at, 0.0)
    others = torch.exp(lags).scatter(-1, at, 0.0).sum(dim=-1, keepdim=True)
    return torch.log1p(others) - lags


def _label_losses(record: SurrogateLoss, scores: Tensor, labels: Tensor, validate: bool) -> Tensor:
    """Return the loss of each example for its label."""
    scores = prepare_scores(scores, at_least=2)
    labels = prepare_labels(labels, scores, validate=validate)
    return record.phi(_log1p_u(scores).gather(-1, labels.unsqueeze(-1)).squeeze(-1))


def _cost_losses(record: SurrogateLoss, scores: Tensor, costs: Tensor, validate: bool) -> Tensor:
    """Return the loss of each example for its costs."""
    scores = prepare_scores(scores, at_least=1)
    # 1 - c before the cast: a float64 cost just below 1 keeps its weight in float32.
    weights = (1 - prepare_costs(costs, scores, validate=validate)).to(scores.dtype)
    return weighted_phi(record, weights, _log1p_u(scores)).sum(dim=-1)


class _CompSumModule(LossModule):
    """Base of the two comp-sum modules."""

    family: ClassVar[Literal["comp_sum"]] = "comp_sum"
    q: float

    def __init__(
        self,
        loss: str = "log",
        *,
        q: float = 0.7,
        reduction: str = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(loss, q, reduction, validate)


class CompSumLoss(_CompSumModule):
    """Compute `comp_sum` as a module.

    Parameters
    ----------
    loss : str, default="log"
        "log", "exp", "gce", "mae", or a comp-sum loss of your own (`register_loss`).
    q : float, default=0.7
        Exponent of "gce", in (0, 1).
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples.
    validate : bool, default=True
        Check the range of the labels at each call, which waits for the device.

    Examples
    --------
    >>> CompSumLoss("gce", q=0.5)
    CompSumLoss('gce', q=0.5, reduction='mean')
    >>> CompSumLoss("mae")(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]))
    tensor(0.1562)
    """

    def _losses(self, scores: Tensor, target: Tensor) -> Tensor:
        return _label_losses(self.record, scores, target, self.validate)


class CostSensitiveCompSumLoss(_CompSumModule):
    """Compute `cost_sensitive_comp_sum` as a module.

    Parameters
    ----------
    loss : str, default="log"
        "log", "exp", "gce", "mae", or a comp-sum loss of your own (`register_loss`).
    q : float, default=0.7
        Exponent of "gce", in (0, 1).
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples.
    validate : bool, default=True
        Check the range of the costs at each call, which waits for the device.

    Examples
    --------
    >>> CostSensitiveCompSumLoss("log", reduction="sum")
    CostSensitiveCompSumLoss('log', reduction='sum')
    >>> loss = CostSensitiveCompSumLoss("log")
    >>> loss(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([[1.0, 0.2, 0.4]]))
    tensor(3.6378)
    """

    def _losses(self, scores: Tensor, target: Tensor) -> Tensor:
        return _cost_losses(self.record, scores, target, self.validate)
