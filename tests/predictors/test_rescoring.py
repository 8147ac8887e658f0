"""Re-scoring: its opinions, its out-of-fold scores, and its order of the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from shortlist.learning import logistic as _logistic
from shortlist.learning.logistic import out_of_fold_loss
from shortlist.learning.networks import Standardize
from shortlist.learning.settings import TrainingSettings
from shortlist.predictors.shortlister import pool as _pool
from shortlist.predictors.shortlister import rescoring as _rescoring
from shortlist.predictors.shortlister.folds import combine, cross_entropy, draw_folds
from shortlist.predictors.shortlister.opinions import (
    Architecture,
    FoldedRows,
    GivenScores,
    LearnerOpinion,
    Neighbors,
    NetworkOpinion,
    Opinion,
    ScaledScores,
    fit_logistic,
)
from shortlist.predictors.shortlister.opinions import given as _given
from shortlist.predictors.shortlister.opinions import neighbors as _neighbors
from shortlist.predictors.shortlister.pool import Pool, PoolFit
from shortlist.predictors.shortlister.rescoring import Recipe, Rescorer
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import log_columns, sorted_log_proba, target_columns
from shortlist.ranking.score_types import ScoreType

ONE_EPOCH = TrainingSettings(
    learning_rate=0.01,
    batch_size=64,
    max_epochs=1,
    min_steps_per_epoch=20,
    decoupled_weight_decay=True,
    ema_decay=0.9,
)
NO_TRAINING = replace(ONE_EPOCH, learning_rate=1e-30)
"""Settings with which a network stays where it starts."""


def draw_rows(rows: int = 240, n_classes: int = 6, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    scores = rng.normal(size=(rows, n_classes))
    y = (scores + 2 * x[:, :1] * np.arange(n_classes) + rng.gumbel(size=scores.shape)).argmax(1)
    return tuple(map(torch.from_numpy, (scores, y, x)))  # type: ignore[return-value]


def to_candidates(scores: Tensor, depth: int, ragged: bool) -> Ranking:
    """Candidates: the probabilities of the best labels of each row."""
    p, labels = torch.softmax(scores, dim=1).sort(dim=1, descending=True)
    labels = labels[:, :depth].clone()
    if ragged:
        lengths = 1 + torch.arange(len(labels)) % depth
        labels[torch.arange(depth) >= lengths[:, None]] = -1
    return Ranking.from_candidates(labels, p[:, :depth], n_classes=scores.shape[1])


NETWORKS = [Architecture("residual network", 16, residual=True), Architecture("wide network", 16)]


class Oracle(ClassifierMixin, BaseEstimator):
    """A classifier that reads the label off the last feature, if it is an integer."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> Oracle:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        near = np.exp(-5 * np.abs(x[:, -1:] - self.classes_))
        return near / near.sum(axis=1, keepdims=True)


def fit_with_out_of_fold(
    ranking: Ranking,
    y: Tensor,
    x: Tensor,
    score_type: ScoreType,
    settings: TrainingSettings = ONE_EPOCH,
    scale: float = 1.0,
    *,
    networks: Sequence[Architecture] = NETWORKS,
    learners: Sequence[object] = (),
    extra: tuple[Tensor, Tensor] | None = None,
) -> tuple[Rescorer, Ranking]:
    """Return the model, and the rows of the fit re-scored out of fold."""
    model, out_of_fold, _ = Rescorer.fit(
        ranking.with_scale(score_type, scale),
        y,
        x,
        settings,
        Recipe(networks, learners),
        n_folds=3,
        device=torch.device("cpu"),
        progress=False,
        extra=extra,
    )
    return model, out_of_fold


def fit(*arguments: object, **options: object) -> Rescorer:
    """Return the model alone."""
    return fit_with_out_of_fold(*arguments, **options)[0]  # type: ignore[arg-type]


@pytest.fixture
def keep_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all opinions, and fit scaled scores to few rows too."""
    monkeypatch.setattr(_pool, "MIN_GAIN", -np.inf)
    monkeypatch.setattr(_given, "ROWS_PER_CLASS", 1)


def only(model: Rescorer, position: int) -> Rescorer:
    """Return a model of one opinion, the first table of which counts."""
    opinion = model.opinions[position]
    pool = Pool([1.0] + [0.0] * (opinion.n_tables - 1))
    parts = model.folds, model.index, model.n_classes, model.standardize, model.n_extra
    return Rescorer([opinion], pool, *parts)


def folded_rows(
    ranking: Ranking, y: Tensor, x: Tensor, extra: tuple[Tensor, Tensor] | None = None
) -> FoldedRows:
    return FoldedRows(
        ranking=ranking,
        features=x,
        index=y,
        target=target_columns(ranking, y),
        folds=draw_folds(len(y), 3, 0),
        n_folds=3,
        standardize=Standardize.from_data(x),
        settings=ONE_EPOCH,
        progress=False,
        extra_features=None if extra is None else extra[0],
        extra_index=None if extra is None else extra[1],
    )


def mean_log_likelihood(ranking: Ranking, labels: Tensor) -> float:
    log_p = sorted_log_proba(ranking, "log_proba", ranking.depth).double()
    column = ranking.rank_of(labels).clamp(max=ranking.depth).to(torch.int64)
    return float(log_p.gather(1, column[:, None]).mean())


# Opinions


@pytest.mark.parametrize("scale", [1.0, 0.4])
def test_given_scores_and_untrained_residual_networks_are_the_classifier(
    scale: float, keep_all: None
) -> None:
    scores, y, x = draw_rows()
    ranking = Ranking.from_scores(scores)
    model = fit(ranking, y, x, "logits", NO_TRAINING, scale)
    expected = torch.log_softmax(scale * scores, dim=1).float()
    residual = next(
        i
        for i, opinion in enumerate(model.opinions)
        if isinstance(opinion, NetworkOpinion) and opinion.is_residual
    )
    for position in (0, residual):
        rescored = only(model, position)(ranking, x)
        actual = rescored.scores_of(slice(None))
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(rescored.top(6)[0], ranking.top(6)[0])


@pytest.mark.parametrize("ragged", [False, True])
def test_with_candidates_they_are_their_probabilities(ragged: bool, keep_all: None) -> None:
    scores, y, x = draw_rows()
    ranking = to_candidates(scores, 3, ragged)
    model = fit(ranking, y, x, "proba", NO_TRAINING)
    kinds = [type(opinion) for opinion in model.opinions]
    assert kinds == [GivenScores, NetworkOpinion, Neighbors, NetworkOpinion, NetworkOpinion]
    for position in (0, 3):
        rescored = only(model, position)(ranking, x)
        assert torch.equal(rescored.top(3)[0], ranking.top(3)[0])
        assert torch.equal(rescored.lengths(), ranking.lengths())
        torch.testing.assert_close(
            sorted_log_proba(rescored, "log_proba", 3),
            sorted_log_proba(ranking, "proba", 3).float(),
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize("penalty", [1e-2, 1e-4])
def test_logistic_regression_is_that_of_scikit_learn(
    penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_logistic, "PENALTIES", (penalty,))
    monkeypatch.setattr(_logistic, "MAX_ITER", 2000)
    scores, y, x = draw_rows(600)
    extra = draw_rows(200, seed=4)
    rows = folded_rows(Ranking.from_scores(scores), y, x, (extra[2], extra[1]))
    z, new = rows.standardize(x).double().numpy(), draw_rows(100, seed=1)[2]
    for with_extra in (False, True):
        opinion = fit_logistic(rows, extra=with_extra)
        for fold in range(3):
            own = (rows.folds != fold).numpy()
            inputs, labels = z[own], y.numpy()[own]
            if with_extra:
                more = rows.standardize(extra[2]).double().numpy()
                inputs = np.concatenate([inputs, more])
                labels = np.concatenate([labels, extra[1].numpy()])
            # Scikit-learn minimizes the sum of losses plus half the squares, divided by C.
            theirs = LogisticRegression(
                C=1 / (2 * penalty * len(labels)), tol=1e-10, max_iter=10_000
            ).fit(inputs, labels)
            expected = theirs.predict_proba(rows.standardize(new).double().numpy())
            member = opinion.network.select_member(fold)
            actual = torch.softmax(member(new)[0], dim=1).detach().numpy()
            np.testing.assert_allclose(actual, expected, atol=1e-3)


@pytest.mark.parametrize("signal", [0.0, 0.5, 4.0])
def test_logistic_regression_chooses_the_penalty_out_of_fold(
    signal: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_logistic, "MAX_ITER", 200)
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(4, size=600))
    x = torch.from_numpy(rng.normal(size=(600, 30)) + signal * np.eye(4, 30)[y])
    rows = folded_rows(Ranking.from_scores(torch.zeros(600, 4)), y, x)
    losses = []
    for penalties in (_logistic.PENALTIES, *((penalty,) for penalty in _logistic.PENALTIES)):
        monkeypatch.setattr(_logistic, "PENALTIES", penalties)
        network = fit_logistic(rows, extra=False).network
        mean = np.mean(
            [
                float(nn.functional.cross_entropy(network(x[own])[j].detach(), y[own]))
                for j in range(3)
                for own in [rows.folds == j]
            ]
        )
        assert out_of_fold_loss(network, x, y, rows.folds) == pytest.approx(mean)
        losses.append(mean)
    assert losses[0] == pytest.approx(min(losses[1:]), rel=1e-3)


def test_features_that_are_not_finite_leave_logistic_regression_where_it_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores, y, x = draw_rows(60)

    def diverge(network: nn.Module, *_: object, **__: object) -> None:
        for parameter in network.parameters():
            parameter.data.fill_(torch.nan)

    monkeypatch.setattr(_logistic, "fit_members", diverge)
    opinion = fit_logistic(folded_rows(Ranking.from_scores(scores), y, x), extra=False)
    assert all((parameter == 0).all() for parameter in opinion.network.stack.parameters())


def test_vector_scaling_is_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_given, "MAX_ITER", 500)
    rng = np.random.default_rng(0)
    scores, y, x = draw_rows(400, n_classes=4)
    scores = scores * torch.tensor([3.0, 0.5, 1.0, 1.0]) + torch.tensor([0.0, 2.0, 0.0, -1.0])
    rows = folded_rows(Ranking.from_scores(scores), y, x)
    opinion = ScaledScores.fit(rows)
    assert opinion is not None
    prior = log_columns(rows.ranking, slice(0, 400), "logits").double().numpy()
    for fold in range(3):
        own = (rows.folds != fold).numpy()

        def loss(v: np.ndarray, own: np.ndarray = own) -> float:
            logits = torch.from_numpy(prior[own] * v[:4] + v[4:])
            mean = nn.functional.cross_entropy(logits, y[torch.from_numpy(own)])
            return float(mean) + _given.PENALTY * float(v[4:] @ v[4:])

        best = minimize(loss, np.r_[np.ones(4), np.zeros(4)], tol=1e-10)
        factor, bias = (p.detach()[fold, 0].numpy() for p in opinion.scaling.parameters())
        assert loss(np.r_[factor, bias].astype(float)) <= best.fun + 1e-5
        new = rng.normal(size=(20, 4))
        actual, expected = (
            torch.softmax(torch.from_numpy(new * f + b), dim=1)
            for f, b in ((factor, bias), (best.x[:4], best.x[4:]))
        )
        torch.testing.assert_close(actual, expected, rtol=0, atol=5e-3)


def test_scores_are_scaled_by_class_with_enough_rows_and_all_classes() -> None:
    scores, y, x = draw_rows(240)
    assert ScaledScores.fit(folded_rows(Ranking.from_scores(scores), y, x)) is not None
    few = folded_rows(Ranking.from_scores(scores[:119]), y[:119], x[:119])
    assert ScaledScores.fit(few) is None
    assert ScaledScores.fit(folded_rows(to_candidates(scores, 6, False), y, x)) is None


def test_learners_are_fitted_without_their_fold() -> None:
    scores, y, x = draw_rows()
    rows = folded_rows(Ranking.from_scores(scores), y, x)
    opinion = LearnerOpinion.fit(rows, LogisticRegression(), extra=False)
    z = x.numpy()
    for fold, fitted in enumerate(opinion.estimators):
        own = (rows.folds != fold).numpy()
        expected = LogisticRegression().fit(z[own], y.numpy()[own]).predict_proba(z)
        np.testing.assert_allclose(fitted.predict_proba(z), expected)
    block = next(_rescoring._blocks(rows.ranking, x, x.device))
    (table,) = opinion.tables(block)
    mean = np.mean([fitted.predict_proba(z) for fitted in opinion.estimators], axis=0)
    np.testing.assert_allclose(table.exp(), mean, rtol=1e-5, atol=2e-7)
    (own_fold,) = opinion.tables(block, 1)
    expected = opinion.estimators[1].predict_proba(z)
    np.testing.assert_allclose(own_fold.exp(), expected, rtol=1e-5, atol=2e-7)


@pytest.mark.parametrize("listed", [False, True])
def test_a_learner_that_lacks_some_classes(listed: bool) -> None:
    scores, y, x = draw_rows()
    y = torch.where(y >= 4, 1, y)  # Classes 4 and 5 have no rows.
    x[:, -1] = y
    ranking = to_candidates(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    model = fit(ranking, y, x, "proba" if listed else "logits", networks=(), learners=[Oracle()])
    assert any(isinstance(opinion, LearnerOpinion) for opinion in model.opinions)
    rescored = model(ranking, x)
    assert torch.isfinite(rescored.top(4)[1]).all()
    listed_rows = torch.isfinite(rescored.rank_of(y))
    assert (rescored.rank_of(y)[listed_rows] == 0).double().mean() > 0.95


class Flawed(Oracle):
    """A classifier with a flaw."""

    def __init__(self, flaw: str = "") -> None:
        self.flaw = flaw

    def fit(self, x: np.ndarray, y: np.ndarray) -> Flawed:
        super().fit(x, y)
        if self.flaw == "classes":
            del self.classes_
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        p = super().predict_proba(x)
        match self.flaw:
            case "nan":
                p[0, 0] = np.nan
            case "negative":
                p[0, 0] = -0.5
            case "shape":
                p = p[:, :2]
        return p


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ("classes", "has no classes_ after fit"),
        ("nan", "returned a value that is no probability"),
        ("negative", "returned a value that is no probability"),
        ("shape", r"returned an array of shape \(\d+, 2\), not \(\d+, 6\)"),
    ],
)
def test_flawed_learners_raise(flaw: str, message: str) -> None:
    scores, y, x = draw_rows()
    with pytest.raises(ValueError, match=message):
        fit(Ranking.from_scores(scores), y, x, "logits", networks=(), learners=[Flawed(flaw)])


# Rows out of fold


def pools(n_tables: int) -> list[Pool]:
    """Pools of each table alone, and of all."""
    return [Pool(row) for row in [*np.eye(n_tables).tolist(), [0.3] * n_tables]]


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_out_of_fold_scores_do_not_depend_on_the_own_label(
    listed: bool, extra: bool, keep_all: None
) -> None:
    """Every opinion scores a row by models that were fitted without its fold.

    The exponents of the pool and the penalty of logistic regression are fitted on all rows, like
    a temperature. They are fixed here.
    """
    scores, y, x = draw_rows()
    ranking = to_candidates(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    score_type: ScoreType = "proba" if listed else "logits"
    _, more_y, more_x = draw_rows(100, seed=3)
    given = (more_x, more_y) if extra else None
    learners = [RandomForestClassifier(5, random_state=0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_logistic, "PENALTIES", (1e-3,))
        original = fit(ranking, y, x, score_type, learners=learners, extra=given)
        kinds = {type(opinion) for opinion in original.opinions}
        assert len(kinds) == (4 if listed else 5)
        # With extra rows: logistic regression, neighbors, a learner and a network more.
        assert len(original.opinions) == (6 if listed else 7) + (4 if extra else 0)
        n_tables = sum(opinion.n_tables for opinion in original.opinions)
        for fold in range(3):
            own = draw_folds(len(y), 3, ONE_EPOCH.seed) == fold
            labels = torch.where(own, (y + 1) % 6, y)
            changed = fit(ranking, labels, x, score_type, learners=learners, extra=given)
            for position, pool in enumerate(pools(n_tables)):
                original.pool = changed.pool = pool
                before, after = (
                    m.out_of_fold(ranking, x, ONE_EPOCH, given).top(4)[1]
                    for m in (original, changed)
                )
                assert torch.equal(before[own], after[own])
                if position == 0:  # The given scores know no labels.
                    continue
                assert not torch.allclose(before[~own], after[~own])
                in_sample = original(ranking, x).top(4)[1]
                assert not torch.allclose(in_sample[own], before[own])


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_neighbors_are_rows_of_the_other_folds(
    listed: bool, extra: bool, monkeypatch: pytest.MonkeyPatch, keep_all: None
) -> None:
    """Features are standardized by all rows, like those of the networks: they are not labels."""
    monkeypatch.setattr(_neighbors, "MAX_ROWS", 100)
    scores, y, x = draw_rows()
    _, more_y, more_x = draw_rows(150, seed=3)
    given = (more_x, more_y) if extra else None
    ranking = to_candidates(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    settings = replace(ONE_EPOCH, seed=5)
    score_type: ScoreType = "proba" if listed else "logits"
    whole = fit(ranking, y, x, score_type, settings, networks=(), extra=given)
    position = next(
        i
        for i, opinion in enumerate(whole.opinions)
        if isinstance(opinion, Neighbors) and opinion.extra == extra
    )
    model = only(whole, position)

    def assert_same(rescored: Ranking, fitted: Tensor, new: Tensor) -> None:
        known_x, known_y = x[fitted], y[fitted]
        if extra:
            known_x, known_y = torch.cat([known_x, more_x]), torch.cat([known_y, more_y])
        neighbors = Neighbors(Standardize.from_data(x), 6, 5).fit(known_x, known_y)
        shares = neighbors(x[new])[0].exp()
        labels, log_p = (v[new] for v in rescored.top(rescored.depth))
        expected = shares.gather(1, labels.clamp(min=0).to(torch.int64))
        expected = torch.where(labels >= 0, expected, 0)
        actual = torch.where(labels >= 0, log_p.exp(), 0)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)

    all_rows = torch.ones(240, dtype=torch.bool)
    assert_same(model(ranking, x), all_rows, all_rows)
    out_of_fold = model.out_of_fold(ranking, x, settings, given)
    for fold in range(3):
        own = draw_folds(240, 3, 5) == fold
        assert_same(out_of_fold, ~own, own)


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_fit_returns_its_rows_out_of_fold(listed: bool, extra: bool, keep_all: None) -> None:
    scores, y, x = draw_rows()
    _, more_y, more_x = draw_rows(100, seed=3)
    given = (more_x, more_y) if extra else None
    ranking = to_candidates(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    score_type: ScoreType = "proba" if listed else "logits"
    learners = [LogisticRegression()]
    model, returned = fit_with_out_of_fold(
        ranking, y, x, score_type, learners=learners, extra=given
    )
    again = model.out_of_fold(ranking.with_scale(score_type, 1.0), x, ONE_EPOCH, given)
    for actual, expected in zip(returned.top(4), again.top(4), strict=True):
        assert torch.equal(actual, expected)
    assert not torch.allclose(returned.top(4)[1], model(ranking, x).top(4)[1])


def test_out_of_fold_needs_the_extra_rows_of_fit(keep_all: None) -> None:
    scores, y, x = draw_rows()
    ranking = Ranking.from_scores(scores).with_scale("logits", 1.0)
    extra = draw_rows(100, seed=3)[:0:-1]
    model = fit(ranking, y, x, "logits", networks=(), extra=extra)
    message = "0 extra rows were given, but fit learned from 100; give the same extra_features"
    with pytest.raises(ValueError, match=message):
        model.out_of_fold(ranking, x, ONE_EPOCH)
    with pytest.raises(ValueError, match="99 extra rows were given, but fit learned from 100"):
        model.out_of_fold(ranking, x, ONE_EPOCH, (extra[0][:99], extra[1][:99]))
    # Networks do not need them again.
    logistic = only(
        model, next(i for i, o in enumerate(model.opinions) if type(o) is NetworkOpinion)
    )
    assert len(logistic.out_of_fold(ranking, x, ONE_EPOCH)) == 240
    plain = fit(ranking, y, x, "logits", networks=())
    with pytest.raises(ValueError, match="100 extra rows were given, but fit learned from 0"):
        plain.out_of_fold(ranking, x, ONE_EPOCH, extra)


# Which opinions are kept


def kinds(model: Rescorer) -> list[str]:
    """Return the names of the opinions of a model."""
    names = []
    for opinion in model.opinions:
        name = type(opinion).__name__
        if isinstance(opinion, NetworkOpinion):
            name = "residual" if opinion.is_residual else "network"
        names.append(name)
    return names


def test_opinions_of_noise_are_dropped() -> None:
    scores, y, _ = draw_rows(1200)
    y = (scores + torch.from_numpy(np.random.default_rng(5).gumbel(size=(1200, 6)))).argmax(dim=1)
    x = torch.from_numpy(np.random.default_rng(6).normal(size=(1200, 3)))
    learners = [RandomForestClassifier(20, min_samples_leaf=5, random_state=0)]
    model = fit(Ranking.from_scores(scores), y, x, "logits", NO_TRAINING, learners=learners)
    remaining = kinds(model)
    assert len(remaining) == 1  # The given scores, or a copy of them.
    assert remaining[0] in ("GivenScores", "ScaledScores", "residual")
    assert model.pool.exponents == pytest.approx([1.0], abs=0.15)


def test_given_scores_of_noise_are_dropped() -> None:
    scores, y, x = draw_rows(1200)
    y = (2 * x[:, :1] * torch.arange(6) + torch.from_numpy(
        np.random.default_rng(5).gumbel(size=(1200, 6))
    )).argmax(dim=1)  # fmt: skip
    model = fit(Ranking.from_scores(scores), y, x, "logits", networks=())
    assert "GivenScores" not in kinds(model)
    assert "network" in kinds(model)  # Logistic regression.


@pytest.mark.parametrize("case", ["logistic", "neighbors", "scaled", "learner", "network"])
def test_the_informative_opinion_is_kept(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    n, networks, learners = 1200, [], []
    gumbel = torch.from_numpy(rng.gumbel(size=(n, 4)))
    scores = torch.from_numpy(2 * rng.normal(size=(n, 4)))
    x = torch.from_numpy(rng.normal(size=(n, 3)))
    truth, expected, settings = scores, "", ONE_EPOCH
    match case:
        case "logistic":
            truth, expected = 0.5 * scores + 3 * x[:, :1] * torch.arange(4), "network"
        case "neighbors":  # The sign of a product is no linear function.
            sign = torch.sign(x[:, :1] * x[:, 1:2])
            truth, expected = 0.5 * scores + 3 * sign * torch.tensor([1.0, 1, -1, -1]), "Neighbors"
        case "scaled":
            truth = scores * torch.tensor([3.0, 0.2, 1, 1]) + torch.tensor([0, 0, 2.0, -2])
            expected = "ScaledScores"
        case "learner":
            learners, expected = [Oracle()], "LearnerOpinion"
        case "network":
            hidden = torch.sin(3 * x[:, :1]) * torch.tensor([4.0, 0, 0, -4])
            truth, networks, expected = 0.5 * scores + hidden, NETWORKS[1:], "network"
            settings = replace(ONE_EPOCH, max_epochs=30)
            monkeypatch.setattr(_neighbors, "MAX_ROWS", 10)
    y = (truth + gumbel).argmax(dim=1)
    if case == "learner":
        x[:, -1] = y
    model = fit(
        Ranking.from_scores(scores), y, x, "logits", settings, networks=networks, learners=learners
    )
    assert expected in kinds(model)
    position = kinds(model).index(expected)
    first = sum(opinion.n_tables for opinion in model.opinions[:position])
    own = model.pool.exponents[first : first + model.opinions[position].n_tables]
    assert max(own) > 0.1


# Extra rows


def test_extra_rows_help_if_they_are_like_the_others() -> None:
    scores, y, x = draw_rows(150)
    _, more_y, more_x = draw_rows(2000, seed=3)
    new, labels, features = draw_rows(1000, seed=1)
    ranking = Ranking.from_scores(scores)
    plain = fit(ranking, y, x, "logits", networks=())
    model = fit(ranking, y, x, "logits", networks=(), extra=(more_x, more_y))
    assert model.n_extra == 2000
    before, after = (
        mean_log_likelihood(m(Ranking.from_scores(new), features), labels) for m in (plain, model)
    )
    assert after > before + 0.01


def test_extra_rows_with_random_labels_are_ignored() -> None:
    scores, y, x = draw_rows(900)
    _, _, more_x = draw_rows(900, seed=3)
    more_y = torch.from_numpy(np.random.default_rng(0).integers(6, size=900))
    new, labels, features = draw_rows(1000, seed=1)
    ranking = Ranking.from_scores(scores)
    plain = fit(ranking, y, x, "logits", networks=())
    model = fit(ranking, y, x, "logits", networks=(), extra=(more_x, more_y))
    before, after = (
        mean_log_likelihood(m(Ranking.from_scores(new), features), labels) for m in (plain, model)
    )
    assert after > before - 0.02


def test_extra_rows_of_any_number_type_and_class() -> None:
    scores, y, x = draw_rows()
    ranking = Ranking.from_scores(scores)
    for rows, dtype in ((1, torch.float32), (7, torch.float16), (500, torch.float64)):
        extra = x[:1].repeat(rows, 1).to(dtype), torch.full((rows,), 5)
        model, out_of_fold = fit_with_out_of_fold(ranking, y, x, "logits", extra=extra)
        assert torch.isfinite(model(ranking, x).top(6)[1]).all()
        assert torch.isfinite(out_of_fold.top(6)[1]).all()


# Re-scored rows


def test_informative_features_improve_the_order_of_labels() -> None:
    scores, y, x = draw_rows(600)
    settings = replace(ONE_EPOCH, max_epochs=20)
    unseen, labels, features = draw_rows(400, seed=1)
    for ranking, new, score_type in (
        (Ranking.from_scores(scores), Ranking.from_scores(unseen), "logits"),
        (to_candidates(scores, 4, True), to_candidates(unseen, 4, True), "proba"),
    ):
        rescored = fit(ranking, y, x, score_type, settings)(new, features)  # type: ignore[arg-type]
        before = (new.rank_of(labels) == 0).double().mean()
        after = (rescored.rank_of(labels) == 0).double().mean()
        assert after > before + 0.1
        labels_before, labels_after = (r.top(4)[0].sort(dim=1).values for r in (new, rescored))
        if not new.is_dense:
            assert torch.equal(labels_before, labels_after)  # The candidates are the same.
        log_p = rescored.top(4)[1].masked_fill(rescored.top(4)[0] < 0, -torch.inf)
        assert (log_p[:, 1:] <= log_p[:, :-1]).all()


def test_the_mass_outside_the_candidates_is_learned() -> None:
    """The scores of the candidates sum to one, but half of the labels are not among them."""
    rng = np.random.default_rng(0)
    labels = np.stack([rng.permutation(8)[:3] for _ in range(600)])
    p = np.tile([0.6, 0.3, 0.099], (600, 1))
    inside = rng.random(600) < 0.5
    unlisted = np.array([next(k for k in range(8) if k not in row) for row in labels])
    y = torch.from_numpy(np.where(inside, labels[:, 0], unlisted))
    ranking = Ranking.from_candidates(labels, p, n_classes=8)
    x = torch.from_numpy(rng.normal(size=(600, 2)))
    settings = replace(ONE_EPOCH, max_epochs=40, learning_rate=0.03)
    rescored = fit(ranking, y, x, "proba", settings)(ranking, x)
    outside = sorted_log_proba(rescored, "log_proba", 3)[:, -1].exp()
    assert 0.4 < float(outside.mean()) < 0.6


def clustered_rows(rows: int = 300, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits with little information, and features that form one cluster for each class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(6, size=rows)
    x = np.eye(6)[y] + rng.normal(scale=0.4, size=(rows, 6))
    scores = np.eye(6)[y] + rng.normal(size=(rows, 6))
    return tuple(map(torch.from_numpy, (scores, y, x)))  # type: ignore[return-value]


@pytest.mark.parametrize("listed", [False, True])
def test_neighbors_improve_the_scores(listed: bool) -> None:
    """Given scores are improved by the pool with neighbors."""
    (scores, y, x), (unseen, labels, features) = clustered_rows(), clustered_rows(400, seed=1)
    ranking, new = (
        to_candidates(s, 4, ragged=True) if listed else Ranking.from_scores(s)
        for s in (scores, unseen)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_logistic, "PENALTIES", (1e6,))  # Logistic regression learns nothing.
        model = fit(ranking, y, x, "proba" if listed else "logits", NO_TRAINING)
    assert "Neighbors" in kinds(model)
    pooled = model(new, features)
    model.opinions, model.pool = [GivenScores(1.0)], Pool([1.0])
    alone = model(new, features)

    def accuracy(rescored: Ranking) -> float:
        return float((rescored.rank_of(labels) == 0).double().mean())

    gain = mean_log_likelihood(pooled, labels) - mean_log_likelihood(alone, labels)
    assert gain > 0.2
    assert accuracy(pooled) > accuracy(alone) + 0.1


@pytest.mark.parametrize("listed", [False, True])
def test_the_pool_is_fitted_out_of_fold(listed: bool) -> None:
    """With random features, the nearest neighbor of a row is the row itself."""
    scores, _, _ = draw_rows()
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(6, size=240))
    x = torch.from_numpy(rng.normal(size=(240, 40)))
    ranking = to_candidates(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    score_type: ScoreType = "proba" if listed else "logits"
    learners = [RandomForestClassifier(10, random_state=0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pool, "MIN_GAIN", -np.inf)
        every = fit(ranking, y, x, score_type, learners=learners)
    chosen = [i for i, kind in enumerate(kinds(every)) if kind in ("Neighbors", "LearnerOpinion")]
    assert len(chosen) == 2
    for position in chosen:
        in_sample = only(every, position)(ranking, x)
        listed_rows = torch.isfinite(in_sample.rank_of(y))
        assert (in_sample.rank_of(y)[listed_rows] == 0).double().mean() > 0.9
    tables = [
        torch.cat(parts)
        for parts in zip(
            *(
                [table for i in chosen for table in every.opinions[i].tables(block)]
                for block in _rescoring._blocks(ranking, x, x.device)
            ),
            strict=True,
        )
    ]
    block = next(_rescoring._blocks(ranking, x, x.device))
    padding = _rescoring.padding_mask(block.columns, 6)
    learned = PoolFit(tables, padding, target_columns(ranking, y)).exponents(range(3))[0]
    assert learned.sum() > 1
    first = [sum(o.n_tables for o in every.opinions[:i]) for i in chosen]
    out_of_fold = [every.pool.exponents[i] for i in (first[0], first[0] + 1, first[1])]
    # With candidates, neighbors do estimate the mass outside them.
    assert sum(out_of_fold) < (0.5 if listed else 0.2)


def test_the_pool_is_fitted_on_a_sample_of_many_rows(
    monkeypatch: pytest.MonkeyPatch, keep_all: None
) -> None:
    scores, y, x = clustered_rows(1200)
    ranking = Ranking.from_scores(scores)
    whole, expected = fit_with_out_of_fold(ranking, y, x, "logits")
    monkeypatch.setattr(_rescoring, "MAX_TABLE_VALUES", 0)
    # As many rows: the same pool, computed by blocks.
    model, returned = fit_with_out_of_fold(ranking, y, x, "logits")
    assert model.pool.exponents == pytest.approx(whole.pool.exponents, rel=1e-4, abs=1e-5)
    torch.testing.assert_close(
        returned.scores_of(slice(None)), expected.scores_of(slice(None)), rtol=1e-4, atol=1e-4
    )
    for module in (_rescoring, _pool):
        monkeypatch.setattr(module, "MAX_VALUES", 1200 * 6 // 3)
    n_rows: list[int] = []
    original = PoolFit.select

    def recorded(self: PoolFit, *rest: object) -> object:
        n_rows.append(self.n_rows)
        return original(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(PoolFit, "select", recorded)
    model, returned = fit_with_out_of_fold(ranking, y, x, "logits")
    assert n_rows == [400]
    assert len(returned) == 1200  # All rows are re-scored.
    assert all(len(o.index) == 1200 for o in model.opinions if isinstance(o, Neighbors))
    assert model.pool.exponents != whole.pool.exponents
    difference = mean_log_likelihood(returned, y) - mean_log_likelihood(expected, y)
    assert abs(difference) < 0.02


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("case", ["one class", "constant", "one row each", "separable"])
def test_extreme_rows_give_finite_scores(case: str, extra: bool) -> None:
    scores, y, x = clustered_rows(60)
    match case:
        case "one class":
            y = torch.zeros_like(y)
        case "constant":
            x = torch.full_like(x, 3.0)
        case "one row each":
            scores, y, x = scores[:6], torch.arange(6), x[:6]
        case "separable":
            x, scores = 1e3 * torch.eye(6).double()[y], 50 * torch.eye(6).double()[y]
    for ranking, score_type in (
        (Ranking.from_scores(scores), "logits"),
        (to_candidates(scores, 4, True), "proba"),
    ):
        for keep in (_pool.MIN_GAIN, -np.inf):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_pool, "MIN_GAIN", keep)
                patch.setattr(_given, "ROWS_PER_CLASS", 1)
                given = (x[:5], y[:5]) if extra else None
                model = fit(ranking, y, x, score_type, extra=given)
            assert np.isfinite(model.pool.exponents).all()
            assert min(model.pool.exponents) >= 0
            for rescored in (model(ranking, x), model.out_of_fold(ranking, x, ONE_EPOCH, given)):
                log_p = rescored.top(4)[1]
                assert torch.isfinite(log_p).all()
                mass = log_p.exp().masked_fill(rescored.top(4)[0] < 0, 0).sum(dim=1)
                assert float(mass.max()) <= 1 + 1e-5


def test_new_rows_get_the_mean_of_all_members_probabilities(keep_all: None) -> None:
    scores, y, x = draw_rows()
    ranking = Ranking.from_scores(scores)
    model = fit(ranking, y, x, "logits", replace(ONE_EPOCH, max_epochs=5))
    prior = (scores - scores.amax(dim=1, keepdim=True)).float()
    for position, opinion in enumerate(model.opinions):
        if not isinstance(opinion, NetworkOpinion):
            continue
        rescored = only(model, position)(ranking, x).scores_of(slice(None))
        inputs = (x, prior) if opinion.is_residual else (x,)
        each = torch.softmax(opinion.network(*inputs), dim=-1)
        assert not torch.allclose(each[0], each[1])
        torch.testing.assert_close(rescored.exp(), each.mean(dim=0).to(rescored.dtype))
        torch.testing.assert_close(rescored.logsumexp(dim=1), torch.zeros(240).to(rescored.dtype))


def test_rows_are_rescored_in_blocks(monkeypatch: pytest.MonkeyPatch, keep_all: None) -> None:
    scores, y, x = draw_rows()
    ranking = Ranking.from_scores(scores)
    model = fit(ranking, y, x, "logits", learners=[LogisticRegression()])
    whole = model(ranking, x).scores_of(slice(None))
    block_sizes: list[int] = []
    original = GivenScores.tables

    def recorded(self: Opinion, block: object, fold: int | None = None) -> list[Tensor]:
        block_sizes.append(len(block.features))  # type: ignore[attr-defined]
        return original(self, block, fold)  # type: ignore[arg-type]

    monkeypatch.setattr(GivenScores, "tables", recorded)
    blocks = _rescoring.row_blocks
    elements = 100 * 6 * _rescoring.BLOCK_FACTOR
    monkeypatch.setattr(_rescoring, "row_blocks", lambda n, w, _: blocks(n, w, elements=elements))
    torch.testing.assert_close(
        model(ranking, x).scores_of(slice(None)), whole, rtol=1e-4, atol=1e-5
    )
    assert block_sizes == [100, 100, 40]


def test_folds_are_of_equal_size_and_reproducible() -> None:
    folds = draw_folds(103, 5, seed=1)
    assert sorted(torch.bincount(folds).tolist()) == [20, 20, 21, 21, 21]
    assert torch.equal(folds, draw_folds(103, 5, seed=1))
    assert not torch.equal(folds, draw_folds(103, 5, seed=2))


def test_the_loss_of_each_member_and_row() -> None:
    outputs, y = torch.randn(3, 7, 4, dtype=torch.float64), torch.arange(7) % 4
    losses = cross_entropy(outputs, y)
    for j in range(3):
        for i in range(7):
            loss = -torch.log_softmax(outputs[j, i], dim=0)[y[i]]
            assert float(losses[j, i]) == pytest.approx(float(loss))


def test_members_are_averaged_or_selected_by_fold() -> None:
    log_p = torch.log_softmax(torch.randn(3, 7, 4, dtype=torch.float64), dim=-1)
    torch.testing.assert_close(combine(log_p, None).exp(), log_p.exp().mean(dim=0))
    folds = torch.tensor([0, 2, 1, 1, 0, 2, 2])
    own = combine(log_p, folds)
    assert all(torch.equal(own[i], log_p[folds[i], i]) for i in range(7))
