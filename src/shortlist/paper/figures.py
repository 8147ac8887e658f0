"""The figures of the paper: their panels, the curves in each, and the tasks behind each curve."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from shortlist.paper.scale import Scale
from shortlist.paper.sources import TITLES, Sources, missing_message
from shortlist.paper.tasks import Task, growing_sizes

LOSSES = ("log", "exp", "gce", "mae", "constrained_exp", "squared_hinge", "hinge", "margin")
ARTIFICIAL_WEIGHTS = {
    "log": (0.4, 0.28, 0.2, 0.14, 0.08, 0.04),
    "linear": (0.12, 0.07, 0.045, 0.03, 0.02, 0.01),
}
COSTS = {"log": "log k", "linear": "k"}
"""Costs in the notation of the paper."""


@dataclass(frozen=True)
class Curve:
    """A curve of a panel: the points of one task, or one point of each of several tasks.

    Attributes
    ----------
    label : str
        Name in the legend.
    tasks : tuple of Task
        Tasks, without seeds.
    weight : float or None
        If given, only the points of this lambda.
    """

    label: str
    tasks: tuple[Task, ...]
    weight: float | None = None

    @property
    def task(self) -> Task:
        """The last task, which has the most rows or the largest family."""
        return self.tasks[-1]

    @property
    def is_shortlister(self) -> bool:
        """Whether the curve is that of the Shortlister."""
        return self.task.method == "Shortlister"

    @property
    def is_paper(self) -> bool:
        """Whether the curve is that of the paper's selector."""
        return self.task.method == "cardinality-aware"


@dataclass(frozen=True)
class Panel:
    """A panel of a figure.

    Attributes
    ----------
    data : str
        Name of the data set.
    curves : tuple of Curve
        Curves to plot.
    title : str
        Title of the panel.
    missing : str
        Why there are no curves.
    by_rows : bool
        Whether to plot the mean size at 95% against the number of rows.
    """

    data: str
    curves: tuple[Curve, ...]
    title: str
    missing: str = ""
    by_rows: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure: its panels and their layout."""

    name: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int

    def tasks(self) -> Iterator[Task]:
        """Yield all tasks of the figure."""
        for panel in self.panels:
            for curve in panel.curves:
                yield from curve.tasks


def make_figures(
    names: list[str], sources: Sources, scale: Scale, known: Mapping[str, Mapping[str, int]]
) -> list[Figure]:
    """Return figures by name; `known` has the numbers of classes and rows of each data set."""
    return [FIGURES[name](_Study(sources, scale, known)) for name in names]


@dataclass(frozen=True)
class _Study:
    """Makes the tasks and curves of a study."""

    sources: Sources
    scale: Scale
    known: Mapping[str, Mapping[str, int]]

    def task(self, method: str, data: str, **more: object) -> Task:
        most = self.scale.weak_rows if more.get("scoring") == "weak" else self.scale.rows
        available = self.known[data]["select"]
        rows = available if data == "gaussian" else min(available, most)
        if method == "Shortlister":
            more.setdefault("epochs", self.scale.shortlister_epochs)
        return replace(Task(method, data, rows), **more)  # type: ignore[arg-type]

    def paper(self, data: str, **more: object) -> Task:
        """Return a task for the paper's selector; by default K = {1, 2, 4, 8} and cost log k."""
        standard: dict[str, object] = {
            "members": tuple(k for k in (1, 2, 4, 8) if k <= self.known[data]["classes"]),
            "weights": self.scale.weights(str(more.get("cost", "log"))),
            "epochs": self.scale.epochs,
        }
        return self.task("cardinality-aware", data, **(standard | more))

    def reference_curves(self, data: str, scoring: str = "full") -> tuple[Curve, ...]:
        """Return the curves that every panel shows for reference."""
        return tuple(
            Curve(label, (self.task(method, data, scoring=scoring),))
            for method, label in (
                ("LAC", "LAC with temperature"),
                ("Shortlister", "Shortlister"),
            )
        )

    def top_k(self, data: str, scoring: str = "full") -> Curve:
        return Curve("top-k", (self.task("top-k", data, scoring=scoring),))

    def panels(self, curves: Callable[[str], tuple[Curve, ...]]) -> tuple[Panel, ...]:
        """Return the four panels of the paper."""
        panels = []
        for data in self.sources.panels():
            if data in self.known:
                panels.append(Panel(data, curves(data), TITLES[data]))
            else:
                panels.append(Panel(data, (), TITLES[data], missing=missing_message(data)))
        return tuple(panels)


def _figure_1(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        return (
            study.top_k(data),
            Curve("cardinality-aware", (study.paper(data),)),
            Curve("cardinality-aware, seen rows", (study.paper(data, protocol="seen"),)),
            *study.reference_curves(data),
        )

    caption = "Accuracy versus cardinality for K = {1, 2, 4, 8}. Cost log k, lambda varied."
    return Figure("fig1", caption, study.panels(curves), columns=4)


def _figure_2(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        return (
            study.top_k(data),
            *(
                Curve(f"cost {word}", (study.paper(data, cost=cost),))
                for cost, word in COSTS.items()
            ),
            Curve("cost log k, seen rows", (study.paper(data, protocol="seen"),)),
            *study.reference_curves(data),
        )

    caption = "Accuracy versus cardinality for cost log k and cost k, with K = {1, 2, 4, 8}."
    return Figure("fig2", caption, study.panels(curves), columns=4)


def _growing_tasks(
    study: _Study, data: str, weights: tuple[float, ...], **more: object
) -> tuple[Task, ...]:
    """Return a task for each K, where K grows by doubling."""
    return tuple(
        study.paper(data, members=members, weights=weights, **more)
        for members in growing_sizes(study.known[data]["classes"])
    )


def _figure_3(study: _Study) -> Figure:
    weights = study.scale.fixed_weights

    def curves(data: str) -> tuple[Curve, ...]:
        grown = _growing_tasks(study, data, weights)
        seen = _growing_tasks(study, data, (0.05,), protocol="seen")
        return (
            study.top_k(data),
            *(Curve(f"λ = {weight:g}", grown, weight) for weight in weights),
            Curve("λ = 0.05, seen rows", seen, 0.05),
            *study.reference_curves(data),
        )

    caption = (
        "Accuracy versus cardinality for cost log k. Each curve is for one lambda; its points "
        "are for K = {1}, {1, 2}, {1, 2, 4}, …"
    )
    return Figure("fig3", caption, study.panels(curves), columns=2)


def _figure_4(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        logarithmic = _growing_tasks(study, data, study.scale.fixed_weights)
        linear = _growing_tasks(study, data, (0.05,), cost="linear")
        seen = _growing_tasks(study, data, (0.05,), protocol="seen")
        return (
            study.top_k(data),
            Curve("cost log k", logarithmic, 0.05),
            Curve("cost k", linear, 0.05),
            Curve("cost log k, seen rows", seen, 0.05),
            *study.reference_curves(data),
        )

    caption = (
        "Accuracy versus cardinality for cost log k and cost k, with lambda = 0.05. The points of "
        "a curve are for K = {1}, {1, 2}, {1, 2, 4}, …"
    )
    return Figure("fig4", caption, study.panels(curves), columns=2)


def _gaussian_selector(study: _Study, cost: str, rows: int) -> Task:
    """Return a task for the paper's selector on artificial data, with threshold sets."""
    return study.paper(
        "gaussian",
        family="threshold",
        members=tuple(np.geomspace(0.5, 0.001, 12).round(6).tolist()),
        cost=cost,
        weights=ARTIFICIAL_WEIGHTS[cost],
        rows=rows,
        epochs=study.scale.epochs_for(rows),
    )


def _bayes_curve(study: _Study) -> Curve:
    return Curve("Bayes: the true probabilities", (study.task("Bayes", "gaussian"),))


def _gaussian_curves(study: _Study) -> tuple[Curve, ...]:
    """Return the curves of accuracy against mean size on artificial data."""
    sizes, data = study.scale.sample_sizes, "gaussian"
    few = min(5_000, sizes[-1])
    most = min(study.scale.largest_shortlister, sizes[-1])
    shown = sorted({min(50_000, sizes[-1]), sizes[-1]} if len(sizes) > 3 else sizes[-2:])
    best = [
        replace(_gaussian_selector(study, cost, sizes[-1]), method="Bayes selector")
        for cost in COSTS
    ]
    return (
        Curve(f"conformal (LAC), m = {most:,}", (study.task("LAC", data, rows=most),)),
        *(
            Curve(
                f"cardinality-aware, cost {word}, m = {m:,}", (_gaussian_selector(study, cost, m),)
            )
            for cost, word in COSTS.items()
            for m in shown
        ),
        *(Curve(f"r*, cost {COSTS[task.cost]}", (task,)) for task in best),
        *(
            Curve(f"Shortlister, m = {m:,}", (study.task("Shortlister", data, rows=m),))
            for m in (few, most)
        ),
        _bayes_curve(study),
    )


def _gaussian_by_rows(study: _Study) -> tuple[Curve, ...]:
    """Return the curves of mean size against the number of rows on artificial data."""
    sizes, data = study.scale.sample_sizes, "gaussian"
    small = [m for m in sizes if m <= study.scale.largest_shortlister]
    return (
        Curve("conformal (LAC)", tuple(study.task("LAC", data, rows=m) for m in sizes)),
        *(
            Curve(
                f"cardinality-aware, cost {word}",
                tuple(_gaussian_selector(study, cost, m) for m in sizes),
            )
            for cost, word in COSTS.items()
        ),
        Curve("Shortlister", tuple(study.task("Shortlister", data, rows=m) for m in small)),
        _bayes_curve(study),
    )


def _figure_5(study: _Study) -> Figure:
    caption = (
        "Artificial data: threshold sets against conformal prediction, for different sizes m of "
        "the sample to select by; and the mean size at 95% against m, for real data too (top-k "
        "sets with K up to 64)."
    )
    data = "gaussian"
    panels = [
        Panel(data, _gaussian_curves(study), TITLES[data]),
        Panel(data, _gaussian_by_rows(study), "Gaussian classes: mean size at 95%", by_rows=True),
    ]
    real = study.sources.panels()[0]
    if real in study.known:
        title = f"{TITLES[real]}: mean size at 95%"
        panels.append(Panel(real, _by_rows(study, real), title, by_rows=True))
    return Figure("fig5", caption, tuple(panels), columns=len(panels))


def _by_rows(study: _Study, data: str) -> tuple[Curve, ...]:
    """Return curves over the number of rows of real data, with top-k sets for the largest K."""
    most = study.task("LAC", data).rows
    counts = [m for m in study.scale.sample_sizes if m < most] + [most]
    lower = tuple(np.geomspace(0.1, 0.0005, study.scale.points).round(6).tolist())
    largest: dict[str, object] = {"members": growing_sizes(study.known[data]["classes"])[-1]}
    costly: dict[str, dict[str, object]] = {
        "log": {"cost": "log"},
        "linear": {"cost": "linear", "weights": lower},
    }

    def curve(label: str, task: Task) -> Curve:
        return Curve(label, tuple(replace(task, rows=m) for m in counts))

    return (
        curve("conformal (LAC)", study.task("LAC", data)),
        *(
            curve(f"cardinality-aware, cost {word}", study.paper(data, **largest, **costly[cost]))
            for cost, word in COSTS.items()
        ),
        curve("Shortlister", study.task("Shortlister", data)),
    )


def _figure_6(study: _Study) -> Figure:
    thresholds = tuple(np.geomspace(0.5, 0.0005, 12).round(6).tolist())

    def curves(data: str) -> tuple[Curve, ...]:
        lac, shortlister = study.reference_curves(data, "weak")
        weak: dict[str, object] = {
            "scoring": "weak",
            "family": "threshold",
            "members": thresholds,
        }
        # Sets are large here, so lambdas must be small.
        lower = tuple(np.geomspace(0.2, 0.0005, study.scale.points).round(6).tolist())
        costly: dict[str, dict[str, object]] = {
            "log": {},
            "linear": {"cost": "linear", "weights": lower},
        }
        return (
            replace(lac, label="conformal (LAC with temperature)"),
            *(
                Curve(f"cost {word}", (study.paper(data, **weak, **costly[cost]),))
                for cost, word in COSTS.items()
            ),
            Curve("cost log k, seen rows", (study.paper(data, protocol="seen", **weak),)),
            Curve("Denis and Hebiri", (study.task("Denis and Hebiri", data, scoring="weak"),)),
            study.top_k(data, "weak"),
            shortlister,
        )

    caption = (
        "Accuracy versus cardinality of threshold sets with a weak scoring function: h sees one "
        "feature for six classes."
    )
    return Figure("fig6", caption, study.panels(curves), columns=2)


def _losses(study: _Study) -> Figure:
    data = study.sources.panels()[0]
    caption = (
        "The eight cost-sensitive losses, with K = {1, 2, 4, 8} and cost log k (the paper shows "
        "the logistic one)."
    )
    if data not in study.known:
        return Figure("losses", caption, (Panel(data, (), TITLES[data], missing_message(data)),), 1)
    curves = (
        study.top_k(data),
        *(Curve(loss.replace("_", " "), (study.paper(data, loss=loss),)) for loss in LOSSES),
        *study.reference_curves(data),
    )
    return Figure("losses", caption, (Panel(data, curves, TITLES[data]),), columns=1)


FIGURES: dict[str, Callable[[_Study], Figure]] = {
    "fig1": _figure_1,
    "fig2": _figure_2,
    "fig3": _figure_3,
    "fig4": _figure_4,
    "fig5": _figure_5,
    "fig6": _figure_6,
    "losses": _losses,
}
