"""The paper's selector as a PyTorch module, to train together with a network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist._utils.arrays import ArrayLike, infer_array_type
from shortlist._utils.labels import Classes
from shortlist._utils.ordering import top_label
from shortlist._utils.validation import check_count, check_non_negative
from shortlist.costs import Cost, cost_matrix, cost_table, largest_costs
from shortlist.families import Family, TopK
from shortlist.guarantee import Guarantee
from shortlist.learning.networks import perceptron, zero_last_layer
from shortlist.losses import from_name
from shortlist.predictors.family_choices import as_family
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets


class Selector(nn.Module):
    """Score the sets of a family from features: the paper's selector ``r(x, k)`` as a module.

    Add it to a backbone, beside the head that scores the labels, and train both: `forward` returns
    a score for each set, and `loss` is the cost-sensitive surrogate of
    ``1[y not in g_k(x)] + cost_weight * cost(|g_k(x)|)``. The module works with `torch.compile`.

    Train it on rows that the label scores are not trained on. On training rows, the first label is
    nearly always the true one, and the selector would learn to return a single label.

    Parameters
    ----------
    n_features : int
        Number of outputs of the backbone.
    n_classes : int
        Number of labels.
    family : Family, optional
        Sets to choose from. By default, top-k sets for k = 1, 2, 4, 8, … up to 64.
    cost : {"log", "linear"}, sequence, dict or callable, default="log"
        Cost of a set size: a name, a table by size, or a function of the size.
    cost_weight : float, default=0.05
        The paper's lambda: the loss of accuracy that is worth one unit of cost.
    loss : str, default="log"
        Surrogate loss: "log", "exp", "gce" or "mae" (comp-sum losses), "constrained_exp",
        "squared_hinge", "hinge" or "margin" (constrained losses).
    network : nn.Module, optional
        Network from features to a score for each set. By default, `hidden` ReLU layers of `width`
        units.
    width : int, default=128
        Number of units of each hidden layer of the default network.
    hidden : int, default=2
        Number of hidden layers of the default network.
    q, rho : float, default=0.7, 1.0
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
    >>> head.predict_set(set_scores, label_scores).mean_size   # Untrained: ties go to the largest.
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
        self.family = as_family(family, TopK.doubling(n_classes))
        self.cost_weight = check_non_negative(cost_weight, "cost_weight")
        self.criterion = from_name(loss, q=q, rho=rho, cost_sensitive=True, validate=False)
        example = self._validate_scores(torch.zeros(1, n_classes))
        self.family.check(example)
        table = cost_table(cost, self.family.possible_sizes(example))
        self.largest_costs = largest_costs(table, n_classes)
        self.register_buffer("size_costs", table.to(torch.float32), persistent=False)
        n_sets = self.family.sizes_of(example).shape[1]  # Raises if the family must be fitted.
        if network is None:
            network = zero_last_layer(
                perceptron(
                    n_features,
                    n_sets,
                    check_count(width, "width"),
                    check_count(hidden, "hidden", minimum=0),
                )
            )
        self.network = network

    def forward(self, features: Tensor) -> Tensor:
        """Return the score of each set.

        Parameters
        ----------
        features : Tensor of shape (n_rows, n_features)
            Outputs of the backbone.

        Returns
        -------
        Tensor of shape (n_rows, n_sets)
        """
        scores: Tensor = self.network(features)
        return scores

    def loss(self, set_scores: Tensor, label_scores: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a batch.

        Parameters
        ----------
        set_scores : Tensor of shape (n_rows, n_sets)
            Outputs of `forward`.
        label_scores : Tensor of shape (n_rows, n_classes)
            Scores of the labels. They determine the sets and get no gradient.
        y : Tensor of shape (n_rows,)
            Indices of the true labels.

        Returns
        -------
        Tensor
            A scalar.
        """
        value: Tensor = self.criterion(set_scores, self.costs(label_scores, y))
        return value

    @torch.no_grad()
    def costs(self, label_scores: Tensor, y: Tensor) -> Tensor:
        """Return the cost of each set, the quantity whose surrogate is minimized.

        Parameters
        ----------
        label_scores : Tensor of shape (n_rows, n_classes)
            Scores of the labels.
        y : Tensor of shape (n_rows,)
            Indices of the true labels.

        Returns
        -------
        Tensor of shape (n_rows, n_sets)
            Costs in [0, 1].
        """
        ranking = self._validate_scores(label_scores)
        if y.shape != label_scores.shape[:1] or y.is_floating_point():
            raise ValueError(
                f"y is {y.dtype} of shape {tuple(y.shape)}; needed: the index of the true label "
                f"for each of the {len(label_scores)} rows"
            )
        sizes = self.family.sizes_of(ranking).to(torch.int64)
        hits = self.family.hits_of(ranking, y.to(torch.int64))
        return cost_matrix(hits, self.size_costs[sizes], self.cost_weight, *self.largest_costs)

    def choose(self, set_scores: Tensor) -> Tensor:
        """Return the index of the set with the highest score; ties go to the largest set.

        Parameters
        ----------
        set_scores : Tensor of shape (n_rows, n_sets)
            Outputs of `forward`.

        Returns
        -------
        Tensor of shape (n_rows,)
        """
        return top_label(set_scores.detach())

    def predict_set(
        self, set_scores: Tensor, label_scores: Tensor, *, classes: ArrayLike | None = None
    ) -> PredictionSets:
        """Return the chosen set of each row.

        Parameters
        ----------
        set_scores : Tensor of shape (n_rows, n_sets)
            Outputs of `forward`.
        label_scores : Tensor of shape (n_rows, n_classes)
            Scores of the labels.
        classes : array-like of shape (n_classes,), optional
            Names of the labels. By default, the sets contain indices.

        Returns
        -------
        PredictionSets
        """
        ranking = Ranking.from_scores(label_scores.detach(), classes=classes)
        if ranking.n_classes != self.classes.n:
            self._validate_scores(label_scores)  # Raises the error for a wrong shape.
        guarantee = Guarantee("none", operating_point=f"cost_weight = {self.cost_weight:g}")
        return self.family.select(ranking, self.choose(set_scores), guarantee=guarantee)

    def _validate_scores(self, label_scores: Tensor) -> Ranking:
        """Return the ranking of label scores, without a check for NaN."""
        n = self.classes.n
        if label_scores.ndim != 2 or label_scores.shape[1] != n:
            raise ValueError(
                f"label_scores have shape {tuple(label_scores.shape)}; needed: (rows, {n}), as "
                f"n_classes = {n}"
            )
        # A check for NaN in each training step would synchronize the GPU.
        return Ranking(
            classes=self.classes,
            depth=n,
            array_type=infer_array_type(label_scores),
            dense=label_scores.detach(),
        )

    def extra_repr(self) -> str:
        """Return the parameters that PyTorch shows in the representation of the module.

        Returns
        -------
        str
        """
        return f"{self.family}, cost_weight={self.cost_weight:g}"
