"""Re-scoring: extra rows, re-scored rows and extreme rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from small_rescorers import (
    NO_TRAINING,
    ONE_EPOCH,
    draw_rows,
    fit,
    fit_with_out_of_fold,
    kinds,
    mean_log_likelihood,
    only,
    to_candidates,
)
from torch import Tensor

from shortlist.learning import logistic as _logistic
from shortlist.predictors.shortlister import pool as _pool
from shortlist.predictors.shortlister import rescoring as _rescoring
from shortlist.predictors.shortlister.folds import combine, cross_entropy, draw_folds
from shortlist.predictors.shortlister.opinions import (
    GivenScores,
    Neighbors,
    NetworkOpinion,
    Opinion,
)
from shortlist.predictors.shortlister.opinions import given as _given
from shortlist.predictors.shortlister.pool import Pool, PoolFit
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import sorted_log_proba, target_columns
from shortlist.ranking.score_types import ScoreType

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
