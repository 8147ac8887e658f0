"""Constrained losses: `Phi` of each score but the label's, the scores made to sum to zero.

The constraint `sum_k r_k = 0` is met by centring the scores inside the loss, so that any
network can be trained with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from shortlist._utils.arrays import check_choice
from shortlist.losses.common import (
    REDUCTIONS,
    SurrogateLoss,
    check_between,
    prepare_costs,
    prepare_labels,
    prepare_scores,
    reduce,
    weigh,
)

CONSTRAINED_KINDS = ("exp", "squared_hinge", "hinge", "margin")


def constrained(
    scores: Tensor,
    labels: Tensor,
    kind: str = "exp",
    *,
    rho: float = 1.0,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """Constrained loss of a classifier: `sum_{y' != y} Phi(-h(x, y'))`, `sum_y h(x, y) = 0`.

    ============= ============================== ================
    kind          Phi(-h)                        Phi(t)
    ============= ============================== ================
    exp           e^h                            e^-t
    squared_hinge max(0, 1 + h)^2                max(0, 1 - t)^2
    hinge         max(0, 1 + h)                  max(0, 1 - t)
    margin        min(max(0, 1 + h / rho), 1)    rho-margin
    ============= ============================== ================

    Parameters
    ----------
    scores : (..., n) floating tensor
        `h(x, .)`, floating, shape `(..., n)` with `n >= 2`; their mean over the
        last axis is subtracted first. Half and bfloat16 scores are computed, and the loss
        returned, in float32.
    labels : (...) integer tensor
        `y`, integer, shape `(...)`, from 0 to `n - 1`.
    kind : str
        `"exp"`, `"squared_hinge"`, `"hinge"` or `"margin"`.
    rho : float
        The margin of `"margin"`, above 0.
    reduction : str
        `"mean"` or `"sum"` over all examples, or `"none"`: shape `(...)`.
    validate : bool
        Check the range of the labels, which waits for the device. Without it a label
        out of range is undefined behaviour.

    Notes
    -----
    Only `"exp"` can be infinite: where `e^h` of a wrong label exceeds the largest number of
    its dtype (a centred score of 88 in float32). Its gradient is then not finite either.

    Examples
    --------
    >>> scores = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    >>> constrained(scores, torch.tensor([0, 2]))
    tensor(1.8222)
    >>> constrained(scores, torch.tensor([0, 2]), "hinge", reduction="none")
    tensor([0.6667, 2.3333])
    """
    _check_arguments(kind, rho, reduction)
    scores = prepare_scores(scores, at_least=2)
    labels = prepare_labels(labels, scores, validate=validate)
    weights = torch.ones_like(scores).scatter(-1, labels.unsqueeze(-1), 0.0)
    return _weighted(scores, weights, kind, rho, reduction)


def cost_sensitive_constrained(
    scores: Tensor,
    costs: Tensor,
    kind: str = "exp",
    *,
    rho: float = 1.0,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """Cost-sensitive constrained loss of a selector: `sum_k c(x, k, y) Phi(-r(x, k))`.

    With `sum_k r(x, k) = 0`, and `Phi` as in `constrained`, which is the case of cost 0
    at one label and 1 elsewhere.

    Parameters
    ----------
    scores : (..., n) floating tensor
        `r(x, .)`, floating, shape `(..., n)` with `n >= 1`; their mean over the
        last axis is subtracted first. Half and bfloat16 scores are computed, and the loss
        returned, in float32.
    costs : (..., n) tensor
        `c(x, ., y)` in [0, 1], the shape of the scores. They are data: no gradient
        flows to them, and their dtype does not change that of the loss.
    kind : str
        `"exp"`, `"squared_hinge"`, `"hinge"` or `"margin"`.
    rho : float
        The margin of `"margin"`, above 0.
    reduction : str
        `"mean"` or `"sum"` over all examples, or `"none"`: shape `(...)`.
    validate : bool
        Check the range of the costs, which waits for the device.

    Notes
    -----
    A cost of exactly 0 adds exactly 0, with no gradient, even where `Phi` overflows. Only
    `"exp"` can be infinite: where the weighted sum exceeds the largest number of its dtype.

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
    _check_arguments(kind, rho, reduction)
    scores = prepare_scores(scores, at_least=1)
    weights = prepare_costs(costs, scores, validate=validate).to(scores.dtype)
    return _weighted(scores, weights, kind, rho, reduction)


def _weighted(scores: Tensor, weights: Tensor, kind: str, rho: float, reduction: str) -> Tensor:
    phi = partial(_phi, kind=kind, rho=rho)
    losses = weigh(weights, _centre(scores), phi, exponential=kind == "exp").sum(dim=-1)
    return reduce(losses, reduction)


def _centre(scores: Tensor) -> Tensor:
    """The scores less their mean over the last axis."""
    # Twice: a large offset common to all scores leaves its rounding in the first mean. The
    # result does not depend on that offset, so no gradient needs to flow through it.
    scores = scores - scores.detach().mean(dim=-1, keepdim=True)
    return scores - scores.mean(dim=-1, keepdim=True)


def _phi(r: Tensor, kind: str, rho: float) -> Tensor:
    """`Phi(-r)` of a centred score."""
    match kind:
        case "exp":
            return torch.exp(r)
        case "squared_hinge":
            return (1 + r).clamp(min=0).square()
        case "hinge":
            return (1 + r).clamp(min=0)
        case _:  # "margin"; clamp's slope at its ends is 1, so that a start at r = 0 can learn
            return (1 + r / rho).clamp(min=0, max=1)


def _check_arguments(kind: str, rho: float, reduction: str) -> None:
    check_choice(kind, "kind", CONSTRAINED_KINDS)
    check_between("rho", rho, 0, math.inf, "a finite number above 0")
    check_choice(reduction, "reduction", REDUCTIONS)


class _ConstrainedModule(SurrogateLoss):
    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        kind: str = "exp",
        *,
        rho: float = 1.0,
        reduction: str = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__()
        _check_arguments(kind, rho, reduction)
        self.kind = kind
        self.rho = rho
        self.reduction = reduction
        self.validate = validate

    @property
    def unbounded_gradient(self) -> bool:
        """True for `"exp"` and `"squared_hinge"`: their slope grows with the scores."""
        return self.kind in ("exp", "squared_hinge")

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """The loss of `scores` (..., n) for `target`: labels (...), or costs (..., n)."""
        return self.function(
            scores,
            target,
            self.kind,
            rho=self.rho,
            reduction=self.reduction,
            validate=self.validate,
        )

    def extra_repr(self) -> str:
        return self._describe(f"rho={self.rho}" if self.kind == "margin" else "")


class ConstrainedLoss(_ConstrainedModule):
    """`constrained` as a module.

    >>> ConstrainedLoss("margin", rho=0.5)
    ConstrainedLoss('margin', rho=0.5, reduction='mean')
    >>> ConstrainedLoss("hinge")(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]))
    tensor(0.6667)
    """

    function = staticmethod(constrained)


class CostSensitiveConstrainedLoss(_ConstrainedModule):
    """`cost_sensitive_constrained` as a module.

    >>> CostSensitiveConstrainedLoss("exp", validate=False)
    CostSensitiveConstrainedLoss('exp', reduction='mean', validate=False)
    >>> loss = CostSensitiveConstrainedLoss("exp")
    >>> loss(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([[0.0, 0.8, 0.6]]))
    tensor(0.7314)
    """

    function = staticmethod(cost_sensitive_constrained)
