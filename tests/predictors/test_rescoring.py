"""Re-scoring: it starts at the classifier, sees no row's own label, and reorders lists whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from shortlist.learning.networks import Standardize
from shortlist.learning.settings import TrainingSettings
from shortlist.predictors.shortlister import neighbours as _neighbours
from shortlist.predictors.shortlister import rescoring as _rescoring
from shortlist.predictors.shortlister.neighbours import Neighbours, Pool
from shortlist.predictors.shortlister.rescoring import Rescorer, combine, cross_entropy, draw_folds
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import sorted_log_proba, target_columns
from shortlist.ranking.score_types import ScoreType

ONCE = TrainingSettings(
    learning_rate=0.01,
    batch_size=64,
    max_epochs=1,
    min_steps_per_epoch=20,
    decoupled_weight_decay=True,
    ema_decay=0.9,
)
STILL = replace(ONCE, learning_rate=1e-30)
"""Nothing is learned: the network stays where it starts."""


def data(rows: int = 240, n_classes: int = 6, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    scores = rng.normal(size=(rows, n_classes))
    y = (scores + 2 * x[:, :1] * np.arange(n_classes) + rng.gumbel(size=scores.shape)).argmax(1)
    return tuple(map(torch.from_numpy, (scores, y, x)))  # type: ignore[return-value]


def lists(scores: Tensor, depth: int, ragged: bool) -> Ranking:
    """Probabilities of the best few labels."""
    p, labels = torch.softmax(scores, dim=1).sort(dim=1, descending=True)
    labels = labels[:, :depth].clone()
    if ragged:
        lengths = 1 + torch.arange(len(labels)) % depth
        labels[torch.arange(depth) >= lengths[:, None]] = -1
    return Ranking.from_candidates(labels, p[:, :depth], n_classes=scores.shape[1])


def both(
    ranking: Ranking,
    y: Tensor,
    x: Tensor,
    kind: ScoreType,
    settings: TrainingSettings = ONCE,
    scale: float = 1.0,
) -> tuple[Rescorer, Ranking]:
    """The model, and the rows of the fit out of fold."""
    return Rescorer.fit(
        ranking.with_scale(kind, scale),
        y,
        x,
        settings,
        members=3,
        width=16,
        device=torch.device("cpu"),
        progress=False,
    )


def fit(*given: object) -> Rescorer:
    """The model alone."""
    return both(*given)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1.0, 0.4])
def test_it_starts_at_the_classifier_itself(scale: float) -> None:
    scores, y, x = data()
    ranking = Ranking.from_scores(scores)
    model = fit(ranking, y, x, "logits", STILL, scale)
    model.pool = Pool()
    found = model(ranking, x)
    expected = torch.log_softmax(scale * scores, dim=1).float()
    torch.testing.assert_close(found.scores_of(slice(None)), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(found.top(6)[0], ranking.top(6)[0])


@pytest.mark.parametrize("ragged", [False, True])
def test_with_lists_it_starts_at_their_probabilities_and_what_they_leave_out(ragged: bool) -> None:
    scores, y, x = data()
    ranking = lists(scores, 3, ragged)
    model = fit(ranking, y, x, "proba", STILL)
    model.pool = Pool()
    found = model(ranking, x)
    assert torch.equal(found.top(3)[0], ranking.top(3)[0])
    assert torch.equal(found.lengths(), ranking.lengths())
    torch.testing.assert_close(
        sorted_log_proba(found, "log_proba", 3),
        sorted_log_proba(ranking, "proba", 3).float(),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("listed", [False, True])
def test_a_row_is_scored_by_what_did_not_see_its_label(listed: bool) -> None:
    """By one member and by neighbours of the other folds, in these folds' metric. The exponents
    of the pool are fitted on all rows, as a temperature is, and are held still here."""
    scores, y, x = data()
    ranking = lists(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    kind: ScoreType = "proba" if listed else "logits"
    honest = fit(ranking, y, x, kind)
    for fold in range(3):
        own = draw_folds(len(y), 3, ONCE.seed) == fold
        deceived = fit(ranking, torch.where(own, (y + 1) % 6, y), x, kind)
        for pool in (Pool(), Pool(0.7, 0.3), Pool(0.0, 1.0)):
            honest.pool = deceived.pool = pool
            before, after = (m.out_of_fold(ranking, x).top(4)[1] for m in (honest, deceived))
            assert torch.equal(before[own], after[own])
            assert not torch.allclose(before[~own], after[~own])
            seen = honest(ranking, x).top(4)[1]
            assert not torch.allclose(seen[own], before[own])  # with all rows it is something else


@pytest.mark.parametrize("listed", [False, True])
def test_neighbours_are_some_rows_of_the_other_folds(
    listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standardised as the networks' rows are: by all rows, whose features are no secret."""
    monkeypatch.setattr(_neighbours, "MAX_ROWS", 100)
    scores, y, x = data()
    ranking = lists(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    model = fit(ranking, y, x, "proba" if listed else "logits", replace(ONCE, seed=5))
    model.pool = Pool(0.0, 1.0)

    def same(found: Ranking, used: Tensor, asked: Tensor) -> None:
        neighbours = Neighbours(Standardize.from_data(x), 6).fit(x[used], y[used], seed=5)
        shares = neighbours(x[asked]).exp()
        labels, log_p = (v[asked] for v in found.top(found.depth))
        expected = shares.gather(1, labels.clamp(min=0).to(torch.int64))
        expected = torch.where(labels >= 0, expected, 0)
        given = torch.where(labels >= 0, log_p.exp(), 0)
        torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)

    everyone = torch.ones(240, dtype=torch.bool)
    same(model(ranking, x), everyone, everyone)
    for fold in range(3):
        own = draw_folds(240, 3, 5) == fold
        same(model.out_of_fold(ranking, x), ~own, own)


@pytest.mark.parametrize("listed", [False, True])
def test_a_fit_returns_its_rows_out_of_fold(listed: bool) -> None:
    scores, y, x = data()
    ranking = lists(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    model, returned = both(ranking, y, x, "proba" if listed else "logits")
    for mine, theirs in zip(returned.top(4), model.out_of_fold(ranking, x).top(4), strict=True):
        assert torch.equal(mine, theirs)
    assert not torch.allclose(returned.top(4)[1], model(ranking, x).top(4)[1])


def test_features_that_tell_reorder_the_labels() -> None:
    scores, y, x = data(600)
    settings = replace(ONCE, max_epochs=20)
    unseen, labels, features = data(400, seed=1)
    for ranking, new, kind in (
        (Ranking.from_scores(scores), Ranking.from_scores(unseen), "logits"),
        (lists(scores, 4, True), lists(unseen, 4, True), "proba"),
    ):
        rescored = fit(ranking, y, x, kind, settings)(new, features)  # type: ignore[arg-type]
        before = (new.rank_of(labels) == 0).double().mean()
        after = (rescored.rank_of(labels) == 0).double().mean()
        assert after > before + 0.1
        labels_before, labels_after = (r.top(4)[0].sort(dim=1).values for r in (new, rescored))
        if not new.is_dense:
            assert torch.equal(labels_before, labels_after)  # the same lists in another order
        falling = rescored.top(4)[1].masked_fill(rescored.top(4)[0] < 0, -torch.inf)
        assert (falling[:, 1:] <= falling[:, :-1]).all()


def test_what_lists_leave_out_is_learned() -> None:
    """Lists that claim to hold everything, and half of whose labels are not there."""
    rng = np.random.default_rng(0)
    labels = np.stack([rng.permutation(8)[:3] for _ in range(600)])
    p = np.tile([0.6, 0.3, 0.099], (600, 1))
    inside = rng.random(600) < 0.5
    unlisted = np.array([next(k for k in range(8) if k not in row) for row in labels])
    y = torch.from_numpy(np.where(inside, labels[:, 0], unlisted))
    ranking = Ranking.from_candidates(labels, p, n_classes=8)
    x = torch.from_numpy(rng.normal(size=(600, 2)))
    settings = replace(ONCE, max_epochs=40, learning_rate=0.03)
    found = fit(ranking, y, x, "proba", settings)(ranking, x)
    outside = sorted_log_proba(found, "log_proba", 3)[:, -1].exp()
    assert 0.4 < float(outside.mean()) < 0.6


def test_new_rows_get_the_mean_of_all_members_probabilities() -> None:
    scores, y, x = data()
    ranking = Ranking.from_scores(scores)
    model = fit(ranking, y, x, "logits", replace(ONCE, max_epochs=5))
    model.pool = Pool()
    found = model(ranking, x).scores_of(slice(None))
    with torch.no_grad():
        prior = (scores - scores.amax(dim=1, keepdim=True)).float()
        each = torch.softmax(model.network(x, prior), dim=-1)
    assert not torch.allclose(each[0], each[1])
    torch.testing.assert_close(found.exp(), each.mean(dim=0).to(found.dtype))
    torch.testing.assert_close(found.logsumexp(dim=1), torch.zeros(240).to(found.dtype))


def far_apart(rows: int = 300, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits that know little, and features near their class's own corner."""
    rng = np.random.default_rng(seed)
    y = rng.integers(6, size=rows)
    x = np.eye(6)[y] + rng.normal(scale=0.4, size=(rows, 6))
    scores = np.eye(6)[y] + rng.normal(size=(rows, 6))
    return tuple(map(torch.from_numpy, (scores, y, x)))  # type: ignore[return-value]


@pytest.mark.parametrize("listed", [False, True])
def test_neighbours_give_a_second_opinion(listed: bool) -> None:
    """Networks that learn nothing are helped by them, and by as much as was fitted."""
    (scores, y, x), (unseen, labels, features) = far_apart(), far_apart(400, seed=1)
    ranking, new = (
        lists(s, 4, ragged=True) if listed else Ranking.from_scores(s) for s in (scores, unseen)
    )
    model = fit(ranking, y, x, "proba" if listed else "logits", STILL)
    assert model.pool.b > 0.3
    pooled = model(new, features)
    model.pool = Pool()
    alone = model(new, features)

    def fit_to(found: Ranking) -> float:
        log_p = sorted_log_proba(found, "log_proba", found.depth).double()
        at = found.rank_of(labels).clamp(max=found.depth).to(torch.int64)
        return float(log_p.gather(1, at[:, None]).mean())

    def first(found: Ranking) -> float:
        return float((found.rank_of(labels) == 0).double().mean())

    assert fit_to(pooled) > fit_to(alone) + 0.2
    assert first(pooled) > first(alone) + 0.1


@pytest.mark.parametrize("listed", [False, True])
def test_the_second_opinion_is_weighed_without_each_rows_own_label(listed: bool) -> None:
    """Of noise, a row's nearest neighbour is the row itself."""
    scores, _, _ = data()
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(6, size=240))
    x = torch.from_numpy(rng.normal(size=(240, 40)))
    ranking = lists(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    model = fit(ranking, y, x, "proba" if listed else "logits", STILL)
    assert (model.neighbours(x).argmax(dim=1) == y).double().mean() > 0.9
    (in_sample,) = model._estimates(ranking, x, model.neighbours)
    assert Pool.fit(*in_sample, target_columns(ranking, y)).b > 1
    # Of lists, neighbours do know how much is left out.
    assert model.pool.b < (0.3 if listed else 0.1)


def test_of_many_rows_some_weigh_the_second_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, y, x = far_apart(1200)
    ranking = Ranking.from_scores(scores)
    whole = fit(ranking, y, x, "logits").pool
    monkeypatch.setattr(_neighbours, "MAX_SCORES", 1200 * 6 // 3)
    model, returned = both(ranking, y, x, "logits")
    assert len(returned) == 1200  # which all are re-scored
    assert len(model.neighbours.index) == 1200
    assert (model.pool.a, model.pool.b) != (whole.a, whole.b)
    assert model.pool.a == pytest.approx(whole.a, rel=0.3)
    assert model.pool.b == pytest.approx(whole.b, rel=0.3)


@pytest.mark.parametrize("case", ["one class", "constant", "one row each", "separable"])
def test_extreme_rows_give_finite_scores(case: str) -> None:
    scores, y, x = far_apart(60)
    match case:
        case "one class":
            y = torch.zeros_like(y)
        case "constant":
            x = torch.full_like(x, 3.0)
        case "one row each":
            scores, y, x = scores[:6], torch.arange(6), x[:6]
        case "separable":
            x, scores = 1e3 * torch.eye(6).double()[y], 50 * torch.eye(6).double()[y]
    for ranking, kind in (
        (Ranking.from_scores(scores), "logits"),
        (lists(scores, 4, True), "proba"),
    ):
        model = fit(ranking, y, x, kind)  # type: ignore[arg-type]
        for found in (model(ranking, x), model.out_of_fold(ranking, x)):
            log_p = found.top(4)[1]
            assert torch.isfinite(log_p).all()
            mass = log_p.exp().masked_fill(found.top(4)[0] < 0, 0).sum(dim=1)
            assert float(mass.max()) <= 1 + 1e-5


def test_large_stacks_are_evaluated_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hidden layers of all members count, not the few classes: rows × members × width."""
    scores, y, x = data()
    ranking = Ranking.from_scores(scores)
    model = fit(ranking, y, x, "logits")
    whole = model(ranking, x).scores_of(slice(None))
    seen: list[int] = []
    model.network.register_forward_hook(lambda m, inputs, out: seen.append(len(inputs[0])))
    blocks = _rescoring.row_blocks
    monkeypatch.setattr(_rescoring, "row_blocks", lambda n, w, _: blocks(n, w, elements=4800))
    assert torch.allclose(model(ranking, x).scores_of(slice(None)), whole)
    assert seen == [100, 100, 40]  # 3 members of 16 hidden units


def test_folds_are_of_equal_size_and_repeat() -> None:
    folds = draw_folds(103, 5, seed=1)
    assert sorted(torch.bincount(folds).tolist()) == [20, 20, 21, 21, 21]
    assert torch.equal(folds, draw_folds(103, 5, seed=1))
    assert not torch.equal(folds, draw_folds(103, 5, seed=2))


def test_the_loss_of_each_member_and_row() -> None:
    outputs, y = torch.randn(3, 7, 4, dtype=torch.float64), torch.arange(7) % 4
    found = cross_entropy(outputs, y)
    for j in range(3):
        for i in range(7):
            loss = -torch.log_softmax(outputs[j, i], dim=0)[y[i]]
            assert float(found[j, i]) == pytest.approx(float(loss))


def test_members_are_combined_by_their_mean_or_by_the_rows_own_fold() -> None:
    log_p = torch.log_softmax(torch.randn(3, 7, 4, dtype=torch.float64), dim=-1)
    torch.testing.assert_close(combine(log_p, None).exp(), log_p.exp().mean(dim=0))
    folds = torch.tensor([0, 2, 1, 1, 0, 2, 2])
    own = combine(log_p, folds)
    assert all(torch.equal(own[i], log_p[folds[i], i]) for i in range(7))
