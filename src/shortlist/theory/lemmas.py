"""Statements that are tested case by case: lemmas, the conformal rank, proof steps, examples.

A new lemma is a `Lemma` in the list that `lemmas` returns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shortlist.losses import get_loss, loss_names
from shortlist.theory.bayes import bayes_choice, deterministic_choice
from shortlist.theory.gaps import FiniteDistribution, minimizability_gap
from shortlist.theory.proof_steps import pooling, power_mean, published_gce, two_point
from shortlist.theory.regret import cardinality_regret, top_k_regret
from shortlist.theory.surrogates import surrogate_error, surrogate_infimum

Random = np.random.Generator
COVERAGE = "coverage >= 1 - alpha"


@dataclass(frozen=True)
class Lemma:
    """A statement and a generator of test cases.

    A case is a ratio and a description. The ratio is at most 1 if the statement holds for the
    case.
    """

    name: str
    subject: str
    bound: str
    cases: Callable[[Random, int], Iterator[tuple[float, str]]]


def lemmas() -> list[Lemma]:
    """Return all lemmas."""
    return [
        Lemma("regret of the top-k loss", "-", "equality", _top_k_regret),
        Lemma("regret of the cardinality-aware loss", "-", "equality", _cardinality_regret),
        Lemma("Bayes selector, stochastic", "-", "equality", _stochastic),
        Lemma("Bayes selector, deterministic", "-", "equality", _deterministic),
        Lemma("infimum of a surrogate", "all losses", "lower bound", _infima),
        Lemma("conformal rank, as published", "ceil(alpha (m+1))", COVERAGE, _ceiling),
        Lemma("conformal rank, corrected", "floor(alpha (m+1))", COVERAGE, _floor),
        Lemma("pooling reduces the error", "all losses", "error(p~) >= C*(p~)", pooling),
        Lemma("power mean, a + b <= 1", "gce", "q/4 (a-b)^2", power_mean(lambda q: q / 4, 1)),
        Lemma("power mean, as used in a proof", "gce", "q/4 (a-b)^2", power_mean(lambda q: q / 4)),
        Lemma("power mean, corrected", "gce", "min(1, q/(1-q))/8 (a-b)^2", power_mean(_eighth)),
        Lemma("two-point inequality", "gce, q <= 1/2", "S^2 + (s-1) d^2", two_point),
        Lemma("published bound, proof", "gce, q <= 1/2", "psi(D/k) <= 2/3 Q", published_gce),
        Lemma("minimizability gap", "log", "0 <= M <= approximation", _gap),
        Lemma("realizable consistency, k = 1", "log", "error 0", _separable),
        Lemma("no realizable consistency, k = 2", "log", "error > 0", _top_two),
        Lemma("Denis and Hebiri equal top-k, sizes", "-", "equality", _denis_hebiri(mean=False)),
        Lemma("Denis and Hebiri equal top-k, mean", "-", "equality", _denis_hebiri(mean=True)),
    ]


def _equality_ratio(left: float, right: float) -> float:
    """Return 1 if two numbers are equal, and infinity otherwise."""
    return 1.0 if math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12) else math.inf


def _draw_distribution(rng: Random, n: int) -> np.ndarray:
    """Draw a distribution from a flat or a peaked Dirichlet distribution."""
    p: np.ndarray = rng.dirichlet(np.full(n, rng.choice([0.2, 1.0, 5.0])))
    return p


def _top_k_regret(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Compare the top-k regret with the enumeration of all subsets."""
    for _ in range(count):
        n = int(rng.integers(2, 7))
        k = int(rng.integers(1, n + 1))
        p, h = _draw_distribution(rng, n), rng.integers(-2, 3, size=n).astype(float)  # With ties.
        best = max(sum(p[list(kept)]) for kept in itertools.combinations(range(n), k))
        kept = sorted(range(n), key=lambda y, h=h: (h[y], y), reverse=True)[:k]  # type: ignore[misc]
        regret = best - float(p[kept].sum())
        yield _equality_ratio(top_k_regret(p, h, k), regret), f"p = {p}, h = {h}, k = {k}"


def _cardinality_regret(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Compare the cardinality-aware regret with sums over labels."""
    for _ in range(count):
        n, members = int(rng.integers(2, 7)), int(rng.integers(1, 6))
        p, costs = _draw_distribution(rng, n), rng.random((members, n))
        choice = int(rng.integers(members))
        errors = [sum(p[y] * costs[k, y] for y in range(n)) for k in range(members)]
        regret = cardinality_regret(p, costs, choice)
        yield _equality_ratio(regret, errors[choice] - min(errors)), f"p = {p}, costs = {costs}"


def _sets(rng: Random, n: int) -> list[list[int]]:
    """Draw nested sets of increasing size."""
    order = rng.permutation(n).tolist()
    sizes = sorted(rng.choice(np.arange(1, n + 1), size=int(rng.integers(1, n + 1)), replace=False))
    return [order[:size] for size in sizes]


def _stochastic(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Compare the Bayes selector with the enumeration of all sets."""
    for _ in range(count):
        n = int(rng.integers(2, 7))
        p, sets, weight = _draw_distribution(rng, n), _sets(rng, n), float(rng.random())
        losses = [sum(p[y] * ((y not in g) + weight * len(g)) for y in range(n)) for g in sets]
        k = bayes_choice(p, sets, "linear", weight)
        yield _equality_ratio(losses[k], min(losses)), f"p = {p}, sets = {sets}, lambda = {weight}"


def _deterministic(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Compare the choice for a known label with the smallest set that contains it."""
    for _ in range(count):
        n = int(rng.integers(2, 7))
        sets, y = _sets(rng, n), int(rng.integers(n))
        weight = float(rng.random()) / len(sets[-1])  # The lemma assumes lambda cost <= 1.
        containing = [k for k, g in enumerate(sets) if y in g]
        choice = deterministic_choice(y, sets, "linear", weight)
        expected = containing[0] if containing else 0
        yield _equality_ratio(choice, expected), f"y = {y}, sets = {sets}, lambda = {weight}"


def _infima(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Compare the infimum of each loss with the errors of random scores."""
    names = [name for name in loss_names() if get_loss(name).knows("infimum")]
    for i in range(count):
        n, loss = int(rng.integers(2, 6)), names[i % len(names)]
        p, h = _draw_distribution(rng, n), 3 * rng.standard_normal(n)
        infimum = surrogate_infimum(loss, p)
        error = surrogate_error(loss, p, h)
        yield (infimum - 1e-9) / max(error, 1e-300), f"{loss}: p = {p}, h = {h}"


def _coverage(rank: int, m: int) -> Fraction:
    """Return the coverage of a threshold: the score with this rank among m calibration scores."""
    return 1 - Fraction(rank, m + 1)


def _ranks(rounding: Callable[[Fraction], int]) -> Callable[..., Iterator[tuple[float, str]]]:
    """Compare the coverage at a rounded rank with the requested coverage."""

    def cases(rng: Random, count: int) -> Iterator[tuple[float, str]]:
        for m in range(1, min(count, 60)):
            for percent in (1, 5, 10, 20):
                alpha = Fraction(percent, 100)
                rank = rounding(alpha * (m + 1))
                if rank:  # Rank 0 keeps every label.
                    coverage = _coverage(rank, m)
                    description = f"m = {m}, alpha = {float(alpha):g}: coverage {coverage}"
                    ratio = float((1 - alpha) / coverage) if coverage else math.inf
                    yield ratio, description

    return cases


_ceiling = _ranks(math.ceil)
_floor = _ranks(math.floor)


def _eighth(q: Fraction) -> Fraction:
    """Return the constant of the corrected inequality between a power mean and the mean."""
    return min(Fraction(1), q / (1 - q)) / 8


def _gap(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Test `0 <= M <= approximation error` for linear predictors and few inputs, some at zero."""
    for _ in range(min(count, 20)):
        x = rng.normal(size=(4, 1)) * (rng.random((4, 1)) < 0.7)
        p = rng.dirichlet(np.ones(3), size=4)
        result = minimizability_gap("log", FiniteDistribution.of(x, p), starts=1)
        ratio = (result.gap - 1e-9) / max(result.approximation, 1e-300)
        description = f"x = {x.ravel()}, p = {p}: gap {result.gap:g}"
        yield ratio if result.gap >= -1e-9 else math.inf, description


def _separable(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Test that the best logistic model has no error on separable data."""
    data = FiniteDistribution.of([[-1.0], [1.0]], [[0.0, 1.0], [1.0, 0.0]])
    best = minimizability_gap("log", data, starts=1)
    assert best.weights is not None
    error = data.top_k_error(best.weights, 1)
    yield (math.inf if error > 0 else 1.0), f"error {error:g}"


def _top_two(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Test that weights with a top-2 error have a smaller loss than all weights without one."""
    for e, c in ((Fraction(1, 20), 4), (Fraction(1, 10), 3)):
        description = f"e = {float(e):g} in top_two_example, weights ({c}, {-c}, 0) log 2"
        yield (1.0 if error_has_smaller_loss(e, c) else math.inf), description


def error_has_smaller_loss(e: Fraction, c: int) -> bool:
    """Return whether certain weights with a top-2 error have a smaller loss than all without one.

    In `top_two_example(e)`, the weights `(c, -c, 0) log 2` have a top-2 error. Their logistic loss
    is compared in integer arithmetic with a lower bound for all weights without error.

    Without error, label 2 ranks last at x = 1, and therefore above label 1 at x = -1. There the
    softmax of label 1 is at most 1/2, so that the mean loss is at least log(2) / 2. For the given
    weights, `1 / softmax` is `1 + 2^-c + 2^-2c` for the highest label and `1 + 2^c + 2^2c` for the
    lowest.

    Examples
    --------
    >>> error_has_smaller_loss(Fraction(1, 20), 4), error_has_smaller_loss(Fraction(1, 20), 0)
    (True, False)
    """
    top = 1 + Fraction(1, 2**c) + Fraction(1, 4**c)
    last = 1 + 2**c + 4**c
    # Compares the mean of log(1 / softmax) with log(2) / 2, both multiplied by 2 / e.
    inverse = 1 / e
    if inverse.denominator != 1:
        raise ValueError(f"1 / e must be an integer; got e = {e}")
    return bool(top ** (2 * inverse.numerator - 1) * last < 2**inverse.numerator)


def _denis_hebiri(mean: bool) -> Callable[..., Iterator[tuple[float, str]]]:
    """Compare top-k with the most accurate sets of size k, in each row or on average."""

    def cases(rng: Random, count: int) -> Iterator[tuple[float, str]]:
        rows, n, k = 2, 4, 2
        for _ in range(min(count, 200)):
            counts = rng.integers(0, 10, size=(rows, n)) + np.eye(rows, n, dtype=np.int64)
            p = [[Fraction(int(c), int(row.sum())) for c in row] for row in counts]
            top = sum((sum(sorted(row)[-k:], Fraction()) for row in p), Fraction())
            best = top
            if mean:  # The most probable pairs of a row and a label.
                best = sum(sorted(x for row in p for x in row)[-rows * k :], Fraction())
            rows_text = "; ".join(", ".join(map(str, row)) for row in p)
            yield float(best / top), f"p = {rows_text}: {best / rows}, not {top / rows}"

    return cases
