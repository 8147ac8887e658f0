"""C-Adapter (Liu et al., 2024, arXiv:2410.09408), in plain PyTorch after its description.

The adapter changes the logits of a row, but never their order (an intra order-preserving function;
Rahimi et al., 2020): it multiplies each gap between neighboring sorted logits by a positive number,
and adds the gaps up again. The numbers are a linear function of all logits of the row. It is
trained to separate the levels of true labels from the levels of the labels of other rows: the loss
is a smoothed mean size of the sets, averaged over thresholds, which are levels of true labels.
"""

from __future__ import annotations

import math

import torch
from sizes.plain_networks import hold_out
from torch import Tensor
from torch.nn import functional

import shortlist as sl

SCORES = ("lac", "aps")
BATCH_SIZE, THRESHOLDS = 256, 32
"""Rows of a step, and how many others give it a threshold."""
SMOOTHING = 0.05
"""Temperature of the sigmoid that stands for "the level is at least the threshold"."""
LEARNING_RATE = 0.01
BLOCK_ROWS = 8192


class CAdapter:
    """An adapter of logits that is trained for short sets.

    Parameters
    ----------
    score : {"lac", "aps"}, default="lac"
        Conformity score whose sets are made short. APS is randomized.
    epochs : int, optional
        Number of epochs. By default 40, or more for few rows, so that there are 2,000 steps.
    seed : int, default=0
        Seed of the validation rows, the order of the rows and the randomization of APS.
    """

    def __init__(self, score: str = "lac", *, epochs: int | None = None, seed: int = 0) -> None:
        if score not in SCORES:
            raise ValueError(f"score = {score!r} is unknown; C-Adapter takes one of {SCORES}")
        self.score, self.epochs, self.seed = score, epochs, seed

    def fit(self, logits: Tensor, y: Tensor) -> CAdapter:
        """Train on logits of shape (n_rows, n_classes) and class indices.

        A tenth of the rows chooses the epoch. Epoch 0 is temperature scaling.
        """
        torch.manual_seed(self.seed)
        self.temperature = sl.fit_temperature(logits, y, score_type="logits")
        self.mean, self.spread = logits.mean(dim=0), logits.std().clamp(min=1e-6)
        n_gaps = logits.shape[1] - 1
        weight = torch.zeros(n_gaps + 1, n_gaps, device=logits.device)
        bias = torch.full((n_gaps,), math.log(math.e - 1), device=logits.device)  # Numbers are 1.
        self.weights = [weight.requires_grad_(), bias.requires_grad_()]
        validation, rows = hold_out(logits)
        n_steps = math.ceil(len(rows) / BATCH_SIZE)
        epochs = self.epochs or max(40, 2000 // n_steps)
        optimizer = torch.optim.Adam(self.weights, lr=LEARNING_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * n_steps)
        best, kept = self._mean_size(logits[validation], y[validation]), self._copy()
        for _ in range(epochs):
            for part in rows[torch.randperm(len(rows), device=y.device)].split(BATCH_SIZE):
                others = rows[torch.randint(len(rows), (THRESHOLDS,), device=y.device)]
                optimizer.zero_grad(set_to_none=True)
                self._loss(logits[part], logits[others], y[others]).backward()
                optimizer.step()
                schedule.step()
            size = self._mean_size(logits[validation], y[validation])
            if size < best:
                best, kept = size, self._copy()
        self.weights = kept
        return self

    @torch.no_grad()
    def adapt(self, logits: Tensor) -> Tensor:
        """Return the adapted logits, whose order in each row is that of the given ones."""
        blocks = []
        for block in logits.split(BLOCK_ROWS):
            adapted, order = self._sorted(block)
            blocks.append(torch.empty_like(adapted).scatter_(1, order, adapted))
        return torch.cat(blocks)

    def _copy(self) -> list[Tensor]:
        return [weight.detach().clone() for weight in self.weights]

    def _sorted(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the adapted logits in descending order, and their columns."""
        ordered, columns = (logits / self.temperature).sort(dim=1, descending=True, stable=True)
        weight, bias = self.weights
        factors = functional.softplus((logits - self.mean) / self.spread @ weight + bias)
        gaps = (ordered[:, :-1] - ordered[:, 1:]) * factors
        above_last = gaps.flip(1).cumsum(dim=1).flip(1)
        return functional.pad(above_last, (0, 1)), columns

    def _levels(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the levels of all labels, the most probable one first, and their columns."""
        adapted, columns = self._sorted(logits)
        proba = adapted.softmax(dim=1)
        if self.score == "lac":
            return proba, columns
        share = torch.rand(len(proba), 1, device=proba.device)
        return share * proba - proba.cumsum(dim=1), columns

    def _thresholds(self, logits: Tensor, y: Tensor) -> Tensor:
        levels, columns = self._levels(logits)
        return levels[columns == y[:, None]]

    def _loss(self, logits: Tensor, other_logits: Tensor, other_y: Tensor) -> Tensor:
        """Return the smoothed mean size of the sets of rows, at the thresholds of other rows."""
        levels, _ = self._levels(logits)
        thresholds = self._thresholds(other_logits, other_y)
        above = (levels.flatten()[:, None] - thresholds) / SMOOTHING
        return above.sigmoid().mean() * levels.shape[1]

    @torch.no_grad()
    def _mean_size(self, logits: Tensor, y: Tensor) -> float:
        """Return the mean size of the sets of rows, at the levels of all their true labels."""
        levels, _ = self._levels(logits)
        ascending = levels.flatten().sort().values
        below = torch.searchsorted(ascending, self._thresholds(logits, y))
        return float((levels.numel() - below).double().mean() / len(y))
