"""Selectors for several lambdas, judged by held-out rows: which of them keep an accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from shortlist.conformal.bounds import accuracy_bound, fixed_sequence, round_down
from shortlist.conformal.quantiles import UnreachableError
from shortlist.conformal.ranks import min_calibration_size
from shortlist.guarantee import Guarantee


@dataclass(frozen=True)
class PathCalibration:
    """What calibration rows say of the members of a path.

    Attributes
    ----------
    weights : the members' lambdas
    rows : how many rows there were
    hits : in how many of them each member's set holds the label
    labels : how many labels each member's sets hold, all rows together

    Examples
    --------
    The member of 0.3 has the smallest sets of those that pass; 0.5 is never tested, as 0.4 fails:

    >>> weights, hits = [0.5, 0.4, 0.3, 0.1], [990, 900, 960, 980]
    >>> path = PathCalibration(weights, 1000, hits, [1000, 1100, 1200, 1500])
    >>> path.member(accuracy=0.94, delta=0.05)
    2
    """

    weights: Sequence[float]
    rows: int
    hits: Sequence[int]
    labels: Sequence[int]

    @classmethod
    def of(cls, weights: Sequence[float], hits: Tensor, sizes: Tensor) -> PathCalibration:
        """Of the members' hits and sizes, each (rows, members)."""
        return cls(list(weights), len(hits), hits.sum(dim=0).tolist(), sizes.sum(dim=0).tolist())

    def member(self, accuracy: float, delta: float) -> int:
        """The member with the smallest sets among those that are shown to reach the accuracy."""
        # Large sets first: an order that the calibration rows had no part in.
        order = sorted(range(len(self.weights)), key=self.weights.__getitem__)
        passed = fixed_sequence([self.hits[i] for i in order], self.rows, accuracy, delta)
        if not passed:
            raise UnreachableError(self._why_not(order[0], accuracy, delta))
        return min(order[:passed], key=lambda i: (self.labels[i], -self.hits[i]))

    def guarantee(self, member: int, accuracy: float, delta: float) -> Guarantee:
        """Return what the use of a member guarantees."""
        return Guarantee(
            "confidence",
            accuracy=accuracy,
            delta=delta,
            n_calibration=self.rows,
            operating_point=(
                f"cost_weight = {self.weights[member]:g} chosen by fixed-sequence testing"
            ),
        )

    def _why_not(self, first: int, accuracy: float, delta: float) -> str:
        hits, needed = self.hits[first], min_calibration_size(accuracy, delta)
        most = round_down(accuracy_bound(hits, self.rows, delta))
        advice = "Train a smaller cost_weight, or a family with larger sets, or calibrate with more"
        if self.rows < needed:
            advice = f"Calibrate with more: {needed:,} at least"
        return (
            f"accuracy = {accuracy} (delta = {delta}) cannot be guaranteed with {self.rows:,} "
            f"calibration rows: the member of the smallest cost_weight, {self.weights[first]:g}, "
            f"has the right label of {hits:,} in its sets, so that at most {most} can be. {advice}"
        )
