"""The Bayes rule with estimated probabilities."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, check_choice, check_weight
from shortlist._utils.ordering import first_label
from shortlist.conformal.envelope import slopes
from shortlist.conformal.levels import Levels
from shortlist.costs import Cost, cost_table
from shortlist.families import Family, TopK
from shortlist.frontier import Frontier
from shortlist.learning.temperature import scale_of
from shortlist.predictors.base import as_family, frontier_of_choices
from shortlist.predictors.cost_weighted import PricedSelector, bucket_masses
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import ScoreType, sorted_log_proba
from shortlist.sets import NO_GUARANTEE, PredictionSets


class PlugInSelector(PricedSelector):
    """The set with the smallest expected loss, if the classifier's probabilities were the truth.

    Chooses `argmin_k P(y not in g_k(x)) + cost_weight * cost(|g_k(x)|)` with probabilities that
    are scaled by one temperature: the Bayes rule of the paper's appendix, any family, any cost;
    ties go to the larger set. With top-k sets of every size and cost "linear" it is LAC.

    Parameters
    ----------
    family : Family, optional
        What to choose from. Default: top-k of every size.
    cost : "log", "linear", a table by size, or a function of the size
    cost_weight : float or None
        Lambda, used by `predict_set` unless it is told otherwise; None: `accuracy` is.
    temperature : "auto", None or float
        "auto" is fitted; None leaves the scores as they are.
    accuracy, calibration, by, allow_empty, on_unreachable
        The guarantee, as in `Shortlister`; `calibration=None` keeps no rows for it.
    score_type : "auto", "logits", "proba" or "log_proba"
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_, score_type_, family_
    temperature_ : float

    Examples
    --------
    >>> model = PlugInSelector(TopK([1, 2, 3]), "linear", 0.25, temperature=None)
    >>> model = model.fit([[0.5, 0.375, 0.125], [0.75, 0.125, 0.125]], [1, 0])
    >>> model.predict_set([[0.5, 0.375, 0.125], [0.75, 0.125, 0.125]]).labels()
    [[0, 1], [0]]
    """

    family_: Family
    temperature_: float

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

    def _check(self) -> None:
        super()._check()
        if self.cost_weight is not None:
            check_weight(self.cost_weight)
        if isinstance(self.temperature, str):
            check_choice(self.temperature, "temperature", ("auto",))

    def _learns(self) -> bool:
        return self.temperature == "auto" or self._family_met_data

    def _learn(
        self, ranking: Ranking, index: Tensor, kind: ScoreType, features: Tensor | None
    ) -> None:
        family = as_family(self.family, TopK.dense(ranking.depth))
        family.check(ranking)
        cost_table(self.cost, family.possible_sizes(ranking))
        temperature = 1 / scale_of(self.temperature, ranking, index, kind)
        self.family_ = family.fitted(ranking, index, kind)
        self._family_met_data = self.family_ is not family
        self.temperature_, self._kind = temperature, kind

    def _exhaustive(self, ranking: Ranking) -> bool:
        largest = self.family_.k[-1] if isinstance(self.family_, TopK) else 0
        return ranking.is_whole and largest == ranking.n_classes

    def _levels(self, ranking: Ranking, features: Tensor | None) -> tuple[Ranking, Levels]:
        if not self.family_.nested:
            raise ValueError(
                f"the sets of {self.family_} are not nested, and no threshold makes a guarantee "
                "for them; choose by cost_weight"
            )
        # In float64, so that a probability that ties with lambda still does.
        wide = ranking.with_precision("float64")
        log_p = sorted_log_proba(wide, self._kind, ranking.depth, 1 / self.temperature_)
        if isinstance(self.family_, TopK) and ranking.is_dense:
            sizes = torch.tensor(self.family_.k, device=ranking.device)
            gains = bucket_masses(log_p, self.family_.k)
        else:
            sizes = self.family_.sizes_of(ranking)
            p = log_p[:, :-1].to(torch.float64).exp()
            total = torch.nn.functional.pad(p.cumsum(dim=1), (1, 0))
            total = total.gather(1, sizes.to(torch.int64))
            gains = torch.diff(total, dim=1, prepend=torch.zeros_like(total[:, :1])).clamp_(min=0)
        return ranking, Levels(slopes(gains, self._prices(sizes)), sizes)

    def _name(self) -> str:
        return "plug-in"

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
        ranking = self._ranking(scores)
        if self.family_.nested:
            return super().predict_set(
                scores,
                features,
                accuracy=accuracy,
                delta=delta,
                mean_size=mean_size,
                cost_weight=cost_weight,
                by=by,
                groups=groups,
            )
        weight = self.cost_weight if cost_weight is None else cost_weight
        if accuracy is not None or mean_size is not None or weight is None:
            self._levels(ranking, None)  # says why this cannot be
        assert weight is not None
        guarantee = f"cost_weight = {weight:g}; {NO_GUARANTEE}"
        choice = self._choices(ranking, [check_weight(weight)])[0]
        return self.family_.select(ranking, choice, guarantee=guarantee)

    def _choices(self, ranking: Ranking, weights: list[float]) -> list[Tensor]:
        """The best member of each row for each lambda, of sets that need not be nested."""
        log_p = sorted_log_proba(ranking, self._kind, ranking.depth, 1 / self.temperature_)
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
        return [first_label(hits - weight * costs) for weight in weights]

    def frontier(
        self, scores: ArrayLike | Ranking, y: ArrayLike, features: ArrayLike | None = None
    ) -> Frontier:
        """Accuracy and mean size for every lambda that matters, on these rows."""
        if self.family_.nested:
            return super().frontier(scores, y, features)
        ranking, index = self._labelled(scores, y)
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
