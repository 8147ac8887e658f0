"""Scores that are functions of the sorted probabilities, computed without a full sort."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.conformal.levels import NestedLevels, UnsortedLevels
from shortlist.conformal.scores.base import ConformityScore
from shortlist.learning.settings import resolve_seed
from shortlist.ranking import Ranking
from shortlist.ranking.row_hashing import row_keys


@dataclass(frozen=True)
class LabelTerms:
    """Terms that the level of a label can depend on.

    Attributes
    ----------
    p : Tensor
        Probability of the label.
    rank : Tensor
        Rank of the label, from 1.
    u : Tensor or float
        Random number of the row in (0, 1]; 1 if the score is not randomized.
    best : Tensor of shape (n_rows, 2)
        The two highest probabilities of the row.
    own : Tensor or None
        Probability mass of the label, as a multiple of 2^-52.
    before : Tensor or None
        Probability mass of all labels that are ranked before it, as an exact sum.
    """

    p: Tensor
    rank: Tensor
    u: Tensor | float
    best: Tensor
    own: Tensor | None = None
    before: Tensor | None = None

    def mass(self) -> Tensor:
        """Return the mass of the labels before this one, plus the share `u` of its own."""
        assert self.own is not None
        assert self.before is not None
        return self.before + self.u * self.own


class ProbabilityScore(ConformityScore):
    """A score that is a function of a row's sorted probabilities and of one random number.

    Subclasses implement `formula`. The level of a single label is then computed from counts and
    sums over its row, without sorting, and sets are computed by sorting only as many probabilities
    as needed. Sums of probabilities are exact, so that levels are the same numbers on every device,
    and equal levels stay equal.

    Parameters
    ----------
    randomized : bool, default=False
        Count a random share of each row, which makes sets shorter. The share depends on the row
        and on `random_state` alone, never on the batch.
    random_state : int, RandomState instance or None, default=0
        Seed of the random shares.
    """

    rounding = 0.0
    can_use_features = False
    needs_mass: ClassVar[bool] = False
    """Whether the formula uses `LabelTerms.mass`."""
    can_randomize: ClassVar[bool] = True
    """Whether the formula uses `LabelTerms.u`."""

    def __init__(self, *, randomized: bool = False, random_state: object = 0) -> None:
        self.randomized = randomized
        self.random_state = random_state

    @abstractmethod
    def formula(self, terms: LabelTerms) -> Tensor:
        """Return the levels of labels from their terms."""

    def levels(self, ranking: Ranking, features: Tensor | None = None) -> Tensor:
        """Return the level of each label, in the order of the ranking.

        Parameters
        ----------
        ranking : Ranking
            Rows to score.
        features : Tensor, optional
            Ignored: the score depends on probabilities alone.

        Returns
        -------
        Tensor of shape (n_rows, depth)
            Levels, non-increasing along each row.
        """
        p = ranking.sorted_proba()  # Sorts the scores, from which the noise is computed.
        return self.sorted_levels(p, self.noise(ranking))

    def nested_levels(self, ranking: Ranking, features: Tensor | None = None) -> NestedLevels:
        """Return the levels as an object; see `ConformityScore.nested_levels`."""
        if ranking.is_complete:
            return UnsortedLevels(self, ranking)
        return super().nested_levels(ranking, features)

    def noise(self, ranking: Ranking) -> Tensor | float:
        """Return the random number of each row, of shape (n_rows, 1); 1 if not randomized."""
        if not self.randomized:
            return 1.0
        if not self.can_randomize:
            raise ValueError(f"the score {self.name!r} cannot be randomized")
        return row_noise(ranking, resolve_seed(self.random_state))[:, None]

    def sorted_levels(self, p: Tensor, u: Tensor | float) -> Tensor:
        """Return the levels of each row's first labels, from their sorted probabilities."""
        rank = torch.arange(1, p.shape[1] + 1, device=p.device)
        own = before = None
        if self.needs_mass:
            own = exact(p)
            before = own.cumsum(dim=1).sub_(own)
        return self.formula(LabelTerms(p, rank, u, p[:, :2], own, before)).expand_as(p)

    def label_levels(self, p: Tensor, index: Tensor, rank: Tensor, u: Tensor | float) -> Tensor:
        """Return the level of one label of each row, from unsorted probabilities.

        Parameters
        ----------
        p : Tensor of shape (n_rows, n_classes)
            Probabilities by column.
        index, rank : Tensor of shape (n_rows,)
            Column of the label, and its rank from 0.
        u : Tensor or float
            Random number of each row.

        Returns
        -------
        Tensor of shape (n_rows, 1)
            The same numbers as those of `sorted_levels`.
        """
        p_label = p.gather(1, index[:, None])
        own = before = None
        if self.needs_mass:
            # Each label before this one has the mass of this one plus the excess over it.
            own = exact(p_label)
            above = exact(p, below=own).relu_().sum(dim=1, keepdim=True)
            before = above + own * rank[:, None]
        best = torch.topk(p, min(2, p.shape[1])).values
        place = rank[:, None].to(torch.int64) + 1
        return self.formula(LabelTerms(p_label, place, u, best, own, before))

    def onnx_levels(self, rows: Any) -> Any:
        """Return the levels as a value of an ONNX graph; see `ConformityScore.onnx_levels`."""
        return self.onnx_formula(rows, rows.noise() if self.randomized else 1.0)

    def onnx_formula(self, rows: Any, u: Any) -> Any:
        """Return `formula` for sorted probabilities in an ONNX graph.

        Parameters
        ----------
        rows : shortlist.onnx.ScoreRows
            Sorted probabilities of the rows, as values of the graph.
        u : shortlist.onnx.Value or float
            Random number of each row; 1 if the score is not randomized.

        Returns
        -------
        shortlist.onnx.Value of shape (n_rows, depth)

        Raises
        ------
        ValueError
            By default: a score has no graph unless it implements this method.
        """
        raise ValueError(
            f"the score {type(self).__name__} cannot be exported to ONNX: it does not implement "
            "onnx_formula(rows, u); see `ConformityScore.onnx_levels`"
        )


def exact(p: Tensor, below: Tensor | float = 0.0) -> Tensor:
    """Return probabilities as multiples of 2^-52 in float64, minus the multiple `below`.

    Sums of them up to 2 are exact, whatever the order of the terms and the device. Above 1e-9
    nothing of a float32 is lost.

    Examples
    --------
    >>> float(exact(torch.tensor(1e-20))), float(exact(torch.tensor(0.25)))
    (0.0, 0.25)
    """
    return p.to(torch.float64, copy=True).add_(1).sub_(1 + below)


def row_noise(ranking: Ranking, seed: int) -> Tensor:
    """Return a number in (0, 1] for each row: a hash of the row's scores and the seed.

    Examples
    --------
    >>> r = Ranking.from_scores([[0.1, 0.9], [0.4, 0.6], [0.9, 0.1]])
    >>> u = row_noise(r, seed=0)
    >>> u[0] == u[2], u[0] == u[1]
    (tensor(True), tensor(False))
    """
    state = row_keys(ranking, seed)
    # The upper 53 bits of the hash are the most random ones.
    return (((state >> 11) & ((1 << 53) - 1)).to(torch.float64) + 1) / 2.0**53
