"""Log-probabilities of rankings, in the forms that the stages of the Shortlister use."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shortlist._utils.out_of_core import Matrix, gather_columns
from shortlist.predictors.row_tables import log_proba_matrix
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import MIN_LOG_PROBA, proba_and_sums, sorted_log_proba


def log_proba(ranking: Ranking, depth: int) -> Tensor:
    """Return sorted log-probabilities, of shape (n_rows, depth + 1).

    The last column is the mass of all other labels.
    """
    return sorted_log_proba(ranking, ranking.score_type, depth, ranking.scale)


def all_log_proba(ranking: Ranking) -> Matrix:
    """Return `log_proba` at the depth of the ranking; lazily if there are many rows."""
    return log_proba_matrix(ranking, ranking.score_type, ranking.depth, ranking.scale)


def label_log_proba(ranking: Ranking, index: Tensor) -> Tensor:
    """Return the log-probability of one label for each row.

    If the label is not in the ranking, return that of all labels that are not.
    """
    table = all_log_proba(ranking)
    column = ranking.rank_of(index).clamp(max=table.shape[1] - 1).to(torch.int64)
    return gather_columns(table, column).to(torch.float64)


def positive_proba(ranking: Ranking) -> tuple[Tensor, Tensor | float | None]:
    """Return the positive probabilities of all labels by column, and the row sums if known."""
    p, sums = proba_and_sums(ranking, ranking.score_type, ranking.scale)
    return p.clamp(min=math.exp(MIN_LOG_PROBA)) if ranking.has_proba else p, sums


def leave_mass(ranking: Ranking, outside: float) -> Ranking:
    """Return the same candidates, with mass `outside` left for labels that are not listed."""
    labels, _ = ranking.top(ranking.depth)
    log_p = log_proba(ranking, ranking.depth)[:, :-1] + math.log1p(-outside)
    top = (labels, torch.where(labels >= 0, log_p, 0))
    return ranking.derive(top=top, score_type="log_proba")


def normalize(ranking: Ranking) -> Ranking:
    """Return the ranking with log-probabilities as its scores."""
    if ranking.score_type == "log_proba" and ranking.scale == 1:
        return ranking
    if not ranking.is_dense:
        return leave_mass(ranking, 0.0)
    log_p = torch.cat(
        [
            torch.log_softmax(ranking.scale * _logs(ranking, rows), dim=1)
            for rows in ranking.blocks()
        ]
    )
    return ranking.derive(dense=log_p, score_type="log_proba")


def _logs(ranking: Ranking, rows: slice) -> Tensor:
    """Return logarithms of dense scores in float64, with a floor that preserves their order."""
    scores = ranking.scores_of(rows).to(torch.float64)
    if ranking.score_type == "logits":
        return scores
    if ranking.score_type == "proba":
        scores = scores.clamp(min=torch.finfo(torch.float64).tiny).log()
    floored = scores.clamp(min=MIN_LOG_PROBA)
    return floored + 1e-6 * (scores - floored)
