"""Images in folders, one folder for each class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shortlist._utils.arrays import check_count
from shortlist.datasets.images import ImageFiles, Images

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
    """Images in folders, one folder for each class, whose name is the folder's.

    Classes and files come in the order of their names. Images below a class's folder belong to
    it, however deep. Nothing is decoded yet. Needs Pillow: `pip install 'shortlist[images]'`.

    Parameters
    ----------
    path : path
        The folder of folders.
    size : int, optional
        Resize the shorter side to this and keep the middle square. Needed if images differ in
        size.
    classes : sequence of str, optional
        The classes of another part, so that labels agree; a folder may then be missing.

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
    found = sorted(f.name for f in folder.iterdir() if f.is_dir() and not f.name.startswith("."))
    if not found:
        raise ValueError(f"{folder} has no folders in it; there must be one for each class")
    names = found if classes is None else [str(name) for name in classes]
    strange = [name for name in found if name not in set(names)]
    if strange:
        raise ValueError(
            f"{folder} has a folder {strange[0]!r} ({len(strange)} such), "
            f"which is not one of the {len(names)} classes"
        )
    paths: list[Path] = []
    y: list[int] = []
    for name in found:
        inside = sorted(_images_below(folder / name))
        if not inside:
            raise ValueError(
                f"{folder / name} has no images; they are files ending in {', '.join(EXTENSIONS)}"
            )
        paths += inside
        y += [names.index(name)] * len(inside)
    return Images(ImageFiles(tuple(paths), size), np.array(y, dtype=np.int64), np.array(names))


def _images_below(folder: Path) -> list[Path]:
    return [
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in EXTENSIONS and not file.name.startswith(".") and file.is_file()
    ]
