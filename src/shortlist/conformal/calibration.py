"""Calibration rows: what a predictor stores of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist._utils.validation import check_non_negative, check_probability
from shortlist.conformal.bounds import accuracy_bound, round_down
from shortlist.conformal.calibrators import Calibrator, Thresholds
from shortlist.conformal.row_schema import RowSchema
from shortlist.guarantee import Guarantee

AnyCalibrator = TypeVar("AnyCalibrator", bound=Calibrator)


@dataclass(frozen=True)
class Calibration:
    """Levels of the calibration rows of a predictor, in random order.

    For a target mean size, the first `n_choosing` rows choose the threshold. The others have no
    part in that choice and certify its accuracy.

    Attributes
    ----------
    levels : array of shape (n_rows,)
        Levels of the true labels, lowered by the rounding error of a computation; minus infinity
        for labels that no set can contain.
    y : array of shape (n_rows,)
        Label indices; -1 for labels of unknown classes.
    groups : array of shape (n_rows,) or None
        Group of each row, as an index into `group_names`.
    group_names : list
        Names of the groups.
    thresholds : array of shape (n_thresholds,)
        Thresholds in decreasing order.
    mean_sizes : array of shape (n_thresholds,)
        Mean set size at each threshold on the rows that choose.
    parameters : dict
        Parameters that the levels depend on, with their values at calibration.
    schema : RowSchema
        Schema of the rows.
    n_choosing : int
        Number of rows, the first ones, that choose a threshold by its mean size.
    n_given : int or None
        Number of rows that `fit` was given, if these are the part that it held out.
    n_chosen_elsewhere : int
        Number of rows that choose, if they are not among the rows of `levels`.
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
        """Fit a calibrator on these rows.

        Parameters
        ----------
        calibrator : Calibrator
            Calibrator to fit.
        classes : list
            Names of the classes.

        Returns
        -------
        Calibrator
            The fitted calibrator.

        Raises
        ------
        ValueError
            If the calibrator needs classes or groups that are not known.
        """
        if self.n_chosen_elsewhere and calibrator.conditional_on is not None:
            raise ValueError(
                f'by = "{calibrator.conditional_on}", but only counts of the calibration rows were '
                "kept, not their classes or groups; calibrate with exact=True"
            )
        return calibrator.fit(
            self.levels,
            self.y,
            groups=self.groups,
            group_names=self.group_names,
            classes=classes,
            exhaustive=self.exhaustive,
        )

    def mean_size_at(self, threshold: float) -> float:
        """Return the mean set size at a threshold, on the rows that choose.

        Parameters
        ----------
        threshold : float
            Threshold. Sets contain the labels whose level is not lower.

        Returns
        -------
        float
            NaN if it is lower than all thresholds that are stored.
        """
        reached = np.flatnonzero(self.thresholds <= threshold)
        return float(self.mean_sizes[reached[0]]) if len(reached) else float("nan")

    def at_mean_size(self, mean_size: float, delta: float, n_classes: int) -> Thresholds:
        """Return the lowest threshold with a mean size of at most `mean_size`.

        Parameters
        ----------
        mean_size : float
            Target mean set size.
        delta : float
            Probability, over the draw of the certifying rows, that the certified accuracy is too
            high.
        n_classes : int
            Number of classes.

        Returns
        -------
        Thresholds
            Threshold, with the accuracy that the certifying rows guarantee.

        Raises
        ------
        ValueError
            If no threshold has such a mean size, or there are too few rows.
        """
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
            raise ValueError(
                "mean_size needs at least two calibration rows, one to choose the threshold and "
                "one to certify its accuracy; got one"
            )
        hits = int((certifying >= q).sum())
        bound = float(round_down(accuracy_bound(hits, len(certifying), delta), digits=4))
        n_choosing = f"{self.n_choosing or self.n_chosen_elsewhere:,}"
        guarantee = Guarantee(
            "certified",
            accuracy=bound,
            delta=delta,
            n_calibration=len(certifying),
            operating_point=(
                f"threshold chosen for mean size {mean_size:g} by {n_choosing} other rows"
            ),
        )
        return Thresholds(torch.tensor(q, dtype=torch.float64), guarantee)
