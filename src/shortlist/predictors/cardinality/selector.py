"""The paper's cardinality-aware selector, for one cost weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from torch import nn

from shortlist._utils.arrays import Array, ArrayLike, to_array_type
from shortlist.guarantee import Guarantee
from shortlist.predictors.cardinality.decisions import Decisions
from shortlist.predictors.cardinality.fitting import CardinalityBase
from shortlist.predictors.cardinality.member_costs import GivenCosts
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets


@dataclass(eq=False, repr=False)
class CardinalitySelector(CardinalityBase):
    """Choose one set of a family for each row, by the paper's cardinality-aware selector.

    The selector minimizes a cost-sensitive surrogate of
    ``1[y not in g_k(x)] + cost_weight * cost(|g_k(x)|)``, normalized to [0, 1], over networks that
    score the sets of a family. The set with the highest score is chosen; ties go to the largest.
    With a :class:`Deferral`, a row can also be left to an expert, a tool or nobody, whose costs are
    given to `fit` (two-stage deferral; Mao, Mohri and Zhong, 2023 and 2025).

    Parameters
    ----------
    family : Family, optional
        Sets to choose from, or a :class:`Deferral`. By default, top-k sets for k = 1, 2, 4, 8, …
        up to 64.
    cost : {"log", "linear"}, sequence, dict or callable, default="log"
        Cost of a set size: a name, a table by size, or a function of the size.
    cost_weight : float, default=0.05
        The paper's lambda: the loss of accuracy that is worth one unit of cost.
    loss : str or nn.Module, default="log"
        Surrogate loss: "log", "exp", "gce" or "mae" (comp-sum losses), "constrained_exp",
        "squared_hinge", "hinge" or "margin" (constrained losses), or a module that takes (scores,
        costs). "log" is a good choice. "mae" and "margin" have small gradients far from their
        minimum, so that training can get stuck.
    inputs : {"features", "scores", "both"}, default="features"
        Inputs of the network: the features, the sorted log-probabilities of the scores, or both.
        They are standardized.
    network : nn.Module or callable, optional
        Network to train, or a function ``network(n_inputs, n_outputs)`` that returns one. By
        default, two hidden ReLU layers of `width` units.
    width : int, default=128
        Number of units of each hidden layer of the default network.
    score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
        Type of the scores. "auto" infers it in `fit`; see `score_type_`.
    score_depth : int, default=20
        Number of the largest log-probabilities that the network sees.
    q, rho : float, default=0.7, 1.0
        Parameters of the losses "gce" and "margin".
    learning_rate, batch_size, weight_decay : float, int, float, default=1e-3, 128, 1e-5
        Parameters of the Adam optimizer. The defaults are the paper's.
    max_epochs : int, default=50
        Maximum number of epochs. With few rows, an epoch passes over them several times and takes
        20 steps.
    patience : int, default=5
        Number of epochs without improvement of the validation loss after which training stops. The
        best weights are kept.
    validation_fraction : float, default=0.1
        Fraction of the rows used for validation. If they are fewer than ten, there is no
        validation, and training takes all `max_epochs`.
    clip_norm : float, "auto" or None, default="auto"
        Maximum norm of a gradient. "auto" clips only for losses with unbounded gradients.
    device : str, default="auto"
        Where to train. "auto" is the device of the inputs.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the network.
    checkpoint : path, optional
        File in which the training saves its state, so that an interrupted fit resumes and ends at
        the same result.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. "auto" shows it on a terminal.
    random_state : int, RandomState instance or None, default=0
        Seed of the network and its training.

    Attributes
    ----------
    classes_ : array
        Classes, in the order of the score columns.
    score_type_ : str
        Type of the scores.
    family_ : Family
        The fitted family.
    history_ : History or None
        Losses by epoch; None if there was nothing to train.

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

    cost_weight: float = 0.05
    loss: str | nn.Module = "log"
    inputs: str = "features"

    def fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
        costs: GivenCosts | None = None,
    ) -> Self:
        """Train the selector.

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
        costs : mapping or array-like of shape (n_rows, n_members), optional
            Costs that the user defines. A mapping contains the costs of the members without a set
            of a :class:`Deferral` by name: a number, or one for each row. They are on the scale
            of the sets, where a miss costs 1. A table has a column for each member, the
            sets first; it replaces the costs of the sets, so that `cost` and `cost_weight` have
            no effect. Costs are finite and not negative.

        Returns
        -------
        self

        Notes
        -----
        The surrogate losses need costs in [0, 1]. With costs by name, all costs are divided by
        ``max(1 + cost_weight * cost(largest size), largest given cost)``. A table is divided by
        its largest entry if that exceeds 1.
        """
        self._fit(scores, y, features, classes, [self.cost_weight], costs, stacked=False)
        return self

    def choose(self, scores: ArrayLike | Ranking, features: ArrayLike | None = None) -> Array:
        """Return the index of the chosen set of the family for each row.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the rows.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows, if `inputs` includes them.

        Returns
        -------
        array of shape (n_rows,)
        """
        ranking = self._validate_scores(scores)
        return to_array_type(self._choices(ranking, features)[0], ranking.array_type)

    def predict_set(
        self, scores: ArrayLike | Ranking, features: ArrayLike | None = None
    ) -> PredictionSets:
        """Return the chosen set of each row.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the rows.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows, if `inputs` includes them.

        Returns
        -------
        PredictionSets
        """
        return self.decide(scores, features).sets

    def decide(self, scores: ArrayLike | Ranking, features: ArrayLike | None = None) -> Decisions:
        """Return the chosen member of each row, with its set if it has one.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of the rows.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows, if `inputs` includes them.

        Returns
        -------
        Decisions
        """
        return self._decide(self._validate_scores(scores), features, 0, self._guarantee())

    def _guarantee(self) -> Guarantee:
        point = f"cost_weight = {self._weights[0]:g}"
        return Guarantee("none", operating_point="" if self._costs_are_table else point)

    def onnx_sets(self, graph: Any, point: Any) -> Any:
        """Return the sets as outputs of an ONNX graph: see `SetPredictor.onnx_sets`."""
        point.check(self)
        weight = None if self._costs_are_table else self._weights[0]
        metadata: dict[str, object] = {"operating_point": {"cost_weight": weight}}
        return self._onnx_sets(graph, 0, self._guarantee(), metadata)
