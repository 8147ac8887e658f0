"""A set predictor that records its calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

import shortlist as sl


@dataclass(frozen=True)
class Call:
    """The arguments of a call to a set predictor."""

    score: str
    method: str
    ranking: sl.Ranking
    y: NDArray[np.int64] | None
    features: torch.Tensor | None

    @property
    def row_numbers(self) -> NDArray[np.int64]:
        """Row numbers, which are the first feature."""
        assert self.features is not None
        return np.asarray(self.features)[:, 0].astype(np.int64)


class RecordingConformal(sl.SplitConformal):
    """Records its calls. Clones share the record."""

    calls: list[Call] = []  # noqa: RUF012

    def _record(self, method: str, ranking: object, y: object, features: object) -> None:
        self.calls.append(Call(self.score, method, ranking, y, features))  # type: ignore[arg-type]

    def fit(self, scores, y, features=None, **options):  # type: ignore[no-untyped-def]
        self._record("fit", scores, y, features)
        assert self.calibration is None, "it would hold out calibration rows of its own"
        return super().fit(scores, y, features, **options)

    def calibrate(self, scores, y, features=None, **options):  # type: ignore[no-untyped-def]
        self._record("calibrate", scores, y, features)
        return super().calibrate(scores, y, features, **options)

    def predict_set(self, scores, features=None, **options):  # type: ignore[no-untyped-def]
        self._record("predict_set", scores, None, features)
        return super().predict_set(scores, features, **options)

    def frontier(self, scores, y, features=None):  # type: ignore[no-untyped-def]
        self._record("frontier", scores, y, features)
        return super().frontier(scores, y, features)


def select_calls(calls: list[Call], method: str, score: str | None = None) -> list[Call]:
    """Return the calls of a method, of predictors with a score if one is given."""
    return [call for call in calls if call.method == method and score in (None, call.score)]
