"""Code that both families of losses share: input checks, weights, reduction, the base module."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from shortlist._utils.validation import check_choice
from shortlist.losses.record import FAMILY_PARAMETERS, Family, SurrogateLoss
from shortlist.losses.registry import loss_entry

REDUCTIONS = ("mean", "sum", "none")

# For larger t, e^t - 1 and e^t are the same float64 number, because e^-40 is below half an ulp.
# e^40 times a weight of at most 1 does not overflow float32.
_LARGE_EXPONENT = 40.0


def weighted_phi(loss: SurrogateLoss, weights: Tensor, t: Tensor) -> Tensor:
    """Return `weights * phi(t)`, elementwise.

    Where a weight is 0, the product and its gradient are 0, even if phi overflows.
    """
    # Arguments are masked before phi is computed, because 0 * inf is NaN in the value and in the
    # gradient.
    is_zero = weights <= 0
    t = t.masked_fill(is_zero, 0.0)
    if not loss.exponential:
        return weights * loss.phi(t)
    is_large = t > _LARGE_EXPONENT
    product = weights * loss.phi(t.masked_fill(is_large, 0.0))
    large_product = torch.exp(t + weights.masked_fill(is_zero, 1.0).log())
    return torch.where(is_large, large_product, product)


def reduce(losses: Tensor, reduction: str) -> Tensor:
    """Return the mean or the sum of the losses, or the losses themselves."""
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()


def find_loss(loss: str, family: Family, parameter: float, reduction: str) -> SurrogateLoss:
    """Check the name, parameter and reduction of a loss, and return its record."""
    record = loss_entry(loss, family).record(parameter)
    check_choice(reduction, "reduction", REDUCTIONS)
    return record


def prepare_scores(scores: Tensor, *, min_classes: int) -> Tensor:
    """Check the scores, and convert half precision to float32."""
    _check_tensor("scores", scores)
    if not scores.is_floating_point():
        raise TypeError(f"scores are {scores.dtype}; pass floating-point scores (scores.float())")
    if scores.ndim == 0 or scores.shape[-1] < min_classes:
        raise ValueError(
            f"scores have shape {tuple(scores.shape)}; the last axis is the class axis and must "
            f"have at least {min_classes} entries"
        )
    return scores.float() if torch.finfo(scores.dtype).bits < 32 else scores


def prepare_labels(labels: Tensor, scores: Tensor, *, validate: bool) -> Tensor:
    """Check the labels, and return them as int64 indices into the last axis of the scores."""
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
    """Check the costs, and promote them to at least the precision of the scores."""
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


def _check_tensor(name: str, value: Tensor) -> None:
    """Raise an error unless the value is a tensor."""
    if not isinstance(value, Tensor):
        type_name = f"{type(value).__module__}.{type(value).__qualname__}"
        type_name = type_name.removeprefix("builtins.")
        raise TypeError(f"{name} is a {type_name}; pass a tensor: torch.as_tensor({name})")


def _check_shape(name: str, value: Tensor, expected: tuple[int, ...], scores: Tensor) -> None:
    """Raise an error unless the value has the expected shape and the device of the scores."""
    if tuple(value.shape) != expected:
        raise ValueError(
            f"{name} have shape {tuple(value.shape)} but scores have shape {tuple(scores.shape)}; "
            f"{name} must have shape {expected}"
        )
    if value.device != scores.device:
        raise ValueError(
            f"{name} are on {value.device} but scores are on {scores.device}; "
            f"move them: {name}.to(scores.device)"
        )


def _check_all(name: str, values: Tensor, is_valid: Tensor, message: str) -> None:
    """Raise an error for the first invalid value. The check waits for the device."""
    if bool(is_valid.all()):
        return
    position: list[int] = (~is_valid).nonzero()[0].tolist()
    raise ValueError(f"{name}{position or ''} = {values[tuple(position)].item()} {message}")


class LossModule(nn.Module, ABC):
    """Base class of the loss modules, which compute `loss(scores, target)`.

    The target is a tensor of labels or, for a cost-sensitive loss, a tensor of costs with the
    shape of the scores.

    Parameters
    ----------
    loss : str
        Name of a registered loss of the family.
    parameter : float
        Value of the parameter of the family (`q` or `rho`).
    reduction : {"mean", "sum", "none"}
        Reduction over all examples.
    validate : bool
        Whether each call checks the range of its labels or costs.

    Examples
    --------
    >>> from shortlist.losses import CompSumLoss
    >>> isinstance(CompSumLoss("log"), LossModule)
    True
    """

    family: ClassVar[Family]
    function: ClassVar[Callable[..., Tensor]]
    """The function that the module computes."""

    def __init__(self, loss: str, parameter: float, reduction: str, validate: bool) -> None:
        super().__init__()
        find_loss(loss, self.family, parameter, reduction)  # Raises for an invalid argument.
        self.loss = loss
        setattr(self, FAMILY_PARAMETERS[self.family].name, parameter)
        self.reduction = reduction
        self.validate = validate

    @property
    def record(self) -> SurrogateLoss:
        """Everything known about the loss."""
        (parameter,) = self._parameter().values()
        return loss_entry(self.loss, self.family).record(parameter)

    @property
    def bounded_gradient(self) -> bool:
        """Whether the gradient is bounded over all scores. If not, training clips it."""
        return self.record.bounded_gradient

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Compute the loss.

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
        options = {"reduction": self.reduction, "validate": self.validate}
        return self.function(scores, target, self.loss, **self._parameter(), **options)

    def _parameter(self) -> dict[str, float]:
        """Return the parameter of the family as a keyword argument."""
        name = FAMILY_PARAMETERS[self.family].name
        return {name: getattr(self, name)}

    def extra_repr(self) -> str:
        """Return the arguments for the repr. The parameter is included if the loss has one.

        Returns
        -------
        str
            The arguments, separated by commas.
        """
        parts = [repr(self.loss)]
        if loss_entry(self.loss, self.family).parameter is not None:
            parts += [f"{name}={value}" for name, value in self._parameter().items()]
        parts.append(f"reduction={self.reduction!r}")
        return ", ".join(parts if self.validate else [*parts, "validate=False"])
