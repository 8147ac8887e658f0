"""From an archive of images and a network to a feature file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.arrays import check_choice, check_count, check_probability
from shortlist.datasets.cifar import read_cifar10, read_cifar100
from shortlist.datasets.extraction import extract_features
from shortlist.datasets.feature_files import check_target, save
from shortlist.datasets.image_folder import read_image_folder
from shortlist.datasets.images import Images
from shortlist.datasets.networks import build
from shortlist.datasets.samples import FeatureFile, Samples
from shortlist.datasets.svhn import read_svhn

FORMATS = ("cifar10", "cifar100", "svhn", "folder")
TEST_SHARE = 0.2
"""The part kept for testing of a folder that has no such part of its own."""


@dataclass(frozen=True)
class Recipe:
    """What `shortlist features` is told; see its help."""

    images: Path
    output: Path
    model: str
    layer: str | None = None
    form: str = "auto"
    weights: Path | None = None
    select_share: float = 0.4
    size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    batch_size: int = 256
    device: str = "auto"
    seed: int = 0
    force: bool = False

    def make(self) -> FeatureFile:
        """Read the images, run the network on them, write the feature file."""
        check_target(self.output, overwrite=self.force)
        check_probability(self.select_share, "select_share")
        check_count(self.seed, "seed", least=0)
        form = format_of(self.images) if self.form == "auto" else self.form
        check_choice(form, "format", list(FORMATS))
        backbone = build(self.model, self.weights)
        as_published = self.size is None and self.mean is None and self.std is None
        transform = backbone.transform if as_published else None
        size = self.size or backbone.size
        train, test = read_parts(self.images, form, backbone.decoded if transform else size)

        def extract(images: Images) -> NDArray[np.floating]:
            return extract_features(
                backbone.network,
                images,
                self.layer,
                batch_size=self.batch_size,
                device=self.device,
                transform=transform,
                mean=None if transform else self.mean or backbone.mean,
                std=None if transform else self.std or backbone.std,
                size=None if transform else size,
            )

        file = feature_file(
            extract,
            train,
            test,
            select_share=self.select_share,
            seed=self.seed,
            name=self.output.stem,
        )
        save(self.output, file, overwrite=self.force)
        return file


def format_of(path: Path) -> str:
    """Which of the formats an archive or a folder has, by the names in it."""
    if not path.exists():
        raise FileNotFoundError(f"there is nothing at {str(path)!r}")
    if path.is_file():
        signs = {
            "cifar100": "cifar-100" in path.name,
            "cifar10": "cifar-10" in path.name,
            "svhn": path.name.endswith("_32x32.mat"),
        }
    else:
        signs = {
            "cifar100": _holds(path, "cifar-100-python", "meta"),
            "cifar10": _holds(path, "cifar-10-batches-py", "batches.meta"),
            "svhn": any(path.glob("*_32x32.mat")),
            "folder": any(f.is_dir() and not f.name.startswith(".") for f in path.iterdir()),
        }
    found = next((name for name, there in signs.items() if there), None)
    if found is None:
        raise ValueError(
            f"{path} looks like none of {', '.join(FORMATS)}; say which with --format, or give "
            "a folder with one folder for each class"
        )
    return found


def read_parts(path: Path, form: str, size: int | None = None) -> tuple[Images, Images | None]:
    """The images to train on, and those to test if the archive has such a part."""
    check_choice(form, "format", list(FORMATS))
    if form == "cifar10":
        return read_cifar10(path), read_cifar10(path, "test")
    if form == "cifar100":
        return read_cifar100(path), read_cifar100(path, "test")
    if form == "svhn":
        return read_svhn(path), read_svhn(path, "test") if path.is_dir() else None
    if not (path / "train").is_dir():
        return read_image_folder(path, size=size), None
    train = read_image_folder(path / "train", size=size)
    names = [str(name) for name in train.classes]
    for part in ("test", "val"):
        if (path / part).is_dir():
            return train, read_image_folder(path / part, size=size, classes=names)
    return train, None


def feature_file(
    extract: Callable[[Images], NDArray[np.floating]],
    train: Images,
    test: Images | None,
    *,
    select_share: float = 0.4,
    seed: int = 0,
    name: str = "",
) -> FeatureFile:
    """Features of all images, in parts to fit, to select and to test.

    `select` is a random share of what there is to train on. Without a part to test on, a fifth of
    all is kept for that first.

    >>> import numpy as np
    >>> data = Images(np.zeros((100, 8, 8, 3), np.uint8), np.arange(100) % 5, np.arange(5))
    >>> file = feature_file(lambda images: np.zeros((len(images), 7)), data, None)
    >>> file.fit, len(file.select), len(file.test)
    (Samples(48 × 7, 5 classes), 32, 20)
    """
    check_probability(select_share, "select_share")
    kept = 0 if test is not None else round(TEST_SHARE * len(train))
    selected = round(select_share * (len(train) - kept))
    fitted = len(train) - kept - selected
    if min(fitted, selected) < 1 or (test is None and kept < 1):
        raise ValueError(
            f"{len(train)} images are too few for parts of {fitted} to fit, {selected} to select"
            + (f" and {kept} to test" if test is None else "")
        )
    known = Samples(extract(train), train.y, train.classes)
    fit, select, *rest = known.split(fitted, selected, seed=seed)
    judge = rest[0] if test is None else Samples(extract(test), test.y, train.classes)
    return FeatureFile(fit, select, judge, name)


def _holds(path: Path, folder: str, member: str) -> bool:
    return (path / folder / member).is_file() or (path / member).is_file()
