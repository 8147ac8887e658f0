"""CIFAR-10 and CIFAR-100 from the authors' archives (the Python version)."""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.arrays import check_choice
from shortlist.datasets.images import Images
from shortlist.datasets.unpickle import read_plain

CifarPart: TypeAlias = Literal["train", "test"]

ROW = 3 * 32 * 32
"""Bytes of an image: the red plane, the green one, the blue one."""
MOST = 1 << 30
"""No member of a true archive has nearly so many bytes."""


def read_cifar10(path: str | os.PathLike[str], part: CifarPart = "train") -> Images:
    """CIFAR-10: 50,000 images to train on and 10,000 to test, of 32 × 32 pixels, ten classes.

    The archive is never unpacked on disk, and nothing in it is executed.

    Parameters
    ----------
    path : path
        `cifar-10-python.tar.gz`, or the folder that it unpacks to.
    part : {"train", "test"}, default="train"
        Which part.

    Examples
    --------
    >>> import pickle
    >>> from tempfile import TemporaryDirectory
    >>> batch = {b"data": np.zeros((3, 3072), np.uint8), b"labels": [1, 0, 1]}
    >>> with TemporaryDirectory() as folder:      # a very small one
    ...     _ = Path(folder, "test_batch").write_bytes(pickle.dumps(batch, 2))
    ...     names = {b"label_names": [b"cat", b"dog"]}
    ...     _ = Path(folder, "batches.meta").write_bytes(pickle.dumps(names, 2))
    ...     read_cifar10(folder, "test")
    Images(3 of 32 × 32, 2 classes)
    """
    batches = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
    names = batches[check_choice(part, "part", list(batches))]
    return _read(Path(path), "cifar-10-batches-py", names, "batches.meta", "labels", "label_names")


def read_cifar100(
    path: str | os.PathLike[str], part: CifarPart = "train", *, coarse: bool = False
) -> Images:
    """CIFAR-100: as CIFAR-10, with 100 classes.

    The archive is never unpacked on disk, and nothing in it is executed.

    Parameters
    ----------
    path : path
        `cifar-100-python.tar.gz`, or the folder that it unpacks to.
    part : {"train", "test"}, default="train"
        Which part.
    coarse : bool, default=False
        Whether to take the 20 super-classes as labels.

    Examples
    --------
    >>> import pickle
    >>> from tempfile import TemporaryDirectory
    >>> batch = {b"data": np.zeros((3, 3072), np.uint8), b"coarse_labels": [1, 0, 1]}
    >>> with TemporaryDirectory() as folder:      # a very small one
    ...     _ = Path(folder, "test").write_bytes(pickle.dumps(batch, 2))
    ...     names = {b"coarse_label_names": [b"fish", b"flowers"]}
    ...     _ = Path(folder, "meta").write_bytes(pickle.dumps(names, 2))
    ...     read_cifar100(folder, "test", coarse=True).classes.tolist()
    ['fish', 'flowers']
    """
    name = check_choice(part, "part", ["train", "test"])
    grain = "coarse" if coarse else "fine"
    labels, label_names = f"{grain}_labels", f"{grain}_label_names"
    return _read(Path(path), "cifar-100-python", [name], "meta", labels, label_names)


def _read(
    path: Path, folder: str, batches: list[str], meta: str, labels: str, label_names: str
) -> Images:
    members = _members(path, folder, [*batches, meta])
    plain = {name: _dictionary(path, name, content) for name, content in members.items()}
    names = _names(path, meta, plain[meta], label_names)
    parts = [_batch(path, name, plain[name], labels, len(names)) for name in batches]
    images = np.concatenate([x for x, _ in parts]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Images(
        np.ascontiguousarray(images), np.concatenate([y for _, y in parts]), np.array(names)
    )


def _members(path: Path, folder: str, wanted: list[str]) -> dict[str, bytes]:
    """The content of the wanted files, from a folder or from a tar archive, by name."""
    if path.is_dir():
        home = path / folder if (path / folder).is_dir() else path
        found = {name: _file(home / name) for name in wanted if (home / name).is_file()}
    elif path.is_file():
        found = _from_tar(path, {f"{folder}/{name}": name for name in wanted})
    else:
        raise FileNotFoundError(f"there is no archive or folder at {str(path)!r}")
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(
            f"{path.name} lacks {', '.join(missing)}; the Python version of the archive has them "
            f"in {folder}/"
        )
    return found


def _file(file: Path) -> bytes:
    if file.stat().st_size > MOST:
        raise ValueError(f"{file} has {file.stat().st_size:,} bytes: too many to be true")
    return file.read_bytes()


def _from_tar(path: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                # As it is written: a name with `..` in it, or a link, is none of those wanted.
                name = wanted.get(str(PurePosixPath(member.name)))
                if name is None or not member.isreg() or name in found:
                    continue
                if member.size > MOST:
                    raise ValueError(f"{name} has {member.size:,} bytes: too many to be true")
                stream = archive.extractfile(member)
                if stream is not None:
                    found[name] = stream.read()
                if len(found) == len(wanted):
                    break
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(":")
        raise ValueError(
            f"{path.name} is not a whole tar archive ({reason}); fetch it afresh"
        ) from error
    return found


def _dictionary(path: Path, name: str, content: bytes) -> dict[str, object]:
    try:
        plain = read_plain(content)
    except ValueError as error:
        raise ValueError(f"{path.name}, {name}: {error}. Fetch the archive afresh") from error
    if not isinstance(plain, dict):
        raise ValueError(f"{path.name}, {name}: it holds a {type(plain).__name__}, no dictionary")
    return {k.decode("latin1") if isinstance(k, bytes) else str(k): v for k, v in plain.items()}


def _names(path: Path, meta: str, plain: Mapping[str, object], key: str) -> list[str]:
    names = plain.get(key)
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise ValueError(
            f"{path.name}, {meta}: no list of names {key}. It has: {', '.join(sorted(plain))}"
        )
    return [name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in names]


def _batch(
    path: Path, name: str, plain: Mapping[str, object], key: str, n_classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Rows of 3,072 bytes, and a label for each."""
    data, labels = plain.get("data"), plain.get(key)
    if not isinstance(data, np.ndarray) or not isinstance(labels, list | np.ndarray):
        raise ValueError(
            f"{path.name}, {name}: no array data and list {key}. It has: {', '.join(sorted(plain))}"
        )
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != ROW:
        raise ValueError(
            f"{path.name}, {name}: data must be rows of {ROW:,} bytes; "
            f"got {data.dtype} of shape {data.shape}"
        )
    if len(labels) != len(data):
        raise ValueError(f"{path.name}, {name}: {len(data)} images, but {len(labels)} {key}")
    wrong = [v for v in list(labels) if not _is_label(v, n_classes)]
    if wrong:
        raise ValueError(
            f"{path.name}, {name}: {key} hold {ascii(wrong[0])[:40]}; "
            f"labels are 0 to {n_classes - 1}"
        )
    return data, np.array(labels, dtype=np.int64)


def _is_label(value: object, n_classes: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return 0 <= int(value) < n_classes
