"""Batches of images, from whatever holds images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shortlist._utils.arrays import to_tensor
from shortlist.datasets.images import Images

CHANNELS = (1, 3, 4)
KEYS = ("pixel_values", "image", "img", "images")
"""Where a row of a dataset that is a dictionary has its image."""


def count_of(images: object) -> int | None:
    """How many images there are, where that can be known before they are read."""
    if isinstance(images, torch.utils.data.DataLoader):
        return None  # its length is in batches
    if isinstance(images, Tensor | np.ndarray):
        return len(images) if images.ndim else None
    try:
        return len(images)  # type: ignore[arg-type]
    except TypeError:
        return None


def batches_of(images: object, rows: int) -> Iterator[Tensor]:
    """Tensors (rows, channels, height, width): bytes or floats, as they came.

    What comes in batches already (a DataLoader) keeps its own.
    """
    if isinstance(images, Images):
        for batch in images.batches(rows):
            yield channels_first(to_tensor(batch, "images"))
    elif isinstance(images, Tensor | np.ndarray):
        whole = to_tensor(images, "images")
        if whole.ndim != 4:
            raise ValueError(
                f"images must have four axes, (rows, height, width, channels) for bytes; got shape "
                f"{tuple(whole.shape)}" + (": images[..., None]?" if whole.ndim == 3 else "")
            )
        for start in range(0, len(whole), rows):
            yield channels_first(whole[start : start + rows])
    else:
        yield from _gathered(_items(images), rows)


def channels_first(images: Tensor) -> Tensor:
    """Images as networks take them. Bytes come with the channels last, floats with them first."""
    last, first = images.shape[3] in CHANNELS, images.shape[1] in CHANNELS
    if images.dtype == torch.uint8:
        if not last and not first:
            raise ValueError(
                f"images of bytes must be (rows, height, width, channels) with 1, 3 or 4 channels; "
                f"got shape {tuple(images.shape)}"
            )
        return images.permute(0, 3, 1, 2) if last else images
    if not images.is_floating_point():
        raise ValueError(
            f"images must be bytes (uint8) or floats; got dtype {images.dtype}: "
            "images.astype(np.uint8)?"
        )
    if last and not first:
        raise ValueError(
            "images of floats must be (rows, channels, height, width), as the network takes them; "
            f"got shape {tuple(images.shape)}: np.moveaxis(images, -1, 1)?"
        )
    return images


def resized(images: Tensor, size: int) -> Tensor:
    """The middle square of float images whose shorter side has been resized to `size`."""
    height, width = images.shape[-2:]
    scale = size / min(height, width)
    shape = max(size, round(height * scale)), max(size, round(width * scale))
    if shape != (height, width):
        images = F.interpolate(
            images, shape, mode="bilinear", align_corners=False, antialias=scale < 1
        )
    top, left = (shape[0] - size) // 2, (shape[1] - size) // 2
    return images[..., top : top + size, left : left + size]


def _items(images: object) -> Iterator[object]:
    """What a dataset or an iterable gives, one after the other."""
    if isinstance(images, Iterable):
        yield from images
    elif hasattr(images, "__getitem__") and hasattr(images, "__len__"):  # a Dataset has no more
        for row in range(len(images)):
            yield images[row]
    else:
        raise ValueError(
            "images must be an array, a tensor, Images, a Dataset or an iterable of images; "
            f"got {type(images).__name__}"
        )


def _gathered(items: Iterator[object], rows: int) -> Iterator[Tensor]:
    waiting: list[Tensor] = []
    for item in items:
        image = _image(item)
        if image.ndim == 4:
            yield channels_first(image)
            continue
        waiting.append(image)
        if len(waiting) == rows:
            yield _stacked(waiting)
            waiting = []
    if waiting:
        yield _stacked(waiting)


def _image(item: object) -> Tensor:
    """The image of one row, which may be beside a label, as a tensor."""
    if isinstance(item, Mapping):
        known = [key for key in KEYS if key in item]
        if not known:
            raise ValueError(
                f"a row has none of {', '.join(KEYS)}; it has {', '.join(map(str, item))}"
            )
        item = item[known[0]]
    elif isinstance(item, Sequence) and not isinstance(item, str | bytes) and len(item):
        item = item[0]
    if hasattr(item, "convert") and hasattr(item, "getbands"):  # an image of Pillow
        item = np.array(item.convert("RGB"))
    image = to_tensor(item, "images")
    if image.ndim == 2:
        image = image[..., None] if image.dtype == torch.uint8 else image[None]
    if image.ndim not in (3, 4):
        raise ValueError(
            f"an image must have two or three axes, a batch four; got shape {tuple(image.shape)}"
        )
    return image


def _stacked(images: list[Tensor]) -> Tensor:
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) > 1:
        a, b = sorted(shapes)[:2]
        raise ValueError(f"images differ in shape ({a} and {b}); resize them to one size first")
    return channels_first(torch.stack(images))
