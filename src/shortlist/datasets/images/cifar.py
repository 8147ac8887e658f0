"""CIFAR-10 and CIFAR-100, read from the Python version of the authors' archives."""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.validation import check_choice
from shortlist.datasets.images.containers import Images
from shortlist.datasets.images.unpickle import read_plain_pickle

CifarSplit: TypeAlias = Literal["train", "test"]

IMAGE_BYTES = 3 * 32 * 32
"""Size of an image: a red, a green and a blue plane of 32 × 32 bytes."""
MAX_BYTES = 1 << 30
"""Maximum size of a file in an archive. The files of CIFAR are far smaller."""


def read_cifar10(path: str | os.PathLike[str], split: CifarSplit = "train") -> Images:
    """Read CIFAR-10: 50,000 training and 10,000 test images of 32 × 32 pixels in ten classes.

    The archive is not unpacked on disk, and nothing in it is executed.

    Parameters
    ----------
    path : path
        The archive `cifar-10-python.tar.gz`, or the folder of its files.
    split : {"train", "test"}, default="train"
        Which images to read.

    Returns
    -------
    Images
        Images in memory, with their labels.

    Raises
    ------
    FileNotFoundError
        If there is no such archive or folder.
    ValueError
        If the archive is damaged or incomplete, or a file in it contains more than plain data.

    Examples
    --------
    >>> import pickle
    >>> from tempfile import TemporaryDirectory
    >>> batch = {b"data": np.zeros((3, 3072), np.uint8), b"labels": [1, 0, 1]}
    >>> with TemporaryDirectory() as folder:      # a very small archive
    ...     _ = Path(folder, "test_batch").write_bytes(pickle.dumps(batch, 2))
    ...     names = {b"label_names": [b"cat", b"dog"]}
    ...     _ = Path(folder, "batches.meta").write_bytes(pickle.dumps(names, 2))
    ...     read_cifar10(folder, "test")
    Images(3 of 32 × 32, 2 classes)
    """
    batches = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
    names = batches[check_choice(split, "split", list(batches))]
    return _read(Path(path), "cifar-10-batches-py", names, "batches.meta", "labels", "label_names")


def read_cifar100(
    path: str | os.PathLike[str], split: CifarSplit = "train", *, coarse: bool = False
) -> Images:
    """Read CIFAR-100: 50,000 training and 10,000 test images of 32 × 32 pixels in 100 classes.

    The archive is not unpacked on disk, and nothing in it is executed.

    Parameters
    ----------
    path : path
        The archive `cifar-100-python.tar.gz`, or the folder of its files.
    split : {"train", "test"}, default="train"
        Which images to read.
    coarse : bool, default=False
        Whether the classes are the 20 superclasses.

    Returns
    -------
    Images
        Images in memory, with their labels.

    Raises
    ------
    FileNotFoundError
        If there is no such archive or folder.
    ValueError
        If the archive is damaged or incomplete, or a file in it contains more than plain data.

    Examples
    --------
    >>> import pickle
    >>> from tempfile import TemporaryDirectory
    >>> batch = {b"data": np.zeros((3, 3072), np.uint8), b"coarse_labels": [1, 0, 1]}
    >>> with TemporaryDirectory() as folder:      # a very small archive
    ...     _ = Path(folder, "test").write_bytes(pickle.dumps(batch, 2))
    ...     names = {b"coarse_label_names": [b"fish", b"flowers"]}
    ...     _ = Path(folder, "meta").write_bytes(pickle.dumps(names, 2))
    ...     read_cifar100(folder, "test", coarse=True).classes.tolist()
    ['fish', 'flowers']
    """
    name = check_choice(split, "split", ["train", "test"])
    level = "coarse" if coarse else "fine"
    labels, label_names = f"{level}_labels", f"{level}_label_names"
    return _read(Path(path), "cifar-100-python", [name], "meta", labels, label_names)


def _read(
    path: Path, folder: str, batches: list[str], meta: str, labels: str, label_names: str
) -> Images:
    """Read the images of batches, with the names of the keys for labels and for class names."""
    members = _read_members(path, folder, [*batches, meta])
    content = {name: _dictionary(path, name, data) for name, data in members.items()}
    names = _class_names(path, meta, content[meta], label_names)
    parts = [_batch(path, name, content[name], labels, len(names)) for name in batches]
    images = np.concatenate([x for x, _ in parts]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Images(
        np.ascontiguousarray(images), np.concatenate([y for _, y in parts]), np.array(names)
    )


def _read_members(path: Path, folder: str, names: list[str]) -> dict[str, bytes]:
    """Read files by name from a folder or from a tar archive."""
    if path.is_dir():
        home = path / folder if (path / folder).is_dir() else path
        members = {name: _read_file(home / name) for name in names if (home / name).is_file()}
    elif path.is_file():
        members = _read_tar(path, {f"{folder}/{name}": name for name in names})
    else:
        raise FileNotFoundError(f"there is no archive or folder at {str(path)!r}")
    missing = [name for name in names if name not in members]
    if missing:
        raise ValueError(
            f"{path.name} lacks {', '.join(missing)}; the Python version of the archive has them "
            f"in {folder}/"
        )
    return members


def _read_file(file: Path) -> bytes:
    """Read a file that is not too large."""
    _check_size(str(file), file.stat().st_size)
    return file.read_bytes()


def _check_size(name: str, size: int) -> None:
    if size > MAX_BYTES:
        raise ValueError(f"{name} has {size:,} bytes, more than the maximum of {MAX_BYTES:,}")


def _read_tar(path: Path, names: Mapping[str, str]) -> dict[str, bytes]:
    """Read members of a tar archive; `names` maps their paths in the archive to their names."""
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                # Paths are compared as they are written, so paths with `..` are ignored. So are
                # links, which could lead out of the archive.
                name = names.get(str(PurePosixPath(member.name)))
                if name is None or not member.isreg() or name in members:
                    continue
                _check_size(name, member.size)
                stream = archive.extractfile(member)
                if stream is not None:
                    members[name] = stream.read()
                if len(members) == len(names):
                    break
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(":")
        raise ValueError(
            f"{path.name} is not a complete tar archive ({reason}); download it again"
        ) from error
    return members


def _dictionary(path: Path, name: str, content: bytes) -> dict[str, object]:
    """Return the dictionary in a pickle, with keys as strings."""
    try:
        value = read_plain_pickle(content)
    except ValueError as error:
        raise ValueError(f"{path.name}, {name}: {error}. Download the archive again") from error
    if not isinstance(value, dict):
        raise ValueError(
            f"{path.name}, {name}: it holds a {type(value).__name__}, not a dictionary"
        )
    return {k.decode("latin1") if isinstance(k, bytes) else str(k): v for k, v in value.items()}


def _class_names(path: Path, meta: str, content: Mapping[str, object], key: str) -> list[str]:
    """Return the class names in the dictionary of the file `meta`."""
    names = content.get(key)
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise ValueError(
            f"{path.name}, {meta}: no list of names {key}. It has: {', '.join(sorted(content))}"
        )
    return [name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in names]


def _batch(
    path: Path, name: str, content: Mapping[str, object], key: str, n_classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images of a batch, as rows of 3,072 bytes, and their labels."""
    data, labels = content.get("data"), content.get(key)
    if not isinstance(data, np.ndarray) or not isinstance(labels, list | np.ndarray):
        raise ValueError(
            f"{path.name}, {name}: no array data and list {key}. "
            f"It has: {', '.join(sorted(content))}"
        )
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != IMAGE_BYTES:
        raise ValueError(
            f"{path.name}, {name}: data must be rows of {IMAGE_BYTES:,} bytes; "
            f"got {data.dtype} of shape {data.shape}"
        )
    if len(labels) != len(data):
        raise ValueError(f"{path.name}, {name}: {len(data)} images, but {len(labels)} {key}")
    invalid = [v for v in list(labels) if not _is_label(v, n_classes)]
    if invalid:
        raise ValueError(
            f"{path.name}, {name}: {key} hold {ascii(invalid[0])[:40]}; "
            f"labels must be 0 to {n_classes - 1}"
        )
    return data, np.array(labels, dtype=np.int64)


def _is_label(value: object, n_classes: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return 0 <= int(value) < n_classes
