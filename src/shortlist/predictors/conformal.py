"""Conformal predictors: a conformity score composed with a calibrator."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from shortlist._utils.arrays import Array, ArrayLike, as_features, row_index, to_array_type
from shortlist._utils.frames import column_names, match_columns
from shortlist._utils.out_of_core import Matrix
from shortlist._utils.threads import multi_threaded, without_barriers
from shortlist._utils.validation import check_choice, check_non_negative, check_probability
from shortlist.conformal.calibration import Calibration
from shortlist.conformal.calibrators import (
    Calibrator,
    Thresholds,
    make_calibrator,
)
from shortlist.conformal.evaluation import level_frontier, outcomes_at, p_value_table
from shortlist.conformal.groups import encode_groups
from shortlist.conformal.level_function import LevelFunction
from shortlist.conformal.prediction import predict_sets
from shortlist.conformal.quantiles import UnreachableError
from shortlist.conformal.row_schema import RowSchema
from shortlist.conformal.scores import ConformityScore
from shortlist.conformal.size_temperature import shortest_scale
from shortlist.frontier import Frontier
from shortlist.guarantee import Guarantee
from shortlist.learning.settings import resolve_seed
from shortlist.learning.temperature import resolve_scale
from shortlist.predictors.base import AcceptedRows, Outcomes, SetPredictor
from shortlist.predictors.extra_rows import ExtraRows
from shortlist.predictors.splitting import feature_rows, hold_out, ranking_rows
from shortlist.predictors.training_rows import TrainingRows
from shortlist.ranking import Ranking
from shortlist.ranking.score_types import ScoreType
from shortlist.sets import PredictionSets

TEMPERATURES = ("auto", "size")
"""Temperatures that are fitted: for the largest likelihood, and for the shortest sets."""
CHOOSING_VALUES = 1 << 21
"""Number of levels of the rows that choose a threshold by its mean size."""


class ConformalPredictor(SetPredictor):
    """Prediction sets from a conformity score and a calibrator.

    The set of a row contains the labels whose level is at least a threshold. The calibrator
    derives the threshold from calibration rows, so that an accuracy is guaranteed.

    Parameters
    ----------
    score : ConformityScore
        Score that gives each label a level, such as ``LAC()`` or one of your own.
    calibrator : Calibrator, optional
        Calibrator that turns the levels of calibration rows into thresholds. :class:`Marginal` by
        default.
    accuracy : float, default=0.95
        Accuracy that `predict_set` guarantees unless it is given another one.
    cost_weight : float, optional
        If given, `predict_set` uses this cost weight (lambda in the paper) unless it is given an
        accuracy. Only for scores whose levels are cost weights.
    temperature : "auto", "size", None or float, default="auto"
        Temperature of the probabilities that the score sees. "auto" takes the one with the largest
        likelihood, and "size" the one with the shortest sets at `accuracy`, both on rows that are
        not used for calibration; None leaves scores unchanged.
    calibration : float or None, default=0.75
        Fraction of the rows of `fit` that is held out for calibration; the score and the
        temperature are fitted on the others. If there is nothing to fit, all rows are used for
        calibration. With None, no rows are held out, and `calibrate` must be called.
    allow_empty : bool, default=False
        Whether a set may be empty. If not, each set contains at least its row's first label. The
        calibration takes this into account, so that the accuracy is not higher than necessary.
    score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
        Type of the scores. "auto" decides at fit; see `score_type_`.
    random_state : int, RandomState instance or None, default=0
        Seed of the split.

    Attributes
    ----------
    score_ : ConformityScore
        The fitted score.
    temperature_ : float
        Temperature in use.
    classes_ : array
        Classes, in the order of the score columns.
    score_type_ : str
        Type of the scores.

    Examples
    --------
    >>> import shortlist as sl
    >>> from shortlist.conformal import APS, ClassConditional
    >>> data = sl.datasets.gaussian(6000)
    >>> model = sl.ConformalPredictor(APS(), ClassConditional()).fit(data.posterior, data.y)
    >>> print(model.predict_set(data.posterior[:2], accuracy=0.9).guarantee)
    accuracy >= 0.9 guaranteed for each class by 4,500 calibration rows
    """

    score_: ConformityScore
    temperature_: float
    accuracy: float
    calibration: float | None
    temperature: float | str | None
    allow_empty: bool
    random_state: object
    cost_weight: float | None = None
    # Short forms such as SplitConformal have the two parameters that follow in place of this one.
    calibrator: Calibrator | None = None
    by: str | None = None
    on_unreachable: str = "raise"
    _calibration: Calibration | None
    _feature_names: list[str] | None
    trains_networks = False
    _live_parameters: ClassVar[tuple[str, ...]] = ("allow_empty",)
    """Parameters that can be set after `fit`, but not between calibration and prediction."""

    def __init__(
        self,
        score: ConformityScore,
        calibrator: Calibrator | None = None,
        *,
        accuracy: float = 0.95,
        cost_weight: float | None = None,
        temperature: float | str | None = "auto",
        calibration: float | None = 0.75,
        allow_empty: bool = False,
        score_type: str = "auto",
        random_state: object = 0,
    ) -> None:
        self.score = score
        self.calibrator = calibrator
        self.accuracy = accuracy
        self.cost_weight = cost_weight
        self.temperature = temperature
        self.calibration = calibration
        self.allow_empty = allow_empty
        self.score_type = score_type
        self.random_state = random_state

    # Short forms such as SplitConformal override these methods.

    def _make_score(self) -> ConformityScore:
        """Return the score to fit."""
        if not isinstance(self.score, ConformityScore):
            raise ValueError(
                f"score must be a ConformityScore, such as LAC(); got {self.score!r}. For a name, "
                f"write SplitConformal({self.score!r})"
            )
        score: ConformityScore = clone(self.score)
        return score

    def _make_calibrator(self, by: str | None) -> Calibrator:
        """Return the calibrator to fit: the one named `by`, or that of the predictor."""
        if self.calibrator is None:
            return make_calibrator(self.by if by is None else by, self.on_unreachable)
        if not isinstance(self.calibrator, Calibrator):
            raise ValueError(
                f"calibrator must be a Calibrator, such as Marginal(); got {self.calibrator!r}"
            )
        calibrator: Calibrator = clone(self.calibrator)
        return calibrator if by is None else make_calibrator(by, calibrator.on_unreachable)

    def _current_score(self) -> ConformityScore:
        """Return the fitted score with the current values of the live parameters."""
        return self.score_

    def _check_parameters(self) -> None:
        """Raise if a parameter has an invalid value."""
        check_probability(self.accuracy, "accuracy")
        if self.calibration is not None:
            check_probability(self.calibration, "calibration")
        if self.cost_weight is not None:
            check_non_negative(self.cost_weight, "cost_weight")
        if isinstance(self.temperature, str):
            check_choice(self.temperature, "temperature", TEMPERATURES)
        self._make_calibrator(None)  # Raises if a parameter of the calibrator has an invalid value.

    @property
    def conditional_on(self) -> str | None:
        """What guarantees are conditional on: "class", "group" or None (all rows together)."""
        return self._make_calibrator(None).conditional_on

    def _learns(self) -> bool:
        """Return whether a fit learns anything from its rows."""
        return isinstance(self.temperature, str) or self._make_score().needs_fit()

    def _split(self, n_rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return which rows a fit learns from, and which it calibrates with."""
        if self._learns() or self.calibration is None:
            return hold_out(n_rows, self.calibration, resolve_seed(self.random_state))
        return np.arange(n_rows), np.arange(n_rows)

    # Fitting

    def fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the score and calibrate.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of rows that the classifier was not trained on.
        y : array-like of shape (n_rows,)
            Labels.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows, for scores that use them.
        classes : array-like, optional
            Names of the score columns. Rows with another label are not used for learning and
            count as misses in the calibration.
        groups : array-like of shape (n_rows,), optional
            Group of each row, for guarantees conditional on groups.

        Returns
        -------
        self
            The fitted predictor.
        """
        return self._fit(scores, y, features, classes, groups)

    @without_barriers
    def _fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None,
        classes: ArrayLike | None,
        groups: ArrayLike | None,
        extra: ExtraRows | None = None,
    ) -> Self:
        """Fit the score, from extra rows too if there are any, and calibrate."""
        self._check_parameters()
        # If `classes` names the columns, other labels are of classes unknown to the classifier.
        unknown = "raise" if classes is None else "some"
        ranking, index, score_type = self._validate_fit(scores, y, classes, unknown=unknown)
        self._feature_names = column_names(features)
        x = self._check_features(features, ranking)
        encoded = None
        if extra is not None and x is not None:
            encoded = extra.encode(ranking, x.shape[1], self._feature_names)
        codes = None if groups is None else encode_groups(groups, len(ranking))
        needs_groups = self._make_calibrator(None).per == "group"
        if needs_groups and codes is None and self.calibration is not None:
            raise ValueError('by = "group" needs the group of each row: fit(..., groups=...)')
        learning, held_out = self._split(len(ranking))
        known = (index >= 0).cpu().numpy()
        learning = learning if known.all() else learning[known[learning]]
        at = row_index(learning, len(ranking), ranking.device)
        # A temperature alone is fitted to a sample of the rows.
        reads_all = self.temperature == "size" or self._make_score().needs_fit()
        learned = ranking_rows(ranking, learning, copy=reads_all)
        score, scale = self._fit_scaled_score(
            learned, index[at], feature_rows(x, learning), score_type, encoded
        )
        self.score_, self.temperature_, self._calibration = score, 1 / scale, None
        self.score_type_ = score_type
        if len(held_out):
            at = row_index(held_out, len(ranking), ranking.device)
            kept = None if codes is None else (codes[0][held_out], codes[1])
            held = ranking_rows(ranking, held_out, copy=False)
            self._calibrate(held, index[at], feature_rows(x, held_out), kept, n_given=len(ranking))
        self._training_rows = TrainingRows(learned) if self._learns() else None
        self._finalize_fit(ranking, score_type)
        return self

    def _fit_scaled_score(
        self,
        ranking: Ranking,
        index: Tensor,
        features: Matrix | None,
        score_type: ScoreType,
        extra: tuple[Matrix, Tensor] | None,
    ) -> tuple[ConformityScore, float]:
        """Return the fitted score and the inverse temperature of the rows that it was fitted to."""

        def fit_at(scale: float) -> ConformityScore:
            score = self._make_score()
            scaled = ranking.with_scale(score_type, scale)
            with multi_threaded():  # Training may need the threads of PyTorch.
                self._fit_score(score, scaled, index, features, extra)
            return score

        for_size = self.temperature == "size"
        scale = resolve_scale("auto" if for_size else self.temperature, ranking, index, score_type)
        score = fit_at(scale)
        if for_size:
            function = LevelFunction(score, score_type, scale, self.allow_empty)
            scale = shortest_scale(function, ranking, index, features, self.accuracy)
            score = fit_at(scale)  # Its parameters are tuned for the new temperature.
        return score, scale

    def _fit_score(
        self,
        score: ConformityScore,
        ranking: Ranking,
        index: Tensor,
        features: Matrix | None,
        extra: tuple[Matrix, Tensor] | None,
    ) -> None:
        """Fit the score to the rows that are not kept for calibration; `extra` has no scores."""
        score.fit(ranking, index, features)

    @without_barriers
    def calibrate(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Calibrate with these rows, in place of those that `fit` held out.

        Neither the classifier nor `fit` may have been given these rows.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the calibration rows.
        y : array-like of shape (n_rows,)
            Labels. A label of an unknown class counts as a miss.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows.
        groups : array-like of shape (n_rows,), optional
            Group of each row, for guarantees conditional on groups.

        Returns
        -------
        self
            The calibrated predictor.
        """
        self._check_parameters()
        ranking, index = self._validate_labeled(scores, y, unknown="some")
        x = self._check_features(features, ranking)
        codes = None if groups is None else encode_groups(groups, len(ranking))
        self._warn_if_trained_on(ranking)
        self._calibrate(ranking, index, x, codes)
        return self

    def _calibrate(
        self,
        ranking: Ranking,
        index: Tensor,
        features: Matrix | None,
        groups: tuple[NDArray[np.int64], list[object]] | None,
        n_given: int | None = None,
    ) -> None:
        """Store the calibration of these rows."""
        function = self._level_function()
        levels = function.lowest_levels(ranking, index, features)
        order, n_choosing = self._calibration_order(len(ranking), ranking.depth)
        choosing = order[:n_choosing]
        self._calibration = Calibration(
            levels=levels[order],
            y=index.cpu().numpy()[order],
            groups=None if groups is None else groups[0][order],
            group_names=[] if groups is None else groups[1],
            n_given=n_given,
            schema=RowSchema.of(ranking),
            n_choosing=n_choosing,
            exhaustive=function.is_exhaustive(ranking),
            parameters=self._level_parameters(),
            **function.size_table(
                levels[choosing], ranking[choosing], feature_rows(features, choosing)
            ),
        )

    def _level_parameters(self) -> dict[str, object]:
        """Return copies of the parameters that the levels depend on."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self._live_parameters}

    def _level_function(self) -> LevelFunction:
        """Return the function that computes levels, with the current values of the parameters."""
        return LevelFunction(
            self._current_score(), self.score_type_, 1 / self.temperature_, self.allow_empty
        )

    def _calibration_order(self, rows: int, depth: int) -> tuple[NDArray[np.intp], int]:
        """Return an order of the calibration rows, and how many of them choose by mean size."""
        rng = np.random.default_rng([resolve_seed(self.random_state), rows])
        return rng.permutation(rows), min((rows + 1) // 2, max(1000, CHOOSING_VALUES // depth))

    # Operating points

    @property
    def n_calibration(self) -> int:
        """Number of calibration rows; 0 if the predictor is not calibrated."""
        calibration = getattr(self, "_calibration", None)
        return 0 if calibration is None else len(calibration)

    @property
    def sets_are_prefixes(self) -> bool:
        """Whether every set is a prefix of one ranking of the row's labels."""
        return self._make_calibrator(None).per != "class"

    @property
    def can_use_features(self) -> bool:
        """Whether the score can use features."""
        return self._make_score().can_use_features

    @property
    def is_tuned(self) -> bool:
        """Whether the score or the temperature is tuned for one accuracy."""
        score = self._make_score()
        is_tuned = score.needs_fit() and "accuracy" in score.get_params()
        return is_tuned or self.temperature == "size"

    def _describe_fit(self) -> dict[str, str]:
        return {**self.score_.describe(), "temperature": f"{self.temperature_:.4g}"}

    def _describe_sizes(self) -> dict[str, str]:
        """Return the mean sizes at common accuracies, if all sets share one threshold."""
        if self.conditional_on is not None:
            return {}
        sizes = []
        for accuracy in self._reachable_accuracies():
            thresholds = self.thresholds(accuracy=accuracy)
            if thresholds.per != "set":
                return {}
            size = self._require_calibration().mean_size_at(float(thresholds.values))
            if not np.isnan(size):
                sizes.append(f"{accuracy:g}: {size:.3g}")
        return {"mean size at guaranteed accuracy": ", ".join(sizes)} if sizes else {}

    def check_reachable(self, accuracy: float) -> None:
        """Raise if the calibration rows cannot guarantee it; see `SetPredictor.check_reachable`."""
        if self.is_calibrated:
            self.thresholds(accuracy=accuracy)

    def _require_calibration(self) -> Calibration:
        """Return the calibration; raise if there is none, or a parameter was changed since."""
        calibration: Calibration | None = getattr(self, "_calibration", None)
        if calibration is None:
            raise ValueError(
                "this model is not calibrated and cannot guarantee an accuracy; fit it with "
                "calibration=0.25, or call calibrate with rows of their own"
            )
        for name, before in calibration.parameters.items():
            now = getattr(self, name)
            if not (now is before or np.array_equal(now, before)):
                raise ValueError(
                    f"{name} = {now!r}, but it was {before!r} at calibration; call calibrate again"
                )
        return calibration

    def thresholds(
        self,
        *,
        accuracy: float | None = None,
        delta: float | None = None,
        mean_size: float | None = None,
        cost_weight: float | None = None,
        by: str | None = None,
    ) -> Thresholds:
        """Return the thresholds of an operating point, with their guarantee.

        Parameters
        ----------
        accuracy : float, optional
            Accuracy to guarantee.
        delta : float, optional
            Probability, over the draw of the calibration rows, that the guarantee may fail.
        mean_size : float, optional
            Target mean set size.
        cost_weight : float, optional
            Cost weight (lambda in the paper).
        by : str, optional
            Name of a registered calibrator.

        Returns
        -------
        Thresholds
            Thresholds, with their guarantee.

        Raises
        ------
        UnreachableError
            If the accuracy cannot be guaranteed with the calibration rows.
        """
        goals = {"accuracy": accuracy, "mean_size": mean_size, "cost_weight": cost_weight}
        given = [f"{name} = {value!r}" for name, value in goals.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} were given; choose only one")
        weight = self.cost_weight if not given else cost_weight
        if weight is not None:
            return self._at_cost_weight(weight, delta, by)
        if mean_size is not None:
            if by is not None:
                raise ValueError(f"mean_size = {mean_size!r} cannot be combined with by = {by!r}")
            level = 0.05 if delta is None else delta
            return self._require_calibration().at_mean_size(mean_size, level, self._classes.n)
        if delta is not None:
            check_probability(delta, "delta")
        calibrator = self._make_calibrator(by)
        wanted = check_probability(self.accuracy if accuracy is None else accuracy, "accuracy")
        calibration = self._require_calibration()
        fitted = calibration.fit(calibrator, self._classes.array().tolist())
        try:
            return fitted.threshold(wanted, delta)
        except UnreachableError as error:
            raise UnreachableError(
                f"{error}{self._advice(calibration)}", error.max_accuracy
            ) from None

    def _advice(self, calibration: Calibration) -> str:
        """Return advice on an accuracy that cannot be guaranteed, to be appended to the error."""
        kept = ""
        if calibration.n_given is not None:
            kept = f" (fit kept {len(calibration):,} of {calibration.n_given:,})"
        if bool((calibration.y < 0).any()):
            return kept  # Even the set of all classes misses labels of unknown classes.
        return f'{kept}; or every label, with on_unreachable="all"'

    def _at_cost_weight(self, weight: float, delta: float | None, by: str | None) -> Thresholds:
        """Return the threshold of a cost weight, which guarantees no accuracy."""
        if not self.score_.levels_are_cost_weights:
            raise ValueError(
                f"cost_weight = {weight!r}, but the levels of this method's score are not cost "
                "weights; give an accuracy or a mean_size"
            )
        if delta is not None or by is not None:
            raise ValueError(
                "cost_weight guarantees no accuracy, so that it cannot be combined with delta or by"
            )
        value = torch.tensor(check_non_negative(weight, "cost_weight"), dtype=torch.float64)
        return Thresholds(value, Guarantee("none", operating_point=f"cost_weight = {weight:g}"))

    # Prediction

    @without_barriers
    def predict_set(
        self,
        scores: ArrayLike | Ranking,
        features: ArrayLike | None = None,
        *,
        accuracy: float | None = None,
        delta: float | None = None,
        mean_size: float | None = None,
        cost_weight: float | None = None,
        by: str | None = None,
        groups: ArrayLike | None = None,
    ) -> PredictionSets:
        """Return the prediction set of each row, at any operating point.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores, of the type that `fit` saw.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` used them.
        accuracy : float, optional
            Probability that a set contains the label, at least, for rows exchangeable with the
            calibration rows.
        delta : float, optional
            With probability ``1 - delta`` over the draw of the calibration rows, the accuracy on
            new rows is at least `accuracy`. By default the guarantee is on average over it.
        mean_size : float, optional
            Target mean set size, instead of an accuracy. Some of the calibration rows choose the
            threshold; the guarantee states the accuracy that the others certify.
        cost_weight : float, optional
            Cost of a unit of size in units of accuracy (lambda in the paper). No accuracy is
            guaranteed. Only for scores whose levels are cost weights.
        by : str, optional
            Name of a registered calibrator, in place of that of the predictor: "class" or "group"
            guarantees the accuracy for each class or each group, "marginal" on average over all
            rows.
        groups : array-like of shape (n_rows,), optional
            Group of each row, for ``by="group"``.

        Returns
        -------
        PredictionSets
            Sets, with their guarantee.

        Raises
        ------
        UnreachableError
            If the accuracy cannot be guaranteed with the calibration rows.
        """
        ranking, x = self._validate_rows(scores, features)
        point = self.thresholds(
            accuracy=accuracy, delta=delta, mean_size=mean_size, cost_weight=cost_weight, by=by
        )
        return self._predict(ranking, x, [point], groups)[0]

    @without_barriers
    def predict_sets(
        self,
        scores: ArrayLike | Ranking,
        features: ArrayLike | None = None,
        *,
        accuracies: Sequence[float],
        delta: float | None = None,
        by: str | None = None,
        groups: ArrayLike | None = None,
    ) -> list[PredictionSets]:
        """Return the sets at several accuracies, much faster than one call for each accuracy.

        Each guarantee holds by itself; they need not hold simultaneously.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores, of the type that `fit` saw.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` used them.
        accuracies : sequence of float
            Accuracies to guarantee.
        delta : float, optional
            Probability, over the draw of the calibration rows, that a guarantee may fail.
        by : str, optional
            Name of a registered calibrator, as in `predict_set`.
        groups : array-like of shape (n_rows,), optional
            Group of each row, for guarantees conditional on groups.

        Returns
        -------
        list of PredictionSets
            Sets at each accuracy.
        """
        ranking, x = self._validate_rows(scores, features)
        if np.ndim(accuracies) != 1:
            raise ValueError(f"accuracies must be a list of numbers; got {accuracies!r}")
        points = [self.thresholds(accuracy=a, delta=delta, by=by) for a in accuracies]
        return self._predict(ranking, x, points, groups) if points else []

    def _predict(
        self,
        ranking: Ranking,
        features: Tensor | None,
        points: Sequence[Thresholds],
        groups: ArrayLike | None,
    ) -> list[PredictionSets]:
        """Return the sets at each of several operating points."""
        if any(point.guarantee for point in points):
            ranking = self._require_calibration().schema.match(ranking)
        blocks = self._level_function().blocks(ranking, features)
        return predict_sets(ranking, blocks, points, groups)

    def accepted_rows(self) -> AcceptedRows:
        """Return the kind of rows that the model accepts: that of the calibration rows."""
        if not self.is_calibrated:
            return AcceptedRows()
        schema = self._require_calibration().schema
        return AcceptedRows(schema.dense, schema.depth, 1 if schema.dense else schema.lengths[1])

    def onnx_sets(self, graph: Any, point: Any) -> Any:
        """Return the sets as outputs of an ONNX graph; see `SetPredictor.onnx_sets`."""
        return graph.conformal_sets(self, self._current_score(), 1 / self.temperature_, point)

    @without_barriers
    def evaluate(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        accuracies: Sequence[float],
    ) -> list[Outcomes | None]:
        """Return hits and sizes at many guaranteed accuracies; see `SetPredictor.evaluate`.

        Levels are computed once, for all accuracies.
        """
        if self.conditional_on is not None or not self.is_calibrated:
            return super().evaluate(scores, y, features, accuracies=accuracies)
        thresholds = np.full(len(accuracies), np.nan)
        for i, accuracy in enumerate(accuracies):
            with suppress(UnreachableError):
                thresholds[i] = float(self.thresholds(accuracy=accuracy).values)
        ranking, index = self._validate_labeled(scores, y)
        ranking = self._require_calibration().schema.match(ranking)
        x = self._check_features(features, ranking)
        blocks = self._level_function().blocks(ranking, x)
        reachable = thresholds[~np.isnan(thresholds)]
        hits, sizes = outcomes_at(ranking, blocks, index, reachable)
        columns = iter(zip(hits.T, sizes.T, strict=True))
        return [None if np.isnan(q) else Outcomes(*next(columns)) for q in thresholds]

    def _prefix_rankings(
        self, ranking: Ranking, features: Tensor | None
    ) -> Iterator[tuple[slice, Ranking]]:
        """Yield the rankings that sets are prefixes of, a block of rows at a time."""
        for rows, ranked, _ in self._level_function().blocks(ranking, features):
            yield rows, ranked

    @without_barriers
    def p_values(self, scores: ArrayLike | Ranking, features: ArrayLike | None = None) -> Array:
        """Return the conformal p-value of every label.

        A label is in the set of guaranteed accuracy ``1 - alpha`` if and only if its p-value
        exceeds alpha. This is the marginal guarantee, whatever the calibrator. The p-value of a
        row's first label is 1 unless ``allow_empty=True``. If no set can contain some labels, as
        with candidates, sets may contain more labels, unless ``on_unreachable="all"``; see
        :func:`shortlist.conformal.listed_rank`.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores, of the type that `fit` saw.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` used them.

        Returns
        -------
        array of shape (n_rows, n_classes)
            p-values.
        """
        ranking, x = self._validate_rows(scores, features)
        calibration = self._require_calibration()
        ranking = calibration.schema.match(ranking)
        blocks = self._level_function().blocks(ranking, x)
        table = p_value_table(ranking, blocks, calibration.levels)
        return to_array_type(table, ranking.array_type)

    @without_barriers
    def frontier(
        self, scores: ArrayLike | Ranking, y: ArrayLike, features: ArrayLike | None = None
    ) -> Frontier:
        """Return accuracy and mean size at up to a few hundred thresholds, on labeled rows.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of rows that are used neither to fit nor to calibrate.
        y : array-like of shape (n_rows,)
            Labels.
        features : array-like of shape (n_rows, n_features), optional
            Features, if `fit` used them.

        Returns
        -------
        Frontier
            One point for each threshold.
        """
        ranking, index = self._validate_labeled(scores, y)
        x = self._check_features(features, ranking)
        return level_frontier(self._level_function(), ranking, index, x, self._display_name())

    def _validate_rows(
        self, scores: ArrayLike | Ranking, features: ArrayLike | None
    ) -> tuple[Ranking, Tensor | None]:
        """Return rows to predict, validated."""
        ranking = self._validate_scores(scores)
        return ranking, self._check_features(features, ranking)

    def _check_features(self, features: ArrayLike | None, ranking: Ranking) -> Tensor | None:
        """Return the features of rows, with the columns of a frame in the order of fit."""
        if features is None:
            return None
        matched = match_columns(features, getattr(self, "_feature_names", None), "features")
        return as_features(matched, rows=len(ranking))

    def _display_name(self) -> str:
        """Return the name of the method for frontiers."""
        return self.score_.name or type(self.score_).__name__
