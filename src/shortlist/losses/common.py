"""The parts that both families of losses share: checks, weights, reduction, the module base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from shortlist._utils.validation import check_choice
from shortlist.losses.record import FAMILY_PARAMETERS, Family, SurrogateLoss
from shortlist.losses.registry import loss_entry

REDUCTIONS = ("mean", "sum", "none")

# From here on e^t - 1 and e^t are the same number, even in float64 (e^-40 is below half an ulp),
# and e^40 times any weight is still far from overflow in float32.
_FAR = 40.0


def weighted_phi(loss: SurrogateLoss, weights: Tensor, t: Tensor) -> Tensor:
    """Return `weights * phi(t)`, elementwise.

    A weight of 0 gives 0 and no gradient for every `t`, even where phi overflows.
    """
    # Masked before phi, not after: 0 * inf is NaN in the value, and again in the gradient.
    absent = weights <= 0
    t = t.masked_fill(absent, 0.0)
    if not loss.exponential:
        return weights * loss.phi(t)
    far = t > _FAR
    near_product = weights * loss.phi(t.masked_fill(far, 0.0))
    far_product = torch.exp(t + weights.masked_fill(absent, 1.0).log())
    return torch.where(far, far_product, near_product)


def reduce(losses: Tensor, reduction: str) -> Tensor:
    """Reduce the losses of all examples to one number, or keep them."""
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()


def find_loss(loss: str, family: Family, parameter: float, reduction: str) -> SurrogateLoss:
    """Check the arguments of a loss of a family; return its record."""
    entry = loss_entry(loss, family)
    record = entry.record(parameter)
    check_choice(reduction, "reduction", REDUCTIONS)
    return record


def prepare_scores(scores: Tensor, *, at_least: int) -> Tensor:
    """Check the scores; convert half precision to float32."""
    _check_tensor("scores", scores)
    if not scores.is_floating_point():
        raise TypeError(f"scores are {scores.dtype}; pass floating-point scores (scores.float())")
    if scores.ndim == 0 or scores.shape[-1] < at_least:
        raise ValueError(
            f"scores have shape {tuple(scores.shape)}; the last axis has one score per class "
            f"and must have at least {at_least}"
        )
    return scores.float() if torch.finfo(scores.dtype).bits < 32 else scores


def prepare_labels(labels: Tensor, scores: Tensor, *, validate: bool) -> Tensor:
    """Check the labels; return them as indices into the last axis of the scores."""
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
    """Check the costs; return them in the wider of their own precision and the scores'."""
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
    """Raise an error unless the value is a tensor."""
    if not isinstance(value, Tensor):
        name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        raise TypeError(f"{what} is a {name}; pass a tensor: torch.as_tensor({what})")


def _check_shape(what: str, value: Tensor, expected: tuple[int, ...], scores: Tensor) -> None:
    """Raise an error unless the value has the expected shape and the device of the scores."""
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
    """Raise an error for the first value that is not good. Waits for the device."""
    if bool(good.all()):
        return
    position: list[int] = (~good).nonzero()[0].tolist()
    raise ValueError(f"{what}{position or ''} = {values[tuple(position)].item()} {complaint}")


class LossModule(nn.Module, ABC):
    """Base of the loss modules, which are called on `(scores, target)`.

    The target are labels or, for a cost-sensitive loss, costs of the shape of the scores.

    Parameters
    ----------
    loss : str
        Name of a registered loss of the family.
    parameter : float
        Value of the family's parameter.
    reduction : {"mean", "sum", "none"}
        Reduction over all examples.
    validate : bool
        Whether each call checks the range of its labels or costs.

    Attributes
    ----------
    record : SurrogateLoss
        Everything known about the loss.

    Examples
    --------
    >>> from shortlist.losses import CompSumLoss
    >>> isinstance(CompSumLoss("log"), LossModule)
    True
    """

    family: ClassVar[Family]
    record: SurrogateLoss

    def __init__(self, loss: str, parameter: float, reduction: str, validate: bool) -> None:
        super().__init__()
        self.record = find_loss(loss, self.family, parameter, reduction)
        self.loss = loss
        setattr(self, FAMILY_PARAMETERS[self.family].name, parameter)
        self.reduction = reduction
        self.validate = validate

    @property
    def bounded_gradient(self) -> bool:
        """Whether the gradient is bounded over all scores; if not, training clips it."""
        return self.record.bounded_gradient

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss.

        Parameters
        ----------
        scores : Tensor of shape (..., n)
            Scores of the labels, or of the members of a family of sets.
        target : Tensor of shape (...) or (..., n)
            Labels, or costs.

        Returns
        -------
        Tensor
            The reduced loss, or the loss of each example.
        """
        return reduce(self._losses(scores, target), self.reduction)

    @abstractmethod
    def _losses(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each example."""

    def extra_repr(self) -> str:
        """Return the arguments for the repr: the parameter only if the loss has one."""
        parameter = loss_entry(self.loss, self.family).parameter
        parts = [repr(self.loss)]
        if parameter is not None:
            parts.append(f"{parameter.name}={getattr(self, parameter.name)}")
        parts.append(f"reduction={self.reduction!r}")
        return ", ".join(parts if self.validate else [*parts, "validate=False"])

    def __getstate__(self) -> dict[str, object]:
        # The functions of a record cannot be pickled; the name stands for it.
        return {name: value for name, value in self.__dict__.items() if name != "record"}

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        parameter = getattr(self, FAMILY_PARAMETERS[self.family].name)
        self.record = find_loss(self.loss, self.family, parameter, self.reduction)
