"""Preprocessing of batches of images: resizing and standardization."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from shortlist._utils.validation import check_count


def make_preprocessing(
    transform: Callable[[Tensor], Tensor] | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    size: int | None,
) -> Callable[[Tensor], Tensor]:
    """Return the function that maps a batch of images to the input of the model.

    Parameters
    ----------
    transform : callable or None
        The complete preprocessing. The other parameters must then be None.
    mean, std : sequence of float or None
        Values to subtract and to divide by, for each channel.
    size : int or None
        Resize the shorter side to this many pixels and crop the center square.

    Returns
    -------
    callable
        A function from a tensor (rows, channels, height, width) to the input.
    """
    if transform is not None:
        options = {"mean": mean, "std": std, "size": size}
        others = [name for name, value in options.items() if value is not None]
        if others:
            raise ValueError(
                f"transform does all of the preprocessing; leave out {' and '.join(others)}"
            )
        return transform
    if size is not None:
        check_count(size, "size")
    if std is not None and not all(value > 0 for value in std):
        raise ValueError(f"std must be positive; got {list(std)}")

    def preprocess(batch: Tensor) -> Tensor:
        x = batch.to(torch.float32) / 255 if batch.dtype == torch.uint8 else batch
        if size is not None:
            x = resize(x, size)
        if mean is not None:
            x = x - _per_channel(mean, "mean", x)
        if std is not None:
            x = x / _per_channel(std, "std", x)
        return x

    return preprocess


def _per_channel(values: Sequence[float], name: str, x: Tensor) -> Tensor:
    """Return values as a tensor that broadcasts over the channels of `x`."""
    if len(values) not in (1, x.shape[1]):
        raise ValueError(f"{name} has {len(values)} values, but the images {x.shape[1]} channels")
    return torch.tensor(list(values), dtype=x.dtype, device=x.device)[:, None, None]


def resize(images: Tensor, size: int) -> Tensor:
    """Resize the shorter side of float images to `size` pixels and crop the center square."""
    height, width = images.shape[-2:]
    scale = size / min(height, width)
    shape = max(size, round(height * scale)), max(size, round(width * scale))
    if shape != (height, width):
        images = F.interpolate(
            images, shape, mode="bilinear", align_corners=False, antialias=scale < 1
        )
    top, left = (shape[0] - size) // 2, (shape[1] - size) // 2
    return images[..., top : top + size, left : left + size]
