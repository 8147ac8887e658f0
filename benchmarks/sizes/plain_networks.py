"""The rival: five networks that are trained on all labelled rows, in plain PyTorch.

Each has one hidden layer of 1,024 units (GELU), dropout of 0.2 on the inputs and 0.5 on the hidden
units, and is trained by AdamW (learning rate 1e-3, weight decay 0.01) for 40 epochs with a cosine
schedule. A tenth of the rows chooses the epoch, and sets the temperature.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

MEMBERS, WIDTH, BATCH_SIZE = 5, 1024, 512
BLOCK_ROWS = 8192


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy of each member, from logits (members, rows, classes)."""
    flat = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
    return flat.view(target.shape).mean(dim=1)


def hold_out(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numbers of a random tenth of the rows, and of all others."""
    order = torch.randperm(len(x), device=x.device)
    n_validation = max(len(x) // 10, 1)
    return order[:n_validation], order[n_validation:]


class PlainNetworks:
    """Five networks whose probabilities are averaged.

    Parameters
    ----------
    epochs : int, optional
        Number of epochs. By default 40, or more for few rows, so that there are 2,000 steps.
    seed : int, default=0
        Seed of the weights, the order of the rows, the validation rows and dropout.
    """

    def __init__(self, *, epochs: int | None = None, seed: int = 0) -> None:
        self.epochs, self.seed = epochs, seed

    def fit(self, x: Tensor, y: Tensor, n_classes: int) -> PlainNetworks:
        """Train on features of shape (n_rows, n_features) and class indices."""
        torch.manual_seed(self.seed)
        self.mean, self.scale = x.mean(dim=0), x.std(dim=0).clamp(min=1e-6)
        self.validation, rows = hold_out(x)
        held_out, held_out_y = x[self.validation], y[self.validation]
        weights = [
            self._uniform(x.shape[1], WIDTH, device=x.device),
            torch.zeros(MEMBERS, 1, WIDTH, device=x.device),
            self._uniform(WIDTH, n_classes, device=x.device),
            torch.zeros(MEMBERS, 1, n_classes, device=x.device),
        ]
        for weight in weights:
            weight.requires_grad_(True)
        optimizer = torch.optim.AdamW(weights, lr=1e-3, weight_decay=0.01, fused=x.is_cuda)
        n_steps = math.ceil(len(rows) / BATCH_SIZE)
        epochs = self.epochs or max(40, 2000 // n_steps)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * n_steps)
        best = torch.full((MEMBERS,), math.inf, device=x.device)
        self.weights = [weight.detach().clone() for weight in weights]
        for _ in range(epochs):
            orders = torch.rand(MEMBERS, len(rows), device=x.device).argsort(dim=1)
            for part in rows[orders].split(BATCH_SIZE, dim=1):
                optimizer.zero_grad(set_to_none=True)
                cross_entropy(self._logits(x[part], weights, train=True), y[part]).sum().backward()
                optimizer.step()
                schedule.step()
            with torch.no_grad():
                blocks = zip(held_out.split(BLOCK_ROWS), held_out_y.split(BLOCK_ROWS), strict=True)
                loss = sum(
                    cross_entropy(self._logits(a, weights), b.expand(MEMBERS, -1)) * len(b)
                    for a, b in blocks
                )
                better = loss < best
                best = torch.where(better, loss, best)
                for kept, weight in zip(self.weights, weights, strict=True):
                    kept[better] = weight[better]
        return self

    def _uniform(self, n_inputs: int, n_outputs: int, device: torch.device) -> Tensor:
        limit = n_inputs**-0.5
        return torch.empty(MEMBERS, n_inputs, n_outputs, device=device).uniform_(-limit, limit)

    def _logits(self, x: Tensor, weights: list[Tensor], *, train: bool = False) -> Tensor:
        """Return the logits of each member; `x` can have its own rows for each member."""
        x = functional.dropout((x - self.mean) / self.scale, 0.2, train)
        if x.ndim == 2:
            x = x.expand(MEMBERS, -1, -1)
        hidden = functional.gelu(torch.baddbmm(weights[1], x, weights[0]))
        return torch.baddbmm(weights[3], functional.dropout(hidden, 0.5, train), weights[2])

    @torch.no_grad()
    def log_proba(self, x: Tensor) -> Tensor:
        """Return the logarithms of the mean probabilities, of shape (n_rows, n_classes)."""
        blocks = [
            torch.log_softmax(self._logits(block, self.weights), dim=-1).logsumexp(dim=0)
            for block in x.split(BLOCK_ROWS)
        ]
        return torch.cat(blocks) - math.log(MEMBERS)
