"""The linear classifier `h` of the paper, trained with any of the eight label losses."""

from __future__ import annotations

import os

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from shortlist._utils.array_checks import check_present, check_unmasked
from shortlist._utils.arrays import (
    Array,
    ArrayLike,
    as_features,
    matrix_blocks,
    to_array_type,
    to_tensor,
)
from shortlist._utils.integrations import SavingMixin
from shortlist._utils.labels import label_array
from shortlist._utils.ordering import first_label
from shortlist._utils.progress import Show
from shortlist.learning.networks import Standardize, from_zero
from shortlist.learning.settings import device_of, settings_of
from shortlist.learning.training import History, train
from shortlist.losses import from_name


def _has_probabilities(estimator: LinearClassifier) -> bool:
    if estimator.loss not in ("log", "exp", "gce"):
        raise AttributeError(
            f"the minimiser of the {estimator.loss!r} loss does not tell probabilities; "
            "use decision_function, or one of the losses 'log', 'exp', 'gce'"
        )
    return True


class LinearClassifier(SavingMixin, ClassifierMixin, BaseEstimator):
    """Linear scores `h(x, y) = w_y · x + b_y`, as in the paper's experiments.

    Parameters
    ----------
    loss : str
        "log", "exp", "gce", "mae" (comp-sum), "constrained_exp", "squared_hinge", "hinge" or
        "margin" (constrained).
    q, rho : float
        Parameters of "gce" and "margin".

    Notes
    -----
    All other parameters are those of `CardinalitySelector`.

    Attributes
    ----------
    classes_, coef_, intercept_, history_, n_features_in_

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.digits()
    >>> h = sl.LinearClassifier(loss="squared_hinge").fit(data.x[:1200], data.y[:1200])
    >>> bool(h.score(data.x[1200:], data.y[1200:]) > 0.9)
    True
    """

    classes_: NDArray[np.generic]
    coef_: NDArray[np.floating]
    intercept_: NDArray[np.floating]
    history_: History
    n_features_in_: int

    def __init__(
        self,
        loss: str = "log",
        *,
        q: float = 0.7,
        rho: float = 1.0,
        learning_rate: float = 1e-3,
        batch_size: int = 128,
        weight_decay: float = 1e-5,
        max_epochs: int = 50,
        patience: int = 5,
        validation_fraction: float = 0.1,
        clip_norm: float | str | None = "auto",
        device: str = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Show = "auto",
        random_state: object = 0,
    ) -> None:
        self.loss = loss
        self.q = q
        self.rho = rho
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.clip_norm = clip_norm
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> LinearClassifier:
        """Train on features and labels."""
        loss = from_name(
            self.loss,
            q=self.q,
            rho=self.rho,
            cost_sensitive=False,
            reduction="mean",
            validate=False,
        )
        settings = settings_of(self, loss)
        if isinstance(X, Tensor):
            x, labels = as_features(X), label_array(y)
            if len(labels) != len(x):
                raise ValueError(f"X has {len(x)} rows, but y {len(labels)} labels; give one each")
            self.n_features_in_ = x.shape[1]
        else:
            check_unmasked(X, "X")
            check_present(y, "y")
            array, labels = validate_data(self, X, y, dtype=(np.float64, np.float32, np.float16))
            x = to_tensor(array, "X")
        check_classification_targets(labels)
        classes, index = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y holds one class only ({classes[0]!r}); a classifier needs at least two"
            )
        x = x.to(device_of(self.device, x))
        standardize = Standardize.of(x)
        linear = nn.Linear(x.shape[1], len(classes), device="meta", dtype=standardize.dtype)
        linear.to_empty(device=x.device)
        network = from_zero(nn.Sequential(standardize, linear))
        target = torch.from_numpy(index.astype(np.int64)).to(x.device)
        history = train(
            network,
            x,
            [target],
            loss,
            settings,
            checkpoint=self.checkpoint,
            identity=repr(loss),
            progress=self.progress,
            what="classifier",
        )
        self.classes_, self.history_ = classes, history
        # The standardisation is folded into the weights, so that they apply to x as it came.
        weight = linear.weight.detach().to(torch.float64) / standardize.scale
        self.coef_ = weight.cpu().numpy()
        self.intercept_ = (
            (linear.bias.detach() - weight @ standardize.mean.to(torch.float64)).cpu().numpy()
        )
        return self

    def _scores(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self, "coef_")
        if isinstance(X, Tensor):
            x = as_features(X, columns=self.n_features_in_)
        else:
            check_unmasked(X, "X")
            array = validate_data(self, X, reset=False, dtype=(np.float64, np.float32, np.float16))
            x = to_tensor(array, "X")
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        weight = torch.from_numpy(self.coef_).to(x.device, dtype)
        bias = torch.from_numpy(self.intercept_).to(x.device, dtype)
        blocks = [x[rows].to(dtype) @ weight.T + bias for rows in matrix_blocks(x)]
        return torch.cat(blocks)

    def decision_function(self, X: ArrayLike) -> Array:
        """The scores h(x, y): (rows, classes), or h(x, 1) - h(x, 0) for two classes."""
        scores = self._scores(X)
        if scores.shape[1] == 2:
            scores = scores[:, 1] - scores[:, 0]
        return to_array_type(scores, "torch" if isinstance(X, Tensor) else "numpy")

    def predict(self, X: ArrayLike) -> Array:
        """The label with the largest score; among ties the last."""
        index = first_label(self._scores(X))
        if isinstance(X, Tensor) and self.classes_.dtype.kind in "iub":
            return torch.from_numpy(self.classes_).to(index.device)[index]
        labels: NDArray[np.generic] = self.classes_[index.cpu().numpy()]
        return labels

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities, by the inverse of what the loss's minimiser is: softmax(h) for "log",
        softmax(2h) for "exp" (whose scores tend to half the log odds), softmax((1-q)h) for "gce".
        """
        temper = {"log": 1.0, "exp": 2.0, "gce": 1 - self.q}[self.loss]
        proba = torch.softmax(temper * self._scores(X), dim=1)
        return to_array_type(proba, "torch" if isinstance(X, Tensor) else "numpy")
