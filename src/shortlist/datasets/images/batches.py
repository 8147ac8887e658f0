"""Batches of images from arrays, data sets and iterables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import to_tensor
from shortlist.datasets.images.containers import Images

CHANNELS = (1, 3, 4)
IMAGE_KEYS = ("pixel_values", "image", "img", "images")
"""Keys of the image if a row is a dictionary, in order of preference."""


def image_count(images: object) -> int | None:
    """Return the number of images, or None if they must be read to be counted."""
    if isinstance(images, torch.utils.data.DataLoader):
        return None  # The length of a DataLoader is its number of batches.
    if isinstance(images, Tensor | np.ndarray):
        return len(images) if images.ndim else None
    try:
        return len(images)  # type: ignore[arg-type]
    except TypeError:
        return None


def image_batches(images: object, rows: int) -> Iterator[Tensor]:
    """Yield images in batches, as tensors (rows, channels, height, width) of bytes or floats.

    Parameters
    ----------
    images : array, tensor, Images, Dataset, DataLoader or iterable
        Images. If an item is already a batch, as in a DataLoader, it is not divided.
    rows : int
        Maximum number of single images in a batch.

    Yields
    ------
    Tensor
        The next batch.
    """
    if isinstance(images, Images):
        for batch in images.batches(rows):
            yield channels_first(to_tensor(batch, "images"))
    elif isinstance(images, Tensor | np.ndarray):
        tensor = to_tensor(images, "images")
        if tensor.ndim != 4:
            raise ValueError(
                f"images must have four axes, (rows, height, width, channels) for bytes; got shape "
                f"{tuple(tensor.shape)}" + (": images[..., None]?" if tensor.ndim == 3 else "")
            )
        for start in range(0, len(tensor), rows):
            yield channels_first(tensor[start : start + rows])
    else:
        yield from _group(_items(images), rows)


def channels_first(images: Tensor) -> Tensor:
    """Return images with the channels first. Images of floats must already have this order."""
    can_be_last, can_be_first = images.shape[3] in CHANNELS, images.shape[1] in CHANNELS
    if images.dtype == torch.uint8:
        if not can_be_last and not can_be_first:
            raise ValueError(
                f"images of bytes must be (rows, height, width, channels) with 1, 3 or 4 channels; "
                f"got shape {tuple(images.shape)}"
            )
        return images.permute(0, 3, 1, 2) if can_be_last else images
    if not images.is_floating_point():
        raise ValueError(
            f"images must be bytes (uint8) or floats; got dtype {images.dtype}: "
            "images.astype(np.uint8)?"
        )
    if can_be_last and not can_be_first:
        raise ValueError(
            "images of floats must be (rows, channels, height, width), like the network's input; "
            f"got shape {tuple(images.shape)}: np.moveaxis(images, -1, 1)?"
        )
    return images


def _items(images: object) -> Iterator[object]:
    """Yield the items of a data set or an iterable."""
    if isinstance(images, Iterable):
        yield from images
    elif hasattr(images, "__getitem__") and hasattr(images, "__len__"):
        # A Dataset need not be iterable.
        for row in range(len(images)):
            yield images[row]
    else:
        raise ValueError(
            "images must be an array, a tensor, Images, a Dataset or an iterable of images; "
            f"got {type(images).__name__}"
        )


def _group(items: Iterator[object], rows: int) -> Iterator[Tensor]:
    """Collect single images into batches, and yield items that are already batches."""
    pending: list[Tensor] = []
    for item in items:
        image = _image_tensor(item)
        if image.ndim == 4:
            yield channels_first(image)
            continue
        pending.append(image)
        if len(pending) == rows:
            yield _stack(pending)
            pending = []
    if pending:
        yield _stack(pending)


def _image_tensor(item: object) -> Tensor:
    """Return the image of an item, which can be a dictionary or a pair (image, label)."""
    if isinstance(item, Mapping):
        present = [key for key in IMAGE_KEYS if key in item]
        if not present:
            raise ValueError(
                f"a row has none of {', '.join(IMAGE_KEYS)}; it has {', '.join(map(str, item))}"
            )
        item = item[present[0]]
    elif isinstance(item, Sequence) and not isinstance(item, str | bytes) and len(item):
        item = item[0]
    if hasattr(item, "convert") and hasattr(item, "getbands"):  # This is an image of Pillow.
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
    """Return images as a batch; raise unless they have the same shape."""
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) > 1:
        a, b = sorted(shapes)[:2]
        raise ValueError(f"images differ in shape ({a} and {b}); resize them to one size first")
    return channels_first(torch.stack(images))
