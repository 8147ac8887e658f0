"""Exact arithmetic for losses whose published top-k bound fails, for three labels and k = 2."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from fractions import Fraction

from shortlist._utils.validation import check_choice
from shortlist.theory.exact import Interval

Vector = tuple[Fraction, ...]


class ExactLoss(ABC):
    """A loss in exact arithmetic.

    `scores` are softmax values for a comp-sum loss, exponentials of scores for the constrained
    exponential loss, and scores for the other constrained losses.
    """

    score_name = "scores"

    def __init__(self, q: Fraction) -> None:
        self.q = q

    @abstractmethod
    def allows(self, scores: Vector) -> bool:
        """Return whether the scores satisfy the constraint of the loss."""

    @abstractmethod
    def regret(self, p: Vector, scores: Vector) -> Interval:
        """Return an enclosure of the regret: the error minus the infimum over all scores."""

    @abstractmethod
    def required_regret(self, share: Fraction, n: int) -> Interval:
        """Return an enclosure of the smallest regret that the published bound allows.

        `share` is the top-k regret divided by k.
        """

    def tied_scores(self, p: Vector, digits: int) -> Vector:
        """Return the best scores with a tie of the last two labels, rounded to some digits."""
        raise NotImplementedError(f"{type(self).__name__} does not implement tied_scores")


class _SoftmaxLoss(ExactLoss):
    score_name = "softmax"

    def allows(self, scores: Vector) -> bool:
        return sum(scores) == 1 and min(scores) > 0


class _Mae(_SoftmaxLoss):
    def regret(self, p: Vector, scores: Vector) -> Interval:
        return Interval.of(_dot(p, [1 - s for s in scores]) - (1 - max(p)))

    def required_regret(self, share: Fraction, n: int) -> Interval:
        return Interval.of(share / n)


class _Gce(_SoftmaxLoss):
    def regret(self, p: Vector, scores: Vector) -> Interval:
        a = 1 / (1 - self.q)
        norm = _total(Interval.of(x).power(a) for x in p).power(1 - self.q)
        hits = _total(Interval.of(s).power(self.q) * x for x, s in zip(p, scores, strict=True))
        return (norm - hits) * (1 / self.q)

    def required_regret(self, share: Fraction, n: int) -> Interval:
        a = 1 / (1 - self.q)
        powers = Interval.of(1 + share).power(a) + Interval.of(1 - share).power(a)
        mean = (powers * Fraction(1, 2)).power(1 - self.q)
        return (mean - 1) * (Interval.of(Fraction(1, n)).power(self.q) * (1 / self.q))

    def tied_scores(self, p: Vector, digits: int) -> Vector:
        first, mean = float(p[0]), float(p[1] + p[2]) / 2
        ratio = math.exp((math.log(mean) - math.log(first)) / (1 - float(self.q)))
        s = _rounded(ratio / (1 + 2 * ratio), digits)
        return 1 - 2 * s, s, s


class _ConstrainedExp(ExactLoss):
    score_name = "exp(scores)"

    def allows(self, scores: Vector) -> bool:
        return math.prod(scores) == 1 and min(scores) > 0

    def regret(self, p: Vector, scores: Vector) -> Interval:
        v, n = [1 - x for x in p], len(p)
        infimum = Interval.of(math.prod(v)).power(Fraction(1, n)) * n
        return Interval.of(_dot(v, scores)) - infimum

    def required_regret(self, share: Fraction, n: int) -> Interval:
        return Interval.of((share / 2) ** 2)

    def tied_scores(self, p: Vector, digits: int) -> Vector:
        first, tied = _tied_weights(p)
        s = _rounded((first / tied) ** (1 / 3), digits)
        return 1 / s**2, s, s


class _ScoreLoss(ExactLoss):
    def allows(self, scores: Vector) -> bool:
        return sum(scores) == 0


class _SquaredHinge(_ScoreLoss):
    def regret(self, p: Vector, scores: Vector) -> Interval:
        v = [1 - x for x in p]
        infimum = len(p) ** 2 / sum((1 / x for x in v), Fraction())
        return Interval.of(_dot(v, [x * x for x in _hinges(scores)]) - infimum)

    def required_regret(self, share: Fraction, n: int) -> Interval:
        return Interval.of((share / 2) ** 2)

    def tied_scores(self, p: Vector, digits: int) -> Vector:
        first, tied = _tied_weights(p)
        s = _rounded(3 / tied / (1 / first + 2 / tied), digits) - 1
        return -2 * s, s, s


class _Hinge(_ScoreLoss):
    def regret(self, p: Vector, scores: Vector) -> Interval:
        v = [1 - x for x in p]
        return Interval.of(_dot(v, _hinges(scores)) - len(p) * min(v))

    def required_regret(self, share: Fraction, n: int) -> Interval:
        return Interval.of(share)


class _Margin(_ScoreLoss):
    """Margin loss with rho = 1."""

    def regret(self, p: Vector, scores: Vector) -> Interval:
        v = [1 - x for x in p]
        return Interval.of(_dot(v, [min(x, Fraction(1)) for x in _hinges(scores)]) - min(v))

    def required_regret(self, share: Fraction, n: int) -> Interval:
        return Interval.of(share)


_EXACT: dict[str, type[ExactLoss]] = {
    "mae": _Mae,
    "gce": _Gce,
    "constrained_exp": _ConstrainedExp,
    "squared_hinge": _SquaredHinge,
    "hinge": _Hinge,
    "margin": _Margin,
}
FAILING = tuple(_EXACT)
"""Losses whose published top-k theorem fails. For "gce" it fails for q > 1/2."""


def exact_loss(loss: str, q: Fraction) -> ExactLoss:
    """Return a loss in exact arithmetic. The error for an unknown name lists the known ones."""
    return _EXACT[check_choice(loss, "loss", FAILING)](q)


def _dot(weights: Iterable[Fraction], values: Iterable[Fraction]) -> Fraction:
    """Return the sum of the products."""
    return sum((w * x for w, x in zip(weights, values, strict=True)), Fraction())


def _hinges(scores: Vector) -> list[Fraction]:
    """Return max(0, 1 + score) of each score."""
    return [max(Fraction(), 1 + s) for s in scores]


def _tied_weights(p: Vector) -> tuple[float, float]:
    """Return 1 - p of the first label, and the mean 1 - p of the other two."""
    return float(p[1] + p[2]), 1 - float(p[1] + p[2]) / 2


def _total(parts: Iterable[Interval]) -> Interval:
    """Return the sum of intervals."""
    total = Interval.of(0)
    for part in parts:
        total = total + part
    return total


def _rounded(x: float, digits: int) -> Fraction:
    """Round to a number of significant digits."""
    return Fraction(f"{x:.{digits - 1}e}")
