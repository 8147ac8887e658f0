"""Write the files of a model into its folder while other processes write to it or read from it.

A new folder is written in a staging directory and moved into place. In a folder that exists, every
save gives its files names that no other save uses, and then replaces the manifest, `model.json`.
The staging directory is a journal: it contains the new manifest until that is in place, and a copy
of the old one. If its process is killed, a later save reads from it which files to remove.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from shortlist._utils.atomic_write import write_synced
from shortlist._utils.staging import (
    SAVING,
    is_staging,
    locked,
    move,
    remove_tree,
    staging,
    sweep,
    sync_directory,
)

FORMAT = "shortlist model"
MODEL = "model.json"
WEIGHTS, ESTIMATOR = "weights.safetensors", "estimator.skops"
OWN_FILES = {
    name: re.compile(r"(-[0-9a-f]{12})?".join(map(re.escape, os.path.splitext(name))))
    for name in (WEIGHTS, ESTIMATOR)
}
"""The only files that a model has besides its manifest, and how a save may name them."""
REPLACED = "replaced.json"
Describe = Callable[[Mapping[str, str]], bytes]
"""A function that returns the manifest of a model, given the names of its files in the folder."""


def write_folder(
    folder: Path, files: Mapping[str, bytes], describe: Describe, *, overwrite: bool
) -> None:
    """Write the files of a model and its manifest to a folder.

    Parameters
    ----------
    folder : Path
        Folder of the model.
    files : mapping of str to bytes
        Content of each file.
    describe : callable
        Returns the manifest, given a mapping of the names in `files` to those in the folder.
    overwrite : bool
        Whether to replace a model that is there.

    Raises
    ------
    FileExistsError
        If the folder exists and `overwrite` is false, or if it contains something else.
    """
    if folder.is_symlink() and not folder.exists():
        raise FileExistsError(
            f"{os.fspath(folder)!r} is a link to a folder that does not exist; name another"
        )
    if folder.exists() and not overwrite:
        raise _exists(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder.parent, folder.name, SAVING)
    if not folder.exists() and _create(folder, files, describe):
        return
    if not overwrite:  # Another process created the folder first.
        raise _exists(folder)
    _replace(folder, files, describe)


def _exists(folder: Path) -> FileExistsError:
    return FileExistsError(
        f"{os.fspath(folder)!r} exists already; name another folder, or pass overwrite=True"
    )


def _create(folder: Path, files: Mapping[str, bytes], describe: Describe) -> bool:
    """Write a new folder; return False if another process creates it first."""
    with staging(folder.parent, folder.name, SAVING) as staged:
        for name, data in files.items():
            write_synced(staged / name, data)
        write_synced(staged / MODEL, describe({name: name for name in files}))
        sync_directory(staged)
        try:
            os.rename(staged, folder)
        except OSError:
            if folder.exists():
                return False
            raise
    sync_directory(folder.parent)
    return True


def _replace(folder: Path, files: Mapping[str, bytes], describe: Describe) -> None:
    """Write the model into a folder that exists."""
    settle = partial(_settle, folder)
    with locked(folder):
        sweep(folder, MODEL, SAVING, settle)
        check_replaceable(folder)

    def settle_locked(journal: Path) -> None:
        with locked(folder):
            settle(journal)

    with staging(folder, MODEL, SAVING, settle_locked) as staged:
        # Unique names, because a process that replaced an earlier model may still remove its files.
        token = secrets.token_hex(6)
        names = {name: f"-{token}".join(os.path.splitext(name)) for name in files}
        for name, data in files.items():
            write_synced(staged / names[name], data)
        write_synced(staged / MODEL, describe(names))
        with locked(folder):
            _switch(folder, staged, list(names.values()))


def _switch(folder: Path, staged: Path, names: list[str]) -> None:
    """Move the new files into the folder, and then replace the manifest."""
    for name in names:
        os.rename(staged / name, folder / name)
    sync_directory(folder)
    # Copied as late as possible, because without locks other processes may replace it until now.
    if (folder / MODEL).exists():
        (staged / REPLACED).write_bytes((folder / MODEL).read_bytes())
    move(staged / MODEL, folder / MODEL)
    sync_directory(folder)  # Before the old files are removed.


def _settle(folder: Path, journal: Path) -> None:
    """Remove the files of a save that did not finish, or of the model that it replaced."""
    current = _files_in(folder / MODEL)
    if current is None:
        return  # It is unknown which files the model uses.
    others = (_files_in(journal / name) or set() for name in (MODEL, REPLACED))
    try:
        for name in set().union(*others) - current:
            if not (folder / name).is_dir():  # A directory does not belong to the model.
                (folder / name).unlink(missing_ok=True)
    except OSError:
        return  # Windows does not remove a file that is open. The next save removes it.
    remove_tree(journal)


def _files_in(manifest: Path) -> set[str] | None:
    """Return the names of the files in a manifest; None if it is not the manifest of a model."""
    try:
        document = json.loads(manifest.read_bytes())
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return None
    files = document.get("files")
    entries = files.items() if isinstance(files, dict) else ()
    return {
        entry["file"]
        for name, entry in entries
        if isinstance(entry, dict) and is_own_file(name, entry.get("file"))
    }


def is_own_file(name: str, file: object) -> bool:
    """Return whether an entry of a manifest is one that `save` writes.

    Parameters
    ----------
    name : str
        Key of the entry.
    file : object
        Name of the file in the folder. A hostile manifest may contain anything here.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_own_file("weights.safetensors", "weights-0123456789ab.safetensors")
    True
    >>> is_own_file(".env", ".env")
    False
    """
    pattern = OWN_FILES.get(name)
    return pattern is not None and isinstance(file, str) and pattern.fullmatch(file) is not None


def check_replaceable(folder: Path) -> None:
    """Raise unless the folder is empty or contains a model, which may be damaged."""
    if (folder / MODEL).is_file():
        try:
            document = json.loads((folder / MODEL).read_bytes())
        except (ValueError, RecursionError):
            # A damaged manifest belongs to a model if files of a model are beside it.
            names = os.listdir(folder)
            if any(pattern.fullmatch(name) for pattern in OWN_FILES.values() for name in names):
                return
        else:
            if isinstance(document, dict) and document.get("format") == FORMAT:
                return
    elif folder.is_dir() and all(is_staging(name) for name in os.listdir(folder)):
        return
    raise FileExistsError(
        f"{os.fspath(folder)!r} is not the folder of a model, and is left unchanged; name another"
    )
