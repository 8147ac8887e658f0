"""Reference implementations: losses by definition, and infima by numerical minimization."""

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


def evaluate_definition(loss: str, x: Vector, parameter: float, slope: bool = False) -> Vector:
    """Evaluate Phi or its derivative at softmax values (comp-sum) or centered scores."""
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
    """Return Phi of each member: its contribution to the error for a weight of one."""
    h = np.asarray(scores, dtype=float)
    if loss in COMP_SUM:
        return evaluate_definition(loss, softmax(h), q)
    return evaluate_definition(loss, h - h.mean(), rho)


def top(values: Sequence[float], k: int) -> list[int]:
    """Return the k labels with the largest values, in order. Ties go to the highest index."""
    remaining = list(range(len(values)))
    labels = []
    for _ in range(k):
        best = max(values[y] for y in remaining)
        labels.append(max(y for y in remaining if values[y] == best))
        remaining.remove(labels[-1])
    return labels


def suboptimal_set(rng: np.random.Generator, weights: Vector, k: int) -> NDArray[np.bool_]:
    """Draw k labels that are not the k labels with the largest weights."""
    best = np.isin(np.arange(len(weights)), np.argsort(-weights)[:k])
    while True:
        kept = np.isin(np.arange(len(weights)), rng.permutation(len(weights))[:k])
        if (kept != best).any():
            return kept


# Infimum of the error over all scores, or over those that keep a set, by a numerical minimizer


def minimal_error(
    loss: str, weights: ArrayLike, kept: ArrayLike | None = None, q: float = 0.7, rho: float = 1.0
) -> float:
    """Minimize `sum weights phi` over all scores, or over those that rank the kept labels first.

    The problems are convex programs in the softmax or in the centered scores. Losses without a
    special case are minimized as smooth functions.
    """
    w = np.asarray(weights, dtype=float)
    n = len(w)
    order = np.zeros((0, n))
    if kept is not None:
        inside, outside = np.flatnonzero(kept), np.flatnonzero(~np.asarray(kept, dtype=bool))
        order = np.array([np.eye(n)[j] - np.eye(n)[i] for i in inside for j in outside])
    if loss == "mae":
        program = linprog(-w, order, np.zeros(len(order)), np.ones((1, n)), [1], (0, 1))
        return float(w.sum() + program.fun)
    if loss == "hinge":
        return _minimal_hinge(w, order)
    if loss == "margin":
        return min(_minimal_margin(w, order, rho, piece) for piece in _pieces(n))
    return _minimal_smooth(loss, w, order, q)


def _minimal_smooth(loss: str, w: Vector, order: Vector, q: float) -> float:
    n = len(w)
    is_comp_sum = loss in COMP_SUM

    def error(x: Vector) -> float:
        return float(w @ evaluate_definition(loss, x, q if is_comp_sum else 1.0))

    def slope(x: Vector) -> Vector:
        return w * evaluate_definition(loss, x, q if is_comp_sum else 1.0, slope=True)

    constraints = [
        {"type": "eq", "fun": lambda x: x.sum() - is_comp_sum, "jac": lambda x: np.ones(n)}
    ]
    if len(order):
        constraints.append(
            {"type": "ineq", "fun": lambda x: -order @ x, "jac": lambda x: -order},
        )
    start = np.full(n, 1 / n) if is_comp_sum else np.zeros(n)
    bounds = [(1e-9, 1.0)] * n if is_comp_sum else [(-30.0, 30.0)] * n
    solution = minimize(
        error,
        start,
        jac=slope,
        method="SLSQP",
        bounds=bounds,
        constraints=constraints,
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    return float(solution.fun)


def _minimal_hinge(v: Vector, order: Vector) -> float:
    """Minimize over r with sum 0 and s >= max(0, 1 + r)."""
    n = len(v)
    above = np.hstack([np.eye(n), -np.eye(n)])
    program = linprog(
        np.r_[np.zeros(n), v],
        np.vstack([above, np.hstack([order, np.zeros_like(order)])]),
        np.r_[-np.ones(n), np.zeros(len(order))],
        np.r_[np.ones(n), np.zeros(n)][None],
        [0],
        [(None, None)] * n + [(0, None)] * n,
    )
    return float(program.fun)


def _pieces(n: int) -> list[tuple[int, ...]]:
    """Enumerate the linear pieces of the margin loss of each label: 0, increasing, or 1."""
    return list(itertools.product((0, 1, 2), repeat=n))


def _minimal_margin(v: Vector, order: Vector, rho: float, piece: tuple[int, ...]) -> float:
    slope = np.array([v[y] / rho if part == 1 else 0.0 for y, part in enumerate(piece)])
    constant = sum(v[y] for y, part in enumerate(piece) if part)
    ranges = [((None, -rho), (-rho, 0), (0, None))[part] for part in piece]
    program = linprog(slope, order, np.zeros(len(order)), np.ones((1, len(v))), [0], ranges)
    return float(program.fun + constant) if program.success else np.inf


# Smallest regret for a kept set in any precision, by enumeration of the pooled blocks


def infimum(loss: str, w: Sequence[mpmath.mpf], q: float) -> mpmath.mpf:
    """Evaluate the closed form of the infimum in the working precision of mpmath."""
    closed_form = definition(loss).infimum
    assert closed_form is not None, f"add the infimum of {loss!r} to tests/loss_definitions.py"
    return closed_form(w, mpmath.mpf(q))


def minimal_regret(
    loss: str, w: Sequence[mpmath.mpf], kept: Sequence[bool], q: float = 0.7
) -> mpmath.mpf:
    """Minimize the regret over all scores that rank the kept labels first.

    Labels that tie have the same score, so that only the mean of their weights matters. The
    function tries every block of kept and other labels, and takes the smallest regret of those
    blocks whose pooled weights are in the right order.
    """
    inside = [y for y in range(len(w)) if kept[y]]
    outside = [y for y in range(len(w)) if not kept[y]]
    sign = 1 if loss in COMP_SUM else -1
    if loss == "margin":  # Its value is 1 at the label with the highest score, which is kept.
        return min(w[y] for y in inside) - min(w)
    infima = []
    for block_inside in _subsets(inside):
        for block_outside in _subsets(outside):
            if bool(block_inside) != bool(block_outside):
                continue
            after = list(w)
            block = (*block_inside, *block_outside)
            for y in block:
                after[y] = mpmath.fsum(w[z] for z in block) / len(block)
            if all(sign * after[i] >= sign * after[j] for i in inside for j in outside):
                infima.append(infimum(loss, after, q))
    return min(infima) - infimum(loss, w, q)


def _subsets(labels: list[int]) -> list[tuple[int, ...]]:
    return [s for r in range(len(labels) + 1) for s in itertools.combinations(labels, r)]
