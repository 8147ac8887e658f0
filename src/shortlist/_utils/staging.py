"""Staging directories: new files are written in one of them before they take their place.

A staging directory is locked as long as its owner lives, where the file system has locks. So the
leftovers of a killed process can be told from the work of a live one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no flock.
    fcntl = None  # type: ignore[assignment]

PART, SAVING = ".part", ".saving"
"""Endings of the staging directories of single files and of models."""
STALE_AFTER = 86_400.0
"""Seconds after which a staging directory is abandoned if no lock can tell."""
LOCK_WAIT = 30.0
"""Seconds to wait for the lock of a directory; whoever waits must be safe without it."""
HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:6]
"""Locks may not reach other machines that share the disk, so each marks its own directories."""
_TOKEN = r"\.(?P<host>[0-9a-f]{6})-[0-9a-f]{12}"
_STAGING = re.compile(rf"\..*{_TOKEN}({re.escape(PART)}|{re.escape(SAVING)})", re.DOTALL)
_without_flock = threading.Lock()


def _after_fork() -> None:
    # A thread that the child does not have may have held the lock.
    global _without_flock
    _without_flock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def is_staging(name: str) -> bool:
    """Whether a file name is that of a staging directory.

    >>> is_staging(".model.0123ab-0123456789ab.saving"), is_staging(".env")
    (True, False)
    """
    return _STAGING.fullmatch(name) is not None


def remove_tree(path: Path) -> None:
    """Remove a directory and its content, as far as that is possible."""
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def staging(
    parent: Path, name: str, ending: str, remove: Callable[[Path], None] = remove_tree
) -> Iterator[Path]:
    """Make a directory in `parent` for files that will become `name`.

    Parameters
    ----------
    parent : Path
        Where it is made: on the same disk as the target.
    name : str
        What the files will become; the directory's name begins with its last characters.
    ending : str
        `PART` or `SAVING`.
    remove : callable
        Removes the directory at the end, whether or not the body fails.

    Yields
    ------
    Path
        A new and empty directory, which nobody else uses.
    """
    path, lock = _make(parent, name, ending)
    try:
        yield path
    finally:
        try:
            remove(path)
        finally:
            _unlock(lock)


def sweep(
    parent: Path, name: str | None, ending: str, remove: Callable[[Path], None] = remove_tree
) -> None:
    """Remove the abandoned staging directories of `name` (None: of every name) in `parent`."""
    begin = ".*" if name is None else re.escape(_begin(name))
    pattern = re.compile(rf"\.{begin}{_TOKEN}{re.escape(ending)}", re.DOTALL)
    try:
        entries = [entry.name for entry in os.scandir(parent)]
    except OSError:
        return  # What cannot be listed cannot be swept, and need not be.
    for entry in entries:
        match = pattern.fullmatch(entry)
        if match is not None:
            _remove_if_abandoned(parent / entry, match["host"], remove)


def _remove_if_abandoned(path: Path, host: str, remove: Callable[[Path], None]) -> None:
    try:
        stale = time.time() - path.lstat().st_mtime > STALE_AFTER
        if not stale and host != HOST:
            return
        lock = _lock(path)
    except OSError:  # Somebody uses it, or has just removed it.
        return
    try:
        # With the lock it may have been moved into place since it was listed.
        if (stale or lock is not None) and _is_at(lock, path):
            remove(path)
    finally:
        _unlock(lock)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, against threads and processes.

    It is given up when its owner ends, however that happens. After `LOCK_WAIT` seconds, and
    between processes where the file system has no locks, the body runs without it.
    """
    end = time.monotonic() + LOCK_WAIT
    while True:
        try:
            lock = _lock(directory)
            break
        except BlockingIOError:
            if time.monotonic() > end:
                lock = None
                break
            time.sleep(0.001)
    instead = _without_flock
    held = lock is None and instead.acquire(timeout=max(0.0, end - time.monotonic()))
    try:
        yield
    finally:
        if held:
            instead.release()
        _unlock(lock)


def sync_directory(path: Path) -> None:
    """Have the disk hold the names in a directory, where a system can be asked to."""
    try:
        opened = os.open(path, os.O_RDONLY)
    except OSError:  # Windows opens no directories.
        return
    try:
        os.fsync(opened)
    except OSError:  # Some network disks refuse.
        pass
    finally:
        os.close(opened)


def move(source: Path, target: Path) -> None:
    """Put a file in the place of another in one step."""
    for wait in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if os.name == "nt" else ():
        try:
            os.replace(source, target)
            return
        except PermissionError:  # Windows does not replace a file while somebody reads it.
            time.sleep(wait)
    os.replace(source, target)


def _begin(name: str) -> str:
    return name[-40:]  # A long name and the token might be too long together.


def _make(parent: Path, name: str, ending: str) -> tuple[Path, int | None]:
    while True:
        path = parent / f".{_begin(name)}.{HOST}-{secrets.token_hex(6)}{ending}"
        path.mkdir()
        try:
            lock = _lock(path)
        except (BlockingIOError, FileNotFoundError):
            continue  # It was swept before it could be locked.
        if _is_at(lock, path):
            return path, lock
        _unlock(lock)


def _lock(directory: Path) -> int | None:
    """Lock a directory; None where that is not possible. Raises BlockingIOError if another has."""
    if fcntl is None:
        return None
    try:
        opened = os.open(directory, os.O_RDONLY)
    except PermissionError:
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        raise
    except OSError:
        os.close(opened)
        return None
    return opened


def _unlock(lock: int | None) -> None:
    if lock is not None:
        # Closing would not do: a forked child has the open file too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _is_at(lock: int | None, path: Path) -> bool:
    try:
        return lock is None or os.path.samestat(os.fstat(lock), path.lstat())
    except FileNotFoundError:
        return False
