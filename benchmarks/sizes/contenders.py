"""The methods that are compared on all labelled rows, and their measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from sizes.c_adapter import CAdapter
from sizes.other_classifiers import PACKAGES, PYTHON, OtherClassifier, missing
from sizes.plain_networks import PlainNetworks
from sizes.problems import Problem
from torch import Tensor

import shortlist as sl
from shortlist.predictors import RetrainedClassifier, SetPredictor

RIVAL = "five networks + LAC"
"""The method to which all others are compared."""


@dataclass(frozen=True)
class Contender:
    """A method, and for which problems it is there.

    Parameters
    ----------
    sizes : callable
        Function of the problem, the seed and a maximum number of epochs that returns the mean
        sizes at the accuracies of the problem, and the seconds of the fit.
    situations : tuple of str
        Situations of the problems that it can be measured on.
    missing : callable
        Function that returns why the method cannot be measured, or None if it can.
    """

    sizes: Callable[[Problem, int, int | None], tuple[list[float], float]]
    situations: tuple[str, ...] = ("frozen", "trained", "tabular", "candidates")
    missing: Callable[[], str | None] = lambda: None


WITH_FEATURES = ("frozen", "trained", "tabular")
LEAST_PROBABILITY = 1e-6
"""Smaller probabilities of a classifier have the logarithm of this one."""


def _clock(problem: Problem) -> float:
    """Return the time, after all work on the device is done."""
    if problem.y.is_cuda:
        torch.cuda.synchronize()
    return time.monotonic()


def shortlister(effort: str, *, features: bool = True) -> Contender:
    """Return the Shortlister, which takes the extra rows as what they are, or scores alone."""

    def sizes(problem: Problem, seed: int, epochs: int | None) -> tuple[list[float], float]:
        model = sl.Shortlister(
            effort=effort, calibration=None, random_state=seed, max_epochs=epochs or 100
        )
        start = _clock(problem)
        if features:
            model.fit(
                problem.scores,
                problem.y,
                problem.features,
                extra_features=problem.extra_features,
                extra_y=problem.extra_y,
            )
        else:
            model.fit(problem.scores, problem.y)
        seconds = _clock(problem) - start
        test = problem.test if features else problem.test[:2]
        return list(model.frontier(*test).size_at(problem.accuracies)), seconds

    return Contender(sizes) if features else Contender(sizes, WITH_FEATURES)


def networks(*, extra: bool) -> Contender:
    """Return networks in plain PyTorch, and LAC on their probabilities."""

    def sizes(problem: Problem, seed: int, epochs: int | None) -> tuple[list[float], float]:
        x, y = problem.all_rows() if extra else (problem.features, problem.y)
        _, test_y, test_x = problem.test
        start = _clock(problem)
        model = PlainNetworks(epochs=epochs, seed=seed).fit(x, y, problem.n_classes)
        lac = _lac(model.log_proba(x[model.validation]), y[model.validation])
        seconds = _clock(problem) - start
        curve = lac.frontier(model.log_proba(test_x), test_y)
        return list(curve.size_at(problem.accuracies)), seconds

    return Contender(sizes, WITH_FEATURES if extra else ("trained",))


def _lac(held_out: Tensor, y: Tensor) -> sl.SplitConformal:
    """Return LAC on log-probabilities, with the temperature of held-out rows."""
    return sl.SplitConformal("lac", calibration=None, score_type="log_proba").fit(held_out, y)


def other_classifier(name: str, python: Path) -> Contender:
    """Return a classifier of another library that is trained on all rows, and LAC."""

    def sizes(problem: Problem, seed: int, epochs: int | None) -> tuple[list[float], float]:
        x, y = problem.all_rows()
        _, test_y, test_x = problem.test
        model = OtherClassifier(name, python, epochs=epochs, seed=seed)
        held_out, test, seconds = model.fit_predict(x, y, test_x, problem.n_classes)
        curve = _lac(held_out, y[model.validation]).frontier(test, test_y)
        return list(curve.size_at(problem.accuracies)), seconds

    return Contender(sizes, WITH_FEATURES, lambda: missing(PACKAGES[name], python))


def c_adapter(score: str) -> Contender:
    """Return a score on logits that an adapter changed; it sees no features."""

    def sizes(problem: Problem, seed: int, epochs: int | None) -> tuple[list[float], float]:
        test, test_y, _ = problem.test
        start = _clock(problem)
        logits = as_logits(problem.scores)
        model = CAdapter(score, epochs=epochs, seed=seed).fit(logits, problem.y)
        conformal = sl.SplitConformal(
            score,
            randomized=score == "aps",
            temperature=None,
            calibration=None,
            score_type="logits",
            random_state=seed,
        )
        conformal.fit(model.adapt(logits), problem.y)
        seconds = _clock(problem) - start
        curve = conformal.frontier(model.adapt(as_logits(test)), test_y)
        return list(curve.size_at(problem.accuracies)), seconds

    return Contender(sizes, WITH_FEATURES)


def as_logits(scores: Tensor) -> Tensor:
    """Return logits as they are, and logarithms of probabilities, both as 32-bit numbers."""
    if sl.Ranking.from_scores(scores).has_proba:
        scores = scores.clamp(min=LEAST_PROBABILITY).log()
    return scores.float()


def retrained(name: str, *, extra: bool = True) -> Contender:
    """Return a classifier of the library that is trained on features alone, and LAC."""

    def sizes(problem: Problem, seed: int, epochs: int | None) -> tuple[list[float], float]:
        x, y = problem.all_rows() if extra else (problem.features, problem.y)
        model = RetrainedClassifier(
            name, calibration=None, random_state=seed, max_epochs=epochs or 100
        )
        start = _clock(problem)
        # The scores only say how many classes there are.
        model.fit(x.new_zeros(len(x), problem.n_classes), y, x)
        seconds = _clock(problem) - start
        return list(model.frontier(*problem.test).size_at(problem.accuracies)), seconds

    return Contender(sizes, WITH_FEATURES if extra else ("trained",))


def predictor(make: Callable[[int], SetPredictor]) -> Contender:
    """Return a method that learns from the rows with honest scores."""

    def sizes(problem: Problem, seed: int, epochs: int | None) -> tuple[list[float], float]:
        result, seconds, curve = [], 0.0, None
        for accuracy in problem.accuracies:
            model = make(seed)
            known = model.get_params()
            if "calibration" in known:
                model.set_params(calibration=None)
            if epochs and "max_epochs" in known:
                model.set_params(max_epochs=epochs)
            if model.is_tuned:
                model.set_params(accuracy=accuracy)
            if curve is None or model.is_tuned:
                start = _clock(problem)
                model.fit(problem.scores, problem.y, problem.features)
                seconds = seconds or _clock(problem) - start
                curve = model.frontier(*problem.test)
            result.append(float(curve.size_at(accuracy)))
        return result, seconds

    return Contender(sizes)


def _selectors(inputs: str) -> Contender:
    """Return the selectors of the paper, which see features alone, or a variant of them."""
    weights = np.geomspace(1, 0.001, 20).tolist()
    contender = predictor(
        lambda seed: sl.CardinalityPath(inputs=inputs, cost_weights=weights, random_state=seed)
    )
    return replace(contender, situations=("candidates",) if inputs == "scores" else WITH_FEATURES)


def _split_conformal(score: str, **parameters: object) -> Contender:
    return predictor(lambda seed: sl.SplitConformal(score, random_state=seed, **parameters))


def contenders(python: Path = PYTHON) -> dict[str, Contender]:
    """Return all methods by name.

    Parameters
    ----------
    python : Path
        Interpreter of the environment with other libraries.
    """
    return {
        "Shortlister": shortlister("standard"),
        RIVAL: networks(extra=True),
        "five networks on select + LAC": networks(extra=False),
        "logistic, retrained": retrained("logistic"),
        "networks, retrained": retrained("networks"),
        "RealMLP + LAC": other_classifier("realmlp", python),
        "TabM + LAC": other_classifier("tabm", python),
        "xRFM + LAC": other_classifier("xrfm", python),
        "LAC": _split_conformal("lac"),
        "Shortlister, fast": shortlister("fast"),
        "Shortlister, best": shortlister("best"),
        "Shortlister, scores only": shortlister("standard", features=False),
        "C-Adapter + LAC": c_adapter("lac"),
        "C-Adapter + APS": c_adapter("aps"),
        "top-k": _split_conformal("topk"),
        "APS": _split_conformal("aps", randomized=True, temperature="size"),
        "RAPS": _split_conformal("raps", randomized=True, temperature="size"),
        "SAPS": _split_conformal("saps", randomized=True, temperature="size"),
        "plug-in, log cost": predictor(lambda s: sl.PlugInSelector(cost="log", random_state=s)),
        "paper's selectors": _selectors("features"),
        "paper's, with scores": _selectors("both"),
        "paper's, on scores": _selectors("scores"),
    }


def measure(
    contender: Contender, problem: Problem, seed: int, epochs: int | None
) -> list[dict[str, float]]:
    """Return a record for each accuracy: accuracy, mean size and seconds of the fit."""
    sizes, seconds = contender.sizes(problem, seed, epochs)
    columns = ("top-4",) if problem.situation == "candidates" else map(str, problem.accuracies)
    return [
        {"accuracy": accuracy, "column": column, "size": float(size), "fit_seconds": seconds}
        for accuracy, column, size in zip(problem.accuracies, columns, sizes, strict=True)
    ]
