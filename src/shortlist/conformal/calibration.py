"""Calibration rows: what a predictor keeps of them, and what kind of rows they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist._utils.validation import check_non_negative, check_probability
from shortlist._utils.warnings import warn
from shortlist.conformal.calibrators import Calibrator, Thresholds
from shortlist.conformal.bounds import accuracy_bound, round_down
from shortlist.guarantee import Guarantee
from shortlist.ranking import Ranking

AnyCalibrator = TypeVar("AnyCalibrator", bound=Calibrator)

SOURCES = {True: "a score for every class", False: "ranked candidates"}


@dataclass(frozen=True)
class RowSchema:
    """What kind of rows were calibrated with: the guarantee holds for rows of the same kind.

    Attributes
    ----------
    dense : bool
        Whether every class has a score.
    depth : int
        Number of ranked labels.
    lengths : tuple of int
        Smallest and largest number of candidates of a row.
    precision : str
        Floating type of the scores, as `Ranking.precision` has it.
    """

    dense: bool
    depth: int
    lengths: tuple[int, int]
    precision: str = "float32"

    @classmethod
    def of(cls, ranking: Ranking) -> RowSchema:
        """Return the schema of a ranking."""
        listed = ranking.lengths()
        lengths = int(listed.min()), int(listed.max())
        return cls(ranking.is_dense, ranking.depth, lengths, ranking.precision)

    def match(self, ranking: Ranking) -> Ranking:
        """Return new rows in the precision of the calibration rows.

        Raises
        ------
        ValueError
            If the rows are of another kind, so that nothing is guaranteed for them.
        """
        advice = "calibrate with rows such as these"
        if ranking.is_dense != self.dense:
            raise ValueError(
                f"the calibration rows had {SOURCES[self.dense]}, but these have "
                f"{SOURCES[ranking.is_dense]}, for which nothing is guaranteed; {advice}"
            )
        if self.dense and ranking.depth != self.depth:
            raise ValueError(
                f"the calibration rows were ranked to depth {self.depth}, but these to "
                f"{ranking.depth}, for which nothing is guaranteed; {advice}"
            )
        lengths, (shortest, longest) = RowSchema.of(ranking).lengths, self.lengths
        if not self.dense and (lengths[0] < shortest or lengths[1] > longest):
            warn(
                f"the calibration rows had {shortest} to {longest} candidates, but these have "
                f"{lengths[0]} to {lengths[1]}: if they come from another source, the guaranteed "
                f"accuracy may not be kept; {advice}"
            )
        if ranking.precision == self.precision:
            return ranking
        if ranking.precision == "float32":
            return ranking.with_precision(self.precision)
        warn(
            f"the calibration rows had {self.precision} scores, but these are {ranking.precision}: "
            "scores that differ by rounding may be on the other side of the threshold, and the "
            f"guaranteed accuracy may not be kept; {advice}"
        )
        return ranking


@dataclass(frozen=True)
class Calibration:
    """What a predictor keeps of its calibration rows, in random order.

    The first `n_choosing` rows choose a threshold by its mean size. The others had no part in
    that choice and certify the accuracy of it.

    Attributes
    ----------
    levels : array of shape (n_rows,)
        Levels of the right labels, lowered by the rounding of a computation; minus infinity for
        labels that no set can contain.
    y : array of shape (n_rows,)
        Label indices; -1 for labels of unknown classes.
    groups : array of shape (n_rows,) or None
        Group of each row, as an index into `group_names`.
    thresholds, mean_sizes : array
        Thresholds in decreasing order, and their mean sizes on the rows that choose.
    parameters : dict
        Parameters that the levels depend on, as they were.
    schema : RowSchema
        What kind of rows they were.
    n_given : int or None
        Number of rows that `fit` was given, if it kept these of them.
    n_choosing : int
        Number of rows, the first ones, that choose a threshold by its mean size.
    n_chosen_elsewhere : int
        Number of other rows that chose, if these are not among the rows kept.
    exhaustive : bool
        Whether a set can contain every label.
    """

    levels: NDArray[np.float64]
    y: NDArray[np.int64]
    groups: NDArray[np.int64] | None
    group_names: list[object]
    thresholds: NDArray[np.float64]
    mean_sizes: NDArray[np.float64]
    parameters: dict[str, Any]
    schema: RowSchema
    n_choosing: int
    n_given: int | None = None
    n_chosen_elsewhere: int = 0
    exhaustive: bool = True

    def __len__(self) -> int:
        return len(self.levels)

    def fit(self, calibrator: AnyCalibrator, classes: list[object]) -> AnyCalibrator:
        """Fit a calibrator on these rows."""
        if self.n_chosen_elsewhere and calibrator.conditional_on is not None:
            raise ValueError(
                f'by = "{calibrator.conditional_on}", but of the calibration rows only counts are '
                "known, not their classes or groups; calibrate with exact=True"
            )
        return calibrator.fit(
            self.levels,
            self.y,
            groups=self.groups,
            group_names=self.group_names,
            classes=classes,
            exhaustive=self.exhaustive,
        )

    def at_mean_size(self, mean_size: float, delta: float, n_classes: int) -> Thresholds:
        """Return the lowest threshold whose sets are short enough, with a certified accuracy."""
        check_probability(delta, "delta")
        if check_non_negative(mean_size, "mean_size") > n_classes:
            raise ValueError(f"mean_size = {mean_size!r} is more than the {n_classes} classes")
        short = np.flatnonzero(self.mean_sizes <= mean_size)
        if not len(short):
            smallest = float(self.mean_sizes[0])
            raise ValueError(
                f"mean_size = {mean_size!r} is less than the smallest mean size, {smallest:.4g}"
            )
        q = float(self.thresholds[short[-1]])
        certifying = self.levels[self.n_choosing :]
        if not len(certifying):
            raise ValueError("one calibration row cannot both choose and certify; give more")
        hits = int((certifying >= q).sum())
        bound = float(round_down(accuracy_bound(hits, len(certifying), delta), digits=4))
        others = f"{self.n_choosing or self.n_chosen_elsewhere:,}"
        guarantee = Guarantee(
            "certified",
            accuracy=bound,
            delta=delta,
            n_calibration=len(certifying),
            operating_point=f"threshold chosen for mean size {mean_size:g} by {others} other rows",
        )
        return Thresholds(torch.tensor(q, dtype=torch.float64), guarantee)
