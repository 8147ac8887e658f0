"""Split conformal prediction with this library, with the interface of `other_libraries.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from random_scores import Floats, Labels

import shortlist as sl


class Shortlist:
    """A method that is calibrated once and predicts at several levels."""

    version = sl.__version__

    def __init__(self, score: str, score_type: str, **parameters: Any) -> None:
        self.model = sl.SplitConformal(score, **parameters)

    def calibrate(self, scores: Floats, y: Labels) -> None:
        self.model.fit(scores, y)

    def predict(self, scores: Floats, levels: list[float]) -> list[sl.PredictionSets]:
        if len(levels) == 1:
            return [self.model.predict_set(scores, accuracy=levels[0])]
        return self.model.predict_sets(scores, accuracies=levels)

    def sizes_and_hits(
        self, sets: sl.PredictionSets, y: Labels
    ) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        return np.asarray(sets.sizes), np.asarray(sets.contains(y))
