"""Features of images: the outputs of a layer of a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shortlist._utils.progress import Show, track
from shortlist._utils.validation import check_choice, check_count
from shortlist.datasets.images.batches import image_batches, image_count, resize
from shortlist.learning.settings import resolve_device

Call: TypeAlias = Callable[[Tensor], object]
Pool: TypeAlias = Literal["cls", "mean"] | Callable[[Tensor], Tensor]

OUTPUTS = ("image_embeds", "pooler_output", "last_hidden_state", "logits")
"""Names of a model's outputs, in order of preference."""


def extract_features(
    model: nn.Module | Call,
    images: object,
    layer: str | None = None,
    *,
    batch_size: int = 256,
    device: str | torch.device = "auto",
    transform: Callable[[Tensor], Tensor] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    size: int | None = None,
    pool: Pool = "cls",
    dtype: Literal["float32", "float16"] = "float32",
    progress: Show = "auto",
) -> NDArray[np.floating]:
    """Compute features of images: the outputs of a network or of one of its layers.

    The model runs in evaluation mode and without gradients. Afterwards its mode and its device are
    restored, and the hook is removed, also after an error.

    Parameters
    ----------
    model : nn.Module or callable
        The network, or one of its methods, such as `clip.encode_image`.
    images : array, tensor, Images, Dataset, DataLoader or iterable
        Bytes (rows, height, width, channels), or floats (rows, channels, height, width). In rows
        that are pairs (image, label) the label is ignored. A DataLoader determines the batches.
    layer : str, optional
        Name of a layer, as in `model.named_modules()`. If the layer runs several times, its last
        output is used. By default the output of the model.
    batch_size : int, default=256
        Number of images in a batch.
    device : str, default="auto"
        Device to run on. "auto" is the GPU if there is one, and otherwise the model's device.
    transform : callable, optional
        Function from a batch, a tensor (rows, channels, height, width) of bytes or floats, to the
        input of the model, such as a torchvision transform. By default bytes become floats in
        [0, 1], and `size`, `mean` and `std` apply.
    mean, std : sequence of float, optional
        Values to subtract and to divide by, for each channel.
    size : int, optional
        Resize the shorter side to this many pixels and crop the centre square.
    pool : {"cls", "mean"} or callable, default="cls"
        How an output (rows, tokens, features) becomes (rows, features): by the first token, or by
        the mean of all tokens. An output (rows, channels, height, width) is averaged over height
        and width. A function is given the output itself, such as `lambda x: x.mean((1, 2))` for
        channels that are last, as in Swin.
    dtype : {"float32", "float16"}, default="float32"
        Type of the result.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. With "auto" it is shown on a terminal.

    Returns
    -------
    array of shape (n_rows, n_features)
        Features of each image.

    Raises
    ------
    ValueError
        If there are no images, the layer does not exist or does not run, or features are not
        finite.

    Examples
    --------
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 10))
    >>> images = np.zeros((5, 16, 16, 3), np.uint8)
    >>> extract_features(net, images).shape
    (5, 10)
    >>> extract_features(net, images, "1").shape       # averaged over height and width
    (5, 8)
    """
    check_count(batch_size, "batch_size")
    if not callable(pool):
        check_choice(pool, "pool", ["cls", "mean"])
    check_choice(dtype, "dtype", ["float32", "float16"])
    network = _module_of(model)
    preprocess = _preprocessing(transform, mean, std, size)
    rows = image_count(images)
    if rows == 0:
        raise ValueError("there are no images")
    blocks: list[NDArray[np.floating]] = []
    done = 0
    total = 0 if rows is None else -(-rows // batch_size)
    with (
        _record_outputs(network, layer, pool) as outputs,
        _evaluation_mode(network, device) as (target, float_type),
        torch.inference_mode(),
        track("features", total, progress if total else False) as step,
    ):
        for batch in image_batches(images, batch_size):
            # A copy, because the transform or the first layer may write into its input.
            x = preprocess(batch.to(target, copy=True))
            if x.is_floating_point() and float_type is not None:
                x = x.to(float_type)
            outputs.clear()
            output = model(x)
            features = _pool(output, pool) if layer is None else _last_output(outputs, layer)
            _check_rows(features, len(batch), layer)
            blocks.append(_as_array(features, dtype, done))
            done += len(batch)
            step("")
    if not blocks:
        raise ValueError("there are no images")
    return _concatenate(blocks)


def _module_of(model: object) -> nn.Module | None:
    """Return the module itself, or the module of a method; None for a function."""
    if isinstance(model, nn.Module):
        return model
    if not callable(model):
        raise ValueError(f"model must be an nn.Module or a function; got {type(model).__name__}")
    owner = getattr(model, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


@contextmanager
def _evaluation_mode(
    network: nn.Module | None, device: str | torch.device
) -> Iterator[tuple[torch.device, torch.dtype | None]]:
    """Put the network in evaluation mode on a device, and restore both; yield device and dtype."""
    tensors = [] if network is None else [*network.parameters(), *network.buffers()]
    devices = {tensor.device for tensor in tensors}
    float_types = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    home = tensors[0].device if tensors else torch.device("cpu")
    if len(devices) > 1:  # A model on several devices stays there.
        target = home
    elif device == "auto":
        use_gpu = home.type == "cpu" and network is not None and torch.cuda.is_available()
        target = torch.device("cuda") if use_gpu else home
    else:
        target = resolve_device(device, torch.empty(0))
    if target.type == "meta":  # Moving there and back would lose the weights.
        raise ValueError('device "meta" computes nothing; use "auto", "cpu" or "cuda"')
    if network is None:
        yield target, None
        return
    modes = [(module, module.training) for module in network.modules()]
    moves = len(devices) == 1 and target != home
    try:
        network.eval()
        if moves:
            network.to(target)
        yield target, float_types[0] if float_types else None
    finally:
        if moves:
            network.to(home)
        for module, training in modes:  # Each on its own: layers of one network can differ.
            module.training = training


@contextmanager
def _record_outputs(
    network: nn.Module | None, layer: str | None, pool: Pool
) -> Iterator[list[Tensor | ValueError]]:
    """Yield a list to which the pooled outputs of a layer are appended."""
    outputs: list[Tensor | ValueError] = []
    if layer is None:
        yield outputs
        return
    if network is None:
        raise ValueError(f"layer = {layer!r} needs an nn.Module; the model is a plain function")

    def record(module: nn.Module, inputs: object, output: object) -> None:
        # Copied, because a later layer may write into the same memory: ReLU(inplace=True).
        try:
            outputs.append(_pool(output, pool).clone())
        except ValueError as error:  # Raised only if this is the layer's last call.
            outputs.append(error)

    handle = _find_layer(network, layer).register_forward_hook(record)
    try:
        yield outputs
    finally:
        handle.remove()


def _find_layer(network: nn.Module, name: str) -> nn.Module:
    layers: dict[str, nn.Module] = {k: module for k, module in network.named_modules() if k}
    if name not in layers:
        near = get_close_matches(str(name), layers, n=3, cutoff=0.5)
        ends = [key for key in layers if key.endswith(f".{name}")][:3]
        advice = ", ".join(map(repr, dict.fromkeys([*ends, *near])))
        raise ValueError(
            f"{type(network).__name__} has no layer {name!r} among its {len(layers)}; "
            + (f"did you mean {advice}?" if advice else "see model.named_modules()")
        )
    return layers[name]


def _last_output(outputs: list[Tensor | ValueError], layer: str) -> Tensor:
    if not outputs:
        raise ValueError(f"the model ran without its layer {layer!r}; name one that it runs")
    last = outputs[-1]
    if isinstance(last, ValueError):
        raise ValueError(f"layer {layer!r}: {last}")
    return last


def _pool(output: object, pool: Pool) -> Tensor:
    """Return the output of a layer or a model as a matrix (rows, features)."""
    x = _tensor_in(output)
    if callable(pool):
        x = pool(x)
        if x.ndim != 2:
            raise ValueError(f"pool must return (rows, features); got shape {tuple(x.shape)}")
        return x
    if x.ndim == 4:
        return x.mean(dim=(2, 3))
    if x.ndim == 3:
        return x[:, 0] if pool == "cls" else x.mean(dim=1)
    if x.ndim not in (1, 2):
        raise ValueError(
            "the output must be (rows, features), (rows, tokens, features) or (rows, channels, "
            f"height, width); got shape {tuple(x.shape)}"
        )
    return x.reshape(len(x), -1)


def _tensor_in(output: object) -> Tensor:
    """Return the first tensor of an output, which may be a tuple, a mapping or an object."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        named = [output[key] for key in OUTPUTS if isinstance(output.get(key), Tensor)]
        values = [*named, *output.values()]
    elif isinstance(output, list | tuple):
        values = list(output)
    else:
        values = [getattr(output, key, None) for key in OUTPUTS]
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not tensors:
        raise ValueError(f"no tensor in the output, which is a {type(output).__name__}")
    return tensors[0]


def _check_rows(features: Tensor, rows: int, layer: str | None) -> None:
    if len(features) != rows:
        raise ValueError(
            f"{'the model' if layer is None else f'layer {layer!r}'} returned {len(features)} rows "
            f"for {rows} images; the first axis must be that of the images"
        )


def _as_array(features: Tensor, dtype: str, first: int) -> NDArray[np.floating]:
    """Return finite features; `first` is the number of the batch's first image."""
    plain = features.to(device="cpu", dtype=torch.float32)
    if not bool(torch.isfinite(plain).all()):
        at = int((~torch.isfinite(plain)).any(dim=1).nonzero()[0])
        raise ValueError(
            f"the features of image {first + at} are not finite; check its pixels and the "
            "model's weights"
        )
    if dtype == "float16":
        half = plain.to(torch.float16)
        if not bool(torch.isfinite(half).all()):
            raise ValueError(
                f"features up to {float(plain.abs().max()):.3g} do not fit into float16; "
                'use dtype="float32"'
            )
        return np.asarray(half.numpy())
    return np.asarray(plain.numpy())


def _concatenate(blocks: list[NDArray[np.floating]]) -> NDArray[np.floating]:
    """Move blocks into one array. The list is emptied, so that memory is not needed twice."""
    whole = np.empty((sum(map(len, blocks)), blocks[0].shape[1]), dtype=blocks[0].dtype)
    end = len(whole)
    while blocks:
        block = blocks.pop()
        whole[end - len(block) : end] = block
        end -= len(block)
    return whole


def _preprocessing(
    transform: Callable[[Tensor], Tensor] | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    size: int | None,
) -> Callable[[Tensor], Tensor]:
    """Return the function from a batch of images to the input of the model."""
    if transform is not None:
        options = {"mean": mean, "std": std, "size": size}
        others = [name for name, value in options.items() if value is not None]
        if others:
            raise ValueError(
                f"transform does all of the preprocessing; leave out {' and '.join(others)}"
            )
        return transform
    if size is not None:
        check_count(size, "size")
    if std is not None and not all(value > 0 for value in std):
        raise ValueError(f"std must be positive; got {list(std)}")

    def preprocess(batch: Tensor) -> Tensor:
        x = batch.to(torch.float32) / 255 if batch.dtype == torch.uint8 else batch
        if size is not None:
            x = resize(x, size)
        if mean is not None:
            x = x - _by_channel(mean, "mean", x)
        if std is not None:
            x = x / _by_channel(std, "std", x)
        return x

    return preprocess


def _by_channel(values: Sequence[float], name: str, x: Tensor) -> Tensor:
    if len(values) not in (1, x.shape[1]):
        raise ValueError(f"{name} has {len(values)} values, but the images {x.shape[1]} channels")
    return torch.tensor(list(values), dtype=x.dtype, device=x.device)[:, None, None]
