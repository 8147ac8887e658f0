"""What a run found: every point of every curve and seed, as one tidy table."""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.atomic_write import atomic_write
from shortlist._version import __version__
from shortlist.frontier import Frontier
from shortlist.paper.figures import Curve, Figure, Panel, Scale
from shortlist.paper.tasks import Outcome, Task

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "figure", "panel", "data", "curve", "method", "scoring", "protocol", "rows", "family",
    "members", "cost", "loss", "seed", "parameter_name", "parameter", "accuracy", "mean_size",
    "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Results:
    """The figures with their outcomes.

    Attributes
    ----------
    figures : list of Figure
        What was to be drawn.
    outcomes : dict
        What came out, for each task and seed.
    scale : Scale
        How much of everything.
    data : dict
        For each data set: how many rows and classes it has, and a digest of the file.
    """

    figures: list[Figure]
    outcomes: Mapping[Task, Outcome]
    scale: Scale
    data: Mapping[str, Mapping[str, object]]

    def figure(self, name: str) -> Figure | None:
        """A figure by its name, if it was asked for."""
        return next((f for f in self.figures if f.name == name), None)

    def curves(self, curve: Curve) -> list[Frontier]:
        """A curve as it came out with each seed."""
        return [self._curve(curve, seed) for seed in range(self.scale.seeds)]

    def _curve(self, curve: Curve, seed: int) -> Frontier:
        points = list(self._points(curve, seed))
        return Frontier(
            [accuracy for *_, accuracy, _ in points],
            [size for *_, size in points],
            [parameter for _, parameter, *_ in points],
            points[0][0],
            curve.label,
        )

    def _points(self, curve: Curve, seed: int) -> Iterator[tuple[str, float, float, float]]:
        """Name and value of the parameter, accuracy and mean size of each point."""
        for task in curve.tasks:
            outcome = self.outcomes[task.seeded(seed)]
            for parameter, accuracy, size in zip(
                outcome.parameter, outcome.accuracy, outcome.mean_size, strict=True
            ):
                if curve.weight is None:
                    yield outcome.parameter_name, parameter, accuracy, size
                elif np.isclose(parameter, curve.weight):
                    yield "largest size of K", task.members[-1], accuracy, size

    def sizes_at(self, curve: Curve, accuracy: float) -> NDArray[np.float64]:
        """The mean size at which a curve reaches an accuracy, for each seed; NaN: it does not."""
        return np.array([float(c.size_at(accuracy)) for c in self.curves(curve)])

    def rows(self) -> Iterator[dict[str, object]]:
        """The tidy table: a row for each figure, panel, curve, seed and point."""
        for figure in self.figures:
            for i, panel in enumerate(figure.panels):
                for curve in panel.curves:
                    yield from self._rows(figure, i, panel, curve)

    def _rows(
        self, figure: Figure, place: int, panel: Panel, curve: Curve
    ) -> Iterator[dict[str, object]]:
        for seed in range(self.scale.seeds):
            for task in curve.tasks:
                outcome = self.outcomes[task.seeded(seed)]
                for parameter, accuracy, size in zip(
                    outcome.parameter, outcome.accuracy, outcome.mean_size, strict=True
                ):
                    if curve.weight is not None and not np.isclose(parameter, curve.weight):
                        continue
                    yield dict(
                        zip(
                            COLUMNS,
                            (
                                figure.name, place, panel.data, curve.label, task.method,
                                task.scoring, task.protocol, outcome.learned_from, task.family,
                                " ".join(f"{k:g}" for k in task.members), task.cost, task.loss,
                                seed, outcome.parameter_name, parameter, accuracy, size,
                                outcome.seconds,
                            ),
                            strict=True,
                        )
                    )  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """The tidy table as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows()), columns=list(COLUMNS))

    def save(self, folder: Path) -> list[Path]:
        """Write `points.csv` and `points.json`, which also tells versions, seeds and scale."""
        rows = list(self.rows())
        with atomic_write(folder / "points.csv") as aside, aside.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        whole = {
            "versions": versions(),
            "scale": asdict(self.scale),
            "data": self.data,
            "captions": {figure.name: figure.caption for figure in self.figures},
            "points": rows,
        }
        with atomic_write(folder / "points.json") as aside:
            aside.write_text(json.dumps(whole, indent=1), encoding="utf-8")
        return [folder / "points.csv", folder / "points.json"]


def versions(packages: Sequence[str] = ("numpy", "torch", "scikit-learn")) -> dict[str, str]:
    """What the numbers were computed with."""
    found = {"shortlist": __version__, "python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def averaged(curves: Sequence[Frontier]) -> tuple[NDArray[np.float64], ...]:
    """Mean and spread over seeds of mean size and accuracy, point by point.

    Curves that were read off at given accuracies have the same points but for their ends; only the
    accuracies that all of them reach are kept.
    """
    common = set.intersection(*(set(c.parameter.tolist()) for c in curves))
    at = [[p in common for p in c.parameter.tolist()] for c in curves]
    sizes = np.array([c.mean_size[keep] for c, keep in zip(curves, at, strict=True)])
    accuracies = np.array([c.accuracy[keep] for c, keep in zip(curves, at, strict=True)])
    return sizes.mean(axis=0), accuracies.mean(axis=0), sizes.std(axis=0), accuracies.std(axis=0)
