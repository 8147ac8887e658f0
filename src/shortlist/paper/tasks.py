"""Tasks of a study, and their outcomes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from shortlist.frontier import Frontier


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
    family : {"top-k", "threshold"}, default="top-k"
        Family that the paper's selector chooses from.
    members : tuple of float, default=()
        Members of the family: sizes ("top-k") or thresholds on probabilities ("threshold").
    cost : {"log", "linear"}, default="log"
        Cost of a size.
    weights : tuple of float, default=()
        Cost weights (the paper's lambdas), in decreasing order.
    loss : str, default="log"
        Name of the surrogate loss.
    epochs : int, default=15
        Maximum number of epochs.
    seed : int, default=0
        Seed of the data, the classifier and the method.
    """

    method: str
    data: str
    rows: int
    scoring: str = "full"
    protocol: str = "held-out"
    family: str = "top-k"
    members: tuple[float, ...] = ()
    cost: str = "log"
    weights: tuple[float, ...] = ()
    loss: str = "log"
    epochs: int = 15
    seed: int = 0

    @property
    def key(self) -> str:
        """Name of the file that stores the outcome. It has a digest of all attributes."""
        digest = hashlib.blake2b(json.dumps(asdict(self)).encode(), digest_size=8).hexdigest()
        return f"{self.data}-{self.method.replace(' ', '-')}-{self.seed}-{digest}"

    def seeded(self, seed: int) -> Task:
        """Return the same task with another seed."""
        return replace(self, seed=seed)


@dataclass(frozen=True)
class Outcome:
    """The points of a curve, the time that it took, and numbers of rows.

    Parameters
    ----------
    parameter_name : str
        Name of the parameter that varies along the curve.
    parameter : list of float
        Parameter of each point.
    accuracy : list of float
        Accuracy of each point on the test rows.
    mean_size : list of float
        Mean size of each point on the test rows.
    seconds : float
        Seconds that the task took.
    n_train : int
        Number of rows that the method was fitted on.
    n_test : int
        Number of test rows.
    """

    parameter_name: str
    parameter: list[float]
    accuracy: list[float]
    mean_size: list[float]
    seconds: float
    n_train: int
    n_test: int

    @classmethod
    def from_curve(cls, curve: Frontier, seconds: float, n_train: int, n_test: int) -> Outcome:
        """Return the outcome of a task that computed a curve."""
        return cls(
            curve.parameter_name,
            curve.parameter.tolist(),
            curve.accuracy.tolist(),
            curve.mean_size.tolist(),
            seconds,
            n_train,
            n_test,
        )
