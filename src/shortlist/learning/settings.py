"""How to train: the parameters of every trained estimator, their checks, seeds and devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import nn

from shortlist._utils.arrays import check_choice, check_count
from shortlist._utils.lazy import Matrix

Net = TypeVar("Net", bound=nn.Module)

FEWEST_STEPS = 20
"""An estimator's epoch takes this many steps, of little data in several passes, so that the
defaults train that too: 50 epochs of one batch would be 50 steps."""
CLIP_NORM = 1.0
"""Gradients of losses that grow without bound are clipped to this norm unless told otherwise."""


@dataclass(frozen=True)
class Training:
    """How to train. The defaults of the first three are the paper's."""

    learning_rate: float = 1e-3
    batch_size: int = 128
    weight_decay: float = 1e-5
    max_epochs: int = 50
    patience: int = 5
    validation_fraction: float = 0.1
    clip_norm: float | None = None
    fewest_steps: int = 1
    decoupled: bool = False
    """Weight decay apart from the gradient (AdamW), rather than as L2 regularisation."""
    averaging: float = 0.0
    """Share of the running average of the weights that a step keeps; 0: no average. Where there
    is one, it is what is judged and kept."""
    seed: int = 0

    def passes(self, rows: int) -> int:
        """How often an epoch goes over the data: once, or until it has taken `fewest_steps`.

        >>> settings = Training(fewest_steps=20)
        >>> settings.passes(20_000), settings.passes(300)
        (1, 7)
        """
        return -(-self.fewest_steps // max(1, -(-rows // self.batch_size)))

    def __post_init__(self) -> None:
        check_count(self.batch_size, "batch_size")
        check_count(self.max_epochs, "max_epochs")
        check_count(self.patience, "patience")
        check_count(self.fewest_steps, "fewest_steps")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate!r}")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"weight_decay must not be negative; got {self.weight_decay!r}")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must lie in [0, 1); got {self.validation_fraction!r}"
            )
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging must lie in [0, 1); got {self.averaging!r}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be positive or None; got {self.clip_norm!r}")


class Trained(Protocol):
    """The parameters that every trained estimator takes, under the same names."""

    learning_rate: float
    batch_size: int
    weight_decay: float
    max_epochs: int
    patience: int
    validation_fraction: float
    clip_norm: float | str | None
    random_state: object


def settings_of(estimator: Trained, loss: nn.Module) -> Training:
    """An estimator's parameters, checked. Clips by default if the loss has steep gradients."""
    clip = estimator.clip_norm
    if isinstance(clip, str):
        check_choice(clip, "clip_norm", ("auto",))
        clip = CLIP_NORM if getattr(loss, "unbounded_gradient", False) else None
    return Training(
        learning_rate=estimator.learning_rate,
        batch_size=estimator.batch_size,
        weight_decay=estimator.weight_decay,
        max_epochs=estimator.max_epochs,
        patience=estimator.patience,
        validation_fraction=estimator.validation_fraction,
        clip_norm=clip,
        fewest_steps=FEWEST_STEPS,
        seed=seed_of(estimator.random_state),
    )


def seed_of(random_state: object) -> int:
    """An integer seed from what scikit-learn takes for one."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if not 0 <= int(random_state) < 2**32:
            raise ValueError(f"random_state must lie in [0, 2**32); got {random_state!r}")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def device_of(device: object, inputs: Matrix) -> torch.device:
    """Where to train: "auto" is where the inputs are."""
    if device == "auto":
        return inputs.device
    try:
        return torch.empty(0, device=str(device)).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f'device = {device!r} is not to be had here ({str(error).splitlines()[0]}); "auto" '
            "is where the inputs are"
        ) from error


def seeded(build: Callable[[], Net], seed: int) -> Net:
    """Build a network from a seed, leaving the global random state as it was."""
    with torch.random.fork_rng(devices=cuda_devices()):
        torch.manual_seed(seed)
        return build()


def cuda_devices() -> range:
    """The devices whose random state `torch.manual_seed` sets too."""
    used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return range(torch.cuda.device_count() if used else 0)
