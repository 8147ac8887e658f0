"""Re-scoring: its rows out of fold, and which opinions are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from small_rescorers import (
    NETWORKS,
    NO_TRAINING,
    ONE_EPOCH,
    Oracle,
    draw_rows,
    fit,
    fit_with_out_of_fold,
    kinds,
    only,
    to_candidates,
)
from torch import Tensor

from shortlist.learning import logistic as _logistic
from shortlist.learning.networks import Standardize
from shortlist.predictors.shortlister.folds import draw_folds
from shortlist.predictors.shortlister.opinions import (
    Neighbors,
    NetworkOpinion,
)
from shortlist.predictors.shortlister.opinions import neighbors as _neighbors
from shortlist.predictors.shortlister.pool import Pool
from shortlist.ranking import Ranking
from shortlist.ranking.score_types import ScoreType

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
