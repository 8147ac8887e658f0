"""The inequalities in the proofs of docs/theory.md, as generators of test cases.

A case is a ratio, at most 1 if the inequality holds for the case, and a description. Except for
pooling, which is tested for random scores, the inequalities are tested in exact arithmetic.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import torch

from shortlist.losses import get_loss, loss_names
from shortlist.losses.pooled import Pooled
from shortlist.theory.exact import Interval
from shortlist.theory.exact_losses import exact_loss
from shortlist.theory.pooling import out_of_order
from shortlist.theory.regret import top_k
from shortlist.theory.surrogates import surrogate_error, surrogate_infimum

Random = np.random.Generator
Case = tuple[float, str]
LOW_Q = (Fraction(1, 10), Fraction(3, 10), Fraction(1, 2))
NEAR = Fraction(1, 10**6)
"""Difference of numbers whose power mean exceeds the mean by a nearly quadratic term."""


def pooling(rng: Random, count: int) -> Iterator[Case]:
    """Test `error(p, s) >= error(p~, s) >= C*(p~)` for scores s, where p~ pools p."""
    names = [name for name in loss_names() if get_loss(name).knows("infimum")]
    for i in range(min(count, 800)):
        n, loss = int(rng.integers(2, 7)), names[i % len(names)]
        p = rng.dirichlet(np.full(n, rng.choice([0.2, 1.0, 5.0]))) + 1e-9
        p /= p.sum()
        scores = rng.normal(size=n) * rng.choice([0.1, 1.0, 4.0])
        k = int(rng.integers(1, n + 1))
        pooled = pool(p, top_k(scores, k))
        errors = surrogate_error(loss, p, scores), surrogate_error(loss, pooled, scores)
        steps = (errors[1], errors[0]), (surrogate_infimum(loss, pooled), errors[1])
        ratio = max((small - 1e-12) / max(large, 1e-300) for small, large in steps)
        yield ratio, f"{loss}: p = {p}, scores = {scores}, k = {k}"


def pool(p: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return `max(p, t)` of the kept labels and `min(p, t)` of the others, with the sum of p.

    Examples
    --------
    >>> pool(np.array([0.5, 0.4, 0.1]), np.array([0, 2])).round(12).tolist()
    [0.5, 0.25, 0.25]
    """
    others = np.delete(p, kept)
    if p[kept].min() >= others.max(initial=0):
        return p  # The labels are in the right order.
    log_p = torch.from_numpy(np.log(p))[None]
    upper = torch.zeros_like(log_p, dtype=torch.bool)
    upper[0, torch.from_numpy(kept.copy())] = True
    after: np.ndarray = Pooled(log_p, out_of_order(log_p, upper)).after.exp()[0].numpy()
    result: np.ndarray = after / after.sum()
    return result


def two_point(rng: Random, count: int) -> Iterator[Case]:
    """Test `M_s(a, b)^2 >= ((a + b) / 2)^2 + (s - 1) ((a - b) / 2)^2` for s <= 2."""
    for q, (b, a) in itertools.product(LOW_Q, _pairs()):
        s = 1 / (1 - q)
        left = _mean_of_powers(a, b, s).power(2 * (1 - q))
        right = ((a + b) / 2) ** 2 + (s - 1) * ((a - b) / 2) ** 2
        yield _ratio(right, left), _describe(q, a, b)


def power_mean(
    constant: Callable[[Fraction], Fraction], largest_sum: int = 2
) -> Callable[..., Iterator[Case]]:
    """Test `M_s(a, b) - (a + b) / 2 >= constant(q) (a - b)^2` on [0, 1], for `s = 1 / (1 - q)`.

    `largest_sum` is the largest value of a + b.
    """
    pairs = [(b, a) for b, a in _pairs() if a + b <= largest_sum]

    def cases(rng: Random, count: int) -> Iterator[Case]:
        for q, (b, a) in itertools.product((*LOW_Q, Fraction(7, 10), Fraction(9, 10)), pairs):
            left = _mean_of_powers(a, b, 1 / (1 - q)).power(1 - q) - (a + b) / 2
            yield _ratio(constant(q) * (a - b) ** 2, left), _describe(q, a, b)

    return cases


def published_gce(rng: Random, count: int) -> Iterator[Case]:
    """Test `psi(D / k) <= (2/3) D^2 / ((1 - q) 2^a m^(a - 1))` for q <= 1/2 and k >= 2."""
    targets = [Fraction(1, 10**j) for j in (0, 1, 6)]
    for q, k, more, target in itertools.product(LOW_Q, (2, 3, 8), (1, 2, 8, 90), targets):
        n, a = k + more, 1 / (1 - q)
        m = min(k, more)
        psi = exact_loss("gce", q).required_regret(target / k, n)
        scale = Interval.of(2).power(a) * Interval.of(m).power(a - 1) * (1 - q)
        ratio = float((psi * scale).high / (Fraction(2, 3) * target**2))
        yield ratio, f"q = {float(q):g}, n = {n}, k = {k}, D = {float(target):g}"


def _pairs() -> Iterator[tuple[Fraction, Fraction]]:
    """Yield pairs (b, a) with 0 <= b < a <= 1."""
    yield from itertools.combinations([Fraction(i, 10) for i in range(11)], 2)
    yield from ((1 - NEAR, Fraction(1)), (Fraction(1, 2) - NEAR, Fraction(1, 2)))


def _mean_of_powers(a: Fraction, b: Fraction, s: Fraction) -> Interval:
    """Return `(a^s + b^s) / 2`."""
    return (Interval.of(a).power(s) + Interval.of(b).power(s)) * Fraction(1, 2)


def _ratio(small: Fraction, large: Interval) -> float:
    """Return `small / large`, at most 1 if and only if `small` is at most the whole interval."""
    if large.low >= small:
        return min(float(small / large.low), 1.0)
    return float(small / large.high)


def _describe(q: Fraction, a: Fraction, b: Fraction) -> str:
    return f"q = {float(q):g}, a = {float(a):g}, b = {float(b):g}"
