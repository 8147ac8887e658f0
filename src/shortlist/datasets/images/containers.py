"""Images with labels, in memory or in files that are decoded when they are used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.validation import check_count

if TYPE_CHECKING:
    from types import ModuleType


@dataclass(frozen=True)
class ImageFiles:
    """Image files, which are decoded to RGB when they are used.

    Parameters
    ----------
    paths : tuple of Path
        The files.
    size : int, optional
        Resize the shorter side to this many pixels and crop the center square.
    """

    paths: tuple[Path, ...]
    size: int | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def select_rows(self, rows: Sequence[int]) -> ImageFiles:
        """Select files by row number.

        Parameters
        ----------
        rows : sequence of int
            Row numbers.

        Returns
        -------
        ImageFiles
            The files, in the order of the row numbers.
        """
        return ImageFiles(tuple(self.paths[row] for row in rows), self.size)

    def decode(self) -> NDArray[np.uint8]:
        """Decode all files.

        Returns
        -------
        array of shape (n_rows, height, width, 3)
            Pixels as bytes.

        Raises
        ------
        ValueError
            If a file is not a readable image, or images differ in size.
        """
        if not self.paths:
            raise ValueError("there are no images to decode")
        pillow = _pillow()
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            images = list(pool.map(lambda path: _decode(pillow, path, self.size), self.paths))
        for path, image in zip(self.paths, images, strict=True):
            if image.shape != images[0].shape:
                raise ValueError(
                    f"{path} is {_dimensions(image)} pixels, but {self.paths[0]} is "
                    f"{_dimensions(images[0])}; give size=... to resize them"
                )
        return np.stack(images)


@dataclass(frozen=True)
class Images:
    """Images and their labels.

    Parameters
    ----------
    images : array of shape (n_rows, height, width, channels), or ImageFiles
        Pixels as bytes, or files.
    y : array of shape (n_rows,)
        True labels, as indices into `classes`.
    classes : array of shape (n_classes,)
        Names of the classes.

    Examples
    --------
    >>> import numpy as np
    >>> data = Images(np.zeros((10, 32, 32, 3), np.uint8), np.arange(10) % 2, np.array(["a", "b"]))
    >>> data
    Images(10 of 32 × 32, 2 classes)
    >>> [len(batch) for batch in data.batches(4)]
    [4, 4, 2]
    >>> data[data.y == 1]
    Images(5 of 32 × 32, 2 classes)
    """

    images: NDArray[np.uint8] | ImageFiles
    y: NDArray[np.integer]
    classes: NDArray[np.generic]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.y):
            raise ValueError(f"{len(self.images)} images, but {len(self.y)} labels")
        if isinstance(self.images, np.ndarray) and (
            self.images.ndim != 4 or self.images.dtype != np.uint8
        ):
            raise ValueError(
                "images must be bytes (uint8) of shape (rows, height, width, channels); "
                f"got {self.images.dtype} of shape {self.images.shape}"
            )

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: slice | NDArray[np.integer] | NDArray[np.bool_]) -> Images:
        if isinstance(self.images, np.ndarray):
            return Images(self.images[rows], self.y[rows], self.classes)
        numbers = np.arange(len(self))[rows].tolist()
        return Images(self.images.select_rows(numbers), self.y[rows], self.classes)

    def batches(self, rows: int) -> Iterator[NDArray[np.uint8]]:
        """Yield the images in batches. Files are decoded one batch at a time.

        Parameters
        ----------
        rows : int
            Maximum number of images in a batch.

        Yields
        ------
        array of shape (n_rows, height, width, channels)
            The next batch.
        """
        check_count(rows, "rows")
        for start in range(0, len(self), rows):
            part = self[start : start + rows].images
            yield part if isinstance(part, np.ndarray) else part.decode()

    def __repr__(self) -> str:
        if isinstance(self.images, np.ndarray):
            description = f"of {self.images.shape[1]} × {self.images.shape[2]}"
        else:
            size = self.images.size
            description = "in files" + (f", read as {size} × {size}" if size else "")
        return f"Images({len(self):,} {description}, {len(self.classes)} classes)"


def _pillow() -> ModuleType:
    """Import Pillow, which may not be installed."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(
            "reading image files needs Pillow: pip install 'shortlist[images]'"
        ) from None
    return Image


def _decode(pillow: ModuleType, path: Path, size: int | None) -> NDArray[np.uint8]:
    """Decode a file to RGB, and resize and crop it if a size is given."""
    try:
        with pillow.open(path) as file:
            image = file.convert("RGB")
    # The type of Pillow's error depends on the format and on where the file is damaged.
    except Exception as error:
        raise ValueError(f"{path} is not a readable image: {error}") from error
    if size is not None:
        width, height = image.size
        scale = size / min(width, height)
        width, height = max(size, round(width * scale)), max(size, round(height * scale))
        image = image.resize((width, height), pillow.Resampling.BILINEAR)
        left, top = (width - size) // 2, (height - size) // 2
        image = image.crop((left, top, left + size, top + size))
    return np.asarray(image, dtype=np.uint8)


def _dimensions(image: NDArray[np.uint8]) -> str:
    return f"{image.shape[0]} × {image.shape[1]}"
