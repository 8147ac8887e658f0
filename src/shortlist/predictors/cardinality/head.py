"""The selector as a head for a network of one's own, trained with it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist._utils.arrays import ArrayLike, infer_array_type
from shortlist._utils.labels import Classes
from shortlist._utils.ordering import top_label
from shortlist._utils.validation import check_count, check_non_negative
from shortlist.costs import Cost, cost_matrix, cost_table
from shortlist.families import Family, TopK
from shortlist.guarantee import Guarantee
from shortlist.learning.networks import perceptron, zero_last_layer
from shortlist.losses import from_name
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets


class Selector(nn.Module):
    """The paper's selector `r(x, k)` as a module: scores the sets of a family from features.

    Put it on a backbone, beside the head that scores the labels, and train both: `forward` gives
    a score for each set, `loss` the cost-sensitive surrogate of
    `1[y not in g_k(x)] + cost_weight * cost(|g_k(x)|)`. It compiles with `torch.compile`.

    Train it on rows that the scores of the labels are not trained on: on those the first label
    is nearly always right, and the selector learns to return one label.

    Parameters
    ----------
    n_features, n_classes : int
        Width of what the backbone puts out, and the number of labels.
    family : Family, optional
        What to choose from. Default: top-k for k = 1, 2, 4, 8, … up to 64.
    cost : "log", "linear", a table by size, or a function of the size
    cost_weight : float
        Lambda: what a unit of cost is worth in accuracy.
    loss : str
        "log", "exp", "gce", "mae" (comp-sum), "constrained_exp", "squared_hinge", "hinge" or
        "margin" (constrained).
    network : nn.Module, optional
        From features to a score for each set. Default: `hidden` ReLU layers of `width` units.
    width, hidden : int
    q, rho : float
        Parameters of the losses "gce" and "margin".

    Examples
    --------
    >>> import torch, shortlist as sl
    >>> head = sl.Selector(16, 10, sl.TopK([1, 2, 4]), cost_weight=0.1)
    >>> features, label_scores = torch.randn(5, 16), torch.randn(5, 10)
    >>> set_scores = head(features)
    >>> set_scores.shape
    torch.Size([5, 3])
    >>> loss = head.loss(set_scores, label_scores, torch.tensor([1, 2, 3, 4, 5]))
    >>> loss.backward()
    >>> head.predict_set(set_scores, label_scores).mean_size   # untrained: ties go to the largest
    4.0
    """

    size_costs: Tensor

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        family: Family | None = None,
        cost: Cost = "log",
        cost_weight: float = 0.05,
        loss: str = "log",
        *,
        network: nn.Module | None = None,
        width: int = 128,
        hidden: int = 2,
        q: float = 0.7,
        rho: float = 1.0,
    ) -> None:
        super().__init__()
        check_count(n_features, "n_features")
        self.classes = Classes(check_count(n_classes, "n_classes", minimum=2))
        self.family = TopK.doubling(n_classes) if family is None else family
        self.cost_weight = check_non_negative(cost_weight, "cost_weight")
        self.criterion = from_name(loss, q=q, rho=rho, cost_sensitive=True, validate=False)
        anything = self._validate_scores(torch.zeros(1, n_classes))
        self.family.check(anything)
        table = cost_table(cost, self.family.possible_sizes(anything))
        self.largest_cost = float(table[-1])
        self.register_buffer("size_costs", table.to(torch.float32), persistent=False)
        sets = self.family.sizes_of(anything).shape[1]  # a family that wants data says so here
        if network is None:
            network = zero_last_layer(
                perceptron(
                    n_features,
                    sets,
                    check_count(width, "width"),
                    check_count(hidden, "hidden", minimum=0),
                )
            )
        self.network = network

    def forward(self, features: Tensor) -> Tensor:
        """The score of each set: (rows, |K|)."""
        scores: Tensor = self.network(features)
        return scores

    def loss(self, set_scores: Tensor, label_scores: Tensor, y: Tensor) -> Tensor:
        """The mean loss of a batch. Its gradient goes to `set_scores` alone: which sets hold the
        label is counted from `label_scores`, not differentiated."""
        value: Tensor = self.criterion(set_scores, self.costs(label_scores, y))
        return value

    @torch.no_grad()
    def costs(self, label_scores: Tensor, y: Tensor) -> Tensor:
        """What each set of each row costs, in [0, 1]: (rows, |K|)."""
        ranking = self._validate_scores(label_scores)
        if y.shape != label_scores.shape[:1] or y.is_floating_point():
            raise ValueError(
                f"y is {y.dtype} of shape {tuple(y.shape)}; needed: the label's index of each of "
                f"the {len(label_scores)} rows"
            )
        sizes = self.family.sizes_of(ranking).to(torch.int64)
        hits = self.family.hits_of(ranking, y.to(torch.int64))
        return cost_matrix(hits, self.size_costs[sizes], self.cost_weight, self.largest_cost)

    def choose(self, set_scores: Tensor) -> Tensor:
        """The index of the chosen set of each row; ties go to the largest."""
        return top_label(set_scores.detach())

    def predict_set(
        self, set_scores: Tensor, label_scores: Tensor, *, classes: ArrayLike | None = None
    ) -> PredictionSets:
        """The chosen set of each row; of the names in `classes`, if there are any."""
        ranking = Ranking.from_scores(label_scores.detach(), classes=classes)
        if ranking.n_classes != self.classes.n:
            self._validate_scores(label_scores)  # says so
        guarantee = Guarantee("none", operating_point=f"cost_weight = {self.cost_weight:g}")
        return self.family.select(ranking, self.choose(set_scores), guarantee=guarantee)

    def _validate_scores(self, label_scores: Tensor) -> Ranking:
        n = self.classes.n
        if label_scores.ndim != 2 or label_scores.shape[1] != n:
            raise ValueError(
                f"label_scores have shape {tuple(label_scores.shape)}; needed: (rows, {n}), as "
                f"n_classes = {n}"
            )
        # Unchecked: a look for NaN in every step would wait for the device.
        return Ranking(
            classes=self.classes,
            depth=n,
            array_type=infer_array_type(label_scores),
            dense=label_scores.detach(),
        )

    def extra_repr(self) -> str:
        return f"{self.family}, cost_weight={self.cost_weight:g}"
