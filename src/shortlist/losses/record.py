"""The record of one surrogate loss: its function and every fact that the theory needs."""

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
    """A theorem needs a fact that the record of the loss does not have."""


@dataclass(frozen=True)
class UnknownFact:
    """Stand in for a fact that was not given; raise when it is used."""

    fact: str = ""
    loss: str = ""

    def __call__(self, *arguments: object) -> NoReturn:
        """Raise the error that names the fact and the loss."""
        raise UnknownFactError(
            f"{self.fact!r} of the loss {self.loss!r} is not known; give it in the record: "
            f"SurrogateLoss(name={self.loss!r}, {self.fact}=...)"
        )


_UNKNOWN = UnknownFact()


DEFAULTS = {"q": 0.7, "rho": 1.0}
"""Defaults of the parameters in every signature of the library."""


@dataclass(frozen=True)
class Parameter:
    """The parameter of a loss: a number in an open interval.

    Parameters
    ----------
    name : {"q", "rho"}
        Comp-sum losses take `q`, constrained losses `rho`.
    low, high : float
        Ends of the interval, both excluded. It must contain the value that functions and
        estimators use by default, which is 0.7 for q and 1.0 for rho.

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
        """Value that functions and estimators use by default."""
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
"""The parameter of each family; a loss that has none ignores it."""


@dataclass(frozen=True)
class Bound:
    """A bound on the target's regret D by the surrogate's regret R: `D <= value(R, n, m)`.

    n is the number of labels (or of members of K), and `m = min(k, n - k)` the number of labels
    that top-k can miss at once. Cost-sensitive and published bounds ignore m.

    Parameters
    ----------
    text : str
        The bound in a few signs, for tables.
    value : callable
        `value(regret, n, m)`.
    log_inverse : callable
        Logarithm of the least R that the bound allows, from the logarithm of D and the tensors n
        and m. In logarithms nothing is lost at regrets of 1e-100.
    rate : callable
        `rate(n, m)`: the pair (c, s) with `value = c R^s` for a small R.
    holds : bool, default=True
        Whether the statement is true for all k. If not, `verify` tests k = 1 on its own as well.
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
            The bound in a few signs.
        constant, exponent : callable
            Functions of the float64 tensors n and m, and of n.
        holds : bool, default=True
            Whether the statement is true for all k.

        Returns
        -------
        Bound
            The bound, with its inverse and its rate.

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
            The bound in a few signs.
        inverse : callable
            `inverse(regret, n)`.
        log_psi : callable
            `log psi(t)` from `log t <= 0` and the tensor n.
        rate : callable
            `rate(n)`: the pair (c, s) with `inverse = c R^s` for a small R.
        holds : bool, default=True
            Whether the statement is true for all k.

        Returns
        -------
        Bound
            The bound; no target regret above 1 is possible.
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
"""The top-k bound of a loss that is not consistent for the top-k loss with 2 <= k < n."""


@dataclass(frozen=True, kw_only=True)
class SurrogateLoss:
    """Everything known about one surrogate loss.

    The first four fields suffice to train with the loss. The others are facts for
    `shortlist.theory`, all optional: a theorem that needs a missing fact raises
    `UnknownFactError`, which names the fact and the loss. A loss with a parameter is a function
    of its parameter that returns a record (see `register_loss`).

    Parameters
    ----------
    name : str
        Name of the loss, as estimators take it in `loss=`.
    family : {"comp_sum", "constrained"}
        "comp_sum": `Phi(sum_{k' != k} exp(r_k' - r_k))`. "constrained": `Phi(-r_k)` of scores
        that sum to zero.
    phi : callable
        The function Phi, elementwise on tensors. For "comp_sum" it takes `t = log(1 + u)`, which
        is `-log softmax`, in place of the sum u; for "constrained" it takes the centred score r.
        It increases with t or r and is not negative.
    bounded_gradient : bool
        Whether the gradient is bounded over all scores. If not, training clips it.
    exponential : bool, default=False
        Whether phi is `e^t` up to a constant. Its product with a weight is then computed so that
        it overflows only where the product does.
    label : str, default=name
        Name with the value of the parameter, for tables.
    probability_scale : float, optional
        c such that `softmax(c r)` of the best scores r are the label probabilities. None: the best
        scores do not determine them, and `LinearClassifier.predict_proba` is not available.
    infimum : callable, optional
        `infimum(w)`: the least conditional error over all scores. w are the label probabilities
        (comp-sum), or one minus these (constrained); with costs, one minus the expected costs, or
        the expected costs.
    psi, psi_inverse : callable, optional
        `psi(t, n)` of a comp-sum loss, and `psi_inverse(regret, n)`. The inverse is computed
        numerically if only psi is given.
    largest_value, lipschitz : callable, optional
        Largest value and Lipschitz constant (Euclidean norm) for a label as functions of n and of
        the largest absolute score, which may be infinite.
    cost_sensitive_bound : Bound, optional
        Bound on the cardinality-aware regret.
    published_top_k_bound : Bound, optional
        A k-th of the published bound on the top-k regret; its text has the factor k.
    top_k_bound : Bound, optional
        Bound on the top-k regret that holds for every k; `NO_BOUND` if there cannot be one.
    pooled_regret : callable, optional
        Logarithm of the least regret of a wrong decision, from `Pooled` weights (comp-sum) or
        `PooledCosts` (constrained). `shortlist theory` tests the bounds of losses that have it.

    Examples
    --------
    >>> SurrogateLoss(name="focal", family="comp_sum", bounded_gradient=True,
    ...               phi=lambda t: (1 - torch.exp(-t)) ** 2 * t).psi(0.5, 10)
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
    cost_sensitive_bound: Bound = _UNKNOWN_BOUND
    published_top_k_bound: Bound = _UNKNOWN_BOUND
    top_k_bound: Bound = _UNKNOWN_BOUND
    pooled_regret: Callable[..., Tensor] = _UNKNOWN

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name must be a string that is not empty; got {self.name!r}")
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
        """Return whether the record has all these facts.

        Parameters
        ----------
        *facts : str
            Names of fields.

        Returns
        -------
        bool
            True if all were given.
        """
        values = (getattr(self, fact) for fact in facts)
        parts = (value.value if isinstance(value, Bound) else value for value in values)
        return not any(isinstance(part, UnknownFact) for part in parts)
