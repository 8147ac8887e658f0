"""Functions that stay precise where the direct formula cancels or overflows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SERIES_BELOW = 1e-3
"""For smaller arguments a series is used, which is more precise than a difference."""


def one_minus_exp(t: Tensor) -> Tensor:
    """Return `1 - e^-t` for `t >= 0`. Value and gradient are precise for small and large t."""
    # The gradient of expm1 is computed from its value, as 1 - (1 - e^-t). For a large t that is 0
    # or rounding error, but mislabeled and hard examples need their small gradient.
    return torch.where(t < 1, -torch.expm1(-t), 1 - torch.exp(-t))


def exp_or_inf(x: float) -> float:
    """Return `e^x`, or infinity where it exceeds the largest float."""
    return math.exp(x) if x < 709 else math.inf


def log_difference(a: Tensor, b: Tensor) -> Tensor:
    """Return `log(e^a - e^b)` for `a >= b`, which is minus infinity where they are equal."""
    gap = torch.where(a > b, b - a, -1.0)
    return torch.where(a > b, a + torch.log(-torch.expm1(gap)), -torch.inf)


def log_root_gap(log_y: Tensor, a: float) -> Tensor:
    """Return `log((1 + y)^(1/a) - 1)` from `log y`."""
    small = log_y < -30
    y = torch.where(small, 0.0, log_y).exp()
    return torch.where(small, log_y - math.log(a), torch.expm1(torch.log1p(y) / a).log())


def entropy_gap(d: Tensor, ratio: Tensor) -> Tensor:
    """Return `(1 + d) log(1 + d) - d`, where `ratio` is `log(1 + d)`."""
    near = d.abs() < SERIES_BELOW
    return torch.where(near, d**2 / 2 - d**3 / 6 + d**4 / 12, torch.exp(ratio) * ratio - d)


def log_gap(d: Tensor, ratio: Tensor) -> Tensor:
    """Return `d - log(1 + d)`, where `ratio` is `log(1 + d)`."""
    return torch.where(d.abs() < SERIES_BELOW, d**2 / 2 - d**3 / 3 + d**4 / 4, d - ratio)


def power_gap(d: Tensor, ratio: Tensor, a: float) -> Tensor:
    """Return `(1 + d)^a - 1 - a d`, where `ratio` is `log(1 + d)`."""
    second, third = a * (a - 1) / 2, a * (a - 1) * (a - 2) / 6
    series = second * d**2 + third * d**3 + third * (a - 3) / 4 * d**4
    return torch.where(d.abs() < SERIES_BELOW, series, torch.expm1(a * ratio) - a * d)
