"""Statements checked case by case: the lemmas, the conformal rank, an inequality, examples.

A new lemma is one `Lemma` in the list of `lemmas`.
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
from shortlist.theory.exact import Interval
from shortlist.theory.gaps import FiniteDistribution, minimizability_gap
from shortlist.theory.regret import cardinality_regret, top_k_regret
from shortlist.theory.surrogates import surrogate_error, surrogate_infimum

Random = np.random.Generator


@dataclass(frozen=True)
class Lemma:
    """A statement and a generator of cases.

    A case is the ratio of the two sides, at most 1 if the statement holds, and a text.
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
        Lemma("conformal rank, as printed", "ceil(alpha (m+1))", "coverage >= 1 - alpha", _ceiling),
        Lemma("conformal rank, right", "floor(alpha (m+1))", "coverage >= 1 - alpha", _floor),
        Lemma("inequality in a proof, as used", "gce", "q/4 (a-b)^2", _proof(4)),
        Lemma("inequality in a proof, right", "gce", "q/8 (a-b)^2", _proof(8)),
        Lemma("realizable consistency, k = 1", "log", "error 0", _realizable(1)),
        Lemma("realizable consistency, k = 2", "log", "error 0", _realizable(2)),
        Lemma("Denis and Hebiri equal top-k, sizes", "-", "equality", _denis_hebiri(mean=False)),
        Lemma("Denis and Hebiri equal top-k, mean", "-", "equality", _denis_hebiri(mean=True)),
    ]


def _sides(left: float, right: float) -> float:
    """Return 1 if two numbers are equal, else infinity."""
    return 1.0 if math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12) else math.inf


def _draw(rng: Random, n: int) -> np.ndarray:
    """Draw a distribution, flat or peaked."""
    p: np.ndarray = rng.dirichlet(np.full(n, rng.choice([0.2, 1.0, 5.0])))
    return p


def _top_k_regret(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Compare the top-k regret with the enumeration of all subsets."""
    for _ in range(count):
        n = int(rng.integers(2, 7))
        k = int(rng.integers(1, n + 1))
        p, h = _draw(rng, n), rng.integers(-2, 3, size=n).astype(float)  # with ties
        best = max(sum(p[list(kept)]) for kept in itertools.combinations(range(n), k))
        kept = sorted(range(n), key=lambda y, h=h: (h[y], y), reverse=True)[:k]  # type: ignore[misc]
        counted = best - float(p[kept].sum())
        yield _sides(top_k_regret(p, h, k), counted), f"p = {p}, h = {h}, k = {k}"


def _cardinality_regret(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Compare the cardinality-aware regret with sums over labels."""
    for _ in range(count):
        n, members = int(rng.integers(2, 7)), int(rng.integers(1, 6))
        p, costs = _draw(rng, n), rng.random((members, n))
        choice = int(rng.integers(members))
        errors = [sum(p[y] * costs[k, y] for y in range(n)) for k in range(members)]
        regret = cardinality_regret(p, costs, choice)
        yield _sides(regret, errors[choice] - min(errors)), f"p = {p}, costs = {costs}"


def _sets(rng: Random, n: int) -> list[list[int]]:
    """Draw nested sets of strictly increasing size."""
    order = rng.permutation(n).tolist()
    sizes = sorted(rng.choice(np.arange(1, n + 1), size=int(rng.integers(1, n + 1)), replace=False))
    return [order[:size] for size in sizes]


def _stochastic(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Compare the Bayes selector with the enumeration of all sets."""
    for _ in range(count):
        n = int(rng.integers(2, 7))
        p, sets, weight = _draw(rng, n), _sets(rng, n), float(rng.random())
        losses = [sum(p[y] * ((y not in g) + weight * len(g)) for y in range(n)) for g in sets]
        k = bayes_choice(p, sets, "linear", weight)
        yield _sides(losses[k], min(losses)), f"p = {p}, sets = {sets}, lambda = {weight}"


def _deterministic(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Compare the choice for a known label with the smallest set that contains it."""
    for _ in range(count):
        n = int(rng.integers(2, 7))
        sets, y = _sets(rng, n), int(rng.integers(n))
        weight = float(rng.random()) / len(sets[-1])  # lambda cost <= 1, as the lemma assumes
        containing = [k for k, g in enumerate(sets) if y in g]
        choice = deterministic_choice(y, sets, "linear", weight)
        expected = containing[0] if containing else 0
        yield _sides(choice, expected), f"y = {y}, sets = {sets}, lambda = {weight}"


def _infima(rng: Random, count: int) -> Iterator[tuple[float, str]]:
    """Compare the infimum of each loss that has one with the error of random scores."""
    names = [name for name in loss_names() if get_loss(name).knows("infimum")]
    for i in range(count):
        n, loss = int(rng.integers(2, 6)), names[i % len(names)]
        p, h = _draw(rng, n), 3 * rng.standard_normal(n)
        least = surrogate_infimum(loss, p)
        error = surrogate_error(loss, p, h)
        yield (least - 1e-9) / max(error, 1e-300), f"{loss}: p = {p}, h = {h}"


def _coverage(rank: int, m: int) -> Fraction:
    """Return the coverage of the threshold at a rank of m calibration scores without ties."""
    return 1 - Fraction(rank, m + 1)


def _ranks(rounding: Callable[[Fraction], int]) -> Callable[..., Iterator[tuple[float, str]]]:
    """Compare the coverage at a rounded rank with the requested coverage."""

    def cases(rng: Random, count: int) -> Iterator[tuple[float, str]]:
        for m in range(1, min(count, 60)):
            for percent in (1, 5, 10, 20):
                alpha = Fraction(percent, 100)
                rank = rounding(alpha * (m + 1))
                if rank:  # rank 0 keeps every label
                    coverage = _coverage(rank, m)
                    words = f"m = {m}, alpha = {float(alpha):g}: coverage {coverage}"
                    yield float((1 - alpha) / coverage) if coverage else math.inf, words

    return cases


_ceiling = _ranks(math.ceil)
_floor = _ranks(math.floor)


def _proof(share: int) -> Callable[..., Iterator[tuple[float, str]]]:
    """Test `((a^s + b^s) / 2)^(1/s) - (a + b) / 2 >= q / share (a - b)^2` on [0, 1], exactly.

    Here `s = 1 / (1 - q)`. The paper's proof for the cost-sensitive gce states the inequality with
    q / 4 for a + b <= 1, and uses it up to a + b = 2.
    """

    def cases(rng: Random, count: int) -> Iterator[tuple[float, str]]:
        for q in (Fraction(1, 10), Fraction(2, 5), Fraction(1, 2), Fraction(7, 10)):
            s = 1 / (1 - q)
            for i, j in itertools.combinations(range(11), 2):
                a, b = Fraction(j, 10), Fraction(i, 10)
                powers = Interval.of(a).power(s) + Interval.of(b).power(s)
                left = (powers * Fraction(1, 2)).power(1 - q) - (a + b) / 2
                right = q / share * (a - b) ** 2
                words = f"q = {float(q):g}, a = {float(a):g}, b = {float(b):g}"
                holds = left.low >= right
                yield (
                    (min(float(right / left.low), 1.0) if holds else float(right / left.high)),
                    words,
                )

    return cases


def _realizable(k: int) -> Callable[..., Iterator[tuple[float, str]]]:
    """Test whether the best logistic model of data that are separable for top-k errs."""

    def separable(rng: Random, count: int) -> Iterator[tuple[float, str]]:
        data = FiniteDistribution.of([[-1.0], [1.0]], [[0.0, 1.0], [1.0, 0.0]])
        best = minimizability_gap("log", data, starts=1)
        assert best.weights is not None
        error = data.top_k_error(best.weights, 1)
        yield (math.inf if error > 0 else 1.0), f"error {error:g}"

    def top_two(rng: Random, count: int) -> Iterator[tuple[float, str]]:
        for e, c in ((Fraction(1, 20), 4), (Fraction(1, 10), 3)):
            words = (
                f"e = {float(e):g} in top_two_example: the weights ({c}, {-c}, 0) log 2, which err "
                f"with probability {float(e / 2):g}, have a smaller loss than all that do not err"
            )
            yield (math.inf if errs_for_less(e, c) else 1.0), words

    return separable if k == 1 else top_two


def errs_for_less(e: Fraction, c: int) -> bool:
    """Return whether weights with a top-2 error have a smaller loss than all without one.

    In `top_two_example(e)`, the weights `(c, -c, 0) log 2` err. Their logistic loss is compared
    with that of every linear predictor without top-2 error, in integers.

    Without an error label 2 is last at x = 1, so that it ranks above label 1 at x = -1, where
    label 1 then has a softmax of 1/2 at most: a mean loss of at least log(2) / 2. The weights
    given have `1 / S = 1 + 2^-c + 2^-2c` for the label on top, and `1 + 2^c + 2^2c` for the last.

    Examples
    --------
    >>> errs_for_less(Fraction(1, 20), 4), errs_for_less(Fraction(1, 20), 0)
    (True, False)
    """
    top = 1 + Fraction(1, 2**c) + Fraction(1, 4**c)
    last = 1 + 2**c + 4**c
    # sum of weights * log(1 / S) < log(2) / 2, all times 2 / e.
    times = 1 / e
    if times.denominator != 1:
        raise ValueError(f"1 / e must be an integer; got e = {e}")
    return bool(top ** (2 * times.numerator - 1) * last < 2**times.numerator)


def _denis_hebiri(mean: bool) -> Callable[..., Iterator[tuple[float, str]]]:
    """Compare top-k with the most accurate sets of size at most k, per row or in the mean."""

    def cases(rng: Random, count: int) -> Iterator[tuple[float, str]]:
        rows, n, k = 2, 4, 2
        for _ in range(min(count, 200)):
            counts = rng.integers(0, 10, size=(rows, n)) + np.eye(rows, n, dtype=np.int64)
            p = [[Fraction(int(c), int(row.sum())) for c in row] for row in counts]
            top = sum((sum(sorted(row)[-k:], Fraction()) for row in p), Fraction())
            best = top
            if mean:  # The most probable labels of all rows together.
                best = sum(sorted(x for row in p for x in row)[-rows * k :], Fraction())
            words = "; ".join(", ".join(map(str, row)) for row in p)
            yield float(best / top), f"p = {words}: {best / rows}, not {top / rows}"

    return cases
