"""Rows of a graph, from which conformity scores compute levels and families compute sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from shortlist.conformal.scores import ConformityScore
from shortlist.costs import Cost
from shortlist.families import Family
from shortlist.onnx.envelope import slopes
from shortlist.onnx.graph import F32, F64, DType, Graph, Operand, Value
from shortlist.onnx.member_sizes import SharedSizes, Sizes, member_sizes
from shortlist.onnx.overrides import check_overrides
from shortlist.onnx.rankings import Ranked, log_columns, sorted_log_proba, sorted_proba
from shortlist.onnx.shortlister import rank_masses, rescored_log_proba, spread
from shortlist.predictors.shortlister.rank_model import RankModel
from shortlist.predictors.shortlister.rescoring import Rescorer
from shortlist.ranking.score_types import ScoreType

ROUNDING = 2.0**-20
"""Bound on the difference between a level in the graph and in torch, if both start from the same
scores: probabilities are computed in float64 and rounded to float32."""


@dataclass(frozen=True)
class ScoreRows:
    """Rows of an ONNX graph, from which a score computes levels and a family computes sizes.

    This is the counterpart of `Ranking` in the graph. Values are used like tensors of shape
    (n_rows, n_columns); see :class:`Value`.

    Parameters
    ----------
    ranked : Ranked
        The rows, with labels in decreasing order of their scores.
    score_type : {"logits", "proba", "log_proba"}
        What the scores are.
    scale : float
        Inverse temperature, by which log-probabilities are multiplied.
    dtype : numpy.dtype
        Type of the input `features`.

    Attributes
    ----------
    depth : int
        Number of labels that are ranked in each row.
    ranks : Tensor of shape (1, depth)
        The ranks 1, 2, 3, …
    sorted_proba : Value of shape (n_rows, depth)
        Probabilities in decreasing order; zero after a row's last candidate.

    Examples
    --------
    A score with a graph:

    >>> from shortlist.conformal import ConformityScore
    >>> class LogProba(ConformityScore):
    ...     def levels(self, ranking, features=None):
    ...         return ranking.sorted_proba().clamp(min=1e-12).log()
    ...     def onnx_levels(self, rows):
    ...         return rows.sorted_proba.clamp(min=1e-12).log()
    """

    ranked: Ranked
    score_type: ScoreType
    scale: float
    dtype: DType

    @property
    def graph(self) -> Graph:
        """The graph to which operations are added."""
        return self.ranked.graph

    @property
    def depth(self) -> int:
        """Number of labels that are ranked in each row."""
        return self.ranked.depth

    @property
    def ranks(self) -> Tensor:
        """The ranks 1, 2, 3, … as a constant of shape (1, depth)."""
        return torch.arange(1, self.depth + 1)[None]

    @property
    def has_proba(self) -> bool:
        """Whether the scores are the probabilities themselves."""
        return self.score_type == "proba" and self.scale == 1

    @cached_property
    def sorted_proba(self) -> Value:
        """Probabilities in decreasing order; zero after a row's last candidate."""
        return sorted_proba(self.ranked, self.score_type, self.scale)

    def mass(self, u: Operand = 1.0) -> Value:
        """Return the mass of the labels before each label, plus the share `u` of its own.

        Parameters
        ----------
        u : Value or float, default=1.0
            Share of the label's own mass.

        Returns
        -------
        Value of shape (n_rows, depth)
            Exact sums in float64, as in :class:`shortlist.conformal.APS`.
        """
        own = (self.sorted_proba.to(F64) + 1.0) - 1.0  # Multiples of 2^-52: sums are exact.
        return (own.cumsum() - own) + own * u

    def noise(self) -> Value:
        """Return the input `noise`, a random number in (0, 1] for each row.

        Returns
        -------
        Value of shape (n_rows, 1), in float64
        """
        return self.graph.input("noise", F64, ["rows"]).reshape(-1, 1)

    def features(self, n_columns: int) -> Value:
        """Return the input `features`.

        Parameters
        ----------
        n_columns : int
            Number of features that `fit` saw.

        Returns
        -------
        Value of shape (n_rows, n_columns)
        """
        return self.graph.input("features", self.dtype, ["rows", n_columns])

    def value(self, operand: Operand) -> Value:
        """Return a number, array or tensor as a constant of the graph.

        Parameters
        ----------
        operand : number, array, tensor or Value
            Python numbers are converted to the type of the probabilities.

        Returns
        -------
        Value
        """
        return self.graph.value(operand, self.sorted_proba.dtype)

    def concat(self, parts: Sequence[Value]) -> Value:
        """Concatenate columns.

        Parameters
        ----------
        parts : sequence of Value
            Values of one type and with the same rows.

        Returns
        -------
        Value
        """
        return self.graph.concat(parts)

    def where(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """Return the values of `yes` where a condition holds, and of `no` elsewhere.

        Parameters
        ----------
        condition : Value
            Booleans.
        yes, no : Value or number
            Values to choose from.

        Returns
        -------
        Value
        """
        return self.graph.where(condition, yes, no)

    def minimum(self, a: Operand, b: Value) -> Value:
        """Return the smaller of two values, element by element.

        Parameters
        ----------
        a, b : Value or array
            Numbers of one type.

        Returns
        -------
        Value
        """
        return self.graph.op("Min", a, b)

    def lengths(self) -> Value | None:
        """Return the number of candidates of each row.

        Returns
        -------
        Value of shape (n_rows, 1), or None
            None if every class has a score.
        """
        return self.ranked.lengths()

    def count_above(self, thresholds: Sequence[float]) -> Value:
        """Return the number of scores in each row that exceed each threshold.

        Parameters
        ----------
        thresholds : sequence of float
            Thresholds, which are converted to the type of the scores.

        Returns
        -------
        Value of shape (n_rows, n_thresholds)
        """
        block = self.ranked.block
        return self.concat([(block > block.dtype.type(t)).count() for t in thresholds])

    def with_scale(self, score_type: ScoreType, scale: float) -> ScoreRows:
        """Return the same rows with another type of scores and another inverse temperature.

        Parameters
        ----------
        score_type : {"logits", "proba", "log_proba"}
            What the scores are.
        scale : float
            Inverse temperature.

        Returns
        -------
        ScoreRows
        """
        return replace(self, score_type=score_type, scale=scale)

    def log_proba(self, depth: int, *, precise: bool = False) -> Value:
        """Return sorted log-probabilities, with the log mass of all other labels last.

        Parameters
        ----------
        depth : int
            Number of labels.
        precise : bool, default=False
            Whether to compute in float64.

        Returns
        -------
        Value of shape (n_rows, depth + 1)
        """
        ranked = self.ranked.in_float64() if precise else self.ranked
        return sorted_log_proba(ranked, self.score_type, depth, self.scale)

    def levels_of(self, score: ConformityScore) -> tuple[ScoreRows, Value, Sizes]:
        """Return the levels of a score for these rows.

        Parameters
        ----------
        score : ConformityScore
            A score that implements `onnx_levels`.

        Returns
        -------
        rows : ScoreRows
            The rows, with labels in the order of the sets.
        values : Value of shape (n_rows, n_members)
            Levels of nested sets.
        sizes : array of shape (n_members,) or Value of shape (n_rows, n_members)
            Sizes of these sets.
        """
        check_overrides(score, ConformityScore, "onnx_levels")
        rows: ScoreRows = score.onnx_rerank(self)
        return rows, *score.onnx_nested_levels(rows)

    def sizes_of(self, family: Family) -> Sizes:
        """Return the sizes of the members of a family.

        Parameters
        ----------
        family : Family
            A family that implements `onnx_sizes`.

        Returns
        -------
        array of shape (n_members,) or Value of shape (n_rows, n_members)
            Sizes that all rows share, or those of each row.
        """
        check_overrides(family, Family, "onnx_sizes")
        sizes: Sizes = family.onnx_sizes(self)
        return sizes

    def count_reaching(self, score: ConformityScore, thresholds: Sequence[float]) -> Value:
        """Return the number of labels in each row whose level is at least each threshold.

        Parameters
        ----------
        score : ConformityScore
            A score that implements `onnx_levels`.
        thresholds : sequence of float
            Thresholds, which are levels of other rows.

        Returns
        -------
        Value of shape (n_rows, n_thresholds)
        """
        _, values, _ = self.levels_of(score)
        at = torch.tensor(thresholds, dtype=torch.float64)
        # Other rows may have the same level, and another runtime may round it differently.
        at = at if self.has_proba else score.lower(at, ROUNDING)
        limits = at.numpy().astype(values.dtype)
        return self.concat([(values >= q).count() for q in limits])

    # The envelope of a family

    def proba_slopes(
        self, p: Value, cost: Cost, sizes: Sizes, n_members: int, max_size: int
    ) -> Value:
        """Return the largest lambda at which each member of a family, or a later one, is best.

        Parameters
        ----------
        p : Value of shape (n_rows, depth)
            Probabilities in decreasing order, in float64.
        cost : {"log", "linear"}, sequence or callable
            Cost of a size.
        sizes : array of shape (n_members,) or Value of shape (n_rows, n_members)
            Sizes of the members.
        n_members, max_size : int
            Number of members, and the largest possible size.

        Returns
        -------
        Value of shape (n_rows, n_members)
            Levels, which are cost weights.
        """
        members = member_sizes(self.graph, sizes)
        gains, costs = members.gains(p, self.depth), members.costs(cost, max_size)
        return slopes(self.graph, gains, costs, n_members, members.costs_never_fall(cost))

    # The stages of the Shortlister

    def leave_mass(self, outside: float) -> ScoreRows:
        """Return the same candidates with a share of the mass for labels that are no candidates.

        Parameters
        ----------
        outside : float
            Share of the mass.

        Returns
        -------
        ScoreRows
        """
        log_p = self.log_proba(self.depth)[:, :-1] + math.log1p(-outside)
        ranked = self.ranked.with_scores(log_p)
        return replace(self, ranked=ranked, score_type="log_proba", scale=1.0)

    def rescored(self, rescorer: Rescorer, features: Value) -> ScoreRows:
        """Return the rows after stage 1 of the Shortlister.

        Parameters
        ----------
        rescorer : Rescorer
            The fitted stage.
        features : Value of shape (n_rows, n_features)
            Features of the rows.

        Returns
        -------
        ScoreRows
        """
        prior = log_columns(self.ranked, self.score_type).to(F32)
        labels = None if self.ranked.dense else self.ranked.labels
        log_p = rescored_log_proba(rescorer, prior, features, labels)
        return replace(self, ranked=self.ranked.rerank(log_p), score_type="log_proba", scale=1.0)

    def rank_model_levels(
        self, model: RankModel, log_p: Value, features: Value | None, cost: Cost
    ) -> Value:
        """Return the levels of stage 2 of the Shortlister.

        Parameters
        ----------
        model : RankModel
            The fitted stage.
        log_p : Value of shape (n_rows, depth + 1)
            Sorted log-probabilities, with the log mass of all other labels last.
        features : Value of shape (n_rows, n_features), optional
            Features of the rows.
        cost : {"log", "linear"}, sequence or callable
            Cost of a size.

        Returns
        -------
        Value of shape (n_rows, depth)
        """
        sizes = np.array(model.buckets.sizes)
        gains = rank_masses(model, log_p, features)[:, : len(sizes)]
        costs = SharedSizes(self.graph, sizes).costs(cost, int(sizes[-1]))
        values = slopes(self.graph, gains, costs, len(sizes), falling=False)
        return spread(model.buckets, values, log_p)
