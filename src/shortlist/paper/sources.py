"""Where the data come from: feature files in a folder, and the artificial Gaussians."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from shortlist.datasets import FeatureFile, gaussian, load

TITLES = {
    "cifar100": "CIFAR-100",
    "imagenet": "ImageNet",
    "tinyimagenet": "Tiny-ImageNet (in ImageNet's place)",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "gaussian": "10 Gaussian classes in 100 dimensions",
}
PLACES = (("cifar100",), ("imagenet", "tinyimagenet"), ("cifar10",), ("svhn",))
"""The four panels of the paper, each with the files that may stand there, the first first."""


@dataclass(frozen=True)
class Sources:
    """A folder of feature files, and how much artificial data to draw."""

    folder: str
    gaussian_rows: int
    """To select by; those for the classifier and the test come on top."""
    classifier_rows: int
    test_rows: int

    def path(self, name: str) -> Path:
        return Path(self.folder) / f"{name}.npz"

    def has(self, name: str) -> bool:
        return name == "gaussian" or self.path(name).is_file()

    def panels(self) -> list[str]:
        """What stands in the paper's four panels; the first choice where nothing does."""
        return [next((n for n in names if self.has(n)), names[0]) for names in PLACES]

    def read(self, name: str, seed: int) -> FeatureFile:
        """A data set. The seed draws the artificial one; files are as they are."""
        if name != "gaussian":
            return load(self.path(name), "features")
        parts = (self.classifier_rows, self.gaussian_rows, self.test_rows)
        fit, select, test = gaussian(sum(parts), seed=seed).split(*parts[:2], seed=seed)
        return FeatureFile(fit, select, test, name=name)

    def fingerprint(self, name: str) -> str:
        """What tells these data from others."""
        if name == "gaussian":
            return f"{self.classifier_rows} {self.gaussian_rows} {self.test_rows}"
        with self.path(name).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:16]


def absence(name: str) -> str:
    """What a panel says of a data set that is not there."""
    return f"{TITLES[name]}: no {name}.npz in the data folder\n(`shortlist features` makes one)"
