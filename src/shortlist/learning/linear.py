"""The linear classifier of the paper, which is trained with any registered loss."""

from __future__ import annotations

import os
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from shortlist._utils.arrays import (
    Array,
    ArrayLike,
    as_features,
    infer_array_type,
    to_array_type,
    to_tensor,
)
from shortlist._utils.blocks import matrix_blocks
from shortlist._utils.integrations import SavingMixin
from shortlist._utils.labels import label_array
from shortlist._utils.notebook import DescriptionMixin
from shortlist._utils.ordering import top_label
from shortlist._utils.progress import Show
from shortlist._utils.tables import summarize_names
from shortlist._utils.validation import check_present, check_unmasked
from shortlist.learning.networks import Standardize, zero_last_layer
from shortlist.learning.settings import resolve_device, training_settings
from shortlist.learning.training import History, train
from shortlist.losses import from_name, get_loss, loss_names

FLOAT_DTYPES = (np.float64, np.float32, np.float16)


def _has_probabilities(estimator: LinearClassifier) -> bool:
    """Return True if the loss determines probabilities, and raise AttributeError otherwise."""
    try:
        scale = get_loss(estimator.loss, q=estimator.q, rho=estimator.rho).probability_scale
    except (TypeError, ValueError) as error:  # `hasattr` requires an AttributeError.
        raise AttributeError(str(error)) from error
    if scale is None:
        known = [name for name in loss_names() if get_loss(name).probability_scale is not None]
        raise AttributeError(
            f"the {estimator.loss!r} loss does not determine probabilities; "
            f"use decision_function, or one of the losses {', '.join(map(repr, known))}"
        )
    return True


class LinearClassifier(SavingMixin, DescriptionMixin, ClassifierMixin, BaseEstimator):
    """Linear classifier with scores `h(x, y) = w_y · x + b_y`, as in the paper's experiments.

    Parameters
    ----------
    loss : str, default="log"
        "log", "exp", "gce", "mae" (comp-sum), "constrained_exp", "squared_hinge", "hinge",
        "margin" (constrained), or a loss registered with `register_loss`.
    q : float, default=0.7
        Exponent of the loss "gce", in (0, 1).
    rho : float, default=1.0
        Margin of the loss "margin", above 0.
    learning_rate : float, default=1e-3
        Learning rate of Adam.
    batch_size : int, default=128
        Number of rows in a mini-batch.
    weight_decay : float, default=1e-5
        Strength of the L2 regularization.
    max_epochs : int, default=50
        Maximum number of epochs.
    patience : int, default=5
        Number of epochs without improvement of the validation loss after which training stops.
    validation_fraction : float, default=0.1
        Fraction of the rows that are used for validation.
    clip_norm : float, "auto" or None, default="auto"
        Maximum norm of the gradient. None does not clip it. "auto" clips it at 1 if the loss has
        an unbounded gradient.
    device : str, default="auto"
        Device for training. "auto" stands for the device of the features.
    checkpoint : path-like, optional
        File in which the state is stored after each epoch. If it exists, an interrupted training
        run is resumed from it.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. "auto" shows it on a terminal.
    random_state : int, RandomState instance or None, default=0
        Seed of the training.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    coef_ : ndarray of shape (n_classes, n_features)
        Weights of the features as given, without standardization.
    intercept_ : ndarray of shape (n_classes,)
        Biases.
    history_ : History
        Losses by epoch.
    n_features_in_ : int
        Number of features.

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

    def describe(self) -> dict[str, str]:
        """Return what is known about the fitted classifier, by topic. Notebooks show it.

        Returns
        -------
        dict of str to str
            Classes, number of features and loss.
        """
        check_is_fitted(self)
        return {
            "classes": summarize_names(self.classes_.tolist()),
            "features": f"{self.n_features_in_:,}",
            "loss": str(self.loss),
        }

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on features and labels.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_rows, n_features)
            Features.
        y : array-like of shape (n_rows,)
            Labels.

        Returns
        -------
        LinearClassifier
            The fitted classifier.

        Raises
        ------
        ValueError
            If a parameter or the data are invalid, or y has only one class.
        """
        loss = from_name(
            self.loss,
            q=self.q,
            rho=self.rho,
            cost_sensitive=False,
            reduction="mean",
            validate=False,
        )
        settings = training_settings(self, loss)
        x, labels = self._validate_fit(X, y)
        classes, index = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y has only one class ({classes[0]!r}); a classifier needs at least two"
            )
        x = x.to(resolve_device(self.device, x))
        standardize = Standardize.from_data(x)
        # The layer is created on the meta device, because `nn.Linear` would draw initial weights
        # from the global random generator.
        linear = nn.Linear(x.shape[1], len(classes), device="meta", dtype=standardize.dtype)
        linear.to_empty(device=x.device)
        network = zero_last_layer(nn.Sequential(standardize, linear))
        target = torch.from_numpy(index.astype(np.int64)).to(x.device)
        self.history_ = train(
            network,
            x,
            [target],
            loss,
            settings,
            checkpoint=self.checkpoint,
            identity=repr(loss),
            progress=self.progress,
            name="classifier",
        )
        self.classes_ = classes
        # The stored weights include the standardization and apply to the features as given.
        weight = linear.weight.detach().to(torch.float64) / standardize.scale
        bias = linear.bias.detach() - weight @ standardize.mean.to(torch.float64)
        self.coef_, self.intercept_ = weight.cpu().numpy(), bias.cpu().numpy()
        return self

    def _validate_fit(self, X: ArrayLike, y: ArrayLike) -> tuple[Tensor, NDArray[np.generic]]:
        """Validate the features and labels, and set `n_features_in_`."""
        if isinstance(X, Tensor):
            x, labels = as_features(X), label_array(y)
            if len(labels) != len(x):
                raise ValueError(
                    f"X has {len(x)} rows, but y has {len(labels)} labels; pass one label per row"
                )
            self.n_features_in_ = x.shape[1]
        else:
            check_unmasked(X, "X")
            check_present(y, "y")
            array, labels = validate_data(self, X, y, dtype=FLOAT_DTYPES)
            x = to_tensor(array, "X")
        check_classification_targets(labels)
        return x, labels

    def _scores(self, X: ArrayLike) -> Tensor:
        """Return the score of each class, of shape (n_rows, n_classes)."""
        check_is_fitted(self, "coef_")
        if isinstance(X, Tensor):
            x = as_features(X, columns=self.n_features_in_)
        else:
            check_unmasked(X, "X")
            x = to_tensor(validate_data(self, X, reset=False, dtype=FLOAT_DTYPES), "X")
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        weight = torch.from_numpy(self.coef_).to(x.device, dtype)
        bias = torch.from_numpy(self.intercept_).to(x.device, dtype)
        blocks = [x[rows].to(dtype) @ weight.T + bias for rows in matrix_blocks(x)]
        return torch.cat(blocks)

    def decision_function(self, X: ArrayLike) -> Array:
        """Compute the scores h(x, y) of all classes.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_rows, n_features)
            Features.

        Returns
        -------
        ndarray or Tensor of shape (n_rows, n_classes)
            The scores. For two classes, the difference h(x, 1) - h(x, 0), of shape (n_rows,).
        """
        scores = self._scores(X)
        if scores.shape[1] == 2:
            scores = scores[:, 1] - scores[:, 0]
        return to_array_type(scores, infer_array_type(X))

    def predict(self, X: ArrayLike) -> Array:
        """Predict the label with the highest score.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_rows, n_features)
            Features.

        Returns
        -------
        ndarray or Tensor of shape (n_rows,)
            The predicted labels. Ties go to the last class.
        """
        index = top_label(self._scores(X))
        if isinstance(X, Tensor) and self.classes_.dtype.kind in "iub":
            return torch.from_numpy(self.classes_).to(index.device)[index]
        labels: NDArray[np.generic] = self.classes_[index.cpu().numpy()]
        return labels

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> Array:
        """Predict class probabilities.

        The probabilities are those for which the scores h minimize the loss: softmax(h) for "log",
        softmax(2 h) for "exp", and softmax((1 - q) h) for "gce". For losses whose scores do not
        determine probabilities, this method is not available.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_rows, n_features)
            Features.

        Returns
        -------
        ndarray or Tensor of shape (n_rows, n_classes)
            The probabilities.
        """
        scale = get_loss(self.loss, q=self.q, rho=self.rho).probability_scale
        assert scale is not None  # `available_if` has checked this.
        proba = torch.softmax(scale * self._scores(X), dim=1)
        return to_array_type(proba, infer_array_type(X))
