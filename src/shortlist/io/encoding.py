"""Convert the values of a model to JSON and tensors, and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from shortlist.io.fields import ensure
from shortlist.io.format import Format
from shortlist.io.persistence import ModelFileError

NUMPY_DTYPES = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16),
    *(torch.uint32, torch.uint64, torch.float16, torch.float32, torch.float64),
}
"""Types of tensors that NumPy has too."""
Formats = Mapping[str, Format]


class Encoder:
    """Convert values to JSON and named tensors.

    Parameters
    ----------
    formats : mapping of str to Format
        How objects are written, by the name of their class in the file.

    Attributes
    ----------
    tensors : dict of str to Tensor
        The tensors and arrays of all values that were encoded.
    """

    def __init__(self, formats: Formats) -> None:
        self._formats = {one.cls: one for one in formats.values()}
        self.tensors: dict[str, Tensor] = {}

    def __call__(self, value: object, path: str) -> object:
        """Return a value as JSON.

        Parameters
        ----------
        value : object
            Number, string, array, tensor, container or object with a format.
        path : str
            Place of the value in the model, for errors and as the name of its tensor.

        Returns
        -------
        object
            Lists, dictionaries, strings, numbers, booleans and None.

        Raises
        ------
        ValueError
            If models cannot contain the value.
        """
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int | float):
            return _encode_number(value)
        if isinstance(value, np.generic):
            if value.dtype.kind in "mM":
                return self._encode_array(np.asarray(value), path)
            return self(value.item(), path)
        if isinstance(value, Tensor):
            self.tensors[path] = value.detach().to("cpu", copy=True).contiguous()
            return {"$": "tensor", "name": path}
        if isinstance(value, np.ndarray):
            return self._encode_array(value, path)
        if isinstance(value, list | tuple):
            items = [self(item, f"{path}.{i}") for i, item in enumerate(value)]
            return items if isinstance(value, list) else {"$": "tuple", "values": items}
        if isinstance(value, Mapping):
            return self._encode_mapping(value, path)
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        format_ = self._format_of(type(value))
        if format_ is None:
            raise ValueError(
                f"{path} cannot be saved: {value!r} ({type(value).__module__}."
                f"{type(value).__qualname__}) is code, or data of a type that models cannot contain"
            )
        fields = format_.write(value)
        return {"$": format_.name, **{k: self(v, f"{path}.{k}") for k, v in fields.items()}}

    def _format_of(self, cls: type) -> Format | None:
        """Return the format of a class; a base class's only if it is meant for subclasses too."""
        if cls in self._formats:
            return self._formats[cls]
        inherited = (self._formats[base] for base in cls.__mro__ if base in self._formats)
        return next((one for one in inherited if one.subclasses), None)

    def _encode_mapping(self, value: Mapping[object, object], path: str) -> object:
        if all(type(key) is str for key in value):
            return {"$": "dict", "of": {k: self(v, f"{path}.{k}") for k, v in value.items()}}
        pairs = [
            [self(key, f"{path}.key{i}"), self(item, f"{path}.{i}")]
            for i, (key, item) in enumerate(value.items())
        ]
        return {"$": "mapping", "items": pairs}

    def _encode_array(self, array: np.ndarray, path: str) -> object:
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


def _encode_number(value: float) -> object:
    """Return a number as JSON. JSON has no infinity and no NaN."""
    if isinstance(value, float) and not np.isfinite(value):
        return {"$": "float", "value": repr(value)}
    return value


class Decoder:
    """Convert JSON and named tensors back to values.

    Parameters
    ----------
    formats : mapping of str to Format
        How objects are made, by the name of their class in the file.
    tensors : mapping of str to Tensor
        Tensors by name.
    device : str, default="cpu"
        Device of the tensors that are returned.

    Raises
    ------
    ValueError
        If the device is not available.
    """

    def __init__(
        self, formats: Formats, tensors: Mapping[str, Tensor], device: str = "cpu"
    ) -> None:
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, TypeError) as error:
            reason = " ".join(str(error).split())[:120]
            raise ValueError(f"device = {device!r} is not available here: {reason}") from error
        self._formats, self._tensors, self._device = formats, tensors, device
        # An `Encoder` writes each tensor for one value, so none is read twice.
        self._names_read: set[str] = set()
        self._decoders: dict[str, Callable[[dict[str, object]], object]] = {
            "float": _decode_float,
            "tuple": lambda value: tuple(self._decode_list(value, "values")),
            "dict": self._decode_dict,
            "mapping": self._decode_mapping,
            "tensor": lambda value: self._read_tensor(value).to(self._device),
            "array": lambda value: self._read_array(value).copy(),
            "times": self._decode_times,
            "labels": self._decode_labels,
        }

    def __call__(self, value: object) -> object:
        """Return the value that an `Encoder` wrote.

        Parameters
        ----------
        value : object
            JSON.

        Returns
        -------
        object

        Raises
        ------
        ModelFileError
            If no `Encoder` wrote the value.
        """
        if value is None or isinstance(value, bool | str | int | float):
            return value
        if isinstance(value, list):
            return [self(item) for item in value]
        if not isinstance(value, dict) or not isinstance(value.get("$"), str):
            raise ModelFileError(f"a value is {str(value)[:60]!r}")
        name = value["$"]
        try:
            if name in self._decoders:
                return self._decoders[name](value)
            if name not in self._formats:
                raise ModelFileError(f"it contains a {name[:60]!r}, which is unknown here")
            return self._formats[name].read({k: self(v) for k, v in value.items() if k != "$"})
        except (ModelFileError, RecursionError):
            raise
        except KeyError as error:
            raise ModelFileError(f"{name} lacks {str(error)[:60]}") from error
        except (
            *(TypeError, ValueError, AttributeError, RuntimeError, IndexError, OverflowError),
            AssertionError,
        ) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelFileError(f"{name} cannot be made: {reason}") from error

    def _read_tensor(self, value: Mapping[str, object]) -> Tensor:
        name = value.get("name")
        if not isinstance(name, str) or name not in self._tensors:
            raise ModelFileError(f"the weights lack {str(name)[:80]!r}")
        ensure(name not in self._names_read, f"{name[:80]!r} of the weights is used for two values")
        self._names_read.add(name)
        return self._tensors[name]

    def _read_array(self, value: Mapping[str, object]) -> np.ndarray:
        tensor = self._read_tensor(value)
        known = tensor.dtype in NUMPY_DTYPES
        ensure(known, f"{str(value['name'])[:80]!r} is an array of {tensor.dtype}")
        return tensor.numpy()

    def _decode_list(self, value: Mapping[str, object], key: str) -> list[object]:
        items = value.get(key)
        if not isinstance(items, list):
            raise ModelFileError(f"{key} of a {value['$']} is {str(items)[:60]!r}, not a list")
        return [self(item) for item in items]

    def _decode_dict(self, value: Mapping[str, object]) -> dict[str, object]:
        items = value.get("of")
        if not isinstance(items, dict):
            raise ModelFileError(f"a dict is {str(items)[:60]!r}")
        return {key: self(item) for key, item in items.items()}

    def _decode_mapping(self, value: Mapping[str, object]) -> dict[object, object]:
        mapping: dict[object, object] = {}
        for pair in self._decode_list(value, "items"):
            if not isinstance(pair, list) or len(pair) != 2:
                raise ModelFileError("a mapping contains something else than pairs")
            key, item = pair
            if not isinstance(key, str | int | float | bool | tuple | None):
                raise ModelFileError("a mapping has keys that are lists or mappings")
            mapping[key] = item
        return mapping

    def _decode_times(self, value: Mapping[str, object]) -> np.ndarray:
        dtype, array = np.dtype(str(value.get("dtype"))), self._read_array(value)
        is_valid = dtype.kind in "mM" and array.dtype == np.int64
        ensure(is_valid, f"times are of dtype {dtype}, from {array.dtype}")
        return array.copy().view(dtype)

    def _decode_labels(self, value: Mapping[str, object]) -> np.ndarray:
        values = self._decode_list(value, "values")
        if value.get("text") is True and all(isinstance(v, str) for v in values):
            return np.array(values, dtype=np.str_)
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array


def _decode_float(value: Mapping[str, object]) -> float:
    text = value["value"]
    ensure(text in ("inf", "-inf", "nan"), f"a float is {str(text)[:60]!r}")
    return float(str(text))
