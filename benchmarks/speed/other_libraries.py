"""Split conformal prediction with other libraries, each through its public interface.

All libraries get the same probabilities and have their default parameters, so that their sets can
differ: TorchCP and puncc randomize APS, and MAPIE tunes RAPS on a fifth of the calibration rows.
Only TorchCP also takes logits.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from types import ModuleType
from unittest.mock import MagicMock

import numpy as np
from numpy.typing import NDArray
from random_scores import Floats, Labels

Mask = NDArray[np.generic]


class _MaskLibrary:
    """A library that returns the sets of each level as a matrix of zeros and ones."""

    def sizes_and_hits(self, sets: Mask, y: Labels) -> tuple[Mask, Mask]:
        return sets.sum(axis=1), sets[np.arange(len(y)), y] > 0


class Mapie(_MaskLibrary):
    """MAPIE takes the levels before calibration, and predicts them together."""

    version = version("mapie")

    def __init__(self, score: str, score_type: str) -> None:
        self.score = score

    def calibrate(self, scores: Floats, y: Labels) -> None:
        self.calibration_rows = scores, y  # Used in `predict`, when the levels are known.

    def predict(self, scores: Floats, levels: list[float]) -> list[Mask]:
        from mapie.classification import SplitConformalClassifier

        model = SplitConformalClassifier(
            _IdentityClassifier(scores.shape[1]),
            levels,
            conformity_score=self.score,
            random_state=0,
        )
        model.conformalize(*self.calibration_rows)
        sets = model.predict_set(scores)[1]
        return [sets[:, :, i] for i in range(len(levels))]


class _IdentityClassifier:
    """A scikit-learn classifier whose inputs are its probabilities."""

    _estimator_type = "classifier"

    def __init__(self, classes: int) -> None:
        self.classes_ = np.arange(classes)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, x: Floats, y: Labels) -> _IdentityClassifier:
        return self

    def predict_proba(self, x: Floats) -> Floats:
        return x

    def predict(self, x: Floats) -> Labels:
        return x.argmax(axis=1)


class TorchCP(_MaskLibrary):
    """TorchCP keeps its calibration scores; the threshold of each level is a quantile of them."""

    version = version("torchcp")

    def __init__(self, score: str, score_type: str) -> None:
        _stub("torch_geometric.utils.convert", "torch_geometric.nn", "torch_geometric.loader")
        _stub("torchsort", "transformers", "torchvision")
        from torchcp.classification.predictor import SplitPredictor
        from torchcp.classification.score import APS, LAC, RAPS, SAPS

        transform = {"proba": "identity", "logits": "softmax"}[score_type]
        score_class = {"lac": LAC, "aps": APS, "raps": RAPS, "saps": SAPS}[score]
        self.model = SplitPredictor(score_class(score_type=transform))

    def calibrate(self, scores: Floats, y: Labels) -> None:
        import torch

        self.model.calculate_threshold(torch.from_numpy(scores), torch.from_numpy(y), alpha=0.1)

    def predict(self, scores: Floats, levels: list[float]) -> list[Mask]:
        import torch
        from torchcp.utils.common import calculate_conformal_value

        tensor = torch.from_numpy(scores)
        thresholds = [
            calculate_conformal_value(self.model.cal_scores, 1 - level) for level in levels
        ]
        return [self.model.predict_with_logits(tensor, q).numpy() for q in thresholds]


class Puncc:
    """puncc returns the sets of each level as lists of labels."""

    version = version("puncc")

    def __init__(self, score: str, score_type: str) -> None:
        from deel.puncc.api.prediction import IdPredictor
        from deel.puncc.classification import APS, LAC, RAPS

        method = {"lac": LAC, "aps": APS, "raps": RAPS}[score]
        self.model = method(IdPredictor(), train=False)

    def calibrate(self, scores: Floats, y: Labels) -> None:
        self.model.fit(X_calib=scores, y_calib=y)

    def predict(self, scores: Floats, levels: list[float]) -> list[list[list[int]]]:
        return [self.model.predict(scores, alpha=1 - level)[1] for level in levels]

    def sizes_and_hits(self, sets: list[list[int]], y: Labels) -> tuple[Mask, Mask]:
        hits = [label in labels for label, labels in zip(y, sets, strict=True)]
        return np.array([len(labels) for labels in sets]), np.array(hits)


class Crepes(_MaskLibrary):
    """crepes computes p-values once for all levels."""

    version = version("crepes")

    def __init__(self, score: str, score_type: str) -> None:
        from crepes import ConformalClassifier

        self.model = ConformalClassifier()

    def calibrate(self, scores: Floats, y: Labels) -> None:
        from crepes.extras import hinge

        self.model.fit(hinge(scores, np.arange(scores.shape[1]), y))

    def predict(self, scores: Floats, levels: list[float]) -> list[Mask]:
        from crepes.extras import hinge

        if len(levels) == 1:
            return [self.model.predict_set(hinge(scores), confidence=levels[0], smoothing=False)]
        p_values = self.model.predict_p(hinge(scores), smoothing=False)
        return [p_values >= 1 - level for level in levels]


def _stub(*names: str) -> None:
    """Replace modules that torchcp imports and that these benchmarks do not use."""
    for name in names:
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:depth]), _Stub(parts[depth - 1]))


class _Stub(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock
