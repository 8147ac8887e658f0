"""Counter-examples to published top-k bounds in exact arithmetic, for three labels and k = 2."""

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

MAX_ZEROS = 120
"""The search for a counter-example covers probabilities down to 10^-MAX_ZEROS."""


@dataclass(frozen=True)
class Certificate:
    """A counter-example to a published top-k bound, for three labels and k = 2.

    All numbers are exact. `check` verifies the counter-example.

    Parameters
    ----------
    loss : str
        Name of the loss.
    p : tuple of Fraction
        Probabilities of the labels.
    scores : tuple of Fraction
        Softmax values for a comp-sum loss, exponentials of scores (with product 1) for the
        constrained exponential loss, and scores (with sum 0) for the other constrained losses.
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
        """Return the k labels with the highest scores. Ties go to the highest index.

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
        """Return the surrogate regret: the error minus the infimum over all scores.

        Returns
        -------
        Interval
            Enclosure of the regret. Its ends are equal if the regret is rational.
        """
        return self._exact().regret(self.p, self.scores)

    def required_regret(self) -> Interval:
        """Return the smallest surrogate regret that the published bound allows.

        Returns
        -------
        Interval
            Enclosure of the regret. Its ends are equal if the regret is rational.
        """
        return self._exact().required_regret(self.target_regret() / self.k, len(self.p))

    def check(self) -> bool:
        """Return whether this is a counter-example, in exact arithmetic.

        Returns
        -------
        bool
            Whether p is a distribution, the scores satisfy the constraint of the loss, and the
            surrogate regret is less than the published bound allows.
        """
        is_valid = sum(self.p) == 1 and min(self.p) >= 0 and self._exact().allows(self.scores)
        return is_valid and self.surrogate_regret() < self.required_regret()

    def _exact(self) -> ExactLoss:
        """Return the loss in exact arithmetic."""
        return exact_loss(self.loss, self.q)

    def __str__(self) -> str:
        target, regret = self.target_regret(), self.surrogate_regret().high
        return (
            f"{get_loss(self.loss, q=float(self.q)).label}: p = {_format_tuple(self.p)}, "
            f"{self._exact().score_name} = {_format_tuple(self.scores)} keeps labels "
            f"{', '.join(map(str, self.kept()))}; top-2 regret {_format_number(target)}, "
            f"surrogate regret at most {_format_number(regret)}, but at least "
            f"{_format_number(self.required_regret().low)} is required"
        )


def certificate(loss: str, q: float = 0.7) -> Certificate | None:
    """Return a simple counter-example to the published top-k bound of a loss.

    The example has three labels and k = 2. The two smaller probabilities are one-digit numbers
    times a power of ten, the largest power for which the bound fails.

    Parameters
    ----------
    loss : str
        "mae", "gce", "constrained_exp", "squared_hinge", "hinge" or "margin". The published
        bounds of the other losses hold.
    q : float, default=0.7
        Exponent of "gce".

    Returns
    -------
    Certificate or None
        The counter-example, or None if there is none, as for "gce" with q <= 1/2.

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
        examples = (inconsistency_example(loss, Fraction(1, 10**j)) for j in range(1, 9))
        return next(example for example in examples if example.check())
    exponent = Fraction(float(q)).limit_denominator(1000)
    for p in _candidates(loss, float(q)):
        for digits in (1, 2, 3, 5, 8, 12):
            scores = exact_loss(loss, Fraction(float(q))).tied_scores(p, digits)
            example = Certificate(loss, p, scores, exponent)
            if example.check():
                return example
    return None


def inconsistency_example(loss: str, e: Fraction) -> Certificate:
    """Return an example that a loss is not consistent for the top-k loss with k = 2.

    As e tends to zero, the surrogate regret of the example tends to zero, but its top-2 regret
    remains 3/10.

    Parameters
    ----------
    loss : {"mae", "hinge", "margin"}
        Name of a loss that is not consistent.
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
    >>> example = inconsistency_example("mae", Fraction(1, 1000))
    >>> float(example.surrogate_regret().high), float(example.target_regret())
    (0.0009, 0.3)
    >>> inconsistency_example("hinge", Fraction(1, 1000)).target_regret()
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
    """Compute the exponent q above which the published top-2 bound of gce fails, which is 1/2.

    The function bisects q for three labels with `p = (1 - e, 0.9 e, 0.1 e)` and e down to
    exp(-10^6). Near the threshold, only such extreme distributions are counter-examples.

    Parameters
    ----------
    tolerance : float, default=1e-4
        Width of the interval at which the bisection stops.

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
    """Return whether the published bound of gce fails for some distribution."""
    log_e = -torch.logspace(-1, 6, 200, dtype=torch.float64)
    log_first = torch.log(-torch.expm1(log_e))
    log_p = torch.stack([log_first, log_e + math.log(0.9), log_e + math.log(0.1)], dim=1)
    return bool((_slack(_published("gce", q), log_p) > 0).any())


def _published(loss: str, q: float) -> Statement:
    """Return the published top-k statement of a loss."""
    *_, statement = published_statements(get_loss(loss, q=q), q)
    return statement


def _slack(statement: Statement, log_p: torch.Tensor) -> torch.Tensor:
    """Return by how much the log-regret of keeping labels 0 and 2 is too small for the bound."""
    rows = len(log_p)
    kept = torch.zeros((rows, LARGEST), dtype=torch.bool)
    kept[:, [0, 2]] = True
    cases = Cases(torch.full((rows,), 3), torch.full((rows,), 2), kept)
    logits = torch.zeros((rows, LARGEST), dtype=torch.float64)
    logits[:, :3] = log_p
    _, target, surrogate = regrets(statement, cases, logits)
    slack = statement.log_required_regret(target, cases.n.double(), cases.k.double()) - surrogate
    return slack.nan_to_num(nan=-torch.inf)


def _candidates(loss: str, q: float) -> Iterator[tuple[Fraction, ...]]:
    """Yield distributions with one-digit probabilities that violate the bound in floating point."""
    statement = _published(loss, q)
    pairs = [(a, b) for a in range(2, 10) for b in range(1, a)]
    for zeros in range(1, MAX_ZEROS):
        unit = Fraction(1, 10**zeros)
        candidates = [(1 - (a + b) * unit, a * unit, b * unit) for a, b in pairs]
        candidates = [p for p in candidates if p[0] >= p[1]]
        if not candidates:
            continue
        logs = [[math.log(float(x)) for x in p] for p in candidates]
        log_p = torch.tensor(logs, dtype=torch.float64)
        slack = _slack(statement, log_p)
        best = int(slack.argmax())
        if float(slack[best]) > 1e-3:
            yield candidates[best]


def _format_tuple(numbers: tuple[Fraction, ...]) -> str:
    """Format a tuple of fractions."""
    return f"({', '.join(map(_format_number, numbers))})"


def _format_number(x: Fraction) -> str:
    """Format a fraction as a decimal number, exactly if it has at most six decimals."""
    if x.denominator <= 10**6 and 10**6 % x.denominator == 0:
        return f"{float(x):g}"
    if 0 < 1 - x < Fraction(1, 1000):
        return f"1 - {_format_number(1 - x)}"
    return f"{float(x):.4g}"
