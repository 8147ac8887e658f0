"""The data of a study: feature files in a folder, and artificial Gaussian classes."""

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
"""The four panels of the paper, each with the data sets that it may show, preferred first."""


@dataclass(frozen=True)
class Sources:
    """A folder of feature files, and the numbers of artificial rows for each purpose."""

    folder: str
    gaussian_rows: int
    """Rows to fit selectors on."""
    classifier_rows: int
    test_rows: int

    def path(self, name: str) -> Path:
        """Return the feature file of a data set."""
        return Path(self.folder) / f"{name}.npz"

    def has(self, name: str) -> bool:
        """Return whether a data set is available."""
        return name == "gaussian" or self.path(name).is_file()

    def panels(self) -> list[str]:
        """Return the data set of each of the four panels, the preferred one if there is none."""
        return [next((n for n in names if self.has(n)), names[0]) for names in PLACES]

    def read(self, name: str, seed: int) -> FeatureFile:
        """Return a data set. Only the artificial one depends on the seed."""
        if name != "gaussian":
            return load(self.path(name))
        parts = (self.classifier_rows, self.gaussian_rows, self.test_rows)
        fit, select, test = gaussian(sum(parts), seed=seed).split(*parts[:2], seed=seed)
        return FeatureFile(fit, select, test, name=name)

    def fingerprint(self, name: str) -> str:
        """Return a string that identifies the data."""
        if name == "gaussian":
            return f"{self.classifier_rows} {self.gaussian_rows} {self.test_rows}"
        with self.path(name).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:16]


def missing_message(name: str) -> str:
    """Return the text of a panel whose data set is not available."""
    return f"{TITLES[name]}: no {name}.npz in the data folder\n(`shortlist features` makes one)"
