"""Split conformal prediction with this library, as `peers.py` does it with the others."""

from __future__ import annotations

import numpy as np
from drawn import Floats, Labels
from numpy.typing import NDArray

import shortlist as sl


class Shortlist:
    """One method, calibrated once and asked for several levels."""

    version = sl.__version__

    def __init__(self, score: str, kind: str, penalty: float, k_reg: int) -> None:
        self.model = sl.SplitConformal(
            score, temperature=None, penalty=penalty, k_reg=k_reg, randomized=score != "lac"
        )

    def calibrate(self, p: Floats, y: Labels) -> None:
        self.model.fit(p, y)

    def predict(self, p: Floats, levels: list[float]) -> list[sl.PredictionSets]:
        if len(levels) == 1:
            return [self.model.predict_set(p, accuracy=levels[0])]
        return self.model.predict_sets(p, accuracies=levels)

    def sizes_and_hits(
        self, sets: sl.PredictionSets, y: Labels
    ) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        return np.asarray(sets.sizes), np.asarray(sets.contains(y))
