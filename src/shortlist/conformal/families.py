"""Families of conformal sets, and of sets of bounded mean size, for selectors."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.validation import check_probability
from shortlist.conformal.levels import Levels
from shortlist.conformal.quantiles import threshold
from shortlist.conformal.scores import LAC, ConformityScore, score_class
from shortlist.families import Family
from shortlist.learning.temperature import fit_scale
from shortlist.ranking import Ranking, as_ranking
from shortlist.ranking.score_types import ScoreType, infer_score_type


class LevelFamily(Family):
    """A family of sets of the labels whose level is at least a threshold, never empty.

    The thresholds are computed from data: by `calibrate`, or from the rows of a selector's fit.
    """

    thresholds: list[float] | None = None
    score_type_: ScoreType
    scale_: float

    @abstractmethod
    def make_score(self) -> ConformityScore:
        """Return the score whose levels are compared with the thresholds."""

    @abstractmethod
    def _find_thresholds(self, ranking: Ranking, index: Tensor | None) -> list[float]:
        """Return the thresholds, in decreasing order."""

    @property
    def needs_fit(self) -> bool:
        """Whether the thresholds are not known yet."""
        return self.thresholds is None

    def fit(self, ranking: Ranking, index: Tensor | None, score_type: ScoreType) -> Self:
        """Return the family with thresholds from these rows, unless it has some already."""
        if self.thresholds is not None:
            return self
        family = copy.copy(self)
        family.score_type_ = score_type
        family.scale_ = 1.0 if index is None else fit_scale(ranking, index, score_type)
        family.thresholds = family._find_thresholds(ranking, index)
        return family

    def _without_thresholds(self) -> Self:
        """Return a copy of the family that has no thresholds yet."""
        family = copy.copy(self)
        family.thresholds = None
        return family

    def _levels(self, ranking: Ranking) -> Levels:
        scaled = ranking.with_scale(self.score_type_, self.scale_)
        sizes = torch.arange(1, ranking.depth + 1, device=ranking.device)
        return Levels(self.make_score().levels(scaled), sizes).never_empty()

    def possible_sizes(self, ranking: Ranking) -> Iterable[int]:
        """Return the sizes that can occur."""
        return range(1, ranking.depth + 1)

    def sizes_of(self, ranking: Ranking) -> Tensor:
        """Return the size of each member's set in each row."""
        if self.thresholds is None:
            raise ValueError(
                f"{self} has no thresholds yet; they come from data: {type(self).__name__}(...)"
                ".calibrate(...), or a selector's fit"
            )
        table = torch.empty((len(ranking), len(self)), dtype=torch.int32, device=ranking.device)
        for rows in ranking.blocks():
            levels = self._levels(ranking[rows])
            for k, q in enumerate(self.thresholds):
                table[rows, k] = levels.sizes_at(levels.values.new_tensor(q)).to(torch.int32)
        return torch.minimum(table, ranking.lengths()[:, None])

    def onnx_sizes(self, rows: Any) -> Any:
        """Return `sizes_of` as a value of an ONNX graph; see `Family.onnx_sizes`."""
        assert self.thresholds is not None
        scaled = rows.with_scale(self.score_type_, self.scale_)
        sizes = scaled.count_reaching(self.make_score(), self.thresholds).clamp(min=1)
        listed = rows.lengths()
        return sizes if listed is None else rows.minimum(sizes, listed)


class Conformal(LevelFamily):
    """Conformal sets at several accuracies, a special case of the paper's families.

    Parameters
    ----------
    score : str, default="lac"
        Name of a registered score.
    levels : sequence of float
        Accuracies, increasing, so that the sets grow.
    penalty, k_reg : float, int
        Parameters of RAPS and SAPS.

    Notes
    -----
    A selector calibrates the family on the rows of its own fit, unless `calibrate` was called
    before. The sets that a selector chooses from the family have no guarantee.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(3000)
    >>> family = sl.Conformal("lac", [0.5, 0.9]).calibrate(data.posterior, data.y)
    >>> family.sizes(data.posterior).mean(axis=0).round(1).tolist()
    [1.1, 4.3]
    """

    def __init__(
        self,
        score: str = "lac",
        levels: Sequence[float] = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99),
        *,
        penalty: float = 0.1,
        k_reg: int = 1,
    ) -> None:
        self.score = score_class(score).name
        self.levels = [check_probability(level, "each level of Conformal") for level in levels]
        if not self.levels or (np.diff(self.levels) <= 0).any():
            raise ValueError(f"the levels of Conformal must increase; got {list(levels)}")
        self.penalty, self.k_reg = penalty, k_reg

    def calibrate(
        self, scores: ArrayLike | Ranking, y: ArrayLike, *, score_type: str = "auto"
    ) -> Self:
        """Return a copy of the family with thresholds from labeled rows.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the rows.
        y : array-like of shape (n_rows,)
            Labels.
        score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
            Type of the scores.

        Returns
        -------
        Conformal
            Family with thresholds.
        """
        ranking, declared = _read(scores, score_type)
        index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device)
        return self._without_thresholds().fit(ranking, index, declared)

    def make_score(self) -> ConformityScore:
        """Return the score whose levels are compared with the thresholds."""
        cls = score_class(self.score)
        known = cls._get_param_names()
        return cls(**{n: getattr(self, n) for n in ("penalty", "k_reg") if n in known})

    def _find_thresholds(self, ranking: Ranking, index: Tensor | None) -> list[float]:
        assert index is not None
        own = torch.cat(
            [
                self._levels(ranking[rows]).of_rank(ranking[rows].rank_of(index[rows]))
                for rows in ranking.blocks()
            ]
        )
        # Another batch, type or device may compute lower levels of the same rows.
        score = self.make_score()
        lowest = score.lower(own.to(torch.float64), max(score.rounding, ranking.rounding))
        rising = np.sort(lowest.cpu().numpy())
        return [threshold(rising, level) for level in self.levels]

    def __len__(self) -> int:
        return len(self.levels)

    def __repr__(self) -> str:
        return f"Conformal({self.score!r}, {self.levels})"


class DenisHebiri(LevelFamily):
    """Sets of bounded mean size: one threshold on the probabilities for each mean size.

    At each threshold, the sets have at most the requested mean size on the given rows, whose
    labels are not needed (Denis and Hebiri, 2017).

    Parameters
    ----------
    mean_sizes : sequence of float
        Mean sizes, increasing, each at least 1.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(3000)
    >>> family = sl.DenisHebiri([1.5, 3.0]).calibrate(data.posterior)
    >>> family.sizes(data.posterior).mean(axis=0).round(2).tolist()
    [1.5, 3.0]
    """

    def __init__(self, mean_sizes: Sequence[float]) -> None:
        self.mean_sizes = np.asarray(mean_sizes, dtype=np.float64).tolist()
        wrong = np.ndim(mean_sizes) != 1 or not len(self.mean_sizes) or min(self.mean_sizes) < 1
        if wrong or (np.diff(self.mean_sizes) <= 0).any():
            raise ValueError(f"mean_sizes must increase and be at least 1; got {mean_sizes!r}")

    def calibrate(self, scores: ArrayLike | Ranking, *, score_type: str = "auto") -> Self:
        """Return a copy of the family with thresholds from rows without labels.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the rows.
        score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
            Type of the scores.

        Returns
        -------
        DenisHebiri
            Family with thresholds.
        """
        ranking, declared = _read(scores, score_type)
        return self._without_thresholds().fit(ranking, None, declared)

    def make_score(self) -> ConformityScore:
        """Return the score whose levels are compared with the thresholds."""
        return LAC()

    def _find_thresholds(self, ranking: Ranking, index: Tensor | None) -> list[float]:
        # The first label is always in the set; the others enter in the order of probability.
        others = torch.cat(
            [self._levels(ranking[rows]).values[:, 1:].flatten() for rows in ranking.blocks()]
        )
        falling = others.to(torch.float64).sort(descending=True).values.cpu().numpy()
        thresholds = []
        for size in self.mean_sizes:
            # In exact arithmetic: (2.3 - 1) * 10 is 13 labels.
            room = min(math.floor((Fraction(repr(size)) - 1) * len(ranking)), len(falling))
            # Labels of equal probability enter together.
            while 0 < room < len(falling) and falling[room] == falling[room - 1]:
                room = int(np.searchsorted(-falling, -falling[room - 1], side="left"))
            thresholds.append(float(falling[room - 1]) if room else np.inf)
        return thresholds

    def __len__(self) -> int:
        return len(self.mean_sizes)

    def __repr__(self) -> str:
        return f"DenisHebiri({self.mean_sizes})"


def _read(scores: ArrayLike | Ranking, declared: str) -> tuple[Ranking, ScoreType]:
    """Return the ranking of scores, and their type."""
    ranking = as_ranking(scores)
    return ranking, infer_score_type(ranking, declared)
