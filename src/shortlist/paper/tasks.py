"""Tasks: one method, fitted once and measured on the test rows."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.conformal import DenisHebiri
from shortlist.costs import cost_table
from shortlist.datasets import FeatureFile, Samples
from shortlist.families import Family, Threshold, TopK
from shortlist.frontier import Frontier
from shortlist.learning.linear import LinearClassifier
from shortlist.predictors import CardinalityPath, FixedSelector, SetPredictor, Shortlister
from shortlist.predictors.split_conformal import SplitConformal
from shortlist.ranking import Ranking

GRID = np.concatenate([np.arange(200, 900, 10), np.arange(900, 1000)]) / 1000
"""Accuracies at which curves with a point for every row are evaluated."""
PATIENCE = 3
CLASSIFIER_EPOCHS = 15


@dataclass(frozen=True)
class Task:
    """What to fit on which rows. Equal tasks are solved once, even if several figures show them.

    Attributes
    ----------
    method : str
        A key of `METHODS`.
    data : str
        Name of the data set.
    rows : int
        Number of rows to fit on.
    scoring : {"full", "weak"}
        Whether the classifier sees all features or only a few of them.
    protocol : {"held-out", "seen"}
        Whether the selector is fitted on held-out rows, or on rows that the classifier was
        trained on.
    family : {"top-k", "threshold"}
        Family to choose from.
    members : tuple of float
        Sizes ("top-k") or thresholds on the probabilities ("threshold").
    cost : {"log", "linear"}
        Cost of a size.
    weights : tuple of float
        The lambdas.
    loss : str
        Name of the loss.
    epochs : int
        Maximum number of epochs.
    seed : int
        Seed of everything.
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
        """Name of the file of its outcome, with a digest of all attributes."""
        digest = hashlib.blake2b(json.dumps(asdict(self)).encode(), digest_size=8).hexdigest()
        return f"{self.data}-{self.method.replace(' ', '-')}-{self.seed}-{digest}"

    def seeded(self, seed: int) -> Task:
        """Return the same task with another seed."""
        return replace(self, seed=seed)


@dataclass(frozen=True)
class Outcome:
    """The points of a curve, how long it took, and numbers of rows."""

    parameter_name: str
    parameter: list[float]
    accuracy: list[float]
    mean_size: list[float]
    seconds: float
    n_train: int
    n_test: int

    @classmethod
    def of(cls, curve: Frontier, seconds: float, n_train: int, n_test: int) -> Outcome:
        """Return the outcome of a curve."""
        return cls(
            curve.parameter_name,
            curve.parameter.tolist(),
            curve.accuracy.tolist(),
            curve.mean_size.tolist(),
            seconds,
            n_train,
            n_test,
        )


class ScoredFile:
    """A feature file with a linear classifier that is trained on its split `fit`."""

    def __init__(self, file: FeatureFile, scoring: str, seed: int) -> None:
        self.file, self.seed = file, seed
        features = file.fit.x.shape[1]
        self.columns: NDArray[np.integer] | slice = slice(None)
        if scoring == "weak":
            few = min(weak_features(len(file.classes)), features)
            self.columns = np.sort(np.random.default_rng(seed).permutation(features)[:few])
        self.h = LinearClassifier(max_epochs=CLASSIFIER_EPOCHS, random_state=seed, progress=False)
        self.h.fit(self._features(file.fit), file.fit.y)

    def _features(self, part: Samples) -> NDArray[np.floating]:
        return part.x[:, self.columns].astype(np.float32)

    def probabilities(self, part: Samples) -> NDArray[np.floating]:
        """Return the probability of each class of the file; 0 for classes without training rows."""
        proba = np.asarray(self.h.predict_proba(self._features(part)))
        known = np.asarray(self.h.classes_, dtype=np.int64)
        if len(known) == len(self.file.classes):
            return proba
        every = np.zeros((len(proba), len(self.file.classes)), dtype=proba.dtype)
        every[:, known] = proba
        return every

    def rows(self, task: Task) -> Samples:
        """Return the rows to fit on: as many seen ones as held-out ones."""
        part, stream = (self.file.select, 1) if task.protocol == "held-out" else (self.file.fit, 2)
        if task.rows >= len(part):
            return part
        rng = np.random.default_rng([self.seed, stream])
        return part[rng.permutation(len(part))[: task.rows]]


Method: TypeAlias = Callable[[Task, ScoredFile, Samples, Samples], Frontier]
"""Fits on the first samples, and returns the curve on the second."""


def weak_features(n_classes: int) -> int:
    """Return the number of features of a weak scoring function: one for six classes, at least 3.

    Examples
    --------
    >>> weak_features(100), weak_features(10)
    (17, 3)
    """
    return max(3, round(n_classes / 6))


def solve(task: Task, scored: ScoredFile) -> Outcome:
    """Fit the method of a task and measure it on the test rows."""
    start = time.monotonic()
    train, test = scored.rows(task), scored.file.test
    curve = METHODS[task.method](task, scored, train, test)
    return Outcome.of(curve, time.monotonic() - start, len(train), len(test))


def make_family(task: Task) -> Family:
    """Return the family that the selector of a task chooses from."""
    if task.family == "top-k":
        return TopK([int(size) for size in task.members])
    return Threshold(task.members)


def thin(curve: Frontier) -> Frontier:
    """Return a curve evaluated at the accuracies of `GRID`."""
    best = curve.envelope()
    low, high = best.accuracy[[0, -1]]
    inside = GRID[(low < GRID) & (high > GRID)]
    at = np.concatenate([best.accuracy[:1], inside, best.accuracy[-1:]])
    return Frontier(at, np.asarray(curve.size_at(at)), at, "accuracy", curve.name)


def _cardinality_aware(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Frontier:
    path = CardinalityPath(
        make_family(task),
        cost=task.cost,
        cost_weights=task.weights,
        loss=task.loss,
        inputs="features",
        max_epochs=task.epochs,
        patience=PATIENCE,
        random_state=task.seed,
        progress=False,
    )
    path.fit(scored.probabilities(train), train.y, train.x)
    return path.frontier(scored.probabilities(test), test.y, test.x)


def _top_k(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Frontier:
    family = TopK.dense(len(test.classes))
    ranking = Ranking.from_scores(scored.probabilities(test))
    return FixedSelector(family).fit(ranking, test.y).frontier(ranking, test.y)


def _lac(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Frontier:
    method = SplitConformal("lac", calibration=None, random_state=task.seed)
    return _test_curve(method, scored, train, test)


def _shortlister(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Frontier:
    method = Shortlister(
        calibration=None, max_epochs=task.epochs, random_state=task.seed, progress=False
    )
    return _test_curve(method, scored, train, test)


def _test_curve(
    method: SetPredictor, scored: ScoredFile, train: Samples, test: Samples
) -> Frontier:
    """Fit a method and return its curve on the test rows."""
    method.fit(scored.probabilities(train), train.y, train.x)
    return thin(method.frontier(scored.probabilities(test), test.y, test.x))


def _denis_hebiri(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Frontier:
    largest = len(test.classes) / 2
    sizes = np.geomspace(1.05, largest, 40).tolist()
    family = DenisHebiri(sizes).calibrate(scored.probabilities(train))
    scores = scored.probabilities(test)
    curve = FixedSelector(family).fit(scores, test.y).frontier(scores, test.y)
    return Frontier(curve.accuracy, curve.mean_size, sizes, "requested mean size")


def _bayes(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Frontier:
    """Use one threshold on the true probabilities, which is optimal for each mean size."""
    p = _posterior(test)
    method = SplitConformal("lac", calibration=None, temperature=None)
    return thin(method.fit(p, test.y).frontier(p, test.y))


def _bayes_selector(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Frontier:
    """Choose the best set of the family by the true probabilities: the paper's r*."""
    p = _posterior(test)
    ranking = Ranking.from_scores(scored.probabilities(test))
    sizes = make_family(task).sizes(ranking)
    labels = np.asarray(ranking.top(ranking.depth)[0])
    total = np.take_along_axis(p, labels, axis=1).cumsum(axis=1)
    mass = np.take_along_axis(total, np.asarray(sizes, dtype=np.int64) - 1, axis=1)
    table = cost_table(task.cost, range(1, ranking.depth + 1)).numpy()
    costs = table[np.asarray(sizes, dtype=np.int64)]
    rank = np.asarray(ranking.rank(test.y))
    accuracy, mean_size = [], []
    for weight in task.weights:
        loss = weight * costs - mass
        last = loss.shape[1] - 1 - loss[:, ::-1].argmin(axis=1)  # Ties go to the largest set.
        chosen = np.take_along_axis(np.asarray(sizes), last[:, None], axis=1)[:, 0]
        accuracy.append(float((rank < chosen).mean()))
        mean_size.append(float(chosen.mean()))
    return Frontier(accuracy, mean_size, task.weights, "cost_weight")


def _posterior(test: Samples) -> NDArray[np.floating]:
    if test.posterior is None:
        raise ValueError("Bayes sets need the true probabilities, which these data do not have")
    return test.posterior


METHODS: dict[str, Method] = {
    "cardinality-aware": _cardinality_aware,
    "top-k": _top_k,
    "LAC": _lac,
    "Shortlister": _shortlister,
    "Denis and Hebiri": _denis_hebiri,
    "Bayes": _bayes,
    "Bayes selector": _bayes_selector,
}


def growing_sizes(n_classes: int, most: int = 64) -> list[tuple[int, ...]]:
    """Return the sets K = {1}, {1, 2}, {1, 2, 4}, … up to the number of classes or to 64.

    Examples
    --------
    >>> growing_sizes(10)
    [(1,), (1, 2), (1, 2, 4), (1, 2, 4, 8)]
    >>> growing_sizes(100)[-1]
    (1, 2, 4, 8, 16, 32, 64)
    """
    sizes: Sequence[int] = [2**i for i in range(7) if 2**i <= min(most, n_classes)]
    return [tuple(sizes[: i + 1]) for i in range(len(sizes))]
