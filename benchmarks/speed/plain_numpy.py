"""LAC and APS in a few lines of NumPy, with the interface of `other_libraries.py`.

This is the least that a user would write: blocks of rows that fit into the cache, one thread, no
checks, no ties, no guarantee beyond the quantile, and labels that are not ordered (LAC).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from random_scores import Floats, Labels

BLOCK_ELEMENTS = 1 << 17
Sets = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Labels of all rows, concatenated, and the size of each row's set."""


class PlainNumPy:
    """One matrix comparison (LAC), or one sort and one cumulative sum (APS)."""

    version = np.__version__

    def __init__(self, score: str, score_type: str, temperature: object = None) -> None:
        self.levels_and_sets = {"lac": (lac_levels, lac_sets), "aps": (aps_levels, aps_sets)}[score]

    def calibrate(self, scores: Floats, y: Labels) -> None:
        levels, _ = self.levels_and_sets
        parts = [levels(scores[rows], y[rows]) for rows in blocks(scores)]
        self.levels = np.sort(np.concatenate(parts))

    def predict(self, scores: Floats, levels: list[float]) -> list[Sets]:
        return [self.predict_one(scores, level) for level in levels]

    def predict_one(self, scores: Floats, level: float) -> Sets:
        _, sets = self.levels_and_sets
        rank = math.floor((1 - level) * (len(self.levels) + 1))
        parts = [sets(scores[rows], self.levels[rank - 1]) for rows in blocks(scores)]
        labels, sizes = zip(*parts, strict=True)
        return np.concatenate(labels), np.concatenate(sizes)

    def sizes_and_hits(
        self, sets: Sets, y: Labels
    ) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        labels, sizes = sets
        hits = np.zeros(len(y), dtype=bool)
        row = np.repeat(np.arange(len(y)), sizes)
        hits[row[labels == y[row]]] = True
        return sizes, hits


def blocks(scores: Floats) -> Iterator[slice]:
    """Yield slices that cover the rows."""
    step = max(1, BLOCK_ELEMENTS // scores.shape[1])
    for start in range(0, len(scores), step):
        yield slice(start, min(start + step, len(scores)))


def lac_levels(p: Floats, y: Labels) -> NDArray[np.generic]:
    """Return the probability of each row's label."""
    return p[np.arange(len(p)), y]


def lac_sets(p: Floats, threshold: float) -> Sets:
    """Return the labels whose probability is at least the threshold."""
    inside = p >= threshold
    return np.flatnonzero(inside) % p.shape[1], np.count_nonzero(inside, axis=1)


def aps_levels(p: Floats, y: Labels) -> NDArray[np.generic]:
    """Return minus the mass of the labels up to each row's label, which is in the set if first."""
    order = np.argsort(-p, axis=1)
    mass = np.take_along_axis(p, order, axis=1).cumsum(axis=1)
    rank = (order == y[:, None]).argmax(axis=1)
    return np.where(rank == 0, np.inf, -mass[np.arange(len(p)), rank])


def aps_sets(p: Floats, threshold: float) -> Sets:
    """Return the first labels of each row, up to a mass."""
    order = np.argsort(-p, axis=1)
    mass = np.take_along_axis(p, order, axis=1).cumsum(axis=1)
    sizes = np.maximum(1, (-mass >= threshold).sum(axis=1))
    return order[np.arange(p.shape[1]) < sizes[:, None]], sizes
