"""Read and write models: a folder with `model.json` and the files that it lists.

`model.json` names every other file with its length and checksum. It is written last and moved
into place in one step, so that a killed process leaves the old model or the new one.
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
READS = 100
"""How often to read a model that is overwritten while it is read."""
LONGEST_DOCUMENT = 1 << 28
"""A `model.json` of more bytes is refused."""


class ModelFileError(ValueError):
    """A model on disk is damaged, was tampered with, or is not a model of this library.

    Parameters
    ----------
    message : str
        What is wrong. Characters that a terminal would not print are escaped, since the message
        may quote the file.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def printable(text: str) -> str:
    r"""Return a text with all characters escaped that are not printable.

    Parameters
    ----------
    text : str
        A text that may come from a file.

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
    """Write a model's folder: `model.json` and the files that it lists.

    A reader finds the whole old model or the whole new one, also while the folder is written,
    after the writer is killed, and when several processes write at once.

    Parameters
    ----------
    path : path-like
        The folder.
    document : mapping
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
    """Return the document of a model's folder and the bytes of its files, with checked sums.

    Parameters
    ----------
    path : path-like
        The folder.

    Returns
    -------
    document : dict
        The content of `model.json`.
    files : dict of str to bytes
        The other files, by name.

    Raises
    ------
    FileNotFoundError
        If nothing is there.
    ModelFileError
        If it is not a whole model.
    """
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"there is no model at {os.fspath(path)!r}")
    if not (folder / MODEL).is_file():
        raise ModelFileError(
            f"{os.fspath(path)!r} is not a model: a model is a folder with {MODEL}"
        )
    document = _read_document(folder)
    for _ in range(READS):
        try:
            return document, _read_files(folder, document)
        except (ModelFileError, OSError):
            # A saver removes the old files after it has replaced the document that lists them.
            newer = _read_document(folder)
            if newer == document:
                raise
            document = newer
    raise ModelFileError(f"it was overwritten {READS} times while it was read; load it again later")


def _read_files(folder: Path, document: Mapping[str, object]) -> dict[str, bytes]:
    """Return the files that a document lists: each is one that `save` writes, and is read once."""
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
    """Return `model.json`, of a known format and with a right checksum."""
    file = folder / MODEL
    if file.stat().st_size > LONGEST_DOCUMENT:
        raise ModelFileError(f"{MODEL} is {file.stat().st_size:,} bytes long, which is too long")
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
            f"{version}; this is {__version__}, which reads up to format {FORMAT_VERSION}: upgrade"
        )
    try:
        fits = document.pop("checksum", None) == _checksum(document)
    except RecursionError as error:
        raise ModelFileError(f"{MODEL} is nested too deep") from error
    if not fits:
        raise ModelFileError(f"{MODEL} has been changed since it was saved: its checksum differs")
    return document


def _read_file(folder: Path, entry: Mapping[str, object]) -> bytes:
    """Return the bytes of a file, of the length and checksum that the document lists."""
    own = str(entry["file"])
    file = folder / own
    if not file.is_file() or file.is_symlink():
        raise ModelFileError(f"{own} is missing")
    size = file.stat().st_size
    if size != entry.get("bytes"):
        raise ModelFileError(f"{own} is {size:,} bytes long, not {entry.get('bytes')!r:.40}")
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
        raise ModelFileError(f"{own} is damaged: its checksum differs")
    return data


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the bytes of a safetensors file of some tensors."""
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
    """Return a document as indented JSON, in Unicode where that can be encoded."""
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(document, indent=1, allow_nan=False)
    return text


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")
