"""The methods of a study: each is fitted on the rows of a task and measured on the test rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.validation import check_choice
from shortlist.conformal import DenisHebiri
from shortlist.costs import cost_table
from shortlist.datasets import FeatureFile, Samples
from shortlist.families import Family, Threshold, TopK
from shortlist.frontier import Frontier
from shortlist.learning.linear import LinearClassifier
from shortlist.paper.tasks import Outcome, Task
from shortlist.predictors import CardinalityPath, FixedSelector, SetPredictor, Shortlister
from shortlist.predictors.split_conformal import SplitConformal
from shortlist.ranking import Ranking

ACCURACY_GRID = np.concatenate([np.arange(200, 900, 10), np.arange(900, 1000)]) / 1000
"""Accuracies at which a curve with a point for every row is evaluated."""
PATIENCE = 3
CLASSIFIER_EPOCHS = 15


class ScoredFile:
    """A feature file with a linear classifier that is trained on its split `fit`.

    Parameters
    ----------
    file : FeatureFile
        The data.
    scoring : {"full", "weak"}
        Whether the classifier has all features or only a few, drawn at random.
    seed : int
        Seed of the classifier, of its features, and of the rows that tasks are fitted on.
    """

    def __init__(self, file: FeatureFile, scoring: str, seed: int) -> None:
        self.file, self.seed = file, seed
        n_features = file.fit.x.shape[1]
        self.columns: NDArray[np.integer] | slice = slice(None)
        if check_choice(scoring, "scoring", ["full", "weak"]) == "weak":
            n_weak = min(weak_features(len(file.classes)), n_features)
            self.columns = np.sort(np.random.default_rng(seed).permutation(n_features)[:n_weak])
        self.classifier = LinearClassifier(
            max_epochs=CLASSIFIER_EPOCHS, random_state=seed, progress=False
        )
        self.classifier.fit(self._features(file.fit), file.fit.y)

    def _features(self, samples: Samples) -> NDArray[np.floating]:
        return samples.x[:, self.columns].astype(np.float32)

    def probabilities(self, samples: Samples) -> NDArray[np.floating]:
        """Return the probability of each class of the file; 0 for classes without training rows."""
        proba = np.asarray(self.classifier.predict_proba(self._features(samples)))
        known = np.asarray(self.classifier.classes_, dtype=np.int64)
        if len(known) == len(self.file.classes):
            return proba
        padded = np.zeros((len(proba), len(self.file.classes)), dtype=proba.dtype)
        padded[:, known] = proba
        return padded

    def rows(self, task: Task) -> Samples:
        """Return the rows to fit a task on. With more rows, the first ones stay the same."""
        check_choice(task.protocol, "protocol", ["held-out", "seen"])
        is_held_out = task.protocol == "held-out"
        samples, stream = (self.file.select, 1) if is_held_out else (self.file.fit, 2)
        if task.rows >= len(samples):
            return samples
        rng = np.random.default_rng([self.seed, stream])
        return samples[rng.permutation(len(samples))[: task.rows]]


Method: TypeAlias = Callable[[Task, ScoredFile, Samples, Samples], Frontier]
"""A function that fits a task on the first samples and returns its curve on the second ones."""


def weak_features(n_classes: int) -> int:
    """Return the number of features of a weak scoring function: one for every six classes.

    It is at least 3.

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
    return Outcome.from_curve(curve, time.monotonic() - start, len(train), len(test))


def make_family(task: Task) -> Family:
    """Return the family that the selector of a task chooses from."""
    if check_choice(task.family, "family", ["top-k", "threshold"]) == "top-k":
        return TopK([int(size) for size in task.members])
    return Threshold(task.members)


def _evaluate_on_grid(curve: Frontier) -> Frontier:
    """Return a curve at its lowest and highest accuracies, and at those of the grid between."""
    accuracy = curve.envelope().accuracy
    low, high = accuracy[[0, -1]]
    inside = ACCURACY_GRID[(low < ACCURACY_GRID) & (high > ACCURACY_GRID)]
    at = np.concatenate([accuracy[:1], inside, accuracy[-1:]])
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
    return _fit_and_evaluate(method, scored, train, test)


def _shortlister(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Frontier:
    method = Shortlister(
        calibration=None, max_epochs=task.epochs, random_state=task.seed, progress=False
    )
    return _fit_and_evaluate(method, scored, train, test)


def _fit_and_evaluate(
    method: SetPredictor, scored: ScoredFile, train: Samples, test: Samples
) -> Frontier:
    """Fit a method and return its curve on the test rows."""
    method.fit(scored.probabilities(train), train.y, train.x)
    return _evaluate_on_grid(method.frontier(scored.probabilities(test), test.y, test.x))


def _denis_hebiri(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Frontier:
    largest = len(test.classes) / 2
    sizes = np.geomspace(1.05, largest, 40).tolist()
    family = DenisHebiri(sizes).calibrate(scored.probabilities(train))
    scores = scored.probabilities(test)
    curve = FixedSelector(family).fit(scores, test.y).frontier(scores, test.y)
    return Frontier(curve.accuracy, curve.mean_size, sizes, "requested mean size")


def _bayes(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Frontier:
    """Use one threshold on the true probabilities, which is optimal for every mean size."""
    p = _posterior(test)
    method = SplitConformal("lac", calibration=None, temperature=None)
    return _evaluate_on_grid(method.fit(p, test.y).frontier(p, test.y))


def _bayes_selector(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Frontier:
    """Choose the member of the family with the lowest expected cost: the paper's r*."""
    p = _posterior(test)
    ranking = Ranking.from_scores(scored.probabilities(test))
    sizes = np.asarray(make_family(task).sizes(ranking), dtype=np.int64)
    labels = np.asarray(ranking.top(ranking.depth)[0])
    cumulative = np.take_along_axis(p, labels, axis=1).cumsum(axis=1)
    mass = np.take_along_axis(cumulative, sizes - 1, axis=1)
    costs = cost_table(task.cost, range(1, ranking.depth + 1)).numpy()[sizes]
    rank = np.asarray(ranking.rank(test.y))
    accuracy, mean_size = [], []
    for weight in task.weights:
        # The expected cost is 1 + loss. Ties go to the last member.
        loss = weight * costs - mass
        choice = loss.shape[1] - 1 - loss[:, ::-1].argmin(axis=1)
        chosen_size = np.take_along_axis(sizes, choice[:, None], axis=1)[:, 0]
        accuracy.append(float((rank < chosen_size).mean()))
        mean_size.append(float(chosen_size.mean()))
    return Frontier(accuracy, mean_size, task.weights, "cost_weight")


def _posterior(test: Samples) -> NDArray[np.floating]:
    if test.posterior is None:
        raise ValueError(
            "Bayes sets need the true probabilities, which this data set does not have"
        )
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
