"""Surrogate losses: functions, each with an `nn.Module` twin, and a record of what is known.

Two families, comp-sum and constrained, for a label (to train a classifier) or for costs (to
train a selector). The paper's eight are in `records/`; `register_loss` adds one of your own.
"""

from __future__ import annotations

from shortlist.losses import records  # noqa: F401  registers the paper's losses
from shortlist.losses.common import LossModule
from shortlist.losses.comp_sum import (
    CompSumLoss,
    CostSensitiveCompSumLoss,
    comp_sum,
    cost_sensitive_comp_sum,
)
from shortlist.losses.constrained import (
    ConstrainedLoss,
    CostSensitiveConstrainedLoss,
    constrained,
    cost_sensitive_constrained,
)
from shortlist.losses.record import NO_BOUND, Bound, Parameter, SurrogateLoss, UnknownFactError
from shortlist.losses.registry import (
    get_loss,
    loss_entry,
    loss_names,
    register_loss,
    unregister_loss,
)

__all__ = [
    "NO_BOUND",
    "Bound",
    "CompSumLoss",
    "ConstrainedLoss",
    "CostSensitiveCompSumLoss",
    "CostSensitiveConstrainedLoss",
    "LossModule",
    "Parameter",
    "SurrogateLoss",
    "UnknownFactError",
    "comp_sum",
    "constrained",
    "cost_sensitive_comp_sum",
    "cost_sensitive_constrained",
    "from_name",
    "get_loss",
    "loss_names",
    "register_loss",
    "unregister_loss",
]


def from_name(
    name: str,
    *,
    q: float = 0.7,
    rho: float = 1.0,
    cost_sensitive: bool,
    reduction: str = "mean",
    validate: bool = True,
) -> LossModule:
    """Return the loss module of a name, as estimators take it in `loss=`.

    Parameters
    ----------
    name : str
        "log", "exp", "gce", "mae" (comp-sum), "constrained_exp", "squared_hinge", "hinge",
        "margin" (constrained), or a loss of your own (`register_loss`).
    q : float, default=0.7
        Parameter of comp-sum losses: the exponent of "gce", in (0, 1).
    rho : float, default=1.0
        Parameter of constrained losses: the margin of "margin", above 0.
    cost_sensitive : bool
        Whether the loss takes costs (a selector) or labels (a classifier).
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples.
    validate : bool, default=True
        Whether the loss checks the range of its labels or costs at each call.

    Returns
    -------
    LossModule
        A module of `(scores, labels)` or `(scores, costs)`.

    Raises
    ------
    ValueError
        If there is no loss of that name, or an argument is out of range.

    Examples
    --------
    >>> from_name("log", cost_sensitive=False)
    CompSumLoss('log', reduction='mean')
    >>> from_name("margin", rho=2.0, cost_sensitive=True)
    CostSensitiveConstrainedLoss('margin', rho=2.0, reduction='mean')
    """
    if loss_entry(name).family == "comp_sum":
        comp_sum_class = CostSensitiveCompSumLoss if cost_sensitive else CompSumLoss
        return comp_sum_class(name, q=q, reduction=reduction, validate=validate)
    constrained_class = CostSensitiveConstrainedLoss if cost_sensitive else ConstrainedLoss
    return constrained_class(name, rho=rho, reduction=reduction, validate=validate)
