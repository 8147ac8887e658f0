"""Conditional errors, infima and regrets of the surrogate losses at one input x."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from shortlist.losses import from_name, get_loss
from shortlist.theory.regret import check_scores, distribution, expected_costs


def surrogate_error(
    loss: str,
    p: ArrayLike,
    scores: ArrayLike,
    *,
    costs: ArrayLike | None = None,
    q: float = 0.7,
    rho: float = 1.0,
) -> float:
    """Return the conditional error of a surrogate loss, `sum_y p(y) loss(scores, y)`.

    Parameters
    ----------
    loss : str
        Name of a registered loss.
    p : array-like of shape (n,)
        Probabilities of the labels.
    scores : array-like of shape (n,) or (members,)
        Scores of the labels or, with `costs`, of the members of K.
    costs : array-like of shape (members, n), optional
        Costs in [0, 1]. If they are given, the loss is the cost-sensitive one.
    q : float, default=0.7
        Exponent of the loss "gce".
    rho : float, default=1.0
        Margin of the loss "margin".

    Returns
    -------
    float
        The conditional error.

    Raises
    ------
    ValueError
        If no loss has this name, or the scores or costs do not match p.
    """
    array = distribution(p)
    members = len(array) if costs is None else len(expected_costs(p, costs))
    r = torch.from_numpy(check_scores(scores, members))
    module = from_name(loss, q=q, rho=rho, cost_sensitive=costs is not None, reduction="none")
    each = r.expand(len(array), -1)
    if costs is None:
        target = torch.arange(len(array))
    else:
        target = torch.as_tensor(np.asarray(costs, dtype=np.float64)).T.contiguous()
    return float(module(each, target).numpy() @ array)


def surrogate_infimum(
    loss: str,
    p: ArrayLike,
    *,
    costs: ArrayLike | None = None,
    q: float = 0.7,
) -> float:
    """Return the infimum of `surrogate_error` over all scores, in closed form.

    The infimum is a function of weights. For labels, comp-sum losses have the weights `w = p`,
    and constrained losses have `v = 1 - p`. For costs with the expectations q(k), the weights are
    `w = 1 - q(k)` and `v = q(k)`. W is the sum of w, and n is the number of weights.

    ================ ==================================== =======================
    loss             infimum                              minimizer
    ================ ==================================== =======================
    log              -sum w log(w / W)                    softmax w / W
    exp              (sum sqrt w)^2 - W                   softmax ~ sqrt w
    gce              (W - (sum w^a)^(1/a)) / q            softmax ~ w^a
    mae              W - max w                            softmax 1 at the best
    constrained_exp  n (prod v)^(1/n)                     e^r ~ 1 / v
    squared_hinge    n^2 / sum(1/v)                       1 + r ~ 1 / v
    hinge            n min v                              r = -1 except the best
    margin           min v                                r <= -rho except best
    ================ ==================================== =======================

    Here `a = 1 / (1 - q)`, and "~" means "proportional to". The infimum of margin does not depend
    on rho.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has `infimum`.
    p : array-like of shape (n,)
        Probabilities of the labels.
    costs : array-like of shape (members, n), optional
        Costs in [0, 1]. If they are given, the loss is the cost-sensitive one.
    q : float, default=0.7
        Exponent of the loss "gce".

    Returns
    -------
    float
        Infimum of the conditional error.

    Raises
    ------
    ValueError
        If the scores or costs do not match p, or the record of the loss has no infimum.

    Examples
    --------
    >>> surrogate_infimum("mae", [0.5, 0.4, 0.1])
    0.5
    >>> round(surrogate_infimum("exp", [0.5, 0.5]), 12)
    1.0
    """
    record = get_loss(loss, q=q)
    array = distribution(p)
    expected = 1 - array if costs is None else expected_costs(array, costs)
    if costs is not None and not ((np.asarray(costs) >= 0) & (np.asarray(costs) <= 1)).all():
        raise ValueError("costs must lie in [0, 1]: divide by 1 + cost_weight * cost(largest size)")
    if record.family == "comp_sum":
        return record.infimum(array if costs is None else 1 - expected)
    return record.infimum(expected)


def surrogate_regret(
    loss: str,
    p: ArrayLike,
    scores: ArrayLike,
    *,
    costs: ArrayLike | None = None,
    q: float = 0.7,
    rho: float = 1.0,
) -> float:
    """Return the conditional regret of a surrogate loss, `surrogate_error - surrogate_infimum`.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has `infimum`.
    p : array-like of shape (n,)
        Probabilities of the labels.
    scores : array-like of shape (n,) or (members,)
        Scores of the labels or, with `costs`, of the members of K.
    costs : array-like of shape (members, n), optional
        Costs in [0, 1]. If they are given, the loss is the cost-sensitive one.
    q : float, default=0.7
        Exponent of the loss "gce".
    rho : float, default=1.0
        Margin of the loss "margin".

    Returns
    -------
    float
        The conditional regret.

    Raises
    ------
    ValueError
        If the scores or costs do not match p, or the record of the loss has no infimum.

    Examples
    --------
    >>> round(surrogate_regret("hinge", [0.5, 0.4, 0.1], [2.0, -1.0, -1.0]), 12)
    0.0
    """
    error = surrogate_error(loss, p, scores, costs=costs, q=q, rho=rho)
    return error - surrogate_infimum(loss, p, costs=costs, q=q)
