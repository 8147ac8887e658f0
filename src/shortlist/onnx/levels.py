"""Levels of nested sets in the graph, which are compared with thresholds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from shortlist.conformal.scores import ConformityScore
from shortlist.onnx.graph import F64, Value
from shortlist.onnx.member_sizes import MemberSizes, member_sizes
from shortlist.onnx.rankings import Ranked
from shortlist.onnx.rows import ROUNDING, ScoreRows

COST_ROUNDING = 4e-6
"""Like `ROUNDING`, for levels that are cost weights, which torch computes in float32."""


@dataclass(frozen=True)
class GraphLevels:
    """Levels of nested sets in the graph, and the sizes of the sets.

    Attributes
    ----------
    ranked : Ranked
        Rows whose prefixes are the sets.
    values : Value of shape (n_rows, n_members)
        Levels, non-increasing along each row.
    sizes : MemberSizes
        Sizes of the sets.
    score : ConformityScore
        The score, whose method `lower` lowers thresholds.
    rounding : float
        By how much thresholds are lowered. A threshold is the level of a calibration row, and
        other rows may have the same level. Another runtime may round it differently and drop their
        labels, which would break the guarantee.
    """

    ranked: Ranked
    values: Value
    sizes: MemberSizes
    score: ConformityScore
    rounding: float

    @classmethod
    def from_score(cls, score: ConformityScore, rows: ScoreRows) -> GraphLevels:
        """Return the levels of a score for rows."""
        if score.levels_are_cost_weights:
            rounding = COST_ROUNDING
        elif score.rounding or rows.has_proba:
            # Either calibration has lowered the levels already, or nothing is rounded.
            rounding = 0.0
        else:
            rounding = ROUNDING
        rows, values, sizes = rows.levels_of(score)
        return cls(rows.ranked, values, member_sizes(rows.graph, sizes), score, rounding)

    def never_empty(self) -> GraphLevels:
        """Return the same levels, but infinite for the first set, so that no set is empty."""
        first = self.values[:, :1].clamp(min=math.inf)
        return replace(self, values=self.ranked.graph.concat([first, self.values[:, 1:]]))

    def counts_at(self, thresholds: Value | Tensor) -> Value:
        """Return the number of levels in each row that reach its threshold: (n_rows, 1)."""
        return (self.values.to(F64) >= self.lowered(thresholds)).count()

    def lowered(self, thresholds: Value | Tensor) -> Value:
        """Return thresholds lowered by the rounding."""
        if self.rounding:
            thresholds = self.score.lower(thresholds, self.rounding)  # type: ignore[arg-type]
        return self.ranked.graph.value(thresholds, F64)

    def sizes_at(self, counts: Value) -> Value:
        """Return the sizes of the sets that the given numbers of levels reach: (n_rows, 1)."""
        sizes = self.sizes.reached(counts)
        lengths = self.ranked.lengths()
        return sizes if lengths is None else self.ranked.graph.op("Min", sizes, lengths)

    def by_rank(self) -> Value:
        """Return the level of each ranked label: (n_rows, depth)."""
        return self.sizes.by_rank(self.values.pad(0, 1, -math.inf), self.ranked.depth)

    @property
    def max_size(self) -> int:
        """Largest possible size."""
        return self.sizes.largest(self.ranked.depth)
