"""Tables with an entry for every row and class of a fit, computed lazily if they are large."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist._utils.out_of_core import LazyMatrix, Matrix, is_large, materialize
from shortlist.families import Family
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import sorted_log_proba
from shortlist.ranking.score_types import ScoreType


def exceeds_memory(ranking: Ranking) -> bool:
    """Return whether a table with an entry for every score is too large for memory."""
    width = ranking.n_classes if ranking.is_dense else ranking.depth + 1
    return is_large(len(ranking), width, torch.float32, ranking.device)


def log_proba_matrix(
    ranking: Ranking, score_type: ScoreType, depth: int, scale: float = 1.0
) -> Matrix:
    """Return `sorted_log_proba` of all rows, lazily if it is large."""
    if not exceeds_memory(ranking):
        return sorted_log_proba(ranking, score_type, depth, scale)
    return LazyMatrix(
        len(ranking),
        lambda rows: sorted_log_proba(ranking[rows], score_type, depth, scale),
        work_width=ranking.n_classes if ranking.is_dense else 0,
    )


def costs_and_hits(
    family: Family, ranking: Ranking, index: Tensor, table: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the cost of each set of each row, and whether it contains the row's label.

    Parameters
    ----------
    family : Family
        Family of sets.
    ranking : Ranking
        Rows.
    index : Tensor of shape (n_rows,)
        Label indices.
    table : Tensor of shape (max_size + 1,)
        Cost of each size.
    dtype : torch.dtype
        Type of the costs.

    Returns
    -------
    costs, hits : Tensor of shape (n_rows, n_members)
        Cost and hit of each set.
    """

    def costs(part: Ranking) -> Tensor:
        return table[family.sizes_of(part).to(torch.int64)].to(dtype)

    if not exceeds_memory(ranking) or not family.by_row:
        return costs(ranking), family.hits_of(ranking, index)
    width = max(ranking.n_classes, len(family))
    n_rows = len(ranking)
    return (
        materialize(LazyMatrix(n_rows, lambda at: costs(ranking[at]), width)),
        materialize(LazyMatrix(n_rows, lambda at: family.hits_of(ranking[at], index[at]), width)),
    )
