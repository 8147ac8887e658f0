"""Rows that were learned from, to be told when they come back to calibrate or to judge."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist._utils.out_of_core import is_large
from shortlist.learning.process_group import current_group
from shortlist.ranking import Ranking
from shortlist.ranking.row_hashing import row_keys

DISTINCT = 0.9
"""Rows are recognised only if at least this fraction of them is distinct."""
BY_CHANCE = 0.02
"""Fraction of rows that may coincide with unrelated ones."""


class TrainingRows:
    """The rows of a ranking, by a key for each."""

    def __init__(self, ranking: Ranking) -> None:
        keys = current_group().gather(_keys(ranking))
        self.keys: Tensor = torch.unique(keys).cpu()
        self.distinct = len(self.keys) / len(keys)

    def among(self, ranking: Ranking) -> int:
        """How many rows of a ranking are among them; 0 if it may be chance, or cannot be told."""
        if self.distinct < DISTINCT:
            return 0
        count = int(torch.isin(_keys(ranking).cpu(), self.keys).sum())
        expected = max(BY_CHANCE, 2 * (1 - self.distinct)) * len(ranking)
        return count if count > expected else 0


def _keys(ranking: Ranking) -> Tensor:
    """The keys of all rows. Of many, the best scores that they are made of are not kept."""
    if not is_large(len(ranking), ranking.n_classes, torch.float32, ranking.device):
        return row_keys(ranking)
    found = torch.empty(len(ranking), dtype=torch.int64)
    for rows in ranking.blocks():
        found[rows] = row_keys(ranking[rows])
    return found
