"""Read and write the folder of a model: `model.json` and the files that it lists.

`model.json` lists every other file with its length and checksum. It is written last and moved into
place in one step, so that a process that is killed leaves the whole old model or the whole new one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from shortlist._version import __version__
from shortlist.io.model_folder import FORMAT, MODEL, is_own_file, write_folder

FORMAT_VERSION = 1
MAX_READS = 100
"""Number of times that a model is read if it is overwritten each time."""
MAX_DOCUMENT_BYTES = 1 << 28
"""Largest size of `model.json`."""


class ModelFileError(ValueError):
    """A model on disk is damaged, was tampered with, or was not written by this library.

    Parameters
    ----------
    message : str
        What is wrong. Characters that are not printable are escaped, because the message may quote
        the file.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def printable(text: str) -> str:
    r"""Return a text in which all characters that are not printable are escaped.

    Parameters
    ----------
    text : str
        Text that may come from a file.

    Returns
    -------
    str
        The text, safe to print.

    Examples
    --------
    >>> print(printable("red: \x1b[31m"))
    red: \x1b[31m
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def write_model(
    path: str | os.PathLike[str],
    document: Mapping[str, object],
    files: Mapping[str, bytes],
    *,
    overwrite: bool = False,
) -> Path:
    """Write the folder of a model: `model.json` and the files that it lists.

    A reader finds the whole old model or the whole new one, even while the folder is written, if
    the writer is killed, and if several processes write to it at the same time.

    Parameters
    ----------
    path : path-like
        The folder.
    document : mapping of str to object
        The content of `model.json`, without versions, files and checksum.
    files : mapping of str to bytes
        The other files, by name.
    overwrite : bool, default=False
        Whether to replace a model that is there.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    FileExistsError
        If the folder exists and `overwrite` is false, or if it contains something else.
    """
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}

    def describe(names: Mapping[str, str]) -> bytes:
        listed = {
            name: {"file": names[name], "bytes": len(data), "sha256": sums[name]}
            for name, data in files.items()
        }
        whole = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "library_version": __version__,
            **document,
            "files": listed,
        }
        whole["checksum"] = _checksum(whole)
        return _text(whole).encode()

    folder = Path(path)
    write_folder(folder, files, describe, overwrite=overwrite)
    return folder


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, object], dict[str, bytes]]:
    """Return the document and the files of a model, after comparing their checksums.

    Parameters
    ----------
    path : path-like
        The folder.

    Returns
    -------
    document : dict of str to object
        The content of `model.json`.
    files : dict of str to bytes
        The other files, by name.

    Raises
    ------
    FileNotFoundError
        If there is no folder.
    ModelFileError
        If the folder does not contain a whole model.
    """
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"there is no model at {os.fspath(path)!r}")
    if not (folder / MODEL).is_file():
        raise ModelFileError(
            f"{os.fspath(path)!r} is not a model: a model is a folder with {MODEL}"
        )
    document = _read_document(folder)
    for _ in range(MAX_READS):
        try:
            return document, _read_files(folder, document)
        except (ModelFileError, OSError):
            # A saver removes the old files after it has replaced the document that lists them.
            newer = _read_document(folder)
            if newer == document:
                raise
            document = newer
    raise ModelFileError(f"it was overwritten {MAX_READS} times while it was read; load it later")


def _read_files(folder: Path, document: Mapping[str, object]) -> dict[str, bytes]:
    """Return the files that a document lists. Each must be one that `save` writes."""
    listed = document["files"]
    if not isinstance(listed, dict):
        raise ModelFileError(f"{MODEL} lists no files")
    for name, entry in listed.items():
        file = entry.get("file") if isinstance(entry, dict) else None
        if not is_own_file(name, file):
            shown = f"{name[:60]!r} as {str(file)[:80]!r}"
            raise ModelFileError(f"{MODEL} lists {shown}, which is not a file that save writes")
    return {name: _read_file(folder, entry) for name, entry in listed.items()}


def _read_document(folder: Path) -> dict[str, object]:
    """Return the content of `model.json`, after comparing its format and checksum."""
    file = folder / MODEL
    size = file.stat().st_size
    if size > MAX_DOCUMENT_BYTES:
        raise ModelFileError(
            f"{MODEL} is {size:,} bytes long; at most {MAX_DOCUMENT_BYTES:,} are read"
        )
    try:
        document = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ModelFileError(f"{MODEL} is damaged: {reason}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFileError(f"{MODEL} is not that of a shortlist model")
    version = document.get("format_version")
    if type(version) is not int or version < 1:
        raise ModelFileError(f"{MODEL} has no format version: {str(version)[:40]!r}")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"it was written by shortlist {str(document.get('library_version'))[:40]} in format "
            f"{version}, but shortlist {__version__} reads up to format {FORMAT_VERSION}; upgrade "
            "shortlist"
        )
    try:
        is_same = document.pop("checksum", None) == _checksum(document)
    except RecursionError as error:
        raise ModelFileError(f"{MODEL} is nested too deep") from error
    if not is_same:
        raise ModelFileError(f"{MODEL} has been changed since it was saved: its checksum differs")
    return document


def _read_file(folder: Path, entry: Mapping[str, object]) -> bytes:
    """Return the bytes of a file, whose length and checksum must be those in the document."""
    name = str(entry["file"])
    file = folder / name
    if not file.is_file() or file.is_symlink():
        raise ModelFileError(f"{name} is missing")
    size = file.stat().st_size
    if size != entry.get("bytes"):
        raise ModelFileError(f"{name} is {size:,} bytes long, not {entry.get('bytes')!r:.40}")
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
        raise ModelFileError(f"{name} is damaged: its checksum differs")
    return data


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the content of a safetensors file with the given tensors."""
    data: bytes = save_tensors(dict(tensors))
    return data


def unpack(data: bytes) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    try:
        tensors: dict[str, Tensor] = load_tensors(data)
    except (SafetensorError, ValueError, RuntimeError, KeyError, OverflowError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ModelFileError(f"the weights are not a safetensors file: {reason}") from error
    return tensors


def _checksum(document: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _text(document: Mapping[str, object]) -> str:
    """Return a document as indented JSON, in Unicode if it can be encoded."""
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(document, indent=1, allow_nan=False)
    return text


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")
