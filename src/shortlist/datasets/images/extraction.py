"""Features of images: the outputs of a network or of one of its layers."""

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
from shortlist.datasets.images.batches import image_batches, image_count
from shortlist.datasets.images.preprocessing import make_preprocessing
from shortlist.learning.settings import resolve_device

Call: TypeAlias = Callable[[Tensor], object]
Pool: TypeAlias = Literal["cls", "mean"] | Callable[[Tensor], Tensor]

OUTPUTS = ("image_embeds", "pooler_output", "last_hidden_state", "logits")
"""Names under which a model can return its outputs, in order of preference."""


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

    The model runs in evaluation mode and without gradients. Its mode and its device are restored
    afterwards, also after an error.

    Parameters
    ----------
    model : nn.Module or callable
        The network, or one of its methods, such as `clip.encode_image`.
    images : array, tensor, Images, Dataset, DataLoader or iterable
        Bytes (rows, height, width, channels) or floats (rows, channels, height, width). If rows are
        pairs (image, label), labels are ignored. The batches of a DataLoader are not changed.
    layer : str, optional
        Name of a layer, as in `model.named_modules()`. If the layer runs several times, its last
        output is used. By default the output of the model is used.
    batch_size : int, default=256
        Number of images in a batch.
    device : str, default="auto"
        Device to run on. "auto" is the GPU if there is one, or else the model's device.
    transform : callable, optional
        Function from a batch to the input of the model, such as a torchvision transform. The batch
        is a tensor (rows, channels, height, width) of bytes or floats. By default, bytes become
        floats in [0, 1], and `size`, `mean` and `std` are applied.
    mean : sequence of float, optional
        Value to subtract from each channel.
    std : sequence of float, optional
        Value to divide each channel by.
    size : int, optional
        Resize the shorter side to this many pixels and crop the center square.
    pool : {"cls", "mean"} or callable, default="cls"
        How to reduce an output (rows, tokens, features) to (rows, features): take the first token,
        or the mean of all tokens. An output (rows, channels, height, width) is averaged over height
        and width. A function receives the output itself: `lambda x: x.mean((1, 2))` averages an
        output whose channels are last, as in Swin.
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
        If there are no images, the layer does not exist or does not run, or a feature is not
        finite.

    Examples
    --------
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 10))
    >>> images = np.zeros((5, 16, 16, 3), np.uint8)
    >>> extract_features(net, images).shape
    (5, 10)
    >>> extract_features(net, images, "1").shape  # The output is averaged over height and width.
    (5, 8)
    """
    check_count(batch_size, "batch_size")
    if not callable(pool):
        check_choice(pool, "pool", ["cls", "mean"])
    check_choice(dtype, "dtype", ["float32", "float16"])
    network = _module_of(model)
    preprocess = make_preprocessing(transform, mean, std, size)
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
            # The batch is copied, because a transform or a layer may write into its input.
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
    """Return the model if it is a module, or the module of a method; None for a function."""
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
    """Put the network in evaluation mode on a device, and restore both afterwards.

    Yield the device, and the dtype of the network's floats.
    """
    tensors = [] if network is None else [*network.parameters(), *network.buffers()]
    devices = {tensor.device for tensor in tensors}
    float_types = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    home = tensors[0].device if tensors else torch.device("cpu")
    if len(devices) > 1:  # A model that is on several devices is not moved.
        target = home
    elif device == "auto":
        use_gpu = home.type == "cpu" and network is not None and torch.cuda.is_available()
        target = torch.device("cuda") if use_gpu else home
    else:
        target = resolve_device(device, torch.empty(0))
    if target.type == "meta":  # Tensors on this device have no values, so weights would be lost.
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
        # Modules can differ in mode, for example if some layers are frozen.
        for module, training in modes:
            module.training = training


@contextmanager
def _record_outputs(
    network: nn.Module | None, layer: str | None, pool: Pool
) -> Iterator[list[Tensor | ValueError]]:
    """Yield a list, to which a hook appends the pooled outputs of a layer."""
    outputs: list[Tensor | ValueError] = []
    if layer is None:
        yield outputs
        return
    if network is None:
        raise ValueError(f"layer = {layer!r} needs an nn.Module; the model is a plain function")

    def record(module: nn.Module, inputs: object, output: object) -> None:
        # The output is copied, because a later layer may overwrite it: ReLU(inplace=True).
        try:
            outputs.append(_pool(output, pool).clone())
        # If the layer runs again, only its last output matters, so the error is not raised here.
        except ValueError as error:
            outputs.append(error)

    handle = _find_layer(network, layer).register_forward_hook(record)
    try:
        yield outputs
    finally:
        handle.remove()


def _find_layer(network: nn.Module, name: str) -> nn.Module:
    """Return a layer by name; raise and suggest similar names if there is none."""
    layers: dict[str, nn.Module] = {k: module for k, module in network.named_modules() if k}
    if name not in layers:
        similar = get_close_matches(str(name), layers, n=3, cutoff=0.5)
        with_suffix = [key for key in layers if key.endswith(f".{name}")][:3]
        suggestions = ", ".join(map(repr, dict.fromkeys([*with_suffix, *similar])))
        raise ValueError(
            f"{type(network).__name__} has no layer {name!r} among its {len(layers)}; "
            + (f"did you mean {suggestions}?" if suggestions else "see model.named_modules()")
        )
    return layers[name]


def _last_output(outputs: list[Tensor | ValueError], layer: str) -> Tensor:
    """Return the output of the layer's last run; raise if it did not run or cannot be pooled."""
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
    """Return the preferred tensor of an output, which can be a tuple, a mapping or an object."""
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
    """Raise unless there is one row of features for each image."""
    if len(features) != rows:
        raise ValueError(
            f"{'the model' if layer is None else f'layer {layer!r}'} returned {len(features)} rows "
            f"for {rows} images; the first axis must be that of the images"
        )


def _as_array(features: Tensor, dtype: str, first: int) -> NDArray[np.floating]:
    """Return features as an array; raise with the number of the image if they are not finite.

    `first` is the number of the first image in the batch.
    """
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
    """Move blocks into one array. Blocks are removed from the list, which frees their memory."""
    whole = np.empty((sum(map(len, blocks)), blocks[0].shape[1]), dtype=blocks[0].dtype)
    end = len(whole)
    while blocks:
        block = blocks.pop()
        whole[end - len(block) : end] = block
        end -= len(block)
    return whole
