"""Tables of all rows of a fit, by what each row holds: whole, or of many rows only when asked."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist._utils.out_of_core import LazyMatrix, Matrix, is_large, materialize
from shortlist.families import Family
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import sorted_log_proba
from shortlist.ranking.score_types import ScoreType


def exceeds_memory(ranking: Ranking) -> bool:
    """Whether a table with an entry for every score is better not held in memory."""
    width = ranking.n_classes if ranking.is_dense else ranking.depth + 1
    return is_large(len(ranking), width, torch.float32, ranking.device)


def log_proba_matrix(ranking: Ranking, kind: ScoreType, depth: int, scale: float = 1.0) -> Matrix:
    """`sorted_log_proba` of all rows."""
    if not exceeds_memory(ranking):
        return sorted_log_proba(ranking, kind, depth, scale)
    return LazyMatrix(
        len(ranking),
        lambda rows: sorted_log_proba(ranking[rows], kind, depth, scale),
        work_width=ranking.n_classes if ranking.is_dense else 0,
    )


def costs_and_hits(
    family: Family, ranking: Ranking, index: Tensor, table: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """What each set of each row costs by `table`, and whether it holds the label: (rows, |K|)."""

    def costs(part: Ranking) -> Tensor:
        return table[family.sizes_of(part).to(torch.int64)].to(dtype)

    if not exceeds_memory(ranking) or not family.by_row:
        return costs(ranking), family.hits_of(ranking, index)
    wide = max(ranking.n_classes, len(family))
    rows = len(ranking)
    return (
        materialize(LazyMatrix(rows, lambda at: costs(ranking[at]), wide)),
        materialize(LazyMatrix(rows, lambda at: family.hits_of(ranking[at], index[at]), wide)),
    )
