"""What both families of losses share: the checks, the weights and the reduction."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor, nn

REDUCTIONS = ("mean", "sum", "none")

# From here on e^t - 1 and e^t are the same number, even in float64 (e^-40 is below half an ulp),
# and e^40 times any weight is still far from overflow in float32.
_FAR = 40.0


class SurrogateLoss(nn.Module, ABC):
    """Base of the loss modules: holds the arguments of the function that does the work.

    A loss is called on `(scores, labels)` or, when it is cost-sensitive, `(scores, costs)`.

    >>> from shortlist.losses import CompSumLoss
    >>> isinstance(CompSumLoss("log"), SurrogateLoss)
    True
    """

    kind: str
    reduction: str
    validate: bool

    @property
    @abstractmethod
    def unbounded_gradient(self) -> bool:
        """Whether the gradient grows without bound with the scores (training then clips it)."""

    @abstractmethod
    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """The loss of `scores` for `target`: labels, or costs of the same shape as scores."""

    def _describe(self, parameter: str = "") -> str:
        parts = [repr(self.kind), parameter, f"reduction={self.reduction!r}"]
        parts += [] if self.validate else ["validate=False"]
        return ", ".join(part for part in parts if part)


def weigh(
    weights: Tensor, t: Tensor, phi: Callable[[Tensor], Tensor], *, exponential: bool
) -> Tensor:
    """`weights * phi(t)`, elementwise; a weight of 0 gives 0 and no gradient, whatever `t`.

    `exponential` says that `phi(t)` is `e^t` up to a constant: it may overflow although
    the product does not.
    """
    # Masked before phi, not after: 0 * inf is NaN in the value, and again in the gradient.
    absent = weights <= 0
    t = t.masked_fill(absent, 0.0)
    if not exponential:
        return weights * phi(t)
    far = t > _FAR
    near_product = weights * phi(t.masked_fill(far, 0.0))
    far_product = torch.exp(t + weights.masked_fill(absent, 1.0).log())
    return torch.where(far, far_product, near_product)


def reduce(losses: Tensor, reduction: str) -> Tensor:
    """Reduce the losses of all examples to one number, or keep them."""
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()


def check_between(what: str, value: float, low: float, high: float, advice: str) -> None:
    """Refuse a parameter outside the open interval from `low` to `high`."""
    if not isinstance(value, Real):
        raise TypeError(f"{what}={value!r} is a {type(value).__name__}; {what} must be {advice}")
    if not low < value < high or math.isnan(value):
        raise ValueError(f"{what}={value!r} is out of range; {what} must be {advice}")


def prepare_scores(scores: Tensor, *, at_least: int) -> Tensor:
    """Check the scores; half precision becomes float32."""
    _check_tensor("scores", scores)
    if not scores.is_floating_point():
        raise TypeError(f"scores are {scores.dtype}; pass floating-point scores (scores.float())")
    if scores.ndim == 0 or scores.shape[-1] < at_least:
        raise ValueError(
            f"scores have shape {tuple(scores.shape)}; the last axis holds one score per class "
            f"and must have at least {at_least}"
        )
    return scores.float() if torch.finfo(scores.dtype).bits < 32 else scores


def prepare_labels(labels: Tensor, scores: Tensor, *, validate: bool) -> Tensor:
    """Check the labels; they come back as indices into the last axis of the scores."""
    _check_tensor("labels", labels)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels are {labels.dtype}; pass integer class indices (labels.long())")
    _check_shape("labels", labels, tuple(scores.shape[:-1]), scores)
    n = scores.shape[-1]
    if validate:
        _check_all(
            "labels",
            labels,
            (labels >= 0) & (labels < n),
            f"is out of range: labels must be from 0 to {n - 1}, as scores have {n} classes",
        )
    return labels.long()


def prepare_costs(costs: Tensor, scores: Tensor, *, validate: bool) -> Tensor:
    """Check the costs; they come back in the wider of their own precision and the scores'."""
    _check_tensor("costs", costs)
    if costs.is_complex():
        raise TypeError(f"costs are {costs.dtype}; pass real costs")
    _check_shape("costs", costs, tuple(scores.shape), scores)
    if validate:
        _check_all(
            "costs",
            costs,
            (costs >= 0) & (costs <= 1),
            "is not in [0, 1]: divide by 1 + cost_weight * cost(largest size)",
        )
    return costs.detach().to(torch.promote_types(costs.dtype, scores.dtype))


def _check_tensor(what: str, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        raise TypeError(f"{what} is a {kind}; pass a tensor: torch.as_tensor({what})")


def _check_shape(what: str, value: Tensor, expected: tuple[int, ...], scores: Tensor) -> None:
    if tuple(value.shape) != expected:
        raise ValueError(
            f"{what} have shape {tuple(value.shape)} but scores have shape {tuple(scores.shape)}; "
            f"{what} must have shape {expected}"
        )
    if value.device != scores.device:
        raise ValueError(
            f"{what} are on {value.device} but scores are on {scores.device}; "
            f"move them: {what}.to(scores.device)"
        )


def _check_all(what: str, values: Tensor, good: Tensor, complaint: str) -> None:
    """Refuse the first of `values` that is not good. Waits for the device."""
    if bool(good.all()):
        return
    position: list[int] = (~good).nonzero()[0].tolist()
    raise ValueError(f"{what}{position or ''} = {values[tuple(position)].item()} {complaint}")
