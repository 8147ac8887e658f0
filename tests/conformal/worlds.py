"""Distributions with few distinct rows, whose labels have known probabilities.

Levels tie at every threshold, and the accuracy of sets is known exactly, without a test sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class World:
    """Scores and features of each kind of row, and probabilities of its labels and of the kind."""

    logits: Floats
    features: Floats
    chances: Floats
    weights: Floats

    @classmethod
    def of(cls, seed: int, kinds: int = 6, n: int = 8, columns: int = 5) -> World:
        """Draw a distribution whose classifier is inaccurate, with features of different scales."""
        rng = np.random.default_rng(seed)
        chances = rng.dirichlet(np.full(n, 0.5), size=kinds)
        # Scores also tie within a row.
        logits = np.round(np.log(chances + 0.02) + rng.normal(size=(kinds, n)), 1)
        scales, means = rng.uniform(0.1, 100, size=columns), 50 * rng.normal(size=columns)
        features = rng.normal(size=(kinds, columns)) * scales + means
        return cls(logits, features, chances, rng.dirichlet(np.full(kinds, 2.0)))

    @property
    def proba(self) -> Floats:
        """Return the scores as probabilities."""
        p = np.exp(self.logits)
        return p / p.sum(axis=1, keepdims=True)

    def draw(self, rows: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the kinds of random rows, and their labels."""
        rng = np.random.default_rng(seed)
        kinds = rng.choice(len(self.weights), size=rows, p=self.weights)
        above = rng.random((rows, 1)) > self.chances[kinds].cumsum(axis=1)
        return kinds, above.sum(axis=1).clip(max=self.chances.shape[1] - 1)

    def accuracy(self, sets: Sequence[Sequence[object]]) -> float:
        """Return the exact accuracy of the sets that each kind of row has."""
        held = [self.chances[k, list(labels)].sum() for k, labels in enumerate(sets)]
        return float(self.weights @ np.array(held))
