"""A path of cardinality-aware selectors, for several cost weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from torch import nn

from shortlist._utils.arrays import Array, ArrayLike, to_array_type
from shortlist._utils.validation import check_non_negative
from shortlist.conformal.path_calibration import PathCalibration
from shortlist.conformal.quantiles import UnreachableError
from shortlist.guarantee import NO_GUARANTEE, Guarantee
from shortlist.predictors.base import Outcomes
from shortlist.predictors.cardinality.decisions import Decisions
from shortlist.predictors.cardinality.fitting import CardinalityBase
from shortlist.predictors.cardinality.member_costs import is_table
from shortlist.predictors.family_choices import hits_and_sizes
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

DELTA = 0.05
"""Default probability that the guarantee of a path fails."""


@dataclass(eq=False, repr=False)
class CardinalityPath(CardinalityBase):
    """Train cardinality-aware selectors for several values of lambda together.

    The selectors, the members of the path, start from the same weights and use the same batches
    as selectors trained one by one, and reach the same result in a fraction of the time.

    Parameters
    ----------
    family : Family, optional
        Sets to choose from, or a :class:`Deferral`.
    cost : {"log", "linear"}, sequence, dict or callable, default="log"
        Cost of a set size.
    cost_weights : sequence of float, optional
        Values of lambda. By default, 20 values evenly spaced in logarithm from 1 to 0.01.
    loss : str or nn.Module, default="log"
        Surrogate loss.
    inputs : {"features", "scores", "both"}, default="features"
        Inputs of the networks.
    network, width : nn.Module or callable, int
        Network of each member, if it is not the default one, or the width of the default one.
    score_type, score_depth : str, int
        Type of the scores, and number of log-probabilities that the networks see.
    q, rho : float, default=0.7, 1.0
        Parameters of the losses "gce" and "margin".
    learning_rate, batch_size, weight_decay : float, int, float, default=1e-3, 128, 1e-5
        Parameters of the Adam optimizer.
    max_epochs, patience, validation_fraction, clip_norm : int, int, float, float or "auto"
        Early stopping and gradient clipping.
    device, dtype : str, default="auto", "float32"
        Where and in which precision to train.
    checkpoint, progress, random_state : path, bool or "auto", int
        File of an interrupted fit, progress bar and seed.
    cost_weight : float, optional
        One of `cost_weights`, which `predict_set` uses by default.

    Attributes
    ----------
    classes_ : array
        Classes, in the order of the score columns.
    score_type_ : str
        Type of the scores.
    family_ : Family
        The fitted family.
    history_ : History, list of History or None
        Losses by epoch: of all members together, or of each if `network` is given. None if there
        was nothing to train.

    Notes
    -----
    :class:`CardinalitySelector` explains the parameters that both classes have.

    After `calibrate`, ``predict_set(..., accuracy=0.95)`` guarantees an accuracy. The members are
    tested on the calibration rows in the order of increasing lambda until one fails. Of those that
    passed, the one with the smallest sets is used. The sets of the members need not be nested.
    `delta` bounds the probability that the accuracy of any member that passed is below the
    requested one (fixed-sequence testing; Angelopoulos et al., Learn then Test, 2021).

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.digits()
    >>> h = sl.LinearClassifier(max_epochs=1).fit(data.x[:600], data.y[:600])
    >>> scores = h.decision_function(data.x[600:])
    >>> path = sl.CardinalityPath(
    ...     sl.TopK([1, 2, 4]), cost_weights=[0.5, 0.05], inputs="scores", max_epochs=5)
    >>> path = path.fit(scores[:900], data.y[600:1500])
    >>> curve = path.frontier(scores[900:], data.y[1500:])
    >>> len(curve), bool(curve.mean_size[0] < curve.mean_size[1])
    (2, True)
    >>> path = path.calibrate(scores[900:], data.y[1500:])
    >>> path.predict_set(scores[900:], accuracy=0.8).guarantee.n_calibration
    297
    """

    cost_weights: Sequence[float] | None = None
    loss: str | nn.Module = "log"
    inputs: str = "features"
    cost_weight: float | None = field(default=None, kw_only=True)
    _path_calibration: PathCalibration | None = field(default=None, init=False)

    has_additive_calibration = True

    @property
    def n_calibration(self) -> int:
        """Number of calibration rows; 0 if the path is not calibrated."""
        return 0 if self._path_calibration is None else self._path_calibration.n_rows

    def fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
        costs: Mapping[str, float | ArrayLike] | None = None,
    ) -> Self:
        """Train the selectors.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of rows that the classifier was not trained on.
        y : array-like of shape (n_rows,)
            True labels.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows. They are needed unless `inputs` is "scores".
        classes : array-like of shape (n_classes,), optional
            Classes in the order of the score columns. By default, they are inferred from `y`.
        costs : mapping of str to float or array-like of shape (n_rows,), optional
            Costs that the user defines. A mapping contains the costs of the members without a set
            of a :class:`Deferral` by name: a number, or one for each row. They are on the scale
            of the sets, where a miss costs 1. They do not depend on the cost
            weight. A table of the costs of all members is not possible.

        Returns
        -------
        self
        """
        weights = np.geomspace(1, 0.01, 20) if self.cost_weights is None else self.cost_weights
        if np.ndim(weights) != 1 or len(weights) == 0:
            raise ValueError(
                f"cost_weights must be a list of at least one lambda; got {self.cost_weights!r}"
            )
        if is_table(costs):
            raise ValueError(
                f"costs is a {type(costs).__name__}, a table of the costs of all members, which "
                "cost_weights cannot change; fit a CardinalitySelector, or give the costs of the "
                "members of a Deferral by name"
            )
        self._fit(scores, y, features, classes, list(weights), costs, stacked=True)
        self._path_calibration = None  # A calibration of an earlier fit is not valid any more.
        return self

    def calibrate(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
    ) -> Self:
        """Count the hits of each member on rows that `fit` did not see, to guarantee an accuracy.

        An earlier calibration is replaced.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the calibration rows.
        y : array-like of shape (n_rows,)
            True labels.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows, if `inputs` includes them.

        Returns
        -------
        self
        """
        ranking, index = self._validate_labeled(scores, y, unknown="some")
        self._warn_if_trained_on(ranking)
        choices = list(self._choices(ranking, features))
        hits, sizes = hits_and_sizes(self.family_, ranking, index, choices)
        self._path_calibration = PathCalibration.of(self._weights, hits, sizes)
        return self

    def evaluate(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        accuracies: Sequence[float],
    ) -> list[Outcomes | None]:
        """Return hits and sizes at several accuracies: see `SetPredictor.evaluate`.

        The sets of each member are computed once for all accuracies.
        """
        if not self.is_calibrated:
            return [None] * len(accuracies)
        ranking, index = self._validate_labeled(scores, y)
        choices = list(self._choices(ranking, features))
        hits, sizes = (
            t.cpu().numpy() for t in hits_and_sizes(self.family_, ranking, index, choices)
        )
        results: list[Outcomes | None] = [None] * len(accuracies)
        for i, accuracy in enumerate(accuracies):
            with suppress(UnreachableError):
                member, _ = self._select_member(None, accuracy, DELTA)
                results[i] = Outcomes(hits[:, member], sizes[:, member])
        return results

    def _member(self, cost_weight: float | None) -> int:
        """Return the index of the member that was trained with a cost weight."""
        weight = self.cost_weight if cost_weight is None else cost_weight
        trained = ", ".join(f"{w:g}" for w in self._weights)
        if weight is None:
            raise ValueError(f"cost_weight is missing; give cost_weight=..., one of: {trained}")
        distances = [abs(check_non_negative(weight, "cost_weight") - w) for w in self._weights]
        nearest = distances.index(min(distances))
        if distances[nearest] > 1e-6 * abs(weight):
            raise ValueError(
                f"no selector was trained for cost_weight = {weight!r}; use one of: {trained}, or "
                "fit again with it among cost_weights"
            )
        return nearest

    def choose(
        self,
        scores: ArrayLike | Ranking,
        features: ArrayLike | None = None,
        *,
        cost_weight: float | None = None,
    ) -> Array:
        """Return the index of the chosen set of the family for each row.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the rows.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows, if `inputs` includes them.
        cost_weight : float, optional
            Value of lambda, one of `cost_weights`.

        Returns
        -------
        array of shape (n_rows,)
        """
        ranking = self._validate_scores(scores)
        member = self._member(cost_weight)
        return to_array_type(self._choices(ranking, features)[member], ranking.array_type)

    def predict_set(
        self,
        scores: ArrayLike | Ranking,
        features: ArrayLike | None = None,
        *,
        cost_weight: float | None = None,
        accuracy: float | None = None,
        delta: float = DELTA,
    ) -> PredictionSets:
        """Return the set that one of the selectors chooses for each row.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the rows.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows, if `inputs` includes them.
        cost_weight : float, optional
            Value of lambda, one of `cost_weights`. No accuracy is guaranteed.
        accuracy : float, optional
            Accuracy to guarantee, after `calibrate`. Of the members that reach it, the one with
            the smallest sets is used.
        delta : float, default=0.05
            Probability, over the draw of the calibration rows, that the guarantee fails.

        Returns
        -------
        PredictionSets
        """
        return self.decide(
            scores, features, cost_weight=cost_weight, accuracy=accuracy, delta=delta
        ).sets

    def decide(
        self,
        scores: ArrayLike | Ranking,
        features: ArrayLike | None = None,
        *,
        cost_weight: float | None = None,
        accuracy: float | None = None,
        delta: float = DELTA,
    ) -> Decisions:
        """Return the member that one of the selectors chooses for each row, with its set.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the rows.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows, if `inputs` includes them.
        cost_weight, accuracy, delta : float, optional
            Operating point, as in `predict_set`. With `accuracy`, rows that are deferred count as
            misses.

        Returns
        -------
        Decisions
        """
        ranking = self._validate_scores(scores)
        member, guarantee = self._select_member(cost_weight, accuracy, delta)
        return self._decide(ranking, features, member, guarantee)

    def _select_member(
        self, cost_weight: float | None, accuracy: float | None, delta: float
    ) -> tuple[int, Guarantee]:
        """Return the member to use at an operating point, and its guarantee."""
        if accuracy is None:
            member = self._member(cost_weight)
            point = f"cost_weight = {self._weights[member]:g}"
            return member, Guarantee("none", operating_point=point)
        if cost_weight is not None:
            raise ValueError(
                f"accuracy = {accuracy!r} and cost_weight = {cost_weight!r}: each of them selects "
                "a member; give only one"
            )
        if self._path_calibration is None:
            raise ValueError(
                f"accuracy = {accuracy!r} can be guaranteed after calibrate, with rows that fit "
                "did not see; or give cost_weight=..., which guarantees no accuracy"
            )
        member = self._path_calibration.member(accuracy, delta)
        guarantee = self._path_calibration.guarantee(member, accuracy, delta)
        deferred = "rows that are deferred count as misses" if self.family_.others else ""
        return member, guarantee.with_note(deferred)

    def onnx_sets(self, graph: Any, point: Any) -> Any:
        """Return the sets as outputs of an ONNX graph: see `SetPredictor.onnx_sets`."""
        point.check(self, "accuracy", "delta", "cost_weight")
        if point.given:
            delta = DELTA if point.delta is None else point.delta
            member, guarantee = self._select_member(point.cost_weight, point.accuracy, delta)
            operating_point = {**point.given, "cost_weight": self._weights[member]}
            return self._onnx_sets(graph, member, guarantee, {"operating_point": operating_point})
        if self._network is None:  # All members choose the same sets.
            return self._onnx_sets(graph, 0, NO_GUARANTEE, {"operating_point": {}})
        guarantee = Guarantee("none", operating_point="the member is an input")
        metadata: dict[str, object] = {
            "operating_point": {"input": "member"},
            "cost_weights": list(self._weights),
        }
        return self._onnx_sets(graph, None, guarantee, metadata)
