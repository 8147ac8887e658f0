"""Tasks of a study, and their outcomes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

SINGLE, MEAN = "single", "mean"
"""A curve is that of a single selector, or of selectors whose scores r are averaged."""


@dataclass(frozen=True)
class Task:
    """A method to fit, and the rows to fit it on. Equal tasks are solved once.

    Parameters
    ----------
    method : str
        Name of the method.
    data : str
        Name of the data set.
    rows : int
        Number of rows to fit on.
    scoring : {"full", "weak"}, default="full"
        Whether the classifier has all features or only a few of them.
    protocol : {"held-out", "seen"}, default="held-out"
        Whether the method is fitted on held-out rows, or on rows that the classifier was trained
        on.
    inputs : {"features", "both"}, default="features"
        Inputs of the selectors: features (the paper's recipe), or features and scores (our
        variant).
    family : {"top-k", "threshold"}, default="top-k"
        Family that the selectors choose from.
    members : tuple of float, default=()
        Members of the family: sizes ("top-k") or thresholds on probabilities ("threshold").
    costs : tuple of str, default=()
        Costs of a size: "log" or "linear". Selectors for all costs are trained together.
    weights : tuple of tuple of float, default=()
        Cost weights (the paper's lambdas) for each cost, in decreasing order.
    refinements : int, default=0
        Maximum number of times that cost weights are added where a curve has gaps.
    selectors : int, default=1
        Number of selectors for each cost and weight, with different initial weights.
    loss : str, default="log"
        Name of the surrogate loss.
    width : int, default=128
        Number of units in each hidden layer of a selector.
    learning_rate : float, default=1e-3
        Learning rate of the selectors.
    initialization : {"zero", "pytorch"}, default="zero"
        Initial weights of the last layer of a selector: zero, or the default of PyTorch.
    standardize : bool, default=True
        Whether the inputs of the selectors are standardized.
    max_epochs, patience : int, default=60, 5
        Maximum number of epochs, and number of epochs without improvement before training stops.
    classifier_epochs : int, default=50
        Maximum number of epochs of the classifier.
    seed : int, default=0
        Seed of the data, the classifier and the method.
    """

    method: str
    data: str
    rows: int
    scoring: str = "full"
    protocol: str = "held-out"
    inputs: str = "features"
    family: str = "top-k"
    members: tuple[float, ...] = ()
    costs: tuple[str, ...] = ()
    weights: tuple[tuple[float, ...], ...] = ()
    refinements: int = 0
    selectors: int = 1
    loss: str = "log"
    width: int = 128
    learning_rate: float = 1e-3
    initialization: str = "zero"
    standardize: bool = True
    max_epochs: int = 60
    patience: int = 5
    classifier_epochs: int = 50
    seed: int = 0

    @property
    def key(self) -> str:
        """Name of the file that stores the outcome. It has a digest of all attributes."""
        digest = hashlib.blake2b(json.dumps(asdict(self)).encode(), digest_size=8).hexdigest()
        return f"{self.data}-{self.method.replace(' ', '-').replace('*', '')}-{self.seed}-{digest}"

    def seeded(self, seed: int) -> Task:
        """Return the same task with another seed."""
        return replace(self, seed=seed)


@dataclass(frozen=True)
class Trace:
    """The points of one curve.

    Parameters
    ----------
    cost : str
        Cost of a size; empty for methods without one.
    average : {"single", "mean"}
        Whether the curve is that of a single selector or of averaged scores.
    parameter_name : str
        Name of the parameter that varies along the curve.
    parameter, accuracy, mean_size : list of float
        Parameter, accuracy and mean size of each point on the test rows.
    """

    cost: str
    average: str
    parameter_name: str
    parameter: list[float]
    accuracy: list[float]
    mean_size: list[float]


@dataclass(frozen=True)
class Training:
    """A training run.

    Parameters
    ----------
    trained : str
        What was trained: "classifier" or "selectors".
    members : int
        Number of networks that were trained together.
    rows : int
        Number of rows, of which a tenth are validation rows.
    epochs, steps : int
        Number of epochs and of steps that were run, until the last network had stopped.
    max_epochs : int
        Maximum number of epochs.
    best_epochs : list of int
        Lowest, median and highest number of epochs of the weights that were kept.
    capped : int
        Number of networks that the maximum stopped before their loss stopped improving.
    """

    trained: str
    members: int
    rows: int
    epochs: int
    steps: int
    max_epochs: int
    best_epochs: list[int]
    capped: int


@dataclass(frozen=True)
class Outcome:
    """The curves of a task, how it was trained, and how long it took.

    Parameters
    ----------
    traces : list of Trace
        The curves.
    seconds : float
        Seconds that the task took.
    n_train, n_test : int
        Numbers of rows that the method was fitted on, and of test rows.
    trainings : list of Training, default=[]
        The training runs, beginning with that of the classifier.
    versions : mapping of str to str, default={}
        Versions of packages, and the device.
    """

    traces: list[Trace]
    seconds: float
    n_train: int
    n_test: int
    trainings: list[Training] = field(default_factory=list)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def capped(self) -> bool:
        """Whether the maximum number of epochs stopped a network too early."""
        return any(training.capped for training in self.trainings)

    def trace(self, cost: str, average: str) -> Trace:
        """Return the curve for a cost, of a single selector or of averaged scores."""
        for trace in self.traces:
            if (trace.cost, trace.average) == (cost, average):
                return trace
        available = ", ".join(f"({t.cost!r}, {t.average!r})" for t in self.traces)
        raise ValueError(f"there is no curve ({cost!r}, {average!r}); there are {available}")

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Outcome:
        """Return the outcome that `asdict` converted."""
        traces = [Trace(**trace) for trace in content["traces"]]
        trainings = [Training(**training) for training in content["trainings"]]
        return cls(**{**content, "traces": traces, "trainings": trainings})
