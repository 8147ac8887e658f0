"""Split conformal prediction."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, check_choice, check_count, check_weight
from shortlist.conformal.levels import AnyLevels, Levels, OwnScores
from shortlist.conformal.quantiles import quantile_rank
from shortlist.conformal.scores import NAMES, ConformalScore
from shortlist.conformal.unsorted_levels import UnsortedLevels
from shortlist.learning.settings import seed_of
from shortlist.learning.temperature import scale_of
from shortlist.predictors.nested import UNLEARNED, NestedSelector
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import ScoreType
from shortlist.sets import PredictionSets

PENALTIES = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Penalties tried for RAPS and SAPS."""
TUNING_ROWS = 5000


class SplitConformal(NestedSelector):
    """Split conformal prediction: the labels whose score is at least a calibrated threshold.

    Parameters
    ----------
    score : "lac", "aps", "raps", "saps", "topk" or "margin"
        See `shortlist.conformal.ConformalScore` for the formulas. LAC, a threshold on the
        probabilities, gives the shortest sets of these; APS evens out the accuracy between easy
        and hard rows, RAPS and SAPS keep its sets from becoming long.
    accuracy : float
        What `predict_set` guarantees unless it is told otherwise.
    randomized : bool
        Smooth APS, RAPS, SAPS and top-k by a random number for each row: shorter sets, and a
        guarantee that is met without waste. The number depends on the row's scores and
        `random_state` alone, so that results repeat whatever batch the row comes in.
    temperature : "auto", None or float
        "auto" is fitted, on rows that are not used to calibrate; None leaves scores as they are.
    penalty, k_reg : "auto" or number
        Parameters of RAPS (both) and SAPS (penalty). "auto" takes what gives the shortest sets
        at `accuracy`, on rows that are not used to calibrate.
    calibration : float or None
        Share of the rows of `fit` that make the guarantee. The others fit temperature and
        penalties; if there is nothing to fit, all rows calibrate. None: `calibrate` will follow.
    by : None, "class" or "group"
        Whether the guarantee holds over all rows, for each class, or for each group of rows.
    allow_empty : bool
        Whether a set may be empty. If not, each holds at least its row's first label, and
        calibration makes use of it: a right label that is its row's first is held at every
        threshold. So sets are shorter than by the textbook rule, which is that of True, and the
        guarantee is kept just as well.
    on_unreachable : "raise" or "all"
        What to do about a guarantee that the calibration rows are too few for: an error, or every
        label.
    score_type : "auto", "logits", "proba" or "log_proba"
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_, score_type_
    score_ : ConformalScore
        The score with all its parameters, temperature included.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(6000)
    >>> select, test = data.split(4000)
    >>> model = sl.SplitConformal("lac").fit(select.posterior, select.y)
    >>> sets = model.predict_set(test.posterior, accuracy=0.9)
    >>> bool(0.87 < sets.accuracy(test.y) < 0.93), sets.guarantee
    (True, 'accuracy >= 0.9 guaranteed by 3,000 calibration rows')
    """

    score_: ConformalScore

    def __init__(
        self,
        score: str = "lac",
        *,
        accuracy: float = 0.95,
        randomized: bool = False,
        temperature: float | str | None = "auto",
        penalty: float | str = "auto",
        k_reg: int | str = "auto",
        calibration: float | None = 0.75,
        by: str | None = None,
        allow_empty: bool = False,
        on_unreachable: str = "raise",
        score_type: str = "auto",
        random_state: object = 0,
    ) -> None:
        self.score = score
        self.accuracy = accuracy
        self.randomized = randomized
        self.temperature = temperature
        self.penalty = penalty
        self.k_reg = k_reg
        self.calibration = calibration
        self.by = by
        self.allow_empty = allow_empty
        self.on_unreachable = on_unreachable
        self.score_type = score_type
        self.random_state = random_state

    def _check(self) -> None:
        super()._check()
        check_choice(self.score, "score", NAMES)
        for name in ("temperature", "penalty", "k_reg"):
            if isinstance(getattr(self, name), str):
                check_choice(getattr(self, name), name, ("auto",))

    def _learns(self) -> bool:
        tunes = {"raps": (self.penalty, self.k_reg), "saps": (self.penalty,)}.get(self.score, ())
        return "auto" in (self.temperature, *tunes)

    def _parts(self, rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        if self._learns() or self.calibration is None:
            return super()._parts(rows)
        return np.arange(rows), np.arange(rows)

    def _learn(
        self, ranking: Ranking, index: Tensor, kind: ScoreType, features: Tensor | None
    ) -> None:
        score = ConformalScore(
            self.score,
            kind,
            scale_of(self.temperature, ranking, index, kind),
            penalty=0.0 if self.penalty == "auto" else check_weight(self.penalty, "penalty"),
            k_reg=0 if self.k_reg == "auto" else check_count(self.k_reg, "k_reg", least=0),
            randomized=self.randomized,
            seed=seed_of(self.random_state),
        )
        self.score_ = _tuned(
            score,
            ranking,
            index,
            self.accuracy,
            PENALTIES if self.penalty == "auto" and self.score in ("raps", "saps") else (),
            self.k_reg == "auto" and self.score == "raps",
        )

    @property
    def _tolerance(self) -> float:
        # The other scores are exact sums, ranks and differences of probabilities.
        return UNLEARNED if self.score == "lac" else 0.0

    def _levels(self, ranking: Ranking, features: Tensor | None) -> tuple[Ranking, AnyLevels]:
        if ranking.is_whole:
            if self.score == "lac":
                return ranking, OwnScores(*self.score_.and_sums(ranking))
            return ranking, UnsortedLevels(self.score_, ranking)
        sizes = torch.arange(1, ranking.depth + 1, device=ranking.device)
        return ranking, Levels(self.score_.levels(ranking), sizes)

    def _name(self) -> str:
        return self.score

    def predict_set(
        self,
        scores: ArrayLike | Ranking,
        features: ArrayLike | None = None,
        *,
        accuracy: float | None = None,
        delta: float | None = None,
        mean_size: float | None = None,
        by: str | None = None,
        groups: ArrayLike | None = None,
    ) -> PredictionSets:
        """The prediction set of each row, at any level, without another calibration.

        Parameters
        ----------
        accuracy : float, optional
            P(label in set) is at least this, for rows exchangeable with the calibration rows.
        delta : float, optional
            Ask for more: with probability 1 - delta over the draw of the calibration rows, the
            accuracy on all new rows is at least `accuracy`.
        mean_size : float, optional
            Instead of an accuracy: aim at sets of this mean size (Denis and Hebiri, for "lac").
            `guarantee` says which accuracy is certified.
        by, groups
            "class" or "group" (with the group of each row): the guarantee for each of them, one by
            one (with `delta`, not for all of them at once).
        """
        ranking, x = self._rows(scores, features)
        point = self._operating_point(accuracy, delta, mean_size, by)
        return self._predict(ranking, x, [point], groups)[0]


def _tuned(
    score: ConformalScore,
    ranking: Ranking,
    index: Tensor,
    accuracy: float,
    penalties: tuple[float, ...],
    tune_k: bool,
) -> ConformalScore:
    """The penalties with the shortest sets at an accuracy, on these rows."""
    if not penalties and not tune_k:
        return score
    every = math.ceil(len(ranking) / TUNING_ROWS)
    ranking, index = ranking[::every], index[::every]
    rank = ranking.rank_of(index)
    starts = [score.k_reg]
    if tune_k:  # the paper's choice, the size that fixed top-k needs, and smaller ones
        top_k = float(torch.quantile(rank.clamp(max=ranking.depth), accuracy)) + 1
        starts = sorted({0, 1, 2, 5, round(top_k / 2), round(top_k)})
    tried = [
        replace(score, penalty=penalty, k_reg=start)
        for penalty, start in itertools.product(penalties or (score.penalty,), starts)
    ]
    return min(tried, key=lambda one: _mean_size(one, ranking, rank, accuracy))


def _mean_size(score: ConformalScore, ranking: Ranking, rank: Tensor, accuracy: float) -> float:
    """The mean size of never-empty sets that hold their label in a share `accuracy` of rows."""
    levels = torch.cat([score.levels(ranking[rows]) for rows in ranking.blocks()])
    sizes = torch.arange(1, ranking.depth + 1, device=ranking.device)
    nested = Levels(levels, sizes).within(ranking.listed()).never_empty()
    own = nested.of_rank(rank).sort().values
    at = own[max(quantile_rank(len(own), accuracy), 1) - 1]
    return float(nested.sizes_at(at).to(torch.float64).mean())
