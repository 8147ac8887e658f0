"""The level function of a fitted score: from rows to the levels of their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.out_of_core import Matrix
from shortlist.conformal.levels import Block, LevelBlocks
from shortlist.conformal.scores import ConformityScore
from shortlist.ranking import Ranking
from shortlist.ranking.score_types import ScoreType


@dataclass(frozen=True)
class LevelFunction:
    """The one function that computes levels, for calibration and for prediction.

    Attributes
    ----------
    score : ConformityScore
        Fitted score.
    score_type : {"logits", "proba", "log_proba"}
        Type of the scores of the rows.
    scale : float
        Factor of the log-probabilities that the score sees: one over the temperature.
    allow_empty : bool
        Whether sets may be empty. If not, the first label of a row has the level infinity.
    """

    score: ConformityScore
    score_type: ScoreType
    scale: float
    allow_empty: bool

    def blocks(self, ranking: Ranking, features: Matrix | None) -> LevelBlocks:
        """Return rankings and levels of all rows, a block at a time.

        Parameters
        ----------
        ranking : Ranking
            Rows.
        features : matrix of shape (n_rows, n_features) or None
            Features of the rows.

        Returns
        -------
        LevelBlocks
            Iterable of the rows of each block, the ranking whose prefixes are their sets, and the
            levels of its labels.
        """
        scaled = ranking.with_scale(self.score_type, self.scale)

        def compute(rows: slice) -> Block:
            x = None if features is None else features[rows]
            part = scaled[rows]
            # One type for all, so that float64 rows are ranked as their float32 copies are.
            part = part.with_precision("float32") if part.precision == "float32" else part
            ranked = self.score.rerank(part, x)
            levels = self.score.nested_levels(ranked, x)
            if not ranked.is_complete:
                levels = levels.within(ranked.lengths())
            return rows, ranked, levels if self.allow_empty else levels.never_empty()

        slices = scaled.blocks(self.score.block_elements)
        width = scaled.width if features is None else None
        return LevelBlocks(slices, compute, width, scaled.device)

    def lowest_levels(
        self, ranking: Ranking, index: Tensor, features: Matrix | None
    ) -> NDArray[np.float64]:
        """Return lower bounds of the levels of the true labels of calibration rows.

        Parameters
        ----------
        ranking : Ranking
            Calibration rows.
        index : Tensor of shape (n_rows,)
            Label indices; -1 for labels of unknown classes.
        features : matrix of shape (n_rows, n_features) or None
            Features of the rows.

        Returns
        -------
        array of shape (n_rows,)
            Levels; minus infinity for labels that no set can contain.

        Notes
        -----
        Prediction computes a level again, in another batch, type, thread or device, which round
        differently. Let ``s(row)`` be a lower bound of all computations of a row's level. The
        returned numbers are at most ``s`` of the calibration rows, so a threshold derived from
        them is at most one derived from ``s``, which the ``s`` of a new row, and therefore its
        level, reaches with the requested accuracy.
        """
        levels = self.blocks(ranking, features).label_levels(index.clamp(min=0), lowest=True)
        levels = self.score.lower(levels, max(self.score.rounding, ranking.rounding))
        return torch.where(index < 0, -torch.inf, levels).cpu().numpy()

    def size_table(
        self, levels: NDArray[np.float64], ranking: Ranking, features: Matrix | None
    ) -> dict[str, Any]:
        """Return the thresholds at the levels of some rows, and their mean sizes.

        Parameters
        ----------
        levels : array of shape (n_rows,)
            Levels of the true labels of the rows.
        ranking : Ranking
            The rows.
        features : matrix of shape (n_rows, n_features) or None
            Features of the rows.

        Returns
        -------
        dict
            ``"thresholds"`` in decreasing order, and ``"mean_sizes"``.
        """
        # At infinity a set contains only its mandatory label.
        thresholds = np.unique([*levels[levels > -np.inf], np.inf])[::-1].copy()
        return {
            "thresholds": thresholds,
            "mean_sizes": self.blocks(ranking, features).mean_sizes(thresholds),
        }

    def is_exhaustive(self, ranking: Ranking) -> bool:
        """Return whether a set can contain every label that a row can have."""
        return self.score.is_exhaustive(ranking) and not ranking.open_classes
