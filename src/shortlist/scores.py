"""What scores are: probabilities, their logarithms, or logits; and each as log-probabilities.

The question is answered once, at fit, and the answer is kept: a later batch that happens to look
like something else is read in the same way.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from shortlist._arrays import check_choice
from shortlist.ranking import Ranking

ScoreType: TypeAlias = Literal["logits", "proba", "log_proba"]
SCORE_TYPES = ("auto", "logits", "proba", "log_proba")
LEAST_LOG_PROBA = -30.0
"""Log-probabilities are floored here, so that a probability of zero is a finite input."""


def score_type(ranking: Ranking, declared: str = "auto") -> ScoreType:
    """What the scores are.

    "auto" decides from all rows: values in [0, 1] that sum to one (for candidates: to at most
    one) are probabilities, values whose exponentials do so log-probabilities, all else logits.

    >>> score_type(Ranking.from_scores([[0.25, 0.75]])), score_type(Ranking.from_scores([[2, 3]]))
    ('proba', 'logits')
    """
    check_choice(declared, "score_type", SCORE_TYPES)
    if declared != "auto":
        _check_range(ranking, declared)
        return declared  # type: ignore[return-value]
    proba = log_proba = True
    for rows in ranking.blocks():
        block = ranking.scores_of(rows)
        slack = _slack(block.dtype)
        block = block.to(torch.promote_types(block.dtype, torch.float32))
        high = float(block.max())
        if proba:
            listed = torch.where(block == -torch.inf, 0, block)
            proba = float(listed.min()) >= 0 and high <= 1 + slack
            proba = proba and _sums_to_one(listed, slack, ranking.is_dense)
        if log_proba:
            log_proba = high <= slack and _sums_to_one(block.exp(), slack, ranking.is_dense)
        if not (proba or log_proba):
            return "logits"
    return "proba" if proba else "log_proba"


def _check_range(ranking: Ranking, declared: str) -> None:
    """Raise if scores cannot be what they are said to be."""
    if declared == "logits":
        return
    least, most = (0.0, 1.0) if declared == "proba" else (-math.inf, 0.0)
    for rows in ranking.blocks():
        block = ranking.scores_of(rows)
        listed = block if ranking.is_dense else block[block > -torch.inf]
        low, high = (float(v) for v in torch.aminmax(listed))
        if low < least - _slack(block.dtype) or high > most + _slack(block.dtype):
            raise ValueError(
                f"score_type = {declared!r}, but the scores run from {low:.4g} to {high:.4g}; "
                f'{declared} lies between {least:g} and {most:g}. Leave it to score_type="auto"?'
            )


def _slack(dtype: torch.dtype) -> float:
    """By how much rounding can spoil a sum of 1,000 probabilities."""
    return 2e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-3


def _sums_to_one(masses: Tensor, slack: float, exactly: bool) -> bool:
    gap = masses.sum(dim=1) - 1
    return bool(((gap.abs() if exactly else gap) <= slack).all())


def sorted_log_proba(ranking: Ranking, kind: ScoreType, depth: int) -> Tensor:
    """Log-probabilities of the `depth` best labels of each row, then the log mass of all others.

    Shape (rows, depth + 1), floored at `LEAST_LOG_PROBA`. Candidates given as logits are
    normalised over their list, so that nothing is left for the others.

    >>> r = Ranking.from_scores([[0.5, 0.25, 0.25]])
    >>> sorted_log_proba(r, "proba", 1).exp().tolist()
    [[0.5, 0.5]]
    """
    labels, scores = ranking.top(depth)
    scores = scores.to(torch.float64 if scores.dtype == torch.float64 else torch.float32)
    best = scores[:, :1]  # logits count from the best one, so that none is large
    if kind == "proba":
        scores = scores.clamp(min=0).log()
    elif kind == "logits":
        scores = scores - best
    log_p = torch.where(labels >= 0, scores, -torch.inf)
    rest = [_log_rest(ranking, rows, kind, labels[rows], best[rows]) for rows in ranking.blocks()]
    columns = torch.cat([log_p, torch.cat(rest)], dim=1)
    total = columns.logsumexp(dim=1, keepdim=True)
    if kind == "logits":
        columns -= total
    elif not ranking.is_dense:  # what the list leaves out belongs to the others
        unlisted = (1 - total.exp()).clamp(min=0).log()
        columns[:, -1:] = columns[:, -1:].logaddexp(unlisted)
    return columns.clamp_(min=LEAST_LOG_PROBA, max=0)


def _log_rest(
    ranking: Ranking, rows: slice, kind: ScoreType, labels: Tensor, best: Tensor
) -> Tensor:
    """Log mass of the scores after the first few (`labels`), summed: 1 minus the others would
    leave nothing but rounding where a classifier is sure."""
    block = ranking.scores_of(rows).to(best.dtype, copy=True)
    if ranking.is_dense:
        block.scatter_(1, labels.to(torch.int64), -torch.inf)
    else:
        block[:, : labels.shape[1]] = -torch.inf
    if kind == "proba":
        return block.clamp_(min=0).sum(dim=1, keepdim=True).log()
    return (block - best if kind == "logits" else block).logsumexp(dim=1, keepdim=True)
