"""Surrogate losses of the comp-sum and constrained families, as functions and as modules.

Each loss has a form for labels, which trains a classifier, and a cost-sensitive form, which
trains a selector. Its record (`SurrogateLoss`) holds its function and the facts that the theory
needs. The records of the paper's eight losses are in `records/`; `register_loss` adds a new one.
"""

from __future__ import annotations

from typing import assert_never

from shortlist.losses import records  # noqa: F401  (registers the paper's losses)
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
    """Return the loss module with a given name.

    Parameters
    ----------
    name : str
        Name of the loss, as in the parameter `loss` of estimators: "log", "exp", "gce", "mae"
        (comp-sum), "constrained_exp", "squared_hinge", "hinge", "margin" (constrained), or a
        loss registered with `register_loss`.
    q : float, default=0.7
        Parameter of comp-sum losses. For "gce" it is the exponent, in (0, 1).
    rho : float, default=1.0
        Parameter of constrained losses. For "margin" it is the margin, above 0.
    cost_sensitive : bool
        Whether the loss takes costs (to train a selector) or labels (to train a classifier).
    reduction : {"mean", "sum", "none"}, default="mean"
        Reduction over all examples.
    validate : bool, default=True
        Whether each call checks the range of its labels or costs.

    Returns
    -------
    LossModule
        Module that is called with `(scores, labels)` or `(scores, costs)`.

    Raises
    ------
    ValueError
        If no loss has this name, or an argument is out of range.

    Examples
    --------
    >>> from_name("log", cost_sensitive=False)
    CompSumLoss('log', reduction='mean')
    >>> from_name("margin", rho=2.0, cost_sensitive=True)
    CostSensitiveConstrainedLoss('margin', rho=2.0, reduction='mean')
    """
    family = loss_entry(name).family
    if family == "comp_sum":
        comp_sum_class = CostSensitiveCompSumLoss if cost_sensitive else CompSumLoss
        return comp_sum_class(name, q=q, reduction=reduction, validate=validate)
    if family == "constrained":
        constrained_class = CostSensitiveConstrainedLoss if cost_sensitive else ConstrainedLoss
        return constrained_class(name, rho=rho, reduction=reduction, validate=validate)
    assert_never(family)
