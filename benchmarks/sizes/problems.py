"""The problems on which methods are compared with the same labelled rows.

In a feature file, the rows of `fit` and `select` are labelled, and methods differ in how they use
them. If the backbone of the features was trained on `fit`, features of `fit` rows are unlike those
of new rows: a linear classifier is trained on `fit`, its scores on `select` are honest, and the
rows of `fit` are extra rows without scores. If the backbone is frozen, all rows are alike, and the
linear classifier is cross-fitted over them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.base import ClassifierMixin, clone
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

import shortlist as sl

ACCURACIES = (0.9, 0.95, 0.98, 0.99)
FROZEN = ("tinyimagenet", "banking77")
"""Feature files whose backbone was not trained on their rows. In all others it was, on `fit`."""
N_FOLDS = 5


@dataclass(frozen=True)
class Problem:
    """Labelled rows, and test rows.

    Parameters
    ----------
    situation : {"frozen", "trained", "tabular", "candidates"}
        Where the features come from: a frozen backbone, one that was trained on the extra rows,
        or a table. "candidates" have no features.
    scores, y, features : array-like
        Rows with honest scores.
    test : tuple of array-like
        Scores, labels and features of the test rows.
    extra_features, extra_y : Tensor, optional
        Labelled rows without honest scores.
    accuracies : tuple of float
        Accuracies to measure at.
    """

    situation: str
    scores: Tensor | sl.Ranking
    y: Tensor
    features: Tensor | None
    test: tuple[Tensor | sl.Ranking, Tensor, Tensor | None]
    extra_features: Tensor | None = None
    extra_y: Tensor | None = None
    accuracies: tuple[float, ...] = ACCURACIES

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.test[0].n_classes if self.features is None else self.scores.shape[1]

    def all_rows(self) -> tuple[Tensor, Tensor]:
        """Return features and labels of all rows, with the extra ones."""
        if self.extra_features is None:
            return self.features, self.y
        return torch.cat([self.features, self.extra_features]), torch.cat([self.y, self.extra_y])


def from_feature_file(path: Path, seed: int, device: str, max_rows: int | None) -> Problem:
    """Return the problem of a feature file."""
    file = sl.datasets.load(path)
    (x_fit, y_fit), (x, y), (x_test, y_test) = (
        _tensors(part.x[:max_rows], part.y[:max_rows], device)
        for part in (file.fit, file.select, file.test)
    )
    if path.stem in FROZEN:
        x, y = torch.cat([x_fit, x]), torch.cat([y_fit, y])
        return _cross_fitted(x, y, x_test, y_test, len(file.classes), seed)
    h = sl.LinearClassifier(max_epochs=15, random_state=seed).fit(x_fit, y_fit)
    scores, test_scores = (_class_scores(h, part, len(file.classes)) for part in (x, x_test))
    return Problem("trained", scores, y, x, (test_scores, y_test, x_test), x_fit, y_fit)


def from_gaussians(seed: int, device: str, max_rows: int | None) -> Problem:
    """Return the problem of the synthetic data of the paper."""
    parts = sl.datasets.gaussian(120_000, seed=seed).split(20_000, 50_000)
    (x_fit, y_fit), (x, y), (x_test, y_test) = (
        _tensors(part.x[:max_rows], part.y[:max_rows], device) for part in parts
    )
    return _cross_fitted(torch.cat([x_fit, x]), torch.cat([y_fit, y]), x_test, y_test, 10, seed)


def _tensors(x: np.ndarray, y: np.ndarray, device: str) -> tuple[Tensor, Tensor]:
    """Return features and labels on a device."""
    return (
        torch.as_tensor(x, device=device).to(torch.float32),
        torch.as_tensor(y.astype(np.int64), device=device),
    )


def _class_scores(h: sl.LinearClassifier, x: Tensor, n_classes: int) -> Tensor:
    """Return the scores of all classes, low ones for those that the classifier did not see."""
    scores = h.decision_function(x)
    lowest = scores.amin(dim=1, keepdim=True) - 1
    return (
        lowest.expand(-1, n_classes)
        .clone()
        .index_copy_(1, torch.as_tensor(h.classes_, device=x.device), scores)
    )


def _cross_fitted(
    x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, n_classes: int, seed: int
) -> Problem:
    """Return a problem whose scores are those of linear classifiers that did not see their rows."""
    h = sl.LinearClassifier(
        batch_size=512, learning_rate=2e-3, max_epochs=25, random_state=seed, progress=False
    )
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed)).to(y.device)
    scores = torch.empty(len(y), n_classes, device=y.device)
    for own in order.chunk(N_FOLDS):
        others = torch.ones(len(y), dtype=torch.bool, device=y.device)
        others[own] = False
        scores[own] = _class_scores(clone(h).fit(x[others], y[others]), x[own], n_classes)
    test_scores = _class_scores(h.fit(x, y), x_test, n_classes)
    return Problem("frozen", scores, y, x, (test_scores, y_test, x_test))


def from_candidates(path: Path, seed: int, device: str, max_rows: int | None) -> Problem:
    """Return the problem of a file of candidates: half of the rows are test rows."""
    with np.load(path) as arrays:
        labels, scores, y = (arrays[k] for k in ("labels", "scores", "y"))
    order = np.random.default_rng(seed).permutation(len(y))[:max_rows]
    splits = []
    for rows in np.array_split(order, 2):
        ranking = sl.Ranking.from_candidates(
            torch.as_tensor(labels[rows].astype(np.int64), device=device),
            torch.as_tensor(scores[rows], device=device),
            n_classes=1000,
        )
        splits.append((ranking, torch.as_tensor(y[rows].astype(np.int64), device=device)))
    (ranking, known), (test, test_y) = splits
    top4 = float((torch.as_tensor(test.rank(test_y)) < 4).double().mean())
    return Problem("candidates", ranking, known, None, (test, test_y, None), accuracies=(top4,))


def tabular_names() -> list[str]:
    """Return the names of the tabular problems: data and classifier."""
    return [f"{data}/{classifier}" for data in TABLES for classifier in CLASSIFIERS]


def from_table(name: str, seed: int, device: str) -> Problem:
    """Return a tabular problem: half of the rows are test rows, and the classifier is cross-fitted.

    Parameters
    ----------
    name : str
        Data and classifier, such as "digits/forest".
    seed : int
        Seed of the split, the folds and the classifier.
    device : str
        Device of the rows.
    """
    data, classifier = name.split("/")
    x, y = TABLES[data]()
    order = np.random.default_rng(seed).permutation(len(y))
    known, test = order[: len(y) // 2], order[len(y) // 2 :]
    model = CLASSIFIERS[classifier](seed)
    smallest = np.bincount(y[known]).min()
    folds = (StratifiedKFold if smallest >= N_FOLDS else KFold)(
        N_FOLDS, shuffle=True, random_state=seed
    )
    scores = np.empty((len(known), y.max() + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for train, own in folds.split(x[known], y[known]):
            fitted = clone(model).fit(x[known][train], y[known][train])
            scores[own] = fitted.predict_proba(x[known][own])
        test_scores = model.fit(x[known], y[known]).predict_proba(x[test])
    p, test_p = (torch.as_tensor(a, device=device) for a in (scores, test_scores))
    features, labels = _tensors(x[known], y[known], device)
    test_features, test_labels = _tensors(x[test], y[test], device)
    return Problem("tabular", p, labels, features, (test_p, test_labels, test_features))


def _synthetic(**parameters: int | float) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(random_state=0, **parameters)


TABLES = {
    "digits": lambda: load_digits(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
    "iris": lambda: load_iris(return_X_y=True),
    "easy": lambda: _synthetic(
        n_samples=4000, n_features=20, n_informative=10, n_classes=5, class_sep=1.5
    ),
    "noisy": lambda: _synthetic(
        n_samples=4000, n_features=30, n_informative=8, n_classes=4, flip_y=0.2
    ),
    "many_classes": lambda: _synthetic(
        n_samples=10_000, n_features=40, n_informative=20, n_classes=20
    ),
    "imbalanced": lambda: _synthetic(
        n_samples=4000, n_features=20, n_informative=8, n_classes=3, weights=[0.8, 0.15]
    ),
}
"""Tables that come with scikit-learn, or that it draws."""


CLASSIFIERS: dict[str, type[ClassifierMixin]] = {
    "logistic": lambda seed: LogisticRegression(max_iter=300),
    "forest": lambda seed: RandomForestClassifier(200, random_state=seed),
    "naive_bayes": lambda seed: GaussianNB(),
    "boosting": lambda seed: HistGradientBoostingClassifier(max_iter=60, random_state=seed),
    "neighbors": lambda seed: KNeighborsClassifier(15),
}


def expand(names: list[str]) -> Iterator[tuple[str, Path | None]]:
    """Yield the name of each problem and the path of its file; tables and Gaussians have none.

    Parameters
    ----------
    names : list of str
        Files, folders of files, "gaussian", "tabular", "tabular:TABLE" or
        "tabular:TABLE/CLASSIFIER".
    """
    for name in names:
        if name == "gaussian":
            yield name, None
        elif name.split(":")[0] == "tabular":
            wanted = name.partition(":")[2]
            chosen = [p for p in tabular_names() if wanted in ("", p, p.split("/")[0])]
            if not chosen:
                raise SystemExit(f"unknown table {wanted!r}; there are {', '.join(TABLES)}")
            for problem in chosen:
                yield problem, None
        else:
            for path in sorted(Path(name).glob("*.npz")) if Path(name).is_dir() else [Path(name)]:
                yield path.stem, path


def make_problem(
    name: str, path: Path | None, seed: int, device: str, max_rows: int | None
) -> Problem:
    """Return a problem by its name, and its path if it has a file."""
    if path is None:
        if name == "gaussian":
            return from_gaussians(seed, device, max_rows)
        return from_table(name, seed, device)
    if "top5" in name:
        return from_candidates(path, seed, device, max_rows)
    return from_feature_file(path, seed, device, max_rows)
