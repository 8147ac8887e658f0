"""The command `shortlist features` creates feature files from archives and folders of images."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import types
from pathlib import Path

import archives
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from scipy.io import savemat
from small_networks import TOLERANCE, ResNet, seeded
from typer.testing import CliRunner

import shortlist as sl
from shortlist.cli import app
from shortlist.datasets import FeatureFile, extract_features, load, read_cifar10

MODEL = "small_networks:ResNet"
"""A model with random weights. Tests that compare two runs give it weights from a file."""


def run_features(*arguments: object):
    return CliRunner().invoke(app, ["features", *map(str, arguments)])


def build(path: Path, *arguments: object) -> FeatureFile:
    """Run the command, and return the feature file that it writes."""
    result = run_features(*arguments, "-o", path)
    assert result.exit_code == 0, result.output
    return load(path)


def error_of(*arguments: object) -> str:
    """Run the command, and return its error, which must be one line."""
    result = run_features(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("shortlist: ")
    return line


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    return archives.tar(tmp_path / "cifar-10-python.tar.gz", archives.cifar10(per_batch=10))


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights.safetensors"
    save_file(seeded(ResNet).state_dict(), path)
    return path


def test_an_archive_becomes_a_feature_file(cifar: Path, weights: Path, tmp_path: Path) -> None:
    options = ["--layer", "layer1", "--weights", weights, "--size", 24, "--seed", 3]
    options += ["--mean", 0.1, 0.2, 0.3, "--std", 1, 2, 4, "--batch-size", 7]
    file = build(tmp_path / "mine.npz", cifar, "--model", MODEL, *options)
    assert (len(file.fit), len(file.select), len(file.test)) == (30, 20, 10)
    assert file.classes.tolist() == archives.NAMES10

    def by_hand(part: str) -> np.ndarray:
        images = read_cifar10(cifar, part)  # type: ignore[arg-type]
        settings = {"mean": (0.1, 0.2, 0.3), "std": (1.0, 2.0, 4.0), "size": 24}
        return extract_features(seeded(ResNet), images, "layer1", **settings)  # type: ignore[arg-type]

    np.testing.assert_allclose(file.test.x, by_hand("test"), atol=TOLERANCE)
    assert file.test.y.tolist() == read_cifar10(cifar, "test").y.tolist()
    # The splits fit and select are the training images in another order, with their labels.
    x, y = np.concatenate([file.fit.x, file.select.x]), np.concatenate([file.fit.y, file.select.y])
    known = by_hand("train")
    order = [int(np.abs(known - row).sum(1).argmin()) for row in x]
    assert sorted(order) == list(range(50))
    assert order != sorted(order)
    np.testing.assert_allclose(x, known[order], atol=TOLERANCE)
    assert y.tolist() == read_cifar10(cifar).y[order].tolist()


def test_seed_and_select_share(cifar: Path, weights: Path, tmp_path: Path) -> None:
    options = [cifar, "--model", MODEL, "--weights", weights]
    a = build(tmp_path / "a.npz", *options)
    b = build(tmp_path / "b.npz", *options)
    c = build(tmp_path / "c.npz", *options, "--seed", 1, "--select-share", 0.1)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert len(c.select) == 5
    assert not np.array_equal(a.fit.x[:5], c.fit.x[:5])
    assert np.array_equal(a.test.x, c.test.x)
    assert np.array_equal(a.fit.x, b.fit.x)


def test_cifar100_and_svhn(tmp_path: Path) -> None:
    path = archives.unpacked(tmp_path / "cifar-100-python", archives.cifar100())
    file = build(tmp_path / "a.npz", path, "--model", MODEL)
    assert (len(file.fit), len(file.select), len(file.test), len(file.classes)) == (4, 2, 6, 100)
    rng = np.random.default_rng(0)
    for part, rows in (("train", 10), ("test", 5)):
        x = rng.integers(0, 256, (32, 32, 3, rows), dtype=np.uint8)
        y = np.arange(1, rows + 1)[:, None]
        savemat(tmp_path / f"{part}_32x32.mat", {"X": x, "y": y})
    file = build(tmp_path / "b.npz", tmp_path, "--model", MODEL, "--format", "svhn")
    assert (len(file.fit), len(file.select), file.test.y.tolist()) == (6, 4, [1, 2, 3, 4, 5])
    train_only = build(tmp_path / "c.npz", tmp_path / "train_32x32.mat", "--model", MODEL)
    assert (len(train_only.fit), len(train_only.select), len(train_only.test)) == (5, 3, 2)


def write_image_folder(path: Path, classes: str, rows: int) -> Path:
    """Write images of different sizes in a folder for each class."""
    rng = np.random.default_rng(0)
    for name in classes:
        (path / name).mkdir(parents=True)
        for i in range(rows):
            pixels = rng.integers(0, 256, (20 + i, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path / name / f"{i}.png")
    return path


@pytest.mark.parametrize("test", ["test", "val", None])
def test_folders(test: str | None, tmp_path: Path) -> None:
    images = tmp_path / "images"
    if test is None:
        write_image_folder(images, "abc", 10)
    else:
        write_image_folder(images / "train", "abc", 5)
        write_image_folder(images / test, "bc", 2)
    file = build(tmp_path / "mine.npz", images, "--model", MODEL, "--size", 16)
    assert file.classes.tolist() == ["a", "b", "c"]
    if test is None:
        assert (len(file.fit), len(file.select), len(file.test)) == (14, 10, 6)
    else:
        assert (len(file.fit), len(file.select)) == (9, 6)
        assert file.test.y.tolist() == [1, 1, 2, 2]


def test_images_that_differ_in_size_need_the_option(tmp_path: Path) -> None:
    images = write_image_folder(tmp_path / "images", "ab", 5)
    line = error_of(images, "-o", tmp_path / "x.npz", "--model", MODEL)
    assert "give size=... to resize them" in line


def test_a_model_in_a_file_and_all_formats_of_weights(cifar: Path, tmp_path: Path) -> None:
    (tmp_path / "sibling.py").write_text("from torch import nn\nWIDTH = 6\n")
    (tmp_path / "my_model.py").write_text(
        "from sibling import WIDTH, nn\n"
        "def net():\n    return nn.Sequential(nn.Conv2d(3, WIDTH, 3), nn.ReLU())\n"
    )
    spec = f"{tmp_path / 'my_model.py'}:net"
    before = list(sys.path)
    torch.manual_seed(5)
    state = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3)).state_dict()
    save_file(state, tmp_path / "w.safetensors")
    torch.save(state, tmp_path / "w.pt")
    torch.save({"epoch": 3, "state_dict": state}, tmp_path / "wrapped.pth")
    torch.save({f"module.{k}": v for k, v in state.items()}, tmp_path / "parallel.bin")
    files = [
        build(tmp_path / f"{i}.npz", cifar, "--model", spec, "--weights", tmp_path / name)
        for i, name in enumerate(["w.safetensors", "w.pt", "wrapped.pth", "parallel.bin"])
    ]
    assert files[0].fit.x.shape == (30, 6)
    for file in files[1:]:
        assert np.array_equal(files[0].fit.x, file.fit.x)
    assert sys.path == before


@pytest.mark.filterwarnings("ignore:the scores carry almost no information")
def test_the_printed_python_code_runs(cifar: Path, tmp_path: Path) -> None:
    path = tmp_path / "it's mine.npz"
    archives.tar(cifar, archives.cifar10(per_batch=200))
    result = run_features(cifar, "--model", MODEL, "-o", path)
    first, rest = result.stdout.split("\n", 1)
    assert re.fullmatch(
        re.escape(f"{path}: 5 features, 10 classes; 600 rows to fit, 400 to select, 200 to test")
        + r"   \(\d+ s\)",
        first,
    )
    code = textwrap.dedent(rest.split("Next, in Python:\n")[1])
    # The complete comparison is slow, so only its arguments are evaluated.
    code = code.replace("comparison = sl.compare(", "comparison = dict(").replace(
        "scores[0], file.select.y, features", "a=scores[0], b=file.select.y, features"
    )
    namespace: dict[str, object] = {}
    exec(code, namespace)
    inputs = namespace["comparison"]
    assert isinstance(inputs, dict)
    assert inputs["a"].shape == (400, 10)
    assert [len(part) for part in inputs["test"]] == [200, 200, 200]
    methods = {"LAC": sl.SplitConformal("lac")}
    sl.compare(inputs["a"], inputs["b"], inputs["features"], test=inputs["test"], methods=methods)


def test_a_file_is_overwritten_only_with_force(cifar: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    path.write_text("existing")
    line = error_of(
        cifar, "-o", path, "--model", "nothing.at.all:f"
    )  # found before anything is done
    assert "mine.npz' exists already; give another path, or use --force" in line
    assert "--force" in line
    assert path.read_text() == "existing"
    # A run that fails keeps the existing file, even with --force.
    error_of(cifar, "-o", path, "--model", MODEL, "--layer", "nothing", "--force")
    assert path.read_text() == "existing"
    assert len(build(path, cifar, "--model", MODEL, "--force").fit) == 30
    assert sorted(os.listdir(tmp_path)) == ["cifar-10-python.tar.gz", "mine.npz"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "resnet50"], ["a model is torchvision:NAME", "got 'resnet50'"]),
        (["--model", "no_such_module:f"], ["there is no module 'no_such_module'", ".py:f"]),
        (["--model", "no_such_file.py:f"], ["there is no file at 'no_such_file.py'"]),
        (["--model", "small_networks:nothing"], ["small_networks has no function 'nothing'"]),
        (["--model", "builtins:dict"], ["returned a dict, not an nn.Module"]),
        (["--model", MODEL, "--layer", "layer2"], ["no layer 'layer2'", "'layer1'"]),
        (["--model", MODEL, "--format", "mnist"], ["format must be one of 'cifar10'", "'mnist'"]),
        (["--model", MODEL, "--format", "svhn"], ["not a readable .mat file"]),
        (["--model", MODEL, "--format", "cifar100"], ["lacks train, meta"]),
        (["--model", MODEL, "--select-share", "1"], ["select_share must lie strictly between"]),
        (["--model", MODEL, "--select-share", "0.001"], ["too few", "50 to fit, 0 to select"]),
        (["--model", MODEL, "--device", "nowhere"], ["device = 'nowhere' is not available"]),
        (["--model", MODEL, "--std", "1", "0", "1"], ["std must be positive"]),
        (["--model", MODEL, "--size", "1"], ["RuntimeError: ", "Kernel size"]),
        (["--model", MODEL, "--weights", "nothing.pt"], ["there are no weights at 'nothing.pt'"]),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], words: list[str], cifar: Path, tmp_path: Path
) -> None:
    line = error_of(cifar, "-o", tmp_path / "mine.npz", *arguments)
    for word in words:
        assert word in line
    assert os.listdir(tmp_path) == [cifar.name]


def test_wrong_paths(cifar: Path, tmp_path: Path) -> None:
    assert "must end in .npz" in error_of(cifar, "-o", tmp_path / "mine", "--model", MODEL)
    out = tmp_path / "mine.npz"
    assert "there is no file or folder at" in error_of(tmp_path / "x", "-o", out, "--model", MODEL)
    (tmp_path / "empty").mkdir()
    line = error_of(tmp_path / "empty", "-o", out, "--model", MODEL)
    assert "is not recognized as one of cifar10, cifar100, svhn, folder" in line
    (tmp_path / "file.zip").write_text("")
    assert "is not recognized as one of" in error_of(
        tmp_path / "file.zip", "-o", out, "--model", MODEL
    )


def test_weights_that_do_not_fit_or_are_malicious(cifar: Path, tmp_path: Path) -> None:
    def error_for(name: str) -> str:
        out = tmp_path / "mine.npz"
        return error_of(cifar, "-o", out, "--model", MODEL, "--weights", tmp_path / name)

    good = seeded(ResNet).state_dict()
    save_file({k: v for k, v in good.items() if k != "fc.bias"}, tmp_path / "less.safetensors")
    assert "does not fit ResNet: 1 tensors are missing (first: fc.bias)" in error_for(
        "less.safetensors"
    )
    torch.save(good | {"head": torch.zeros(1)}, tmp_path / "more.pt")
    assert "1 tensors are unknown (first: head)" in error_for("more.pt")
    save_file(good | {"fc.bias": torch.zeros(7)}, tmp_path / "other.safetensors")
    assert "fc.bias is (7,), but must be (5,)" in error_for("other.safetensors")
    torch.save([1, 2], tmp_path / "list.pt")
    assert "holds a list, not a state dict" in error_for("list.pt")
    for name in ("broken.pt", "broken.safetensors"):
        (tmp_path / name).write_text("not weights")
        assert "without running code" in error_for(name)
    torch.save(archives.Call(os.system, f"touch {tmp_path / 'mark'}"), tmp_path / "malicious.pt")
    assert "malicious.pt cannot be read as weights without running code" in error_for(
        "malicious.pt"
    )
    torch.save(seeded(ResNet), tmp_path / "whole.pt")
    assert "save model.state_dict()" in error_for("whole.pt")
    assert not (tmp_path / "mark").exists()
    assert not (tmp_path / "mine.npz").exists()


class Published:
    """The published preprocessing of torchvision weights, which here negates images."""

    mean, std = (0.1, 0.2, 0.3), (0.5, 0.5, 0.5)
    crop_size, resize_size = (14,), (18,)

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        assert batch.dtype == torch.uint8
        top = (batch.shape[-1] - 14) // 2
        return -batch[..., top : top + 14, top : top + 14] / 255


class Library(types.ModuleType):
    """A replacement for the modules torchvision.models, timm and timm.data."""

    def __init__(self) -> None:
        super().__init__("library")
        self.requests: list[tuple[str, object]] = []
        self.DEFAULT = self

    def list_models(self, module: object = None) -> list[str]:
        return ["small_one", "small_two"]

    def get_model(self, name: str, weights: str | None) -> torch.nn.Module:
        self.requests.append((name, weights))
        return seeded(ResNet)

    def create_model(self, name: str, pretrained: bool) -> torch.nn.Module:
        self.requests.append((name, pretrained))
        return seeded(ResNet)

    def get_model_weights(self, name: str) -> Library:
        return self

    def transforms(self) -> Published:
        return Published()

    def resolve_model_data_config(self, network: torch.nn.Module) -> dict[str, object]:
        return {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.5, 0.5), "input_size": (3, 14, 14)}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    for name in ("torchvision", "torchvision.models", "timm", "timm.data"):
        monkeypatch.setitem(sys.modules, name, library)
    return library


@pytest.mark.parametrize("source", ["torchvision", "timm"])
def test_published_weights_have_their_preprocessing(
    source: str, library: Library, cifar: Path, weights: Path, tmp_path: Path
) -> None:
    model = ["--model", f"{source}:small_one"]
    test = read_cifar10(cifar, "test")
    known = {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.5, 0.5), "size": 14}

    def expected(**settings: object) -> np.ndarray:
        return extract_features(seeded(ResNet), test, **settings)  # type: ignore[arg-type]

    def close(name: str, x: np.ndarray, *arguments: object) -> None:
        file = build(tmp_path / f"{name}.npz", cifar, *model, *arguments)
        np.testing.assert_allclose(file.test.x, x, atol=TOLERANCE)

    published = {"transform": Published()} if source == "torchvision" else known
    close("published", expected(**published))
    # An option replaces one of the published values, and the others stay.
    close("size", expected(**known | {"size": 20}), "--size", 20)
    close("std", expected(**known | {"std": (1.0, 2.0, 3.0)}), "--std", 1, 2, 3)
    # Weights from a file have no published preprocessing.
    close("own", expected(), "--weights", weights)
    expected_weights = ["DEFAULT", "DEFAULT", "DEFAULT", None]
    if source == "timm":
        expected_weights = [True, True, True, False]  # type: ignore[list-item]
    assert library.requests == [("small_one", weights) for weights in expected_weights]
    line = error_of(cifar, "-o", tmp_path / "x.npz", "--model", f"{source}:smal_one")
    assert f"{source} has no model 'smal_one' among its 2; did you mean 'small_one'" in line


@pytest.mark.parametrize("source", ["torchvision", "timm"])
def test_published_weights_that_are_not_available(
    source: str, library: Library, cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*args: object, **kwargs: object) -> None:
        raise OSError("no route\nto host")

    for name in ("get_model", "create_model"):
        monkeypatch.setattr(library, name, fetch)
    line = error_of(cifar, "-o", tmp_path / "x.npz", "--model", f"{source}:small_one")
    assert "published weights of small_one are not available (no route); download them" in line


def test_files_are_decoded_at_the_published_size(library: Library, tmp_path: Path) -> None:
    """Images that differ in size need no --size if the weights have a published size."""
    images = write_image_folder(tmp_path / "images", "ab", 5)
    for source in ("torchvision", "timm"):
        file = build(tmp_path / f"{source}.npz", images, "--model", f"{source}:small_two")
        assert file.fit.x.shape == (5, 5)


@pytest.mark.parametrize("source", ["torchvision", "timm"])
def test_libraries_that_are_not_installed(
    source: str, cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, source, None)  # type: ignore[arg-type]
    line = error_of(cifar, "-o", tmp_path / "x.npz", "--model", f"{source}:resnet18")
    assert f"models of {source} need {source}: pip install {source}" in line
