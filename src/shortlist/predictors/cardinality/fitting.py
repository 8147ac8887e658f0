"""The fit of cardinality-aware selectors: their parameters, costs, networks and training."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.blocks import row_blocks
from shortlist._utils.ordering import top_label
from shortlist._utils.out_of_core import Matrix, to_device
from shortlist._utils.progress import Show
from shortlist._utils.validation import check_count, check_non_negative
from shortlist.costs import Cost
from shortlist.families import Family, TopK
from shortlist.frontier import Frontier
from shortlist.guarantee import Guarantee
from shortlist.learning.networks import Stack, Standardize, perceptron, zero_last_layer
from shortlist.learning.process_group import current_group
from shortlist.learning.settings import (
    TrainingSettings,
    build_with_seed,
    resolve_device,
    training_settings,
)
from shortlist.learning.training import History, train
from shortlist.losses import from_name
from shortlist.predictors.base import AcceptedRows, SetPredictor
from shortlist.predictors.cardinality.decisions import Decisions
from shortlist.predictors.cardinality.inputs import SelectorInputs
from shortlist.predictors.cardinality.member_costs import (
    GivenCosts,
    MemberCosts,
    is_table,
    member_costs,
)
from shortlist.predictors.family_choices import as_family, check_depth, frontier_of_choices
from shortlist.predictors.training_rows import TrainingRows
from shortlist.ranking import Ranking

Network: TypeAlias = nn.Module | Callable[[int, int], nn.Module]


@dataclass(eq=False, repr=False)
class SelectorParameters:
    """Parameters that one selector and a path of selectors share.

    They are documented in :class:`shortlist.CardinalitySelector`.
    """

    family: Family | None = None
    cost: Cost = "log"
    _: KW_ONLY
    network: Network | None = None
    width: int = 128
    score_type: str = "auto"
    score_depth: int = 20
    q: float = 0.7
    rho: float = 1.0
    learning_rate: float = 1e-3
    batch_size: int = 128
    weight_decay: float = 1e-5
    max_epochs: int = 50
    patience: int = 5
    validation_fraction: float = 0.1
    clip_norm: float | str | None = "auto"
    device: str = "auto"
    dtype: str = "float32"
    checkpoint: str | os.PathLike[str] | None = None
    progress: Show = "auto"
    random_state: object = 0


class CardinalityBase(SelectorParameters, SetPredictor):
    """Fit and evaluate selectors for one or several values of `cost_weight`."""

    loss: str | nn.Module
    inputs: str

    family_: Family
    history_: History | list[History] | None
    _inputs: SelectorInputs
    _weights: list[float]
    _network: nn.Module | None
    _costs_are_table: bool = False
    """Whether `fit` was given a table of the costs of all members."""

    @property
    def can_use_features(self) -> bool:
        """Whether a fit can learn from features."""
        return self.inputs != "scores"

    @property
    def needs_features(self) -> bool:
        """Whether a fit without features is an error."""
        return self.inputs != "scores"

    @property
    def sets_are_prefixes(self) -> bool:
        """Whether every set is a prefix of the row's ranking."""
        return self.family_.nested

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if `fit` was given features with names."""
        return self._inputs.names

    def _fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None,
        classes: ArrayLike | None,
        cost_weights: Sequence[object],
        costs: GivenCosts | None,
        *,
        stacked: bool,
    ) -> None:
        """Fit a selector for each cost weight: in one stacked network, or in separate ones."""
        weights = [check_non_negative(w, "cost_weight") for w in cost_weights]
        loss = _as_loss(self)
        settings = training_settings(self, loss)
        dtype = _dtype(self.dtype)
        ranking, index, score_type = self._validate_fit(scores, y, classes)
        family = as_family(self.family, TopK.doubling(ranking.depth), sets_only=False)
        family.check(ranking)
        family = current_group().broadcast(family.fit(ranking, index, score_type))
        inputs = SelectorInputs(self.inputs, score_type, self.score_depth)
        x = inputs.fit(ranking, features)
        x = to_device(x, resolve_device(self.device, x))
        of_members = member_costs(family, ranking, index, self.cost, costs, dtype, x.device)
        network: nn.Module | None = None
        history: History | list[History] | None = None
        # A network is not needed if there is only one set, or if the largest set costs nothing.
        if len(family) > 1 and (any(weights) or not family.nested or is_table(costs)):
            problem = _Problem(x, of_members, len(family), dtype, weights, loss, settings)
            network, history = self._train(problem, stacked=stacked)
        self.family_, self._inputs, self._weights = family, inputs, weights
        self._network, self.history_ = network, history
        self._costs_are_table = is_table(costs)
        self._training_rows = TrainingRows(ranking) if network is not None else None
        self._finalize_fit(ranking, score_type)

    def _train(
        self, problem: _Problem, *, stacked: bool
    ) -> tuple[nn.Module, History | list[History]]:
        """Return the trained network and its losses by epoch."""
        weights = problem.weights
        prototype = build_with_seed(lambda: self._build(problem), problem.settings.seed)
        names = [f"selector with cost_weight = {w:g}" for w in weights]
        if stacked and self.network is None:
            standardize, body = prototype
            assert isinstance(body, nn.Sequential)
            stack = nn.Sequential(standardize, Stack(body, len(weights)))
            weight_vector = torch.tensor(weights, dtype=problem.dtype, device=problem.x.device)
            return stack, self._train_network(stack, problem, weight_vector, names, self.checkpoint)
        if not stacked:
            history = self._train_network(prototype, problem, weights[0], names[0], self.checkpoint)
            return prototype, history
        # Networks given by the user cannot be stacked, so they are trained one after another.
        networks = [copy.deepcopy(prototype) for _ in weights]
        histories = [
            self._train_network(
                network, problem, w, name, self.checkpoint and f"{self.checkpoint}.{i}"
            )
            for i, (network, w, name) in enumerate(zip(networks, weights, names, strict=True))
        ]
        return Members(networks), histories

    def _train_network(
        self,
        network: nn.Module,
        problem: _Problem,
        weight: float | Tensor,
        name: str | list[str],
        checkpoint: str | os.PathLike[str] | None,
    ) -> History:
        """Train a network for one cost weight, or a stack of networks for one each."""
        weight_tensor = torch.as_tensor(weight, dtype=problem.dtype, device=problem.x.device)

        def objective(outputs: Tensor, *targets: Tensor) -> Tensor:
            return _mean_loss(problem.loss, outputs, problem.costs.matrix(weight_tensor, *targets))

        return train(
            network,
            problem.x,
            problem.costs.targets,
            objective,
            problem.settings,
            members=None if isinstance(name, str) else name,
            use_cuda_graph=self.network is None and isinstance(self.loss, str),
            checkpoint=checkpoint,
            # Weights are written as a list because the repr of a tensor is rounded.
            identity=f"{problem.loss} {torch.as_tensor(weight).tolist()} {problem.costs.scale}",
            progress=self.progress,
            name=name if isinstance(name, str) else f"{len(name)} selectors",
        )

    def _build(self, problem: _Problem) -> nn.Sequential:
        """Return an untrained network, after standardization of its inputs."""
        x, n_outputs, dtype = problem.x, problem.n_outputs, problem.dtype
        if self.network is None:
            width = check_count(self.width, "width")
            body: nn.Module = zero_last_layer(perceptron(x.shape[1], n_outputs, width))
        elif isinstance(self.network, nn.Module):
            body = copy.deepcopy(self.network)
        else:
            body = self.network(x.shape[1], n_outputs)
        network = nn.Sequential(Standardize.from_data(x, dtype), body.to(x.device, dtype))
        if self.network is not None:
            _check_outputs(network, x[:2], n_outputs)
        return network

    @torch.no_grad()
    def _scores(self, ranking: Ranking, features: ArrayLike | None) -> Tensor:
        """Return the scores of the sets, of shape (n_rows, n_sets) or (members, n_rows, n_sets)."""
        assert self._network is not None
        x = self._inputs(ranking, features)
        device = next(iter(self._network.state_dict().values())).device
        widest = max(x.shape[1], self.width * len(self._weights))  # The inputs or the hidden layer.
        blocks = [self._network(x[rows].to(device)) for rows in row_blocks(len(x), widest, device)]
        return torch.cat(blocks, dim=-2).to(ranking.device)

    def _choices(self, ranking: Ranking, features: ArrayLike | None) -> Tensor:
        """Return the index of each row's set in the family, of shape (n_weights, n_rows)."""
        check_depth(self.family_, ranking)
        shape = (len(self._weights), len(ranking))
        last = torch.full(shape, len(self.family_) - 1, device=ranking.device)
        if self._network is None:
            self._inputs(ranking, features)  # Raises if features are missing or do not match.
            return last
        chosen = top_label(self._scores(ranking, features)).view(shape)
        free = torch.tensor(self._free(), device=ranking.device)
        return torch.where(free[:, None], last, chosen)

    def _free(self) -> list[bool]:
        """Return for which cost weights the largest set is the best one, as it costs nothing."""
        can_be_free = self.family_.nested and not self._costs_are_table
        return [can_be_free and weight == 0 for weight in self._weights]

    def _decide(
        self, ranking: Ranking, features: ArrayLike | None, member: int, guarantee: Guarantee
    ) -> Decisions:
        """Return the decisions of the selector of one cost weight."""
        choice = self._choices(ranking, features)[member]
        return Decisions(
            self.family_, choice, self.family_.select(ranking, choice, guarantee=guarantee)
        )

    def accepted_rows(self) -> AcceptedRows:
        """Return which rows the model accepts: all that have enough candidates."""
        uses_scores = self._inputs.inputs != "features"
        return AcceptedRows(candidates=self._inputs.score_depth if uses_scores else 1)

    def _onnx_sets(
        self, graph: Any, member: int | None, guarantee: Guarantee, metadata: dict[str, object]
    ) -> Any:
        """Return the sets of a member in an ONNX graph; the member is an input if it is None."""
        family, network = self.family_, self._network
        if network is None:
            last = len(family) - 1
            return graph.member_sets(family, last, self.score_type_, guarantee, metadata)
        return graph.network_sets(
            family, network, self._inputs, self._free(), member, guarantee, metadata
        )

    def frontier(
        self, scores: ArrayLike | Ranking, y: ArrayLike, features: ArrayLike | None = None
    ) -> Frontier:
        """Return accuracy and mean size for each value of `cost_weight` that was trained.

        Parameters
        ----------
        scores : array-like of shape (n_rows, n_classes) or Ranking
            Scores of labeled rows.
        y : array-like of shape (n_rows,)
            True labels.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows, if `inputs` includes them.

        Returns
        -------
        Frontier
        """
        ranking, index = self._validate_labeled(scores, y)
        return frontier_of_choices(
            self.family_,
            ranking,
            index,
            list(self._choices(ranking, features)),
            self._weights,
            parameter_name="cost_weight",
            name="cardinality-aware",
        )


@dataclass(frozen=True)
class _Problem:
    """The training data of all selectors: inputs, and the costs of every member."""

    x: Matrix
    costs: MemberCosts
    n_outputs: int
    dtype: torch.dtype
    weights: list[float]
    loss: nn.Module
    settings: TrainingSettings


class Members(nn.Module):
    """Evaluate separate networks and stack their outputs.

    Parameters
    ----------
    networks : sequence of nn.Module
        Networks with outputs of the same shape.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of all networks, of shape (members, n_rows, n_outputs)."""
        return torch.stack([network(x) for network in self.networks])


@torch.no_grad()
def _check_outputs(network: nn.Module, x: Tensor, n_outputs: int) -> None:
    """Raise if a network given by the user does not return one output for each set."""
    inputs = f"{len(x)} rows of {x.shape[1]} inputs"
    try:
        shape = tuple(network.eval()(x).shape)
    except (RuntimeError, AttributeError, TypeError) as error:
        raise ValueError(f"the network does not take {inputs} (a float tensor): {error}") from error
    if shape != (len(x), n_outputs):
        raise ValueError(
            f"the network returns outputs of shape {shape} for {inputs}; needed: "
            f"{(len(x), n_outputs)}, one output for each set of the family"
        )


def _as_loss(model: CardinalityBase) -> nn.Module:
    """Return the loss of a model as a module."""
    if isinstance(model.loss, nn.Module):
        _check_loss(model.loss, _dtype(model.dtype))
        return model.loss
    if not isinstance(model.loss, str):
        raise ValueError(f"loss must be a name or a module of (scores, costs); got {model.loss!r}")
    # Costs are valid by construction, and validating them in each step would synchronize the GPU.
    return from_name(
        model.loss, q=model.q, rho=model.rho, cost_sensitive=True, reduction="none", validate=False
    )


@torch.no_grad()
def _check_loss(loss: nn.Module, dtype: torch.dtype) -> None:
    """Raise unless a loss given by the user is smaller if the cheaper set has the higher score."""
    costs = torch.tensor([[0.0, 1.0]], dtype=dtype)
    good, bad = torch.tensor([[[1.0, -1.0]], [[-1.0, 1.0]]], dtype=dtype)
    hint = "a loss takes (scores, costs), as sl.losses.CostSensitiveCompSumLoss does"
    try:
        prefers_bad = bool(_mean_loss(loss, bad, costs) < _mean_loss(loss, good, costs))
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{loss!r} cannot be used: {hint} ({error})") from error
    if prefers_bad:
        raise ValueError(f"{loss!r} prefers the set that costs more: {hint}")


def _mean_loss(loss: nn.Module, outputs: Tensor, costs: Tensor) -> Tensor:
    """Return the mean loss of a batch, or one for each member of a stack."""
    if getattr(loss, "reduction", None) == "none":
        value: Tensor = loss(outputs, costs)
        return value.mean(dim=-1)
    if outputs.ndim == 2:
        return torch.as_tensor(loss(outputs, costs)).mean()
    return torch.stack([_mean_loss(loss, o, c) for o, c in zip(outputs, costs, strict=True)])


def _dtype(name: str) -> torch.dtype:
    """Return the floating-point type of a name."""
    dtypes = {"float32": torch.float32, "float64": torch.float64}
    if name not in dtypes:
        raise ValueError(f'dtype must be "float32" or "float64"; got {name!r}')
    return dtypes[name]
