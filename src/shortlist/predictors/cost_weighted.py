"""Nested sets that weigh a miss against a cost."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, check_weight
from shortlist.conformal.calibration import Conditional
from shortlist.costs import Cost, cost_table
from shortlist.predictors.nested import UNLEARNED, NestedSelector
from shortlist.ranking import Ranking
from shortlist.sets import NO_GUARANTEE, PredictionSets


class PricedSelector(NestedSelector):
    """Chooses `argmin_k miss_k(x) + lambda cost_k(x)`; subclasses estimate the miss.

    The choice grows as lambda falls, so that the sets are nested, and the largest lambda at which
    a set holds a label is the label's level.
    """

    cost: Cost
    cost_weight: float | None

    _parameter = "cost_weight"
    _levels_follow = ("allow_empty", "cost")

    @property
    def _tolerance(self) -> float:
        return UNLEARNED

    @property
    def _costs_are_sizes(self) -> bool:
        return isinstance(self.cost, str) and self.cost == "linear"

    def _prices(self, sizes: Tensor) -> Tensor:
        """What each size costs more than the one before."""
        if self._costs_are_sizes:  # no table of 100,000 sizes
            costs = sizes.to(torch.float64)
        else:
            occurring = torch.unique(sizes).tolist()
            costs = cost_table(self.cost, occurring).to(sizes.device)[sizes.to(torch.int64)]
        return torch.diff(costs, dim=-1, prepend=torch.zeros_like(costs[..., :1]))

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
        """The prediction set of each row, at any operating point, without another fit.

        Parameters
        ----------
        accuracy : float, optional
            P(label in set) is at least this, for rows exchangeable with the calibration rows.
        delta : float, optional
            Ask for more: with probability 1 - delta over the draw of the calibration rows, the
            accuracy on all new rows is at least `accuracy`.
        mean_size : float, optional
            Aim at sets of this mean size, as accurate as can be: it is met, or less, on the
            calibration rows that choose. `guarantee` says which accuracy is certified, and by what.
        cost_weight : float, optional
            The paper's lambda: what a unit of cost is worth in accuracy. No accuracy is guaranteed.
        by, groups
            "class" or "group" (with the group of each row): the guarantee for each of them, one by
            one (with `delta`, not for all of them at once).
        """
        ranking, x = self._rows(scores, features)
        point = self._choose_point(accuracy, delta, mean_size, cost_weight, by)
        return self._predict(ranking, x, [point], groups, guaranteed=NO_GUARANTEE not in point[1])[
            0
        ]

    def _choose_point(
        self,
        accuracy: float | None,
        delta: float | None,
        mean_size: float | None,
        cost_weight: float | None,
        by: str | None,
    ) -> tuple[float | Conditional, str]:
        asked = {"accuracy": accuracy, "mean_size": mean_size, "cost_weight": cost_weight}
        given = [f"{name} = {value!r}" for name, value in asked.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)}: only one can be chosen")
        weight = cost_weight
        if not given and (self.cost_weight is not None):
            weight = self.cost_weight
        if weight is None:
            return self._operating_point(accuracy, delta, mean_size, by)
        if delta is not None or by is not None:
            raise ValueError("cost_weight guarantees no accuracy; delta and by go with accuracy")
        return check_weight(weight), f"cost_weight = {weight:g}; {NO_GUARANTEE}"


def bucket_masses(log_p: Tensor, sizes: Sequence[int]) -> Tensor:
    """The mass between each size and the next, summed in float64: (rows, sizes).

    `log_p` are log-probabilities, best first, at least as deep as the last size.

    >>> log_p = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    >>> bucket_masses(log_p, [1, 2, 4]).numpy().round(6).tolist()
    [[0.5, 0.25, 0.25]]
    """
    p = log_p.to(torch.float64).exp()
    ones = next((i for i, size in enumerate(sizes) if size != i + 1), len(sizes))
    bounds = itertools.pairwise([ones, *sizes[ones:]])
    wide = [p[:, a:b].sum(dim=1, keepdim=True) for a, b in bounds]
    return torch.cat([p[:, :ones], *wide], dim=1)
