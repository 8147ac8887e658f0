"""How a cardinality-aware selector is learned: the problem, its inputs, a network, a training."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from shortlist._arrays import ArrayLike, check_weight, row_blocks
from shortlist._progress import Show
from shortlist.costs import Cost, cost_matrix, cost_table
from shortlist.families import Family, TopK
from shortlist.frontier import Frontier
from shortlist.losses import from_name
from shortlist.networks import Stack, Standardize, perceptron
from shortlist.ranking import Ranking, best
from shortlist.selectors._base import SetPredictor, frontier_of_choices
from shortlist.selectors._inputs import SelectorInputs
from shortlist.training import History, device_of, seeded, settings_of, train

Network: TypeAlias = nn.Module | Callable[[int, int], nn.Module]


class CardinalityBase(SetPredictor):
    """What one selector and a path of them share: problem, inputs, network, training."""

    family: Family | None
    cost: Cost
    loss: str | nn.Module
    inputs: str
    network: Network | None
    width: int
    q: float
    rho: float
    score_depth: int
    device: str
    dtype: str
    checkpoint: str | os.PathLike[str] | None
    progress: Show
    learning_rate: float
    batch_size: int
    weight_decay: float
    max_epochs: int
    patience: int
    validation_fraction: float
    clip_norm: float | str | None
    random_state: object

    family_: Family
    history_: History | list[History] | None
    _inputs: SelectorInputs
    _weights: list[float]
    _network: nn.Module | None

    def _learn(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None,
        classes: ArrayLike | None,
        cost_weights: Sequence[object],
        *,
        stacked: bool,
    ) -> None:
        weights = [check_weight(w) for w in cost_weights]
        loss = _as_loss(self)
        settings = settings_of(self, loss)
        ranking, index = self._open(scores, y, classes)
        family = TopK.doubling(ranking.depth) if self.family is None else self.family
        family.check(ranking)
        table = cost_table(self.cost, family.possible_sizes(ranking)).to(ranking.device)
        inputs = SelectorInputs(self.inputs, self.score_type_, self.score_depth)
        x = inputs.fit(ranking, features)
        x = x.to(device_of(self.device, x))
        self.family_, self._inputs, self._weights = family, inputs, weights
        self._network, self.history_ = None, None
        if len(family) == 1 or (family.nested and not any(weights)):
            return  # one member, or the largest set costs nothing: there is nothing to learn

        dtype = _dtype(self.dtype)
        size_costs = table[family.sizes_of(ranking).to(torch.int64)].to(x.device, dtype)
        targets = (family.hits_of(ranking, index).to(x.device), size_costs)
        prototype = seeded(lambda: self._build(x, len(family), dtype), settings.seed).to(x.device)
        largest = float(table[-1])

        def fit_one(
            network: nn.Module,
            weight: float | Tensor,
            names: list[str] | None,
            checkpoint: str | os.PathLike[str] | None = self.checkpoint,
        ) -> History:
            def objective(outputs: Tensor, hits: Tensor, costs: Tensor) -> Tensor:
                return _mean_loss(loss, outputs, cost_matrix(hits, costs, weight, largest))

            return train(
                network,
                x,
                targets,
                objective,
                settings,
                members=names,
                checkpoint=checkpoint,
                identity=f"{loss} {weight} {largest}",
                progress=self.progress,
                what="selector" if names is None else f"{len(names)} selectors",
            )

        if not stacked:
            self._network = prototype
            self.history_ = fit_one(prototype, weights[0], None)
        elif self.network is None:
            assert isinstance(prototype, nn.Sequential)
            standardize, body = prototype
            assert isinstance(body, nn.Sequential)
            self._network = nn.Sequential(standardize, Stack(body, len(weights)).to(x.device))
            vector = torch.tensor(weights, dtype=dtype, device=x.device)
            names = [f"the selector with cost_weight = {w:g}" for w in weights]
            self.history_ = fit_one(self._network, vector, names)
        else:  # a network of the user's own: any module will do, so members take their turns
            members = [copy.deepcopy(prototype) for _ in weights]
            self.history_ = [
                fit_one(n, w, None, self.checkpoint and f"{os.fspath(self.checkpoint)}.{i}")
                for i, (n, w) in enumerate(zip(members, weights, strict=True))
            ]
            self._network = _Members(members)

    def _build(self, x: Tensor, n_out: int, dtype: torch.dtype) -> nn.Module:
        if self.network is None:
            body: nn.Module = perceptron(x.shape[1], n_out, self.width)
        elif isinstance(self.network, nn.Module):
            body = copy.deepcopy(self.network)
        else:
            body = self.network(x.shape[1], n_out)
        network = nn.Sequential(Standardize.of(x, dtype), body.to(x.device, dtype))
        if self.network is not None:
            with torch.no_grad():
                shape = tuple(network.eval()(x[:2]).shape)
            if shape != (len(x[:2]), n_out):
                raise ValueError(
                    f"the network gives outputs of shape {shape} for {len(x[:2])} rows of "
                    f"{x.shape[1]} inputs; needed: {(len(x[:2]), n_out)}, one for each set of "
                    "the family"
                )
        return network

    @torch.no_grad()
    def _scores(self, ranking: Ranking, features: ArrayLike | None) -> Tensor:
        """`r(x, k)`: (rows, |K|), or (members, rows, |K|) for a stack."""
        assert self._network is not None
        x = self._inputs(ranking, features)
        device = next(iter(self._network.state_dict().values())).device
        blocks = [self._network(x[rows].to(device)) for rows in row_blocks(*x.shape)]
        return torch.cat(blocks, dim=-2).to(ranking.device)

    def _choices(self, ranking: Ranking, features: ArrayLike | None) -> Tensor:
        """The member chosen for each row: (weights, rows)."""
        shape = (len(self._weights), len(ranking))
        last = torch.full(shape, len(self.family_) - 1, device=ranking.device)
        if self._network is None:
            self._inputs(ranking, features)  # what is missing is missing here too
            return last
        chosen = best(self._scores(ranking, features)).view(shape)
        free = torch.tensor(self._weights, device=ranking.device) == 0
        return torch.where(free[:, None] & self.family_.nested, last, chosen)

    def frontier(
        self, scores: ArrayLike | Ranking, y: ArrayLike, features: ArrayLike | None = None
    ) -> Frontier:
        """One point for each lambda that was trained: one selector has one, a path its curve."""
        ranking, index = self._labelled(scores, y)
        return frontier_of_choices(
            self.family_,
            ranking,
            index,
            list(self._choices(ranking, features)),
            self._weights,
            parameter_name="cost_weight",
            name="cardinality-aware",
        )


class _Members(nn.Module):
    """Separate networks, stacked at the output."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([network(x) for network in self.networks])


def _as_loss(model: CardinalityBase) -> nn.Module:
    if isinstance(model.loss, nn.Module):
        return model.loss
    if not isinstance(model.loss, str):
        raise ValueError(f"loss must be a name or a module of (scores, costs); got {model.loss!r}")
    # Costs are in range by construction, and a check in every step would wait for the device.
    return from_name(
        model.loss, q=model.q, rho=model.rho, cost_sensitive=True, reduction="none", validate=False
    )


def _mean_loss(loss: nn.Module, outputs: Tensor, costs: Tensor) -> Tensor:
    """The batch's mean loss, or one for each member of a stack."""
    if getattr(loss, "reduction", None) == "none":
        value: Tensor = loss(outputs, costs)
        return value.mean(dim=-1)
    if outputs.ndim == 2:
        return torch.as_tensor(loss(outputs, costs)).mean()
    return torch.stack([_mean_loss(loss, o, c) for o, c in zip(outputs, costs, strict=True)])


def _dtype(name: str) -> torch.dtype:
    known = {"float32": torch.float32, "float64": torch.float64}
    if name not in known:
        raise ValueError(f'dtype must be "float32" or "float64"; got {name!r}')
    return known[name]
