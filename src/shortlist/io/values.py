"""Turn the values of a model into JSON and tensors, and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shortlist.io.persistence import ModelFileError

NUMPY_DTYPES = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16),
    *(torch.uint32, torch.uint64, torch.float16, torch.float32, torch.float64),
}
"""Types of tensors that numpy has too."""


@dataclass(frozen=True)
class Kind:
    """How objects of one class become a dictionary of values, and how they are made of one."""

    cls: type
    take: Callable[..., Mapping[str, object]]
    make: Callable[[Mapping[str, object]], object]


Kinds = Mapping[str, Kind]


class Encoder:
    """Turn values into JSON and named tensors."""

    def __init__(self, kinds: Kinds) -> None:
        self.names = {kind.cls: (name, kind) for name, kind in kinds.items()}
        self.tensors: dict[str, Tensor] = {}

    def __call__(self, value: object, path: str) -> object:
        """Return a value as JSON; `path` is its place, for messages and as a tensor's name."""
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
            f"{type(value).__qualname__}) is code, or data of a type that models cannot contain"
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
    """Turn JSON and named tensors back into values; raise if no `Encoder` wrote them."""

    def __init__(self, kinds: Kinds, tensors: Mapping[str, Tensor], device: str = "cpu") -> None:
        self.kinds, self.tensors, self.device = kinds, tensors, device
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, TypeError) as error:
            reason = " ".join(str(error).split())[:120]
            raise ValueError(f"device = {device!r} is not available here: {reason}") from error
        self.used: set[str] = set()
        """Names of tensors that were read. An `Encoder` writes each tensor for one value."""

    def __call__(self, value: object) -> object:
        """Return the value that an `Encoder` wrote."""
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
                raise ModelFileError(f"it contains a {name[:60]!r}, which is unknown here")
            return self.kinds[name].make({k: self(v) for k, v in value.items() if k != "$"})
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
            raise ModelFileError(f"{name[:80]!r} of the weights is used for two values")
        self.used.add(name)
        return self.tensors[name]

    def _numbers(self, value: Mapping[str, object]) -> np.ndarray:
        tensor = self._tensor(value)
        if tensor.dtype not in NUMPY_DTYPES:
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
        pairs: list[tuple[object, object]] = []
        for pair in self._list(value, "items"):
            if not isinstance(pair, list) or len(pair) != 2:
                raise ModelFileError("a mapping contains something else than pairs")
            if not isinstance(pair[0], str | int | float | bool | tuple | None):
                raise ModelFileError("a mapping has keys that are lists or mappings")
            pairs.append((pair[0], pair[1]))
        return pairs

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
