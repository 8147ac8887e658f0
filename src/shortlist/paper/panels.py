"""The parts of a figure: its panels, and the curves in each panel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shortlist.paper.tasks import MEAN, SINGLE, Task


@dataclass(frozen=True)
class Curve:
    """A curve of a panel: the points of one task, or one point of each of several tasks.

    Parameters
    ----------
    label : str
        Name in the legend.
    tasks : tuple of Task
        Tasks, without seeds.
    cost : str, default=""
        Cost whose points are shown; empty for methods without a cost.
    average : {"single", "mean"}, default="single"
        Whether the points are those of a single selector or of averaged scores.
    weight : float, optional
        Show only the points of this cost weight (the paper's lambda).
    """

    label: str
    tasks: tuple[Task, ...]
    cost: str = ""
    average: str = SINGLE
    weight: float | None = None

    @property
    def task(self) -> Task:
        """The last task, which has the most rows or the largest family."""
        return self.tasks[-1]

    @property
    def is_selector(self) -> bool:
        """Whether the curve shows learned selectors, those of the paper or our variant."""
        return self.task.method == "selectors"

    @property
    def is_recipe(self) -> bool:
        """Whether the curve shows the paper's recipe: features alone, on held-out rows."""
        task = self.task
        return self.is_selector and (task.inputs, task.protocol) == ("features", "held-out")

    @property
    def is_single(self) -> bool:
        """Whether the curve shows the paper's recipe with a single selector."""
        return self.is_recipe and self.average == SINGLE

    @property
    def is_mean(self) -> bool:
        """Whether the curve shows the paper's recipe with averaged scores."""
        return self.is_recipe and self.average == MEAN


@dataclass(frozen=True)
class Panel:
    """A panel of a figure.

    Parameters
    ----------
    data : str
        Name of the data set.
    curves : tuple of Curve
        Curves to plot. A panel whose data set is not available has none.
    title : str
        Title of the panel.
    missing : str, default=""
        Text to show in place of the curves.
    by_rows : bool, default=False
        Whether to plot the mean size at 95% accuracy against the number of rows.
    """

    data: str
    curves: tuple[Curve, ...]
    title: str
    missing: str = ""
    by_rows: bool = False

    def find(self, label: str) -> Curve | None:
        """Return the curve with a label, or None."""
        return next((curve for curve in self.curves if curve.label == label), None)


@dataclass(frozen=True)
class Figure:
    """A figure: its panels and their layout.

    Parameters
    ----------
    name : str
        Name of the figure and of its files, such as "fig1".
    title : str
        Title on the page, such as "Figure 1".
    caption : str
        Caption of the figure.
    panels : tuple of Panel
        Panels, row by row.
    columns : int
        Number of panels in a row.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks of all curves.

        Yields
        ------
        Task
            The next task, without a seed. Tasks of several curves are repeated.
        """
        for panel in self.panels:
            for curve in panel.curves:
                yield from curve.tasks
