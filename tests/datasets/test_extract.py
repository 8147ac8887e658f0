"""Features equal those of a direct forward pass, and the network is unchanged afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from small_networks import TOLERANCE, Clip, ContainerOutput, ResNet, ViT, seeded
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from shortlist.datasets import Images, extract_features

PIXELS = np.random.default_rng(0).integers(0, 256, (11, 16, 16, 3), dtype=np.uint8)
FLOATS = torch.from_numpy(PIXELS).permute(0, 3, 1, 2) / 255


def by_hand(function: Callable[[Tensor], Tensor], network: nn.Module) -> np.ndarray:
    network.eval()
    with torch.no_grad():
        return function(FLOATS.clone()).numpy()


def close(a: np.ndarray, b: np.ndarray) -> None:
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)


# Equality with a direct forward pass


def test_the_output_of_the_model() -> None:
    net = seeded(ResNet)
    close(extract_features(net, PIXELS), by_hand(net, net))


def test_a_layer_of_a_residual_network() -> None:
    net = seeded(ResNet)
    expected = by_hand(lambda x: net.layer1(net.stem(x)).mean((2, 3)), net)
    close(extract_features(net, PIXELS, "layer1"), expected)
    close(extract_features(net, PIXELS, "pool"), expected)
    close(extract_features(net, PIXELS, "layer1.1.relu"), expected)
    close(
        extract_features(net, PIXELS, "layer1.0"),
        by_hand(lambda x: net.layer1[0](net.stem(x)).mean((2, 3)), net),
    )


def test_a_layer_whose_output_is_overwritten_later() -> None:
    net = seeded(ResNet)
    block = net.layer1[1]
    expected = by_hand(lambda x: block.bn(block.conv(net.layer1[0](net.stem(x)))).mean((2, 3)), net)
    features = extract_features(net, PIXELS, "layer1.1.bn")
    close(features, expected)
    assert not np.allclose(features, extract_features(net, PIXELS, "layer1.1"))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(768, 6), nn.ReLU(inplace=True))
    close(extract_features(flat, PIXELS, "1"), by_hand(flat[:2], flat))


def test_tokens() -> None:
    net = seeded(ViT)
    tokens = by_hand(net, net)
    assert tokens.ndim == 3
    close(extract_features(net, PIXELS), tokens[:, 0])
    close(extract_features(net, PIXELS, pool="mean"), tokens.mean(1))
    close(extract_features(net, PIXELS, "block", pool="mean"), tokens.mean(1))
    close(extract_features(net, PIXELS, pool=lambda x: x[:, 1]), tokens[:, 1])
    close(
        extract_features(net, PIXELS, "patches"),
        by_hand(lambda x: net.patches(x).mean((2, 3)), net),
    )


def test_a_method_of_a_larger_model() -> None:
    net = seeded(Clip)
    expected = by_hand(net.encode_image, net)
    net.train()
    close(extract_features(net.encode_image, PIXELS), expected)
    assert net.training
    inner = by_hand(lambda x: net.visual(x)[:, 0], net)
    close(extract_features(net.encode_image, PIXELS, "visual"), inner)
    close(extract_features(net.visual, PIXELS), inner)


@pytest.mark.parametrize("container", ["tuple", "nested tuple", "output", "object", "dictionary"])
def test_outputs_inside_a_container(container: str) -> None:
    net = seeded(ContainerOutput, container)
    close(extract_features(net, PIXELS), by_hand(net.inner, net))


def test_a_plain_function() -> None:
    close(extract_features(lambda x: x.mean((2, 3)), PIXELS), FLOATS.mean((2, 3)).numpy())
    close(
        extract_features(lambda x: x.mean((1, 2, 3)), PIXELS),
        FLOATS.mean((1, 2, 3))[:, None].numpy(),
    )


class Shared(nn.Module):
    """A network that calls one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(self.mix(x).relu()) + 1


def test_the_last_output_of_a_layer_that_runs_twice() -> None:
    net = seeded(Shared)
    expected = by_hand(lambda x: net.mix(net.mix(x).relu()).mean((2, 3)), net)
    close(extract_features(net, PIXELS, "mix"), expected)


# Types of input


class Pairs(Dataset):  # type: ignore[type-arg]
    """A Dataset that is not iterable."""

    def __len__(self) -> int:
        return len(PIXELS)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return FLOATS[row], row


def generator() -> Iterator[np.ndarray]:
    yield from PIXELS


INPUTS: dict[str, Callable[[], object]] = {
    "bytes": lambda: PIXELS,
    "bytes, a view": lambda: np.ascontiguousarray(PIXELS[::-1])[::-1],
    "bytes, torch": lambda: torch.from_numpy(PIXELS),
    "bytes, channels first": lambda: np.ascontiguousarray(PIXELS.transpose(0, 3, 1, 2)),
    "floats": FLOATS.numpy,
    "doubles": lambda: FLOATS.double().numpy(),
    "floats, torch": lambda: FLOATS,
    "Images": lambda: Images(PIXELS, np.zeros(11, int), np.arange(1)),
    "list of arrays": lambda: list(PIXELS),
    "list of tensors": lambda: list(FLOATS),
    "list of batches": lambda: [FLOATS[:4], FLOATS[4:9], FLOATS[9:]],
    "generator": generator,
    "Pillow": lambda: [Image.fromarray(image) for image in PIXELS],
    "dictionaries": lambda: [{"label": 1, "image": Image.fromarray(image)} for image in PIXELS],
    "Dataset": Pairs,
    "DataLoader": lambda: DataLoader(Pairs(), batch_size=3),
}


@pytest.mark.parametrize("source", list(INPUTS))
def test_every_type_of_input(source: str) -> None:
    net = seeded(ResNet)
    close(extract_features(net, INPUTS[source](), batch_size=4), by_hand(net, net))


@given(st.integers(1, 13), st.sampled_from([None, "layer1", "fc"]))
@settings(max_examples=15, deadline=None)
def test_features_do_not_depend_on_the_batch_size(batch_size: int, layer: str | None) -> None:
    net = seeded(ResNet)
    whole = extract_features(net, PIXELS, layer, batch_size=100)
    close(extract_features(net, PIXELS, layer, batch_size=batch_size), whole)
    close(extract_features(net, PIXELS[3:5], layer), whole[3:5])


# Preprocessing


def test_the_default_preprocessing() -> None:
    inputs: list[Tensor] = []

    def model(x: Tensor) -> Tensor:
        inputs.append(x)
        return x.mean((2, 3))

    mean, std = [0.1, 0.2, 0.3], [2.0, 4.0, 8.0]
    extract_features(model, PIXELS, mean=mean, std=std)
    expected = (PIXELS.astype(np.float64) / 255 - mean) / std
    np.testing.assert_allclose(inputs[0].numpy(), expected.transpose(0, 3, 1, 2), atol=1e-6)


@pytest.mark.parametrize(("height", "width", "size"), [(16, 16, 8), (16, 24, 16), (30, 20, 40)])
def test_images_are_resized_and_cropped(height: int, width: int, size: int) -> None:
    shapes: list[tuple[int, ...]] = []

    def model(x: Tensor) -> Tensor:
        shapes.append(tuple(x.shape))
        return x.flatten(1)

    ramp = np.zeros((1, height, width, 3), np.uint8)
    ramp[:] = np.linspace(0, 255, width).astype(np.uint8)[:, None]
    row = extract_features(model, ramp, size=size).reshape(3, size, size)[0, size // 2]
    assert shapes == [(1, 3, size, size)]
    assert (np.diff(row) >= -1e-6).all()
    cropped_range = min(height, width) / width  # The center of the ramp, which is from 0 to 1.
    assert abs(row.mean() - 0.5) < 0.02
    assert abs((row[-1] - row[0]) - cropped_range) < 2.5 / min(size, width)


def test_a_transform_replaces_all_preprocessing() -> None:
    batches: list[Tensor] = []

    def transform(batch: Tensor) -> Tensor:
        batches.append(batch)
        return batch[:, :, :8, :8].double() / 255 - 1

    features = extract_features(seeded(ResNet), PIXELS, transform=transform, batch_size=4)
    assert [tuple(x.shape) for x in batches] == [(4, 3, 16, 16), (4, 3, 16, 16), (3, 3, 16, 16)]
    assert {x.dtype for x in batches} == {torch.uint8}
    net = seeded(ResNet)
    close(features, by_hand(lambda x: net(x[:, :, :8, :8] - 1), net))
    with pytest.raises(ValueError, match=r"transform does all.*leave out mean and size"):
        extract_features(net, PIXELS, transform=transform, mean=[0.5], size=3)


def test_types() -> None:
    net = seeded(ResNet)
    single, half = (extract_features(net, PIXELS, dtype=t) for t in ("float32", "float16"))  # type: ignore[arg-type]
    assert (single.dtype, half.dtype) == (np.float32, np.float16)
    np.testing.assert_array_equal(single.astype(np.float16), half)
    coarse = extract_features(seeded(ResNet).to(torch.bfloat16), PIXELS)
    np.testing.assert_allclose(coarse, single, atol=0.05)
    with pytest.raises(ValueError, match="do not fit into float16"):
        extract_features(lambda x: x.mean((2, 3)) * 1e6, PIXELS, dtype="float16")


# The network is unchanged


def state(net: nn.Module) -> list[object]:
    return [
        [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in net.modules()],
        [(p.device, p.requires_grad, p.grad, p.dtype) for p in net.parameters()],
        [v.tolist() for v in net.state_dict().values()],
        [id(p) for p in net.parameters()],
    ]


class FailsInThirdBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.count = ResNet(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        if self.count == 3:
            raise RuntimeError("third batch")
        return self.inner(x)


@pytest.mark.parametrize("training", [True, False])
def test_mode_hooks_gradients_and_statistics_are_restored(training: bool) -> None:
    net = seeded(FailsInThirdBatch)
    net.train(training)
    net.inner.layer1[0].bn.train(not training)  # One layer differs in mode, as if it were frozen.
    before = state(net)
    with pytest.raises(RuntimeError, match="third batch"):
        extract_features(net, PIXELS, "inner.layer1", batch_size=2)
    assert state(net) == before
    features = extract_features(net, PIXELS, "inner.layer1", batch_size=2)
    assert state(net) == before
    assert isinstance(features, np.ndarray)
    net.inner(FLOATS).sum().backward()  # The network can still be trained.
    assert net.inner.fc.weight.grad is not None


@pytest.mark.parametrize("images", [PIXELS.copy(), FLOATS.clone(), FLOATS.numpy().copy()])
def test_images_are_unchanged(images: np.ndarray | Tensor) -> None:
    before = images.copy() if isinstance(images, np.ndarray) else images.clone()
    net = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten())
    extract_features(net, images, transform=lambda x: x.float().mul_(2).sub_(1))
    extract_features(net, images, mean=[1.0, 1, 1])
    extract_features(net, images)
    assert bool((images == before).all())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_network_is_moved_to_a_gpu_and_back() -> None:
    net = seeded(ResNet)
    before = state(net)
    devices: list[str] = []
    net.fc.register_forward_hook(lambda m, i, o: devices.append(o.device.type))
    features = extract_features(net, PIXELS)
    assert devices == ["cuda"]
    assert [p.device.type for p in net.parameters()] == ["cpu"] * len(list(net.parameters()))
    net.fc._forward_hooks.clear()
    assert state(net) == before
    np.testing.assert_allclose(features, by_hand(net, net), atol=1e-3)


def test_a_device_by_name() -> None:
    net = seeded(ResNet)
    close(extract_features(net, PIXELS, device="cpu"), by_hand(net, net))
    with pytest.raises(ValueError, match="device = 'nowhere' is not available"):
        extract_features(net, PIXELS, device="nowhere")


def test_another_device_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, the device cpu:0 stands for a device other than cpu."""
    monkeypatch.setattr(
        "shortlist.datasets.images.extraction.resolve_device",
        lambda device, x: torch.device("cpu", 0),
    )
    devices: list[str] = []

    class RecordsDevices(FailsInThirdBatch):
        def to(self, device: torch.device) -> RecordsDevices:  # type: ignore[override]
            devices.append(str(device))
            return self

    net = seeded(RecordsDevices)
    with pytest.raises(RuntimeError, match="third batch"):
        extract_features(net, PIXELS, device="cpu:0", batch_size=2)
    assert devices == ["cpu:0", "cpu"]


def test_the_meta_device_is_refused() -> None:
    net = seeded(ResNet)
    with pytest.raises(ValueError, match='device "meta" computes nothing'):
        extract_features(net, PIXELS, device="meta")
    close(extract_features(net, PIXELS), by_hand(net, net))


# Errors


def test_an_unknown_layer() -> None:
    net = seeded(ResNet)
    with pytest.raises(ValueError, match=r"no layer 'layer1\.2' among its 14; .*'layer1\.1'"):
        extract_features(net, PIXELS, "layer1.2")
    with pytest.raises(ValueError, match=r"no layer 'bn' .*did you mean 'layer1\.0\.bn'"):
        extract_features(net, PIXELS, "bn")
    with pytest.raises(ValueError, match=r"see model\.named_modules"):
        extract_features(net, PIXELS, "qqqqq")
    with pytest.raises(ValueError, match="ran without its layer 'unused'"):
        extract_features(net, PIXELS, "unused")
    with pytest.raises(ValueError, match="the model is a plain function"):
        extract_features(lambda x: x, PIXELS, "fc")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (PIXELS[0], r"four axes.*got shape \(16, 16, 3\): images\[\.\.\., None\]\?"),
        (PIXELS[:, :, :, :2], r"1, 3 or 4 channels; got shape \(11, 16, 16, 2\)"),
        (PIXELS / 255, r"floats must be \(rows, channels.*np\.moveaxis"),
        (PIXELS.astype(int), "must be bytes .*or floats; got dtype torch.int64"),
        (PIXELS[:0], "there are no images"),
        ([], "there are no images"),
        (iter([]), "there are no images"),
        ([PIXELS[0], PIXELS[0, :8]], r"differ in shape \(\(8, 16, 3\) and \(16, 16, 3\)\)"),
        ([{"picture": PIXELS[0]}], "none of pixel_values, image.*; it has picture"),
        ([PIXELS[0, 0, 0]], r"an image must have two or three axes.*\(3,\)"),
        (7, "Dataset or an iterable of images; got int"),
    ],
)  # fmt: skip
def test_wrong_images(images: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        extract_features(lambda x: x.mean((2, 3)), images)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch_size must be an integer of at least 1; got 0"),
        ({"pool": "max"}, "pool must be one of 'cls', 'mean'; got 'max'"),
        ({"dtype": "float64"}, "dtype must be one of 'float32', 'float16'; got 'float64'"),
        ({"mean": [1.0, 2.0]}, "mean has 2 values, but the images 3 channels"),
        ({"std": [1.0, 0.0, 1.0]}, r"std must be positive; got \[1\.0, 0\.0, 1\.0\]"),
        ({"size": 0}, "size must be an integer"),
        ({"progress": "yes"}, "progress must be True"),
        ({"pool": lambda x: x}, r"must return \(rows, features\); got shape \(11, 3, 16, 16\)"),
        ({"transform": lambda x: x.float().repeat(2, 1, 1, 1)}, "22 rows for 11 images"),
        ({"transform": lambda x: x.float() / 0}, "features of image 0 are not finite"),
    ],
)
def test_wrong_settings(wrong: dict[str, object], message: str) -> None:
    def model(x: Tensor) -> Tensor:
        return x

    with pytest.raises(ValueError, match=message):
        extract_features(model, PIXELS, **wrong)  # type: ignore[arg-type]


def test_the_image_with_infinite_features_is_named() -> None:
    def model(x: Tensor) -> Tensor:
        return x.mean((2, 3)).log()

    images = PIXELS.copy()
    images[6] = 0
    with pytest.raises(ValueError, match="features of image 6 are not finite"):
        extract_features(model, images, batch_size=4)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: "text", "no tensor in the output, which is a str"),
        (lambda x: x[None], r"got shape \(1, 11, 3, 16, 16\)"),
        (lambda x: x.transpose(0, 1), "returned 3 rows for 11 images"),
        ("resnet", "model must be an nn.Module or a function; got str"),
    ],
)
def test_wrong_models(model: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        extract_features(model, PIXELS)  # type: ignore[arg-type]
