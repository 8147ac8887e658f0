"""Weights of networks, from files that are not executed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

WRAPPER_KEYS = ("state_dict", "model_state_dict", "model", "module")
"""Keys under which a checkpoint can hold the state dict."""


def load_weights(network: nn.Module, path: str | os.PathLike[str]) -> None:
    """Load a state dict into a network.

    Parameters
    ----------
    network : nn.Module
        The network. It is changed in place.
    path : path
        A state dict, .safetensors or .pt.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not a state dict, or its names and shapes are not those of the network.
    """
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
                f"{len(names)} tensors {problem} (first: {names[0]})"
                for names, problem in ((missing, "are missing"), (unknown, "are unknown"))
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
    """Read a state dict without executing anything in the file."""
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            loaded: object = load_file(file)
        else:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    # The type of the error depends on the format and on the damage.
    except Exception as error:
        raise ValueError(
            f"{file.name} cannot be read as weights without running code ({first_line(error)}); "
            "save model.state_dict() as .safetensors or with torch.save"
        ) from error
    for key in WRAPPER_KEYS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
    if not isinstance(loaded, Mapping) or not all(isinstance(v, Tensor) for v in loaded.values()):
        raise ValueError(
            f"{file.name} holds a {type(loaded).__name__}, not a state dict; save "
            "model.state_dict()"
        )
    # DataParallel adds the prefix "module." to every name.
    return {str(key).removeprefix("module."): value for key, value in loaded.items()}


def first_line(error: Exception) -> str:
    """Return the first line of an error message, or the type of the error if it has none."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
