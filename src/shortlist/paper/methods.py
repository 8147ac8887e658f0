"""The methods of a study: each is fitted on the rows of a task and measured on the test rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.validation import check_choice
from shortlist.costs import cost_table
from shortlist.datasets import FeatureFile, Samples
from shortlist.families import TopK
from shortlist.frontier import Frontier
from shortlist.learning.linear import LinearClassifier
from shortlist.paper.results import versions
from shortlist.paper.selector_grid import SelectorGrid, make_family, training_record
from shortlist.paper.tasks import SINGLE, Outcome, Task, Trace, Training
from shortlist.predictors import FixedSelector, SetPredictor
from shortlist.predictors.split_conformal import SplitConformal
from shortlist.ranking import Ranking

ACCURACY_GRID = np.concatenate([np.arange(200, 900, 10), np.arange(900, 1000)]) / 1000
"""Accuracies at which a curve with a point for every row is evaluated."""
CLASSIFIER_PATIENCE = 5


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
    max_epochs : int, default=50
        Maximum number of epochs of the classifier.
    device : str, default="cpu"
        Device to train on.
    """

    def __init__(
        self,
        file: FeatureFile,
        scoring: str,
        seed: int,
        max_epochs: int = 50,
        device: str = "cpu",
    ) -> None:
        self.file, self.seed, self.device = file, seed, device
        n_features = file.fit.x.shape[1]
        self.columns: NDArray[np.integer] | slice = slice(None)
        if check_choice(scoring, "scoring", ["full", "weak"]) == "weak":
            n_weak = min(weak_features(len(file.classes)), n_features)
            self.columns = np.sort(np.random.default_rng(seed).permutation(n_features)[:n_weak])
        self.classifier = LinearClassifier(
            max_epochs=max_epochs,
            patience=CLASSIFIER_PATIENCE,
            random_state=seed,
            progress=False,
        )
        self.classifier.fit(self._features(file.fit), file.fit.y)

    @property
    def training(self) -> Training:
        """How the classifier was trained."""
        h = self.classifier
        rows = len(self.file.fit)
        return training_record("classifier", h.history_, rows, h.max_epochs, h.patience)

    def _features(self, samples: Samples) -> Tensor:
        columns = samples.x[:, self.columns].astype(np.float32)
        return torch.from_numpy(columns).to(self.device)

    def probabilities(self, samples: Samples) -> Tensor:
        """Return the probability of each class of the file; 0 for classes without training rows."""
        proba = torch.as_tensor(self.classifier.predict_proba(self._features(samples)))
        known = np.asarray(self.classifier.classes_, dtype=np.int64)
        if len(known) == len(self.file.classes):
            return proba
        padded = proba.new_zeros((len(proba), len(self.file.classes)))
        padded[:, torch.from_numpy(known).to(proba.device)] = proba
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


Curves: TypeAlias = tuple[list[Trace], list[Training]]
Method: TypeAlias = Callable[[Task, ScoredFile, Samples, Samples], Curves]
"""A function that fits a task on the first samples and returns its curves on the second ones."""


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
    check_choice(task.method, "method", list(METHODS))
    traces, trainings = METHODS[task.method](task, scored, train, test)
    return Outcome(
        traces,
        time.monotonic() - start,
        len(train),
        len(test),
        [scored.training, *trainings],
        versions() | {"device": device_name(scored.device)},
    )


def device_name(device: str) -> str:
    """Return the name of a device, with the model of a GPU."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device


def _trace(curve: Frontier) -> Curves:
    values = (curve.parameter.tolist(), curve.accuracy.tolist(), curve.mean_size.tolist())
    return [Trace("", SINGLE, curve.parameter_name, *values)], []


def _evaluate_on_grid(curve: Frontier) -> Frontier:
    """Return a curve at its lowest and highest accuracies, and at those of the grid between."""
    accuracy = curve.envelope().accuracy
    low, high = accuracy[[0, -1]]
    inside = ACCURACY_GRID[(low < ACCURACY_GRID) & (high > ACCURACY_GRID)]
    at = np.concatenate([accuracy[:1], inside, accuracy[-1:]])
    return Frontier(at, np.asarray(curve.size_at(at)), at, "accuracy", curve.name)


def _selectors(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Curves:
    grid = SelectorGrid(task, scored.device)
    p_train, p_test = scored.probabilities(train), scored.probabilities(test)
    return grid.run(p_train, train, p_test, test), grid.trainings


def _top_k(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Curves:
    family = TopK.dense(len(test.classes))
    ranking = Ranking.from_scores(scored.probabilities(test).cpu())
    curve = FixedSelector(family).fit(ranking, test.y).frontier(ranking, test.y)
    # The parameter is the size: see `shortlist.paper.reading`.
    return _trace(Frontier(curve.accuracy, curve.mean_size, curve.mean_size, "size", curve.name))


def _lac(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Curves:
    method = SplitConformal("lac", calibration=None, random_state=task.seed)
    p_train, p_test = (scored.probabilities(rows).cpu().numpy() for rows in (train, test))
    return _threshold_curve(method.fit(p_train, train.y), p_test, test)


def _threshold_curve(method: SetPredictor, p: NDArray[np.floating], test: Samples) -> Curves:
    return _trace(_evaluate_on_grid(method.frontier(p, test.y)))


def _bayes(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Curves:
    """Use one threshold on the true probabilities, which is optimal for every mean size."""
    p = _posterior(test)
    method = SplitConformal("lac", calibration=None, temperature=None)
    return _threshold_curve(method.fit(p, test.y), p, test)


def _bayes_selector(task: Task, scored: ScoredFile, train: Samples, test: Samples) -> Curves:
    """Choose the member of the family with the lowest expected cost: the paper's r*."""
    p = _posterior(test)
    ranking = Ranking.from_scores(scored.probabilities(test).cpu())
    sizes = np.asarray(make_family(task).sizes(ranking), dtype=np.int64)
    labels = np.asarray(ranking.top(ranking.depth)[0])
    cumulative = np.take_along_axis(p, labels, axis=1).cumsum(axis=1)
    mass = np.take_along_axis(cumulative, sizes - 1, axis=1)
    rank = np.asarray(ranking.rank(test.y))
    traces = []
    for cost, weights in zip(task.costs, task.weights, strict=True):
        costs = cost_table(cost, range(1, ranking.depth + 1)).numpy()[sizes]
        accuracy, mean_size = [], []
        for weight in weights:
            # The expected cost is 1 + loss. Ties go to the last member.
            loss = weight * costs - mass
            choice = loss.shape[1] - 1 - loss[:, ::-1].argmin(axis=1)
            chosen_size = np.take_along_axis(sizes, choice[:, None], axis=1)[:, 0]
            accuracy.append(float((rank < chosen_size).mean()))
            mean_size.append(float(chosen_size.mean()))
        traces.append(Trace(cost, SINGLE, "cost_weight", list(weights), accuracy, mean_size))
    return traces, []


def _posterior(test: Samples) -> NDArray[np.floating]:
    if test.posterior is None:
        raise ValueError(
            "Bayes sets need the true probabilities, which this data set does not have"
        )
    return test.posterior


METHODS: dict[str, Method] = {
    "selectors": _selectors,
    "top-k": _top_k,
    "LAC": _lac,
    "Bayes": _bayes,
    "Bayes selector": _bayes_selector,
}
