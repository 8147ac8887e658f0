"""The paper's cardinality-aware selectors: one lambda, or a whole path of them at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from torch import nn

from shortlist._utils.arrays import Array, ArrayLike, to_array_type
from shortlist._utils.progress import Show
from shortlist._utils.validation import check_non_negative
from shortlist.conformal.path_calibration import PathCalibration
from shortlist.conformal.quantiles import UnreachableError
from shortlist.costs import Cost
from shortlist.families import Family
from shortlist.guarantee import NO_GUARANTEE, Guarantee
from shortlist.predictors.base import Outcomes, outcomes
from shortlist.predictors.cardinality.fitting import CardinalityBase, Network
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

DELTA = 0.05
"""Default probability that the guarantee of a path fails."""


class CardinalitySelector(CardinalityBase):
    """The cardinality-aware selector of the paper: chooses a set for each row, for one lambda.

    It minimises a cost-sensitive surrogate of
    `1[y not in g_k(x)] + cost_weight * cost(|g_k(x)|)`, normalised to [0, 1], over networks that
    score the members of a family; ties go to the largest set.

    Parameters
    ----------
    family : Family, optional
        What to choose from. Default: top-k for k = 1, 2, 4, 8, … up to 64.
    cost : "log", "linear", a table by size, or a function of the size
    cost_weight : float
        Lambda: what a unit of cost is worth in accuracy.
    loss : str or nn.Module
        "log", "exp", "gce", "mae" (comp-sum), "constrained_exp", "squared_hinge", "hinge",
        "margin" (constrained), or a module that takes (scores, costs). Start with "log": "mae"
        and "margin" are flat far from their minimum, and training can get stuck.
    inputs : "features", "scores" or "both"
        What the network sees: the features, the sorted log-probabilities, or both; standardised.
    network : nn.Module or callable, optional
        A network of your own, or `network(n_inputs, n_outputs)` that makes one. Default: two
        hidden ReLU layers of `width` units.
    score_type : "auto", "logits", "proba" or "log_proba"
        What the scores are. "auto" decides at fit; see `score_type_`.
    score_depth : int
        How many of the best labels' log-probabilities the network sees.
    q, rho : float
        Parameters of the losses "gce" and "margin".
    learning_rate, batch_size, weight_decay : float, int, float
        Adam's, with the paper's values as defaults.
    max_epochs, patience, validation_fraction : int, int, float
        Training stops when the loss on the held-out fraction has not improved for `patience`
        epochs; the best weights are kept. With fewer than ten rows to hold out it runs to the end.
        An epoch is one pass over the rows, or, if they are few, as many as make 20 steps.
    clip_norm : float, "auto" or None
        Largest norm of a gradient; "auto" clips only losses whose gradients are unbounded.
    device, dtype : str
        Where and in which precision to train. "auto": where the inputs are.
    checkpoint : path, optional
        A file that lets an interrupted fit go on, to the same result.
    progress : bool or "auto"
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_, score_type_, family_, history_

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.digits()
    >>> h = sl.LinearClassifier(max_epochs=1).fit(data.x[:600], data.y[:600])
    >>> scores = h.decision_function(data.x[600:])
    >>> r = sl.CardinalitySelector(sl.TopK([1, 2, 4]), cost_weight=0.1, inputs="scores")
    >>> sets = r.fit(scores[:900], data.y[600:1500]).predict_set(scores[900:])
    >>> bool(1 <= sets.mean_size <= 4)
    True
    """

    def __init__(
        self,
        family: Family | None = None,
        cost: Cost = "log",
        cost_weight: float = 0.05,
        loss: str | nn.Module = "log",
        inputs: str = "features",
        *,
        network: Network | None = None,
        width: int = 128,
        score_type: str = "auto",
        score_depth: int = 20,
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
        dtype: str = "float32",
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Show = "auto",
        random_state: object = 0,
    ) -> None:
        self.family = family
        self.cost = cost
        self.cost_weight = cost_weight
        self.loss = loss
        self.inputs = inputs
        self.network = network
        self.width = width
        self.score_type = score_type
        self.score_depth = score_depth
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
        self.dtype = dtype
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    def fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
    ) -> CardinalitySelector:
        """Learn from scores (of data that the classifier did not train on) and true labels."""
        self._learn(scores, y, features, classes, [self.cost_weight], stacked=False)
        return self

    def choose(self, scores: ArrayLike | Ranking, features: ArrayLike | None = None) -> Array:
        """The index of the chosen member of the family, for each row."""
        ranking = self._validate_scores(scores)
        return to_array_type(self._choices(ranking, features)[0], ranking.array_type)

    def predict_set(
        self, scores: ArrayLike | Ranking, features: ArrayLike | None = None
    ) -> PredictionSets:
        """The chosen set of each row."""
        ranking = self._validate_scores(scores)
        return self.family_.select(
            ranking,
            self._choices(ranking, features)[0],
            guarantee=self._guarantee(),
        )

    def _guarantee(self) -> Guarantee:
        return Guarantee("none", operating_point=f"cost_weight = {self._weights[0]:g}")

    def onnx_sets(self, graph: Any, point: Any) -> Any:
        """Return the sets as outputs of an ONNX graph; see `SetPredictor.onnx_sets`."""
        point.check(self)
        metadata: dict[str, object] = {"operating_point": {"cost_weight": self._weights[0]}}
        return self._onnx_sets(graph, 0, self._guarantee(), metadata)


class CardinalityPath(CardinalityBase):
    """Cardinality-aware selectors for many lambdas, trained together.

    The members start from the same weights and see the same batches as separately trained
    selectors would, and end at the same result; together they take a fraction of the time.

    Parameters
    ----------
    cost_weights : sequence of float, optional
        The lambdas. Default: 20, evenly spaced in logarithm from 1 down to 0.01.
    cost_weight : float, optional
        The one that `predict_set` uses unless it is told another, or an accuracy.

    Notes
    -----
    All other parameters are those of `CardinalitySelector`.

    After `calibrate`, `predict_set(..., accuracy=0.95)` guarantees an accuracy. The members are
    tested on the calibration rows one after the other, from the smallest lambda on, until one
    fails; of those that passed, the one with the smallest sets is used. Their sets need not be
    nested, and `delta` bounds the probability that any of them falls short (fixed-sequence
    testing; Angelopoulos and others, Learn then Test, 2021).

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

    _path_calibration: PathCalibration | None
    has_additive_calibration = True

    @property
    def n_calibration(self) -> int:
        """Number of calibration rows; 0 if the path is not calibrated."""
        calibration = getattr(self, "_path_calibration", None)
        return 0 if calibration is None else calibration.rows

    def __init__(
        self,
        family: Family | None = None,
        cost: Cost = "log",
        cost_weights: Sequence[float] | None = None,
        loss: str | nn.Module = "log",
        inputs: str = "features",
        *,
        cost_weight: float | None = None,
        network: Network | None = None,
        width: int = 128,
        score_type: str = "auto",
        score_depth: int = 20,
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
        dtype: str = "float32",
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Show = "auto",
        random_state: object = 0,
    ) -> None:
        self.family = family
        self.cost = cost
        self.cost_weights = cost_weights
        self.loss = loss
        self.inputs = inputs
        self.cost_weight = cost_weight
        self.network = network
        self.width = width
        self.score_type = score_type
        self.score_depth = score_depth
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
        self.dtype = dtype
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    def fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
    ) -> CardinalityPath:
        """Learn all selectors in one go."""
        weights = np.geomspace(1, 0.01, 20) if self.cost_weights is None else self.cost_weights
        if np.ndim(weights) != 1 or len(weights) == 0:
            raise ValueError(
                f"cost_weights must be a list of at least one lambda; got {self.cost_weights!r}"
            )
        self._learn(scores, y, features, classes, list(weights), stacked=True)
        self._path_calibration = None  # what was learned before had its own
        return self

    def calibrate(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
    ) -> CardinalityPath:
        """Judge every member by labelled rows that fit did not see, so that `predict_set` can
        guarantee an accuracy. Replaces an earlier calibration."""
        ranking, index = self._validate_labelled(scores, y, unknown="miss")
        self._warn_if_trained_on(ranking)
        choices = list(self._choices(ranking, features))
        hits, sizes = outcomes(self.family_, ranking, index.clamp(min=0), choices)
        hits &= (index >= 0)[:, None]  # no set contains a label of no known class
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
        """Return hits and sizes at many guaranteed accuracies; see `SetPredictor.evaluate`.

        Every member's sets are computed once, for all accuracies.
        """
        if not self.is_calibrated:
            return [None] * len(accuracies)
        ranking, index = self._validate_labelled(scores, y)
        choices = list(self._choices(ranking, features))
        hits, sizes = (t.cpu().numpy() for t in outcomes(self.family_, ranking, index, choices))
        results: list[Outcomes | None] = [None] * len(accuracies)
        for i, accuracy in enumerate(accuracies):
            with suppress(UnreachableError):
                member, _ = self._chosen(None, accuracy, DELTA)
                results[i] = Outcomes(hits[:, member], sizes[:, member])
        return results

    def _member(self, cost_weight: float | None) -> int:
        wanted = self.cost_weight if cost_weight is None else cost_weight
        known = ", ".join(f"{w:g}" for w in self._weights)
        if wanted is None:
            raise ValueError(f"which lambda? Give cost_weight=..., one of: {known}")
        distances = [abs(check_non_negative(wanted, "cost_weight") - w) for w in self._weights]
        at = distances.index(min(distances))
        if distances[at] > 1e-6 * abs(wanted):
            raise ValueError(
                f"cost_weight = {wanted!r} was not trained; one of: {known}. "
                "Fit again with it among cost_weights"
            )
        return at

    def choose(
        self,
        scores: ArrayLike | Ranking,
        features: ArrayLike | None = None,
        *,
        cost_weight: float | None = None,
    ) -> Array:
        """The index of the chosen member of the family, for each row."""
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
        """The set that the selector of one lambda chooses, for each row.

        Parameters
        ----------
        cost_weight : float, optional
            The lambda; no accuracy is then guaranteed.
        accuracy : float, optional
            The accuracy to guarantee instead, after `calibrate`, by the member that keeps it with
            the smallest sets.
        delta : float
            The probability, over the draw of the calibration rows, that the guarantee may fail.
        """
        ranking = self._validate_scores(scores)
        member, guarantee = self._chosen(cost_weight, accuracy, delta)
        choices = self._choices(ranking, features)[member]
        return self.family_.select(ranking, choices, guarantee=guarantee)

    def _chosen(
        self, cost_weight: float | None, accuracy: float | None, delta: float
    ) -> tuple[int, Guarantee]:
        """The member that an operating point stands for, and the guarantee in words."""
        if accuracy is None:
            member = self._member(cost_weight)
            point = f"cost_weight = {self._weights[member]:g}"
            return member, Guarantee("none", operating_point=point)
        if cost_weight is not None:
            raise ValueError(
                f"accuracy = {accuracy!r} and cost_weight = {cost_weight!r}: each of them says "
                "which member to use; give one"
            )
        if self._path_calibration is None:
            raise ValueError(
                f"accuracy = {accuracy!r} can be guaranteed after calibrate(scores, y), with rows "
                "that fit did not see; or give cost_weight=..., which guarantees none"
            )
        member = self._path_calibration.member(accuracy, delta)
        return member, self._path_calibration.guarantee(member, accuracy, delta)

    def onnx_sets(self, graph: Any, point: Any) -> Any:
        """Return the sets as outputs of an ONNX graph; see `SetPredictor.onnx_sets`."""
        point.check(self, "accuracy", "delta", "cost_weight")
        if point.given:
            delta = 0.05 if point.delta is None else point.delta
            member, guarantee = self._chosen(point.cost_weight, point.accuracy, delta)
            known = {**point.given, "cost_weight": self._weights[member]}
            return self._onnx_sets(graph, member, guarantee, {"operating_point": known})
        if self._network is None:  # All lambdas give the same sets.
            return self._onnx_sets(graph, 0, NO_GUARANTEE, {"operating_point": {}})
        guarantee = Guarantee("none", operating_point="the member is an input")
        metadata: dict[str, object] = {
            "operating_point": {"input": "member"},
            "cost_weights": list(self._weights),
        }
        return self._onnx_sets(graph, None, guarantee, metadata)
