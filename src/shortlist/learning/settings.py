"""Training settings: the parameters of trained estimators, seeds and devices."""

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
"""Minimum number of steps of an estimator's epoch, which goes through small data several times.
The default number of epochs is too small otherwise: 50 epochs of one batch are 50 steps."""
CLIP_NORM = 1.0
"""Default maximum norm of the gradient for losses whose gradient is unbounded."""


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training.

    Parameters
    ----------
    learning_rate, batch_size, weight_decay : float, int, float
        Parameters of the optimizer. The defaults are the paper's.
    max_epochs : int, default=50
        Maximum number of epochs.
    patience : int, default=5
        Epochs without improvement of the validation loss after which training stops.
    validation_fraction : float, default=0.1
        Fraction of the rows that is used for validation.
    clip_norm : float, optional
        Maximum norm of the gradient.
    min_steps_per_epoch : int, default=1
        Minimum number of steps of an epoch, which goes through small data several times.
    decoupled_weight_decay : bool, default=False
        Apply weight decay to the weights (AdamW) rather than to the gradient (L2 regularisation).
    ema_decay : float, default=0.0
        Decay of the exponential moving average of the weights, which is then evaluated and kept.
        0 disables averaging.
    seed : int, default=0
        Seed of the row order, the validation rows and dropout.
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
        """Return how often an epoch goes through the data to take `min_steps_per_epoch` steps.

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
    """Parameters that every trained estimator has."""

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

    `clip_norm="auto"` clips the gradient if that of the loss is unbounded.
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
    """Return the device to train on. "auto" is the device of the inputs."""
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
    """Return the devices whose random state `torch.manual_seed` sets."""
    used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return range(torch.cuda.device_count() if used else 0)
