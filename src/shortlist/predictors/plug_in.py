"""The plug-in rule: the Bayes rule with the probabilities of the classifier."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.ordering import top_label
from shortlist._utils.out_of_core import Matrix
from shortlist._utils.validation import check_non_negative
from shortlist.conformal.envelope import bucket_masses, cost_steps, slopes
from shortlist.conformal.levels import Levels, NestedLevels
from shortlist.conformal.scores import ConformityScore
from shortlist.costs import Cost, cost_table
from shortlist.families import Family, TopK
from shortlist.frontier import Frontier
from shortlist.guarantee import Guarantee
from shortlist.predictors.conformal import ConformalPredictor
from shortlist.predictors.family_choices import as_family, frontier_of_choices
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import sorted_log_proba
from shortlist.sets import PredictionSets


class PlugInScore(ConformityScore):
    """Score a label by the largest cost weight at which the plug-in rule's set contains it.

    Parameters
    ----------
    family : Family, optional
        Family of sets to choose from. Top-k of every size by default.
    cost : {"log", "linear"}, sequence or callable, default="linear"
        Cost of a size.

    Attributes
    ----------
    family_ : Family
        The family in use.
    """

    name = "plug-in"
    can_use_features = False
    levels_are_cost_weights = True
    family_: Family

    def __init__(self, family: Family | None = None, cost: Cost = "linear") -> None:
        self.family = family
        self.cost = cost

    def needs_fit(self) -> bool:
        """Return whether the members of the family depend on data."""
        return as_family(self.family, TopK([1])).needs_fit

    def fit(self, ranking: Ranking, y: Tensor, features: Matrix | None = None) -> Self:
        """Fit the family, if its members depend on data.

        Parameters
        ----------
        ranking : Ranking
            Rows to fit on.
        y : Tensor of shape (n_rows,)
            Label indices.
        features : matrix, optional
            Ignored.

        Returns
        -------
        self
            The fitted score.
        """
        family = as_family(self.family, TopK.dense(ranking.depth))
        family.check(ranking)
        cost_table(self.cost, family.possible_sizes(ranking))
        self.family_ = family.fit(ranking, y, ranking.score_type)
        return self

    def is_exhaustive(self, ranking: Ranking) -> bool:
        """Return whether the largest set of a row contains every class."""
        return self.family_.is_exhaustive(ranking)

    def lower(self, levels: Tensor, rounding: float) -> Tensor:
        """Return lower bounds of the levels; see `ConformityScore.lower`."""
        return levels * (1 - rounding)

    def levels(self, ranking: Ranking, features: Tensor | None = None) -> Tensor:
        """Return the level of each label, in the order of the ranking.

        Parameters
        ----------
        ranking : Ranking
            Rows to score.
        features : Tensor, optional
            Ignored.

        Returns
        -------
        Tensor of shape (n_rows, depth)
            Levels, non-increasing along each row.
        """
        return self.nested_levels(ranking, features).by_rank(ranking.depth)

    def nested_levels(self, ranking: Ranking, features: Tensor | None = None) -> NestedLevels:
        """Return the levels as an object; see `ConformityScore.nested_levels`."""
        self.check_nested()
        # In float64, so that a probability that is equal to the cost weight stays equal.
        wide = ranking.with_precision("float64")
        log_p = sorted_log_proba(wide, ranking.score_type, ranking.depth, ranking.scale)
        fixed = self.family_.fixed_sizes(ranking)
        if fixed is not None:
            sizes = torch.tensor(fixed, device=ranking.device)
            gains = bucket_masses(log_p, fixed)
        else:
            sizes = self.family_.sizes_of(ranking)
            p = log_p[:, :-1].to(torch.float64).exp()
            total = torch.nn.functional.pad(p.cumsum(dim=1), (1, 0))
            total = total.gather(1, sizes.to(torch.int64))
            gains = torch.diff(total, dim=1, prepend=torch.zeros_like(total[:, :1])).clamp_(min=0)
        return Levels(slopes(gains, cost_steps(self.cost, sizes)), sizes)

    def check_nested(self) -> None:
        """Raise if the sets of the family are not nested, so that they have no levels."""
        if not self.family_.nested:
            raise ValueError(
                f"the sets of {self.family_} are not nested, so no threshold guarantees an "
                "accuracy for them; choose by cost_weight"
            )

    def choices(self, ranking: Ranking, weights: list[float]) -> list[Tensor]:
        """Return the best member for each cost weight. The family need not be nested.

        Parameters
        ----------
        ranking : Ranking
            Rows.
        weights : list of float
            Cost weights.

        Returns
        -------
        list of Tensor of shape (n_rows,)
            Index of the member for each row.
        """
        log_p = sorted_log_proba(ranking, ranking.score_type, ranking.depth, ranking.scale)
        labels, _ = ranking.top(ranking.depth)
        at = torch.where(labels >= 0, labels, ranking.n_classes).to(torch.int64)
        p = log_p.new_zeros((len(ranking), ranking.n_classes + 1), dtype=torch.float64)
        p.scatter_(1, at, log_p[:, :-1].to(torch.float64).exp())
        hits = p.new_zeros((len(ranking), len(self.family_)))
        for label in range(ranking.n_classes):
            index = torch.full((len(ranking),), label, device=ranking.device)
            hits += p[:, label, None] * self.family_.hits_of(ranking, index)
        sizes = self.family_.sizes_of(ranking).to(torch.int64)
        costs = cost_table(self.cost, torch.unique(sizes).tolist()).to(ranking.device)[sizes]
        return [top_label(hits - weight * costs) for weight in weights]

    def onnx_nested_levels(self, rows: Any) -> tuple[Any, Any]:
        """Return levels and sizes in a graph; see `ConformityScore.onnx_nested_levels`."""
        sizes, members = rows.sizes_of(self.family_), len(self.family_)
        self.check_nested()
        p = rows.log_proba(rows.depth, precise=True)[:, :-1].exp()
        largest = self.family_.max_size(rows.depth)
        return rows.proba_slopes(p, self.cost, sizes, members, largest), sizes


class PlugInSelector(ConformalPredictor):
    """Choose the set with the smallest expected loss under the classifier's probabilities.

    The rule chooses ``argmin_k P(y not in g_k(x)) + cost_weight * cost(|g_k(x)|)``, with
    probabilities that are scaled by one temperature. This is the Bayes rule of the paper's
    appendix, for any family and any cost. Ties go to the larger set. With top-k sets of every size
    and cost "linear" it is LAC.

    Parameters
    ----------
    family : Family, optional
        Family of sets to choose from. Top-k of every size by default.
    cost : {"log", "linear"}, sequence or callable, default="linear"
        Cost of a size: a name, a table by size, or a function of the size.
    cost_weight : float or None, default=0.05
        Cost of a unit of size in units of accuracy (lambda in the paper), which `predict_set`
        uses unless it is given another goal. With None, `accuracy` is used.
    temperature : "auto", "size", None or float, default="auto"
        Temperature of the probabilities. "auto" takes the one with the largest likelihood, and
        "size" the one with the shortest sets at `accuracy`; None leaves scores unchanged.
    accuracy : float, default=0.95
        Accuracy that `predict_set` guarantees if `cost_weight` is None.
    calibration : float or None, default=None
        Fraction of the rows of `fit` that is held out for calibration. With None, no rows are held
        out.
    by : str or None, default=None
        Name of a registered calibrator, as in :class:`SplitConformal`.
    allow_empty : bool, default=False
        Whether a set may be empty, as in :class:`SplitConformal`.
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed: raise an error, or return every
        label.
    score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
        Type of the scores. "auto" decides at fit; see `score_type_`.
    random_state : int, RandomState instance or None, default=0
        Seed of the split.

    Attributes
    ----------
    classes_ : array
        Classes, in the order of the score columns.
    score_type_ : str
        Type of the scores.
    temperature_ : float
        Temperature in use.

    Examples
    --------
    >>> model = PlugInSelector(TopK([1, 2, 3]), "linear", 0.25, temperature=None)
    >>> model = model.fit([[0.5, 0.375, 0.125], [0.75, 0.125, 0.125]], [1, 0])
    >>> model.predict_set([[0.5, 0.375, 0.125], [0.75, 0.125, 0.125]]).labels()
    [[0, 1], [0]]
    """

    score_: PlugInScore
    _live_parameters = ("allow_empty", "cost")

    def __init__(
        self,
        family: Family | None = None,
        cost: Cost = "linear",
        cost_weight: float | None = 0.05,
        *,
        temperature: float | str | None = "auto",
        accuracy: float = 0.95,
        calibration: float | None = None,
        by: str | None = None,
        allow_empty: bool = False,
        on_unreachable: str = "raise",
        score_type: str = "auto",
        random_state: object = 0,
    ) -> None:
        self.family = family
        self.cost = cost
        self.cost_weight = cost_weight
        self.temperature = temperature
        self.accuracy = accuracy
        self.calibration = calibration
        self.by = by
        self.allow_empty = allow_empty
        self.on_unreachable = on_unreachable
        self.score_type = score_type
        self.random_state = random_state

    def _make_score(self) -> PlugInScore:
        """Return the score to fit."""
        return PlugInScore(self.family, self.cost)

    def _current_score(self) -> PlugInScore:
        """Return the fitted score with the current cost."""
        self.score_.cost = self.cost
        return self.score_

    @property
    def family_(self) -> Family:
        """The family in use."""
        return self.score_.family_

    @property
    def can_calibrate(self) -> bool:
        """Whether the sets are nested, so that a threshold can guarantee an accuracy."""
        return self.family_.nested

    @property
    def sets_are_prefixes(self) -> bool:
        """Whether every set is a prefix of one ranking of the row's labels."""
        return self.family_.nested and super().sets_are_prefixes

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
        """Return the prediction set of each row; see `ConformalPredictor.predict_set`."""
        ranking = self._validate_scores(scores)
        weight = self.cost_weight if cost_weight is None else cost_weight
        needs_levels = accuracy is not None or mean_size is not None or weight is None
        if needs_levels:
            self.score_.check_nested()
        if self.family_.nested:
            return super().predict_set(
                ranking,
                features,
                accuracy=accuracy,
                delta=delta,
                mean_size=mean_size,
                cost_weight=cost_weight,
                by=by,
                groups=groups,
            )
        assert weight is not None
        guarantee = Guarantee("none", operating_point=f"cost_weight = {weight:g}")
        choice = self._choices(ranking, [check_non_negative(weight, "cost_weight")])[0]
        return self.family_.select(ranking, choice, guarantee=guarantee)

    # Declares that the inherited graph has the sets of this class. Its score refuses families
    # that are not nested.
    onnx_sets = ConformalPredictor.onnx_sets

    def _choices(self, ranking: Ranking, weights: list[float]) -> list[Tensor]:
        """Return the best member for each cost weight."""
        scaled = ranking.with_scale(self.score_type_, 1 / self.temperature_)
        return self._current_score().choices(scaled, weights)

    def frontier(
        self, scores: ArrayLike | Ranking, y: ArrayLike, features: ArrayLike | None = None
    ) -> Frontier:
        """Return accuracy and mean size at many cost weights; see `ConformalPredictor.frontier`."""
        if self.family_.nested:
            return super().frontier(scores, y, features)
        ranking, index = self._validate_labeled(scores, y)
        weights = np.geomspace(1, 1e-4, 50).tolist()
        return frontier_of_choices(
            self.family_,
            ranking,
            index,
            self._choices(ranking, weights),
            weights,
            parameter_name="cost_weight",
            name="plug-in",
        )
