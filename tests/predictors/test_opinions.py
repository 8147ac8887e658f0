"""The opinions of the first stage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from small_rescorers import (
    NO_TRAINING,
    Oracle,
    draw_rows,
    fit,
    folded_rows,
    only,
    to_candidates,
)
from torch import nn

from shortlist.learning import logistic as _logistic
from shortlist.learning.logistic import out_of_fold_loss
from shortlist.predictors.shortlister import rescoring as _rescoring
from shortlist.predictors.shortlister.opinions import (
    GivenScores,
    LearnerOpinion,
    Neighbors,
    NetworkOpinion,
    ScaledScores,
    fit_logistic,
)
from shortlist.predictors.shortlister.opinions import given as _given
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import log_columns, sorted_log_proba

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
