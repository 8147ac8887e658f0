"""The paper's theorems as functions: how much a surrogate's regret allows the target's to be.

Each takes a surrogate regret (a conditional one, or an expected one with minimizability gaps
added, as all functions here are concave) and gives a bound on the target's. Where the published
statement is wrong, the function gives a right one, and the published one with `published=True`.

The hypothesis set must be symmetric and complete (`hypothesis_words` says what that means).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from shortlist._utils.arrays import check_choice, check_count, check_probability, check_weight
from shortlist.losses import NAMES
from shortlist.losses.common import check_between
from shortlist.losses.comp_sum import COMP_SUM_KINDS

NOT_CONSISTENT = ("mae", "hinge", "margin")
"""Not consistent for the top-k loss with 2 <= k < n, so that no bound holds there."""


def psi(loss: str, t: float, *, n: int = 2, q: float = 0.7) -> float:
    """The paper's psi of a comp-sum loss (Theorem on top-k, Section 4), t in [0, 1].

    ==== =======================================================================
    log  (1 - t)/2 log(1 - t) + (1 + t)/2 log(1 + t)
    exp  1 - sqrt(1 - t^2)
    mae  t / n
    gce  ((((1 + t)^a + (1 - t)^a) / 2)^(1/a) - 1) / (q n^q), a = 1 / (1 - q)
    ==== =======================================================================

    >>> round(psi("log", 1.0), 6), round(psi("exp", 0.6), 12), psi("mae", 0.5, n=10)
    (0.693147, 0.2, 0.05)
    """
    check_choice(loss, "loss", COMP_SUM_KINDS)
    if not 0 <= t <= 1:
        raise ValueError(f"t must lie in [0, 1]; got {t!r}")
    check_count(n, "n", least=2)
    if loss == "mae":
        return t / n
    if loss == "exp":  # 1 - sqrt(1 - t^2), where t is small too
        return t * t / (1 + math.sqrt((1 - t) * (1 + t)))
    if loss == "log":
        if t < 1e-3:
            return t * t / 2 + t**4 / 12
        return sum(s / 2 * math.log(s) for s in (1 - t, 1 + t) if s > 0)
    check_between("q", q, 0.0, 1.0, "between 0 and 1, both excluded")
    return float(math.expm1(_log_mean_power(t, q) * (1 - q)) / (q * n**q))


def _log_mean_power(t: float, q: float) -> float:
    """log(((1 + t)^a + (1 - t)^a) / 2), precise where it is next to nothing."""
    a, beyond_one = 1 / (1 - q), q / (1 - q)
    if a * t > 30:
        return a * math.log1p(t) - math.log(2)  # the other power is lost in rounding
    if a * t < 0.1:  # all even powers of t, until they no longer count
        term = total = a * beyond_one / 2 * t * t
        for j in range(1, 10):
            term *= (a - 2 * j) * (a - 2 * j - 1) / ((2 * j + 1) * (2 * j + 2)) * t * t
            total += term
        return math.log1p(total)
    up = (1 + t) * math.expm1(beyond_one * math.log1p(t))
    down = (1 - t) * math.expm1(beyond_one * math.log1p(-t)) if t < 1 else 0.0
    return math.log1p((up + down) / 2)


def psi_inverse(loss: str, regret: float, *, n: int = 2, q: float = 0.7) -> float:
    """The t in [0, 1] with `psi(t) = regret`; 1 if the regret is larger than any psi.

    >>> round(psi_inverse("exp", 0.2), 12)
    0.6
    >>> psi_inverse("log", 5.0)
    1.0
    """
    r = check_weight(regret, "regret")
    if r >= psi(loss, 1.0, n=n, q=q):
        return 1.0
    if loss == "mae":
        return n * r
    if loss == "exp":
        return math.sqrt(r * (2 - r))
    small = psi(loss, 1e-9, n=n, q=q)
    if r < small:  # where psi is c t^2
        return 1e-9 * math.sqrt(r / small)

    def gap(log_t: float) -> float:
        return math.log(psi(loss, math.exp(log_t), n=n, q=q)) - math.log(r)

    return math.exp(float(brentq(gap, math.log(1e-9), 0.0, xtol=1e-14, rtol=1e-14)))


def gamma(loss: str, regret: float, *, members: int = 2, q: float = 0.7) -> float:
    """The paper's gamma of a cost-sensitive loss, or of a constrained one.

    `2 sqrt(t)` for log, exp, constrained exp and squared hinge; `2 sqrt(|K|^q t)` for gce;
    `|K| t` for mae; `t` for hinge and margin.

    >>> gamma("log", 0.01), gamma("mae", 0.01, members=4), gamma("hinge", 0.01)
    (0.2, 0.04, 0.01)
    """
    check_choice(loss, "loss", NAMES)
    t = check_weight(regret, "regret")
    check_count(members, "members")
    if loss == "mae":
        return members * t
    if loss in ("hinge", "margin"):
        return t
    if loss == "gce":
        check_between("q", q, 0.0, 1.0, "between 0 and 1, both excluded")
        t *= members**q
    return 2 * math.sqrt(t)


def cost_sensitive_bound(loss: str, regret: float, *, members: int, q: float = 0.7) -> float:
    """The cost-sensitive theorems: the cardinality-aware regret is at most `gamma(regret)`.

    For costs in [0, 1] (divide by `1 + lambda cost(largest size)`), both families, as published.
    They hold; `shortlist theory` finds no violation. Log, exp, mae, constrained exp, hinge and
    margin are tight; for the squared hinge loss `sqrt(2 t)` held in every case that was tried.

    >>> cost_sensitive_bound("log", 0.0001, members=4)
    0.02
    """
    return min(1.0, gamma(loss, regret, members=members, q=q))


def top_k_bound(
    loss: str, regret: float, *, n: int, k: int, q: float = 0.7, published: bool = False
) -> float:
    """The top-k theorems: at most how large the top-k regret is, for a surrogate regret R.

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

    with `a = 1 / (1 - q)`. "Fails" is for 2 <= k < n; for k = 1 what is published holds, and the
    smaller of the two is given. "None": the loss is not top-k consistent, and infinity is given.
    Others are cut off at 1, which no regret exceeds; the published ones are given as they are.

    Why the published ones fail: the proof pairs the i-th best label with the i-th kept one, and
    uses of the kept one what only the label on top has (a softmax of at least 1/n, a centred
    score of at least zero). The right ones pair every missed label with a wrongly kept one: to
    exchange the two, scores must tie at least, which costs what pooling their weights costs; for
    log and exp Jensen's inequality then adds up the pairs without a factor. docs/theory.md has
    the proofs.

    >>> round(top_k_bound("log", 0.02, n=10, k=5), 4)
    0.1993
    >>> round(top_k_bound("log", 0.02, n=10, k=5, published=True), 4)
    0.9967
    >>> top_k_bound("hinge", 0.0, n=3, k=2)                # zero regret, and yet no bound
    inf
    """
    check_choice(loss, "loss", NAMES)
    r = check_weight(regret, "regret")
    check_count(n, "n", least=2)
    if check_count(k, "k") > n:
        raise ValueError(f"k = {k} is more than n = {n}")
    printed = _published(loss, r, n, k, q)
    if published:
        return printed
    if k == n:
        return 0.0
    right = _right(loss, r, n, min(k, n - k), q)
    if k == 1:
        right = min(right, printed)
    return right if right == math.inf else min(1.0, right)


def _published(loss: str, r: float, n: int, k: int, q: float) -> float:
    if loss in COMP_SUM_KINDS:
        return k * psi_inverse(loss, r, n=n, q=q)
    return k * gamma(loss, r)


def _right(loss: str, r: float, n: int, m: int, q: float) -> float:
    """Valid for all k: `m` is how many labels can be missed at once."""
    if loss in ("log", "exp"):
        return psi_inverse(loss, r)
    if loss == "gce":
        return gce_bound(r, m, q)
    if loss == "constrained_exp":
        return float((64 / 15 * m * 4 ** (1 / n) * r) ** (n / (2 * n + 1)))
    if loss == "squared_hinge":
        return float(((2 * m + 1 / (n + 2)) * (n + 2) ** 2 / n**2 * r) ** 0.25)
    return math.inf


def gce_bound(regret: float, m: int, q: float) -> float:
    """The right bound for gce: a square root for q <= 1/2, slower above."""
    check_between("q", q, 0.0, 1.0, "between 0 and 1, both excluded")
    a = 1 / (1 - q)
    if q <= 0.5:
        return math.sqrt((1 - q) * 2**a * m ** (a - 1) * regret)
    return float(m**q * (q * regret / ((1 - q) * (1 - 2 ** (1 - a)))) ** (1 - q))


def rate(
    loss: str, *, n: int, k: int, q: float = 0.7, published: bool = False
) -> tuple[float, float]:
    """The bound for a small regret e, as (c, s) of `c e^s`.

    The paper has `k sqrt(2 e)` for log and exp, `k n e` for mae, and `k sqrt(2 n^q e)` for gce;
    the last is what its psi gives but for a factor `sqrt(1 - q)`, which is kept here.

    >>> [round(v, 4) for v in rate("log", n=10, k=3, published=True)]
    [4.2426, 0.5]
    >>> [round(v, 4) for v in rate("gce", n=10, k=3)]
    [2.973, 0.3]
    >>> rate("mae", n=10, k=3)
    (inf, 0.0)
    """
    check_choice(loss, "loss", NAMES)
    check_count(n, "n", least=2)
    check_between("q", q, 0.0, 1.0, "between 0 and 1, both excluded")
    if check_count(k, "k") > n:
        raise ValueError(f"k = {k} is more than n = {n}")
    m = min(k, n - k)
    if k == n and not published:
        return 0.0, 1.0
    if published or (k == 1 and loss not in ("log", "exp")):
        known = {
            "log": (k * math.sqrt(2), 0.5),
            "exp": (k * math.sqrt(2), 0.5),
            "gce": (k * math.sqrt(2 * (1 - q) * n**q), 0.5),
            "mae": (float(k * n), 1.0),
            "hinge": (float(k), 1.0),
            "margin": (float(k), 1.0),
        }
        return known.get(loss, (2.0 * k, 0.5))
    if loss in ("log", "exp"):
        return math.sqrt(2), 0.5
    exponents = {
        "gce": 0.5 if q <= 0.5 else 1 - q,
        "constrained_exp": n / (2 * n + 1),
        "squared_hinge": 0.25,
    }
    if loss not in exponents:
        return math.inf, 0.0
    return _right(loss, 1.0, n, m, q), exponents[loss]


def realizable_bound(loss: str, error: float, *, n: int, q: float = 0.7) -> float:
    """The realizable case: the top-1 error of h for its expected surrogate error.

    If some hypothesis separates the data and the set is closed under scaling, the infimum of a
    comp-sum loss and its minimizability gap are zero (scale the separating hypothesis up), so that
    `E_01(h) <= psi^-1(E(h))`. For k >= 2 nothing of the kind holds with linear predictors:
    `gaps.top_two_example` is separable for top-2, and its best logistic model errs.

    >>> round(realizable_bound("log", 0.02, n=10), 4)
    0.1993
    """
    check_choice(loss, "loss", COMP_SUM_KINDS)
    return psi_inverse(loss, check_weight(error, "error"), n=n, q=q)


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
    """The two generalisation bounds: the top-k regret of the empirical minimiser on m examples.

    With probability at least 1 - delta over the sample, at most the bound of the top-k theorem at
    `4 Rad + 2 B sqrt(log(2 / delta) / (2 m)) + gap`: `rademacher` is the Rademacher complexity of
    the surrogate over the hypothesis set, B = `loss_bound` an upper bound of the surrogate's
    values, and `gap` its minimizability gap. (On the left stands the top-k regret within the
    hypothesis set, plus its own minimizability gap.)

    Beware of what is assumed. The theorem behind it asks for a complete set, whose scores take
    all values; a loss that is not bounded (all but mae, gce and margin) then has no finite B. With
    a bounded norm B is finite, but the set is not complete: the bound is then a guide, not a
    theorem. Bounded losses avoid that; of these, mae and margin are not consistent for k >= 2.

    >>> r = rademacher_linear("log", m=10**6, n=10, norm=1.0, radius=1.0)
    >>> b = loss_bound("log", n=10, largest=1.0)
    >>> round(generalization_bound("log", m=10**6, rademacher=r, loss_bound=b, n=10, k=1), 3)
    0.421
    """
    count = check_count(m, "m")
    spread = math.sqrt(math.log(2 / check_probability(delta, "delta")) / (2 * count))
    for name, value in (("rademacher", rademacher), ("loss_bound", loss_bound)):
        if value != math.inf:
            check_weight(value, name)
    regret = 4 * rademacher + 2 * loss_bound * spread + check_weight(gap, "gap")
    # More than any surrogate regret says as little as an infinite one.
    return top_k_bound(loss, min(regret, 1e300), n=n, k=k, q=q, published=published)


def loss_bound(
    loss: str, *, n: int, largest: float = math.inf, q: float = 0.7, rho: float = 1.0
) -> float:
    """What a surrogate never exceeds, if no score exceeds `largest` in absolute value.

    The largest value itself for log and exp; mae, gce and margin are bounded for all scores.

    >>> loss_bound("mae", n=10), loss_bound("log", n=10)
    (1.0, inf)
    """
    check_choice(loss, "loss", NAMES)
    check_count(n, "n", least=2)
    _check_parameters(q, rho)
    if loss == "mae":
        return 1.0
    if loss == "gce":
        return 1 / q
    if loss == "margin":
        return float(n - 1)
    if math.isinf(largest):
        return math.inf
    b = check_weight(largest, "largest")
    if loss in ("log", "exp"):
        log_u = math.log(n - 1) + 2 * b
        return float(np.logaddexp(0.0, log_u)) if loss == "log" else _exp(log_u)
    centred = 2 * b * (n - 1) / n  # the most that a centred score can be
    most = {
        "constrained_exp": _exp(centred),
        "squared_hinge": (1 + centred) ** 2,
        "hinge": 1 + centred,
    }
    return (n - 1) * most[loss]


def _exp(x: float) -> float:
    """e^x, or infinity where that is too large for a float."""
    return math.exp(x) if x < 709 else math.inf


def _check_parameters(q: float, rho: float) -> None:
    check_between("q", q, 0.0, 1.0, "between 0 and 1, both excluded")
    check_between("rho", rho, 0.0, math.inf, "above 0")


def lipschitz(
    loss: str, *, n: int, largest: float = math.inf, q: float = 0.7, rho: float = 1.0
) -> float:
    """By how much a surrogate changes with the vector of scores at most, in Euclidean norm, if no
    score exceeds `largest` in absolute value.

    >>> round(lipschitz("log", n=10), 4), lipschitz("exp", n=10)
    (1.4142, inf)
    """
    check_choice(loss, "loss", NAMES)
    check_count(n, "n", least=2)
    _check_parameters(q, rho)
    # Of comp-sum losses the gradient is f(S_y) (S - e_y), whose norm is at most sqrt(2) f(S_y).
    if loss in ("log", "gce", "mae"):
        return math.sqrt(2)
    if loss == "margin":
        return math.sqrt(n - 1) / rho
    if loss == "hinge":
        return math.sqrt(n - 1)
    if math.isinf(largest):
        return math.inf
    b = check_weight(largest, "largest")
    if loss == "exp":
        return math.sqrt(2) * (1 + (n - 1) * _exp(2 * b))
    centred = 2 * b * (n - 1) / n
    slope = _exp(centred) if loss == "constrained_exp" else 2 * (1 + centred)
    return math.sqrt(n - 1) * slope


def rademacher_linear(
    loss: str,
    *,
    m: int,
    n: int,
    norm: float,
    radius: float,
    q: float = 0.7,
    rho: float = 1.0,
) -> float:
    """A bound on the Rademacher complexity of a surrogate over linear classifiers.

    Scores `w_y . x` with every `|w_y| <= norm` and every `|x| <= radius`: by the contraction
    lemma for vectors (Maurer, 2016), `sqrt(2) L n norm radius / sqrt(m)`, L being the Lipschitz
    constant of the loss on scores of at most `norm * radius`.

    >>> round(rademacher_linear("log", m=10_000, n=10, norm=1.0, radius=1.0), 3)
    0.2
    """
    count = check_count(m, "m")
    reach = check_weight(norm, "norm") * check_weight(radius, "radius")
    steep = lipschitz(loss, n=n, largest=reach, q=q, rho=rho)
    return math.sqrt(2) * steep * n * reach / math.sqrt(count)
