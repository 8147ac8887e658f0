"""The figures of the paper: which curves they show, and the tasks that compute each curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from shortlist.paper.panels import Curve, Figure, Panel
from shortlist.paper.scale import Scale
from shortlist.paper.sources import TITLES, DataSize, Sources, missing_message
from shortlist.paper.tasks import Task

LOSSES = ("log", "exp", "gce", "mae", "constrained_exp", "squared_hinge", "hinge", "margin")
ARTIFICIAL_WEIGHTS = {
    "log": (0.4, 0.28, 0.2, 0.14, 0.08, 0.04),
    "linear": (0.12, 0.07, 0.045, 0.03, 0.02, 0.01),
}
COSTS = {"log": "log k", "linear": "k"}
"""Costs in the notation of the paper."""


def make_figures(
    names: list[str], sources: Sources, scale: Scale, sizes: Mapping[str, DataSize]
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


@dataclass(frozen=True)
class _Study:
    """Creates the tasks and curves of a study."""

    sources: Sources
    scale: Scale
    sizes: Mapping[str, DataSize]

    def task(self, method: str, data: str, **attributes: object) -> Task:
        """Return a task on the largest number of rows that the scale allows."""
        is_weak = attributes.get("scoring") == "weak"
        largest = self.scale.weak_rows if is_weak else self.scale.rows
        available = self.sizes[data]["select"]
        rows = available if data == "gaussian" else min(available, largest)
        if method == "Shortlister":
            attributes.setdefault("epochs", self.scale.shortlister_epochs)
        return replace(Task(method, data, rows), **attributes)  # type: ignore[arg-type]

    def paper(self, data: str, **attributes: object) -> Task:
        """Return a task for the paper's selector; by default K = {1, 2, 4, 8} and cost log k."""
        defaults: dict[str, object] = {
            "members": tuple(k for k in (1, 2, 4, 8) if k <= self.sizes[data]["classes"]),
            "weights": self.scale.weights(str(attributes.get("cost", "log"))),
            "epochs": self.scale.epochs,
        }
        return self.task("cardinality-aware", data, **(defaults | attributes))

    def small_weights(self, highest: float) -> tuple[float, ...]:
        """Return cost weights for the cost k where sets are large, in decreasing order."""
        return tuple(np.geomspace(highest, 0.0005, self.scale.points).round(6).tolist())

    def reference_curves(self, data: str, scoring: str = "full") -> tuple[Curve, ...]:
        """Return the curves of LAC and of the Shortlister, which every panel shows."""
        return tuple(
            Curve(label, (self.task(method, data, scoring=scoring),))
            for method, label in (
                ("LAC", "LAC with temperature"),
                ("Shortlister", "Shortlister"),
            )
        )

    def top_k(self, data: str, scoring: str = "full") -> Curve:
        """Return the curve of the top-k sets for all k."""
        return Curve("top-k", (self.task("top-k", data, scoring=scoring),))

    def panels(self, curves: Callable[[str], tuple[Curve, ...]]) -> tuple[Panel, ...]:
        """Return the four panels of a figure of the paper."""
        panels = []
        for data in self.sources.panels():
            if data in self.sizes:
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

    caption = (
        "Accuracy versus cardinality for K = {1, 2, 4, 8} and cost log k. Each point of a curve is "
        "for one lambda."
    )
    return Figure("fig1", caption, study.panels(curves), columns=4)


def _figure_2(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        return (
            study.top_k(data),
            *(
                Curve(f"cost {notation}", (study.paper(data, cost=cost),))
                for cost, notation in COSTS.items()
            ),
            Curve("cost log k, seen rows", (study.paper(data, protocol="seen"),)),
            *study.reference_curves(data),
        )

    caption = "Accuracy versus cardinality for cost log k and cost k, with K = {1, 2, 4, 8}."
    return Figure("fig2", caption, study.panels(curves), columns=4)


def _growing_tasks(
    study: _Study, data: str, weights: tuple[float, ...], **attributes: object
) -> tuple[Task, ...]:
    """Return a task for each of the sets K = {1}, {1, 2}, {1, 2, 4} and so on."""
    return tuple(
        study.paper(data, members=members, weights=weights, **attributes)
        for members in growing_sizes(study.sizes[data]["classes"])
    )


def _figure_3(study: _Study) -> Figure:
    weights = study.scale.fixed_weights

    def curves(data: str) -> tuple[Curve, ...]:
        held_out = _growing_tasks(study, data, weights)
        seen = _growing_tasks(study, data, (0.05,), protocol="seen")
        return (
            study.top_k(data),
            *(Curve(f"λ = {weight:g}", held_out, weight) for weight in weights),
            Curve("λ = 0.05, seen rows", seen, 0.05),
            *study.reference_curves(data),
        )

    caption = (
        "Accuracy versus cardinality for cost log k. Each curve is for one lambda. Its points are "
        "for K = {1}, {1, 2}, {1, 2, 4}, …"
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
    """Return a task for the paper's selector with threshold sets on artificial data."""
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
    counts, data = study.scale.sample_sizes, "gaussian"
    few = min(5_000, counts[-1])
    many = min(study.scale.largest_shortlister, counts[-1])
    shown = sorted({min(50_000, counts[-1]), counts[-1]} if len(counts) > 3 else counts[-2:])
    optimal = [
        replace(_gaussian_selector(study, cost, counts[-1]), method="Bayes selector")
        for cost in COSTS
    ]
    return (
        Curve(f"conformal (LAC), m = {many:,}", (study.task("LAC", data, rows=many),)),
        *(
            Curve(
                f"cardinality-aware, cost {notation}, m = {m:,}",
                (_gaussian_selector(study, cost, m),),
            )
            for cost, notation in COSTS.items()
            for m in shown
        ),
        *(Curve(f"r*, cost {COSTS[task.cost]}", (task,)) for task in optimal),
        *(
            Curve(f"Shortlister, m = {m:,}", (study.task("Shortlister", data, rows=m),))
            for m in (few, many)
        ),
        _bayes_curve(study),
    )


def _gaussian_by_rows(study: _Study) -> tuple[Curve, ...]:
    """Return the curves of mean size against the number of rows on artificial data."""
    counts, data = study.scale.sample_sizes, "gaussian"
    small = [m for m in counts if m <= study.scale.largest_shortlister]
    return (
        Curve("conformal (LAC)", tuple(study.task("LAC", data, rows=m) for m in counts)),
        *(
            Curve(
                f"cardinality-aware, cost {notation}",
                tuple(_gaussian_selector(study, cost, m) for m in counts),
            )
            for cost, notation in COSTS.items()
        ),
        Curve("Shortlister", tuple(study.task("Shortlister", data, rows=m) for m in small)),
        _bayes_curve(study),
    )


def _figure_5(study: _Study) -> Figure:
    caption = (
        "Threshold sets and conformal prediction on artificial data, for several numbers m of rows "
        "to fit on. The other panels show the mean size at 95% accuracy against m, also for real "
        "data (top-k sets with K up to 64)."
    )
    data = "gaussian"
    panels = [
        Panel(data, _gaussian_curves(study), TITLES[data]),
        Panel(data, _gaussian_by_rows(study), "Gaussian classes: mean size at 95%", by_rows=True),
    ]
    real = study.sources.panels()[0]
    if real in study.sizes:
        title = f"{TITLES[real]}: mean size at 95%"
        panels.append(Panel(real, _by_rows(study, real), title, by_rows=True))
    return Figure("fig5", caption, tuple(panels), columns=len(panels))


def _by_rows(study: _Study, data: str) -> tuple[Curve, ...]:
    """Return the curves of mean size against the number of rows, with the largest K."""
    available = study.task("LAC", data).rows
    counts = [m for m in study.scale.sample_sizes if m < available] + [available]
    members = growing_sizes(study.sizes[data]["classes"])[-1]
    selectors = {
        "log": study.paper(data, members=members),
        "linear": study.paper(
            data, members=members, cost="linear", weights=study.small_weights(0.1)
        ),
    }

    def curve(label: str, task: Task) -> Curve:
        return Curve(label, tuple(replace(task, rows=m) for m in counts))

    return (
        curve("conformal (LAC)", study.task("LAC", data)),
        *(
            curve(f"cardinality-aware, cost {notation}", selectors[cost])
            for cost, notation in COSTS.items()
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
        selectors = {
            "log": study.paper(data, **weak),
            "linear": study.paper(data, cost="linear", weights=study.small_weights(0.2), **weak),
        }
        return (
            replace(lac, label="conformal (LAC with temperature)"),
            *(Curve(f"cost {notation}", (selectors[cost],)) for cost, notation in COSTS.items()),
            Curve("cost log k, seen rows", (study.paper(data, protocol="seen", **weak),)),
            Curve("Denis and Hebiri", (study.task("Denis and Hebiri", data, scoring="weak"),)),
            study.top_k(data, "weak"),
            shortlister,
        )

    caption = (
        "Accuracy versus cardinality of threshold sets with a weak scoring function: h sees one "
        "feature for every six classes."
    )
    return Figure("fig6", caption, study.panels(curves), columns=2)


def _losses(study: _Study) -> Figure:
    data = study.sources.panels()[0]
    caption = (
        "The eight cost-sensitive losses, with K = {1, 2, 4, 8} and cost log k. The paper shows "
        "the logistic loss only."
    )
    if data not in study.sizes:
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
