"""Comp-sum losses: `Phi` of a sum of exponentials, for labels or for costs.

Let `u_k = sum_{k' != k} exp(r_k' - r_k)` and `S = softmax(r)`. Then `1 + u_k = 1 / S_k`. Every
loss is computed from `t = log(1 + u) = -log S`, which does not overflow.
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
    scores : Tensor of shape (..., n)
        Floating-point scores `h(x, .)` of at least two labels.
    labels : Tensor of shape (...)
        Integer labels y, from 0 to n - 1.
    loss : str, default="log"
        A loss of the table above, or a loss registered with `register_loss`.
    q : float, default=0.7
        Exponent of "gce", in (0, 1). "gce" tends to "log" as q -> 0, and to "mae" as q -> 1.
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
    Values and gradients keep their relative precision for every u, however small or large.
    Of the losses in the table, only "exp" can be infinite. This happens where u exceeds the
    largest number of the dtype, for example for two float32 scores that differ by more than 88.
    The gradient is then not finite either.

    Examples
    --------
    >>> scores = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    >>> comp_sum(scores, torch.tensor([0, 2]))
    tensor(0.8606)
    >>> comp_sum(scores, torch.tensor([0, 2]), "mae", reduction="none")
    tensor([0.1562, 0.7881])
    """
    record = find_loss(loss, "comp_sum", q, reduction)
    scores = prepare_scores(scores, min_classes=2)
    labels = prepare_labels(labels, scores, validate=validate)
    t = _log1p_u(scores).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return reduce(record.phi(t), reduction)


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
    `u_k = sum_{k' != k} exp(r(x, k') - r(x, k))`. If one label has cost 0 and all others have
    cost 1, it equals `comp_sum`.

    Parameters
    ----------
    scores : Tensor of shape (..., n)
        Floating-point scores `r(x, .)` of the members of a family of sets, at least one.
    costs : Tensor of shape (..., n)
        Costs `c(x, ., y)` in [0, 1]. They receive no gradient, and their dtype does not affect
        the dtype of the loss.
    loss : str, default="log"
        A loss of the table in `comp_sum`, or a loss registered with `register_loss`.
    q : float, default=0.7
        Exponent of "gce", in (0, 1).
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
    A cost of exactly 1 contributes exactly 0 and no gradient, even where Phi overflows. Of the
    paper's losses, only "exp" can be infinite, where the weighted sum exceeds the largest number
    of the dtype.

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
    scores = prepare_scores(scores, min_classes=1)
    # Subtract before the cast, so that a float64 cost just below 1 keeps its weight in float32.
    weights = (1 - prepare_costs(costs, scores, validate=validate)).to(scores.dtype)
    return reduce(weighted_phi(record, weights, _log1p_u(scores)).sum(dim=-1), reduction)


def _log1p_u(scores: Tensor) -> Tensor:
    """Return `t_k = log(1 + u_k) = -log S_k` for every k, to full relative precision.

    `log_softmax` is less precise: it returns 0 for every `u` below 6e-8 in float32, because it
    adds the exponential of the largest score, which is 1, to the sum before it takes the
    logarithm. Here that 1 is the 1 of `log1p`.
    """
    top, top_index = scores.max(dim=-1, keepdim=True)
    # The zero at the largest score is written explicitly. Otherwise the gradient of that score
    # would contain +1 and -1, which cancel.
    differences = (scores - top).scatter(-1, top_index, 0.0)
    others = torch.exp(differences).scatter(-1, top_index, 0.0).sum(dim=-1, keepdim=True)
    return torch.log1p(others) - differences


class _CompSumModule(LossModule):
    """Base class of the two comp-sum modules."""

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
        "log", "exp", "gce", "mae", or a comp-sum loss registered with `register_loss`.
    q : float, default=0.7
        Exponent of "gce", in (0, 1).
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples.
    validate : bool, default=True
        Whether each call checks the range of the labels. The check waits for the device.

    Examples
    --------
    >>> CompSumLoss("gce", q=0.5)
    CompSumLoss('gce', q=0.5, reduction='mean')
    >>> CompSumLoss("mae")(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]))
    tensor(0.1562)
    """

    function = staticmethod(comp_sum)


class CostSensitiveCompSumLoss(_CompSumModule):
    """Compute `cost_sensitive_comp_sum` as a module.

    Parameters
    ----------
    loss : str, default="log"
        "log", "exp", "gce", "mae", or a comp-sum loss registered with `register_loss`.
    q : float, default=0.7
        Exponent of "gce", in (0, 1).
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples.
    validate : bool, default=True
        Whether each call checks the range of the costs. The check waits for the device.

    Examples
    --------
    >>> CostSensitiveCompSumLoss("log", reduction="sum")
    CostSensitiveCompSumLoss('log', reduction='sum')
    >>> loss = CostSensitiveCompSumLoss("log")
    >>> loss(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([[1.0, 0.2, 0.4]]))
    tensor(3.6378)
    """

    function = staticmethod(cost_sensitive_comp_sum)
