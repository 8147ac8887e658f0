"""Calibration of a path: which of its cost weights reach an accuracy on held-out rows."""

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
    """Hits and sizes of the members of a path on calibration rows.

    Attributes
    ----------
    cost_weights : sequence of float
        Cost weight of each member.
    n_rows : int
        Number of calibration rows.
    hits : sequence of int
        Number of rows in which each member's set contains the true label.
    total_sizes : sequence of int
        Sum of the sizes of each member's sets.

    Examples
    --------
    Members are tested from the largest sets on. The one of 0.4 fails, so that 0.5 is not tested.
    Of those that pass, the one of 0.3 has the smallest sets.

    >>> weights, hits = [0.5, 0.4, 0.3, 0.1], [990, 900, 960, 980]
    >>> path = PathCalibration(weights, 1000, hits, [1000, 1100, 1200, 1500])
    >>> path.member(accuracy=0.94, delta=0.05)
    2
    """

    cost_weights: Sequence[float]
    n_rows: int
    hits: Sequence[int]
    total_sizes: Sequence[int]

    @classmethod
    def of(cls, cost_weights: Sequence[float], hits: Tensor, sizes: Tensor) -> PathCalibration:
        """Return the calibration from the members' hits and sizes.

        Parameters
        ----------
        cost_weights : sequence of float
            Cost weight of each member.
        hits : Tensor of shape (n_rows, n_members)
            Whether each set contains its row's true label.
        sizes : Tensor of shape (n_rows, n_members)
            Size of each set.

        Returns
        -------
        PathCalibration
            Their sums.
        """
        return cls(
            list(cost_weights), len(hits), hits.sum(dim=0).tolist(), sizes.sum(dim=0).tolist()
        )

    def member(self, accuracy: float, delta: float) -> int:
        """Return the member with the smallest sets among those that are shown to reach an accuracy.

        Parameters
        ----------
        accuracy : float
            Accuracy to guarantee.
        delta : float
            Probability, over the draw of the calibration rows, that the guarantee may fail.

        Returns
        -------
        int
            Index of the member.

        Raises
        ------
        UnreachableError
            If no member passes the test.
        """
        # Members with large sets come first. This order does not depend on the calibration rows.
        order = sorted(range(len(self.cost_weights)), key=self.cost_weights.__getitem__)
        passed = fixed_sequence([self.hits[i] for i in order], self.n_rows, accuracy, delta)
        if not passed:
            raise UnreachableError(self._explain_failure(order[0], accuracy, delta))
        return min(order[:passed], key=lambda i: (self.total_sizes[i], -self.hits[i]))

    def guarantee(self, member: int, accuracy: float, delta: float) -> Guarantee:
        """Return the guarantee of the sets of a member.

        Parameters
        ----------
        member : int
            Index of the member, from `member`.
        accuracy, delta : float
            As given to `member`.

        Returns
        -------
        Guarantee
            Guarantee with confidence ``1 - delta``.
        """
        return Guarantee(
            "confidence",
            accuracy=accuracy,
            delta=delta,
            n_calibration=self.n_rows,
            operating_point=(
                f"cost_weight = {self.cost_weights[member]:g} chosen by fixed-sequence testing"
            ),
        )

    def _explain_failure(self, first: int, accuracy: float, delta: float) -> str:
        """Return the error message if the first member in the order does not pass."""
        hits, needed = self.hits[first], min_calibration_size(accuracy, delta)
        most = round_down(accuracy_bound(hits, self.n_rows, delta))
        advice = "Train a smaller cost_weight or a family with larger sets, or add calibration rows"
        if self.n_rows < needed:
            advice = f"Calibrate with at least {needed:,} rows"
        return (
            f"accuracy = {accuracy} (delta = {delta}) cannot be guaranteed with {self.n_rows:,} "
            "calibration rows: the sets of the smallest cost_weight, "
            f"{self.cost_weights[first]:g}, contain the true label of {hits:,} rows, so that at "
            f"most {most} can be. {advice}"
        )
