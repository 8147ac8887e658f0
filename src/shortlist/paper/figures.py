"""The figures of the paper: which curves they show, and the tasks that compute each curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shortlist.paper.panels import Curve, Figure, Panel
from shortlist.paper.scale import Scale
from shortlist.paper.sources import TITLES, DataSize, Sources, missing_message
from shortlist.paper.tasks import MEAN, SINGLE, Task

LOSSES = ("log", "exp", "gce", "mae", "constrained_exp", "squared_hinge", "hinge", "margin")
COSTS = {"log": "log k", "linear": "k"}
"""Costs in the notation of the paper."""
RECIPE, VARIANT = "paper's recipe (features)", "our variant (features and scores)"
SETTINGS: dict[str, dict[str, object]] = {
    "width 32": {"width": 32},
    "width 512": {"width": 512},
    "learning rate 1e-4": {"learning_rate": 1e-4},
    "last layer as PyTorch initializes it": {"initialization": "pytorch"},
    "inputs not standardized": {"standardize": False},
}
"""Settings that the paper leaves open, or that it gives, with other values."""
PAPER_SIZES = (1, 2, 4, 8)
MAX_GAUSSIAN_POINTS = 16
"""Number of cost weights for artificial data: sets of ten classes need fewer than others."""
THRESHOLDS = tuple(float(f"{t:.4g}") for t in np.geomspace(0.5, 0.0005, 12))


def make_figures(
    names: Sequence[str], sources: Sources, scale: Scale, sizes: Mapping[str, DataSize]
) -> list[Figure]:
    """Return figures by name; `sizes` has the data sets that are available."""
    return [FIGURES[name](_Study(sources, scale, sizes)) for name in names]


def growing_sizes(n_classes: int, largest: int = 64) -> list[tuple[int, ...]]:
    """Return the sets K = {1}, {1, 2}, {1, 2, 4}, … up to the number of classes or to `largest`.

    Examples
    --------
    >>> growing_sizes(10)
    [(1,), (1, 2), (1, 2, 4), (1, 2, 4, 8)]
    >>> growing_sizes(100)[-1]
    (1, 2, 4, 8, 16, 32, 64)
    """
    sizes = [2**i for i in range(min(largest, n_classes).bit_length())]
    return [tuple(sizes[: i + 1]) for i in range(len(sizes))]


def wide_sizes(n_classes: int) -> tuple[int, ...]:
    """Return the largest K of this page: every size of ten classes, or powers of two to 64.

    Examples
    --------
    >>> wide_sizes(10), wide_sizes(200)
    ((1, 2, 3, 4, 5, 6, 7, 8, 9, 10), (1, 2, 4, 8, 16, 32, 64))
    """
    return tuple(range(1, n_classes + 1)) if n_classes <= 16 else growing_sizes(n_classes)[-1]


@dataclass(frozen=True)
class _Study:
    """Creates the tasks and curves of a study."""

    sources: Sources
    scale: Scale
    sizes: Mapping[str, DataSize]

    def task(self, method: str, data: str, **attributes: object) -> Task:
        """Return a task on the largest number of rows that the scale allows."""
        available, scale = self.sizes[data]["select"], self.scale
        limited = data in self.sources.panels() and scale.rows is not None
        task = Task(
            method,
            data,
            min(available, scale.rows or available) if limited else available,
            classifier_epochs=scale.classifier_epochs,
        )
        return replace(task, **attributes)  # type: ignore[arg-type]

    def selectors(self, data: str, **attributes: object) -> Task:
        """Return a task for selectors with K = {1, 2, 4, 8} and both costs."""
        scale = self.scale
        defaults: dict[str, object] = {
            "members": tuple(k for k in PAPER_SIZES if k <= self.sizes[data]["classes"]),
            "costs": tuple(COSTS),
            "weights": tuple(scale.weights(cost) for cost in COSTS),
            "refinements": scale.refinements,
            "selectors": scale.selectors if scale.average_all else 1,
            "max_epochs": scale.max_epochs,
            "patience": scale.patience,
        }
        return self.task("selectors", data, **(defaults | attributes))

    def wide(self, data: str, **attributes: object) -> Task:
        """Return a task for selectors with the largest K."""
        members = wide_sizes(self.sizes[data]["classes"])
        defaults = {"members": members, "selectors": self.scale.selectors}
        return self.selectors(data, **(defaults | attributes))

    def label(self, name: str, cost: str, average: str = SINGLE) -> str:
        """Return the label of selectors in a legend."""
        suffix = f", mean of {self.scale.selectors}" if average == MEAN else ""
        return f"{name}, cost {COSTS[cost]}{suffix}"

    def curves(
        self, name: str, task: Task, costs: Sequence[str] = tuple(COSTS), *, mean: bool = True
    ) -> tuple[Curve, ...]:
        """Return the curves of a task for some costs, single selectors and averages."""
        averages = (SINGLE, MEAN) if mean and task.selectors > 1 else (SINGLE,)
        return tuple(
            Curve(self.label(name, cost, average), (task,), cost, average)
            for average in averages
            for cost in costs
        )

    def seen(self, data: str, **attributes: object) -> Curve:
        """Return the curve of a selector that learns from rows that h was trained on."""
        options: dict[str, object] = {
            "protocol": "seen",
            "costs": ("log",),
            "weights": (self.scale.weights("log"),),
            "refinements": 0,
            "selectors": 1,
        }
        task = self.selectors(data, **(options | attributes))
        return Curve(f"{self.label(RECIPE, 'log')}, rows that h has seen", (task,), "log")

    def top_k(self, data: str, scoring: str = "full") -> Curve:
        """Return the curve of the top-k sets for all k."""
        return Curve("top-k", (self.task("top-k", data, scoring=scoring),))

    def lac(self, data: str, scoring: str = "full") -> Curve:
        """Return the curve of LAC with temperature, which is conformal prediction."""
        return Curve("conformal (LAC)", (self.task("LAC", data, scoring=scoring),))

    def panels(self, curves: Callable[[str], tuple[Curve, ...]]) -> tuple[Panel, ...]:
        """Return the panels of a figure of the paper."""
        panels = []
        for data in self.sources.panels():
            if data in self.sizes:
                panels.append(Panel(data, curves(data), TITLES[data]))
            else:
                panels.append(Panel(data, (), TITLES[data], missing=missing_message(data)))
        return tuple(panels)


def _figure_1(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        variant = study.selectors(data, inputs="both", selectors=1)
        return (
            study.top_k(data),
            *study.curves(RECIPE, study.selectors(data), ["log"]),
            study.seen(data),
            *study.curves(VARIANT, variant, ["log"]),
            study.lac(data),
        )

    caption = (
        "Accuracy versus cardinality for K = {1, 2, 4, 8} and cost log k. Each point of a curve is "
        "for one lambda."
    )
    return Figure("fig1", "Figure 1", caption, study.panels(curves), columns=3)


def _figure_2(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        variant = study.selectors(data, inputs="both", selectors=1)
        return (
            study.top_k(data),
            *study.curves(RECIPE, study.selectors(data)),
            *study.curves(VARIANT, variant),
            study.lac(data),
        )

    caption = "Accuracy versus cardinality for cost log k and cost k, with K = {1, 2, 4, 8}."
    return Figure("fig2", "Figure 2", caption, study.panels(curves), columns=3)


def _growing_tasks(study: _Study, data: str, **attributes: object) -> tuple[Task, ...]:
    """Return a task for each of the sets K = {1}, {1, 2}, {1, 2, 4} and so on."""
    options: dict[str, object] = {
        "weights": (study.scale.fixed_weights, (0.05,)),
        "refinements": 0,
        "selectors": 1,
    }
    return tuple(
        study.selectors(data, members=members, **(options | attributes))
        for members in growing_sizes(study.sizes[data]["classes"])
    )


def _growing_curves(study: _Study, data: str, weights: Sequence[float]) -> tuple[Curve, ...]:
    """Return a curve with cost log k for each lambda, and one of our variant."""
    tasks = _growing_tasks(study, data)
    return tuple(Curve(f"{RECIPE}, λ = {w:g}", tasks, "log", weight=w) for w in weights)


def _variant_curve(study: _Study, data: str) -> Curve:
    tasks = _growing_tasks(study, data, inputs="both", costs=("log",), weights=((0.05,),))
    return Curve(f"{VARIANT}, λ = 0.05", tasks, "log", weight=0.05)


def _figure_3(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        return (
            study.top_k(data),
            *_growing_curves(study, data, study.scale.fixed_weights),
            _variant_curve(study, data),
            study.lac(data),
        )

    caption = (
        "Accuracy versus cardinality for cost log k. Each curve is for one lambda. Its points are "
        "for K = {1}, {1, 2}, {1, 2, 4}, …"
    )
    return Figure("fig3", "Figure 3", caption, study.panels(curves), columns=3)


def _figure_4(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        tasks = _growing_tasks(study, data)
        return (
            study.top_k(data),
            *(Curve(study.label(RECIPE, c), tasks, c, weight=0.05) for c in COSTS),
            _variant_curve(study, data),
            study.lac(data),
        )

    caption = (
        "Accuracy versus cardinality for cost log k and cost k, with lambda = 0.05. The points of "
        "a curve are for K = {1}, {1, 2}, {1, 2, 4}, …"
    )
    return Figure("fig4", "Figure 4", caption, study.panels(curves), columns=3)


def _gaussian_task(study: _Study, data: str, rows: int, **attributes: object) -> Task:
    """Return a task for the paper's selector with threshold sets on artificial data."""
    scale = study.scale
    averaged = data == "gaussian-unequal" and rows == scale.sample_sizes[-1]
    grid = replace(scale, points=min(scale.points, MAX_GAUSSIAN_POINTS))
    options: dict[str, object] = {
        "family": "threshold",
        "members": THRESHOLDS,
        "rows": rows,
        "weights": tuple(grid.weights(cost, artificial=True) for cost in COSTS),
        "refinements": min(scale.refinements, 1),
        "selectors": scale.selectors if averaged else 1,
    }
    return study.selectors(data, **(options | attributes))


def _shown_counts(study: _Study) -> list[int]:
    """Return the numbers of rows whose curves are shown: 50,000 and the largest."""
    counts = study.scale.sample_sizes
    return sorted({min(50_000, counts[-1]), counts[-1]})


def _gaussian_curves(study: _Study, data: str) -> tuple[Curve, ...]:
    """Return the curves of accuracy against mean size on artificial data."""
    most = study.scale.sample_sizes[-1]
    selectors = [
        replace(curve, label=f"{curve.label}, m = {m:,}")
        for m in _shown_counts(study)
        for curve in study.curves(RECIPE, _gaussian_task(study, data, m))
    ]
    variant = _gaussian_task(study, data, _shown_counts(study)[0], inputs="both", selectors=1)
    optimal = replace(_gaussian_task(study, data, most), method="Bayes selector", selectors=1)
    return (
        study.lac(data),
        *selectors,
        *(
            replace(curve, label=f"{curve.label}, m = {variant.rows:,}")
            for curve in study.curves(VARIANT, variant, ["linear"])
        ),
        *(Curve(f"r*, cost {COSTS[cost]}", (optimal,), cost) for cost in COSTS),
        Curve("one threshold on the true probabilities", (study.task("Bayes", data),)),
    )


def _gaussian_by_rows(study: _Study, data: str) -> tuple[Curve, ...]:
    """Return the curves of mean size against the number of rows on artificial data."""
    counts = study.scale.sample_sizes
    tasks = tuple(_gaussian_task(study, data, m) for m in counts)
    return (
        Curve("conformal (LAC)", tuple(study.task("LAC", data, rows=m) for m in counts)),
        *(Curve(study.label(RECIPE, cost), tasks, cost) for cost in COSTS),
        Curve("one threshold on the true probabilities", (study.task("Bayes", data),)),
    )


def _figure_5(study: _Study) -> Figure:
    caption = (
        "Threshold sets and conformal prediction on artificial data, with equal and with unequal "
        "covariances of the classes. Left: accuracy versus cardinality for several numbers m of "
        "rows to train the selector on; stars are the optimal selector r*. Right: cardinality at "
        "95% accuracy against m."
    )
    panels = []
    for data in ("gaussian-unequal", "gaussian-equal"):
        title = TITLES[data]
        panels.append(Panel(data, _gaussian_curves(study, data), title))
        panels.append(Panel(data, _gaussian_by_rows(study, data), title, by_rows=True))
    return Figure("fig5", "Figure 5", caption, tuple(panels), columns=2)


def _figure_6(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        weak: dict[str, object] = {
            "scoring": "weak",
            "family": "threshold",
            "members": THRESHOLDS,
        }
        variant = study.selectors(data, inputs="both", selectors=1, **weak)
        return (
            study.lac(data, "weak"),
            *study.curves(RECIPE, study.selectors(data, **weak)),
            *study.curves(VARIANT, variant),
            study.top_k(data, "weak"),
        )

    caption = (
        "Accuracy versus cardinality of threshold sets with a weak scoring function: h sees one "
        "feature for every six classes, and r sees all features."
    )
    return Figure("fig6", "Figure 6", caption, study.panels(curves), columns=3)


def _wide(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        return (
            study.top_k(data),
            *study.curves(RECIPE, study.wide(data)),
            *study.curves(VARIANT, study.wide(data, inputs="both", selectors=1)),
            study.lac(data),
        )

    caption = (
        "Figure 2 with the largest K: {1, 2, 4, …, 64}, or every size if there are ten classes. "
        "The claims at 98% and 95% accuracy are judged with K = {1, 2, 4, 8} and with this one."
    )
    return Figure("wide", "The largest K", caption, study.panels(curves), columns=3)


def _sensitivity(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        return (
            study.top_k(data),
            *study.curves(RECIPE, study.wide(data), mean=False),
            *(
                replace(curve, label=f"{curve.label}, {name}")
                for name, options in SETTINGS.items()
                for curve in study.curves(RECIPE, study.wide(data, selectors=1, **options))
            ),
        )

    panels = study.panels(curves)
    data = "gaussian-similar"
    if data in study.sizes:
        rows = study.scale.sample_sizes[-1]
        gaussian = study.curves(RECIPE, _gaussian_task(study, data, rows, selectors=1))
        panels += (Panel(data, (study.lac(data), *gaussian), TITLES[data]),)
    caption = (
        "The paper's recipe with the largest K and other settings. In the last panel, the "
        "covariances of artificial classes are more similar: the logarithms of the variances have "
        "standard deviation 0.2 instead of 0.4."
    )
    return Figure("settings", "Other settings", caption, panels, columns=3)


def _losses(study: _Study) -> Figure:
    data = study.sources.panels()[0]
    caption = (
        "The eight cost-sensitive losses, with K = {1, 2, 4, 8} and cost log k. The paper shows "
        "the logistic loss only."
    )
    title = "The eight losses"
    if data not in study.sizes:
        panel = Panel(data, (), TITLES[data], missing_message(data))
        return Figure("losses", title, caption, (panel,), columns=1)
    options: dict[str, object] = {
        "costs": ("log",),
        "weights": (study.scale.weights("log"),),
        "selectors": 1,
    }
    curves = (
        study.top_k(data),
        *(
            Curve(loss.replace("_", " "), (study.selectors(data, loss=loss, **options),), "log")
            for loss in LOSSES
        ),
        study.lac(data),
    )
    return Figure("losses", title, caption, (Panel(data, curves, TITLES[data]),), columns=1)


FIGURES: dict[str, Callable[[_Study], Figure]] = {
    "fig1": _figure_1,
    "fig2": _figure_2,
    "fig3": _figure_3,
    "fig4": _figure_4,
    "fig5": _figure_5,
    "fig6": _figure_6,
    "wide": _wide,
    "settings": _sensitivity,
    "losses": _losses,
}
