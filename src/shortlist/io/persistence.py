"""Models on disk: a folder with `model.json` and files that it lists. Nothing in it is executed.

`model.json` is written last and moved into place in one step, and names every other file with its
length and checksum: whoever is killed while saving leaves the old model or the new one. How files
get into the folder is the business of `_model_folder`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from shortlist._version import __version__
from shortlist.io.model_folder import FORMAT, MODEL, write_folder

FORMAT_VERSION = 1
WEIGHTS = "weights.safetensors"
READS = 100
"""How often a model is read that is overwritten each time before all its files are read."""
LONGEST_NAME = 60
"""Of a file beside `model.json`."""
LONGEST_DOCUMENT = 1 << 28
"""A longer `model.json` is none of ours."""


OF_NUMPY = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16),
    *(torch.uint32, torch.uint64, torch.float16, torch.float32, torch.float64),
}
"""Types of tensors that are arrays of numpy too."""


class ModelFileError(ValueError):
    """What is on disk is not a whole model of ours."""


# Values as JSON and tensors


@dataclass(frozen=True)
class Kind:
    """How objects of one class are written: as a dictionary of values, and back."""

    cls: type
    take: Callable[..., Mapping[str, object]]
    make: Callable[[Mapping[str, object]], object]


Kinds = Mapping[str, Kind]


class Encoder:
    """Turns values into what JSON can hold, and a list of tensors."""

    def __init__(self, kinds: Kinds) -> None:
        self.names = {kind.cls: (name, kind) for name, kind in kinds.items()}
        self.tensors: dict[str, Tensor] = {}

    def __call__(self, value: object, path: str) -> object:
        """The value; `path` tells where it stands, for messages and as a tensor's name."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int | float):
            return self._number(value)
        if isinstance(value, np.generic):
            return (
                self._array(np.asarray(value), path)
                if value.dtype.kind in "mM"
                else self(value.item(), path)
            )
        if isinstance(value, Tensor):
            self.tensors[path] = value.detach().to("cpu", copy=True).contiguous()
            return {"$": "tensor", "name": path}
        if isinstance(value, np.ndarray):
            return self._array(value, path)
        if isinstance(value, list | tuple):
            listed = [self(one, f"{path}.{i}") for i, one in enumerate(value)]
            return listed if isinstance(value, list) else {"$": "tuple", "values": listed}
        if isinstance(value, Mapping) and all(type(key) is str for key in value):
            return {"$": "dict", "of": {k: self(v, f"{path}.{k}") for k, v in value.items()}}
        if isinstance(value, Mapping):
            return {
                "$": "mapping",
                "items": [
                    [self(k, f"{path}.key{i}"), self(v, f"{path}.{i}")]
                    for i, (k, v) in enumerate(value.items())
                ],
            }
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if type(value) in self.names:
            name, kind = self.names[type(value)]
            fields = kind.take(value)
            return {"$": name, **{k: self(v, f"{path}.{k}") for k, v in fields.items()}}
        raise ValueError(
            f"{path} cannot be saved: {value!r} ({type(value).__module__}."
            f"{type(value).__qualname__}) is code or data of a kind that a model file does not hold"
        )

    def _number(self, value: float) -> object:
        if isinstance(value, float) and not np.isfinite(value):
            return {"$": "float", "value": repr(value)}
        return value

    def _array(self, array: np.ndarray, path: str) -> object:
        kind = array.dtype.kind
        if kind in "fiub":
            native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
            self.tensors[path] = torch.from_numpy(native.copy()).reshape(array.shape)
            return {"$": "array", "name": path}
        if kind in "mM":
            self.tensors[path] = torch.from_numpy(array.astype(array.dtype).view(np.int64).copy())
            return {"$": "times", "name": path, "dtype": array.dtype.str}
        if kind in "UO" and array.ndim == 1:
            values = [self(v, f"{path}.{i}") for i, v in enumerate(array.tolist())]
            return {"$": "labels", "values": values, "text": kind == "U"}
        raise ValueError(f"{path} cannot be saved: an array of {array.dtype}")


class Decoder:
    """The way back. Whatever is not as an `Encoder` writes it is an error."""

    def __init__(self, kinds: Kinds, tensors: Mapping[str, Tensor], device: str = "cpu") -> None:
        self.kinds, self.tensors, self.device = kinds, tensors, device
        self.used: set[str] = set()
        """Tensors that are there already: an `Encoder` writes none for two values."""

    def __call__(self, value: object) -> object:
        if value is None or isinstance(value, bool | str | int | float):
            return value
        if isinstance(value, list):
            return [self(one) for one in value]
        if not isinstance(value, dict) or not isinstance(value.get("$"), str):
            raise ModelFileError(f"a value is {str(value)[:60]!r}")
        name = value["$"]
        try:
            known = self._known().get(name)
            if known is not None:
                return known(value)
            if name not in self.kinds:
                raise ModelFileError(f"it holds a {name[:60]!r}, which this version does not know")
            return self.kinds[name].make({k: self(v) for k, v in value.items() if k != "$"})
        except (ModelFileError, RecursionError):
            raise
        except KeyError as error:
            raise ModelFileError(f"{name} lacks {str(error)[:60]}") from error
        except (
            *(TypeError, ValueError, AttributeError, RuntimeError, IndexError, OverflowError),
            AssertionError,
        ) as error:
            words = " ".join(str(error).split())[:200]
            raise ModelFileError(f"{name} cannot be as it says: {words}") from error

    def _known(self) -> dict[str, Callable[[dict[str, object]], object]]:
        return {
            "float": lambda v: _not_finite(v["value"]),
            "tuple": lambda v: tuple(self._list(v, "values")),
            "dict": self._dict,
            "mapping": lambda v: dict(self._pairs(v)),
            "tensor": lambda v: self._tensor(v).to(self.device),
            "array": lambda v: self._numbers(v).copy(),
            "times": self._times,
            "labels": self._labels,
        }

    def _tensor(self, value: Mapping[str, object]) -> Tensor:
        name = value.get("name")
        if not isinstance(name, str) or name not in self.tensors:
            raise ModelFileError(f"the weights lack {str(name)[:80]!r}")
        if name in self.used:
            raise ModelFileError(f"{name[:80]!r} of the weights stands for two values")
        self.used.add(name)
        return self.tensors[name]

    def _numbers(self, value: Mapping[str, object]) -> np.ndarray:
        tensor = self._tensor(value)
        if tensor.dtype not in OF_NUMPY:
            raise ModelFileError(f"{str(value['name'])[:80]!r} is an array of {tensor.dtype}")
        return tensor.numpy()

    def _list(self, value: Mapping[str, object], key: str) -> list[object]:
        listed = value.get(key)
        if not isinstance(listed, list):
            raise ModelFileError(f"{key} of a {value['$']} is {str(listed)[:60]!r}, not a list")
        return [self(one) for one in listed]

    def _dict(self, value: Mapping[str, object]) -> dict[str, object]:
        of = value.get("of")
        if not isinstance(of, dict):
            raise ModelFileError(f"a dict is {str(of)[:60]!r}")
        return {key: self(one) for key, one in of.items()}

    def _pairs(self, value: Mapping[str, object]) -> list[tuple[object, object]]:
        found: list[tuple[object, object]] = []
        for pair in self._list(value, "items"):
            if not isinstance(pair, list) or len(pair) != 2:
                raise ModelFileError("a mapping holds something else than pairs")
            if not isinstance(pair[0], str | int | float | bool | tuple | None):
                raise ModelFileError("a mapping has keys that are lists or mappings")
            found.append((pair[0], pair[1]))
        return found

    def _times(self, value: Mapping[str, object]) -> np.ndarray:
        dtype, array = np.dtype(str(value.get("dtype"))), self._numbers(value)
        if dtype.kind not in "mM" or array.dtype != np.int64:
            raise ModelFileError(f"times are of dtype {dtype}, from {array.dtype}")
        return array.copy().view(dtype)

    def _labels(self, value: Mapping[str, object]) -> np.ndarray:
        values = self._list(value, "values")
        if value.get("text") is True and all(isinstance(v, str) for v in values):
            return np.array(values, dtype=np.str_)
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array


def _not_finite(text: object) -> float:
    if text not in ("inf", "-inf", "nan"):
        raise ModelFileError(f"a float is {str(text)[:60]!r}")
    return float(str(text))


# Folders


def write_model(
    path: str | os.PathLike[str],
    document: Mapping[str, object],
    files: Mapping[str, bytes],
    *,
    overwrite: bool = False,
) -> Path:
    """Write a model's folder: `model.json` and the files that it lists, by their names.

    Whoever reads the folder meanwhile, and whenever the writer is killed, finds the whole old
    model or the whole new one; so does everybody when several write it at once.
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
    """The document of a model's folder and the bytes of its files, all checked."""
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"there is no model at {os.fspath(path)!r}")
    if not (folder / MODEL).is_file():
        raise ModelFileError(
            f"{os.fspath(path)!r} is no model: a model is a folder with {MODEL}, as save makes it"
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
    raise ModelFileError(
        f"it was overwritten {READS} times while it was read; load it when fewer save to it"
    )


def _read_files(folder: Path, document: Mapping[str, object]) -> dict[str, bytes]:
    listed = document["files"]
    if not isinstance(listed, dict):
        raise ModelFileError(f"{MODEL} lists no files")
    return {str(name): _read_file(folder, name, of) for name, of in listed.items()}


def _read_document(folder: Path) -> dict[str, object]:
    file = folder / MODEL
    if file.stat().st_size > LONGEST_DOCUMENT:
        raise ModelFileError(f"{MODEL} is {file.stat().st_size:,} bytes long; none of ours is")
    try:
        document = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        words = " ".join(str(error).split())[:120]
        raise ModelFileError(f"{MODEL} is damaged: {words}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFileError(f"{MODEL} is not that of a shortlist model")
    version = document.get("format_version")
    if not isinstance(version, int) or version < 1:
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


def _read_file(folder: Path, name: object, of: object) -> bytes:
    if not isinstance(of, dict) or not isinstance(of.get("file"), str):
        raise ModelFileError(f"{MODEL} lists {str(name)[:60]!r} without a file")
    own = str(of["file"])
    if Path(own).name != own or own in ("", ".", "..") or len(own) > LONGEST_NAME:
        raise ModelFileError(f"{MODEL} lists a file outside its folder: {own[:80]!r}")
    file = folder / own
    if not file.is_file() or file.is_symlink():
        raise ModelFileError(f"{own} is missing")
    size = file.stat().st_size
    if size != of.get("bytes"):
        raise ModelFileError(f"{own} is {size:,} bytes long, not {of.get('bytes')!r:.40}")
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != of.get("sha256"):
        raise ModelFileError(f"{own} is damaged: its checksum differs")
    return data


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the bytes of a safetensors file."""
    data: bytes = save_tensors(dict(tensors))
    return data


def unpack(data: bytes) -> dict[str, Tensor]:
    """The way back."""
    try:
        tensors: dict[str, Tensor] = load_tensors(data)
    except (SafetensorError, ValueError, RuntimeError, KeyError, OverflowError) as error:
        words = " ".join(str(error).split())[:120]
        raise ModelFileError(f"the weights are no safetensors file: {words}") from error
    return tensors


def _checksum(document: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _text(document: Mapping[str, object]) -> str:
    """For people to read, in their own letters if these can be written at all."""
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(document, indent=1, allow_nan=False)
    return text


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON")
