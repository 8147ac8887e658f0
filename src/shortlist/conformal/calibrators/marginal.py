"""The marginal calibrator: one threshold for all rows."""

from __future__ import annotations

import math

import torch

from shortlist.conformal.calibrators.base import EVERY_LABEL, Calibrator, register_calibrator
from shortlist.conformal.calibrators.thresholds import Thresholds
from shortlist.conformal.ranks import LISTING_ERROR


@register_calibrator
class Marginal(Calibrator):
    """One threshold for all rows: the accuracy is guaranteed on average over all rows.

    Parameters
    ----------
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed: raise an error, or return every
        label.

    Examples
    --------
    >>> import numpy as np
    >>> levels = np.array([0.1, 0.2, 0.5, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9])
    >>> thresholds = Marginal().fit(levels, np.zeros(9, dtype=int)).threshold(0.8)
    >>> float(thresholds.values), str(thresholds.guarantee)
    (0.2, 'accuracy >= 0.8 guaranteed by 9 calibration rows')
    """

    name = "marginal"

    def threshold(self, accuracy: float, delta: float | None = None) -> Thresholds:
        """Return the threshold that guarantees an accuracy; see `Calibrator.threshold`."""
        value = self.quantile(accuracy, delta)
        guarantee = self.guarantee(accuracy, delta)
        # The set of all classes contains every label but those of unknown classes.
        tested = self.on_unreachable == "raise" or bool((self.y_ < 0).any())
        if not self.exhaustive_ and delta is None and tested:
            guarantee = guarantee.with_note(
                f"a test with confidence {1 - LISTING_ERROR:g} showed that this accuracy can be "
                "reached"
            )
        if value == -math.inf:
            guarantee = guarantee.with_note(EVERY_LABEL)
        return Thresholds(torch.tensor(value, dtype=torch.float64), guarantee)
