"""Comp-sum losses: `Phi` of a sum of exponentials, for a label or weighted by costs.

With `u_k = sum_{k' != k} exp(r_k' - r_k)` and `S = softmax(r)`, `1 + u_k = 1 / S_k`; every
kind is computed from `t = log(1 + u) = -log S`, which never overflows.
"""

from __future__ import annotations

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

COMP_SUM_KINDS = ("log", "exp", "gce", "mae")


def comp_sum(
    scores: Tensor,
    labels: Tensor,
    kind: str = "log",
    *,
    q: float = 0.7,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """Comp-sum loss of a classifier: `Phi(u)`, `u = sum_{y' != y} exp(h(x, y') - h(x, y))`.

    ===== ====================== ================== =====================================
    kind  Phi(u)                 on the softmax     also known as
    ===== ====================== ================== =====================================
    log   log(1 + u)             -log S_y           (multinomial) logistic, cross-entropy
    exp   u                      1 / S_y - 1        sum-exponential
    gce   (1 - (1 + u)^-q) / q   (1 - S_y^q) / q    generalised cross-entropy
    mae   1 - 1 / (1 + u)        1 - S_y            mean absolute error
    ===== ====================== ================== =====================================

    Parameters
    ----------
    scores : (..., n) floating tensor
        `h(x, .)`, floating, shape `(..., n)` with `n >= 2`. Half and bfloat16
        scores are computed, and the loss returned, in float32.
    labels : (...) integer tensor
        `y`, integer, shape `(...)`, from 0 to `n - 1`.
    kind : str
        `"log"`, `"exp"`, `"gce"` or `"mae"`.
    q : float
        Exponent of `"gce"`, in (0, 1): towards 0 it is `"log"`, towards 1 `"mae"`.
    reduction : str
        `"mean"` or `"sum"` over all examples, or `"none"`: shape `(...)`.
    validate : bool
        Check the range of the labels, which waits for the device. Without it a label
        out of range is undefined behaviour.

    Notes
    -----
    Values and gradients keep their relative precision for any `u`, however small or large.
    Only `"exp"` can be infinite: where `u` itself exceeds the largest number of its dtype
    (a gap of 88 between two scores in float32). Its gradient is then not finite either.

    Examples
    --------
    >>> scores = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    >>> comp_sum(scores, torch.tensor([0, 2]))
    tensor(0.8606)
    >>> comp_sum(scores, torch.tensor([0, 2]), "mae", reduction="none")
    tensor([0.1562, 0.7881])
    """
    _check_arguments(kind, q, reduction)
    scores = prepare_scores(scores, at_least=2)
    labels = prepare_labels(labels, scores, validate=validate)
    t = _log1p_u(scores).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return reduce(_phi(t, kind, q), reduction)


def cost_sensitive_comp_sum(
    scores: Tensor,
    costs: Tensor,
    kind: str = "log",
    *,
    q: float = 0.7,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """Cost-sensitive comp-sum loss of a selector: `sum_k (1 - c(x, k, y)) Phi(u_k)`.

    `u_k = sum_{k' != k} exp(r(x, k') - r(x, k))`, and `Phi` is as in `comp_sum`, which
    is the case of cost 0 at one label and 1 elsewhere.

    Parameters
    ----------
    scores : (..., n) floating tensor
        `r(x, .)`, floating, shape `(..., n)` with `n >= 1`. Half and bfloat16
        scores are computed, and the loss returned, in float32.
    costs : (..., n) tensor
        `c(x, ., y)` in [0, 1], the shape of the scores. They are data: no gradient
        flows to them, and their dtype does not change that of the loss.
    kind : str
        `"log"`, `"exp"`, `"gce"` or `"mae"`.
    q : float
        Exponent of `"gce"`, in (0, 1).
    reduction : str
        `"mean"` or `"sum"` over all examples, or `"none"`: shape `(...)`.
    validate : bool
        Check the range of the costs, which waits for the device.

    Notes
    -----
    A cost of exactly 1 adds exactly 0, with no gradient, even where `Phi` overflows. Only
    `"exp"` can be infinite: where the weighted sum exceeds the largest number of its dtype.

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
    _check_arguments(kind, q, reduction)
    scores = prepare_scores(scores, at_least=1)
    # 1 - c before the cast: a float64 cost just below 1 keeps its weight in float32.
    weights = (1 - prepare_costs(costs, scores, validate=validate)).to(scores.dtype)
    phi = partial(_phi, kind=kind, q=q)
    losses = weigh(weights, _log1p_u(scores), phi, exponential=kind == "exp").sum(dim=-1)
    return reduce(losses, reduction)


def _log1p_u(scores: Tensor) -> Tensor:
    """`t_k = log(1 + u_k) = -log S_k` for every `k`, to full relative precision.

    The leading score enters as the 1 of `log1p`. `log_softmax` adds it to the sum before it
    takes the logarithm, and so returns 0 for every `u` below 6e-8 in float32.
    """
    top, at = scores.max(dim=-1, keepdim=True)
    # Set to 0, not left to be 0: else +1 and -1 would cancel in the leading score's gradient.
    lags = (scores - top).scatter(-1, at, 0.0)
    others = torch.exp(lags).scatter(-1, at, 0.0).sum(dim=-1, keepdim=True)
    return torch.log1p(others) - lags


def _phi(t: Tensor, kind: str, q: float) -> Tensor:
    """`Phi(u)` as a function of `t = log(1 + u)`."""
    match kind:
        case "log":
            return t
        case "exp":
            return torch.expm1(t)
        case "gce":
            return _one_minus_exp(q * t) / q
        case _:  # "mae"
            return _one_minus_exp(t)


def _one_minus_exp(t: Tensor) -> Tensor:
    """`1 - e^-t` for `t >= 0`, precise at both ends in value and gradient."""
    # expm1 takes its gradient from its value, 1 - (1 - e^-t): 0 or noise for a large t, where
    # a mislabelled or hard example still needs its small gradient.
    return torch.where(t < 1, -torch.expm1(-t), 1 - torch.exp(-t))


def _check_arguments(kind: str, q: float, reduction: str) -> None:
    check_choice(kind, "kind", COMP_SUM_KINDS)
    check_between("q", q, 0, 1, "a number strictly between 0 and 1")
    check_choice(reduction, "reduction", REDUCTIONS)


class _CompSumModule(SurrogateLoss):
    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        kind: str = "log",
        *,
        q: float = 0.7,
        reduction: str = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__()
        _check_arguments(kind, q, reduction)
        self.kind = kind
        self.q = q
        self.reduction = reduction
        self.validate = validate

    @property
    def unbounded_gradient(self) -> bool:
        """True for `"exp"`: its gradient is as large as the loss."""
        return self.kind == "exp"

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """The loss of `scores` (..., n) for `target`: labels (...), or costs (..., n)."""
        return self.function(
            scores,
            target,
            self.kind,
            q=self.q,
            reduction=self.reduction,
            validate=self.validate,
        )

    def extra_repr(self) -> str:
        return self._describe(f"q={self.q}" if self.kind == "gce" else "")


class CompSumLoss(_CompSumModule):
    """`comp_sum` as a module.

    >>> CompSumLoss("gce", q=0.5)
    CompSumLoss('gce', q=0.5, reduction='mean')
    >>> CompSumLoss("mae")(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]))
    tensor(0.1562)
    """

    function = staticmethod(comp_sum)


class CostSensitiveCompSumLoss(_CompSumModule):
    """`cost_sensitive_comp_sum` as a module.

    >>> CostSensitiveCompSumLoss("log", reduction="sum")
    CostSensitiveCompSumLoss('log', reduction='sum')
    >>> loss = CostSensitiveCompSumLoss("log")
    >>> loss(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([[1.0, 0.2, 0.4]]))
    tensor(3.6378)
    """

    function = staticmethod(cost_sensitive_comp_sum)
