"""SVHN (street view house numbers), read from the authors' MATLAB files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from shortlist._utils.validation import check_choice
from shortlist.datasets.images.containers import Images

SvhnSplit: TypeAlias = Literal["train", "test", "extra"]


def read_svhn(path: str | os.PathLike[str], split: SvhnSplit = "train") -> Images:
    """Read the cropped digits of SVHN (format 2): 32 × 32 pixels, ten classes.

    The digit 0 has the label 10 in the files, and the label 0 in the result.

    Parameters
    ----------
    path : path
        A folder with the files `train_32x32.mat`, `test_32x32.mat` or `extra_32x32.mat`, or one
        such file.
    split : {"train", "test", "extra"}, default="train"
        Which file of the folder to read. Ignored if `path` is a file.

    Returns
    -------
    Images
        Images in memory, with their labels.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, or is not a file of SVHN.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from scipy.io import savemat
    >>> with TemporaryDirectory() as folder:
    ...     arrays = {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[10], [7]], np.uint8)}
    ...     savemat(f"{folder}/test_32x32.mat", arrays)
    ...     data = read_svhn(folder, "test")
    >>> data, data.y.tolist()
    (Images(2 of 32 × 32, 10 classes), [0, 7])
    """
    check_choice(split, "split", ["train", "test", "extra"])
    file = Path(path)
    if file.is_dir():
        file = file / f"{split}_32x32.mat"
    if not file.is_file():
        raise FileNotFoundError(f"there is no SVHN file at {str(file)!r}")
    return _read(file)


def _read(file: Path) -> Images:
    """Read one file."""
    from scipy.io import loadmat

    try:
        arrays = loadmat(file, variable_names=["X", "y"])
    except NotImplementedError as error:
        raise ValueError(
            f"{file.name} is a MATLAB 7.3 file, but the files of SVHN have version 5"
        ) from error
    # The type of SciPy's error depends on where a file is damaged.
    except Exception as error:
        raise ValueError(f"{file.name} is not a readable .mat file: {error}") from error
    missing = [name for name in ("X", "y") if name not in arrays]
    if missing:
        raise ValueError(f"{file.name} lacks {' and '.join(missing)}; SVHN's files have X and y")
    x, y = np.asarray(arrays["X"]), np.asarray(arrays["y"])
    if x.ndim == 3:  # MATLAB drops a last axis of length one.
        x = x[..., None]
    rows = x.shape[-1]
    if x.shape != (32, 32, 3, rows) or x.dtype != np.uint8 or y.size != rows or not rows:
        raise ValueError(
            f"{file.name}: X must be bytes of shape (32, 32, 3, rows), and y one label for each; "
            f"got {x.dtype} of shape {x.shape} and {y.shape}"
        )
    if y.dtype.kind not in "iuf" or not np.isin(y, np.arange(1, 11)).all():
        raise ValueError(f"{file.name}: labels must be 1 to 10; got {y.min()} to {y.max()}")
    images = np.ascontiguousarray(x.transpose(3, 0, 1, 2))
    return Images(images, y.reshape(-1).astype(np.int64) % 10, np.arange(10))
