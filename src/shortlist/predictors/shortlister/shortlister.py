"""The Shortlister: short sets, learned from scores and features, with a guaranteed accuracy."""

from __future__ import annotations

from sklearn.base import clone

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.progress import Show
from shortlist._utils.validation import check_choice
from shortlist.conformal.calibrators import CALIBRATORS, Calibrator, check_by
from shortlist.costs import Cost
from shortlist.predictors.base import AcceptedRows, SetPredictor
from shortlist.predictors.conformal import ConformalPredictor
from shortlist.predictors.shortlister.log_probabilities import normalize
from shortlist.predictors.shortlister.score import ShortlisterScore
from shortlist.ranking import Ranking


class Shortlister(ConformalPredictor):
    """The shortest sets for an accuracy, learned from scores and features, with a guarantee.

    Two stages learn from rows that the classifier was not trained on. The first re-scores the
    labels: networks learn a residual on the classifier's logits from the features, and the labels
    of near rows give a second opinion. (The features of up to 50,000 rows are kept as neighbours
    of new ones.) The second estimates how the right label's rank is distributed in each row, and
    thereby the probability of a miss for every size. For any lambda, the set is the one with the
    smallest ``miss + lambda cost(size)``. Sets are nested in lambda, and rows held out from both
    stages turn lambda into an exact guarantee of accuracy.

    A stage is kept only if it helps on rows that it did not learn from. With few rows, no features
    or no signal, what remains is the classifier with one temperature.

    Parameters
    ----------
    cost : {"linear", "log"}, sequence or callable, default="linear"
        Cost of a size: a name, a table by size, or a function of the size. "linear" keeps the mean
        size small.
    accuracy : float, default=0.95
        Accuracy that `predict_set` guarantees unless it is given another one.
    cost_weight : float, optional
        If given, `predict_set` uses this lambda of the paper unless it is given an accuracy.
    rescore : "auto" or bool, default="auto"
        Whether to learn stage 1. "auto": if there are features and it helps.
    learn_sizes : "auto" or bool, default="auto"
        Whether to learn stage 2. "auto": if it helps.
    calibration : float or None, default=0.25
        Fraction of the rows of `fit` that is used for calibration. With None, all rows are learned
        from, and `calibrate` must follow.
    by : {"class", "group"} or None, default=None
        Whether the guarantee holds on average over all rows, for each class, or for each group.
    allow_empty : bool, default=False
        Whether a set may be empty. If not, each contains at least its row's first label.
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed: raise an error, or return every
        label.
    folds : int, default=5
        Number of networks of each stage; each learns without its own fold of the rows.
    width, rank_width : int, default=512, 64
        Hidden units of the networks of the two stages.
    learning_rate, batch_size, weight_decay, max_epochs, patience
        Settings of the training of both stages (AdamW, averaged weights, early stopping). By
        default a batch is 512 rows, or an eighth of them if they are few, up to 1,024 if they are
        many, and 8,192 of a million; the learning rate grows with the square root of a batch
        above 1,024.
    score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
        What the scores are. "auto" decides at fit; see `score_type_`.
    score_depth : int, default=50
        Number of log-probabilities of each row that stage 2 sees.
    device : str, default="auto"
        Where to train. "auto": where the features (or scores) are.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. "auto": on a terminal.
    random_state : int, RandomState instance or None, default=0
        Seed of the splits, the networks and their training.

    Attributes
    ----------
    classes_ : array
        Classes, in the order of the score columns.
    score_type_ : str
        What the scores are.
    temperature_ : float
        Temperature of the classifier's scores.
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
    temperature = "auto"
    _live_parameters = ("allow_empty", "cost")

    def __init__(
        self,
        cost: Cost = "linear",
        *,
        accuracy: float = 0.95,
        cost_weight: float | None = None,
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
        max_epochs: int = 50,
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

    def _make_score(self) -> ShortlisterScore:
        names = ShortlisterScore._get_param_names()
        return ShortlisterScore(**{name: getattr(self, name) for name in names})

    def _make_calibrator(self, by: str | None) -> Calibrator:
        return CALIBRATORS[self.by if by is None else by](on_unreachable=self.on_unreachable)

    def _current_score(self) -> ShortlisterScore:
        self.score_.cost = self.cost
        return self.score_

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_by(self.by)
        check_choice(self.on_unreachable, "on_unreachable", ("raise", "all"))
        self._make_score().check_parameters()

    @property
    def rescored_(self) -> bool:
        """Whether stage 1 was kept."""
        return self.score_.rescorer_ is not None

    @property
    def learned_sizes_(self) -> bool:
        """Whether stage 2 was kept."""
        return self.score_.rank_model_ is not None

    @property
    def uses_features(self) -> bool:
        """Whether `fit` saw features."""
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
            Scores, of the type that `fit` saw.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` used them.

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
        self, scores: ArrayLike | Ranking, features: ArrayLike | None = None
    ) -> Ranking:
        """Return `rescored` for the rows of `fit`, each without the help of its own label.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the rows that `fit` learned from, in the same order. Fit with
            ``calibration=None``, so that these are all of its rows.
        features : array-like of shape (n_rows, n_features), optional
            Features of the same rows.

        Returns
        -------
        Ranking
        """
        ranking, x = self._validate_rows(scores, features)
        ranking = ranking.with_scale(self.score_type_, 1 / self.temperature_)
        rescorer = self.score_.rescorer_
        if rescorer is None:
            return normalize(self.score_.rerank(ranking, x))
        if len(ranking) != len(rescorer.folds):
            raise ValueError(
                f"{len(ranking)} rows were given, but fit learned from {len(rescorer.folds)}; "
                "out_of_fold takes the same rows in the same order"
            )
        checked = self.score_._check_features(x)
        assert checked is not None
        return rescorer.out_of_fold(self.score_.start(ranking), checked)

    def accepted_rows(self) -> AcceptedRows:
        """Return what kind of rows the model accepts: that of the rows of `fit`."""
        schema, score = super().accepted_rows(), self.score_
        depth = score.buckets_.sizes[-1]
        dense = score.dense_ if schema.dense is None else schema.dense
        return AcceptedRows(dense, depth, max(schema.candidates, depth))

    def ablations(self) -> dict[str, SetPredictor]:
        """Return an unfitted copy that does not learn stage 1.

        Returns
        -------
        dict of str to SetPredictor
        """
        return {"no re-scoring": clone(self).set_params(rescore=False)}

    def _display_name(self) -> str:
        return "Shortlister"
