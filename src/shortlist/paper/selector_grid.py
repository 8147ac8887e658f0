"""Grids of selectors, trained together: for several costs, cost weights and initial weights.

Each selector is that of :class:`shortlist.CardinalityPath`. They share the rows and the batches,
but not their parameters, and each stops early on its own validation loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from shortlist._utils.blocks import row_blocks
from shortlist._utils.ordering import top_label
from shortlist._utils.validation import check_choice
from shortlist.costs import cost_matrix, cost_table
from shortlist.datasets import Samples
from shortlist.families import Family, Threshold, TopK
from shortlist.learning.networks import (
    Ensemble,
    Stack,
    Standardize,
    perceptron,
    zero_last_layer,
)
from shortlist.learning.settings import (
    CLIP_NORM,
    MIN_STEPS_PER_EPOCH,
    TrainingSettings,
    build_with_seed,
)
from shortlist.learning.training import History, train
from shortlist.learning.validation import EVALUATION_ROWS
from shortlist.losses import from_name
from shortlist.paper.reading import weights_to_add
from shortlist.paper.tasks import MEAN, SINGLE, Task, Trace, Training
from shortlist.predictors.cardinality.inputs import SelectorInputs
from shortlist.ranking import Ranking

BATCH_SIZE = 128
WEIGHT_DECAY = 1e-5
SCORE_DEPTH = 20
"""Number of sorted log-probabilities that a selector of our variant sees."""
SELECTOR_SEEDS = 1_000
"""Distance of the seeds of the initial weights of two selectors of the same task."""
MAX_MEMBERS = {"cpu": 128, "cuda": 512}
"""Maximum number of selectors that are trained together, by device."""
EVALUATION_BYTES = 12 * 2**30
"""Maximum memory for the hidden layers of selectors that are trained together, in validation."""


def make_family(task: Task) -> Family:
    """Return the family that the selectors of a task choose from."""
    if check_choice(task.family, "family", ["top-k", "threshold"]) == "top-k":
        return TopK([int(size) for size in task.members])
    return Threshold(task.members)


@dataclass(frozen=True)
class Rows:
    """Inputs of the selectors for some rows, and the hits and sizes of each set of the family."""

    inputs: Tensor
    hits: Tensor
    sizes: Tensor


@dataclass(frozen=True)
class _Selectors:
    """Selectors to train together: the weights of each cost, each for all initial weights."""

    weights: Mapping[str, Sequence[float]]

    @property
    def count(self) -> int:
        return sum(map(len, self.weights.values()))


class SelectorGrid:
    """Train the selectors of a task, and measure them on test rows.

    Parameters
    ----------
    task : Task
        The task.
    device : str
        Device to train on.
    """

    def __init__(self, task: Task, device: str) -> None:
        check_choice(task.initialization, "initialization", ["zero", "pytorch"])
        self.task, self.device = task, torch.device(device)
        self.family = make_family(task)
        self.trainings: list[Training] = []

    def run(
        self, train_p: Tensor, train_rows: Samples, test_p: Tensor, test_rows: Samples
    ) -> list[Trace]:
        """Train on some rows, refine the cost weights, and return the curves on test rows.

        The grid is refined by the mean sizes on the test rows, for which no labels are needed.

        Parameters
        ----------
        train_p, test_p : Tensor of shape (n_rows, n_classes)
            Probabilities of the classifier.
        train_rows, test_rows : Samples
            Features and labels of the same rows.

        Returns
        -------
        list of Trace
            A curve for each cost, of a single selector and, if there are several, of the average.
        """
        task = self.task
        inputs = SelectorInputs(task.inputs, "proba", SCORE_DEPTH)
        ranking = self._ranking(train_p)
        inputs.fit(ranking, self._features(train_rows))
        learned, test = (
            self._rows(inputs, train_p, train_rows),
            self._rows(inputs, test_p, test_rows),
        )
        tables = {cost: self._table(cost, ranking) for cost in task.costs}
        points: dict[str, dict[float, list[tuple[float, float]]]] = {c: {} for c in task.costs}
        added = dict(zip(task.costs, map(list, task.weights), strict=True))
        for i in range(1 + task.refinements):
            for group in self._groups(added, len(learned.inputs)):
                for cost, weight, measured in self._train(group, tables, learned, test):
                    points[cost][weight] = measured
            if i < task.refinements:
                added = {cost: _to_add(points[cost]) for cost in task.costs}
        return [trace for cost in task.costs for trace in _traces(cost, points[cost])]

    def _ranking(self, p: Tensor) -> Ranking:
        return Ranking.from_scores(p, score_type="proba")

    def _features(self, rows: Samples) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows.x)).to(self.device)

    def _rows(self, inputs: SelectorInputs, p: Tensor, rows: Samples) -> Rows:
        ranking = self._ranking(p)
        index = torch.from_numpy(rows.y.astype(np.int64)).to(self.device)
        x = inputs(ranking, self._features(rows))
        assert isinstance(x, Tensor)  # Only tables larger than the memory are lazy.
        return Rows(x, self.family.hits_of(ranking, index), self.family.sizes_of(ranking))

    def _table(self, cost: str, ranking: Ranking) -> Tensor:
        sizes = self.family.possible_sizes(ranking)
        return cost_table(cost, sizes).to(self.device, torch.float32)

    def _groups(self, weights: Mapping[str, Sequence[float]], rows: int) -> Iterator[_Selectors]:
        """Yield selectors that are trained together, at most as many as the memory allows."""
        pairs = [(cost, weight) for cost, each in weights.items() for weight in each]
        kind, task = self.device.type, self.task
        evaluated = min(EVALUATION_ROWS.get(kind, EVALUATION_ROWS["cpu"]), max(1, rows // 10))
        # A hidden layer has about four copies of 4 bytes: before and after ReLU, in both layers.
        members = EVALUATION_BYTES // (16 * evaluated * task.width)
        length = max(1, min(members, MAX_MEMBERS.get(kind, MAX_MEMBERS["cpu"])) // task.selectors)
        for start in range(0, len(pairs), length):
            part = pairs[start : start + length]
            yield _Selectors(
                {c: [w for d, w in part if d == c] for c in dict.fromkeys(c for c, _ in part)}
            )

    def _train(
        self, group: _Selectors, tables: Mapping[str, Tensor], rows: Rows, test: Rows
    ) -> Iterator[tuple[str, float, list[tuple[float, float]]]]:
        """Train selectors, and yield the accuracy and mean size of each cost and weight."""
        if len(self.family) == 1:
            choice = torch.zeros(len(test.hits), dtype=torch.int64, device=self.device)
            for cost, weights in group.weights.items():
                for weight in weights:
                    yield cost, weight, [_measure(choice, test)] * self._curves
            return
        network = self._network(rows.inputs, group.count)
        self._fit(network, group, tables, rows)
        scores = _scores(network, test.inputs)
        members = scores.view(group.count, self.task.selectors, *scores.shape[1:])
        pairs = [(cost, weight) for cost, lambdas in group.weights.items() for weight in lambdas]
        for (cost, weight), each in zip(pairs, members, strict=True):
            averages = [each[0], each.mean(dim=0)][: self._curves]
            yield cost, weight, [_measure(top_label(r), test) for r in averages]

    @property
    def _curves(self) -> int:
        """Number of curves for each cost: of a single selector, and of the average."""
        return 2 if self.task.selectors > 1 else 1

    def _network(self, x: Tensor, count: int) -> Ensemble:
        """Return untrained selectors. Those that share a seed start from the same weights."""
        task = self.task

        def build() -> nn.Sequential:
            body = perceptron(x.shape[1], len(self.family), task.width)
            return zero_last_layer(body) if task.initialization == "zero" else body

        seeds = [task.seed + SELECTOR_SEEDS * j for j in range(task.selectors)]
        prototypes = [build_with_seed(build, seed) for seed in seeds]
        standardize = Standardize.from_data(x, torch.float32)
        if not task.standardize:
            zeros, ones = torch.zeros_like(standardize.mean), torch.ones_like(standardize.scale)
            standardize = Standardize(zeros, ones, torch.float32)
        return Ensemble(standardize, Stack(prototypes * count)).to(self.device)

    def _fit(
        self, network: Ensemble, group: _Selectors, tables: Mapping[str, Tensor], rows: Rows
    ) -> None:
        task = self.task
        loss = from_name(task.loss, cost_sensitive=True, reduction="none", validate=False)
        clip = None if getattr(loss, "bounded_gradient", True) else CLIP_NORM
        settings = TrainingSettings(
            learning_rate=task.learning_rate,
            batch_size=BATCH_SIZE,
            weight_decay=WEIGHT_DECAY,
            max_epochs=task.max_epochs,
            patience=task.patience,
            clip_norm=clip,
            min_steps_per_epoch=MIN_STEPS_PER_EPOCH,
            seed=task.seed,
        )
        weights = {
            cost: torch.tensor(each, device=self.device).repeat_interleave(task.selectors)
            for cost, each in group.weights.items()
        }
        largest = {cost: float(tables[cost][-1]) for cost in weights}
        costs = [tables[cost][rows.sizes.to(torch.int64)] for cost in weights]

        def objective(outputs: Tensor, hits: Tensor, *size_costs: Tensor) -> Tensor:
            of_cost = zip(weights, size_costs, strict=True)
            matrices = [cost_matrix(hits, k, weights[c], largest[c]) for c, k in of_cost]
            value: Tensor = loss(outputs, torch.cat(matrices))
            return value.mean(dim=-1)

        names = [
            f"selector with cost {cost} and weight {weight:g}"
            for cost, each in group.weights.items()
            for weight in each
            for _ in range(task.selectors)
        ]
        history = train(
            network,
            rows.inputs,
            (rows.hits, *costs),
            objective,
            settings,
            members=names,
            use_cuda_graph=True,
            progress=False,
            name=f"{len(names)} selectors",
        )
        self.trainings.append(
            training_record(
                "selectors", history, len(rows.inputs), settings.max_epochs, task.patience
            )
        )


def training_record(
    trained: str, history: History, rows: int, max_epochs: int, patience: int
) -> Training:
    """Return the record of a training run."""
    epochs = len(history)
    best = [1 + epoch for epoch in history.best_epoch]
    # A network is capped if its loss had improved within the last `patience` epochs.
    capped = sum(epochs == max_epochs and epochs - epoch < patience for epoch in best)
    train_rows = rows - round(0.1 * rows)
    steps = max(-(-train_rows // BATCH_SIZE), MIN_STEPS_PER_EPOCH)
    spread = [min(best), int(np.median(best)), max(best)]
    return Training(trained, len(best), rows, epochs, steps * epochs, max_epochs, spread, capped)


@torch.no_grad()
def _scores(network: Ensemble, x: Tensor) -> Tensor:
    """Return the scores of all selectors, of shape (members, n_rows, n_sets)."""
    blocks = row_blocks(len(x), max(x.shape[1], network.stack.widest), x.device)
    return torch.cat([network(x[rows]) for rows in blocks], dim=1)


def _measure(choice: Tensor, test: Rows) -> tuple[float, float]:
    """Return accuracy and mean size of the chosen sets."""
    column = choice[:, None]
    hits = test.hits.gather(1, column).to(torch.float64).mean()
    return float(hits), float(test.sizes.gather(1, column).to(torch.float64).mean())


def _to_add(points: Mapping[float, Sequence[tuple[float, float]]]) -> list[float]:
    """Return the cost weights that refine the curves of a cost, in decreasing order."""
    curves = zip(*points.values(), strict=True)
    added = {w for c in curves for w in weights_to_add(list(points), [size for _, size in c])}
    return sorted(added, reverse=True)


def _traces(cost: str, points: Mapping[float, Sequence[tuple[float, float]]]) -> list[Trace]:
    """Return the curves of a cost: that of a single selector, and that of the average."""
    weights = sorted(points, reverse=True)
    count = len(points[weights[0]])
    return [
        Trace(
            cost,
            average,
            "cost_weight",
            weights,
            [points[weight][i][0] for weight in weights],
            [points[weight][i][1] for weight in weights],
        )
        for i, average in enumerate((SINGLE, MEAN)[:count])
    ]
