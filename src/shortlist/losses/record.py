"""The record of one surrogate loss: its function and the facts that the theory needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Real
from typing import Literal, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.validation import check_choice
from shortlist.losses.psi import Psi, inverse_psi

Family = Literal["comp_sum", "constrained"]
FAMILIES: tuple[Family, ...] = ("comp_sum", "constrained")


class UnknownFactError(ValueError):
    """Raised when a theorem needs a fact that the record of the loss does not have."""


@dataclass(frozen=True)
class UnknownFact:
    """Placeholder of a fact that was not given. It raises an error when it is called."""

    fact: str = ""
    loss: str = ""

    def __call__(self, *arguments: object) -> NoReturn:
        """Raise an error that names the fact and the loss."""
        raise UnknownFactError(
            f"{self.fact!r} of the loss {self.loss!r} is not known; give it in the record: "
            f"SurrogateLoss(name={self.loss!r}, {self.fact}=...)"
        )


_UNKNOWN = UnknownFact()


DEFAULTS = {"q": 0.7, "rho": 1.0}
"""Default values of the parameters in all signatures of the library."""


@dataclass(frozen=True)
class Parameter:
    """The parameter of a loss: a number in an open interval.

    Parameters
    ----------
    name : {"q", "rho"}
        Comp-sum losses take `q`, constrained losses `rho`.
    low, high : float
        Ends of the interval, both excluded. The interval must contain the default of the
        parameter, which is 0.7 for q and 1.0 for rho.

    Examples
    --------
    >>> Parameter("q", 0.0, 1.0).check(0.5)
    >>> Parameter("rho", 0.0, math.inf).check(-1.0)
    Traceback (most recent call last):
    ValueError: rho=-1.0 is out of range; rho must be a finite number above 0
    """

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        check_choice(self.name, "the name of a parameter", tuple(DEFAULTS))
        if self.default not in self:
            raise ValueError(
                f"{self.name} has the default {self.default}, which must lie strictly between "
                f"low={self.low!r} and high={self.high!r}"
            )

    @property
    def default(self) -> float:
        """Default of the parameter in functions and estimators."""
        return DEFAULTS[self.name]

    def __contains__(self, value: float) -> bool:
        return self.low < value < self.high

    def check(self, value: float) -> None:
        """Raise an error unless the value is in the interval.

        Parameters
        ----------
        value : float
            Value to check.

        Raises
        ------
        TypeError
            If the value is not a real number.
        ValueError
            If the value is not in the interval.
        """
        advice = f"{self.name} must be a number strictly between {self.low:g} and {self.high:g}"
        if self.high == math.inf:
            advice = f"{self.name} must be a finite number above {self.low:g}"
        if not isinstance(value, Real):
            raise TypeError(f"{self.name}={value!r} is a {type(value).__name__}; {advice}")
        if value not in self:
            raise ValueError(f"{self.name}={value!r} is out of range; {advice}")


Q = Parameter("q", 0.0, 1.0)
RHO = Parameter("rho", 0.0, math.inf)
FAMILY_PARAMETERS: dict[Family, Parameter] = {"comp_sum": Q, "constrained": RHO}
"""The parameter of each family. Losses without a parameter ignore it."""


@dataclass(frozen=True)
class Bound:
    """A bound on the target regret D by the surrogate regret R: `D <= value(R, n, m)`.

    n is the number of labels (or of members of K). `m = min(k, n - k)` is the largest number of
    the k most probable labels that a set of k labels can miss. Cost-sensitive bounds and
    published bounds do not depend on m.

    Parameters
    ----------
    text : str
        Formula of the bound, for tables.
    value : callable
        `value(regret, n, m)`.
    log_inverse : callable
        `log_inverse(log_target, n, m)`: logarithm of the smallest R that the bound allows for a
        target regret D, given as its logarithm. All arguments are tensors. Logarithms represent
        regrets of 1e-100 precisely.
    rate : callable
        `rate(n, m)`: the pair (c, s) such that the bound is `c R^s` for small R.
    holds : bool, default=True
        Whether the bound holds for all k. If it does not, `verify` also tests k = 1 alone.
    """

    text: str
    value: Callable[[float, int, int], float]
    log_inverse: Callable[[Tensor, Tensor, Tensor], Tensor]
    rate: Callable[[int, int], tuple[float, float]]
    holds: bool = True

    @classmethod
    def power(
        cls,
        text: str,
        constant: Callable[[Tensor, Tensor], Tensor | float],
        exponent: Callable[[Tensor], Tensor | float],
        *,
        holds: bool = True,
    ) -> Bound:
        """Return the bound `constant(n, m) * R^exponent(n)`.

        Parameters
        ----------
        text : str
            Formula of the bound, for tables.
        constant, exponent : callable
            `constant(n, m)` and `exponent(n)`, functions of float64 tensors.
        holds : bool, default=True
            Whether the bound holds for all k.

        Returns
        -------
        Bound
            The bound with its inverse and rate.

        Examples
        --------
        >>> bound = Bound.power("2 sqrt(R)", lambda n, m: 2.0, lambda n: 0.5)
        >>> bound.value(0.01, 10, 3), bound.rate(10, 3)
        (0.2, (2.0, 0.5))
        """

        def rate(n: int, m: int) -> tuple[float, float]:
            size, swaps = (torch.tensor(x, dtype=torch.float64) for x in (n, m))
            return float(constant(size, swaps)), float(exponent(size))

        def value(regret: float, n: int, m: int) -> float:
            c, s = rate(n, m)
            return float(c * (math.sqrt(regret) if s == 0.5 else regret**s))

        def log_inverse(log_target: Tensor, n: Tensor, m: Tensor) -> Tensor:
            log_constant = torch.as_tensor(constant(n, m), dtype=log_target.dtype).log()
            return (log_target - log_constant) / exponent(n)

        return cls(text, value, log_inverse, rate, holds)

    @classmethod
    def of_psi(
        cls,
        text: str,
        inverse: Psi,
        log_psi: Callable[[Tensor, Tensor], Tensor],
        rate: Callable[[int], tuple[float, float]],
        *,
        holds: bool = True,
    ) -> Bound:
        """Return the bound `psi^-1(R)`.

        Parameters
        ----------
        text : str
            Formula of the bound, for tables.
        inverse : callable
            `inverse(regret, n)`.
        log_psi : callable
            `log_psi(log_t, n)`: logarithm of psi, for tensors with `log_t <= 0`.
        rate : callable
            `rate(n)`: the pair (c, s) such that the inverse is `c R^s` for small R.
        holds : bool, default=True
            Whether the bound holds for all k.

        Returns
        -------
        Bound
            The bound. Its inverse is infinite for target regrets above 1, which do not occur.
        """

        def log_inverse(log_target: Tensor, n: Tensor, m: Tensor) -> Tensor:
            return torch.where(log_target > 0, torch.inf, log_psi(log_target.clamp(max=0), n))

        return cls(text, lambda r, n, m: inverse(r, n), log_inverse, lambda n, m: rate(n), holds)


_UNKNOWN_BOUND = Bound("unknown", _UNKNOWN, _UNKNOWN, _UNKNOWN)
NO_BOUND = Bound(
    "none",
    value=lambda regret, n, m: math.inf,
    log_inverse=lambda log_target, n, m: torch.full_like(log_target, -torch.inf),
    rate=lambda n, m: (math.inf, 0.0),
)
"""Top-k bound of a loss that is not consistent for the top-k loss with 2 <= k < n."""


@dataclass(frozen=True, kw_only=True)
class SurrogateLoss:
    """Everything known about one surrogate loss.

    The four required fields suffice for training. The other fields are facts that
    `shortlist.theory` uses. A theorem that needs a missing fact raises `UnknownFactError`, which
    names the fact and the loss. A loss with a parameter is a function from its parameter to a
    record (see `register_loss`).

    Parameters
    ----------
    name : str
        Name of the loss, for the parameter `loss` of functions and estimators.
    family : {"comp_sum", "constrained"}
        "comp_sum" losses are `Phi(sum_{k' != k} exp(r_k' - r_k))`. "constrained" losses are sums
        of `Phi(-r_k)` over scores that sum to zero.
    phi : callable
        The function Phi, applied elementwise to a tensor. For "comp_sum" its argument is
        `t = log(1 + u) = -log softmax`, where u is the sum of exponentials. For "constrained" its
        argument is the centered score r. It must be non-negative and non-decreasing.
    bounded_gradient : bool
        Whether the gradient is bounded over all scores. If it is not, training clips it.
    exponential : bool, default=False
        Whether phi is `e^t` up to an additive constant. Its product with a small weight is then
        computed without an overflow of phi.
    label : str, default=name
        Name of the loss in tables, with the value of its parameter.
    probability_scale : float, optional
        Factor c such that `softmax(c r)` of the minimizing scores r are the label probabilities.
        Without it, `LinearClassifier.predict_proba` is not available.
    infimum : callable, optional
        `infimum(w)`: infimum of the conditional error over all scores. For labels, the weights w
        are the label probabilities p (comp-sum) or `1 - p` (constrained). For costs, they are one
        minus the expected costs (comp-sum) or the expected costs (constrained).
    psi, psi_inverse : callable, optional
        `psi(t, n)` of a comp-sum loss, and its inverse `psi_inverse(regret, n)`. If only psi is
        given, the inverse is computed numerically.
    largest_value, lipschitz : callable, optional
        Upper bound of the loss for a label, and its Lipschitz constant in the Euclidean norm.
        Both are functions of n and of the largest absolute score, which may be infinite.
    published_cost_sensitive_bound : Bound, optional
        The published bound on the cardinality-aware regret, the paper's gamma.
    cost_sensitive_bound : Bound, optional
        The smallest known bound on the cardinality-aware regret: the published one, or a sharper
        one.
    published_top_k_bound : Bound, optional
        The published bound on the top-k regret, divided by k. Its text includes the factor k.
    top_k_bound : Bound, optional
        Bound on the top-k regret that holds for every k, or `NO_BOUND` if no bound exists.
    pooled_regret : callable, optional
        Logarithm of the smallest surrogate regret of a suboptimal decision, as a function of
        `Pooled` weights (comp-sum) or `PooledCosts` (constrained). `shortlist theory` tests the
        bounds of losses that have it.

    Examples
    --------
    >>> SurrogateLoss(name="focal", family="comp_sum", bounded_gradient=True,
    ...               phi=lambda t: torch.expm1(-t) ** 2 * t).psi(0.5, 10)
    Traceback (most recent call last):
    shortlist.losses.record.UnknownFactError: 'psi' of the loss 'focal' is not known; give it in \
the record: SurrogateLoss(name='focal', psi=...)
    """

    name: str
    family: Family
    phi: Callable[[Tensor], Tensor]
    bounded_gradient: bool
    exponential: bool = False
    label: str = ""
    probability_scale: float | None = None
    infimum: Callable[[NDArray[np.float64]], float] = _UNKNOWN
    psi: Psi = _UNKNOWN
    psi_inverse: Psi = _UNKNOWN
    largest_value: Callable[[int, float], float] = _UNKNOWN
    lipschitz: Callable[[int, float], float] = _UNKNOWN
    published_cost_sensitive_bound: Bound = _UNKNOWN_BOUND
    cost_sensitive_bound: Bound = _UNKNOWN_BOUND
    published_top_k_bound: Bound = _UNKNOWN_BOUND
    top_k_bound: Bound = _UNKNOWN_BOUND
    pooled_regret: Callable[..., Tensor] = _UNKNOWN

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name must be a non-empty string; got {self.name!r}")
        check_choice(self.family, "family", FAMILIES)
        if self.knows("psi") and not self.knows("psi_inverse"):
            object.__setattr__(self, "psi_inverse", inverse_psi(self.psi))
        if not self.label:
            object.__setattr__(self, "label", self.name)
        for field in fields(self):
            if not self.knows(field.name):
                unknown = UnknownFact(field.name, self.name)
                is_bound = isinstance(getattr(self, field.name), Bound)
                value = Bound("unknown", unknown, unknown, unknown) if is_bound else unknown
                object.__setattr__(self, field.name, value)

    def knows(self, *facts: str) -> bool:
        """Return whether the record has the given facts.

        Parameters
        ----------
        *facts : str
            Names of fields of the record.

        Returns
        -------
        bool
            True if the record has all of them.
        """
        values = (getattr(self, fact) for fact in facts)
        parts = (value.value if isinstance(value, Bound) else value for value in values)
        return not any(isinstance(part, UnknownFact) for part in parts)
