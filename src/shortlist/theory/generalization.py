"""Generalization bounds of classifiers and selectors, and the constants of the losses in them.

The theorems assume a symmetric and complete hypothesis set, whose scores take all real values. The
values of log, exp, constrained_exp, squared_hinge and hinge are then unbounded, so that B and the
bounds are infinite or trivial. Only mae, gce and margin have a finite B.
"""

from __future__ import annotations

import math

from shortlist._utils.validation import check_count, check_non_negative, check_probability
from shortlist.losses import get_loss
from shortlist.theory.bounds import cost_sensitive_bound, top_k_bound


def generalization_bound(
    loss: str,
    *,
    m: int,
    rademacher: float,
    loss_bound: float,
    n: int,
    k: int,
    delta: float = 0.05,
    gap: float = 0.0,
    q: float = 0.7,
    published: bool = False,
) -> float:
    """Bound the top-k regret of the empirical minimizer on m examples.

    With probability at least 1 - delta over the sample, the top-k regret relative to the
    hypothesis set, plus the minimizability gap of the top-k loss, is at most the top-k bound at
    the surrogate regret `4 Rad + 2 B sqrt(log(2 / delta) / (2 m)) + gap`.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has the top-k bound.
    m : int
        Number of examples.
    rademacher : float
        Rademacher complexity Rad of the surrogate loss over the hypothesis set.
    loss_bound : float
        Upper bound B of the values of the surrogate loss. It can be infinite.
    n : int
        Number of labels.
    k : int
        Size of the top-k set.
    delta : float, default=0.05
        Probability with which the bound may fail.
    gap : float, default=0.0
        Minimizability gap of the surrogate.
    q : float, default=0.7
        Exponent of the loss "gce".
    published : bool, default=False
        Whether to use the published top-k bound, even where it fails.

    Returns
    -------
    float
        The bound.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no top-k bound.

    Notes
    -----
    The theorem assumes a complete hypothesis set, whose scores take all real values. B is then
    infinite for all losses of the paper but mae, gce and margin, which are bounded. If the norm of
    the hypotheses is bounded, B is finite, but the hypothesis set is not complete, and the result
    is an approximation rather than a guarantee. Of the bounded losses, mae and margin are not
    consistent for k >= 2.

    Examples
    --------
    >>> from shortlist import theory
    >>> r = rademacher_linear("log", m=10**6, n=10, norm=1.0, radius=1.0)
    >>> b = theory.loss_bound("log", n=10, largest=1.0)
    >>> round(generalization_bound("log", m=10**6, rademacher=r, loss_bound=b, n=10, k=1), 3)
    0.421
    """
    regret = _estimation_error(m, rademacher, loss_bound, delta, gap)
    return top_k_bound(loss, regret, n=n, k=k, q=q, published=published)


def selector_generalization_bound(
    loss: str,
    *,
    m: int,
    rademacher: float,
    loss_bound: float,
    members: int,
    delta: float = 0.05,
    gap: float = 0.0,
    q: float = 0.7,
    published: bool = False,
) -> float:
    """Bound the cardinality-aware regret of the empirical minimizer on m examples.

    With probability at least 1 - delta over the sample, the cardinality-aware regret relative to
    the set of selectors, plus the minimizability gap of the cardinality-aware loss, is at most the
    cost-sensitive bound at the surrogate regret
    `4 Rad + 2 B sqrt(log(2 / delta) / (2 m)) + gap`.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has the cost-sensitive bound.
    m : int
        Number of examples.
    rademacher : float
        Rademacher complexity Rad of the cost-sensitive surrogate loss over the set of selectors.
    loss_bound : float
        Upper bound B of the values of the cost-sensitive surrogate loss. It can be infinite.
    members : int
        Number of sets from which the selector chooses.
    delta : float, default=0.05
        Probability with which the bound may fail.
    gap : float, default=0.0
        Minimizability gap of the cost-sensitive surrogate loss.
    q : float, default=0.7
        Exponent of the loss "gce".
    published : bool, default=False
        Whether to use the published cost-sensitive bound, even where a smaller one is known.

    Returns
    -------
    float
        The bound, at most 1, for costs that are normalized to [0, 1]. Multiply it by the divisor
        of the costs to bound the regret of the loss itself.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no cost-sensitive bound.

    Notes
    -----
    The paper states such bounds for top-k classification only; the proof is the same. The
    conditions are: the examples are independent draws from one distribution, the costs lie in
    [0, 1], the family of sets is fixed (its classifier and its thresholds are not fitted on these
    examples), and the set of selectors is symmetric and complete.

    The scores of a complete set take all real values. B is then infinite, and the bound trivial
    (one), for all losses of the paper but mae, gce and margin, which are bounded. If the norm of
    the selectors is bounded, B is finite, but the set is not complete, and the result is an
    approximation rather than a guarantee.

    Examples
    --------
    >>> from shortlist import theory
    >>> b = theory.loss_bound("gce", n=4, q=0.5, cost_sensitive=True)
    >>> b
    8.0
    >>> round(selector_generalization_bound("gce", m=10**6, rademacher=1e-4, loss_bound=b,
    ...                                     members=4, q=0.5), 3)
    0.298
    >>> selector_generalization_bound("log", m=10**6, rademacher=1e-4, members=4,
    ...                               loss_bound=theory.loss_bound("log", n=4, cost_sensitive=True))
    1.0
    """
    regret = _estimation_error(m, rademacher, loss_bound, delta, gap)
    return cost_sensitive_bound(loss, regret, members=members, q=q, published=published)


def _estimation_error(
    m: int, rademacher: float, loss_bound: float, delta: float, gap: float
) -> float:
    """Return `4 Rad + 2 B sqrt(log(2 / delta) / (2 m)) + gap`, or 1e300 if it is infinite."""
    count = check_count(m, "m")
    spread = math.sqrt(math.log(2 / check_probability(delta, "delta")) / (2 * count))
    for name, value in (("rademacher", rademacher), ("loss_bound", loss_bound)):
        if value != math.inf:
            check_non_negative(value, name)
    regret = 4 * rademacher + 2 * loss_bound * spread + check_non_negative(gap, "gap")
    # The bounds take finite regrets. This one stands for infinity.
    return min(regret, 1e300)


def loss_bound(
    loss: str,
    *,
    n: int,
    largest: float = math.inf,
    q: float = 0.7,
    rho: float = 1.0,
    cost_sensitive: bool = False,
) -> float:
    """Return an upper bound of the values of a surrogate loss.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has `largest_value`.
    n : int
        Number of labels or, for a cost-sensitive loss, of members of K.
    largest : float, default=inf
        Largest absolute score. The scores of a complete hypothesis set are unbounded.
    q : float, default=0.7
        Exponent of the loss "gce".
    rho : float, default=1.0
        Margin of the loss "margin".
    cost_sensitive : bool, default=False
        Whether the loss is the cost-sensitive one, for costs in [0, 1].

    Returns
    -------
    float
        The upper bound. For the labels of log and exp it is the largest value. For mae, gce and
        margin it is finite even if `largest` is infinite.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no `largest_value`.

    Examples
    --------
    >>> loss_bound("mae", n=10), loss_bound("log", n=10)
    (1.0, inf)
    >>> loss_bound("mae", n=4, cost_sensitive=True)
    4.0
    """
    record = get_loss(loss, q=q, rho=rho)
    value = record.largest_value(check_count(n, "n", minimum=2), _largest_score(largest))
    if not cost_sensitive:
        return value
    # A sum of n losses of labels, or (summed over all labels) n - 1 times the sum of phi.
    return value * (n if record.family == "comp_sum" else n / (n - 1))


def lipschitz(
    loss: str,
    *,
    n: int,
    largest: float = math.inf,
    q: float = 0.7,
    rho: float = 1.0,
    cost_sensitive: bool = False,
) -> float:
    """Return a Lipschitz constant of a surrogate loss as a function of the vector of scores.

    Distances between vectors of scores are Euclidean.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has `lipschitz`.
    n : int
        Number of labels or, for a cost-sensitive loss, of members of K.
    largest : float, default=inf
        Largest absolute score. The scores of a complete hypothesis set are unbounded.
    q : float, default=0.7
        Exponent of the loss "gce".
    rho : float, default=1.0
        Margin of the loss "margin".
    cost_sensitive : bool, default=False
        Whether the loss is the cost-sensitive one, for costs in [0, 1].

    Returns
    -------
    float
        The constant. It is infinite if the gradient is unbounded.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no `lipschitz`.

    Examples
    --------
    >>> round(lipschitz("log", n=10), 4), lipschitz("exp", n=10)
    (1.4142, inf)
    """
    record = get_loss(loss, q=q, rho=rho)
    constant = record.lipschitz(check_count(n, "n", minimum=2), _largest_score(largest))
    # For costs in [0, 1], the cost-sensitive loss is a combination of the losses of the n labels,
    # whose coefficients have absolute values with a sum of at most n.
    return constant * n if cost_sensitive else constant


def _largest_score(largest: float) -> float:
    """Check and return the largest absolute score, which may be infinite."""
    return largest if largest == math.inf else check_non_negative(largest, "largest")


def rademacher_linear(
    loss: str,
    *,
    m: int,
    n: int,
    norm: float,
    radius: float,
    q: float = 0.7,
    rho: float = 1.0,
    cost_sensitive: bool = False,
) -> float:
    """Bound the Rademacher complexity of a surrogate loss over linear classifiers or selectors.

    The scores are `w_y . x` with `|w_y| <= norm` and `|x| <= radius`. The vector contraction
    inequality (Maurer, 2016) gives the bound `sqrt(2) L n norm radius / sqrt(m)`, where L is the
    Lipschitz constant of the loss for scores of at most `norm * radius`.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has `lipschitz`.
    m : int
        Number of examples.
    n : int
        Number of labels or, for a cost-sensitive loss, of members of K.
    norm : float
        Largest norm of the weight vector of a label or a member.
    radius : float
        Largest norm of an input vector.
    q : float, default=0.7
        Exponent of the loss "gce".
    rho : float, default=1.0
        Margin of the loss "margin".
    cost_sensitive : bool, default=False
        Whether the loss is the cost-sensitive one, for costs in [0, 1].

    Returns
    -------
    float
        Bound on the Rademacher complexity.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no `lipschitz`.

    Examples
    --------
    >>> round(rademacher_linear("log", m=10_000, n=10, norm=1.0, radius=1.0), 3)
    0.2
    """
    count = check_count(m, "m")
    largest = check_non_negative(norm, "norm") * check_non_negative(radius, "radius")
    constant = lipschitz(loss, n=n, largest=largest, q=q, rho=rho, cost_sensitive=cost_sensitive)
    return math.sqrt(2) * constant * n * largest / math.sqrt(count)
