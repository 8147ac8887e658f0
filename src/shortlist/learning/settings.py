"""Training settings, which are parameters of trained estimators, and seeds and devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import nn

from shortlist._utils.out_of_core import Matrix
from shortlist._utils.validation import check_choice, check_count

Net = TypeVar("Net", bound=nn.Module)

MIN_STEPS_PER_EPOCH = 20
"""Minimum number of steps in an epoch of an estimator. An epoch goes through small data several
times, because the default of 50 epochs would otherwise be only 50 steps for data of one batch."""
CLIP_NORM = 1.0
"""Default maximum norm of the gradient, for losses with an unbounded gradient."""


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of one training run.

    Parameters
    ----------
    learning_rate : float, default=1e-3
        Learning rate of Adam. The defaults of the optimizer are the paper's.
    batch_size : int, default=128
        Number of rows in a mini-batch.
    weight_decay : float, default=1e-5
        Strength of the L2 regularization.
    max_epochs : int, default=50
        Maximum number of epochs.
    patience : int, default=5
        Number of epochs without improvement of the validation loss after which training stops.
    validation_fraction : float, default=0.1
        Fraction of the rows that are used for validation.
    clip_norm : float, optional
        Maximum norm of the gradient. By default, the gradient is not clipped.
    min_steps_per_epoch : int, default=1
        Minimum number of steps in an epoch. An epoch goes through small data several times.
    decoupled_weight_decay : bool, default=False
        Whether to apply weight decay to the weights (AdamW) instead of the gradient (Adam).
    ema_decay : float, default=0.0
        Decay of the exponential moving average of the weights. The averaged weights are evaluated
        on the validation rows and kept. 0 disables averaging.
    seed : int, default=0
        Seed of the order of the rows, the choice of the validation rows, and dropout.
    """

    learning_rate: float = 1e-3
    batch_size: int = 128
    weight_decay: float = 1e-5
    max_epochs: int = 50
    patience: int = 5
    validation_fraction: float = 0.1
    clip_norm: float | None = None
    min_steps_per_epoch: int = 1
    decoupled_weight_decay: bool = False
    ema_decay: float = 0.0
    seed: int = 0

    def passes(self, rows: int) -> int:
        """Return how often an epoch must go through the data to take the minimum number of steps.

        Parameters
        ----------
        rows : int
            Number of training rows.

        Returns
        -------
        int
            Number of passes, at least 1.

        Examples
        --------
        >>> settings = TrainingSettings(min_steps_per_epoch=20)
        >>> settings.passes(20_000), settings.passes(300)
        (1, 7)
        """
        return -(-self.min_steps_per_epoch // max(1, -(-rows // self.batch_size)))

    def __post_init__(self) -> None:
        check_count(self.batch_size, "batch_size")
        check_count(self.max_epochs, "max_epochs")
        check_count(self.patience, "patience")
        check_count(self.min_steps_per_epoch, "min_steps_per_epoch")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate!r}")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"weight_decay must not be negative; got {self.weight_decay!r}")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must lie in [0, 1); got {self.validation_fraction!r}"
            )
        if not 0 <= self.ema_decay < 1:
            raise ValueError(f"ema_decay must lie in [0, 1); got {self.ema_decay!r}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be positive or None; got {self.clip_norm!r}")


class TrainedEstimator(Protocol):
    """The parameters that all trained estimators have."""

    learning_rate: float
    batch_size: int
    weight_decay: float
    max_epochs: int
    patience: int
    validation_fraction: float
    clip_norm: float | str | None
    random_state: object


def training_settings(estimator: TrainedEstimator, loss: nn.Module) -> TrainingSettings:
    """Return the validated settings of an estimator.

    `clip_norm="auto"` clips the gradient if the loss has an unbounded gradient.
    """
    clip = estimator.clip_norm
    if isinstance(clip, str):
        check_choice(clip, "clip_norm", ("auto",))
        clip = None if getattr(loss, "bounded_gradient", True) else CLIP_NORM
    return TrainingSettings(
        learning_rate=estimator.learning_rate,
        batch_size=estimator.batch_size,
        weight_decay=estimator.weight_decay,
        max_epochs=estimator.max_epochs,
        patience=estimator.patience,
        validation_fraction=estimator.validation_fraction,
        clip_norm=clip,
        min_steps_per_epoch=MIN_STEPS_PER_EPOCH,
        seed=resolve_seed(estimator.random_state),
    )


def resolve_seed(random_state: object) -> int:
    """Return an integer seed for a scikit-learn `random_state`."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if not 0 <= int(random_state) < 2**32:
            raise ValueError(f"random_state must lie in [0, 2**32); got {random_state!r}")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def resolve_device(device: object, inputs: Matrix) -> torch.device:
    """Return the device for training. "auto" stands for the device of the inputs."""
    if device == "auto":
        return inputs.device
    try:
        return torch.empty(0, device=str(device)).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f'device = {device!r} is not available ({str(error).splitlines()[0]}); use "auto" for '
            "the device of the inputs"
        ) from error


def build_with_seed(build: Callable[[], Net], seed: int) -> Net:
    """Build a network with a seed, and restore the global random state."""
    with torch.random.fork_rng(devices=cuda_devices()):
        torch.manual_seed(seed)
        return build()


def cuda_devices() -> range:
    """Return the CUDA devices whose random state `torch.manual_seed` changes."""
    used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return range(torch.cuda.device_count() if used else 0)
