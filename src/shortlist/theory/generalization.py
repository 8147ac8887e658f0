"""Generalization bounds and the constants of the losses in them."""

from __future__ import annotations

import math

from shortlist._utils.validation import check_count, check_non_negative, check_probability
from shortlist.losses import get_loss
from shortlist.theory.bounds import top_k_bound


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
    count = check_count(m, "m")
    spread = math.sqrt(math.log(2 / check_probability(delta, "delta")) / (2 * count))
    for name, value in (("rademacher", rademacher), ("loss_bound", loss_bound)):
        if value != math.inf:
            check_non_negative(value, name)
    regret = 4 * rademacher + 2 * loss_bound * spread + check_non_negative(gap, "gap")
    # The bounds take finite regrets. This one stands for infinity.
    return top_k_bound(loss, min(regret, 1e300), n=n, k=k, q=q, published=published)


def loss_bound(
    loss: str, *, n: int, largest: float = math.inf, q: float = 0.7, rho: float = 1.0
) -> float:
    """Return an upper bound of the values of a surrogate loss.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has `largest_value`.
    n : int
        Number of labels.
    largest : float, default=inf
        Largest absolute score.
    q : float, default=0.7
        Exponent of the loss "gce".
    rho : float, default=1.0
        Margin of the loss "margin".

    Returns
    -------
    float
        The upper bound. For log and exp it is the largest value. For mae, gce and margin it is
        finite even if `largest` is infinite.

    Raises
    ------
    ValueError
        If an argument is out of range, or the record of the loss has no `largest_value`.

    Examples
    --------
    >>> loss_bound("mae", n=10), loss_bound("log", n=10)
    (1.0, inf)
    """
    record = get_loss(loss, q=q, rho=rho)
    return record.largest_value(check_count(n, "n", minimum=2), _largest_score(largest))


def lipschitz(
    loss: str, *, n: int, largest: float = math.inf, q: float = 0.7, rho: float = 1.0
) -> float:
    """Return a Lipschitz constant of a surrogate loss as a function of the vector of scores.

    Distances between vectors of scores are Euclidean.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has `lipschitz`.
    n : int
        Number of labels.
    largest : float, default=inf
        Largest absolute score.
    q : float, default=0.7
        Exponent of the loss "gce".
    rho : float, default=1.0
        Margin of the loss "margin".

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
    return record.lipschitz(check_count(n, "n", minimum=2), _largest_score(largest))


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
) -> float:
    """Bound the Rademacher complexity of a surrogate loss over linear classifiers.

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
        Number of labels.
    norm : float
        Largest norm of the weight vector of a label.
    radius : float
        Largest norm of an input vector.
    q : float, default=0.7
        Exponent of the loss "gce".
    rho : float, default=1.0
        Margin of the loss "margin".

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
    constant = lipschitz(loss, n=n, largest=largest, q=q, rho=rho)
    return math.sqrt(2) * constant * n * largest / math.sqrt(count)
