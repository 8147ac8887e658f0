"""Rows that a model learned from, recognized if they are given again to calibrate or to test."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist.learning.process_group import current_group
from shortlist.ranking import Ranking
from shortlist.ranking.row_hashing import row_fingerprints

MIN_DISTINCT = 0.9
"""Rows are recognized only if at least this fraction of them is distinct."""
MAX_COINCIDENCES = 0.02
"""Fraction of rows that may be equal to unrelated ones."""


class TrainingRows:
    """Hash keys of the rows of a ranking.

    Parameters
    ----------
    ranking : Ranking
        Rows that a model learned from.

    Attributes
    ----------
    keys : Tensor of shape (n_distinct,)
        Distinct keys, in increasing order.
    distinct : float
        Fraction of the rows that are distinct.
    """

    def __init__(self, ranking: Ranking) -> None:
        keys = current_group().gather(row_fingerprints(ranking))
        self.keys: Tensor = torch.unique(keys).cpu()
        self.distinct = len(self.keys) / len(keys)

    def count_in(self, ranking: Ranking) -> int:
        """Return how many rows of a ranking are training rows.

        Parameters
        ----------
        ranking : Ranking
            Rows to look up.

        Returns
        -------
        int
            Number of rows; 0 if they may be equal by chance.
        """
        if self.distinct < MIN_DISTINCT:
            return 0
        count = int(torch.isin(row_fingerprints(ranking).cpu(), self.keys).sum())
        expected = max(MAX_COINCIDENCES, 2 * (1 - self.distinct)) * len(ranking)
        return count if count > expected else 0
