"""Data: the paper's artificial Gaussians, digits, and feature files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from shortlist._arrays import check_count


@dataclass(frozen=True)
class Samples:
    """Rows `x`, their labels `y` (indices into `classes`), and the true posterior if known."""

    x: NDArray[np.floating]
    y: NDArray[np.integer]
    classes: NDArray[np.generic]
    posterior: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Samples:
        p = self.posterior
        return Samples(self.x[rows], self.y[rows], self.classes, None if p is None else p[rows])

    def split(self, *sizes: int, seed: int = 0) -> list[Samples]:
        """Disjoint random parts of the given sizes; the rest, if any, comes last.

        >>> [len(part) for part in gaussian(100).split(60, 30)]
        [60, 30, 10]
        """
        if sum(sizes) > len(self) or min(sizes, default=1) < 1:
            raise ValueError(f"cannot take parts of {sizes} out of {len(self)} rows")
        order = np.random.default_rng(seed).permutation(len(self))
        ends = np.cumsum([0, *sizes])
        parts = [self[order[a:b]] for a, b in pairwise(ends)]
        return parts if ends[-1] == len(self) else [*parts, self[order[ends[-1] :]]]

    def __repr__(self) -> str:
        return f"Samples({len(self):,} × {self.x.shape[1]}, {len(self.classes)} classes)"


@dataclass(frozen=True)
class FeatureFile:
    """Three disjoint parts: `fit` for the classifier, `select` for the selector, `test`."""

    fit: Samples
    select: Samples
    test: Samples
    name: str = ""

    @property
    def classes(self) -> NDArray[np.generic]:
        return self.fit.classes


def gaussian(
    m: int,
    separation: float = 0.15,
    seed: int = 0,
    *,
    n_classes: int = 10,
    dimension: int = 100,
) -> Samples:
    """The paper's artificial data: balanced Gaussian classes, and their true posterior.

    The means are drawn from N(0, separation² I) with the seed alone, so that every `m` samples
    the same problem; all classes have unit covariance. At the default separation the best
    possible top-1 accuracy is about 0.5, so that sets of several labels are needed.

    >>> data = gaussian(1000)
    >>> data.x.shape, data.posterior.shape, bool(abs(data.posterior.sum(1) - 1).max() < 1e-5)
    ((1000, 100), (1000, 10), True)
    """
    check_count(m, "m")
    check_count(n_classes, "n_classes", least=2)
    check_count(dimension, "dimension")
    if not separation > 0:
        raise ValueError(f"separation must be positive; got {separation!r}")
    means = np.random.default_rng([seed, 0]).normal(0.0, separation, (n_classes, dimension))
    rng = np.random.default_rng([seed, 1])
    y = rng.permutation(np.arange(m) % n_classes)
    x = rng.standard_normal((m, dimension), dtype=np.float32)
    x += means[y].astype(np.float32)
    # log p(y | x) up to a constant of x: the squared norm of x is the same for all classes.
    logits = x @ means.T.astype(np.float32) - 0.5 * np.square(means).sum(axis=1)
    logits -= logits.max(axis=1, keepdims=True)
    posterior = np.exp(logits)
    posterior /= posterior.sum(axis=1, keepdims=True)
    return Samples(x, y, np.arange(n_classes), posterior.astype(np.float32))


def digits() -> Samples:
    """scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, in random order.

    >>> digits()
    Samples(1,797 × 64, 10 classes)
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    x = bunch.data[order].astype(np.float32) / 16
    return Samples(x, bunch.target[order], np.arange(10))


def load(path: str | os.PathLike[str]) -> FeatureFile:
    """Read a feature file: an .npz with `x_fit, y_fit, x_select, y_select, x_test, y_test` and,
    if the classes have names, `classes`. Nothing in the file is executed."""
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"there is no feature file at {os.fspath(path)!r}")
    arrays = _read(file)
    parts = ("fit", "select", "test")
    missing = [k for p in parts for k in (f"x_{p}", f"y_{p}") if k not in arrays]
    if missing:
        raise ValueError(
            f"{file.name} lacks {', '.join(missing)}; a feature file holds x_ and y_ for "
            f"{', '.join(parts)}. It has: {', '.join(sorted(arrays)) or 'nothing'}"
        )
    for part in parts:
        _check_part(file.name, part, arrays[f"x_{part}"], arrays[f"y_{part}"])
    columns = [arrays[f"x_{p}"].shape[1] for p in parts]
    if len(set(columns)) > 1:
        raise ValueError(
            f"{file.name}: x_fit, x_select and x_test must have the same features; "
            f"got {columns[0]}, {columns[1]} and {columns[2]} columns"
        )
    largest = max(int(arrays[f"y_{p}"].max()) for p in parts)
    classes = arrays.get("classes", np.arange(largest + 1))
    if classes.ndim != 1 or largest >= len(classes):
        raise ValueError(
            f"{file.name} has labels up to {largest}, but classes of shape {classes.shape}; "
            f"give {largest + 1} names or more, or leave classes out"
        )
    fit, select, test = (
        Samples(
            cast("NDArray[np.floating]", arrays[f"x_{p}"]),
            cast("NDArray[np.integer]", arrays[f"y_{p}"]),
            classes,
        )
        for p in parts
    )
    return FeatureFile(fit, select, test, name=file.stem)


def _read(file: Path) -> dict[str, NDArray[np.generic]]:
    """All arrays of an .npz file."""
    try:
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it holds one array (.npy)")
        with archive:
            return {name: archive[name] for name in archive.files}
    # What numpy raises on a damaged file depends on where the damage is.
    except Exception as error:
        raise ValueError(f"{file.name} is not a readable .npz file: {error}") from error


def _check_part(name: str, part: str, x: NDArray[np.generic], y: NDArray[np.generic]) -> None:
    shapes: Sequence[object] = (x.shape, y.shape)
    if x.ndim != 2 or y.shape != x.shape[:1] or not len(y):
        raise ValueError(
            f"{name}: x_{part} must be (rows, features) and y_{part} (rows,); "
            f"got {shapes[0]} and {shapes[1]}"
        )
    if x.dtype.kind != "f" or y.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: x_{part} must hold floats and y_{part} label indices; "
            f"got {x.dtype} and {y.dtype}"
        )
    if int(y.min()) < 0:
        raise ValueError(
            f"{name}: y_{part} holds {int(y.min())}; labels are indices counted from 0"
        )
