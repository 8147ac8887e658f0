"""Counter-examples that can be checked by hand: three labels, two kept, exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch

from shortlist._utils.arrays import check_choice
from shortlist.losses.common import check_between
from shortlist.losses.comp_sum import COMP_SUM_KINDS
from shortlist.theory.exact import Interval
from shortlist.theory.search import LARGEST, Cases, regrets
from shortlist.theory.statements import Statement, statements

FAILING = ("mae", "gce", "constrained_exp", "squared_hinge", "hinge", "margin")
"""Losses whose published top-k theorem fails."""
SMALLEST = 120
"""Probabilities down to 10^-SMALLEST are tried."""


@dataclass(frozen=True)
class Certificate:
    """A distribution and scores for which a published top-k bound does not hold, at n = 3, k = 2.

    `scores` are values of the softmax for a comp-sum loss, exponentials of the scores (with the
    product 1) for the constrained exponential loss, and the scores themselves (with the sum 0) for
    the other constrained ones. All are exact; `check()` repeats the proof.

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
        """The k labels with the highest scores; of ties the highest index."""
        order = sorted(range(len(self.p)), key=lambda y: (self.scores[y], y), reverse=True)
        return sorted(order[: self.k])

    def target_regret(self) -> Fraction:
        """The top-k regret."""
        best = sum(sorted(self.p, reverse=True)[: self.k])
        return Fraction(best - sum(self.p[y] for y in self.kept()))

    def surrogate_regret(self) -> Interval:
        """Bounds on the surrogate's regret: its error less the infimum over all scores."""
        p, s, n = self.p, self.scores, len(self.p)
        v = [1 - x for x in p]
        if self.loss == "mae":
            error = sum((x * (1 - y) for x, y in zip(p, s, strict=True)), Fraction())
            return Interval.of(error - (1 - max(p)))
        if self.loss == "gce":
            a = 1 / (1 - self.q)
            norm = _total(Interval.of(x).power(a) for x in p).power(1 - self.q)
            hits = _total(Interval.of(y).power(self.q) * x for x, y in zip(p, s, strict=True))
            return (norm - hits) * (1 / self.q)
        if self.loss == "constrained_exp":
            error = sum((x * y for x, y in zip(v, s, strict=True)), Fraction())
            return Interval.of(error) - Interval.of(math.prod(v)).power(Fraction(1, n)) * n
        rise = [max(Fraction(), 1 + y) for y in s]
        if self.loss == "squared_hinge":
            error = sum((x * y * y for x, y in zip(v, rise, strict=True)), Fraction())
            return Interval.of(error - n**2 / sum((1 / x for x in v), Fraction()))
        if self.loss == "hinge":
            error = sum((x * y for x, y in zip(v, rise, strict=True)), Fraction())
            return Interval.of(error - n * min(v))
        capped = [min(y, Fraction(1)) for y in rise]  # rho = 1
        error = sum((x * y for x, y in zip(v, capped, strict=True)), Fraction())
        return Interval.of(error - min(v))

    def needed(self) -> Interval:
        """Bounds on the least surrogate regret that the published statement allows."""
        share, n = self.target_regret() / self.k, len(self.p)
        if self.loss == "mae":
            return Interval.of(share / n)
        if self.loss == "gce":
            a = 1 / (1 - self.q)
            powers = Interval.of(1 + share).power(a) + Interval.of(1 - share).power(a)
            mean = (powers * Fraction(1, 2)).power(1 - self.q)
            scale = Interval.of(Fraction(1, n)).power(self.q) * (1 / self.q)
            return (mean - 1) * scale
        if self.loss in ("hinge", "margin"):
            return Interval.of(share)
        return Interval.of((share / 2) ** 2)

    def check(self) -> bool:
        """Whether it is one: a distribution, allowed scores, and a surrogate regret that is less
        than the statement allows, all of it exactly."""
        proper = sum(self.p) == 1 and min(self.p) >= 0
        if self.loss in COMP_SUM_KINDS:
            proper &= sum(self.scores) == 1 and min(self.scores) > 0
        elif self.loss == "constrained_exp":
            proper &= math.prod(self.scores) == 1 and min(self.scores) > 0
        else:
            proper &= sum(self.scores) == 0
        return proper and self.surrogate_regret() < self.needed()

    def __str__(self) -> str:
        names = {"constrained_exp": "exp(scores)"}
        kind = names.get(self.loss, "softmax" if self.loss in COMP_SUM_KINDS else "scores")
        loss = f"gce, q = {float(self.q):g}" if self.loss == "gce" else self.loss
        return (
            f"{loss}: p = {_listed(self.p)}, {kind} = {_listed(self.scores)} keeps labels "
            f"{', '.join(map(str, self.kept()))}; top-2 regret {_short(self.target_regret())}, "
            f"surrogate regret at most {_short(self.surrogate_regret().high)}, at least "
            f"{_short(self.needed().low)} needed"
        )


def certificate(loss: str, q: float = 0.7) -> Certificate | None:
    """The simplest counter-example to the published top-k bound, or None if none was found.

    Three labels, two kept, probabilities of one digit: the largest ones with which the statement
    fails.

    >>> c = certificate("gce", q=0.7)
    >>> [float(x) for x in c.p], [float(x) for x in c.scores], c.kept()
    ([0.7, 0.2, 0.1], [0.988, 0.006, 0.006], [0, 2])
    >>> float(c.target_regret()), c.check()
    (0.1, True)
    """
    check_choice(loss, "loss", FAILING)
    check_between("q", q, 0.0, 1.0, "between 0 and 1, both excluded")
    if loss in ("mae", "hinge", "margin"):
        powers = (not_consistent(loss, Fraction(1, 10**j)) for j in range(1, 9))
        return next(found for found in powers if found.check())
    q = float(q)
    for p in _candidates(loss, q):
        exponent = Fraction(q).limit_denominator(1000)
        for digits in (1, 2, 3, 5, 8, 12):
            found = Certificate(loss, p, _tied_scores(loss, p, q, digits), exponent)
            if found.check():
                return found
    return None


def not_consistent(loss: str, e: Fraction) -> Certificate:
    """Scores whose surrogate regret goes to zero with e, while the top-2 regret stays 3/10.

    So mae, hinge and margin are not consistent for the top-k loss, k >= 2.

    >>> [float(not_consistent("mae", Fraction(1, 10**j)).surrogate_regret().high) for j in (1, 3)]
    [0.09, 0.0009]
    >>> not_consistent("hinge", Fraction(1, 1000)).target_regret()
    Fraction(3, 10)
    """
    check_choice(loss, "loss", ("mae", "hinge", "margin"))
    e = Fraction(e)
    if not 0 < e < Fraction(1, 3):
        raise ValueError(f"e must lie between 0 and 1/3; got {e}")
    p = (Fraction(1, 2), Fraction(2, 5), Fraction(1, 10))
    if loss == "mae":
        return Certificate(loss, p, (1 - 3 * e, e, 2 * e))
    return Certificate(loss, p, (2 + e, -1 - e, Fraction(-1)))


def gce_threshold(tolerance: float = 1e-4) -> float:
    """The exponent q above which the published top-2 bound of gce fails, for three labels: 1/2.

    By bisection over q, with `p = (1 - e, 0.9 e, 0.1 e)` and e down to exp(-10^6): close to the
    threshold the counter-examples become so extreme.

    >>> round(gce_threshold(), 3)
    0.5
    """
    low, high = 0.1, 0.9
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (low, middle) if _fails(middle) else (middle, high)
    return (low + high) / 2


def _fails(q: float) -> bool:
    log_e = -torch.logspace(-1, 6, 200, dtype=torch.float64)
    rest = torch.log(-torch.expm1(log_e))
    log_p = torch.stack([rest, log_e + math.log(0.9), log_e + math.log(0.1)], dim=1)
    return bool((_slack(_statement("gce", q), log_p) > 0).any())


def _statement(loss: str, q: float) -> Statement:
    return next(
        s for s in statements((q,)) if (s.theorem, s.form, s.loss) == ("top-k", "published", loss)
    )


def _slack(statement: Statement, log_p: torch.Tensor) -> torch.Tensor:
    """How far the surrogate regret of keeping the first and the third label is too small."""
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
    """Distributions of one-digit numbers for which the statement fails, by floating point."""
    statement = _statement(loss, q)
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


def _tied_scores(loss: str, p: tuple[Fraction, ...], q: float, digits: int) -> tuple[Fraction, ...]:
    """The best scores at which the last two labels tie, in a few digits."""
    first, mean = float(p[0]), float(p[1] + p[2]) / 2
    v = (float(p[1] + p[2]), 1 - mean)
    if loss == "gce":
        a = 1 / (1 - q)
        ratio = math.exp(a * (math.log(mean) - math.log(first)))
        s = _rounded(ratio / (1 + 2 * ratio), digits)
        return 1 - 2 * s, s, s
    if loss == "constrained_exp":
        s = _rounded((v[0] / v[1]) ** (1 / 3), digits)
        return 1 / s**2, s, s
    s = _rounded(3 / v[1] / (1 / v[0] + 2 / v[1]), digits) - 1
    return -2 * s, s, s


def _rounded(x: float, digits: int) -> Fraction:
    """In so many significant digits."""
    return Fraction(f"{x:.{digits - 1}e}")


def _total(parts: Iterator[Interval]) -> Interval:
    total = Interval.of(0)
    for part in parts:
        total = total + part
    return total


def _listed(numbers: tuple[Fraction, ...]) -> str:
    return f"({', '.join(map(_short, numbers))})"


def _short(x: Fraction) -> str:
    """A fraction in decimals, in full if they are few."""
    if x.denominator <= 10**6 and 10**6 % x.denominator == 0:
        return f"{float(x):g}"
    if 0 < 1 - x < Fraction(1, 1000):
        return f"1 - {_short(1 - x)}"
    return f"{float(x):.4g}"
