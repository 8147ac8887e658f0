"""Staging directories: temporary directories in which new files are written.

A staging directory is locked while its owner runs, if the file system supports locks. The lock
distinguishes the directories of running processes from those of killed ones.
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
"""Seconds after which a staging directory counts as abandoned if its lock cannot be tested."""
LOCK_WAIT = 30.0
"""Seconds to wait for the lock of a directory. Callers must be correct without it."""
HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:6]
"""Part of the names: locks may not be visible on other machines that share the disk."""
_TOKEN = r"\.(?P<host>[0-9a-f]{6})-[0-9a-f]{12}"
_STAGING = re.compile(rf"\..*{_TOKEN}({re.escape(PART)}|{re.escape(SAVING)})", re.DOTALL)
_thread_lock = threading.Lock()


def _after_fork() -> None:
    """Replace the lock, which a thread of the parent process may have held."""
    global _thread_lock
    _thread_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def is_staging(name: str) -> bool:
    """Return whether a file name is that of a staging directory.

    Examples
    --------
    >>> is_staging(".model.0123ab-0123456789ab.saving"), is_staging(".env")
    (True, False)
    """
    return _STAGING.fullmatch(name) is not None


def remove_tree(path: Path) -> None:
    """Remove a directory and its content, and ignore errors."""
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def staging(
    parent: Path, name: str, ending: str, remove: Callable[[Path], None] = remove_tree
) -> Iterator[Path]:
    """Create a directory in `parent` for files that will replace `name`.

    Parameters
    ----------
    parent : Path
        Parent directory, on the same disk as the target.
    name : str
        Name of the target. The name of the directory begins with its last characters.
    ending : str
        `PART` or `SAVING`.
    remove : callable
        Removes the directory at the end, also if the block raises.

    Yields
    ------
    Path
        A new and empty directory, locked by this process.
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
        return
    for entry in entries:
        match = pattern.fullmatch(entry)
        if match is not None:
            _remove_if_abandoned(parent / entry, match["host"], remove)


def _remove_if_abandoned(path: Path, host: str, remove: Callable[[Path], None]) -> None:
    """Remove a staging directory if its owner has ended."""
    try:
        stale = time.time() - path.lstat().st_mtime > STALE_AFTER
        if not stale and host != HOST:
            return
        lock = _lock(path)
    except OSError:  # It is in use, or has just been removed.
        return
    try:
        # It may have been renamed since it was listed.
        if (stale or lock is not None) and _is_at(lock, path):
            remove(path)
    finally:
        _unlock(lock)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, exclusive among threads and processes.

    The lock is released when its owner ends, even if it is killed. The block runs without the
    lock after `LOCK_WAIT` seconds. On file systems without locks only threads are excluded.
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
    thread_lock = _thread_lock
    held = lock is None and thread_lock.acquire(timeout=max(0.0, end - time.monotonic()))
    try:
        yield
    finally:
        if held:
            thread_lock.release()
        _unlock(lock)


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk, if the system supports it."""
    try:
        opened = os.open(path, os.O_RDONLY)
    except OSError:  # Windows cannot open directories.
        return
    try:
        os.fsync(opened)
    except OSError:  # Some network disks do not support it.
        pass
    finally:
        os.close(opened)


def move(source: Path, target: Path) -> None:
    """Rename a file in one step, replacing the target."""
    for wait in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if os.name == "nt" else ():
        try:
            os.replace(source, target)
            return
        except PermissionError:  # Windows does not replace a file while it is read.
            time.sleep(wait)
    os.replace(source, target)


def _begin(name: str) -> str:
    """Return the beginning of a directory's name, short enough for the token to fit."""
    return name[-40:]


def _make(parent: Path, name: str, ending: str) -> tuple[Path, int | None]:
    """Create and lock a staging directory."""
    while True:
        path = parent / f".{_begin(name)}.{HOST}-{secrets.token_hex(6)}{ending}"
        path.mkdir()
        try:
            lock = _lock(path)
        except (BlockingIOError, FileNotFoundError):
            continue  # Another process removed it before it was locked.
        if _is_at(lock, path):
            return path, lock
        _unlock(lock)


def _lock(directory: Path) -> int | None:
    """Lock a directory; return None if it cannot be locked, raise BlockingIOError if it is."""
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
        # Closing is not enough: a forked child may have the file open too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _is_at(lock: int | None, path: Path) -> bool:
    """Return whether the locked directory is still at the path."""
    try:
        return lock is None or os.path.samestat(os.fstat(lock), path.lstat())
    except FileNotFoundError:
        return False
