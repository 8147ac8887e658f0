"""Small networks and their data, a reference training loop, and a recorder of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from shortlist.learning.networks import perceptron
from shortlist.learning.settings import (
    TrainingSettings,
    build_with_seed,
)

SETTINGS = TrainingSettings(learning_rate=0.01, batch_size=16, max_epochs=4, seed=5)
OVERFITTING = TrainingSettings(
    learning_rate=0.05, batch_size=16, max_epochs=40, patience=3, validation_fraction=0.3
)
WEIGHTS = [1.0, 0.2, 3.0]
"""Weight of the second class in the loss of each member of a stack."""


def data(rows: int = 130) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, labels that depend on them, and row numbers."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] + 0.5 * x[:, 1] ** 2 + noise > 0.4).long(), torch.arange(rows)


def network(seed: int = 0) -> nn.Sequential:
    return build_with_seed(lambda: perceptron(4, 2, 8).double(), seed)


def weighted_loss(outputs: Tensor, y: Tensor, *ids: Tensor, weight: float = 1.0) -> Tensor:
    share = torch.where(y == 1, weight, 1.0)
    return (nn.functional.cross_entropy(outputs, y, reduction="none") * share).mean()


def stack_loss(outputs: Tensor, y: Tensor, *ids: Tensor) -> Tensor:
    return torch.stack(
        [weighted_loss(o, y, weight=w) for o, w in zip(outputs, WEIGHTS, strict=True)]
    )


def member_loss(weight: float) -> Callable[..., Tensor]:
    return lambda outputs, y, *ids: weighted_loss(outputs, y, weight=weight)


class Recorder:
    """An objective that records the training rows and the validation rows."""

    def __init__(self, objective: Callable[..., Tensor] = weighted_loss) -> None:
        self.objective = objective
        self.batches: list[Tensor] = []
        self.validated: list[Tensor] = []

    def __call__(self, outputs: Tensor, y: Tensor, ids: Tensor) -> Tensor:
        (self.batches if torch.is_grad_enabled() else self.validated).append(ids)
        return self.objective(outputs, y)


def reference_loop(
    module: nn.Module,
    batches: Sequence[Tensor],
    settings: TrainingSettings,
    objective: Callable[..., Tensor] = weighted_loss,
    after: Callable[[], None] = lambda: None,
) -> list[float]:
    """Train by a simple loop with Adam. Return the norms of the gradients before clipping."""
    x, y, _ = data()
    adam = (torch.optim.AdamW if settings.decoupled_weight_decay else torch.optim.Adam)(
        module.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=False,
        foreach=False,
    )
    norms = []
    for rows in batches:
        adam.zero_grad()
        objective(module(x[rows]), y[rows], rows).backward()
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        norms.append(float(torch.cat([g.flatten() for g in grads]).norm()))
        if settings.clip_norm is not None:
            for grad in grads:
                grad.mul_(min(1.0, settings.clip_norm / norms[-1]))
        adam.step()
        after()
    return norms


def assert_close(a: nn.Module, b: nn.Module, tolerance: float = 1e-10) -> None:
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


def differ(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return any(not torch.equal(p, q) for p, q in pairs)
