"""Averages of the weights of a network over training steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class WeightAverage:
    """Exponential moving average of the parameters of a network.

    The decay increases from 2 / 11 to its final value over the first steps, so that the initial
    weights soon have no influence.

    Parameters
    ----------
    parameters : sequence of Tensor
        Parameters of a network.
    decay : float
        Weight of the previous average in each step. 0 disables averaging.
    device : torch.device
        Device of the step counter.
    """

    def __init__(self, parameters: Sequence[Tensor], decay: float, device: torch.device) -> None:
        self._parameters, self._decay = parameters, decay
        self.values = [p.detach().clone() for p in parameters] if decay else []
        # The counter is a tensor, so that a CUDA graph can increment it.
        self.steps = torch.zeros((), dtype=torch.float64, device=device)

    def update(self) -> None:
        """Update the average with the current weights."""
        if not self.values:
            return
        self.steps += 1
        keep = ((1 + self.steps) / (10 + self.steps)).clamp(max=self._decay)
        weights = [p.detach() for p in self._parameters]
        if not keep.is_cuda:
            torch._foreach_lerp_(self.values, weights, 1 - float(keep))
            return
        differences = torch._foreach_sub(weights, self.values)
        torch._foreach_mul_(differences, (1 - keep).to(differences[0].dtype))
        torch._foreach_add_(self.values, differences)

    @torch.no_grad()
    def apply(self) -> None:
        """Replace the weights by their average, if averaging is enabled."""
        if self.values:
            _copy_all(self.values, self._parameters)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace the weights by their average inside the context, if averaging is enabled."""
        if not self.values:
            yield
            return
        current = [p.detach().clone() for p in self._parameters]
        self.apply()
        try:
            yield
        finally:
            with torch.no_grad():
                _copy_all(current, self._parameters)


def _copy_all(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Copy each source tensor into the target at the same position."""
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)
