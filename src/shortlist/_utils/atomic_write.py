"""Write files atomically: to a temporary name first, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shortlist._utils.staging import PART, is_staging, move, staging, sweep, sync_directory

_swept: set[str] = set()
"""Directories in which this process has already looked for abandoned files."""


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path, which replaces `path` in one step at the end of the block.

    Missing folders are created. If the block raises, `path` is unchanged and no temporary file
    remains. If several threads or processes write the same path, the last one wins.

    Parameters
    ----------
    path : path-like
        File to write.

    Yields
    ------
    Path
        File to write to, with the same name in a temporary folder.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with atomic_write(f"{folder}/new/numbers.txt") as temporary:
    ...         _ = temporary.write_text("1 2 3")
    ...     Path(f"{folder}/new/numbers.txt").read_text()
    '1 2 3'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep_once(target.parent)
    try:
        with staging(target.parent, target.name, PART) as folder:
            # Some writers choose the format by the ending of the name.
            temporary = folder / target.name
            yield temporary
            _sync_file(temporary)
            move(temporary, target)
            sync_directory(target.parent)
    except OSError as error:
        if not _is_inside_staging(error.filename):
            raise
        raise type(error)(error.errno, error.strerror, str(target)) from error


def check_target(path: str | os.PathLike[str], *, overwrite: bool, example: str) -> Path:
    """Return the path of a file to write; raise if it is a folder, or must not be replaced.

    Parameters
    ----------
    path : path-like
        File to write.
    overwrite : bool
        Whether an existing file may be replaced.
    example : str
        Name of such a file, for the message.

    Returns
    -------
    Path
        The same path.
    """
    target = Path(path)
    if target.is_dir():
        raise ValueError(f"{str(path)!r} is a folder; name a file in it, such as {example}")
    if target.exists() and not overwrite:
        raise FileExistsError(
            f"{str(path)!r} exists already; give another path, or pass overwrite=True"
        )
    return target


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and wait until its content is on the disk."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sweep_once(folder: Path) -> None:
    """Remove abandoned files from a folder, the first time that this process writes to it."""
    key = os.path.abspath(folder)
    if key not in _swept:
        _swept.add(key)
        sweep(folder, None, PART)


def _is_inside_staging(filename: object) -> bool:
    """Return whether a path is a staging directory or a file in one, unknown to the caller."""
    if not isinstance(filename, str):
        return False
    path = Path(filename)
    return is_staging(path.name) or is_staging(path.parent.name)


def _sync_file(path: Path) -> None:
    """Wait until the content is on the disk, so that a power cut never leaves an empty file."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
