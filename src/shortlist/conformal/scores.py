"""Conformal scores: LAC, APS, RAPS, SAPS, top-k and margin. High is good.

Each is a function of a row's sorted probabilities p_1 >= p_2 >= … and a number u of the row, and
never increases with the rank j, so that the labels above a threshold are a prefix of the ranking.
LAC is of Sadinle, Lei and Wasserman (2019), APS of Romano, Sesia and Candès (2020), RAPS of
Angelopoulos, Bates, Malik and Jordan (2021), SAPS of Huang, Xi, Zhang, Yao, Qiu and Wei (2024).

Without randomisation u = 1: the label's whole share counts, for calibration and prediction alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist._utils.arrays import check_choice, check_count, check_weight, sort_values
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import ScoreType, every_proba, proba_columns, sorted_log_proba
from shortlist.ranking.row_hashing import row_keys

NAMES = ("lac", "aps", "raps", "saps", "topk", "margin")
RANDOMIZED = ("aps", "raps", "saps", "topk")
"""The scores that a random number can smooth; the others have nothing to randomise."""
MASSES = ("aps", "raps")
"""The scores that are made of the mass before a label."""


@dataclass(frozen=True)
class ConformalScore:
    """A score with its parameters, and what is known of the classifier's scores.

    Of the label of rank j in a row with sorted probabilities p_1 >= p_2 >= …; high is good:

    | name | score |
    |---|---|
    | lac | p_j |
    | aps | -(p_1 + … + p_{j-1} + u p_j) |
    | raps | APS - penalty · max(0, j - k_reg) |
    | saps | -u p_1 if j = 1, else -(p_1 + (j - 2 + u) penalty) |
    | topk | -(j - 1 + u) |
    | margin | p_1 - p_2 if j = 1, else p_j - p_1 |

    u = 1 unless `randomized`; a set holds the labels whose score is at least the threshold.

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
        return self.of_sorted(p, self.noise(ranking))

    def noise(self, ranking: Ranking) -> Tensor | float:
        """The number u of each row: (rows, 1)."""
        return row_noise(ranking, self.seed)[:, None] if self.randomized else 1.0

    def of_sorted(self, p: Tensor, u: Tensor | float) -> Tensor:
        """The scores of each row's first labels, of probabilities `p`: (rows, labels)."""
        ranks = torch.arange(1, p.shape[1] + 1, device=p.device)
        share = before = None
        if self.name in MASSES:
            share = rounded(p)
            before = share.cumsum(dim=1).sub_(share)
        return self._formula(p, ranks, u, share, before, p[:, :2]).expand_as(p)

    def of_labels(self, p: Tensor, index: Tensor, rank: Tensor, u: Tensor | float) -> Tensor:
        """The score of one label of each row, which has the `rank`, from 0, among probabilities in
        any order: (rows, 1). The very same number as that of `of_sorted`."""
        own, share, before = p.gather(1, index[:, None]), None, None
        if self.name in MASSES:
            # The labels before this one have what exceeds its share, and its share each.
            share = rounded(own)
            above = rounded(p, below=share).relu_().sum(dim=1, keepdim=True)
            before = above + share * rank[:, None]
        few = torch.topk(p, min(2, p.shape[1])).values if self.name in ("margin", "saps") else p
        return self._formula(own, rank[:, None].to(torch.int64) + 1, u, share, before, few)

    def _formula(
        self,
        p: Tensor,
        ranks: Tensor,
        u: Tensor | float,
        share: Tensor | None,
        before: Tensor | None,
        best: Tensor,
    ) -> Tensor:
        """The scores of labels from their probability, rank (from 1), their own mass and that of
        all labels before them, rounded, and the best probabilities of the row."""
        if self.name == "lac":
            return p
        if self.name == "margin":
            return torch.where(ranks == 1, p - _second(best), p - best[:, :1])
        if self.name == "topk":
            return -(ranks - 1 + u)
        if self.name == "saps":
            later = best[:, :1] + (ranks - 2 + u) * self.penalty
            return -torch.where(ranks == 1, u * p, later)
        assert share is not None
        assert before is not None
        mass = before + u * share
        if self.name == "raps":
            mass += self.penalty * (ranks - self.k_reg).clamp(min=0)
        return mass.neg_()

    def by_column(self, ranking: Ranking) -> Tensor:
        """Probabilities of all labels of a dense ranking, unsorted.

        Made in float64 and rounded once: the same numbers on every device, as the sums of masses
        have no room for an error.
        """
        if self.plain:
            return self.and_sums(ranking)[0]
        scores = ranking.scores_of(slice(None)).to(torch.float64)
        return proba_columns(scores, self.kind, self.scale).to(torch.float32)

    def and_sums(self, ranking: Ranking) -> tuple[Tensor, Tensor | float | None]:
        """The levels of LAC, by column, and the sum of each row, if it is known."""
        return every_proba(ranking, self.kind, self.scale)

    @property
    def plain(self) -> bool:
        """Whether the probabilities are the scores themselves."""
        return self.kind == "proba" and self.scale == 1

    def _probabilities(self, ranking: Ranking) -> Tensor:
        """Sorted probabilities; zero where a list has ended."""
        if ranking.is_whole:
            if self.plain:
                scores = ranking.sorted_scores()
                return scores.to(torch.promote_types(scores.dtype, torch.float32))
            return sort_values(self.by_column(ranking)).flip(1)
        labels, scores = ranking.top(ranking.depth)
        if self.plain:
            p = scores.to(torch.promote_types(scores.dtype, torch.float32))
        else:
            wide = ranking.with_precision("float64")
            p = sorted_log_proba(wide, self.kind, ranking.depth, self.scale)[:, :-1]
            p = p.exp_().to(torch.float32)
        return p if ranking.is_dense else torch.where(labels >= 0, p, 0)


def rounded(p: Tensor, below: Tensor | float = 0.0) -> Tensor:
    """Probabilities as multiples of 2^-52 (float64), less the multiple `below`.

    Sums of these up to 2 are exact, so that in whatever order, and on whatever device they are
    added, the same number comes out. Below the 24 bits of a float32 above 1e-9 nothing is lost.

    >>> float(rounded(torch.tensor(1e-20))), float(rounded(torch.tensor(0.25)))
    (0.0, 0.25)
    """
    return p.to(torch.float64, copy=True).add_(1).sub_(1 + below)


def _second(p: Tensor) -> Tensor:
    return p[:, 1:2] if p.shape[1] > 1 else torch.zeros_like(p)


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
