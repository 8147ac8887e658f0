"""Small comparisons for tests of reports."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
from numpy.typing import NDArray
from synthetic import draw

import shortlist as sl
from shortlist.html_report.content import Content, make_content

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "\"quoted\" & 'single' \\u003c {{data}}",
    "日本語 العربية ‮ abc \u2028 é",
    "a very long name " * 30,
]
N = len(HOSTILE)
Part = tuple[NDArray[np.float64], NDArray[np.generic], NDArray[np.float64]]


def rows(n: int, seed: int) -> Part:
    """Return logits, labels with hostile names, and features that add information."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    scores = 2 * rng.normal(size=(n, N))
    truth = scores + 2 * x @ np.random.default_rng(9).normal(size=(3, N))
    y = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    return scores, np.array(HOSTILE, dtype=object)[y], x


def shortlister(**given: object) -> sl.Shortlister:
    tiny: dict[str, object] = {
        "learning_rate": 3e-3,
        "batch_size": 128,
        "width": 16,
        "rank_width": 8,
        "max_epochs": 3,
        "folds": 3,
        "rescore": True,
        "progress": False,
    }
    return sl.Shortlister(**(tiny | given))  # type: ignore[arg-type]


NAMES = [
    "LAC",
    "Shortlister",
    "RAPS",
    "plug-in, log cost",
    "<b>path</b>",
    "by class",
    "or every label",
    "may be empty",
    "fixed",
    "Shortlister, no re-scoring",
    "LAC, re-scored",
    "RAPS, re-scored",
    "SAPS, re-scored",
]


@cache
def compared() -> sl.Comparison:
    """Compare every kind of method: re-scored, nested, tuned, paths, by class, no guarantee."""
    methods: dict[str, sl.SetPredictor] = {
        "LAC": sl.SplitConformal("lac"),
        "Shortlister": shortlister(),
        "RAPS": sl.SplitConformal("raps", randomized=True),
        "plug-in, log cost": sl.PlugInSelector(cost="log"),
        "<b>path</b>": sl.CardinalityPath(
            cost_weights=[0.5, 0.05, 0.005], inputs="both", width=8, max_epochs=2, progress=False
        ),
        "by class": sl.SplitConformal("aps", by="class"),
        "or every label": sl.SplitConformal("topk", on_unreachable="all"),
        "may be empty": sl.SplitConformal("lac", allow_empty=True),
        "fixed": sl.FixedSelector(),
    }
    test = rows(150, 2)
    with warnings.catch_warnings():  # Some classes have few rows.
        warnings.simplefilter("ignore")
        return sl.compare(
            *rows(600, 1),
            test=test,
            methods=methods,
            accuracies=[0.75, 0.95],
            classes=HOSTILE,
            stages=True,
        )


@cache
def plain() -> sl.Comparison:
    """Compare two methods on test rows that `compare` chose; too few for high accuracies."""
    scores, y = draw(300, n=6, seed=3)
    methods = {"LAC": sl.SplitConformal("lac"), "top-k": sl.SplitConformal("topk")}
    return sl.compare(scores, y, methods=methods)


@cache
def content(which: str = "compared") -> Content:
    """Return the content of a report on the comparison `compared` or `plain`."""
    return make_content(compared() if which == "compared" else plain())
