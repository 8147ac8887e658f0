"""Networks by name, and their weights from files that are not executed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from shortlist._utils.arrays import to_tensor

WRAPPERS = ("state_dict", "model_state_dict", "model", "module")
"""Under which names people keep a state dict in a checkpoint."""


@dataclass(frozen=True)
class Backbone:
    """A network, and how its images are prepared, where that is known.

    `transform` is the whole of it, and takes squares of `decoded` pixels a side; `size`, `mean` and
    `std` are its parts.
    """

    network: nn.Module
    transform: Callable[[Tensor], Tensor] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    size: int | None = None
    decoded: int | None = None


def build(spec: str, weights: str | os.PathLike[str] | None = None) -> Backbone:
    """The network that `spec` names.

    Parameters
    ----------
    spec : str
        `torchvision:resnet50` or `timm:vit_base_patch16_224`, with the published weights and the
        preparation that belongs to them, unless there are weights of one's own; else
        `package.module:function` or `file.py:function`, a function without arguments that
        returns the network.
    weights : path, optional
        A state dict, .safetensors or .pt. Images are then prepared as the caller says.
    """
    where, _, name = spec.rpartition(":")
    if not where or not name:
        raise ValueError(
            f"a model is torchvision:NAME, timm:NAME, package.module:function or "
            f"file.py:function; got {spec!r}"
        )
    own = weights is not None
    if where == "torchvision":
        backbone = _torchvision(name, pretrained=not own)
    elif where == "timm":
        backbone = _timm(name, pretrained=not own)
    else:
        backbone = Backbone(_called(where, name))
    if weights is not None:
        load_weights(backbone.network, weights)
    return backbone


def load_weights(network: nn.Module, path: str | os.PathLike[str]) -> None:
    """Put a state dict into a network: every tensor of it, or an error."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there are no weights at {os.fspath(path)!r}")
    state = _state(file)
    own = network.state_dict()
    missing, strange = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or strange:
        raise ValueError(
            f"{file.name} does not fit {type(network).__name__}: "
            + " and ".join(
                f"{len(names)} {what} (first: {names[0]})"
                for names, what in ((missing, "tensors missing"), (strange, "too many"))
                if names
            )
        )
    for name, value in own.items():
        if value.shape != state[name].shape:
            raise ValueError(
                f"{file.name} does not fit {type(network).__name__}: {name} is "
                f"{tuple(state[name].shape)}, but must be {tuple(value.shape)}"
            )
    network.load_state_dict(state)


def _state(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            loaded: object = load_file(file)
        else:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    # What is raised depends on the format and on the damage.
    except Exception as error:
        raise ValueError(
            f"{file.name} is not a file of weights that can be read without running code: save "
            f"model.state_dict() as .safetensors, or with torch.save ({_first_line(error)})"
        ) from error
    for key in WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
    if not isinstance(loaded, Mapping) or not all(isinstance(v, Tensor) for v in loaded.values()):
        raise ValueError(
            f"{file.name} holds a {type(loaded).__name__}, not a state dict; save "
            "model.state_dict()"
        )
    # DataParallel puts its own name before every other.
    return {str(key).removeprefix("module."): value for key, value in loaded.items()}


def _torchvision(name: str, *, pretrained: bool) -> Backbone:
    models = _library("torchvision.models", "torchvision")
    _check_name(name, models.list_models(module=models), "torchvision")
    if not pretrained:
        return Backbone(models.get_model(name, weights=None))
    network = _fetched(name, lambda: models.get_model(name, weights="DEFAULT"))
    prepare = models.get_model_weights(name).DEFAULT.transforms()
    return Backbone(
        network,
        lambda batch: to_tensor(prepare(batch), "images"),
        mean=tuple(prepare.mean),
        std=tuple(prepare.std),
        size=int(prepare.crop_size[0]),
        decoded=int(prepare.resize_size[0]),
    )


def _timm(name: str, *, pretrained: bool) -> Backbone:
    timm = _library("timm", "timm")
    _check_name(name.partition(".")[0], timm.list_models(), "timm")
    if not pretrained:
        return Backbone(timm.create_model(name, pretrained=False))
    network = _fetched(name, lambda: timm.create_model(name, pretrained=True))
    known = _library("timm.data", "timm").resolve_model_data_config(network)
    mean, std = tuple(known["mean"]), tuple(known["std"])
    return Backbone(network, mean=mean, std=std, size=int(known["input_size"][-1]))


def _fetched(name: str, fetch: Callable[[], nn.Module]) -> nn.Module:
    try:
        return fetch()
    # Of the library's own, or of the network.
    except Exception as error:
        raise ValueError(
            f"the published weights of {name} are not to be had ({_first_line(error)}); "
            "fetch them by hand, and name the file (--weights)"
        ) from error


def _library(module: str, package: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"a model of {package} needs it: pip install {package} ({_first_line(error)})"
        ) from error


def _check_name(name: str, known: list[str], library: str) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=3)
        raise ValueError(
            f"{library} has no model {name!r} among its {len(known)}"
            + (f"; did you mean {', '.join(map(repr, near))}?" if near else "")
        )


def _called(where: str, name: str) -> nn.Module:
    if where.endswith(".py"):
        module = _module_of(Path(where))
    else:
        try:
            module = import_module(where)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"there is no module {where!r} ({error}); for a file write {where}.py:{name}"
            ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{where} has no function {name!r}")
    network = function()
    if not isinstance(network, nn.Module):
        raise ValueError(f"{where}:{name} gave a {type(network).__name__}, not an nn.Module")
    return network


def _module_of(file: Path) -> ModuleType:
    if not file.is_file():
        raise FileNotFoundError(f"there is no file at {str(file)!r}")
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not a Python file")
    module = module_from_spec(spec)
    with _on_the_path(file.resolve().parent):  # as if it had been run: it may import its siblings
        spec.loader.exec_module(module)
    return module


@contextmanager
def _on_the_path(folder: Path) -> Iterator[None]:
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
