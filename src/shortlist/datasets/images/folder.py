"""Folders of images, with one folder for each class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shortlist._utils.validation import check_count
from shortlist.datasets.images.containers import ImageFiles, Images

EXTENSIONS = (
    *(".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm"),
    *(".tif", ".tiff", ".webp"),
)


def read_image_folder(
    path: str | os.PathLike[str],
    *,
    size: int | None = None,
    classes: Sequence[str] | None = None,
) -> Images:
    """Read a folder that contains one folder of images for each class.

    Classes and files are sorted by name. A class has all images in its folder, at any depth.
    Pillow decodes the images when they are used: `pip install 'shortlist[images]'`.

    Parameters
    ----------
    path : path
        The folder. The names of the folders in it are the classes.
    size : int, optional
        Resize the shorter side to this many pixels and crop the center square. Required if images
        differ in size.
    classes : sequence of str, optional
        Classes of another split, so that both splits have the same labels. A class may then have
        no folder.

    Returns
    -------
    Images
        Image files, with their labels.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    ValueError
        If the folder has no folders, one of them has no images, or a class is unknown.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("cat", "dog"):
    ...         Path(folder, name).mkdir()
    ...         Image.new("RGB", (40, 30)).save(f"{folder}/{name}/1.png")
    ...     data = read_image_folder(folder, size=16)
    ...     data.classes.tolist(), next(data.batches(2)).shape
    (['cat', 'dog'], (2, 16, 16, 3))
    """
    folder = Path(path)
    if size is not None:
        check_count(size, "size")
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder at {os.fspath(path)!r}")
    present = sorted(f.name for f in folder.iterdir() if f.is_dir() and not f.name.startswith("."))
    if not present:
        raise ValueError(f"{folder} has no folders in it; there must be one for each class")
    names = present if classes is None else [str(name) for name in classes]
    unknown = [name for name in present if name not in set(names)]
    if unknown:
        raise ValueError(
            f"{folder} has a folder {unknown[0]!r} ({len(unknown)} such), "
            f"which is not one of the {len(names)} classes"
        )
    paths: list[Path] = []
    y: list[int] = []
    for name in present:
        files = sorted(_image_files(folder / name))
        if not files:
            raise ValueError(
                f"{folder / name} has no images (files ending in {', '.join(EXTENSIONS)})"
            )
        paths += files
        y += [names.index(name)] * len(files)
    return Images(ImageFiles(tuple(paths), size), np.array(y, dtype=np.int64), np.array(names))


def _image_files(folder: Path) -> list[Path]:
    """Return the image files in a folder, at any depth."""
    return [
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in EXTENSIONS and not file.name.startswith(".") and file.is_file()
    ]
