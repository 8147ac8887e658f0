"""Split conformal prediction with the peers, each by its own public interface.

All are given the same probabilities and parameters, and all randomise APS, RAPS and SAPS. MAPIE
alone has no way to be told RAPS's parameters: it tunes them, on a fifth of the calibration rows.
TorchCP alone takes logits as well.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from types import ModuleType
from unittest.mock import MagicMock

import numpy as np
from drawn import Floats, Labels
from numpy.typing import NDArray

Mask = NDArray[np.generic]
SCORES = {
    "mapie": ("lac", "aps", "raps"),
    "torchcp": ("lac", "aps", "raps", "saps"),
    "puncc": ("lac", "aps", "raps"),
    "crepes": ("lac",),
}


class _Masks:
    """A peer whose sets are a matrix of zeros and ones for each level."""

    def sizes_and_hits(self, sets: Mask, y: Labels) -> tuple[Mask, Mask]:
        return sets.sum(axis=1), sets[np.arange(len(y)), y] > 0


class Mapie(_Masks):
    """Levels are told before calibration, and are predicted together."""

    version = version("mapie")

    def __init__(self, score: str, kind: str, penalty: float, k_reg: int) -> None:
        self.score = score

    def calibrate(self, p: Floats, y: Labels) -> None:
        self.rows = p, y  # which it can only use when it knows the levels

    def predict(self, p: Floats, levels: list[float]) -> list[Mask]:
        from mapie.classification import SplitConformalClassifier

        model = SplitConformalClassifier(
            _Given(p.shape[1]), levels, conformity_score=self.score, random_state=0
        )
        model.conformalize(*self.rows)
        how = {} if self.score == "lac" else {"include_last_label": "randomized"}
        sets = model.predict_set(p, conformity_score_params=how)[1]
        return [sets[:, :, at] for at in range(len(levels))]


class _Given:
    """What scikit-learn calls a classifier: its inputs are its probabilities."""

    _estimator_type = "classifier"

    def __init__(self, classes: int) -> None:
        self.classes_ = np.arange(classes)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, x: Floats, y: Labels) -> _Given:
        return self

    def predict_proba(self, x: Floats) -> Floats:
        return x

    def predict(self, x: Floats) -> Labels:
        return x.argmax(axis=1)


class TorchCP(_Masks):
    """Calibrated once; the threshold of each level is a quantile of the scores that it keeps."""

    version = version("torchcp")

    def __init__(self, score: str, kind: str, penalty: float, k_reg: int) -> None:
        _stub("torch_geometric.utils.convert", "torch_geometric.nn", "torch_geometric.loader")
        _stub("torchsort", "transformers", "torchvision")
        from torchcp.classification.predictor import SplitPredictor
        from torchcp.classification.score import APS, LAC, RAPS, SAPS

        given = {"proba": "identity", "logits": "softmax"}[kind]
        scored = {
            "lac": lambda: LAC(score_type=given),
            "aps": lambda: APS(score_type=given),
            "raps": lambda: RAPS(score_type=given, penalty=penalty, kreg=k_reg),
            "saps": lambda: SAPS(score_type=given, weight=penalty),
        }[score]
        self.model = SplitPredictor(scored())

    def calibrate(self, p: Floats, y: Labels) -> None:
        import torch

        self.model.calculate_threshold(torch.from_numpy(p), torch.from_numpy(y), alpha=0.1)

    def predict(self, p: Floats, levels: list[float]) -> list[Mask]:
        import torch
        from torchcp.utils.common import calculate_conformal_value

        rows = torch.from_numpy(p)
        at = [calculate_conformal_value(self.model.cal_scores, 1 - level) for level in levels]
        return [self.model.predict_with_logits(rows, q).numpy() for q in at]


class Puncc:
    version = version("puncc")

    def __init__(self, score: str, kind: str, penalty: float, k_reg: int) -> None:
        from deel.puncc.api.prediction import IdPredictor
        from deel.puncc.classification import APS, LAC, RAPS

        make = {"lac": LAC, "aps": APS, "raps": RAPS}[score]
        settings = {"lambd": penalty, "k_reg": k_reg} if score == "raps" else {}
        self.model = make(IdPredictor(), train=False, **settings)

    def calibrate(self, p: Floats, y: Labels) -> None:
        self.model.fit(X_calib=p, y_calib=y)

    def predict(self, p: Floats, levels: list[float]) -> list[list[list[int]]]:
        return [self.model.predict(p, alpha=1 - level)[1] for level in levels]

    def sizes_and_hits(self, sets: list[list[int]], y: Labels) -> tuple[Mask, Mask]:
        hits = [label in held for label, held in zip(y, sets, strict=True)]
        return np.array([len(held) for held in sets]), np.array(hits)


class Crepes(_Masks):
    """Its p-values, made once, give the sets of all levels."""

    version = version("crepes")

    def __init__(self, score: str, kind: str, penalty: float, k_reg: int) -> None:
        from crepes import ConformalClassifier

        self.model = ConformalClassifier()

    def calibrate(self, p: Floats, y: Labels) -> None:
        from crepes.extras import hinge

        self.model.fit(hinge(p, np.arange(p.shape[1]), y))

    def predict(self, p: Floats, levels: list[float]) -> list[Mask]:
        from crepes.extras import hinge

        if len(levels) == 1:
            return [self.model.predict_set(hinge(p), confidence=levels[0], smoothing=False)]
        values = self.model.predict_p(hinge(p), smoothing=False)
        return [values >= 1 - level for level in levels]


def _stub(*names: str) -> None:
    """Modules that torchcp imports and these works do not use."""
    for name in names:
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:depth]), _Stub(parts[depth - 1]))


class _Stub(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock
