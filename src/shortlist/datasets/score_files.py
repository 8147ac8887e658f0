"""Files without a classifier: its scores, or its ranked candidates, and the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist.ranking import Ranking


@dataclass(frozen=True)
class ScoreFile:
    """A score for every class, `(rows, classes)`, the labels `y`, and features if there are any.

    >>> import numpy as np
    >>> file = ScoreFile(np.array([[0.1, 0.9], [0.7, 0.3]]), np.array([1, 1]), np.arange(2))
    >>> file.ranking().rank(file.y).tolist()
    [0.0, 1.0]
    """

    scores: NDArray[np.floating]
    y: NDArray[np.integer]
    classes: NDArray[np.generic]
    features: NDArray[np.floating] | None = None
    name: str = ""

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def ranking(self) -> Ranking:
        """The scores, ranked; labels are indices, as in `y`."""
        return Ranking.from_scores(self.scores)

    def __repr__(self) -> str:
        also = "" if self.features is None else f", {self.features.shape[1]} features"
        return f"ScoreFile({len(self):,} rows, {self.n_classes:,} classes{also})"


@dataclass(frozen=True)
class CandidateFile:
    """The best few labels of each row and their scores, `(rows, depth)`, and the labels `y`.

    A label of -1 pads a short row. `y` may be a label that its row does not list.

    >>> import numpy as np
    >>> file = CandidateFile(
    ...     np.array([[2, 0], [1, 4]]), np.array([[0.8, 0.1], [0.5, 0.4]]), np.array([0, 3]),
    ...     classes=np.array(["ant", "bee", "cat", "dog", "eel"]))
    >>> file.ranking().rank(file.y).tolist()
    [1.0, inf]
    >>> file
    CandidateFile(2 rows of 2 candidates, 5 classes)
    """

    labels: NDArray[np.integer]
    scores: NDArray[np.floating]
    y: NDArray[np.integer]
    classes: NDArray[np.generic]
    name: str = ""

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def ranking(self) -> Ranking:
        """The candidates as a ranking; labels are indices, as in `y`."""
        return Ranking.from_candidates(self.labels, self.scores, self.n_classes)

    def __repr__(self) -> str:
        depth = self.labels.shape[1]
        return (
            f"CandidateFile({len(self):,} rows of {depth} candidates, {self.n_classes:,} classes)"
        )
