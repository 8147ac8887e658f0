"""Rows that a model learned from, recognized if they are given again to calibrate or to test."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shortlist.learning.process_group import current_group
from shortlist.ranking import Ranking
from shortlist.ranking.row_hashing import row_fingerprints

MIN_DISTINCT = 0.9
"""Rows are recognized only if at least this fraction of them is distinct."""
MAX_COINCIDENCES = 0.02
"""Fraction of rows that may be equal to unrelated ones."""
DEVIATIONS = 3
"""Number of standard deviations by which repeated rows may be fewer than expected."""


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
        n_rows = len(self.keys) / self.distinct
        # If a row is equal to each other one with probability p, n rows have p n²/2 repeated ones,
        # and a new row is equal to one of them with probability p n. The number of repeated rows
        # is random: it can be smaller than its mean by a few standard deviations.
        repeated = n_rows - len(self.keys)
        chance = 2 * (repeated + DEVIATIONS * math.sqrt(repeated)) / n_rows
        expected = max(MAX_COINCIDENCES, chance) * len(ranking)
        return count if count > expected else 0
