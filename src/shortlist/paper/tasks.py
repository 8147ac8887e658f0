"""One method, fitted once and judged on the test rows: the pieces that every figure is made of."""

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
from shortlist.predictors.conformal import SplitConformal
from shortlist.ranking import Ranking

GRID = np.concatenate([np.arange(200, 900, 10), np.arange(900, 1000)]) / 1000
"""Where curves with a point for every row are read off."""
PATIENCE = 3
CLASSIFIER_EPOCHS = 15


@dataclass(frozen=True)
class Task:
    """What to fit on which rows. Equal tasks are done once, whatever figures show them."""

    method: str
    """A key of `METHODS`."""
    data: str
    rows: int
    """How many to learn from."""
    scoring: str = "full"
    """What `h` sees: "full", all features; "weak", a few of them."""
    protocol: str = "held-out"
    """The rows that the selector learns from: "held-out", or "seen" by the classifier."""
    family: str = "top-k"
    members: tuple[float, ...] = ()
    """Sizes ("top-k"), or thresholds on the probabilities ("threshold")."""
    cost: str = "log"
    weights: tuple[float, ...] = ()
    """The lambdas."""
    loss: str = "log"
    epochs: int = 15
    """At most."""
    seed: int = 0

    @property
    def key(self) -> str:
        """A name for its file: what it is, and a digest of all that it is."""
        digest = hashlib.blake2b(json.dumps(asdict(self)).encode(), digest_size=8).hexdigest()
        return f"{self.data}-{self.method.replace(' ', '-')}-{self.seed}-{digest}"

    def seeded(self, seed: int) -> Task:
        return replace(self, seed=seed)


@dataclass(frozen=True)
class Outcome:
    """The points of a curve, and how long it took."""

    parameter_name: str
    parameter: list[float]
    accuracy: list[float]
    mean_size: list[float]
    seconds: float
    learned_from: int
    """Rows."""
    judged_by: int

    @classmethod
    def of(cls, curve: Frontier, seconds: float, learned_from: int, judged_by: int) -> Outcome:
        return cls(
            curve.parameter_name,
            curve.parameter.tolist(),
            curve.accuracy.tolist(),
            curve.mean_size.tolist(),
            seconds,
            learned_from,
            judged_by,
        )


class Scored:
    """A feature file with the scores of a linear classifier that was trained on its `fit` part."""

    def __init__(self, file: FeatureFile, scoring: str, seed: int) -> None:
        self.file, self.seed = file, seed
        features = file.fit.x.shape[1]
        self.columns: NDArray[np.integer] | slice = slice(None)
        if scoring == "weak":
            few = min(weak_features(len(file.classes)), features)
            self.columns = np.sort(np.random.default_rng(seed).permutation(features)[:few])
        self.h = LinearClassifier(max_epochs=CLASSIFIER_EPOCHS, random_state=seed, progress=False)
        self.h.fit(self._training_rows(file.fit), file.fit.y)

    def _training_rows(self, part: Samples) -> NDArray[np.floating]:
        return part.x[:, self.columns].astype(np.float32)

    def probabilities(self, part: Samples) -> NDArray[np.floating]:
        """What `h` says of each of the file's classes; one that `fit` has no row of gets 0."""
        found = np.asarray(self.h.predict_proba(self._training_rows(part)))
        known = np.asarray(self.h.classes_, dtype=np.int64)
        if len(known) == len(self.file.classes):
            return found
        every = np.zeros((len(found), len(self.file.classes)), dtype=found.dtype)
        every[:, known] = found
        return every

    def rows(self, task: Task) -> Samples:
        """The rows that a task learns from. There are as many seen ones as held-out ones."""
        part, stream = (self.file.select, 1) if task.protocol == "held-out" else (self.file.fit, 2)
        if task.rows >= len(part):
            return part
        rng = np.random.default_rng([self.seed, stream])
        return part[rng.permutation(len(part))[: task.rows]]


Method: TypeAlias = Callable[[Task, Scored, Samples, Samples], Frontier]
"""Learns from the first samples, and is judged by the second."""


def weak_features(n_classes: int) -> int:
    """How many features a weak scoring function sees: one for six classes, at least three.

    >>> weak_features(100), weak_features(10)
    (17, 3)
    """
    return max(3, round(n_classes / 6))


def solve(task: Task, scored: Scored) -> Outcome:
    """Fit a task's method and judge it on the test rows."""
    begun = time.monotonic()
    learned, test = scored.rows(task), scored.file.test
    curve = METHODS[task.method](task, scored, learned, test)
    return Outcome.of(curve, time.monotonic() - begun, len(learned), len(test))


def family_of(task: Task) -> Family:
    """The family that a task's selector chooses from."""
    if task.family == "top-k":
        return TopK([int(size) for size in task.members])
    return Threshold(task.members)


def thinned(curve: Frontier) -> Frontier:
    """A curve with a point for every row, read off at the accuracies of `GRID`."""
    best = curve.envelope()
    low, high = best.accuracy[[0, -1]]
    inside = GRID[(low < GRID) & (high > GRID)]
    at = np.concatenate([best.accuracy[:1], inside, best.accuracy[-1:]])
    return Frontier(at, np.asarray(curve.size_at(at)), at, "accuracy", curve.name)


def _cardinality_aware(task: Task, scored: Scored, learned: Samples, test: Samples) -> Frontier:
    path = CardinalityPath(
        family_of(task),
        cost=task.cost,
        cost_weights=task.weights,
        loss=task.loss,
        inputs="features",
        max_epochs=task.epochs,
        patience=PATIENCE,
        random_state=task.seed,
        progress=False,
    )
    path.fit(scored.probabilities(learned), learned.y, learned.x)
    return path.frontier(scored.probabilities(test), test.y, test.x)


def _top_k(task: Task, scored: Scored, learned: Samples, test: Samples) -> Frontier:
    family = TopK.dense(len(test.classes))
    ranking = Ranking.from_scores(scored.probabilities(test))
    return FixedSelector(family).fit(ranking, test.y).frontier(ranking, test.y)


def _lac(task: Task, scored: Scored, learned: Samples, test: Samples) -> Frontier:
    method = SplitConformal("lac", calibration=None, random_state=task.seed)
    return _fitted(method, scored, learned, test)


def _shortlister(task: Task, scored: Scored, learned: Samples, test: Samples) -> Frontier:
    method = Shortlister(calibration=None, random_state=task.seed, progress=False)
    return _fitted(method, scored, learned, test)


def _fitted(method: SetPredictor, scored: Scored, learned: Samples, test: Samples) -> Frontier:
    """The test curve of a method, fitted on all rows to learn from."""
    method.fit(scored.probabilities(learned), learned.y, learned.x)
    return thinned(method.frontier(scored.probabilities(test), test.y, test.x))


def _denis_hebiri(task: Task, scored: Scored, learned: Samples, test: Samples) -> Frontier:
    largest = len(test.classes) / 2
    sizes = np.geomspace(1.05, largest, 40).tolist()
    family = DenisHebiri(sizes).calibrate(scored.probabilities(learned))
    scores = scored.probabilities(test)
    curve = FixedSelector(family).fit(scores, test.y).frontier(scores, test.y)
    return Frontier(curve.accuracy, curve.mean_size, sizes, "mean size asked for")


def _bayes(task: Task, scored: Scored, learned: Samples, test: Samples) -> Frontier:
    """One threshold on the true probabilities: no sets of this mean size are more accurate."""
    p = _posterior(test)
    method = SplitConformal("lac", calibration=None, temperature=None)
    return thinned(method.fit(p, test.y).frontier(p, test.y))


def _bayes_selector(task: Task, scored: Scored, learned: Samples, test: Samples) -> Frontier:
    """The paper's r*: the best of the family's sets by the true probabilities (lemma of the
    stochastic scenario), for each lambda."""
    p = _posterior(test)
    ranking = Ranking.from_scores(scored.probabilities(test))
    sizes = family_of(task).sizes(ranking)
    labels = np.asarray(ranking.top(ranking.depth)[0])
    held = np.take_along_axis(p, labels, axis=1).cumsum(axis=1)
    mass = np.take_along_axis(held, np.asarray(sizes, dtype=np.int64) - 1, axis=1)
    table = cost_table(task.cost, range(1, ranking.depth + 1)).numpy()
    prices = table[np.asarray(sizes, dtype=np.int64)]
    rank = np.asarray(ranking.rank(test.y))
    accuracy, mean_size = [], []
    for weight in task.weights:
        loss = weight * prices - mass
        last = loss.shape[1] - 1 - loss[:, ::-1].argmin(axis=1)  # ties to the largest set
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


def growing(n_classes: int, most: int = 64) -> list[tuple[int, ...]]:
    """{1}, {1, 2}, {1, 2, 4}, …: K grown by doubling, up to 64 or what there is.

    >>> growing(10)
    [(1,), (1, 2), (1, 2, 4), (1, 2, 4, 8)]
    >>> growing(100)[-1]
    (1, 2, 4, 8, 16, 32, 64)
    """
    sizes: Sequence[int] = [2**i for i in range(7) if 2**i <= min(most, n_classes)]
    return [tuple(sizes[: i + 1]) for i in range(len(sizes))]
