"""Minimizability gaps, `M(H) = E*(H) - E_x[C*(H, x)]`.

The gap is the least expected error of a hypothesis set less the expectation of the least
conditional errors. It is zero for all functions, and at most the approximation error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shortlist._utils.validation import check_choice
from shortlist.losses import from_name
from shortlist.theory.regret import distribution, top_k, top_k_error
from shortlist.theory.surrogates import surrogate_infimum


@dataclass(frozen=True)
class FiniteDistribution:
    """A distribution on finitely many inputs.

    Parameters
    ----------
    x : ndarray of shape (inputs, features)
        The inputs.
    p : ndarray of shape (inputs, n)
        Probabilities of the labels at each input.
    weights : ndarray of shape (inputs,)
        Probabilities of the inputs.

    Examples
    --------
    >>> data = FiniteDistribution.of([[1.0], [-1.0]], [[0.9, 0.1], [0.2, 0.8]])
    >>> round(data.top_k_error([[1.0, -1.0]], k=1), 12)
    0.15
    """

    x: NDArray[np.float64]
    p: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, x: ArrayLike, p: ArrayLike, weights: ArrayLike | None = None) -> FiniteDistribution:
        """Return the distribution of these inputs and labels.

        Parameters
        ----------
        x : array-like of shape (inputs, features) or (inputs,)
            The inputs; a vector is one feature.
        p : array-like of shape (inputs, n)
            Probabilities of the labels at each input.
        weights : array-like of shape (inputs,), optional
            Probabilities of the inputs. By default they are equally likely.

        Returns
        -------
        FiniteDistribution
            The distribution.

        Raises
        ------
        ValueError
            If p or the weights are not distributions, or the lengths differ.
        """
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
        """Return the expected top-k error of the linear predictor with scores `x @ weights`.

        Parameters
        ----------
        weights : array-like of shape (features, n)
            Weights of the predictor.
        k : int
            Number of labels kept.

        Returns
        -------
        float
            The error.
        """
        scores = self.x @ np.asarray(weights, dtype=np.float64)
        errors = [top_k_error(p, s, k) for p, s in zip(self.p, scores, strict=True)]
        return float(self.weights @ errors)


@dataclass(frozen=True)
class Gap:
    """The result of `minimizability_gap`.

    Parameters
    ----------
    least : float
        Least expected error of the hypothesis set.
    conditional : float
        Expectation of the least conditional errors.
    weights : ndarray of shape (features, n), optional
        Weights of the best linear predictor.
    """

    least: float
    conditional: float
    weights: NDArray[np.float64] | None

    @property
    def gap(self) -> float:
        """The minimizability gap, `least - conditional`."""
        return self.least - self.conditional

    @property
    def approximation(self) -> float:
        """The approximation error: the least expected error less that of all functions.

        It equals the gap, as complete hypothesis sets have the conditional infima of all
        functions.
        """
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
    """Compute the minimizability gap of a surrogate for a finite distribution, numerically.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has its infimum.
    data : FiniteDistribution
        The distribution.
    hypotheses : {"linear", "all"}, default="linear"
        Scores `x @ W` (no constant: give one as a feature), or all functions, whose gap is zero.
    q : float, default=0.7
        Exponent of "gce".
    rho : float, default=1.0
        The margin of "margin".
    starts : int, default=8
        Number of starts of the minimisation: zero, then random weights. Losses that are not convex
        (mae, gce, margin) need several.
    seed : int, default=0
        Seed of the random weights.

    Returns
    -------
    Gap
        The gap and the errors that it is made of.

    Raises
    ------
    ValueError
        If an argument is not valid, or the infimum of the loss is not known.

    Examples
    --------
    >>> data = FiniteDistribution.of([[1.0], [-1.0]], [[0.9, 0.1], [0.1, 0.9]])
    >>> round(minimizability_gap("log", data).gap, 6)
    0.0
    >>> data = FiniteDistribution.of([[1.0], [-1.0]], [[0.9, 0.1], [0.9, 0.1]])
    >>> round(minimizability_gap("log", data).gap, 4)
    0.3681
    """
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
    best = torch.zeros(x.shape[1], n, dtype=torch.float64)
    least = float(error(best))
    for start in range(starts):
        weights = torch.randn(x.shape[1], n, generator=generator, dtype=torch.float64)
        weights = _minimise(error, weights * (0.0 if start == 0 else 2.0))
        value = float(error(weights))
        if value < least:
            best, least = weights, value
    return Gap(least, conditional, best.numpy())


def _minimise(error: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Return the weights at which L-BFGS ends."""
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=2000, tolerance_grad=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = error(weights)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach()


def top_two_example(e: float = 0.1) -> tuple[FiniteDistribution, NDArray[np.float64]]:
    """Return data that a linear predictor gets right for top-2, and comp-sum losses get wrong.

    One feature, three labels: at x = -1 always label 1; at x = 1 label 0, or label 1 with
    probability e. The weights (1, 0, -1), also returned, rank 0, 1, 2 at x = 1 and 2, 1, 0 at
    x = -1: label 1 is always among the first two, and so is label 0, so the data are
    top-2-realizable. But a comp-sum loss prefers label 1 on top at x = -1, with a negative weight,
    which puts it last at x = 1: its minimiser errs with probability e / 2. The minimizability gap
    accounts for the difference.

    Parameters
    ----------
    e : float, default=0.1
        Probability of label 1 at x = 1.

    Returns
    -------
    data : FiniteDistribution
        The data.
    weights : ndarray of shape (1, 3)
        Weights without top-2 error.

    Notes
    -----
    The paper cites Yang and Koyejo (2020, Proposition 5.1) for an example; this one was
    constructed here.

    Examples
    --------
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
    """Return an example that max losses have no bound, even for k = 1.

    The max hinge loss of Crammer and Singer, `max_{y' != y} max(0, 1 - h_y + h_y')`, has its
    least conditional error 1 at equal scores if no label has more than half of the probability.
    There the tie goes to the last label, whose regret is 0.1, while the surrogate's is zero.

    Returns
    -------
    p, scores : ndarray of shape (3,)
        The distribution and the scores.
    surrogate : float
        Regret of the max hinge loss.
    target : float
        Top-1 regret.

    Examples
    --------
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
