"""Batches of images, from arrays, data sets and iterables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shortlist._utils.arrays import to_tensor
from shortlist.datasets.images.containers import Images

CHANNELS = (1, 3, 4)
KEYS = ("pixel_values", "image", "img", "images")
"""Keys of the image in a row that is a dictionary, in order of preference."""


def image_count(images: object) -> int | None:
    """Return the number of images, or None if it is not known before they are read."""
    if isinstance(images, torch.utils.data.DataLoader):
        return None  # Its length is a number of batches.
    if isinstance(images, Tensor | np.ndarray):
        return len(images) if images.ndim else None
    try:
        return len(images)  # type: ignore[arg-type]
    except TypeError:
        return None


def image_batches(images: object, rows: int) -> Iterator[Tensor]:
    """Yield tensors (rows, channels, height, width) of bytes or floats, as they came.

    The batches of a DataLoader stay as they are.
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
        yield from _group(_items(images), rows)


def channels_first(images: Tensor) -> Tensor:
    """Return images with the channels first: those of bytes are moved, those of floats checked."""
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


def resize(images: Tensor, size: int) -> Tensor:
    """Resize the shorter side of float images to `size` pixels and crop the centre square."""
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
    """Yield the items of a data set or an iterable."""
    if isinstance(images, Iterable):
        yield from images
    elif hasattr(images, "__getitem__") and hasattr(
        images, "__len__"
    ):  # A Dataset may have no more than these.
        for row in range(len(images)):
            yield images[row]
    else:
        raise ValueError(
            "images must be an array, a tensor, Images, a Dataset or an iterable of images; "
            f"got {type(images).__name__}"
        )


def _group(items: Iterator[object], rows: int) -> Iterator[Tensor]:
    """Yield batches of single images, and batches of images as they are."""
    waiting: list[Tensor] = []
    for item in items:
        image = _image(item)
        if image.ndim == 4:
            yield channels_first(image)
            continue
        waiting.append(image)
        if len(waiting) == rows:
            yield _stack(waiting)
            waiting = []
    if waiting:
        yield _stack(waiting)


def _image(item: object) -> Tensor:
    """Return the image of a row, which may be a pair of image and label, as a tensor."""
    if isinstance(item, Mapping):
        known = [key for key in KEYS if key in item]
        if not known:
            raise ValueError(
                f"a row has none of {', '.join(KEYS)}; it has {', '.join(map(str, item))}"
            )
        item = item[known[0]]
    elif isinstance(item, Sequence) and not isinstance(item, str | bytes) and len(item):
        item = item[0]
    if hasattr(item, "convert") and hasattr(item, "getbands"):  # An image of Pillow.
        item = np.array(item.convert("RGB"))
    image = to_tensor(item, "images")
    if image.ndim == 2:
        image = image[..., None] if image.dtype == torch.uint8 else image[None]
    if image.ndim not in (3, 4):
        raise ValueError(
            f"an image must have two or three axes, a batch four; got shape {tuple(image.shape)}"
        )
    return image


def _stack(images: list[Tensor]) -> Tensor:
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) > 1:
        a, b = sorted(shapes)[:2]
        raise ValueError(f"images differ in shape ({a} and {b}); resize them to one size first")
    return channels_first(torch.stack(images))
