"""Counter-examples that can be checked by hand: three labels, two kept, exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch

from shortlist._utils.validation import check_choice
from shortlist.losses import NO_BOUND, get_loss
from shortlist.theory.exact import Interval
from shortlist.theory.exact_losses import FAILING, ExactLoss, exact_loss
from shortlist.theory.search import LARGEST, Cases, regrets
from shortlist.theory.statements import Statement, published_statements

SMALLEST = 120
"""Probabilities down to 10^-SMALLEST are tested."""


@dataclass(frozen=True)
class Certificate:
    """A counter-example to a published top-k bound, for three labels and k = 2.

    All numbers are exact; `check` repeats the proof.

    Parameters
    ----------
    loss : str
        Name of the loss.
    p : tuple of Fraction
        Probabilities of the labels.
    scores : tuple of Fraction
        Values of the softmax for a comp-sum loss, exponentials of the scores (with the product 1)
        for the constrained exponential loss, and the scores themselves (with the sum 0) for the
        other constrained losses.
    q : Fraction, default=Fraction(7, 10)
        Exponent of "gce".
    k : int, default=2
        Number of labels kept.

    Examples
    --------
    >>> half = Fraction(1, 2)
    >>> c = Certificate("mae", (half, Fraction(2, 5), Fraction(1, 10)), scores=(
    ...     Fraction(97, 100), Fraction(1, 100), Fraction(2, 100)))
    >>> c.kept(), c.target_regret(), c.check()
    ([0, 2], Fraction(3, 10), True)
    """

    loss: str
    p: tuple[Fraction, ...]
    scores: tuple[Fraction, ...]
    q: Fraction = Fraction(7, 10)
    k: int = 2

    def kept(self) -> list[int]:
        """Return the k labels with the highest scores; among ties those of the highest index.

        Returns
        -------
        list of int
            The labels, sorted.
        """
        order = sorted(range(len(self.p)), key=lambda y: (self.scores[y], y), reverse=True)
        return sorted(order[: self.k])

    def target_regret(self) -> Fraction:
        """Return the top-k regret.

        Returns
        -------
        Fraction
            The exact regret.
        """
        best = sum(sorted(self.p, reverse=True)[: self.k])
        return Fraction(best - sum(self.p[y] for y in self.kept()))

    def surrogate_regret(self) -> Interval:
        """Return bounds on the surrogate's regret: its error less the infimum over all scores.

        Returns
        -------
        Interval
            Bounds, equal where the regret is rational.
        """
        return self._exact().regret(self.p, self.scores)

    def needed(self) -> Interval:
        """Return bounds on the least surrogate regret that the published statement allows.

        Returns
        -------
        Interval
            Bounds, equal where the regret is rational.
        """
        return self._exact().needed(self.target_regret() / self.k, len(self.p))

    def check(self) -> bool:
        """Return whether this is a counter-example, exactly.

        Returns
        -------
        bool
            Whether p is a distribution, the scores are allowed, and the surrogate regret is less
            than the statement allows.
        """
        proper = sum(self.p) == 1 and min(self.p) >= 0 and self._exact().allows(self.scores)
        return proper and self.surrogate_regret() < self.needed()

    def _exact(self) -> ExactLoss:
        """Return the loss in exact arithmetic."""
        return exact_loss(self.loss, self.q)

    def __str__(self) -> str:
        return (
            f"{get_loss(self.loss, q=float(self.q)).label}: p = {_listed(self.p)}, "
            f"{self._exact().score_name} = {_listed(self.scores)} keeps labels "
            f"{', '.join(map(str, self.kept()))}; top-2 regret {_short(self.target_regret())}, "
            f"surrogate regret at most {_short(self.surrogate_regret().high)}, at least "
            f"{_short(self.needed().low)} needed"
        )


def certificate(loss: str, q: float = 0.7) -> Certificate | None:
    """Return the simplest counter-example to the published top-k bound of a loss.

    It has three labels, two of them kept, and probabilities of one digit: the largest ones for
    which the statement fails.

    Parameters
    ----------
    loss : str
        "mae", "gce", "constrained_exp", "squared_hinge", "hinge" or "margin". The published bounds
        of the other losses hold.
    q : float, default=0.7
        Exponent of "gce".

    Returns
    -------
    Certificate or None
        The counter-example; None if none was found, as for "gce" with q <= 1/2.

    Raises
    ------
    ValueError
        If the published bound of the loss holds, or q is out of range.

    Examples
    --------
    >>> c = certificate("gce", q=0.7)
    >>> [float(x) for x in c.p], [float(x) for x in c.scores], c.kept()
    ([0.7, 0.2, 0.1], [0.988, 0.006, 0.006], [0, 2])
    >>> float(c.target_regret()), c.check()
    (0.1, True)
    """
    check_choice(loss, "loss", FAILING)
    if get_loss(loss, q=q).top_k_bound is NO_BOUND:
        powers = (not_consistent(loss, Fraction(1, 10**j)) for j in range(1, 9))
        return next(example for example in powers if example.check())
    exponent = Fraction(float(q)).limit_denominator(1000)
    for p in _candidates(loss, float(q)):
        for digits in (1, 2, 3, 5, 8, 12):
            scores = exact_loss(loss, Fraction(float(q))).tied_scores(p, digits)
            example = Certificate(loss, p, scores, exponent)
            if example.check():
                return example
    return None


def not_consistent(loss: str, e: Fraction) -> Certificate:
    """Return scores whose surrogate regret goes to zero with e while the top-2 regret stays 3/10.

    So mae, hinge and margin are not consistent for the top-k loss with k >= 2.

    Parameters
    ----------
    loss : {"mae", "hinge", "margin"}
        A loss that is not consistent.
    e : Fraction
        A number between 0 and 1/3.

    Returns
    -------
    Certificate
        The counter-example.

    Raises
    ------
    ValueError
        If the loss is consistent, or e is out of range.

    Examples
    --------
    >>> [float(not_consistent("mae", Fraction(1, 10**j)).surrogate_regret().high) for j in (1, 3)]
    [0.09, 0.0009]
    >>> not_consistent("hinge", Fraction(1, 1000)).target_regret()
    Fraction(3, 10)
    """
    known = [name for name in FAILING if get_loss(name).top_k_bound is NO_BOUND]
    check_choice(loss, "loss", known)
    e = Fraction(e)
    if not 0 < e < Fraction(1, 3):
        raise ValueError(f"e must lie between 0 and 1/3; got {e}")
    p = (Fraction(1, 2), Fraction(2, 5), Fraction(1, 10))
    if get_loss(loss).family == "comp_sum":
        return Certificate(loss, p, (1 - 3 * e, e, 2 * e))
    return Certificate(loss, p, (2 + e, -1 - e, Fraction(-1)))


def gce_threshold(tolerance: float = 1e-4) -> float:
    """Return the exponent q above which the published top-2 bound of gce fails: 1/2.

    It is found for three labels by bisection over q, with `p = (1 - e, 0.9 e, 0.1 e)` and e down
    to exp(-10^6), because close to the threshold the counter-examples are that extreme.

    Parameters
    ----------
    tolerance : float, default=1e-4
        Width of the last interval.

    Returns
    -------
    float
        The threshold.

    Examples
    --------
    >>> round(gce_threshold(), 3)
    0.5
    """
    low, high = 0.1, 0.9
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (low, middle) if _fails(middle) else (middle, high)
    return (low + high) / 2


def _fails(q: float) -> bool:
    """Return whether the published bound of gce fails for some e."""
    log_e = -torch.logspace(-1, 6, 200, dtype=torch.float64)
    rest = torch.log(-torch.expm1(log_e))
    log_p = torch.stack([rest, log_e + math.log(0.9), log_e + math.log(0.1)], dim=1)
    return bool((_slack(_published("gce", q), log_p) > 0).any())


def _published(loss: str, q: float) -> Statement:
    """Return the published top-k statement of a loss."""
    *_, statement = published_statements(get_loss(loss, q=q), q)
    return statement


def _slack(statement: Statement, log_p: torch.Tensor) -> torch.Tensor:
    """Return by how much the regret of keeping the first and the third label is too small."""
    rows = len(log_p)
    kept = torch.zeros((rows, LARGEST), dtype=torch.bool)
    kept[:, [0, 2]] = True
    cases = Cases(torch.full((rows,), 3), torch.full((rows,), 2), kept)
    logits = torch.zeros((rows, LARGEST), dtype=torch.float64)
    logits[:, :3] = log_p
    _, target, surrogate = regrets(statement, cases, logits)
    slack = statement.needed(target, cases.n.double(), cases.k.double()) - surrogate
    return slack.nan_to_num(nan=-torch.inf)


def _candidates(loss: str, q: float) -> Iterator[tuple[Fraction, ...]]:
    """Yield distributions of one-digit numbers that violate the statement in floating point."""
    statement = _published(loss, q)
    pairs = [(a, b) for a in range(2, 10) for b in range(1, a)]
    for zeros in range(1, SMALLEST):
        unit = Fraction(1, 10**zeros)
        some = [(1 - (a + b) * unit, a * unit, b * unit) for a, b in pairs]
        some = [p for p in some if p[0] >= p[1]]
        if not some:
            continue
        log_p = torch.tensor([[math.log(float(x)) for x in p] for p in some], dtype=torch.float64)
        slack = _slack(statement, log_p)
        best = int(slack.argmax())
        if float(slack[best]) > 1e-3:
            yield some[best]


def _listed(numbers: tuple[Fraction, ...]) -> str:
    """Return a tuple of fractions as text."""
    return f"({', '.join(map(_short, numbers))})"


def _short(x: Fraction) -> str:
    """Return a fraction in decimals, in full if they are few."""
    if x.denominator <= 10**6 and 10**6 % x.denominator == 0:
        return f"{float(x):g}"
    if 0 < 1 - x < Fraction(1, 1000):
        return f"1 - {_short(1 - x)}"
    return f"{float(x):.4g}"
