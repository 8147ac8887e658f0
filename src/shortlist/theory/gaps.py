"""Minimizability gaps: what a hypothesis set loses that no single input accounts for.

`M(H) = E*(H) - E_x[C*(H, x)]`: the least expected error less the expectation of the least
conditional errors. It is zero for all functions, and at most the approximation error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shortlist._utils.arrays import check_choice
from shortlist.losses import NAMES, from_name
from shortlist.theory.regret import distribution, surrogate_infimum, top_k, top_k_error


@dataclass(frozen=True)
class FiniteDistribution:
    """A distribution on finitely many inputs.

    Parameters
    ----------
    x : (inputs, features)
    p : (inputs, n)
        The labels' probabilities at each input.
    weights : (inputs,)
        The inputs' probabilities.
    """

    x: NDArray[np.float64]
    p: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, x: ArrayLike, p: ArrayLike, weights: ArrayLike | None = None) -> FiniteDistribution:
        """From lists; inputs are equally likely if nothing is said."""
        inputs = np.asarray(x, dtype=np.float64)
        inputs = inputs[:, None] if inputs.ndim == 1 else inputs  # one feature
        table = np.stack([distribution(row) for row in np.asarray(p, dtype=np.float64)])
        each = np.full(len(inputs), 1 / len(inputs))
        if weights is not None:
            each = np.asarray(weights, dtype=np.float64)
            if each.ndim != 1 or not (each >= 0).all() or not abs(each.sum() - 1) <= 1e-9:
                raise ValueError(f"weights must be at least 0 and sum to 1; got {weights!r}")
        if not len(inputs) == len(table) == len(each):
            raise ValueError(f"x has {len(inputs)} inputs, p {len(table)}, and weights {len(each)}")
        return cls(inputs, table, each)

    def top_k_error(self, weights: ArrayLike, k: int) -> float:
        """The expected top-k error of the linear predictor with scores `x @ weights`."""
        scores = self.x @ np.asarray(weights, dtype=np.float64)
        errors = [top_k_error(p, s, k) for p, s in zip(self.p, scores, strict=True)]
        return float(self.weights @ errors)


@dataclass(frozen=True)
class Gap:
    """What `minimizability_gap` found.

    `least` is the least expected error of the hypothesis set, `conditional` the expectation of
    the least conditional errors; `gap` their difference. `approximation`, the least expected
    error less that of all functions, is the same here, as complete hypothesis sets have the
    conditional infima of all functions. `weights` are the best linear predictor's, where there
    is one.
    """

    least: float
    conditional: float
    weights: NDArray[np.float64] | None

    @property
    def gap(self) -> float:
        return self.least - self.conditional

    @property
    def approximation(self) -> float:
        return self.gap


def minimizability_gap(
    loss: str,
    data: FiniteDistribution,
    *,
    hypotheses: str = "linear",
    q: float = 0.7,
    rho: float = 1.0,
    starts: int = 8,
    seed: int = 0,
) -> Gap:
    """The minimizability gap of a surrogate for a finite distribution, numerically.

    Parameters
    ----------
    hypotheses : "linear" or "all"
        Scores `x @ W` (no constant: give one as a feature), or all functions, whose gap is zero.
    starts : int
        Where the minimisation starts from: zero, and random weights; the losses that are not
        convex (mae, gce, margin) need several.

    Examples
    --------
    >>> data = FiniteDistribution.of([[1.0], [-1.0]], [[0.9, 0.1], [0.1, 0.9]])
    >>> round(minimizability_gap("log", data).gap, 6)
    0.0
    >>> data = FiniteDistribution.of([[1.0], [-1.0]], [[0.9, 0.1], [0.9, 0.1]])
    >>> round(minimizability_gap("log", data).gap, 4)
    0.3681
    """
    check_choice(loss, "loss", NAMES)
    check_choice(hypotheses, "hypotheses", ("linear", "all"))
    infima = [surrogate_infimum(loss, p, q=q) for p in data.p]
    conditional = float(data.weights @ infima)
    if hypotheses == "all":
        return Gap(conditional, conditional, None)
    module = from_name(loss, q=q, rho=rho, cost_sensitive=False, reduction="none")
    x, p, each = (torch.from_numpy(a) for a in (data.x, data.p, data.weights))
    n = p.shape[1]

    def error(weights: Tensor) -> Tensor:
        scores = (x @ weights)[:, None, :].expand(-1, n, -1)
        labels = torch.arange(n).expand(len(x), -1)
        value: Tensor = (each[:, None] * p * module(scores, labels)).sum()
        return value

    generator = torch.Generator().manual_seed(seed)
    best, least = np.zeros((x.shape[1], n)), float(error(torch.zeros(x.shape[1], n).double()))
    for start in range(starts):
        weights = torch.randn(x.shape[1], n, generator=generator, dtype=torch.float64)
        weights = (weights * (0.0 if start == 0 else 2.0)).requires_grad_()
        optimizer = torch.optim.LBFGS(
            [weights], max_iter=2000, tolerance_grad=1e-12, line_search_fn="strong_wolfe"
        )

        def closure(w: Tensor = weights, o: torch.optim.LBFGS = optimizer) -> Tensor:
            o.zero_grad()
            value = error(w)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        found = float(error(weights.detach()))
        if found < least:
            best, least = weights.detach().numpy().copy(), found
    return Gap(least, conditional, best)


def top_two_example(e: float = 0.1) -> tuple[FiniteDistribution, NDArray[np.float64]]:
    """Data that a linear predictor gets right for top-2, and comp-sum losses get wrong.

    One feature, three labels: at x = -1 always label 1; at x = 1 label 0, or label 1 with
    probability e. The weights (1, 0, -1), also returned, rank 0, 1, 2 at x = 1 and 2, 1, 0 at
    x = -1: label 1 is always among the first two, and so is label 0, so the data are
    top-2-realizable. But a comp-sum loss wants label 1 on top at x = -1, with a negative weight,
    which puts it last at x = 1: its minimiser errs with probability e / 2. The minimizability gap
    is what makes up for it. (The paper cites Yang and Koyejo, 2020, Proposition 5.1, for an
    example; this one is made for the purpose.)

    >>> data, weights = top_two_example()
    >>> data.top_k_error(weights, k=2)
    0.0
    >>> best = minimizability_gap("log", data)
    >>> round(data.top_k_error(best.weights, k=2), 6), best.gap > 0.01
    (0.05, True)
    """
    data = FiniteDistribution.of([[-1.0], [1.0]], [[0.0, 1.0, 0.0], [1 - e, e, 0.0]])
    return data, np.array([[1.0, 0.0, -1.0]])


def max_loss_example() -> tuple[NDArray[np.float64], NDArray[np.float64], float, float]:
    """Why max losses have no bound, even for k = 1: p, scores, their regret, the top-1 regret.

    The max hinge loss of Crammer and Singer, `max_{y' != y} max(0, 1 - h_y + h_y')`, has its
    least conditional error 1 at equal scores if no label has more than half of the probability;
    there the tie goes to the last label, whose regret is 0.1 here, while the surrogate's is zero.

    >>> p, scores, surrogate, target = max_loss_example()
    >>> surrogate, round(target, 12)
    (0.0, 0.1)
    """
    p, scores = np.array([0.4, 0.3, 0.3]), np.zeros(3)

    def error(h: NDArray[np.float64]) -> float:
        others = [np.delete(h, y).max() for y in range(3)]
        return float(sum(p[y] * max(0.0, 1 - h[y] + others[y]) for y in range(3)))

    # A linear programme; its optimum is at equal scores or where one label leads by one.
    leads = [np.where(np.arange(3) == y, 1.0, 0.0) for y in range(3)]
    pairs = [1 - lead for lead in leads]
    least = min(error(h) for h in [scores, *leads, *pairs])
    target = float(p.max() - p[top_k(scores, 1)[0]])
    return p, scores, error(scores) - least, target
