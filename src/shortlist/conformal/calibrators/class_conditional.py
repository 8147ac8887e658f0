"""The class-conditional calibrator: a threshold for each class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shortlist.conformal.calibrators.base import register_calibrator
from shortlist.conformal.calibrators.conditional import ConditionalCalibrator


@register_calibrator
class ClassConditional(ConditionalCalibrator):
    """A threshold for each class: the accuracy is guaranteed for each class.

    Classes with too few calibration rows share one threshold. For them, the guarantee holds on
    average.

    Parameters
    ----------
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed: raise an error, or return every
        label.
    """

    name = "class"
    conditional_on = "class"
    per = "class"
    plural = "classes"

    def _parts(self) -> tuple[NDArray[np.int64], list[object]]:
        return self.y_, self.classes_
