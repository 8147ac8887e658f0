"""Files that are whole or absent: written aside, then moved into place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to, which becomes `path` in one step when all is written.

    Missing folders are made. If anything fails, `path` stays as it was, and nothing is left
    beside it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with written_whole(f"{folder}/new/numbers.txt") as aside:
    ...         _ = aside.write_text("1 2 3")
    ...     Path(f"{folder}/new/numbers.txt").read_text()
    '1 2 3'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # The ending stays: some writers choose the format by it.
    aside = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        yield aside
        _flush(aside)
        os.replace(aside, target)
    except OSError as error:
        if error.filename != str(aside):
            raise
        raise type(error)(error.errno, error.strerror, str(target)) from error
    finally:
        aside.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Have the disk hold the file's content before its name, whatever happens to the power."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
