"""How the files of a model get into its folder, whoever else writes to it or reads from it.

A new folder is written aside and moved into place. In a folder that is there, every save gives
its files names that no other save uses, and then puts its manifest, `model.json`, in the place of
the old one. The staging directory is the journal of this: it holds the new manifest until it is
in place, and a copy of the old one. Whoever finds it abandoned can tell by it which files to
remove.
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
REPLACED = "replaced.json"
Describe = Callable[[Mapping[str, str]], bytes]
"""Makes the manifest of a model whose files have these names."""


def write_folder(
    folder: Path, files: Mapping[str, bytes], describe: Describe, *, overwrite: bool
) -> None:
    """Write a model's files and its manifest to a folder, in place of the model that is there.

    Parameters
    ----------
    folder : Path
    files : mapping of str to bytes
        The content of each file.
    describe : callable
        Makes the manifest, from a mapping of the names in `files` to those in the folder.
    overwrite : bool
        Whether to replace a model that is there.

    Raises
    ------
    FileExistsError
        If a model is there and `overwrite` is false, or if something else is there.
    """
    if folder.exists() and not overwrite:
        raise _in_the_way(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder.parent, folder.name, SAVING)
    if not folder.exists() and _create(folder, files, describe):
        return
    if not overwrite:  # Another saver was faster.
        raise _in_the_way(folder)
    _replace(folder, files, describe)


def _in_the_way(folder: Path) -> FileExistsError:
    return FileExistsError(
        f"there is something at {os.fspath(folder)!r} already; name another folder, or say "
        "overwrite=True"
    )


def _create(folder: Path, files: Mapping[str, bytes], describe: Describe) -> bool:
    """Write a new folder; false if there is one by the time that it is written."""
    with staging(folder.parent, folder.name, SAVING) as aside:
        for name, data in files.items():
            write_synced(aside / name, data)
        write_synced(aside / MODEL, describe({name: name for name in files}))
        sync_directory(aside)
        try:
            os.rename(aside, folder)
        except OSError:
            if folder.exists():
                return False
            raise
    sync_directory(folder.parent)
    return True


def _replace(folder: Path, files: Mapping[str, bytes], describe: Describe) -> None:
    settle = partial(_settle, folder)
    with locked(folder):
        sweep(folder, MODEL, SAVING, settle)
        _check_replaceable(folder)

    def settle_locked(journal: Path) -> None:
        with locked(folder):
            settle(journal)

    with staging(folder, MODEL, SAVING, settle_locked) as aside:
        # A name that an earlier save used might be removed by whoever replaces that one.
        token = secrets.token_hex(6)
        names = {name: f"-{token}".join(os.path.splitext(name)) for name in files}
        for name, data in files.items():
            write_synced(aside / names[name], data)
        write_synced(aside / MODEL, describe(names))
        with locked(folder):
            _switch(folder, aside, list(names.values()))


def _switch(folder: Path, aside: Path, names: list[str]) -> None:
    """Put the new manifest in the place of the old one, its files first."""
    for name in names:
        os.rename(aside / name, folder / name)
    sync_directory(folder)
    # Copied as late as possible: where there are no locks, others may replace it until now.
    if (folder / MODEL).exists():
        (aside / REPLACED).write_bytes((folder / MODEL).read_bytes())
    move(aside / MODEL, folder / MODEL)
    sync_directory(folder)  # Before the old files are removed.


def _settle(folder: Path, journal: Path) -> None:
    """Remove the files of a save that did not succeed, or of the model that it replaced."""
    current = _listed(folder / MODEL)
    if current is None:
        return  # Nobody knows which files are in use.
    others = (_listed(journal / name) or set() for name in (MODEL, REPLACED))
    try:
        for name in set().union(*others) - current:
            (folder / name).unlink(missing_ok=True)
    except OSError:
        return  # Windows removes no file that is read; the journal stays for the next save.
    remove_tree(journal)


def _listed(manifest: Path) -> set[str] | None:
    """Names of the files that a manifest lists as the model's own; None if it is none of ours."""
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
        if isinstance(entry, dict) and _is_own(name, entry.get("file"))
    }


def _is_own(name: str, file: object) -> bool:
    """Whether a save gives such a name to the file `name`: a manifest may list anything."""
    stem, ending = map(re.escape, os.path.splitext(name))
    pattern = rf"{stem}(-[0-9a-f]{{12}})?{ending}"
    plain = name not in ("", ".", "..", MODEL) and Path(name).name == name
    return plain and isinstance(file, str) and re.fullmatch(pattern, file) is not None


def _check_replaceable(folder: Path) -> None:
    """Raise unless the folder holds a model of ours, even a damaged one, or nothing."""
    if (folder / MODEL).is_file():
        try:
            document = json.loads((folder / MODEL).read_bytes())
        except (ValueError, RecursionError):
            return
        if isinstance(document, dict) and document.get("format") == FORMAT:
            return
    elif folder.is_dir() and all(is_staging(name) for name in os.listdir(folder)):
        return
    raise FileExistsError(
        f"{os.fspath(folder)!r} is no folder of a model, and is left alone; name another"
    )
