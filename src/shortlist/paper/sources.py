"""The data of a study: feature files in a folder, and artificial Gaussian classes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from shortlist.datasets import FeatureFile, gaussian, load

TITLES = {
    "cifar100_finetuned": "CIFAR-100 (fine-tuned ResNet-50)",
    "cifar100": "CIFAR-100 (small ResNet)",
    "imagenet": "ImageNet",
    "tinyimagenet": "Tiny-ImageNet (stand-in for ImageNet)",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "fashion": "Fashion-MNIST (stand-in for SVHN)",
    "gaussian-equal": "Gaussian classes, equal covariances",
    "gaussian-unequal": "Gaussian classes, unequal covariances",
    "gaussian-similar": "Gaussian classes, similar covariances",
}
PANEL_CHOICES = (
    ("cifar100_finetuned", "cifar100"),
    ("imagenet", "tinyimagenet"),
    ("cifar10",),
    ("svhn", "fashion"),
)
"""Data sets that each of the paper's four panels can show, in order of preference."""
SECOND_PANELS = ("cifar100",)
"""Data sets that are shown in another panel if they are available."""
GAUSSIAN: dict[str, dict[str, object]] = {
    "gaussian-equal": {"covariance": "equal"},
    "gaussian-unequal": {"covariance": "unequal", "spread": 0.4},
    "gaussian-similar": {"covariance": "unequal", "spread": 0.2},
}
"""Artificial data, with their arguments of `datasets.gaussian`."""

DataSize: TypeAlias = Mapping[str, int]
"""Numbers of rows of the splits "fit", "select" and "test", and of "classes"."""


@dataclass(frozen=True)
class Sources:
    """A folder of feature files, and the numbers of rows of the artificial data.

    Parameters
    ----------
    folder : str
        The folder.
    gaussian_rows : int
        Number of artificial rows to fit selectors on.
    classifier_rows : int
        Number of artificial rows to train the classifier on.
    test_rows : int
        Number of artificial test rows.
    """

    folder: str
    gaussian_rows: int
    classifier_rows: int
    test_rows: int

    def path(self, name: str) -> Path:
        """Return the feature file of a data set."""
        return Path(self.folder) / f"{name}.npz"

    def has(self, name: str) -> bool:
        """Return whether a data set is available."""
        return name in GAUSSIAN or self.path(name).is_file()

    def panels(self) -> list[str]:
        """Return the data sets of the panels: the paper's four, and second ones if available.

        Each of the four panels shows its first choice that is available, or else its first choice.
        """
        first = [next((n for n in names if self.has(n)), names[0]) for names in PANEL_CHOICES]
        return first + [n for n in SECOND_PANELS if self.has(n) and n not in first]

    def read(self, name: str, seed: int) -> FeatureFile:
        """Return a data set. Only the artificial data depend on the seed."""
        if name not in GAUSSIAN:
            return load(self.path(name))
        counts = (self.classifier_rows, self.gaussian_rows, self.test_rows)
        data = gaussian(sum(counts), seed=seed, **GAUSSIAN[name])  # type: ignore[arg-type]
        fit, select, test = data.split(*counts[:2], seed=seed)
        return FeatureFile(fit, select, test, name=name)

    def size(self, name: str) -> DataSize:
        """Return the numbers of rows and classes of a data set."""
        if name in GAUSSIAN:
            counts = (self.classifier_rows, self.gaussian_rows, self.test_rows, 10)
        else:
            file = self.read(name, 0)
            counts = (len(file.fit), len(file.select), len(file.test), len(file.classes))
        return dict(zip(("fit", "select", "test", "classes"), counts, strict=True))

    def fingerprint(self, name: str) -> str:
        """Return a string that identifies the content of a data set."""
        if name in GAUSSIAN:
            counts = f"{self.classifier_rows} {self.gaussian_rows} {self.test_rows}"
            return f"{counts} {GAUSSIAN[name]}"
        with self.path(name).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:16]


def missing_message(name: str) -> str:
    """Return the text to show in a panel whose data set is not available."""
    return f"{TITLES[name]}: no {name}.npz in the data folder\n(`shortlist features` creates it)"
