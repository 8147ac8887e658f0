"""Conformal scores: LAC, APS, RAPS, SAPS, top-k and margin. High is good.

Each is a function of a row's sorted probabilities p_1 >= p_2 >= … and a number u of the row, and
never increases with the rank j, so that the labels above a threshold are a prefix of the ranking.

| name | score of the label of rank j | from |
|---|---|---|
| lac | p_j | Sadinle, Lei, Wasserman 2019 |
| aps | -(p_1 + … + p_{j-1} + u p_j) | Romano, Sesia, Candès 2020 |
| raps | APS - penalty · max(0, j - k_reg) | Angelopoulos, Bates, Malik, Jordan 2021 |
| saps | -u p_1 if j = 1, else -(p_1 + (j - 2 + u) penalty) | Huang, Xi, Zhang, Yao, Qiu, Wei 2024 |
| topk | -(j - 1 + u) | |
| margin | p_1 - p_2 if j = 1, else p_j - p_1 | |

Without randomisation u = 1: the label's whole share counts, for calibration and prediction alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist._arrays import check_choice, check_count, check_weight
from shortlist.ranking import Ranking, row_keys
from shortlist.scores import LEAST_LOG_PROBA, ScoreType, log_proba_columns, sorted_log_proba

NAMES = ("lac", "aps", "raps", "saps", "topk", "margin")
RANDOMIZED = ("aps", "raps", "saps", "topk")
"""The scores that a random number can smooth; the others have nothing to randomise."""


@dataclass(frozen=True)
class ConformalScore:
    """A score with its parameters, and what is known of the classifier's scores.

    >>> from shortlist.ranking import as_ranking
    >>> score = ConformalScore("aps", "proba")
    >>> score.levels(as_ranking([[0.25, 0.5, 0.25]])).tolist()
    [[-0.5, -0.75, -1.0]]
    """

    name: str
    kind: ScoreType
    scale: float = 1.0
    """Inverse temperature."""
    penalty: float = 0.0
    k_reg: int = 0
    randomized: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice(self.name, "score", NAMES)
        check_weight(self.penalty, "penalty")
        check_count(self.k_reg, "k_reg", least=0)
        if self.randomized and self.name not in RANDOMIZED:
            raise ValueError(
                f"score = {self.name!r} has nothing to randomise; randomized=True is for "
                f"{', '.join(map(repr, RANDOMIZED))}"
            )

    def levels(self, ranking: Ranking) -> Tensor:
        """The scores of each row's labels, best first: (rows, depth)."""
        p = self._probabilities(ranking)  # first: it sorts, and the noise is made of what is best
        ranks = torch.arange(1, p.shape[1] + 1, device=p.device, dtype=p.dtype)
        u = row_noise(ranking, self.seed).to(p.dtype)[:, None] if self.randomized else 1.0
        if self.name == "lac":
            return p
        if self.name == "margin":
            return torch.cat([p[:, :1] - _second(p), p[:, 1:] - p[:, :1]], dim=1)
        if self.name == "topk":
            return (-(ranks - 1 + u)).expand_as(p)
        if self.name == "saps":
            later = p[:, :1] + (ranks[1:] - 2 + u) * self.penalty
            return -torch.cat([u * p[:, :1], later], dim=1)
        # In float64, so that tails of small probabilities still add up.
        if self.randomized:
            mass = torch.nn.functional.pad(p[:, :-1], (1, 0)).cumsum(dim=1, dtype=torch.float64)
            mass += u * p
        else:
            mass = p.cumsum(dim=1, dtype=torch.float64)
        if self.name == "raps":
            mass += self.penalty * (ranks - self.k_reg).clamp(min=0)
        return mass.neg_()

    def by_column(self, ranking: Ranking) -> Tensor:
        """Probabilities of all labels of a dense ranking, unsorted: the levels of LAC."""
        scores = ranking.scores_of(slice(None))
        if self.kind == "proba" and self.scale == 1:
            return scores.to(torch.promote_types(scores.dtype, torch.float32))
        if scores.is_cuda and self.kind == "logits":  # one kernel in place of eight
            wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
            scaled = wide if self.scale == 1 else wide * self.scale
            return torch.softmax(scaled, dim=1).clamp_(min=math.exp(LEAST_LOG_PROBA))
        return log_proba_columns(scores, self.kind, self.scale).exp_()

    def _probabilities(self, ranking: Ranking) -> Tensor:
        """Sorted probabilities; zero where a list has ended."""
        if ranking.is_dense and ranking.depth == ranking.n_classes:
            if self.kind == "proba" and self.scale == 1:
                scores = ranking.sorted_scores()
                return scores.to(torch.promote_types(scores.dtype, torch.float32))
            return log_proba_columns(ranking.sorted_scores(), self.kind, self.scale).exp_()
        labels, scores = ranking.top(ranking.depth)
        if self.kind == "proba" and self.scale == 1:
            p = scores.to(torch.promote_types(scores.dtype, torch.float32))
        else:
            p = sorted_log_proba(ranking, self.kind, ranking.depth, self.scale)[:, :-1].exp()
        return p if ranking.is_dense else torch.where(labels >= 0, p, 0)


def _second(p: Tensor) -> Tensor:
    return p[:, 1:2] if p.shape[1] > 1 else torch.zeros_like(p[:, :1])


def row_noise(ranking: Ranking, seed: int) -> Tensor:
    """A number in (0, 1] for each row, that looks random and depends on seed and row alone.

    >>> r = Ranking.from_scores([[0.1, 0.9], [0.4, 0.6], [0.9, 0.1]])
    >>> u = row_noise(r, seed=0)
    >>> u[0] == u[2], u[0] == u[1]
    (tensor(True), tensor(False))
    """
    state = row_keys(ranking, seed)
    # The upper 53 bits, which are the best mixed ones, as a fraction.
    return (((state >> 11) & ((1 << 53) - 1)).to(torch.float64) + 1) / 2.0**53
