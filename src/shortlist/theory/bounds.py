"""The paper's theorems as functions: bounds on the target's regret by a surrogate's regret.

Each takes a surrogate regret (a conditional one, or an expected one with minimizability gaps
added, as all functions here are concave) and returns a bound on the target's regret. Where the
published statement is wrong, the function returns a right one, and the published one with
`published=True`. The formulas are in the records of the losses (`shortlist.losses.records`).

The hypothesis set must be symmetric and complete (`hypothesis_words` defines both).
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
        Name of a loss whose record has psi.
    t : float
        Argument, in [0, 1].
    n : int, default=2
        Number of labels.
    q : float, default=0.7
        Exponent of "gce".

    Returns
    -------
    float
        psi(t).

    Raises
    ------
    ValueError
        If an argument is out of range, or psi of the loss is not known.

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
        Name of a loss whose record has psi.
    regret : float
        Value of psi.
    n : int, default=2
        Number of labels.
    q : float, default=0.7
        Exponent of "gce".

    Returns
    -------
    float
        The inverse; 1 if the regret is larger than any psi.

    Raises
    ------
    ValueError
        If an argument is out of range, or psi of the loss is not known.

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

    It is `2 sqrt(t)` for log, exp, constrained exp and squared hinge; `2 sqrt(|K|^q t)` for gce;
    `|K| t` for mae; `t` for hinge and margin.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has a cost-sensitive bound.
    regret : float
        Argument t.
    members : int, default=2
        Number |K| of sets to choose from.
    q : float, default=0.7
        Exponent of "gce".

    Returns
    -------
    float
        gamma(t).

    Raises
    ------
    ValueError
        If an argument is out of range, or the bound of the loss is not known.

    Examples
    --------
    >>> gamma("log", 0.01), gamma("mae", 0.01, members=4), gamma("hinge", 0.01)
    (0.2, 0.04, 0.01)
    """
    record = get_loss(loss, q=q)
    t = check_non_negative(regret, "regret")
    return record.cost_sensitive_bound.value(t, check_count(members, "members"), 1)


def cost_sensitive_bound(loss: str, regret: float, *, members: int, q: float = 0.7) -> float:
    """Bound the cardinality-aware regret: the cost-sensitive theorems.

    The bound is `gamma(regret)`, for costs in [0, 1] (divide by
    `1 + cost_weight * cost(largest size)`) and both families, as published. `shortlist theory`
    finds no violation. The bounds of log, exp, mae, constrained exp, hinge and margin are tight;
    for the squared hinge loss `sqrt(2 t)` held in every case tested.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has a cost-sensitive bound.
    regret : float
        Regret of the cost-sensitive surrogate.
    members : int
        Number |K| of sets to choose from.
    q : float, default=0.7
        Exponent of "gce".

    Returns
    -------
    float
        The bound, at most 1.

    Raises
    ------
    ValueError
        If an argument is out of range, or the bound of the loss is not known.

    Examples
    --------
    >>> cost_sensitive_bound("log", 0.0001, members=4)
    0.02
    """
    return min(1.0, gamma(loss, regret, members=members, q=q))


def top_k_bound(
    loss: str, regret: float, *, n: int, k: int, q: float = 0.7, published: bool = False
) -> float:
    """Bound the top-k regret by a surrogate regret R: the top-k theorems.

    ================ ========================= ==============================================
    loss             published                 right, for 1 <= k < n, with m = min(k, n - k)
    ================ ========================= ==============================================
    log, exp         k psi^-1(R)               psi^-1(R): the factor k is not needed
    gce, q <= 1/2    k psi^-1(R)               sqrt((1 - q) 2^a m^(a - 1) R)
    gce, q > 1/2     k psi^-1(R): fails        m^q (q R / ((1 - q) (1 - 2^(1 - a))))^(1 - q)
    mae              k n R: fails              none; n R for k = 1
    constrained_exp  2 k sqrt(R): fails        (64/15 m 4^(1/n) R)^(n / (2 n + 1))
    squared_hinge    2 k sqrt(R): fails        ((2 m + 1/(n + 2)) (n + 2)^2 R / n^2)^(1/4)
    hinge, margin    k R: fails                none; R for k = 1
    ================ ========================= ==============================================

    with `a = 1 / (1 - q)`. "Fails" is for 2 <= k < n; for k = 1 the published bound holds, and the
    smaller of the two is returned.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has the bound.
    regret : float
        Surrogate regret R.
    n : int
        Number of labels.
    k : int
        Number of labels kept, from 1 to n.
    q : float, default=0.7
        Exponent of "gce".
    published : bool, default=False
        Return the published bound, right or wrong.

    Returns
    -------
    float
        The bound, at most 1, which no regret exceeds; infinity if the loss is not top-k
        consistent. Published bounds are not capped.

    Raises
    ------
    ValueError
        If an argument is out of range, or the bound of the loss is not known.

    Notes
    -----
    The published proof pairs the i-th best label with the i-th kept one, and uses of the kept one
    a property of the label on top alone (a softmax of at least 1/n, a centred score of at least
    zero). The right bounds pair every missed label with a wrongly kept one. To exchange the two,
    their scores must at least tie, which costs as much as pooling their weights; for log and exp
    Jensen's inequality then adds up the pairs without a factor. docs/theory.md has the proofs.

    Examples
    --------
    >>> round(top_k_bound("log", 0.02, n=10, k=5), 4)
    0.1993
    >>> round(top_k_bound("log", 0.02, n=10, k=5, published=True), 4)
    0.9967
    >>> top_k_bound("hinge", 0.0, n=3, k=2)                # zero regret, and yet no bound
    inf
    """
    record = get_loss(loss, q=q)
    r = check_non_negative(regret, "regret")
    m = _missed_at_once(n, k)
    if published:
        return k * record.published_top_k_bound.value(r, n, m)
    if k == n:
        return 0.0
    right = record.top_k_bound.value(r, n, m)
    if k == 1 and record.knows("published_top_k_bound"):
        right = min(right, record.published_top_k_bound.value(r, n, m))
    return right if right == math.inf else min(1.0, right)


def _missed_at_once(n: int, k: int) -> int:
    """Check n and k; return how many labels top-k can miss at once."""
    check_count(n, "n", minimum=2)
    if check_count(k, "k") > n:
        raise ValueError(f"k = {k} is more than n = {n}")
    return min(k, n - k)


def rate(
    loss: str, *, n: int, k: int, q: float = 0.7, published: bool = False
) -> tuple[float, float]:
    """Return the top-k bound for a small regret e, as (c, s) of `c e^s`.

    The paper has `k sqrt(2 e)` for log and exp, `k n e` for mae, and `k sqrt(2 n^q e)` for gce.
    Its psi of gce gives the factor `sqrt(1 - q)` as well, which is kept here.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has the bound.
    n : int
        Number of labels.
    k : int
        Number of labels kept, from 1 to n.
    q : float, default=0.7
        Exponent of "gce".
    published : bool, default=False
        Return the rate of the published bound.

    Returns
    -------
    tuple of float
        The constant c and the exponent s.

    Raises
    ------
    ValueError
        If an argument is out of range, or the bound of the loss is not known.

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
    m = _missed_at_once(n, k)
    if k == n and not published:
        return 0.0, 1.0
    if published or (k == 1 and record.knows("published_top_k_bound")):
        constant, exponent = record.published_top_k_bound.rate(n, m)
        return k * constant, exponent
    return record.top_k_bound.rate(n, m)


def realizable_bound(loss: str, error: float, *, n: int, q: float = 0.7) -> float:
    """Bound the top-1 error of h by its expected surrogate error, in the realizable case.

    If some hypothesis separates the data and the set is closed under scaling, the infimum of a
    comp-sum loss and its minimizability gap are zero (scale the separating hypothesis up), so that
    `E_01(h) <= psi^-1(E(h))`. For k >= 2 no such bound holds with linear predictors:
    `top_two_example` is separable for top-2, and its best logistic model errs.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has psi.
    error : float
        Expected surrogate error of h.
    n : int
        Number of labels.
    q : float, default=0.7
        Exponent of "gce".

    Returns
    -------
    float
        Bound on the probability that the label with the highest score is wrong.

    Raises
    ------
    ValueError
        If an argument is out of range, or psi of the loss is not known.

    Examples
    --------
    >>> round(realizable_bound("log", 0.02, n=10), 4)
    0.1993
    """
    return psi_inverse(loss, check_non_negative(error, "error"), n=n, q=q)
