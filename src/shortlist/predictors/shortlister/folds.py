"""Cross-fitting: networks that are each trained without one fold of the rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from shortlist.learning.process_group import current_group


def draw_folds(rows: int, members: int, seed: int) -> Tensor:
    """Return the fold of each row: folds of equal size, drawn at random in each process."""
    generator = torch.Generator().manual_seed(seed + (current_group().rank << 40))
    return torch.randperm(rows, generator=generator) % members


def cross_entropy(outputs: Tensor, target: Tensor) -> Tensor:
    """Return the loss of each network and row, of shape (members, n_rows).

    Parameters
    ----------
    outputs : Tensor of shape (members, n_rows, n_columns)
        Logits of each network.
    target : Tensor of shape (n_rows,) or (members, n_rows)
        Columns of the true labels; two-dimensional if each network has its own rows.

    Returns
    -------
    Tensor of shape (members, n_rows)
    """
    target = target.expand(outputs.shape[:-1]).reshape(-1)
    flat = nn.functional.cross_entropy(outputs.flatten(0, 1), target, reduction="none")
    return flat.view(outputs.shape[:-1])


def combine(log_p: Tensor, folds: Tensor | None = None) -> Tensor:
    """Combine the log-probabilities of several networks.

    Parameters
    ----------
    log_p : Tensor of shape (members, n_rows, n_columns)
        Log-probabilities of each network.
    folds : Tensor of shape (n_rows,), optional
        Fold of each row. If given, each row gets the output of the network that was trained
        without its fold. By default, the probabilities of all networks are averaged.

    Returns
    -------
    Tensor of shape (n_rows, n_columns)
    """
    if folds is None:
        return log_p.logsumexp(dim=0) - math.log(len(log_p))
    return log_p[folds, torch.arange(log_p.shape[1], device=log_p.device)]
