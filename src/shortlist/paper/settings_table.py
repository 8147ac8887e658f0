"""The section of the page about settings: what each figure was trained on, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from shortlist.learning.settings import MIN_STEPS_PER_EPOCH
from shortlist.paper.panels import Figure
from shortlist.paper.reading import REFINED_RATIO
from shortlist.paper.results import Results
from shortlist.paper.selector_grid import BATCH_SIZE, SCORE_DEPTH, WEIGHT_DECAY
from shortlist.paper.sources import TITLES
from shortlist.paper.tasks import Task, Training

COLUMNS = (
    "figure", "data", "inputs", "rows", "K or thresholds", "λ, cost log k", "λ, cost k",
    "selectors", "epochs run", "best epoch", "steps", "stopped by the maximum",
)  # fmt: skip


def settings_section(results: Results) -> Iterator[str]:
    """Yield the section.

    Parameters
    ----------
    results : Results
        The results.

    Yields
    ------
    str
        The next line.
    """
    scale, decay = results.scale, np.format_float_scientific(WEIGHT_DECAY, trim="-", exp_digits=1)
    yield "## Settings"
    yield ""
    yield (
        f"As in the paper, h is linear and trained with the logistic loss, r has two hidden ReLU "
        f"layers and is trained with the cost-sensitive logistic loss, and both use Adam with "
        f"learning rate 1e-3, batches of {BATCH_SIZE} rows and weight decay {decay}. "
        "Chosen here, unless a label says otherwise: the hidden layers of r have 128 units, "
        "initialized as PyTorch does by default; all weights of the last layer of r, and "
        "those of h, start at zero; inputs are standardized to mean 0 and standard deviation 1; a "
        "tenth of the rows are for validation, and the weights with the lowest validation loss are "
        f"kept; training stops after {scale.patience} epochs without improvement, at the latest "
        f"after {scale.max_epochs} epochs (h: 5 and {scale.classifier_epochs}); an epoch has at "
        f"least {MIN_STEPS_PER_EPOCH} steps. h sees the rows of the split fit. Our variant also "
        f"sees the {SCORE_DEPTH} highest log-probabilities of h, sorted, and the logarithm of the "
        "mass of the others. The selectors of a task are trained together on the same batches, and "
        "the scores r of those with different initial weights are averaged."
    )
    yield ""
    refinement = (
        f"; where sizes of neighbors differ by more than {100 * (REFINED_RATIO - 1):.0f}%, λ are "
        f"added, at most {scale.refinements} times"
        if scale.refinements
        else ""
    )
    yield (
        f"λ is evenly spaced on a logarithmic scale{refinement}. `points.json` has every value, "
        "and the record of every training run. Ranges are over tasks and seeds; steps and epochs "
        "are those of the last selector to stop, best epochs those whose weights were kept."
    )
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + "---|" * len(COLUMNS)
    for figure in results.figures:
        yield from _rows(results, figure)
    yield ""
    yield from _classifiers(results)


def _rows(results: Results, figure: Figure) -> Iterator[str]:
    """Yield a row for each data set and type of input of a figure."""
    groups: dict[tuple[str, str], list[Task]] = {}
    for task in dict.fromkeys(figure.tasks()):
        if task.method == "selectors":
            name = "features" if task.inputs == "features" else "features and scores"
            name += "" if task.protocol == "held-out" else ", seen rows"
            groups.setdefault((task.data, name), []).append(task)
    for (data, inputs), tasks in groups.items():
        outcomes = [results.outcomes[t.seeded(s)] for t in tasks for s in results.seeds]
        runs = [r for o in outcomes for r in o.trainings if r.trained == "selectors"]
        cells = (
            figure.name,
            TITLES[data],
            inputs,
            _range(outcome.n_train for outcome in outcomes),
            _members(tasks),
            _weights(results, tasks, "log"),
            _weights(results, tasks, "linear"),
            _range(task.selectors for task in tasks),
            *_epochs(runs),
        )
        yield f"| {' | '.join(cells)} |"


def _epochs(runs: Sequence[Training]) -> tuple[str, str, str, str]:
    """Return epochs, best epochs, steps and the number of capped networks as text."""
    if not runs:
        return "0", "-", "0", "0"
    capped, networks = sum(r.capped for r in runs), sum(r.members for r in runs)
    best = [epoch for r in runs for epoch in r.best_epochs]
    return (
        _range(r.epochs for r in runs),
        _range(best),
        _range(r.steps for r in runs),
        f"{capped} of {networks:,}",
    )


def _weights(results: Results, tasks: Sequence[Task], cost: str) -> str:
    """Return the number and the range of the cost weights for a cost."""
    grids = [
        trace.parameter
        for task in tasks
        for seed in results.seeds
        for trace in results.outcomes[task.seeded(seed)].traces
        if trace.cost == cost
    ]
    if not grids:
        return "-"
    values = [weight for grid in grids for weight in grid]
    return f"{_range(map(len, grids))} from {max(values):g} to {min(values):g}"


def _members(tasks: Sequence[Task]) -> str:
    """Return the members of the families as text."""
    members = list(dict.fromkeys(task.members for task in tasks))
    if tasks[0].family == "threshold":
        largest = members[-1]
        return f"{len(largest)} thresholds from {largest[0]:g} to {largest[-1]:g}"
    if len(members) == 1:
        return f"{{{', '.join(f'{k:g}' for k in members[0])}}}"
    return f"{{{members[0][0]:g}}} to {{{', '.join(f'{k:g}' for k in members[-1])}}}"


def _classifiers(results: Results) -> Iterator[str]:
    """Yield the table of the classifiers."""
    groups: dict[tuple[str, str], list[Training]] = {}
    for task, outcome in results.outcomes.items():
        runs = [run for run in outcome.trainings if run.trained == "classifier"]
        groups.setdefault((task.data, task.scoring), []).extend(runs)
    columns = ("classifier h", "features", "rows", *COLUMNS[-4:])
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for (data, scoring), all_runs in groups.items():
        runs = list({str(run): run for run in all_runs}.values())
        epochs, best, steps, capped = _epochs(runs)
        features = "all" if scoring == "full" else "few"
        rows = _range(run.rows for run in runs)
        yield f"| {TITLES[data]} | {features} | {rows} | {epochs} | {best} | {steps} | {capped} |"
    yield ""


def _range(values: Iterable[int]) -> str:
    """Return the range of some numbers, or the number if they are equal.

    Examples
    --------
    >>> _range([3, 3]), _range([1000, 20])
    ('3', '20 to 1,000')
    """
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
