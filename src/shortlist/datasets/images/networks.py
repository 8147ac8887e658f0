"""Networks by name, and weights from files that are not executed."""

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
"""Keys that a checkpoint may have for the state dict."""


@dataclass(frozen=True)
class Backbone:
    """A network, and the preprocessing of its images where that is known.

    Parameters
    ----------
    network : nn.Module
        The network.
    transform : callable, optional
        The complete preprocessing. It takes squares with `decoded_size` pixels a side.
    mean, std : tuple of float, optional
        Mean and standard deviation of each channel in the training data.
    size : int, optional
        Size of the network's input images, in pixels.
    decoded_size : int, optional
        Size of the images that `transform` takes, in pixels.
    """

    network: nn.Module
    transform: Callable[[Tensor], Tensor] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    size: int | None = None
    decoded_size: int | None = None


def build_network(spec: str, weights: str | os.PathLike[str] | None = None) -> Backbone:
    """Build a network by its name.

    Parameters
    ----------
    spec : str
        `torchvision:NAME` or `timm:NAME`, with the published weights and their preprocessing
        unless `weights` are given; or `package.module:function` or `file.py:function`, a function
        without arguments that returns the network.
    weights : path, optional
        A state dict, .safetensors or .pt.

    Returns
    -------
    Backbone
        The network, and its preprocessing where that is known.

    Raises
    ------
    ValueError
        If there is no such network, or the weights are not those of the network.
    """
    source, _, name = spec.rpartition(":")
    if not source or not name:
        raise ValueError(
            f"a model is torchvision:NAME, timm:NAME, package.module:function or "
            f"file.py:function; got {spec!r}"
        )
    if source == "torchvision":
        backbone = _build_torchvision(name, pretrained=weights is None)
    elif source == "timm":
        backbone = _build_timm(name, pretrained=weights is None)
    else:
        backbone = Backbone(_call(source, name))
    if weights is not None:
        load_weights(backbone.network, weights)
    return backbone


def load_weights(network: nn.Module, path: str | os.PathLike[str]) -> None:
    """Load a state dict into a network; raise unless the tensors are those of the network."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there are no weights at {os.fspath(path)!r}")
    state = _read_state(file)
    expected = network.state_dict()
    missing = sorted(expected.keys() - state.keys())
    unknown = sorted(state.keys() - expected.keys())
    if missing or unknown:
        raise ValueError(
            f"{file.name} does not fit {type(network).__name__}: "
            + " and ".join(
                f"{len(names)} {what} (first: {names[0]})"
                for names, what in ((missing, "tensors missing"), (unknown, "too many"))
                if names
            )
        )
    for name, value in expected.items():
        if value.shape != state[name].shape:
            raise ValueError(
                f"{file.name} does not fit {type(network).__name__}: {name} is "
                f"{tuple(state[name].shape)}, but must be {tuple(value.shape)}"
            )
    network.load_state_dict(state)


def _read_state(file: Path) -> dict[str, Tensor]:
    """Read a state dict; nothing in the file is executed."""
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            loaded: object = load_file(file)
        else:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    # The type of the error depends on the format and on the damage.
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
    # DataParallel adds a prefix to every name.
    return {str(key).removeprefix("module."): value for key, value in loaded.items()}


def _build_torchvision(name: str, *, pretrained: bool) -> Backbone:
    models = _library("torchvision.models", "torchvision")
    _check_name(name, models.list_models(module=models), "torchvision")
    if not pretrained:
        return Backbone(models.get_model(name, weights=None))
    network = _download(name, lambda: models.get_model(name, weights="DEFAULT"))
    prepare = models.get_model_weights(name).DEFAULT.transforms()
    return Backbone(
        network,
        lambda batch: to_tensor(prepare(batch), "images"),
        mean=tuple(prepare.mean),
        std=tuple(prepare.std),
        size=int(prepare.crop_size[0]),
        decoded_size=int(prepare.resize_size[0]),
    )


def _build_timm(name: str, *, pretrained: bool) -> Backbone:
    timm = _library("timm", "timm")
    _check_name(name.partition(".")[0], timm.list_models(), "timm")
    if not pretrained:
        return Backbone(timm.create_model(name, pretrained=False))
    network = _download(name, lambda: timm.create_model(name, pretrained=True))
    known = _library("timm.data", "timm").resolve_model_data_config(network)
    mean, std = tuple(known["mean"]), tuple(known["std"])
    return Backbone(network, mean=mean, std=std, size=int(known["input_size"][-1]))


def _download(name: str, create: Callable[[], nn.Module]) -> nn.Module:
    try:
        return create()
    # The error may be one of the library or of the connection.
    except Exception as error:
        raise ValueError(
            f"the published weights of {name} are not available ({_first_line(error)}); "
            "download them, and give the file (--weights)"
        ) from error


def _library(module: str, package: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"models of {package} need {package}: pip install {package} ({_first_line(error)})"
        ) from error


def _check_name(name: str, known: list[str], library: str) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=3)
        raise ValueError(
            f"{library} has no model {name!r} among its {len(known)}"
            + (f"; did you mean {', '.join(map(repr, near))}?" if near else "")
        )


def _call(source: str, name: str) -> nn.Module:
    """Call the function `name` of a module or of a file, which returns the network."""
    if source.endswith(".py"):
        module = _import_file(Path(source))
    else:
        try:
            module = import_module(source)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"there is no module {source!r} ({error}); for a file write {source}.py:{name}"
            ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{source} has no function {name!r}")
    network = function()
    if not isinstance(network, nn.Module):
        raise ValueError(f"{source}:{name} returned a {type(network).__name__}, not an nn.Module")
    return network


def _import_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise FileNotFoundError(f"there is no file at {str(file)!r}")
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not a Python file")
    module = module_from_spec(spec)
    with _search_path(file.resolve().parent):  # As in a script, it can import its siblings.
        spec.loader.exec_module(module)
    return module


@contextmanager
def _search_path(folder: Path) -> Iterator[None]:
    """Put a folder first in the search path of imports."""
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
