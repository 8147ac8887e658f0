"""The losses by their definitions, and their least errors without the closed forms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import mpmath
import numpy as np
from loss_definitions import COMP_SUM, definition
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog, minimize

Vector = NDArray[np.float64]


def softmax(scores: ArrayLike) -> Vector:
    e = np.exp(np.asarray(scores, dtype=float) - np.max(scores))
    return e / e.sum()


def of_definition(loss: str, x: Vector, parameter: float, slope: bool = False) -> Vector:
    """Phi of a softmax (comp-sum) or of scores that sum to zero (constrained); or its slope."""
    function = definition(loss).slope if slope else definition(loss).phi
    with mpmath.workdps(20):
        values = [mpmath.mpf(float(v)) for v in x]
        if loss in COMP_SUM:
            chain = [-1 / v**2 if slope else 1 for v in values]
            arguments = [(1 - v) / v for v in values]
        else:
            chain, arguments = [1] * len(values), values
        each = [
            c * function(a, mpmath.mpf(parameter)) for c, a in zip(chain, arguments, strict=True)
        ]
    return np.array([float(v) for v in each])


def phi(loss: str, scores: ArrayLike, q: float = 0.7, rho: float = 1.0) -> Vector:
    """What each member adds to the error, for a weight of one."""
    h = np.asarray(scores, dtype=float)
    if loss in COMP_SUM:
        return of_definition(loss, softmax(h), q)
    return of_definition(loss, h - h.mean(), rho)


def top(values: Sequence[float], k: int) -> list[int]:
    """The k best, one by one; the highest index of those that tie."""
    left = list(range(len(values)))
    found = []
    for _ in range(k):
        best = max(values[y] for y in left)
        found.append(max(y for y in left if values[y] == best))
        left.remove(found[-1])
    return found


def wrong_set(rng: np.random.Generator, weights: Vector, k: int) -> NDArray[np.bool_]:
    """k labels that are not the k of the largest weights."""
    best = np.isin(np.arange(len(weights)), np.argsort(-weights)[:k])
    while True:
        kept = np.isin(np.arange(len(weights)), rng.permutation(len(weights))[:k])
        if (kept != best).any():
            return kept


# The least error over all scores, or over those that keep a set: a numerical minimiser


def least_error(
    loss: str, weights: ArrayLike, kept: ArrayLike | None = None, q: float = 0.7, rho: float = 1.0
) -> float:
    """The least of `sum weights phi` over all scores; or those where no label outranks a kept one.

    Convex programmes in the softmax or in the centred scores, by definition of the losses. Losses
    without a programme of their own here are taken to be smooth.
    """
    w = np.asarray(weights, dtype=float)
    n = len(w)
    order = np.zeros((0, n))
    if kept is not None:
        inside, outside = np.flatnonzero(kept), np.flatnonzero(~np.asarray(kept, dtype=bool))
        order = np.array([np.eye(n)[j] - np.eye(n)[i] for i in inside for j in outside])
    if loss == "mae":
        programme = linprog(-w, order, np.zeros(len(order)), np.ones((1, n)), [1], (0, 1))
        return float(w.sum() + programme.fun)
    if loss == "hinge":
        return _least_hinge(w, order)
    if loss == "margin":
        return min(_least_margin(w, order, rho, piece) for piece in _pieces(n))
    return _least_smooth(loss, w, order, q)


def _least_smooth(loss: str, w: Vector, order: Vector, q: float) -> float:
    n = len(w)
    comp = loss in COMP_SUM

    def error(x: Vector) -> float:
        return float(w @ of_definition(loss, x, q if comp else 1.0))

    def slope(x: Vector) -> Vector:
        return w * of_definition(loss, x, q if comp else 1.0, slope=True)

    constraints = [{"type": "eq", "fun": lambda x: x.sum() - comp, "jac": lambda x: np.ones(n)}]
    if len(order):
        constraints.append(
            {"type": "ineq", "fun": lambda x: -order @ x, "jac": lambda x: -order},
        )
    start = np.full(n, 1 / n) if comp else np.zeros(n)
    bounds = [(1e-9, 1.0)] * n if comp else [(-30.0, 30.0)] * n
    found = minimize(
        error,
        start,
        jac=slope,
        method="SLSQP",
        bounds=bounds,
        constraints=constraints,
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    return float(found.fun)


def _least_hinge(v: Vector, order: Vector) -> float:
    """Over r that sum to zero and s >= max(0, 1 + r)."""
    n = len(v)
    above = np.hstack([np.eye(n), -np.eye(n)])
    programme = linprog(
        np.r_[np.zeros(n), v],
        np.vstack([above, np.hstack([order, np.zeros_like(order)])]),
        np.r_[-np.ones(n), np.zeros(len(order))],
        np.r_[np.ones(n), np.zeros(n)][None],
        [0],
        [(None, None)] * n + [(0, None)] * n,
    )
    return float(programme.fun)


def _pieces(n: int) -> list[tuple[int, ...]]:
    """On which of its three pieces each label's margin loss is: 0, sloping, or 1."""
    return list(itertools.product((0, 1, 2), repeat=n))


def _least_margin(v: Vector, order: Vector, rho: float, piece: tuple[int, ...]) -> float:
    slope = np.array([v[y] / rho if at == 1 else 0.0 for y, at in enumerate(piece)])
    constant = sum(v[y] for y, at in enumerate(piece) if at)
    ranges = [((None, -rho), (-rho, 0), (0, None))[at] for at in piece]
    programme = linprog(slope, order, np.zeros(len(order)), np.ones((1, len(v))), [0], ranges)
    return float(programme.fun + constant) if programme.success else np.inf


# The least regret for a kept set, to any precision: every block of labels that could be pooled


def infimum(loss: str, w: Sequence[mpmath.mpf], q: float) -> mpmath.mpf:
    """The closed forms, in as many digits as mpmath works with."""
    closed_form = definition(loss).infimum
    assert closed_form is not None, f"add the infimum of {loss!r} to tests/loss_definitions.py"
    return closed_form(w, mpmath.mpf(q))


def least_regret(
    loss: str, w: Sequence[mpmath.mpf], kept: Sequence[bool], q: float = 0.7
) -> mpmath.mpf:
    """Labels that tie have one score, so that only the mean of their weights counts: try every
    block of kept and other labels, and take the least of those where the order is then right."""
    inside = [y for y in range(len(w)) if kept[y]]
    outside = [y for y in range(len(w)) if not kept[y]]
    sign = 1 if loss in COMP_SUM else -1
    if loss == "margin":  # the label on top pays in full, and must be a kept one
        return min(w[y] for y in inside) - min(w)
    found = []
    for some in _subsets(inside):
        for others in _subsets(outside):
            if bool(some) != bool(others):
                continue
            after = list(w)
            for y in (*some, *others):
                after[y] = mpmath.fsum(w[z] for z in (*some, *others)) / (len(some) + len(others))
            if all(sign * after[i] >= sign * after[j] for i in inside for j in outside):
                found.append(infimum(loss, after, q))
    return min(found) - infimum(loss, w, q)


def _subsets(labels: list[int]) -> list[tuple[int, ...]]:
    return [s for r in range(len(labels) + 1) for s in itertools.combinations(labels, r)]
