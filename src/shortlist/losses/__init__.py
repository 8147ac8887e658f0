"""The paper's sixteen surrogate losses: functions, each with an `nn.Module` twin.

Two families (comp-sum and constrained) of four kinds, for a label (to train a classifier) or
for a table of costs (to train a selector).
"""

from __future__ import annotations

from shortlist._utils.arrays import check_choice
from shortlist.losses.common import SurrogateLoss
from shortlist.losses.comp_sum import (
    COMP_SUM_KINDS,
    CompSumLoss,
    CostSensitiveCompSumLoss,
    comp_sum,
    cost_sensitive_comp_sum,
)
from shortlist.losses.constrained import (
    CONSTRAINED_KINDS,
    ConstrainedLoss,
    CostSensitiveConstrainedLoss,
    constrained,
    cost_sensitive_constrained,
)

__all__ = [
    "NAMES",
    "CompSumLoss",
    "ConstrainedLoss",
    "CostSensitiveCompSumLoss",
    "CostSensitiveConstrainedLoss",
    "SurrogateLoss",
    "comp_sum",
    "constrained",
    "cost_sensitive_comp_sum",
    "cost_sensitive_constrained",
    "from_name",
]

# Both families have an "exp": in the flat list the constrained one carries its family's name.
_CONSTRAINED_NAMES = {
    kind if kind not in COMP_SUM_KINDS else f"constrained_{kind}": kind
    for kind in CONSTRAINED_KINDS
}
NAMES: tuple[str, ...] = (*COMP_SUM_KINDS, *_CONSTRAINED_NAMES)


def from_name(
    name: str,
    *,
    q: float = 0.7,
    rho: float = 1.0,
    cost_sensitive: bool,
    reduction: str = "mean",
    validate: bool = True,
) -> SurrogateLoss:
    """The loss module behind a flat name, as estimators take it in `loss=`.

    Parameters
    ----------
    name : str
        One of `NAMES`: `"log"`, `"exp"`, `"gce"`, `"mae"` (comp-sum),
        `"constrained_exp"`, `"squared_hinge"`, `"hinge"`, `"margin"` (constrained).
    q : float
        Exponent of `"gce"`, in (0, 1).
    rho : float
        The margin of `"margin"`, above 0.
    cost_sensitive : bool
        Whether the loss takes costs (a selector) or labels (a classifier).
    reduction : str
        `"mean"`, `"sum"` or `"none"`.
    validate : bool
        Whether the loss checks the range of its labels or costs at each call.

    Examples
    --------
    >>> from_name("log", cost_sensitive=False)
    CompSumLoss('log', reduction='mean')
    >>> from_name("margin", rho=2.0, cost_sensitive=True)
    CostSensitiveConstrainedLoss('margin', rho=2.0, reduction='mean')
    """
    check_choice(name, "loss", NAMES)
    if name in COMP_SUM_KINDS:
        comp = CostSensitiveCompSumLoss if cost_sensitive else CompSumLoss
        return comp(name, q=q, reduction=reduction, validate=validate)
    cstnd = CostSensitiveConstrainedLoss if cost_sensitive else ConstrainedLoss
    kind = _CONSTRAINED_NAMES[name]
    return cstnd(kind, rho=rho, reduction=reduction, validate=validate)
