"""Features of images: what a layer of a network makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shortlist._utils.arrays import check_choice, check_count
from shortlist._utils.progress import Show, track
from shortlist.datasets.image_batches import batches_of, count_of, resized
from shortlist.learning.settings import device_of

Call: TypeAlias = Callable[[Tensor], object]
Pool: TypeAlias = Literal["cls", "mean"] | Callable[[Tensor], Tensor]

OUTPUTS = ("image_embeds", "pooler_output", "last_hidden_state", "logits")
"""Which output of a model that has several: the first of these that it has."""


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
    """What a layer of a network makes of images: a row of features for each.

    The model runs in eval mode and without gradients. Its mode and its device are as before
    afterwards, and no hook is left on it, whatever happens.

    Parameters
    ----------
    model : nn.Module or callable
        The network. A method of one will do where the images enter by another door:
        `clip.encode_image`.
    images : array, tensor, Images, Dataset, DataLoader or iterable
        Bytes (rows, height, width, channels), or floats (rows, channels, height, width). Of rows
        that are pairs (image, label) the image is taken. A DataLoader's batches stay as they are.
    layer : str, optional
        The dotted name of a layer, as `model.named_modules()` has it: its output is taken; if it
        runs several times, its last one. By default the output of the model.
    batch_size : int, default=256
        How many images at a time.
    device : str, default="auto"
        Where to run. "auto" is the GPU if there is one, and else where the model is.
    transform : callable, optional
        Makes the model's input of a batch, a tensor (rows, channels, height, width) of bytes or
        floats, as the images were: a torchvision transform, say. By default bytes become floats
        in [0, 1], and `size`, `mean` and `std` apply.
    mean, std : sequence of float, optional
        Subtract and divide, for each channel.
    size : int, optional
        Resize the shorter side to this, and keep the middle square.
    pool : {"cls", "mean"} or callable, default="cls"
        Of an output (rows, tokens, features): the first token, or the mean of all. An output
        (rows, channels, height, width) is averaged over height and width. A function makes
        (rows, features) of the output itself: `lambda x: x.mean((1, 2))` where the channels are
        last, as in Swin.
    dtype : {"float32", "float16"}, default="float32"
        Of the result.
    progress : bool or "auto", default="auto"
        Whether to show a bar; "auto" does on a terminal.

    Returns
    -------
    array of shape (rows, features)

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
    network = _network_of(model)
    prepare = _preparation(transform, mean, std, size)
    rows = count_of(images)
    if rows == 0:
        raise ValueError("there are no images")
    out: list[NDArray[np.floating]] = []
    done = 0
    total = 0 if rows is None else -(-rows // batch_size)
    with (
        _watched(network, layer, pool) as seen,
        _ready(network, device) as (where, kind),
        torch.inference_mode(),
        track("features", total, progress if total else False) as step,
    ):
        for batch in batches_of(images, batch_size):
            # A copy: the transform, or the first layer, may write into its input.
            prepared = prepare(batch.to(where, copy=True))
            if prepared.is_floating_point() and kind is not None:
                prepared = prepared.to(kind)
            seen.clear()
            output = model(prepared)
            features = _last(seen, layer) if layer is not None else _pooled(output, pool)
            _check_rows(features, len(batch), layer)
            out.append(_numbers(features, dtype, done))
            done += len(batch)
            step("")
    if not out:
        raise ValueError("there are no images")
    return _joined(out)


def _network_of(model: object) -> nn.Module | None:
    """The module, or the module whose method it is; a plain function has none."""
    if isinstance(model, nn.Module):
        return model
    if not callable(model):
        raise ValueError(f"model must be an nn.Module or a function; got {type(model).__name__}")
    owner = getattr(model, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


@contextmanager
def _ready(
    network: nn.Module | None, device: str | torch.device
) -> Iterator[tuple[torch.device, torch.dtype | None]]:
    """The network in eval mode on the device; then as it was. Yields where, and its float type."""
    tensors = [] if network is None else [*network.parameters(), *network.buffers()]
    homes = {tensor.device for tensor in tensors}
    kinds = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    kind = kinds[0] if kinds else None
    home = tensors[0].device if tensors else torch.device("cpu")
    if len(homes) > 1:  # spread over several devices by someone who knew why
        where = home
    elif device == "auto":
        spare = home.type == "cpu" and network is not None and torch.cuda.is_available()
        where = torch.device("cuda") if spare else home
    else:
        where = device_of(device, torch.empty(0))
    if where.type == "meta":  # moving there and back would lose the weights
        raise ValueError('device "meta" computes nothing; take "auto", "cpu" or "cuda"')
    if network is None:
        yield where, None
        return
    modes = [(module, module.training) for module in network.modules()]
    try:
        network.eval()
        if len(homes) == 1 and where != home:
            network.to(where)
        yield where, kind
    finally:
        if len(homes) == 1 and where != home:
            network.to(home)
        for module, training in modes:  # each its own: a frozen layer in a training network stays
            module.training = training


@contextmanager
def _watched(
    network: nn.Module | None, layer: str | None, pool: Pool
) -> Iterator[list[Tensor | ValueError]]:
    """Yields a list that receives what the layer puts out, pooled."""
    seen: list[Tensor | ValueError] = []
    if layer is None:
        yield seen
        return
    if network is None:
        raise ValueError(f"layer = {layer!r} needs an nn.Module; the model is a plain function")

    def watch(module: nn.Module, inputs: object, output: object) -> None:
        # At once and by copy: a later layer may write into the same memory (ReLU(inplace=True)).
        try:
            seen.append(_pooled(output, pool).clone())
        except ValueError as error:  # of a call that is not the last one, perhaps
            seen.append(error)

    handle = _layer(network, layer).register_forward_hook(watch)
    try:
        yield seen
    finally:
        handle.remove()


def _layer(network: nn.Module, name: str) -> nn.Module:
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


def _last(seen: list[Tensor | ValueError], layer: str | None) -> Tensor:
    if not seen:
        raise ValueError(f"the model ran without its layer {layer!r}; name one that it runs")
    if isinstance(seen[-1], ValueError):
        raise ValueError(f"layer {layer!r}: {seen[-1]}")
    return seen[-1]


def _pooled(output: object, pool: Pool) -> Tensor:
    """A matrix (rows, features) of what a layer or a model gave."""
    x = _tensor_in(output)
    if callable(pool):
        x = pool(x)
        if x.ndim != 2:
            raise ValueError(f"pool must give (rows, features); got shape {tuple(x.shape)}")
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
    """The tensor of an output that may be a tuple, a dictionary or an object of them."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        named = [output[key] for key in OUTPUTS if isinstance(output.get(key), Tensor)]
        inside = [*named, *output.values()]
    elif isinstance(output, list | tuple):
        inside = list(output)
    else:
        inside = [getattr(output, key, None) for key in OUTPUTS]
    tensors = [value for value in inside if isinstance(value, Tensor)]
    if not tensors:
        raise ValueError(f"no tensor in the output, which is a {type(output).__name__}")
    return tensors[0]


def _check_rows(features: Tensor, rows: int, layer: str | None) -> None:
    if len(features) != rows:
        raise ValueError(
            f"{'the model' if layer is None else f'layer {layer!r}'} gave {len(features)} rows for "
            f"{rows} images; the first axis must be the images'"
        )


def _numbers(features: Tensor, dtype: str, before: int) -> NDArray[np.floating]:
    plain = features.to(device="cpu", dtype=torch.float32)
    if not bool(torch.isfinite(plain).all()):
        at = int((~torch.isfinite(plain)).any(dim=1).nonzero()[0])
        raise ValueError(
            f"the features of image {before + at} are not finite; look at its pixels, and at the "
            "model's weights"
        )
    if dtype == "float16":
        half = plain.to(torch.float16)
        if not bool(torch.isfinite(half).all()):
            raise ValueError(
                f"features up to {float(plain.abs().max()):.3g} do not fit into float16; "
                'take dtype="float32"'
            )
        return np.asarray(half.numpy())
    return np.asarray(plain.numpy())


def _joined(parts: list[NDArray[np.floating]]) -> NDArray[np.floating]:
    """The parts as one array. Each is let go once it is copied, so memory is not needed twice."""
    whole = np.empty((sum(map(len, parts)), parts[0].shape[1]), dtype=parts[0].dtype)
    end = len(whole)
    while parts:
        part = parts.pop()
        whole[end - len(part) : end] = part
        end -= len(part)
    return whole


def _preparation(
    transform: Callable[[Tensor], Tensor] | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    size: int | None,
) -> Callable[[Tensor], Tensor]:
    """What is done to a batch before the model sees it."""
    if transform is not None:
        given = {"mean": mean, "std": std, "size": size}
        also = [name for name, value in given.items() if value is not None]
        if also:
            raise ValueError(
                f"transform does all of the preparation; leave out {' and '.join(also)}"
            )
        return transform
    if size is not None:
        check_count(size, "size")
    if std is not None and not all(value > 0 for value in std):
        raise ValueError(f"std must be positive; got {list(std)}")

    def prepare(batch: Tensor) -> Tensor:
        x = batch.to(torch.float32) / 255 if batch.dtype == torch.uint8 else batch
        if size is not None:
            x = resized(x, size)
        if mean is not None:
            x = x - _for_channels(mean, "mean", x)
        if std is not None:
            x = x / _for_channels(std, "std", x)
        return x

    return prepare


def _for_channels(values: Sequence[float], name: str, x: Tensor) -> Tensor:
    if len(values) not in (1, x.shape[1]):
        raise ValueError(f"{name} has {len(values)} values, but the images {x.shape[1]} channels")
    return torch.tensor(list(values), dtype=x.dtype, device=x.device)[:, None, None]
