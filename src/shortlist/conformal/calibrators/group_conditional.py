"""The group-conditional calibrator: a threshold for each group of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shortlist.conformal.calibrators.base import register_calibrator
from shortlist.conformal.calibrators.conditional import ConditionalCalibrator


@register_calibrator
class GroupConditional(ConditionalCalibrator):
    """A threshold for each group of rows: the accuracy is guaranteed for each group.

    Groups with too few calibration rows share one threshold. For them, the guarantee holds on
    average.

    Parameters
    ----------
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed: raise an error, or return every
        label.
    """

    name = "group"
    conditional_on = "group"
    per = "group"
    plural = "groups"

    def _parts(self) -> tuple[NDArray[np.int64], list[object]]:
        if self.groups_ is None:
            raise ValueError(
                'by = "group", but the calibration rows have no groups; give them: '
                "fit(..., groups=...) or calibrate(..., groups=...)"
            )
        return self.groups_, self.group_names_
