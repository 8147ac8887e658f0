"""The paper's figures: which curves stand in which panel, and what each needs to be fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from shortlist.paper.sources import TITLES, Sources, absence
from shortlist.paper.tasks import Task, growing

LOSSES = ("log", "exp", "gce", "mae", "constrained_exp", "squared_hinge", "hinge", "margin")
ARTIFICIAL_WEIGHTS = {
    "log": (0.4, 0.28, 0.2, 0.14, 0.08, 0.04),
    "linear": (0.12, 0.07, 0.045, 0.03, 0.02, 0.01),
}
COSTS = {"log": "log k", "linear": "k"}
"""How the paper writes the costs."""


@dataclass(frozen=True)
class Scale:
    """How much of everything: what tells the whole study from a quick look."""

    seeds: int = 3
    points: int = 8
    """Lambdas of a curve."""
    fixed_weights: tuple[float, ...] = (0.1, 0.05, 0.02, 0.01)
    """The lambdas of figure 3."""
    rows: int = 30_000
    """To select by, of the real data, at most …"""
    weak_rows: int = 20_000
    """… and for a weak scoring function, of which the paper says that fewer will do."""
    sample_sizes: tuple[int, ...] = (1_000, 5_000, 20_000, 50_000, 150_000, 500_000)
    largest_shortlister: int = 50_000
    """The Shortlister is fitted on so many artificial rows at most."""
    epochs: int = 15
    steps: int = 12_000
    """A training takes about so many at most, however many rows there are."""
    classifier_rows: int = 20_000
    test_rows: int = 20_000

    def weights(self, cost: str) -> tuple[float, ...]:
        """Lambdas from high to low. Costs k are higher, so that their lambdas are lower."""
        high, low = (0.4, 0.01) if cost == "log" else (0.3, 0.003)
        return tuple(np.geomspace(high, low, self.points).round(6).tolist())

    def epochs_for(self, rows: int) -> int:
        return max(2, min(self.epochs, round(self.steps * 128 / rows)))


QUICK = Scale(
    seeds=1,
    points=5,
    fixed_weights=(0.05, 0.01),
    rows=5_000,
    weak_rows=5_000,
    sample_sizes=(1_000, 5_000, 20_000),
    largest_shortlister=20_000,
    epochs=5,
    test_rows=10_000,
)


@dataclass(frozen=True)
class Curve:
    """A line of a panel: the points of one task, or one point of each of several."""

    label: str
    tasks: tuple[Task, ...]
    """Without their seeds."""
    weight: float | None = None
    """Only the points of this lambda."""

    @property
    def task(self) -> Task:
        """The last of the tasks, which the others grow up to."""
        return self.tasks[-1]

    @property
    def is_ours(self) -> bool:
        return self.task.method == "Shortlister"

    @property
    def is_the_papers(self) -> bool:
        return self.task.method == "cardinality-aware"


@dataclass(frozen=True)
class Panel:
    data: str
    curves: tuple[Curve, ...]
    title: str
    missing: str = ""
    """Why there are no curves."""
    by_rows: bool = False
    """Mean size at 95% against the number of rows to select by, rather than a curve."""


@dataclass(frozen=True)
class Figure:
    name: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int

    def tasks(self) -> Iterator[Task]:
        for panel in self.panels:
            for curve in panel.curves:
                yield from curve.tasks


def define(
    names: list[str], sources: Sources, scale: Scale, known: Mapping[str, Mapping[str, int]]
) -> list[Figure]:
    """The figures asked for; `known` has the classes and rows of each data set that is there."""
    return [FIGURES[name](_Study(sources, scale, known)) for name in names]


@dataclass(frozen=True)
class _Study:
    sources: Sources
    scale: Scale
    known: Mapping[str, Mapping[str, int]]

    def task(self, method: str, data: str, **more: object) -> Task:
        most = self.scale.weak_rows if more.get("scoring") == "weak" else self.scale.rows
        there = self.known[data]["select"]
        rows = there if data == "gaussian" else min(there, most)
        return replace(Task(method, data, rows), **more)  # type: ignore[arg-type]

    def paper(self, data: str, **more: object) -> Task:
        """The paper's selectors for a path of lambdas, K = {1, 2, 4, 8} and log cost by default."""
        standard: dict[str, object] = {
            "members": tuple(k for k in (1, 2, 4, 8) if k <= self.known[data]["classes"]),
            "weights": self.scale.weights(str(more.get("cost", "log"))),
            "epochs": self.scale.epochs,
        }
        return self.task("cardinality-aware", data, **(standard | more))

    def beside(self, data: str, scoring: str = "full") -> tuple[Curve, ...]:
        """What stands beside the paper's curves in every panel."""
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
        """The paper's four panels."""
        found = []
        for data in self.sources.panels():
            if data in self.known:
                found.append(Panel(data, curves(data), TITLES[data]))
            else:
                found.append(Panel(data, (), TITLES[data], missing=absence(data)))
        return tuple(found)


def _figure_1(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        return (
            study.top_k(data),
            Curve("cardinality-aware", (study.paper(data),)),
            Curve("cardinality-aware, seen rows", (study.paper(data, protocol="seen"),)),
            *study.beside(data),
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
            *study.beside(data),
        )

    caption = "Accuracy versus cardinality for cost log k and cost k, with K = {1, 2, 4, 8}."
    return Figure("fig2", caption, study.panels(curves), columns=4)


def _grown(
    study: _Study, data: str, weights: tuple[float, ...], **more: object
) -> tuple[Task, ...]:
    """A task for each K of those that grow by doubling."""
    return tuple(
        study.paper(data, members=members, weights=weights, **more)
        for members in growing(study.known[data]["classes"])
    )


def _figure_3(study: _Study) -> Figure:
    weights = study.scale.fixed_weights

    def curves(data: str) -> tuple[Curve, ...]:
        grown = _grown(study, data, weights)
        seen = _grown(study, data, (0.05,), protocol="seen")
        return (
            study.top_k(data),
            *(Curve(f"λ = {weight:g}", grown, weight) for weight in weights),
            Curve("λ = 0.05, seen rows", seen, 0.05),
            *study.beside(data),
        )

    caption = (
        "Accuracy versus cardinality for cost log k. Each curve is for one lambda; its points "
        "are for K = {1}, {1, 2}, {1, 2, 4}, …"
    )
    return Figure("fig3", caption, study.panels(curves), columns=2)


def _figure_4(study: _Study) -> Figure:
    def curves(data: str) -> tuple[Curve, ...]:
        logarithmic = _grown(study, data, study.scale.fixed_weights)
        linear = _grown(study, data, (0.05,), cost="linear")
        seen = _grown(study, data, (0.05,), protocol="seen")
        return (
            study.top_k(data),
            Curve("cost log k", logarithmic, 0.05),
            Curve("cost k", linear, 0.05),
            Curve("cost log k, seen rows", seen, 0.05),
            *study.beside(data),
        )

    caption = (
        "Accuracy versus cardinality for cost log k and cost k, with lambda = 0.05. The points of "
        "a curve are for K = {1}, {1, 2}, {1, 2, 4}, …"
    )
    return Figure("fig4", caption, study.panels(curves), columns=2)


def _figure_5(study: _Study) -> Figure:
    sizes = study.scale.sample_sizes
    data = "gaussian"
    thresholds = tuple(np.geomspace(0.5, 0.001, 12).round(6).tolist())

    def learned(cost: str, rows: int) -> Task:
        return study.paper(
            data,
            family="threshold",
            members=thresholds,
            cost=cost,
            weights=ARTIFICIAL_WEIGHTS[cost],
            rows=rows,
            epochs=study.scale.epochs_for(rows),
        )

    def ours(method: str, rows: int) -> Task:
        return study.task(method, data, rows=rows)

    few = min(5_000, sizes[-1])
    most = min(study.scale.largest_shortlister, sizes[-1])
    shown = sorted({min(50_000, sizes[-1]), sizes[-1]} if len(sizes) > 3 else sizes[-2:])
    bayes = Curve("Bayes: the true probabilities", (study.task("Bayes", data),))
    best = [replace(learned(cost, sizes[-1]), method="Bayes selector") for cost in COSTS]
    curves = (
        Curve(f"conformal (LAC), m = {most:,}", (ours("LAC", most),)),
        *(
            Curve(f"cardinality-aware, cost {word}, m = {m:,}", (learned(cost, m),))
            for cost, word in COSTS.items()
            for m in shown
        ),
        *(Curve(f"r*, cost {COSTS[task.cost]}", (task,)) for task in best),
        *(Curve(f"Shortlister, m = {m:,}", (ours("Shortlister", m),)) for m in (few, most)),
        bayes,
    )
    small = [m for m in sizes if m <= study.scale.largest_shortlister]
    by_rows = (
        Curve("conformal (LAC)", tuple(ours("LAC", m) for m in sizes)),
        *(
            Curve(f"cardinality-aware, cost {word}", tuple(learned(cost, m) for m in sizes))
            for cost, word in COSTS.items()
        ),
        Curve("Shortlister", tuple(ours("Shortlister", m) for m in small)),
        bayes,
    )
    caption = (
        "Artificial data: threshold sets against conformal prediction, for different sizes m of "
        "the sample to select by; and the mean size at 95% against m, for real data too (top-k "
        "sets with K up to 64)."
    )
    panels = [
        Panel(data, curves, TITLES[data]),
        Panel(data, by_rows, "Gaussian classes: mean size at 95%", by_rows=True),
    ]
    real = study.sources.panels()[0]
    if real in study.known:
        title = f"{TITLES[real]}: mean size at 95%"
        panels.append(Panel(real, _by_rows(study, real), title, by_rows=True))
    return Figure("fig5", caption, tuple(panels), columns=len(panels))


def _by_rows(study: _Study, data: str) -> tuple[Curve, ...]:
    """Real data, more and more of it; top-k sets for the largest K, which reaches far enough."""
    most = study.task("LAC", data).rows
    counts = [m for m in study.scale.sample_sizes if m < most] + [most]
    lower = tuple(np.geomspace(0.1, 0.0005, study.scale.points).round(6).tolist())
    largest: dict[str, object] = {"members": growing(study.known[data]["classes"])[-1]}
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
        lac, shortlister = study.beside(data, "weak")
        weak: dict[str, object] = {
            "scoring": "weak",
            "family": "threshold",
            "members": thresholds,
        }
        # Sets are large here, so that little is worth a label.
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
        return Figure("losses", caption, (Panel(data, (), TITLES[data], absence(data)),), 1)
    curves = (
        study.top_k(data),
        *(Curve(loss.replace("_", " "), (study.paper(data, loss=loss),)) for loss in LOSSES),
        *study.beside(data),
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
