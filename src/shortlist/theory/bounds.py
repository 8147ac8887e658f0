"""The paper's theorems as functions: bounds on the target regret by the surrogate regret.

Each function takes a surrogate regret and returns a bound on the target regret. Both regrets can
be conditional on the input. They can also be expectations to which the minimizability gaps are
added, because the bounds are concave functions. Where a published bound is wrong, the function
returns a corrected bound; `published=True` returns the published one. The formulas are in the
records of the losses (`shortlist.losses.records`).

The hypothesis set must be symmetric and complete (`hypothesis_definitions` defines both).
"""

from __future__ import annotations

import math

from shortlist._utils.validation import check_count, check_non_negative
from shortlist.losses import get_loss


def psi(loss: str, t: float, *, n: int = 2, q: float = 0.7) -> float:
    """Return the paper's psi of a comp-sum loss (Theorem on top-k, Section 4).

    ==== =======================================================================
    log  (1 - t)/2 log(1 - t) + (1 + t)/2 log(1 + t)
    exp  1 - sqrt(1 - t^2)
    mae  t / n
    gce  ((((1 + t)^a + (1 - t)^a) / 2)^(1/a) - 1) / (q n^q), a = 1 / (1 - q)
    ==== =======================================================================

    Parameters
    ----------
    loss : str
        Name of a comp-sum loss whose record has psi.
    t : float
        Argument of psi, in [0, 1].
    n : int, default=2
        Number of labels.
    q : float, default=0.7
        Exponent of the loss "gce".

    Returns
    -------
    float
        Value of psi at t.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no psi.

    Examples
    --------
    >>> round(psi("log", 1.0), 6), round(psi("exp", 0.6), 12), psi("mae", 0.5, n=10)
    (0.693147, 0.2, 0.05)
    """
    record = get_loss(loss, q=q)
    if not 0 <= t <= 1:
        raise ValueError(f"t must lie in [0, 1]; got {t!r}")
    check_count(n, "n", minimum=2)
    return record.psi(t, n)


def psi_inverse(loss: str, regret: float, *, n: int = 2, q: float = 0.7) -> float:
    """Return the t in [0, 1] with `psi(t) = regret`.

    Parameters
    ----------
    loss : str
        Name of a comp-sum loss whose record has psi.
    regret : float
        Surrogate regret, a value of psi.
    n : int, default=2
        Number of labels.
    q : float, default=0.7
        Exponent of the loss "gce".

    Returns
    -------
    float
        The inverse, which is 1 for all regrets of at least `psi(1)`.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no psi.

    Examples
    --------
    >>> round(psi_inverse("exp", 0.2), 12)
    0.6
    >>> psi_inverse("log", 5.0)
    1.0
    """
    record = get_loss(loss, q=q)
    check_count(n, "n", minimum=2)
    return record.psi_inverse(check_non_negative(regret, "regret"), n)


def gamma(loss: str, regret: float, *, members: int = 2, q: float = 0.7) -> float:
    """Return the paper's gamma of a cost-sensitive loss.

    gamma(t) is `2 sqrt(t)` for log, exp, constrained_exp and squared_hinge, `2 sqrt(|K|^q t)` for
    gce, `|K| t` for mae, and `t` for hinge and margin.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has a published cost-sensitive bound.
    regret : float
        Surrogate regret t, the argument of gamma.
    members : int, default=2
        Number |K| of sets from which the selector chooses.
    q : float, default=0.7
        Exponent of the loss "gce".

    Returns
    -------
    float
        Value of gamma at t.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no bound.

    Examples
    --------
    >>> gamma("log", 0.01), gamma("mae", 0.01, members=4), gamma("hinge", 0.01)
    (0.2, 0.04, 0.01)
    """
    record = get_loss(loss, q=q)
    t = check_non_negative(regret, "regret")
    return record.published_cost_sensitive_bound.value(t, check_count(members, "members"), 1)


def cost_sensitive_bound(
    loss: str, regret: float, *, members: int, q: float = 0.7, published: bool = False
) -> float:
    """Bound the cardinality-aware regret by a surrogate regret R (cost-sensitive theorems).

    ===================== ======================= ================================
    loss                  published, gamma(R)     smallest known
    ===================== ======================= ================================
    log, exp              2 sqrt(R)               2 sqrt(R)
    gce, q <= 1/2         2 sqrt(`|K|`^q R)       2 sqrt((1 - q) `|K|`^q R)
    gce, q > 1/2          2 sqrt(`|K|`^q R)       2 sqrt(q `|K|`^q R)
    mae                   `|K|` R                 `|K|` R
    constrained_exp       2 sqrt(R)               2 sqrt(R)
    squared_hinge         2 sqrt(R)               sqrt(2 R)
    hinge, margin         R                       R
    ===================== ======================= ================================

    All bounds hold, and the smallest known ones are tight, except for gce with q > 1/2. They
    require costs in [0, 1], as those of `shortlist.costs.cost_matrix`. docs/theory.md has the
    proofs.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has a cost-sensitive bound.
    regret : float
        Regret R of the cost-sensitive surrogate.
    members : int
        Number |K| of sets from which the selector chooses.
    q : float, default=0.7
        Exponent of the loss "gce".
    published : bool, default=False
        Whether to return the published bound, even where a smaller one is known.

    Returns
    -------
    float
        The bound, at most 1.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no bound.

    Examples
    --------
    >>> cost_sensitive_bound("log", 0.0001, members=4)
    0.02
    >>> round(cost_sensitive_bound("gce", 0.0001, members=4, q=0.5), 6)
    0.02
    >>> round(cost_sensitive_bound("gce", 0.0001, members=4, q=0.5, published=True), 6)
    0.028284
    """
    if published:
        return min(1.0, gamma(loss, regret, members=members, q=q))
    record = get_loss(loss, q=q)
    r = check_non_negative(regret, "regret")
    return min(1.0, record.cost_sensitive_bound.value(r, check_count(members, "members"), 1))


def top_k_bound(
    loss: str, regret: float, *, n: int, k: int, q: float = 0.7, published: bool = False
) -> float:
    """Bound the top-k regret by a surrogate regret R (top-k theorems).

    ================ ========================= ==============================================
    loss             published                 corrected
    ================ ========================= ==============================================
    log, exp         k psi^-1(R)               psi^-1(R)
    gce, q <= 1/2    k psi^-1(R)               sqrt((1 - q) 2^a m^(a - 1) R)
    gce, q > 1/2     k psi^-1(R): fails        m^q (q R / ((1 - q) (1 - 2^(1 - a))))^(1 - q)
    mae              k n R: fails              none; n R for k = 1
    constrained_exp  2 k sqrt(R): fails        (64/15 m 4^(1/n) R)^(n / (2 n + 1))
    squared_hinge    2 k sqrt(R): fails        ((2 m + 1/(n + 2)) (n + 2)^2 R / n^2)^(1/4)
    hinge, margin    k R: fails                none; R for k = 1
    ================ ========================= ==============================================

    Here `a = 1 / (1 - q)` and `m = min(k, n - k)`. "Fails" refers to 2 <= k < n. The corrected
    bounds hold for 1 <= k < n. For k = 1 the published bounds hold as well, and the function
    returns the smaller of the two.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has the bound.
    regret : float
        Surrogate regret R.
    n : int
        Number of labels.
    k : int
        Size of the top-k set, from 1 to n.
    q : float, default=0.7
        Exponent of the loss "gce".
    published : bool, default=False
        Whether to return the published bound, even where it fails.

    Returns
    -------
    float
        The bound. It is at most 1, the largest possible regret, or infinite if the loss is not
        top-k consistent. Published bounds can exceed 1.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no bound.

    Notes
    -----
    The published proof pairs the i-th most probable label with the i-th kept label. For every i,
    it uses a property that only the label with the highest score has: a softmax of at least 1/n,
    or a centered score of at least zero. The corrected bounds pair every missed label with a
    wrongly kept label. The score of the wrongly kept label is at least that of the missed label,
    which costs at least as much surrogate regret as pooling their weights. For log and exp,
    Jensen's inequality then combines the pairs without a factor k. docs/theory.md has the proofs.

    Examples
    --------
    >>> round(top_k_bound("log", 0.02, n=10, k=5), 4)
    0.1993
    >>> round(top_k_bound("log", 0.02, n=10, k=5, published=True), 4)
    0.9967
    >>> top_k_bound("hinge", 0.0, n=3, k=2)                # No bound, even for a regret of zero.
    inf
    """
    record = get_loss(loss, q=q)
    r = check_non_negative(regret, "regret")
    m = _max_missed(n, k)
    if published:
        return k * record.published_top_k_bound.value(r, n, m)
    if k == n:
        return 0.0
    bound = record.top_k_bound.value(r, n, m)
    if k == 1 and record.knows("published_top_k_bound"):
        bound = min(bound, record.published_top_k_bound.value(r, n, m))
    return bound if bound == math.inf else min(1.0, bound)


def _max_missed(n: int, k: int) -> int:
    """Check n and k, and return how many of the k most probable labels top-k can miss."""
    check_count(n, "n", minimum=2)
    if check_count(k, "k") > n:
        raise ValueError(f"k = {k} is more than n = {n}; k must be at most n")
    return min(k, n - k)


def rate(
    loss: str, *, n: int, k: int, q: float = 0.7, published: bool = False
) -> tuple[float, float]:
    """Return the constant c and exponent s of the top-k bound `c e^s` for small regrets e.

    The paper states `k sqrt(2 e)` for log and exp, `k n e` for mae, and `k sqrt(2 n^q e)` for gce.
    For gce, the paper's psi also gives the factor `sqrt(1 - q)`, which this function includes.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has the bound.
    n : int
        Number of labels.
    k : int
        Size of the top-k set, from 1 to n.
    q : float, default=0.7
        Exponent of the loss "gce".
    published : bool, default=False
        Whether to return the rate of the published bound.

    Returns
    -------
    tuple of float
        The constant c and the exponent s.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no bound.

    Examples
    --------
    >>> [round(v, 4) for v in rate("log", n=10, k=3, published=True)]
    [4.2426, 0.5]
    >>> [round(v, 4) for v in rate("gce", n=10, k=3)]
    [2.973, 0.3]
    >>> rate("mae", n=10, k=3)
    (inf, 0.0)
    """
    record = get_loss(loss, q=q)
    m = _max_missed(n, k)
    if k == n and not published:
        return 0.0, 1.0
    if published or (k == 1 and record.knows("published_top_k_bound")):
        constant, exponent = record.published_top_k_bound.rate(n, m)
        return k * constant, exponent
    return record.top_k_bound.rate(n, m)


def realizable_bound(loss: str, error: float, *, n: int, q: float = 0.7) -> float:
    """Bound the top-1 error of a hypothesis by its expected surrogate error, for realizable data.

    Suppose that some hypothesis separates the data, and that the hypothesis set is closed under
    scaling. Then the infimum of a comp-sum loss and its minimizability gap are zero, and the
    top-1 error of h is at most `psi^-1` of its expected surrogate error. For k >= 2, linear
    predictors have no such bound: the data of `top_two_example` are separable for top-2, but the
    best logistic model has a top-2 error.

    Parameters
    ----------
    loss : str
        Name of a comp-sum loss whose record has psi.
    error : float
        Expected surrogate error of the hypothesis.
    n : int
        Number of labels.
    q : float, default=0.7
        Exponent of the loss "gce".

    Returns
    -------
    float
        Bound on the probability that the highest score belongs to a wrong label.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no psi.

    Examples
    --------
    >>> round(realizable_bound("log", 0.02, n=10), 4)
    0.1993
    """
    return psi_inverse(loss, check_non_negative(error, "error"), n=n, q=q)
