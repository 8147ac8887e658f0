"""Calibrators with a threshold for each part of the rows, such as each class or each group."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist._utils.warnings import warn
from shortlist.conformal.calibrators.base import EVERY_LABEL, Calibrator
from shortlist.conformal.calibrators.thresholds import Thresholds
from shortlist.conformal.groups import note_on_absent
from shortlist.conformal.quantiles import UnreachableError
from shortlist.conformal.ranks import min_calibration_size
from shortlist.guarantee import Guarantee


class ConditionalCalibrator(Calibrator):
    """A calibrator with a threshold for each part of the rows: for each class or each group.

    Parts with too few calibration rows share one threshold; see `pooling_limits`. With `delta`
    they do not, since it is not known well enough how often rows of each part occur. An accuracy
    is then refused for them, or their sets contain every label.
    """

    plural: ClassVar[str]
    """The parts in the plural, for notes."""

    @abstractmethod
    def _parts(self) -> tuple[NDArray[np.int64], list[object]]:
        """Return the part of each row as an index (-1: in no part), and the names of all parts."""

    def threshold(self, accuracy: float, delta: float | None = None) -> Thresholds:
        """Return a threshold for each class or group; see `Calibrator.threshold`."""
        parts, names = self._parts()
        counts = np.bincount(parts[parts >= 0], minlength=len(names))
        needed = min_calibration_size(accuracy, delta, exhaustive=self.exhaustive_)
        too_few = (counts < needed) & (delta is None)
        limits = pooling_limits(counts, needed) if too_few.any() else np.zeros(len(counts))

        def quantile(rows: NDArray[np.bool_], which: str) -> float:
            try:
                return self.quantile(accuracy, delta, rows)
            except UnreachableError as error:
                raise UnreachableError(
                    f"by {self.per}, {which}: {error}", error.max_accuracy
                ) from None

        @cache
        def pooled_quantile(limit: float) -> float:
            in_pool = np.append(counts < limit, False)  # The last value is for rows in no part.
            return quantile(in_pool[parts], f"{self.plural} with too few rows, pooled")

        def quantile_of(k: int, name: object) -> float:
            if too_few[k]:
                return pooled_quantile(limits[k])
            own = quantile(parts == k, repr(name))
            # A large part whose rows are in a pool must keep the guarantee of the pool too.
            return min(own, pooled_quantile(limits[k])) if limits[k] else own

        values = [quantile_of(k, name) for k, name in enumerate(names)]
        guarantee = self._describe(accuracy, delta, names, counts, too_few, needed, values)
        if self.per == "group":
            # Rows of unknown groups get the threshold of the pooled groups, or of all rows.
            values.append(pooled_quantile(limits[too_few].min() if too_few.any() else math.inf))
        return Thresholds(torch.tensor(values, dtype=torch.float64), guarantee, self.per, names)

    def _describe(
        self,
        accuracy: float,
        delta: float | None,
        names: list[object],
        counts: NDArray[np.int64],
        too_few: NDArray[np.bool_],
        needed: int,
        values: list[float],
    ) -> Guarantee:
        """Return the guarantee, with notes on parts that share a threshold or have no rows."""
        guarantee = self.guarantee(accuracy, delta)
        if too_few.any():
            if too_few.all():
                guarantee = Guarantee(
                    "marginal", accuracy=accuracy, n_calibration=guarantee.n_calibration
                )
                note = (
                    f"all {len(names)} {self.plural} share one threshold, since too few have the "
                    f"{needed:,} rows that one of their own needs"
                )
            else:
                note = (
                    f"{int(too_few.sum())} of {len(names)} {self.plural} have fewer than "
                    f"{needed:,} rows; they share one threshold, with the next smallest if "
                    "needed, and for them the guarantee holds on average"
                )
            warn(f"accuracy = {accuracy} by {self.per}: {note}")
            guarantee = guarantee.with_note(note)
        absent = [name for k, name in enumerate(names) if not counts[k]]
        guarantee = guarantee.with_note(note_on_absent(absent) if absent else "")
        unbounded = sum(value == -math.inf for value in values)
        if unbounded:
            guarantee = guarantee.with_note(
                f"{unbounded} of {len(names)} {self.plural} get {EVERY_LABEL}"
            )
        return guarantee


def pooling_limits(counts: NDArray[np.int64], needed: int) -> NDArray[np.float64]:
    """Return which parts share a threshold, and with which others.

    The new row is counted with its part k. Parts with at most `needed` rows share a threshold made
    of all their calibration rows. If they have no more than `needed` rows in total, further parts
    are added, smallest first. The counts with the new row are the same whichever of the rows is
    the new one. So, given that the new row is of one of these parts, its level is equally likely
    to have any rank among theirs, and the guarantee holds for these parts on average. The counts
    of the calibration rows alone would not do: the part of a new row would be pooled more often
    than that of a calibration row.

    Parameters
    ----------
    counts : array of shape (n_parts,)
        Calibration rows of each part.
    needed : int
        Number of rows that a threshold needs.

    Returns
    -------
    array of shape (n_parts,)
        Limit of each part: it shares a threshold with all parts that have fewer rows than the
        limit. The limit is 0 if the part shares no threshold.

    Examples
    --------
    >>> pooling_limits(np.array([50, 9, 3, 8]), 9).tolist()
    [0.0, 0.0, 10.0, 10.0]
    """
    limits = np.zeros(len(counts))
    for count in np.unique(counts):
        # One part of `count` rows gets the new row.
        with_new = np.delete(np.append(counts, count + 1), int(np.argmax(counts == count)))
        if with_new.min() > needed:
            continue
        sizes = np.unique([needed, *with_new[with_new > needed]])
        enough = [size for size in sizes.tolist() if with_new[with_new <= size].sum() > needed]
        limit = enough[0] + 1 if enough else math.inf
        limits[counts == count] = limit if count + 1 < limit else 0
    return limits
