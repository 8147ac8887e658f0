"""LAC: least ambiguous set-valued classifiers (Sadinle, Lei and Wasserman, 2019)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from shortlist._utils.blocks import RANKED_ELEMENTS
from shortlist.conformal.levels import ColumnLevels, NestedLevels
from shortlist.conformal.scores.base import ConformityScore, register_score
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import ProbaColumns, proba_sums


@register_score
class LAC(ConformityScore):
    """Score a label by its probability.

    A set contains all labels whose probability is at least a threshold. With the true
    probabilities these are the shortest sets on average at any accuracy.

    Examples
    --------
    >>> LAC().levels(Ranking.from_scores([[0.25, 0.5, 0.25]])).tolist()
    [[0.5, 0.25, 0.25]]
    """

    name = "lac"
    can_use_features = False

    def levels(self, ranking: Ranking, features: Tensor | None = None) -> Tensor:
        """Return the probability of each label, in the order of the ranking.

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
        return ranking.sorted_proba()

    def nested_levels(self, ranking: Ranking, features: Tensor | None = None) -> NestedLevels:
        """Return the levels as an object; see `ConformityScore.nested_levels`."""
        if ranking.is_complete:
            score_type, scale = ranking.score_type, ranking.scale
            proba = ProbaColumns(ranking, score_type, scale)
            on_cpu = ranking.device.type == "cpu"
            return ColumnLevels(
                proba if on_cpu else proba[:], proba_sums(ranking, score_type, scale)
            )
        return super().nested_levels(ranking, features)

    @property
    def block_elements(self) -> int:
        """Number of scores in a block of rows; of their levels, few are in memory at a time."""
        return 2 * RANKED_ELEMENTS

    def lower(self, levels: Tensor, rounding: float) -> Tensor:
        """Return lower bounds of the levels; see `ConformityScore.lower`."""
        return levels * (1 - rounding)

    def onnx_levels(self, rows: Any) -> Any:
        """Return the levels as a value of an ONNX graph; see `ConformityScore.onnx_levels`."""
        return rows.sorted_proba
