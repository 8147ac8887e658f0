"""Networks by name: from a library, a module or a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from torch import Tensor, nn

from shortlist._utils.arrays import to_tensor
from shortlist.datasets.images.weights import first_line, load_weights


@dataclass(frozen=True)
class Backbone:
    """A network, and the preprocessing of its images if it is known.

    Parameters
    ----------
    network : nn.Module
        The network.
    transform : callable, optional
        The complete preprocessing. It takes square images of `decoded_size` pixels per side.
    mean : tuple of float, optional
        Mean of each channel in the training data.
    std : tuple of float, optional
        Standard deviation of each channel in the training data.
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
        `torchvision:NAME` or `timm:NAME`, a network of a library; or `package.module:function` or
        `file.py:function`, a function without arguments that returns the network.
    weights : path, optional
        A state dict, .safetensors or .pt. By default, a network of a library has its published
        weights.

    Returns
    -------
    Backbone
        The network. With published weights, it has their preprocessing.

    Raises
    ------
    ValueError
        If there is no such network, or the weights do not fit it.
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
    config = _library("timm.data", "timm").resolve_model_data_config(network)
    mean, std = tuple(config["mean"]), tuple(config["std"])
    return Backbone(network, mean=mean, std=std, size=int(config["input_size"][-1]))


def _download(name: str, create: Callable[[], nn.Module]) -> nn.Module:
    """Create a network with published weights, which may have to be downloaded."""
    try:
        return create()
    # The type of the error depends on the library and on the connection.
    except Exception as error:
        raise ValueError(
            f"the published weights of {name} are not available ({first_line(error)}); "
            "download them, and give their file (--weights)"
        ) from error


def _library(module: str, package: str) -> ModuleType:
    """Import a module of a package that may not be installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"models of {package} need {package}: pip install {package} ({first_line(error)})"
        ) from error


def _check_name(name: str, known: list[str], library: str) -> None:
    """Raise unless a library has a model of this name."""
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
    """Run a Python file, and return it as a module."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file at {str(file)!r}")
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not a Python file")
    module = module_from_spec(spec)
    # Like a script, the file can import other files in its folder.
    with _search_path(file.resolve().parent):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _search_path(folder: Path) -> Iterator[None]:
    """Put a folder first in the search path of imports, and restore the path afterwards."""
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = before
