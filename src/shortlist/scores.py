"""What scores are: probabilities, their logarithms, or logits; and each as log-probabilities.

The question is answered once, at fit, and the answer is kept: a later batch that happens to look
like something else is read in the same way.
"""

from __future__ import annotations

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
        return declared  # type: ignore[return-value]
    proba = log_proba = True
    for rows in ranking.blocks():
        block = ranking.scores_of(rows)
        # A half-precision row of 1,000 rounded probabilities can be off by this much.
        slack = 2e-2 if block.dtype in (torch.float16, torch.bfloat16) else 1e-3
        block = block.to(torch.float32) if slack == 2e-2 else block
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
    log_p = scores.to(torch.float64 if scores.dtype == torch.float64 else torch.float32)
    if kind == "proba":
        log_p = log_p.clamp(min=0).log()
    elif kind == "logits":
        normaliser = [
            torch.logsumexp(ranking.scores_of(rows).to(log_p.dtype), dim=1)
            for rows in ranking.blocks()
        ]
        log_p = log_p - torch.cat(normaliser)[:, None]
    log_p = torch.where(labels >= 0, log_p, -torch.inf)
    others = (1 - log_p.exp().sum(dim=1, keepdim=True)).clamp(min=0).log()
    return torch.cat([log_p, others], dim=1).clamp_(min=LEAST_LOG_PROBA, max=0)
