"""Early stopping, which keeps the weights with the lowest validation loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class EarlyStopping:
    """Record the lowest validation loss, and its weights, of a network or of each stack member.

    Parameters
    ----------
    network : nn.Module
        Network that is trained.
    members : int, optional
        Number of members if the network is a stack.
    patience : int, optional
        Number of epochs without improvement after which a member stops. None if there are no
        validation rows; then no member stops.
    device : torch.device
        Device of the losses.
    """

    def __init__(
        self, network: nn.Module, members: int | None, patience: int | None, device: torch.device
    ) -> None:
        self._network, self._is_stack, self._patience = network, members is not None, patience
        count = 1 if members is None else members
        self.best = {name: value.detach().clone() for name, value in self._state().items()}
        self.best_loss = torch.full((count,), torch.inf, dtype=torch.float64, device=device)
        self.epochs_without_improvement = torch.zeros(count, dtype=torch.int64, device=device)

    def _state(self) -> dict[str, Tensor]:
        """Return the tensors to keep. Buffers of a stack are omitted, because they never change."""
        if self._is_stack:
            return dict(self._network.named_parameters())
        return dict(self._network.state_dict())

    def active(self) -> Tensor:
        """Return a mask of the members that have not stopped."""
        waited = self.epochs_without_improvement
        if self._patience is None:
            return torch.ones_like(waited, dtype=torch.bool)
        return waited < self._patience

    @torch.no_grad()
    def update(self, loss: Tensor) -> Tensor:
        """Record the validation loss of an epoch. Return a mask of the members that improved."""
        active = self.active()
        improved = active & (loss < self.best_loss)
        self.best_loss = torch.where(improved, loss, self.best_loss)
        self.epochs_without_improvement = torch.where(
            improved, 0, self.epochs_without_improvement + active
        )
        for name, value in self._state().items():
            if self._is_stack:
                mask = improved.view(-1, *[1] * (value.ndim - 1))
                self.best[name].copy_(torch.where(mask, value.detach(), self.best[name]))
            elif bool(improved):
                self.best[name].copy_(value)
        return improved

    @torch.no_grad()
    def restore_best(self) -> None:
        """Copy the best weights into the network."""
        for name, value in self._state().items():
            value.copy_(self.best[name])
