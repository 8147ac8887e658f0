"""The results of a study: every point of every curve and seed, as one tidy table."""

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
from shortlist.paper.figures import Curve, Figure, Panel
from shortlist.paper.scale import Scale
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
    """The figures and the outcomes of their tasks.

    Attributes
    ----------
    figures : list of Figure
        The figures.
    outcomes : dict of Task to Outcome
        Outcome of each task and seed.
    scale : Scale
        Size of the study.
    data : dict
        Numbers of rows and classes of each data set.
    """

    figures: list[Figure]
    outcomes: Mapping[Task, Outcome]
    scale: Scale
    data: Mapping[str, Mapping[str, object]]

    def figure(self, name: str) -> Figure | None:
        """Return a figure by name; None if it was not requested."""
        return next((f for f in self.figures if f.name == name), None)

    def curves(self, curve: Curve) -> list[Frontier]:
        """Return a curve for each seed."""
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
        """Yield parameter name, parameter, accuracy and mean size of each point."""
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
        """Return the mean size at an accuracy for each seed; NaN if it is not reached."""
        return np.array([float(c.size_at(accuracy)) for c in self.curves(curve)])

    def rows(self) -> Iterator[dict[str, object]]:
        """Yield the tidy table: a row for each figure, panel, curve, seed and point."""
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
                                task.scoring, task.protocol, outcome.n_train, task.family,
                                " ".join(f"{k:g}" for k in task.members), task.cost, task.loss,
                                seed, outcome.parameter_name, parameter, accuracy, size,
                                outcome.seconds,
                            ),
                            strict=True,
                        )
                    )  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """Return the tidy table as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows()), columns=list(COLUMNS))

    def save(self, folder: Path) -> list[Path]:
        """Write `points.csv`, and `points.json` with versions, seeds and scale."""
        rows = list(self.rows())
        with (
            atomic_write(folder / "points.csv") as temporary,
            temporary.open("w", newline="") as file,
        ):
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
        with atomic_write(folder / "points.json") as temporary:
            temporary.write_text(json.dumps(whole, indent=1), encoding="utf-8")
        return [folder / "points.csv", folder / "points.json"]


def versions(packages: Sequence[str] = ("numpy", "torch", "scikit-learn")) -> dict[str, str]:
    """Return the versions of Python and of the packages in use."""
    numbers = {"shortlist": __version__, "python": platform.python_version()}
    for package in packages:
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:
            numbers[package] = "unknown"
    return numbers


def average_curves(curves: Sequence[Frontier]) -> tuple[NDArray[np.float64], ...]:
    """Return means and standard deviations over seeds of mean size and accuracy.

    Only points with a parameter that the curves of all seeds have are used.
    """
    common = set.intersection(*(set(c.parameter.tolist()) for c in curves))
    at = [[p in common for p in c.parameter.tolist()] for c in curves]
    sizes = np.array([c.mean_size[keep] for c, keep in zip(curves, at, strict=True)])
    accuracies = np.array([c.accuracy[keep] for c, keep in zip(curves, at, strict=True)])
    return sizes.mean(axis=0), accuracies.mean(axis=0), sizes.std(axis=0), accuracies.std(axis=0)
