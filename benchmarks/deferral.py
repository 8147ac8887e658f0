"""Measure deferral to an expert and abstention, compared with thresholds on the confidence.

    python benchmarks/deferral.py ../shared/data/banking77.npz

A linear classifier is trained on the split `fit` of a feature file (on its first rows, if
`--fit-rows` is smaller, for a weaker classifier). Selectors are trained on the split `select`, and
the thresholds are chosen on the same rows. All figures are for the split `test`. The cost of a set
is that of the paper with cost weight 0.05. The expert always knows a third of the classes and is
right on one in five rows of the others; asking it costs a fee.

The thresholds are the best ones for the rows of `select`: rows are sorted by their confidence, the
largest probability, and the members follow each other in all orders that end with deferral. With
one set and abstention, this is Chow's rule with a threshold that is chosen on data; the rule itself
abstains if the largest probability is below 1 - the cost of abstention.

The plug-in rule estimates the expected cost of every member from calibrated probabilities and from
the accuracy of the expert in each class, measured on `select`.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import shortlist as sl
from shortlist.predictors.cardinality.inputs import INPUTS

COST_WEIGHT = 0.05
FEES = [0.05, 0.2]
ABSTENTIONS = [0.05, 0.1, 0.2]
KNOWN_SHARE, LUCK = 1 / 3, 0.2
ONE, SEVERAL = [1], [1, 2, 4]


@dataclass(frozen=True)
class Rows:
    """Rows of one split: features, scores, labels and the answers of the expert."""

    x: NDArray[np.float32]
    scores: NDArray[np.float32]
    y: NDArray[np.int64]
    expert: NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """Sizes of the sets, and costs of the other members: a fee for the expert, or an abstention."""

    sizes: list[int]
    fee: float | None = None
    abstention: float | None = None

    @property
    def name(self) -> str:
        """Description for the table."""
        fee = [] if self.fee is None else [f"expert, fee {self.fee:g}"]
        abstention = [] if self.abstention is None else [f"abstain at {self.abstention:g}"]
        sets = "top-" + ", ".join(map(str, self.sizes))
        return " + ".join([sets, *fee, *abstention])

    def costs(self, rows: Rows) -> dict[str, NDArray[np.float64]]:
        """Return the costs of the members without a set."""
        costs = {}
        if self.fee is not None:
            costs["expert"] = (rows.expert != rows.y) + self.fee
        if self.abstention is not None:
            costs["abstain"] = np.full(len(rows.y), self.abstention)
        return costs


TASKS = [
    *(Task(ONE, abstention=cost) for cost in ABSTENTIONS),
    Task(SEVERAL, abstention=0.1),
    *(Task(ONE, fee=fee) for fee in FEES),
    *(Task(SEVERAL, fee=fee, abstention=0.2) for fee in FEES),
]
RESULT = tuple[float, float, float]


def main() -> None:
    """Print mean cost, deferred share and accuracy of each method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a feature file (.npz)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--fit-rows", type=int, nargs="+", default=[5000], help="rows of the classifier"
    )
    parser.add_argument("--epochs", type=int, default=50, help="maximum number of epochs")
    options = parser.parse_args()
    data, start = sl.datasets.load(options.data), time.process_time()
    results: dict[tuple[int, str, str], list[RESULT]] = {}
    for fit_rows, seed in itertools.product(options.fit_rows, range(options.seeds)):
        select, test = draw_rows(data, fit_rows, seed)
        for task in TASKS:
            for method, result in compare(task, select, test, seed, options.epochs).items():
                results.setdefault((fit_rows, task.name, method), []).append(result)
    print(f"{data.name}: {options.seeds} seeds, mean ± standard deviation on the split test\n")
    print("| rows of `fit` | members | method | mean cost | deferred | accuracy of the answers |")
    print("|---|---|---|---|---|---|")
    for (fit_rows, task_name, method), values in results.items():
        cells = [
            f"{np.mean(column):.4f} ± {np.std(column):.4f}" for column in zip(*values, strict=True)
        ]
        print(f"| {fit_rows} | {task_name} | {method} | " + " | ".join(cells) + " |")
    print(f"\n{time.process_time() - start:.0f} s of CPU time")


def draw_rows(data: sl.datasets.FeatureFile, fit_rows: int, seed: int) -> tuple[Rows, Rows]:
    """Return the rows of `select` and `test`, with the answers of an expert."""
    rng = np.random.default_rng(seed)
    h = sl.LinearClassifier(max_epochs=15, random_state=seed)
    h.fit(data.fit.x[:fit_rows], data.fit.y[:fit_rows])
    n = len(h.classes_)
    knows = np.isin(np.arange(n), rng.permutation(n)[: round(n * KNOWN_SHARE)])
    splits = []
    for part in (data.select, data.test):
        y = np.asarray(part.y, dtype=np.int64)
        right = knows[y] | (rng.random(len(y)) < LUCK)
        wrong = (y + rng.integers(1, n, len(y))) % n
        scores = h.predict_proba(part.x)
        splits.append(Rows(part.x, scores, y, np.where(right, y, wrong)))
    return splits[0], splits[1]


def compare(task: Task, select: Rows, test: Rows, seed: int, max_epochs: int) -> dict[str, RESULT]:
    """Return mean cost, deferred share and accuracy of the selector and of the thresholds."""
    sets, costs = sl.TopK(task.sizes), task.costs(select)
    family = sl.Deferral(sets, list(costs))
    choices = {"one member for all rows": np.full(len(test.y), best_member(task, select))}
    if task == Task(ONE, abstention=task.abstention):
        choices["Chow's rule"] = (test.scores.max(axis=1) < 1 - task.abstention).astype(np.int64)
    choices["best thresholds"] = threshold_choice(task, select, test)
    choices["plug-in"] = plug_in_choice(task, select, test)
    for inputs in INPUTS:
        model = sl.CardinalitySelector(
            family,
            cost_weight=COST_WEIGHT,
            inputs=inputs,
            max_epochs=max_epochs,
            random_state=seed,
        ).fit(select.scores, select.y, select.x, costs=costs)
        choices[f'selector, inputs="{inputs}"'] = model.choose(test.scores, test.x)
    return {name: evaluate(task, test, choice) for name, choice in choices.items()}


def cost_columns(task: Task, rows: Rows) -> NDArray[np.float64]:
    """Return the cost of each member in each row, not normalized."""
    sets = sl.TopK(task.sizes)
    size_costs = COST_WEIGHT * np.log(task.sizes)
    return np.column_stack(
        [~sets.hits(rows.scores, rows.y) + size_costs, *task.costs(rows).values()]
    )


def evaluate(task: Task, rows: Rows, choice: NDArray[np.int64]) -> RESULT:
    """Return mean cost, deferred share, and accuracy where there is an answer."""
    hits = sl.TopK(task.sizes).hits(rows.scores, rows.y)
    columns = [hits] if task.fee is None else [hits, (rows.expert == rows.y)[:, None]]
    right = np.hstack([*columns, np.zeros((len(hits), 1))])  # Abstention, if it is a member.
    answered = choice < sum(column.shape[1] for column in columns)
    at = np.arange(len(choice))
    cost = cost_columns(task, rows)[at, choice].mean()
    accuracy = right[at, choice][answered].mean() if answered.any() else np.nan
    return float(cost), float((choice >= len(task.sizes)).mean()), float(accuracy)


def best_member(task: Task, rows: Rows) -> int:
    """Return the member with the lowest mean cost."""
    return int(cost_columns(task, rows).mean(axis=0).argmin())


def threshold_choice(task: Task, select: Rows, test: Rows) -> NDArray[np.int64]:
    """Return the choice of the thresholds on the confidence that are best for `select`."""
    costs = cost_columns(task, select)
    confidence, new = select.scores.max(axis=1), test.scores.max(axis=1)
    order = np.argsort(-confidence)
    n_sets = len(task.sizes)
    others = list(range(n_sets, costs.shape[1]))
    best, chosen = np.inf, np.zeros(len(new), dtype=np.int64)
    for last in itertools.permutations(others):
        members = [*range(n_sets), *last]
        total, ends = best_ends(costs[order][:, members])
        if total < best:
            best = total
            # A boundary lies at the confidence of the first row behind it.
            limits = np.array([np.inf, *confidence[order][1:], -np.inf])[ends]
            chosen = np.array(members)[(new[:, None] <= limits).sum(axis=1)]
    return chosen


def plug_in_choice(task: Task, select: Rows, test: Rows) -> NDArray[np.int64]:
    """Return the members with the lowest expected cost, as the probabilities estimate it."""
    n = select.scores.shape[1]
    temperature = sl.fit_temperature(np.log(select.scores), select.y)
    p = np.exp(np.log(test.scores) / temperature)
    p /= p.sum(axis=1, keepdims=True)
    mass = -np.sort(-p, axis=1)
    columns = [1 - mass[:, :k].sum(axis=1) + COST_WEIGHT * np.log(k) for k in task.sizes]
    if task.fee is not None:
        # The accuracy of the expert in each class, with one row more of the mean accuracy.
        right = select.expert == select.y
        counts, hits = (np.bincount(select.y, w, minlength=n) for w in (None, right))
        columns.append(1 - p @ ((hits + right.mean()) / (counts + 1)) + task.fee)
    if task.abstention is not None:
        columns.append(np.full(len(p), task.abstention))
    return np.column_stack(columns).argmin(axis=1)


def best_ends(costs: NDArray[np.float64]) -> tuple[float, list[int]]:
    """Return the lowest total cost if members follow each other, and where all but the last end."""
    n, m = costs.shape
    sums = np.vstack([np.zeros(m), costs.cumsum(axis=0)])
    value, begins = sums[:, 0], []
    for k in range(1, m):  # Members 0 to k cover the first rows; k begins after row j.
        gain = value - sums[:, k]
        lowest = np.minimum.accumulate(gain)
        begins.append(np.maximum.accumulate(np.where(gain == lowest, np.arange(n + 1), 0)))
        value = lowest + sums[:, k]
    ends, end = [], n
    for begin in reversed(begins):
        end = int(begin[end])
        ends.append(end)
    return float(value[n]), ends[::-1]


if __name__ == "__main__":
    main()
