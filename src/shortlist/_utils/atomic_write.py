"""Files that are whole or absent: written aside, then moved into place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shortlist._utils.staging import PART, is_staging, move, staging, sweep, sync_directory

_swept: set[str] = set()
"""Directories that this process has searched for leftovers: once is enough."""


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to, which becomes `path` in one step when all is written.

    Missing folders are made. If anything fails, `path` stays as it was, and nothing is left
    beside it. Several threads or processes may write the same path: the last one's file stays.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with atomic_write(f"{folder}/new/numbers.txt") as aside:
    ...         _ = aside.write_text("1 2 3")
    ...     Path(f"{folder}/new/numbers.txt").read_text()
    '1 2 3'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep_once(target.parent)
    try:
        with staging(target.parent, target.name, PART) as folder:
            # The name stays: some writers choose the format by its ending.
            aside = folder / target.name
            yield aside
            _flush(aside)
            move(aside, target)
            sync_directory(target.parent)
    except OSError as error:
        if not _is_inside_staging(error.filename):
            raise
        raise type(error)(error.errno, error.strerror, str(target)) from error


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and have the disk hold its content."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sweep_once(folder: Path) -> None:
    key = os.path.abspath(folder)
    if key not in _swept:
        _swept.add(key)
        sweep(folder, None, PART)


def _is_inside_staging(filename: object) -> bool:
    """Whether a path is a staging directory, or a file in one: the caller knows neither."""
    if not isinstance(filename, str):
        return False
    path = Path(filename)
    return is_staging(path.name) or is_staging(path.parent.name)


def _flush(path: Path) -> None:
    """Have the disk hold the file's content before its name, whatever happens to the power."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
