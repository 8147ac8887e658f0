"""The results of a study: the points of all curves and seeds, in one tidy table."""

from __future__ import annotations

import csv
import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.atomic_write import atomic_write
from shortlist._utils.extras import require
from shortlist._version import __version__
from shortlist.frontier import Frontier
from shortlist.paper.panels import Curve, Figure, Panel
from shortlist.paper.reading import size_at
from shortlist.paper.scale import Scale
from shortlist.paper.sources import DataSize
from shortlist.paper.tasks import Outcome, Task

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "figure", "panel", "data", "curve", "method", "scoring", "protocol", "inputs", "rows", "family",
    "members", "cost", "average", "loss", "seed", "parameter_name", "parameter", "accuracy",
    "mean_size", "capped", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A point of a curve, with the task that it belongs to."""

    task: Task
    outcome: Outcome
    parameter_name: str
    parameter: float
    accuracy: float
    mean_size: float


@dataclass(frozen=True)
class Results:
    """The figures and the outcomes of their tasks.

    Parameters
    ----------
    figures : list of Figure
        The figures.
    outcomes : mapping of Task to Outcome
        Outcome of each task with each seed.
    scale : Scale
        Size of the study.
    data : mapping of str to mapping of str to int
        Numbers of rows and classes of each data set.
    seeds : sequence of int
        The seeds.
    missing : int, default=0
        Number of curves that are left out because they were not computed.
    """

    figures: list[Figure]
    outcomes: Mapping[Task, Outcome]
    scale: Scale
    data: Mapping[str, DataSize]
    seeds: Sequence[int]
    missing: int = 0
    _frontiers: dict[Curve, list[Frontier]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def figure(self, name: str) -> Figure | None:
        """Return a figure by name.

        Parameters
        ----------
        name : str
            Name of the figure.

        Returns
        -------
        Figure or None
            The figure, or None if it is not part of the study.
        """
        return next((figure for figure in self.figures if figure.name == name), None)

    def curves(self, curve: Curve) -> list[Frontier]:
        """Return the points of a curve for each seed.

        Parameters
        ----------
        curve : Curve
            A curve of one of the figures.

        Returns
        -------
        list of Frontier
            The points for each seed.
        """
        if curve not in self._frontiers:
            self._frontiers[curve] = [self._frontier(curve, seed) for seed in self.seeds]
        return self._frontiers[curve]

    def _frontier(self, curve: Curve, seed: int) -> Frontier:
        points = list(self._points(curve, seed))
        if curve.weight is None:
            name, parameters = points[0].parameter_name, [p.parameter for p in points]
        else:
            name, parameters = "largest size of K", [p.task.members[-1] for p in points]
        return Frontier(
            [point.accuracy for point in points],
            [point.mean_size for point in points],
            parameters,
            name,
            curve.label,
        )

    def _points(self, curve: Curve, seed: int) -> Iterator[Point]:
        """Yield the points of a curve for a seed."""
        for task in curve.tasks:
            outcome = self.outcomes[task.seeded(seed)]
            trace = outcome.trace(curve.cost, curve.average)
            for parameter, accuracy, mean_size in zip(
                trace.parameter, trace.accuracy, trace.mean_size, strict=True
            ):
                if curve.weight is None or math.isclose(parameter, curve.weight):
                    yield Point(task, outcome, trace.parameter_name, parameter, accuracy, mean_size)

    def capped(self, curve: Curve) -> bool:
        """Return whether the maximum number of epochs ended the training of a curve.

        Parameters
        ----------
        curve : Curve
            A curve of one of the figures.

        Returns
        -------
        bool
            True if a network of any seed was still improving, the classifier included.
        """
        tasks = [task.seeded(seed) for task in curve.tasks for seed in self.seeds]
        return any(self.outcomes[task].capped for task in tasks)

    def sizes_at(self, curve: Curve, accuracy: float) -> NDArray[np.float64]:
        """Return the mean size of a curve at an accuracy, for each seed.

        Parameters
        ----------
        curve : Curve
            A curve of one of the figures.
        accuracy : float
            The accuracy.

        Returns
        -------
        array of shape (n_seeds,)
            Mean sizes; NaN if the curve does not reach the accuracy or has a gap there.
        """
        return np.array([size_at(c, accuracy) for c in self.curves(curve)])

    def rows(self) -> Iterator[dict[str, object]]:
        """Yield the rows of the tidy table.

        Yields
        ------
        dict of str to object
            A row for each figure, panel, curve, seed and point.
        """
        for figure in self.figures:
            for i, panel in enumerate(figure.panels):
                for curve in panel.curves:
                    for seed in self.seeds:
                        for point in self._points(curve, seed):
                            yield _row(figure, i, panel, curve, seed, point)

    def to_frame(self) -> pd.DataFrame:
        """Return the tidy table as a pandas frame.

        Returns
        -------
        pandas.DataFrame
            A row for each figure, panel, curve, seed and point.
        """
        require("pandas", "to_frame")
        import pandas as pd

        return pd.DataFrame(list(self.rows()), columns=list(COLUMNS))

    def save(self, folder: Path) -> list[Path]:
        """Write the tidy table to `points.csv`, and also with all settings to `points.json`.

        Parameters
        ----------
        folder : Path
            The folder to write to.

        Returns
        -------
        list of Path
            Paths of both files.
        """
        rows = list(self.rows())
        with (
            atomic_write(folder / "points.csv") as temporary,
            temporary.open("w", newline="") as file,
        ):
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        content = {
            "versions": versions(),
            "scale": asdict(self.scale),
            "seeds": list(self.seeds),
            "data": self.data,
            "settings": {
                figure.name: [asdict(task) for task in dict.fromkeys(figure.tasks())]
                for figure in self.figures
            },
            "trainings": [
                {
                    "task": task.key,
                    "versions": outcome.versions,
                    "runs": [asdict(t) for t in outcome.trainings],
                }
                for task, outcome in self.outcomes.items()
            ],
            "captions": {figure.name: figure.caption for figure in self.figures},
            "points": rows,
        }
        with atomic_write(folder / "points.json") as temporary:
            temporary.write_text(json.dumps(content), encoding="utf-8")
        return [folder / "points.csv", folder / "points.json"]


def _row(
    figure: Figure, panel_number: int, panel: Panel, curve: Curve, seed: int, point: Point
) -> dict[str, object]:
    """Return the row of the tidy table for a point."""
    task, outcome = point.task, point.outcome
    values = (
        figure.name, panel_number, panel.data, curve.label, task.method, task.scoring,
        task.protocol, task.inputs, outcome.n_train, task.family,
        " ".join(f"{k:g}" for k in task.members), curve.cost, curve.average, task.loss, seed,
        point.parameter_name, point.parameter, point.accuracy, point.mean_size, outcome.capped,
        outcome.seconds,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def versions(packages: Sequence[str] = ("numpy", "torch", "scikit-learn")) -> dict[str, str]:
    """Return the versions of this library, of Python and of the packages."""
    numbers = {"shortlist": __version__, "python": platform.python_version()}
    for package in packages:
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:
            numbers[package] = "unknown"
    return numbers


def average_curves(curves: Sequence[Frontier]) -> tuple[NDArray[np.float64], ...]:
    """Return the means over seeds of mean size and accuracy, then their standard deviations.

    Points are averaged if all seeds have their parameter, and left out otherwise.
    """
    common = set.intersection(*(set(c.parameter.tolist()) for c in curves))
    masks = [[p in common for p in c.parameter.tolist()] for c in curves]
    sizes = np.array([c.mean_size[mask] for c, mask in zip(curves, masks, strict=True)])
    accuracies = np.array([c.accuracy[mask] for c, mask in zip(curves, masks, strict=True)])
    return sizes.mean(axis=0), accuracies.mean(axis=0), sizes.std(axis=0), accuracies.std(axis=0)
