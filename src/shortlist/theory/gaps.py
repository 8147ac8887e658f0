"""Minimizability gaps, `M(H) = E*(H) - E_x[C*(H, x)]`.

The gap is the smallest expected error of a hypothesis set minus the expectation of its smallest
conditional errors, where a different hypothesis may be the best at each input. It is zero for the
set of all functions, and at most the approximation error.
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
from shortlist.theory.surrogates import surrogate_error, surrogate_infimum


@dataclass(frozen=True)
class FiniteDistribution:
    """A distribution of inputs and labels, with a finite number of inputs.

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
        """Create a distribution from inputs and label probabilities.

        Parameters
        ----------
        x : array-like of shape (inputs, features) or (inputs,)
            The inputs. A vector has one feature.
        p : array-like of shape (inputs, n)
            Probabilities of the labels at each input.
        weights : array-like of shape (inputs,), optional
            Probabilities of the inputs. By default, all inputs have the same probability.

        Returns
        -------
        FiniteDistribution
            The distribution.

        Raises
        ------
        ValueError
            If p or the weights are not distributions, or the numbers of inputs differ.
        """
        inputs = np.asarray(x, dtype=np.float64)
        inputs = inputs[:, None] if inputs.ndim == 1 else inputs
        table = np.stack([distribution(row) for row in np.asarray(p, dtype=np.float64)])
        input_weights = np.full(len(inputs), 1 / len(inputs))
        if weights is not None:
            input_weights = np.asarray(weights, dtype=np.float64)
            is_distribution = (input_weights >= 0).all() and abs(input_weights.sum() - 1) <= 1e-9
            if input_weights.ndim != 1 or not is_distribution:
                raise ValueError(f"weights must be non-negative and sum to 1; got {weights!r}")
        if not len(inputs) == len(table) == len(input_weights):
            raise ValueError(
                f"x has {len(inputs)} inputs, p has {len(table)}, and weights has "
                f"{len(input_weights)}; they must be equal"
            )
        return cls(inputs, table, input_weights)

    def top_k_error(self, weights: ArrayLike, k: int) -> float:
        """Return the expected top-k error of the linear predictor with scores `x @ weights`.

        Parameters
        ----------
        weights : array-like of shape (features, n)
            Weights of the predictor.
        k : int
            Size of the top-k set.

        Returns
        -------
        float
            The expected error.
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
        Smallest expected error of the hypothesis set, `E*(H)`.
    conditional : float
        Expectation of the smallest conditional errors of the hypothesis set, `E_x[C*(H, x)]`.
    unrestricted : float
        Expectation of the smallest conditional errors of all functions.
    weights : ndarray of shape (features, n), optional
        Weights of the best linear predictor.
    """

    least: float
    conditional: float
    unrestricted: float
    weights: NDArray[np.float64] | None

    @property
    def gap(self) -> float:
        """The minimizability gap, `least - conditional`."""
        return self.least - self.conditional

    @property
    def approximation(self) -> float:
        """The approximation error: the smallest expected error minus that of all functions.

        It equals the gap if the hypothesis set is complete at every input: linear predictors are
        complete at all inputs but zero.
        """
        return self.least - self.unrestricted


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
    """Compute the minimizability gap of a surrogate loss for a finite distribution, numerically.

    Equal inputs are one input, whose label probabilities are the weighted mean.

    Parameters
    ----------
    loss : str
        Name of a loss whose record has `infimum`.
    data : FiniteDistribution
        The distribution.
    hypotheses : {"linear", "all"}, default="linear"
        Hypothesis set. "linear" has the scores `x @ W`; for an intercept, add a constant feature
        to x. Its scores take all values, except that they are zero where x is zero. "all" is the
        set of all functions, whose gap is zero.
    q : float, default=0.7
        Exponent of the loss "gce".
    rho : float, default=1.0
        Margin of the loss "margin".
    starts : int, default=8
        Number of starts of the minimization. The first start has zero weights, and the others
        have random weights. Non-convex losses (mae, gce, margin) need several starts.
    seed : int, default=0
        Seed of the random starts.

    Returns
    -------
    Gap
        The gap, the two errors whose difference it is, and the approximation error.

    Raises
    ------
    ValueError
        If an argument is invalid, or the record of the loss has no infimum.

    Examples
    --------
    >>> data = FiniteDistribution.of([[1.0], [-1.0]], [[0.9, 0.1], [0.1, 0.9]])
    >>> round(minimizability_gap("log", data).gap, 6)
    0.0
    >>> data = FiniteDistribution.of([[1.0], [-1.0]], [[0.9, 0.1], [0.9, 0.1]])
    >>> round(minimizability_gap("log", data).gap, 4)
    0.3681

    At the input zero, all linear predictors have the same error, so that the gap is zero:

    >>> at_zero = minimizability_gap("log", FiniteDistribution.of([[0.0]], [[0.7, 0.3]]))
    >>> at_zero.gap, round(at_zero.approximation, 4)
    (0.0, 0.0823)
    """
    check_choice(hypotheses, "hypotheses", ("linear", "all"))
    data = _merge_equal_inputs(data)
    infima = np.array([surrogate_infimum(loss, p, q=q) for p in data.p])
    unrestricted = float(data.weights @ infima)
    if hypotheses == "all":
        return Gap(unrestricted, unrestricted, unrestricted, None)
    for i in np.flatnonzero(~data.x.any(axis=1)):
        infima[i] = surrogate_error(loss, data.p[i], np.zeros(data.p.shape[1]), q=q, rho=rho)
    conditional = float(data.weights @ infima)
    module = from_name(loss, q=q, rho=rho, cost_sensitive=False, reduction="none")
    x, p, input_weights = (torch.from_numpy(a) for a in (data.x, data.p, data.weights))
    n = p.shape[1]

    def error(weights: Tensor) -> Tensor:
        scores = (x @ weights)[:, None, :].expand(-1, n, -1)
        labels = torch.arange(n).expand(len(x), -1)
        value: Tensor = (input_weights[:, None] * p * module(scores, labels)).sum()
        return value

    generator = torch.Generator().manual_seed(seed)
    best = torch.zeros(x.shape[1], n, dtype=torch.float64)
    least = float(error(best))
    for start in range(starts):
        weights = torch.randn(x.shape[1], n, generator=generator, dtype=torch.float64)
        weights = _minimize(error, weights * (0.0 if start == 0 else 2.0))
        value = float(error(weights))
        if value < least:
            best, least = weights, value
    return Gap(least, conditional, unrestricted, best.numpy())


def _merge_equal_inputs(data: FiniteDistribution) -> FiniteDistribution:
    """Return the same distribution with distinct inputs, all of positive probability."""
    possible = data.weights > 0
    # Adding zero turns -0.0 into 0.0.
    x, row = np.unique(data.x[possible] + 0.0, axis=0, return_inverse=True)
    joint = np.zeros((len(x), data.p.shape[1]))
    np.add.at(joint, row.ravel(), data.weights[possible, None] * data.p[possible])
    weights = joint.sum(axis=1)
    return FiniteDistribution(x, joint / weights[:, None], weights)


def _minimize(error: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Minimize a function of the weights by L-BFGS."""
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
    """Return an example of top-2-realizable data on which comp-sum losses have a top-2 error.

    The data have one feature and three labels. At x = -1 the label is 1. At x = 1 the label is 1
    with probability e, and 0 otherwise. The weights (1, 0, -1) rank the labels 0, 1, 2 at x = 1
    and 2, 1, 0 at x = -1. Their first two labels always include the true label, so that the data
    are top-2-realizable. A comp-sum loss, however, ranks label 1 first at x = -1 by a negative
    weight, and therefore last at x = 1. Its minimizer has the top-2 error e / 2.

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
    The example agrees with the paper, which states that comp-sum losses are not realizable
    consistent for k >= 2, and cites Yang and Koyejo (2020, Proposition 5.1). This example is not
    from the literature.

    For log, exp and gce, the minimizability gap is positive, and the top-k bound at the gap allows
    the error. For mae, the gap is zero, although the error is e / 2 as well: mae is not consistent
    for k = 2, so that it has no top-k bound.

    Examples
    --------
    >>> data, weights = top_two_example()
    >>> data.top_k_error(weights, k=2)
    0.0
    >>> best = minimizability_gap("log", data)
    >>> round(data.top_k_error(best.weights, k=2), 6), best.gap > 0.01
    (0.05, True)
    >>> best = minimizability_gap("mae", data)
    >>> round(data.top_k_error(best.weights, k=2), 6), round(abs(best.gap), 3)
    (0.05, 0.0)
    """
    data = FiniteDistribution.of([[-1.0], [1.0]], [[0.0, 1.0, 0.0], [1 - e, e, 0.0]])
    return data, np.array([[1.0, 0.0, -1.0]])


def max_loss_example() -> tuple[NDArray[np.float64], NDArray[np.float64], float, float]:
    """Return an example that shows that max losses have no bound, even for k = 1.

    The max hinge loss of Crammer and Singer is `max_{y' != y} max(0, 1 - h_y + h_y')`. If no label
    has a probability above 1/2, its smallest conditional error is 1, which equal scores attain.
    The tie then goes to the last label, so that the top-1 regret of the example is 0.1, while the
    surrogate regret is zero.

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

    # The minimum of this linear program is at equal scores, or where the scores of one or two
    # labels exceed the others by one.
    one_leads = [np.where(np.arange(3) == y, 1.0, 0.0) for y in range(3)]
    two_lead = [1 - h for h in one_leads]
    infimum = min(error(h) for h in [scores, *one_leads, *two_lead])
    target = float(p.max() - p[top_k(scores, 1)[0]])
    return p, scores, error(scores) - infimum, target
