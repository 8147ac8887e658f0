"""Feature files from an archive of images and a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.validation import check_choice, check_count, check_probability
from shortlist.datasets.feature_files import check_name, save
from shortlist.datasets.images.cifar import read_cifar10, read_cifar100
from shortlist.datasets.images.containers import Images
from shortlist.datasets.images.extraction import extract_features
from shortlist.datasets.images.folder import read_image_folder
from shortlist.datasets.images.networks import build_network
from shortlist.datasets.images.svhn import read_svhn
from shortlist.datasets.samples import FeatureFile, Samples

FORMATS = ("cifar10", "cifar100", "svhn", "folder")
TEST_SHARE = 0.2
"""Fraction of the images to use for testing if there are no test images."""


@dataclass(frozen=True)
class FeatureBuilder:
    """Builds a feature file. The parameters are the options of `shortlist features`.

    Parameters
    ----------
    images : Path
        An archive or a folder of images.
    output : Path
        The feature file to write.
    model : str
        Name of the network, as for :func:`build_network`.
    layer : str, optional
        Name of a layer. By default the output of the network is used.
    image_format : str, default="auto"
        One of `FORMATS`, or "auto" to determine the format from the names of the files.
    weights : Path, optional
        File of weights.
    select_share : float, default=0.4
        Fraction of the training images to use for the split `select`.
    size : int, optional
        Size of the images in pixels. By default the published size, if there is one.
    mean : tuple of float, optional
        Value to subtract from each channel. By default the published value, if there is one.
    std : tuple of float, optional
        Value to divide each channel by. By default the published value, if there is one.
    batch_size : int, default=256
        Number of images in a batch.
    device : str, default="auto"
        Device to run on.
    seed : int, default=0
        Seed of the split.
    force : bool, default=False
        Whether to replace an existing file.
    """

    images: Path
    output: Path
    model: str
    layer: str | None = None
    image_format: str = "auto"
    weights: Path | None = None
    select_share: float = 0.4
    size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    batch_size: int = 256
    device: str = "auto"
    seed: int = 0
    force: bool = False

    def build(self) -> FeatureFile:
        """Read the images, run the network on them, and write the feature file."""
        check_name(self.output, overwrite=self.force)
        check_probability(self.select_share, "select_share")
        check_count(self.seed, "seed", minimum=0)
        image_format = self.image_format
        if image_format == "auto":
            image_format = detect_format(self.images)
        check_choice(image_format, "format", list(FORMATS))
        backbone = build_network(self.model, self.weights)
        use_published = self.size is None and self.mean is None and self.std is None
        transform = backbone.transform if use_published else None
        size = self.size or backbone.size
        decoded_size = backbone.decoded_size if transform else size
        train, test = read_images(self.images, image_format, decoded_size)

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

        file = split_features(
            extract,
            train,
            test,
            select_share=self.select_share,
            seed=self.seed,
            name=self.output.stem,
        )
        save(self.output, file, overwrite=self.force)
        return file


def detect_format(path: Path) -> str:
    """Return the format of an archive or a folder, which its files are named after."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder at {str(path)!r}")
    if path.is_file():
        matches = {
            "cifar100": "cifar-100" in path.name,
            "cifar10": "cifar-10" in path.name,
            "svhn": path.name.endswith("_32x32.mat"),
        }
    else:
        matches = {
            "cifar100": _has_member(path, "cifar-100-python", "meta"),
            "cifar10": _has_member(path, "cifar-10-batches-py", "batches.meta"),
            "svhn": any(path.glob("*_32x32.mat")),
            "folder": any(f.is_dir() and not f.name.startswith(".") for f in path.iterdir()),
        }
    image_format = next((name for name, matched in matches.items() if matched), None)
    if image_format is None:
        raise ValueError(
            f"{path} is not recognized as one of {', '.join(FORMATS)}; set --format, or give a "
            "folder with one folder for each class"
        )
    return image_format


def read_images(
    path: Path, image_format: str, size: int | None = None
) -> tuple[Images, Images | None]:
    """Return the training images, and the test images or None if there are none.

    The images of a folder are resized to `size`.
    """
    check_choice(image_format, "format", list(FORMATS))
    if image_format == "cifar10":
        return read_cifar10(path), read_cifar10(path, "test")
    if image_format == "cifar100":
        return read_cifar100(path), read_cifar100(path, "test")
    if image_format == "svhn":
        return read_svhn(path), read_svhn(path, "test") if path.is_dir() else None
    if not (path / "train").is_dir():
        return read_image_folder(path, size=size), None
    train = read_image_folder(path / "train", size=size)
    names = [str(name) for name in train.classes]
    for split in ("test", "val"):
        if (path / split).is_dir():
            return train, read_image_folder(path / split, size=size, classes=names)
    return train, None


def split_features(
    extract: Callable[[Images], NDArray[np.floating]],
    train: Images,
    test: Images | None,
    *,
    select_share: float = 0.4,
    seed: int = 0,
    name: str = "",
) -> FeatureFile:
    """Extract the features of all images, and split them into `fit`, `select` and `test`.

    Parameters
    ----------
    extract : callable
        Function from images to features.
    train : Images
        Training images.
    test : Images or None
        Test images. Without them, a fifth of the training images is used for the split `test`.
    select_share : float, default=0.4
        Fraction of the training images to use for the split `select`. They are drawn at random.
    seed : int, default=0
        Seed of the split.
    name : str, default=""
        Name of the data set.

    Returns
    -------
    FeatureFile
        The three splits.

    Examples
    --------
    >>> import numpy as np
    >>> data = Images(np.zeros((100, 8, 8, 3), np.uint8), np.arange(100) % 5, np.arange(5))
    >>> file = split_features(lambda images: np.zeros((len(images), 7)), data, None)
    >>> file.fit, len(file.select), len(file.test)
    (Samples(48 × 7, 5 classes), 32, 20)
    """
    check_probability(select_share, "select_share")
    n_test = 0 if test is not None else round(TEST_SHARE * len(train))
    n_select = round(select_share * (len(train) - n_test))
    n_fit = len(train) - n_test - n_select
    if min(n_fit, n_select) < 1 or (test is None and n_test < 1):
        raise ValueError(
            f"{len(train)} images are too few for splits of {n_fit} to fit, {n_select} to select"
            + (f" and {n_test} to test" if test is None else "")
        )
    samples = Samples(extract(train), train.y, train.classes)
    fit, select, *rest = samples.split(n_fit, n_select, seed=seed)
    test_samples = rest[0] if test is None else Samples(extract(test), test.y, train.classes)
    return FeatureFile(fit, select, test_samples, name)


def _has_member(path: Path, folder: str, member: str) -> bool:
    """Return whether a path has a file, either itself or in a folder."""
    return (path / folder / member).is_file() or (path / member).is_file()
