"""One small fitted model of every type, and rows to predict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import shortlist as sl

DATA = sl.datasets.gaussian(900, 0.6, n_classes=6, dimension=5)
FIT, SELECT, TEST = DATA.split(200, 400)
# The true probabilities, rounded so that results do not depend on the machine.
SCORES, NEW = (np.round(part.posterior.astype(np.float64), 3) + 1e-4 for part in (SELECT, TEST))
SCORES, NEW = (p / p.sum(axis=1, keepdims=True) for p in (SCORES, NEW))
Y, X, NEW_X = SELECT.y, SELECT.x, TEST.x
NAMES = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])
GROUPS, NEW_GROUPS = (np.where(x[:, 0] > 0, "left", "right") for x in (X, NEW_X))


@dataclass(frozen=True)
class Entry:
    """How to fit a model, and how to predict with it."""

    fit_model: Callable[[], object]
    predict: Callable[..., object]


def _sets(model, *given, **point):
    sets = model.predict_set(*given, **point)
    return sets.labels(), str(sets.guarantee)


def _scores_only(**point):
    return lambda model: _sets(model, NEW, **point)


def _features_too(**point):
    return lambda model: _sets(model, NEW, NEW_X, **point)


def _path(**more):
    path = sl.CardinalityPath(
        sl.TopK([1, 2, 4]), cost_weights=[0.5, 0.1], max_epochs=2, width=8, **more
    )
    return path.fit(SCORES[:250], Y[:250], X[:250])


def _small_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 3))


def _ranking(scores: np.ndarray) -> sl.Ranking:
    order = np.argsort(-scores, axis=1)[:, :4]
    return sl.Ranking.from_candidates(order, np.take_along_axis(scores, order, 1), n_classes=6)


LEARNER = RandomForestClassifier(30, min_samples_leaf=3, random_state=0)
PARITY = (X[:, :3] > 0) @ [1, 1, 2] % 4
"""Labels that depend on products of features, so that a forest is of use."""
TINY = {"max_epochs": 2, "width": 8, "rank_width": 8, "folds": 2}

ZOO: dict[str, Entry] = {
    "shortlister": Entry(
        lambda: sl.Shortlister(**TINY, rescore=True, learn_sizes=True).fit(SCORES, Y, X),
        _features_too(accuracy=0.8),
    ),
    "shortlister-scores": Entry(
        lambda: sl.Shortlister(cost="log").fit(SCORES, NAMES[Y], classes=NAMES),
        _scores_only(mean_size=1.5),
    ),
    "shortlister-candidates": Entry(
        lambda: sl.Shortlister(**TINY, rescore=True, learn_sizes=True).fit(_ranking(SCORES), Y, X),
        lambda model: _sets(model, _ranking(NEW), NEW_X, accuracy=0.8),
    ),
    "shortlister-learners": Entry(
        # The parameter is set to what it is in a loaded model.
        lambda: (
            sl.Shortlister(effort="fast", folds=2, rescore=True, learners=[LEARNER])
            .fit(SCORES, PARITY, X)
            .set_params(learners=None)
        ),
        _features_too(accuracy=0.8),
    ),
    "retrained": Entry(
        lambda: sl.RetrainedClassifier(max_epochs=2, width=8, members=2).fit(SCORES, Y, X),
        _features_too(accuracy=0.8),
    ),
    "aps, temperature for size": Entry(
        lambda: sl.SplitConformal("aps", temperature="size", accuracy=0.8).fit(SCORES, Y),
        _scores_only(),
    ),
    "raps": Entry(
        lambda: sl.SplitConformal("raps", randomized=True).fit(SCORES, Y),
        _scores_only(accuracy=0.9, delta=0.1),
    ),
    "lac-by-group": Entry(
        lambda: sl.SplitConformal("lac", by="group").fit(SCORES, Y, groups=GROUPS),
        _scores_only(accuracy=0.8, groups=NEW_GROUPS),
    ),
    "own-parts": Entry(
        lambda: sl.ConformalPredictor(
            sl.conformal.SAPS(randomized=True), sl.conformal.ClassConditional()
        ).fit(SCORES, Y),
        _scores_only(accuracy=0.7),
    ),
    "plug-in": Entry(
        lambda: sl.PlugInSelector(sl.Conformal("lac", [0.5, 0.8, 0.95])).fit(SCORES, Y),
        _scores_only(cost_weight=0.05),
    ),
    "fixed": Entry(
        lambda: sl.FixedSelector(sl.DenisHebiri([1.5, 2.5]), index=1).fit(SCORES, Y), _scores_only()
    ),
    "selector": Entry(
        lambda: sl.CardinalitySelector(
            sl.Threshold([0.5, 0.1]),
            cost_weight=0.02,
            max_epochs=2,
            width=8,
            loss=sl.losses.CostSensitiveCompSumLoss("gce", q=0.4, reduction="none"),
        ).fit(SCORES, Y, X),
        _features_too(),
    ),
    "path": Entry(
        lambda: _path(inputs="both").calibrate(SCORES[250:], Y[250:], X[250:]),
        _features_too(accuracy=0.5),
    ),
    "path-own-network": Entry(
        lambda: _path(network=_small_net(), cost_weight=0.1), _features_too()
    ),
    "selector-deferral": Entry(
        lambda: sl.CardinalitySelector(
            sl.Deferral(sl.TopK([1, 2, 4]), ["expert", "abstain"]), max_epochs=2, width=8
        ).fit(SCORES, Y, X, costs={"expert": np.where(X[:, 0] > 0, 0.1, 1.1), "abstain": 0.3}),
        _features_too(),
    ),
    "linear": Entry(
        lambda: sl.LinearClassifier(max_epochs=2).fit(FIT.x, NAMES[FIT.y]),
        lambda model: (model.predict(NEW_X).tolist(), model.decision_function(NEW_X).round(4)),
    ),
    "classifier": Entry(
        lambda: sl.ShortlistClassifier(
            make_pipeline(StandardScaler(), LogisticRegression()), method=sl.Shortlister(**TINY)
        ).fit(FIT.x, NAMES[FIT.y]),
        lambda model: (*_sets(model, NEW_X, accuracy=0.8), model.predict(NEW_X).tolist()),
    ),
    "classifier-tree": Entry(
        lambda: sl.ShortlistClassifier(
            DecisionTreeClassifier(max_depth=3, random_state=0), method=sl.SplitConformal("lac")
        ).fit(FIT.x, FIT.y),
        lambda model: _sets(model, NEW_X),
    ),
    "classifier-linear": Entry(
        lambda: sl.ShortlistClassifier(
            sl.LinearClassifier(max_epochs=2), method=sl.SplitConformal("aps")
        ).fit(FIT.x, FIT.y),
        lambda model: _sets(model, NEW_X),
    ),
}
FIXTURES = ["shortlister", "raps", "plug-in", "selector", "path", "linear", "classifier"]
"""Models that are in the repository, as this version wrote them."""
