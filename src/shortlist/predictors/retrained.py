"""The simple alternative: a classifier that is trained anew on features, and one threshold."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, as_features
from shortlist._utils.blocks import row_blocks
from shortlist._utils.out_of_core import Matrix, to_device, vstack
from shortlist._utils.progress import Show
from shortlist._utils.validation import check_choice, check_count
from shortlist.conformal.scores import LAC, ConformityScore
from shortlist.learning.batches import Examples
from shortlist.learning.ensembles import EnsembleFit, train_ensembles
from shortlist.learning.logistic import fit_logistic_members
from shortlist.learning.networks import (
    Ensemble,
    Stack,
    Standardize,
    perceptron,
    zero_last_layer,
)
from shortlist.learning.settings import (
    MIN_STEPS_PER_EPOCH,
    TrainingSettings,
    build_with_seed,
    resolve_device,
    resolve_seed,
)
from shortlist.learning.temperature import fit_scale
from shortlist.learning.validation import split_rows
from shortlist.predictors.conformal import ConformalPredictor
from shortlist.predictors.extra_rows import ExtraRows
from shortlist.predictors.shortlister.folds import combine, cross_entropy
from shortlist.predictors.shortlister.rescoring import ROUNDING
from shortlist.ranking import Ranking

BATCH_SIZE = 512
MODELS = ("networks", "logistic")


class RetrainedScore(LAC):
    """LAC on the probabilities of a classifier that :class:`RetrainedClassifier` trains."""

    name = "retrained"
    network_: Ensemble
    scale_: float
    n_features_: int

    def needs_fit(self) -> bool:
        """Return True: the classifier is trained on rows that are not used for calibration."""
        return True

    @property
    def rounding(self) -> float:  # type: ignore[override]
        """Bound on the relative difference between two computations of a level."""
        return min(1.0, ROUNDING * max(1.0, self.scale_))

    @torch.no_grad()
    def log_proba(self, x: Tensor) -> Tensor:
        """Return the log-probabilities of all classes, given the features."""
        network = self.network_
        blocks = [
            combine(torch.log_softmax(network(x[rows]), dim=-1))
            for rows in row_blocks(len(x), network.stack.widest, x.device)
        ]
        return torch.log_softmax(self.scale_ * torch.cat(blocks), dim=1)

    def rerank(self, ranking: Ranking, features: Tensor | None = None) -> Ranking:
        """Return the ranking by the probabilities of the classifier.

        Parameters
        ----------
        ranking : Ranking
            Rows to re-rank.
        features : Tensor of shape (n_rows, n_features)
            Features of the rows.

        Returns
        -------
        Ranking
        """
        if features is None:
            raise ValueError("features are missing: the classifier was trained on them")
        x = as_features(features, columns=self.n_features_).to(torch.float32).contiguous()
        log_p = self.log_proba(x.to(self.network_.standardize.mean.device))
        reranked = ranking.derive(dense=log_p.to(ranking.device), score_type="log_proba")
        reranked.rounding = self.rounding
        return reranked

    def onnx_rerank(self, rows: Any) -> Any:
        """Raise an error: the classifier has no graph."""
        raise ValueError(
            "a RetrainedClassifier cannot be exported to ONNX; export a Shortlister instead, which "
            "learns from the same features"
        )


class RetrainedClassifier(ConformalPredictor):
    """Train a new classifier on the features, and threshold its probabilities (LAC).

    This is what one would do without this library: use the labeled rows to train a better
    classifier, and keep some of them for one threshold. The given scores are not used. It is the
    alternative that the Shortlister has to beat, and `compare` measures it.

    Parameters
    ----------
    model : {"networks", "logistic"}, default="networks"
        Classifier: the mean of several networks with one hidden layer, or logistic regression.
    accuracy : float, default=0.95
        Accuracy that `predict_set` guarantees unless it is given another one.
    calibration : float or None, default=0.25
        Fraction of the rows of `fit` that is used for calibration. With None, all rows train the
        classifier, and `calibrate` must follow.
    by : {"class", "group"} or None, default=None
        Whether the guarantee holds on average over all rows, for each class, or for each group.
    allow_empty : bool, default=False
        Whether a set may be empty. If not, each contains at least its row's first label.
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed: raise an error, or return every
        label.
    members : int, default=5
        Number of networks.
    width : int, default=1024
        Hidden units of a network.
    learning_rate : float, default=1e-3
        Learning rate of the networks.
    max_epochs : int, default=100
        Maximum number of epochs. Training stops early on a tenth of the rows.
    score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
        What the scores are, which are used for their classes alone.
    device : str, default="auto"
        Where to train. "auto": where the features are.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. "auto": on a terminal.
    random_state : int, RandomState instance or None, default=0
        Seed of the split, the networks and their training.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.digits()
    >>> fit, test = data.split(1200)
    >>> scores, test_scores = fit.x[:, :10], test.x[:, :10]  # Only the number of classes counts.
    >>> model = sl.RetrainedClassifier("logistic").fit(scores, fit.y, features=fit.x)
    >>> print(model.predict_set(test_scores, features=test.x, accuracy=0.98).guarantee)
    accuracy >= 0.98 guaranteed by 300 calibration rows
    """

    temperature = None
    trains_networks = True
    takes_extra_rows = True

    def __init__(
        self,
        model: str = "networks",
        *,
        accuracy: float = 0.95,
        calibration: float | None = 0.25,
        by: str | None = None,
        allow_empty: bool = False,
        on_unreachable: str = "raise",
        members: int = 5,
        width: int = 1024,
        learning_rate: float = 1e-3,
        max_epochs: int = 100,
        score_type: str = "auto",
        device: str = "auto",
        progress: Show = "auto",
        random_state: object = 0,
    ) -> None:
        self.model = model
        self.accuracy = accuracy
        self.calibration = calibration
        self.by = by
        self.allow_empty = allow_empty
        self.on_unreachable = on_unreachable
        self.members = members
        self.width = width
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.score_type = score_type
        self.device = device
        self.progress = progress
        self.random_state = random_state

    def fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        extra_features: ArrayLike | None = None,
        extra_y: ArrayLike | None = None,
    ) -> Self:
        """Train the classifier and calibrate.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores, which are used for their classes alone.
        y : array-like of shape (n_rows,)
            Labels.
        features : array-like of shape (n_rows, n_features)
            Features of the rows.
        classes : array-like, optional
            Names of the score columns. Rows with another label are not learned from, and count
            as misses in the calibration.
        groups : array-like of shape (n_rows,), optional
            Group of each row, for guarantees conditional on groups.
        extra_features : array-like of shape (n_extra, n_features), optional
            Features of labeled rows without scores, to train on. No row of these is used for
            calibration.
        extra_y : array-like of shape (n_extra,), optional
            Labels of the same rows, which must be among the classes.

        Returns
        -------
        self
        """
        extra = ExtraRows.validate(features, extra_features, extra_y)
        return self._fit(scores, y, features, classes, groups, extra)

    def _make_score(self) -> RetrainedScore:
        return RetrainedScore()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.model, "model", MODELS)
        check_count(self.members, "members")
        check_count(self.width, "width")
        self._settings(1)

    def _settings(self, n_rows: int) -> TrainingSettings:
        return TrainingSettings(
            learning_rate=self.learning_rate,
            batch_size=min(max(64, n_rows // 8), BATCH_SIZE),
            weight_decay=1e-2,
            max_epochs=self.max_epochs,
            min_steps_per_epoch=MIN_STEPS_PER_EPOCH,
            decoupled_weight_decay=True,
            ema_decay=0.992,
            seed=resolve_seed(self.random_state),
        )

    def _fit_score(
        self,
        score: ConformityScore,
        ranking: Ranking,
        index: Tensor,
        features: Matrix | None,
        extra: tuple[Matrix, Tensor] | None,
    ) -> None:
        """Train the classifier; a tenth of the rows stops it early and sets its temperature.

        Extra rows do not set the temperature.
        """
        assert isinstance(score, RetrainedScore)
        if features is None:
            raise ValueError("a classifier is trained on features: fit(scores, y, features=X)")
        if not ranking.is_dense:
            raise ValueError(
                "a retrained classifier ranks all classes, but the rows are lists of candidates; "
                "use the Shortlister"
            )
        device = resolve_device(self.device, features)
        x, index = to_device(features, device), index.to(device)
        if extra is not None:
            x = vstack(x, to_device(extra[0], device))
            index = torch.cat([index, extra[1].to(device)])
        settings = self._settings(len(index))
        rows, validation = split_rows(Examples((x,), (index,)), settings)
        standardize = Standardize.from_data(x).to(device)
        fit = {"networks": self._fit_networks, "logistic": self._fit_logistic}[self.model]
        score.network_ = fit(x, index, rows, validation, standardize, ranking.n_classes, settings)
        score.network_.requires_grad_(False)
        score.n_features_, score.scale_ = x.shape[1], 1.0
        # The classifier may know extra rows better than new ones, if its features come from them.
        judging = next(own for part in (validation, rows) if len(own := part[part < len(features)]))
        scored = Ranking.from_scores(score.log_proba(x[judging]), score_type="log_proba")
        score.scale_ = fit_scale(scored, index[judging], "log_proba")

    def _fit_networks(
        self,
        x: Matrix,
        index: Tensor,
        rows: Tensor,
        validation: Tensor,
        standardize: Standardize,
        n_classes: int,
        settings: TrainingSettings,
    ) -> Ensemble:
        """Train an ensemble of perceptrons with one hidden layer."""

        def build() -> Stack:
            layers = (x.shape[1], n_classes, self.width, 1)
            return Stack(
                [
                    zero_last_layer(perceptron(*layers, dropout=0.5, input_dropout=0.2))
                    for _ in range(self.members)
                ]
            )

        network = Ensemble(standardize, build_with_seed(build, settings.seed)).to(index.device)
        fit = EnsembleFit("network", "retrained classifier", network, [x], index)
        train_ensembles([fit], cross_entropy, settings, self.progress)
        return network

    def _fit_logistic(
        self,
        x: Matrix,
        index: Tensor,
        rows: Tensor,
        validation: Tensor,
        standardize: Standardize,
        n_classes: int,
        settings: TrainingSettings,
    ) -> Ensemble:
        """Fit logistic regression, with the penalty that is best on validation rows."""
        folds = torch.ones_like(index)
        folds[validation] = 0
        layer = zero_last_layer(perceptron(x.shape[1], n_classes, hidden=0))
        network = Ensemble(standardize, Stack(layer, members=1)).to(index.device)
        fit_logistic_members(network, x, index, folds)
        return network

    @property
    def needs_features(self) -> bool:
        """Whether a fit without features is an error: a classifier is trained on them."""
        return True

    @property
    def uses_features(self) -> bool:
        """Whether `fit` saw features."""
        return True

    def _display_name(self) -> str:
        return f"{self.model}, retrained"
