"""The Shortlister: small prediction sets, learned from scores and features, with a guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from sklearn.base import clone
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.out_of_core import Matrix
from shortlist._utils.progress import Show
from shortlist.conformal.scores import ConformityScore
from shortlist.costs import Cost
from shortlist.predictors.base import AcceptedRows, SetPredictor
from shortlist.predictors.conformal import ConformalPredictor
from shortlist.predictors.extra_rows import ExtraRows
from shortlist.predictors.shortlister.log_probabilities import normalize
from shortlist.predictors.shortlister.score import ShortlisterScore
from shortlist.ranking import Ranking


class Shortlister(ConformalPredictor):
    """Predict the smallest sets of a guaranteed accuracy, learned from scores and features.

    Two stages learn from rows that the classifier was not trained on. The first re-scores the
    labels from the features. Several opinions estimate the class probabilities: the given scores,
    scaled for each class; logistic regression; networks with and without the given scores; the
    labels of similar rows (the features of up to 50,000 rows are kept for this); and classifiers
    of the user. They are pooled with weights that are learned out of fold, and those that do not
    help are dropped. The second stage estimates the distribution of the true label's rank in each
    row, and from it the probability of a miss for every set size. For any value lambda of
    `cost_weight`, the set of a row is the one with the smallest ``P(miss) + lambda * cost(size)``.
    Sets are nested in lambda, and calibration on rows held out from both stages chooses lambda so
    that the accuracy is guaranteed.

    A stage is kept only if it helps on rows that it did not learn from. With few rows, no features
    or no signal, neither stage is kept, and the sets come from the classifier's own probabilities,
    calibrated with a temperature.

    Parameters
    ----------
    cost : {"linear", "log"}, sequence or callable, default="linear"
        Cost of a set size: a name, a table by size, or a function of the size. "linear" minimizes
        the mean size.
    accuracy : float, default=0.95
        Accuracy that `predict_set` guarantees by default.
    cost_weight : float, optional
        The paper's lambda. If given, `predict_set` uses it by default, instead of `accuracy`.
    effort : {"fast", "standard", "best"}, default="standard"
        How much to learn. "fast": stage 1 without networks, and no stage 2; seconds. "standard":
        two ensembles of networks and stage 2. "best": three larger ensembles more, or five with
        more than 5,000 rows to learn from, for a GPU or a long fit.
    learners : sequence of classifier, optional
        Scikit-learn classifiers that estimate the class from the features. Stage 1 fits copies of
        each, and uses those that help.
    rescore : "auto" or bool, default="auto"
        Whether to learn stage 1. "auto" learns it if there are features and it helps, with 40 rows
        or more, and with networks if there are 200 or more.
    learn_sizes : "auto" or bool, default="auto"
        Whether to learn stage 2. "auto" learns it if it helps, with 200 rows or more.
    calibration : float or None, default=0.25
        Fraction of the rows of `fit` that is used for calibration. With None, both stages learn
        from all rows, and `calibrate` must be called before an accuracy can be guaranteed.
    by : {"class", "group"} or None, default=None
        Whether the guarantee holds for each class or for each group. By default, it holds on
        average over all rows.
    allow_empty : bool, default=False
        Whether a set can be empty. If not, each set contains at least the first label of its row.
    on_unreachable : {"raise", "all"}, default="raise"
        What to do if an accuracy cannot be guaranteed: raise an error, or return all labels.
    folds : int, default=5
        Number of networks of each stage. Each is trained without its own fold of the rows.
    width : int, default=512
        Number of hidden units of the networks of stage 1. With the effort "standard" and more than
        40,000 rows to learn from, networks without the given scores have twice as many. With the
        effort "best", some networks have two, four or, with more than 5,000 rows, eight times as
        many.
    rank_width : int, default=64
        Number of hidden units in each layer of the networks of stage 2.
    learning_rate : float, default=5e-4
        Learning rate of AdamW, in both stages, for batches of up to 1,024 rows. It is multiplied
        by the square root of ``batch_size / 1024`` for larger batches.
    batch_size : int, optional
        Number of rows of a training batch. By default, it depends on the number of rows: an eighth
        of them, from 64 up to 512; with many rows, 1,024; with a million rows, about 8,000.
    weight_decay : float, default=1e-2
        Weight decay of AdamW.
    max_epochs : int, default=100
        Maximum number of epochs.
    patience : int, default=5
        Number of epochs without improvement after which training stops.
    score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
        Type of the scores. "auto" infers it in `fit`; see `score_type_`.
    score_depth : int, default=50
        Number of log-probabilities of each row that the networks of stage 2 see.
    device : str, default="auto"
        Where to train. "auto" is the device of the features or, without features, of the scores.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. "auto" shows it on a terminal.
    random_state : int, RandomState instance or None, default=0
        Seed of the splits, the networks and their training.

    Attributes
    ----------
    classes_ : array
        Classes, in the order of the score columns.
    score_type_ : str
        Type of the scores.
    temperature_ : float
        Temperature that calibrates the classifier's scores.
    score_ : ShortlisterScore
        The fitted stages.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.digits()
    >>> fit, select, test = data.split(100, 1100)
    >>> h = sl.LinearClassifier(max_epochs=5, validation_fraction=0).fit(fit.x, fit.y)
    >>> model = sl.Shortlister(max_epochs=5)
    >>> model = model.fit(h.decision_function(select.x), select.y, features=select.x)
    >>> sets = model.predict_set(h.decision_function(test.x), features=test.x, accuracy=0.95)
    >>> print(sets.guarantee)
    accuracy >= 0.95 guaranteed by 275 calibration rows
    """

    score_: ShortlisterScore
    trains_networks = True
    takes_extra_rows = True
    temperature = "auto"
    _live_parameters = ("allow_empty", "cost")

    def __init__(
        self,
        cost: Cost = "linear",
        *,
        accuracy: float = 0.95,
        cost_weight: float | None = None,
        effort: str = "standard",
        learners: Sequence[Any] | None = None,
        rescore: bool | str = "auto",
        learn_sizes: bool | str = "auto",
        calibration: float | None = 0.25,
        by: str | None = None,
        allow_empty: bool = False,
        on_unreachable: str = "raise",
        folds: int = 5,
        width: int = 512,
        rank_width: int = 64,
        learning_rate: float = 5e-4,
        batch_size: int | None = None,
        weight_decay: float = 1e-2,
        max_epochs: int = 100,
        patience: int = 5,
        score_type: str = "auto",
        score_depth: int = 50,
        device: str = "auto",
        progress: Show = "auto",
        random_state: object = 0,
    ) -> None:
        self.cost = cost
        self.accuracy = accuracy
        self.cost_weight = cost_weight
        self.effort = effort
        self.learners = learners
        self.rescore = rescore
        self.learn_sizes = learn_sizes
        self.calibration = calibration
        self.by = by
        self.allow_empty = allow_empty
        self.on_unreachable = on_unreachable
        self.folds = folds
        self.width = width
        self.rank_width = rank_width
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.patience = patience
        self.score_type = score_type
        self.score_depth = score_depth
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
        """Learn both stages and calibrate.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of rows that the classifier was not trained on.
        y : array-like of shape (n_rows,)
            Labels.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows.
        classes : array-like, optional
            Names of the score columns. Rows with another label are not learned from, and count
            as misses in the calibration.
        groups : array-like of shape (n_rows,), optional
            Group of each row, for guarantees conditional on groups.
        extra_features : array-like of shape (n_extra, n_features), optional
            Features of labeled rows without honest scores, such as the rows that the classifier
            was trained on. Models that need no scores learn from them, and are kept only if they
            help on the other rows. No row of these is used for calibration.
        extra_y : array-like of shape (n_extra,), optional
            Labels of the same rows, which must be among the classes.

        Returns
        -------
        self
        """
        extra = ExtraRows.validate(features, extra_features, extra_y)
        return self._fit(scores, y, features, classes, groups, extra)

    def _fit_score(
        self,
        score: ConformityScore,
        ranking: Ranking,
        index: Tensor,
        features: Matrix | None,
        extra: tuple[Matrix, Tensor] | None,
    ) -> None:
        assert isinstance(score, ShortlisterScore)
        score.fit(ranking, index, features, extra=extra)

    def _make_score(self) -> ShortlisterScore:
        names = ShortlisterScore._get_param_names()
        return ShortlisterScore(**{name: getattr(self, name) for name in names})

    def _current_score(self) -> ShortlisterScore:
        self.score_.cost = self.cost
        return self.score_

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._make_score().check_parameters()

    @property
    def rescored_(self) -> bool:
        """Whether stage 1 is part of the model."""
        return self.score_.rescorer_ is not None

    @property
    def learned_sizes_(self) -> bool:
        """Whether stage 2 is part of the model."""
        return self.score_.rank_model_ is not None

    @property
    def needs_features(self) -> bool:
        """Whether a fit without features is an error: ``rescore=True`` needs them."""
        return self.rescore is True

    @property
    def uses_features(self) -> bool:
        """Whether `fit` was given features."""
        return self.score_.n_features_ is not None

    @property
    def history_(self) -> dict[str, object]:
        """Losses of the training of each stage."""
        return self.score_.history_

    def rescored(self, scores: ArrayLike | Ranking, features: ArrayLike | None = None) -> Ranking:
        """Return the ranking whose prefixes are the sets, with log-probabilities as scores.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores, of the type of those given to `fit`.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` was given features.

        Returns
        -------
        Ranking
        """
        ranking, x = self._validate_rows(scores, features)
        ranking = ranking.with_precision("float32").with_scale(
            self.score_type_, 1 / self.temperature_
        )
        return normalize(self.score_.rerank(ranking, x))

    def out_of_fold(
        self,
        scores: ArrayLike | Ranking,
        features: ArrayLike | None = None,
        *,
        extra_features: ArrayLike | None = None,
        extra_y: ArrayLike | None = None,
    ) -> Ranking:
        """Return `rescored` for the rows of `fit`, each by models that did not see its label.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the rows that `fit` learned from, in the same order. Fit with
            ``calibration=None``, so that both stages learn from all rows of `fit`.
        features : array-like of shape (n_rows, n_features), optional
            Features of the same rows.
        extra_features : array-like of shape (n_extra, n_features), optional
            Features of the extra rows of `fit`.
        extra_y : array-like of shape (n_extra,), optional
            Labels of the same rows.

        Returns
        -------
        Ranking
        """
        ranking, x = self._validate_rows(scores, features)
        ranking = ranking.with_scale(self.score_type_, 1 / self.temperature_)
        extra = ExtraRows.validate(features, extra_features, extra_y)
        encoded = None
        if extra is not None and x is not None:
            encoded = extra.encode(ranking, x.shape[1], self._feature_names)
        return normalize(self.score_.rerank_out_of_fold(ranking, x, encoded))

    def forget_rows(self) -> None:
        """Remove what the model keeps only to score the rows of `fit` once more."""
        rescorer = self.score_.rescorer_
        if rescorer is not None:
            rescorer.folds = rescorer.folds[:0].clone()
            rescorer.index = rescorer.index[:0].clone()

    def accepted_rows(self) -> AcceptedRows:
        """Return which rows the model accepts: rows like those of `fit`."""
        schema, score = super().accepted_rows(), self.score_
        depth = score.buckets_.sizes[-1]
        dense = score.dense_ if schema.dense is None else schema.dense
        return AcceptedRows(dense, depth, max(schema.candidates, depth))

    def ablations(self) -> dict[str, SetPredictor]:
        """Return an unfitted model that does not learn stage 1.

        Returns
        -------
        dict of str to SetPredictor
        """
        return {"no re-scoring": clone(self).set_params(rescore=False)}

    def _display_name(self) -> str:
        return "Shortlister"
