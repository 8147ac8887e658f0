"""The opinion of a scikit-learn classifier that is fitted to the features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from shortlist._utils.out_of_core import Matrix, materialize
from shortlist._utils.threads import multi_threaded
from shortlist.learning.process_group import current_group
from shortlist.predictors.shortlister.opinions.base import (
    MIN_SHARE,
    Block,
    FoldedRows,
    Opinion,
    align_columns,
)


class LearnerOpinion(Opinion):
    """The mean probabilities of classifiers, each of which was fitted without one fold.

    Parameters
    ----------
    estimators : sequence of classifier
        Fitted classifiers, one for each fold. Their classes are class indices.
    n_classes : int
        Number of classes.
    """

    description = "a classifier of yours"

    def __init__(self, estimators: Sequence[Any], n_classes: int) -> None:
        self.estimators, self.n_classes = list(estimators), n_classes

    @classmethod
    def fit(cls, rows: FoldedRows, estimator: Any, *, extra: bool) -> LearnerOpinion:
        """Fit a copy of a classifier without each fold.

        Parameters
        ----------
        rows : FoldedRows
            Rows to learn from.
        estimator : classifier
            Classifier with `fit` and `predict_proba`. It is not changed.
        extra : bool
            Whether to learn from the extra rows, too.

        Returns
        -------
        LearnerOpinion
        """
        if current_group().world_size > 1:
            raise ValueError(
                "learners are not available in a fit by several processes; leave out learners=..."
            )
        fitted = []
        for fold in range(rows.n_folds):
            x, index = rows.without_fold(fold, extra=extra)
            with multi_threaded():
                fitted.append(clone(estimator).fit(_as_array(x), index.cpu().numpy()))
            if not hasattr(fitted[-1], "classes_"):
                raise ValueError(
                    f"{estimator!r} has no classes_ after fit; give scikit-learn classifiers as "
                    "learners"
                )
        return cls(fitted, rows.n_classes)

    def tables(self, block: Block, fold: int | None = None) -> list[Tensor]:
        """Return the log-probabilities; see `Opinion.tables`."""
        estimators = self.estimators if fold is None else self.estimators[fold : fold + 1]
        x = _as_array(block.features)
        mean = np.zeros((len(x), self.n_classes))
        for estimator in estimators:
            mean[:, np.asarray(estimator.classes_, dtype=np.int64)] += _probabilities(estimator, x)
        mean /= len(estimators)
        log_p = torch.as_tensor(mean, dtype=torch.float32, device=block.features.device)
        return [align_columns(log_p.clamp_(min=MIN_SHARE).log_(), block.columns)]


def _as_array(features: Matrix) -> np.ndarray[Any, Any]:
    """Return features as NumPy array."""
    return materialize(features).cpu().numpy()


def _probabilities(estimator: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the probabilities of a classifier, and raise if they cannot be used."""
    with multi_threaded():
        p = np.asarray(estimator.predict_proba(x), dtype=np.float64)
    shape = (len(x), len(estimator.classes_))
    if p.shape != shape:
        raise ValueError(
            f"predict_proba of {estimator!r} returned an array of shape {p.shape}, not {shape}"
        )
    if not np.isfinite(p).all() or (p < 0).any():
        raise ValueError(
            f"predict_proba of {estimator!r} returned a value that is no probability; leave this "
            "classifier out of learners"
        )
    return p
