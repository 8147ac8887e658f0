"""Re-scoring: its start at the classifier, its out-of-fold scores, and its order of the labels."""

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

ONE_EPOCH = TrainingSettings(
    learning_rate=0.01,
    batch_size=64,
    max_epochs=1,
    min_steps_per_epoch=20,
    decoupled_weight_decay=True,
    ema_decay=0.9,
)
NO_TRAINING = replace(ONE_EPOCH, learning_rate=1e-30)
"""Settings with which the network stays where it starts."""


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


def fit_with_out_of_fold(
    ranking: Ranking,
    y: Tensor,
    x: Tensor,
    score_type: ScoreType,
    settings: TrainingSettings = ONE_EPOCH,
    scale: float = 1.0,
) -> tuple[Rescorer, Ranking]:
    """Return the model, and the rows of the fit re-scored out of fold."""
    return Rescorer.fit(
        ranking.with_scale(score_type, scale),
        y,
        x,
        settings,
        members=3,
        width=16,
        device=torch.device("cpu"),
        progress=False,
    )


def fit(*arguments: object) -> Rescorer:
    """Return the model alone."""
    return fit_with_out_of_fold(*arguments)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1.0, 0.4])
def test_training_starts_at_the_classifier(scale: float) -> None:
    scores, y, x = draw_rows()
    ranking = Ranking.from_scores(scores)
    model = fit(ranking, y, x, "logits", NO_TRAINING, scale)
    model.pool = Pool()
    rescored = model(ranking, x)
    expected = torch.log_softmax(scale * scores, dim=1).float()
    torch.testing.assert_close(rescored.scores_of(slice(None)), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(rescored.top(6)[0], ranking.top(6)[0])


@pytest.mark.parametrize("ragged", [False, True])
def test_with_candidates_it_starts_at_their_probabilities(ragged: bool) -> None:
    scores, y, x = draw_rows()
    ranking = to_candidates(scores, 3, ragged)
    model = fit(ranking, y, x, "proba", NO_TRAINING)
    model.pool = Pool()
    rescored = model(ranking, x)
    assert torch.equal(rescored.top(3)[0], ranking.top(3)[0])
    assert torch.equal(rescored.lengths(), ranking.lengths())
    torch.testing.assert_close(
        sorted_log_proba(rescored, "log_proba", 3),
        sorted_log_proba(ranking, "proba", 3).float(),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("listed", [False, True])
def test_out_of_fold_scores_do_not_depend_on_the_own_label(listed: bool) -> None:
    """A row is scored by one network and by the neighbours of the other folds.

    The exponents of the pool are fitted on all rows, like a temperature, and are fixed here.
    """
    scores, y, x = draw_rows()
    ranking = to_candidates(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    score_type: ScoreType = "proba" if listed else "logits"
    original = fit(ranking, y, x, score_type)
    for fold in range(3):
        own = draw_folds(len(y), 3, ONE_EPOCH.seed) == fold
        changed = fit(ranking, torch.where(own, (y + 1) % 6, y), x, score_type)
        for pool in (Pool(), Pool(0.7, 0.3), Pool(0.0, 1.0)):
            original.pool = changed.pool = pool
            before, after = (m.out_of_fold(ranking, x).top(4)[1] for m in (original, changed))
            assert torch.equal(before[own], after[own])
            assert not torch.allclose(before[~own], after[~own])
            in_sample = original(ranking, x).top(4)[1]
            assert not torch.allclose(in_sample[own], before[own])


@pytest.mark.parametrize("listed", [False, True])
def test_neighbours_are_rows_of_the_other_folds(
    listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features are standardized by all rows, like those of the networks: they are not labels."""
    monkeypatch.setattr(_neighbours, "MAX_ROWS", 100)
    scores, y, x = draw_rows()
    ranking = to_candidates(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    model = fit(ranking, y, x, "proba" if listed else "logits", replace(ONE_EPOCH, seed=5))
    model.pool = Pool(0.0, 1.0)

    def assert_same(rescored: Ranking, fitted: Tensor, new: Tensor) -> None:
        neighbours = Neighbours(Standardize.from_data(x), 6).fit(x[fitted], y[fitted], seed=5)
        shares = neighbours(x[new]).exp()
        labels, log_p = (v[new] for v in rescored.top(rescored.depth))
        expected = shares.gather(1, labels.clamp(min=0).to(torch.int64))
        expected = torch.where(labels >= 0, expected, 0)
        actual = torch.where(labels >= 0, log_p.exp(), 0)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)

    all_rows = torch.ones(240, dtype=torch.bool)
    assert_same(model(ranking, x), all_rows, all_rows)
    for fold in range(3):
        own = draw_folds(240, 3, 5) == fold
        assert_same(model.out_of_fold(ranking, x), ~own, own)


@pytest.mark.parametrize("listed", [False, True])
def test_fit_returns_its_rows_out_of_fold(listed: bool) -> None:
    scores, y, x = draw_rows()
    ranking = to_candidates(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    model, returned = fit_with_out_of_fold(ranking, y, x, "proba" if listed else "logits")
    for actual, expected in zip(returned.top(4), model.out_of_fold(ranking, x).top(4), strict=True):
        assert torch.equal(actual, expected)
    assert not torch.allclose(returned.top(4)[1], model(ranking, x).top(4)[1])


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


def test_new_rows_get_the_mean_of_all_members_probabilities() -> None:
    scores, y, x = draw_rows()
    ranking = Ranking.from_scores(scores)
    model = fit(ranking, y, x, "logits", replace(ONE_EPOCH, max_epochs=5))
    model.pool = Pool()
    rescored = model(ranking, x).scores_of(slice(None))
    with torch.no_grad():
        prior = (scores - scores.amax(dim=1, keepdim=True)).float()
        each = torch.softmax(model.network(x, prior), dim=-1)
    assert not torch.allclose(each[0], each[1])
    torch.testing.assert_close(rescored.exp(), each.mean(dim=0).to(rescored.dtype))
    torch.testing.assert_close(rescored.logsumexp(dim=1), torch.zeros(240).to(rescored.dtype))


def clustered_rows(rows: int = 300, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits with little information, and features that form one cluster for each class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(6, size=rows)
    x = np.eye(6)[y] + rng.normal(scale=0.4, size=(rows, 6))
    scores = np.eye(6)[y] + rng.normal(size=(rows, 6))
    return tuple(map(torch.from_numpy, (scores, y, x)))  # type: ignore[return-value]


@pytest.mark.parametrize("listed", [False, True])
def test_neighbours_improve_the_scores(listed: bool) -> None:
    """Untrained networks are improved by the pool with neighbours."""
    (scores, y, x), (unseen, labels, features) = clustered_rows(), clustered_rows(400, seed=1)
    ranking, new = (
        to_candidates(s, 4, ragged=True) if listed else Ranking.from_scores(s)
        for s in (scores, unseen)
    )
    model = fit(ranking, y, x, "proba" if listed else "logits", NO_TRAINING)
    assert model.pool.b > 0.3
    pooled = model(new, features)
    model.pool = Pool()
    alone = model(new, features)

    def mean_log_likelihood(rescored: Ranking) -> float:
        log_p = sorted_log_proba(rescored, "log_proba", rescored.depth).double()
        column = rescored.rank_of(labels).clamp(max=rescored.depth).to(torch.int64)
        return float(log_p.gather(1, column[:, None]).mean())

    def accuracy(rescored: Ranking) -> float:
        return float((rescored.rank_of(labels) == 0).double().mean())

    assert mean_log_likelihood(pooled) > mean_log_likelihood(alone) + 0.2
    assert accuracy(pooled) > accuracy(alone) + 0.1


@pytest.mark.parametrize("listed", [False, True])
def test_the_pool_is_fitted_out_of_fold(listed: bool) -> None:
    """With random features, the nearest neighbour of a row is the row itself."""
    scores, _, _ = draw_rows()
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(6, size=240))
    x = torch.from_numpy(rng.normal(size=(240, 40)))
    ranking = to_candidates(scores, 4, ragged=True) if listed else Ranking.from_scores(scores)
    model = fit(ranking, y, x, "proba" if listed else "logits", NO_TRAINING)
    assert (model.neighbours(x).argmax(dim=1) == y).double().mean() > 0.9
    (in_sample,) = model._estimates(ranking, x, model.neighbours)
    assert Pool.fit(*in_sample, target_columns(ranking, y)).b > 1
    # With candidates, neighbours do estimate the mass outside them.
    assert model.pool.b < (0.3 if listed else 0.1)


def test_the_pool_is_fitted_on_a_sample_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, y, x = clustered_rows(1200)
    ranking = Ranking.from_scores(scores)
    whole = fit(ranking, y, x, "logits").pool
    monkeypatch.setattr(_neighbours, "MAX_SCORES", 1200 * 6 // 3)
    model, returned = fit_with_out_of_fold(ranking, y, x, "logits")
    assert len(returned) == 1200  # All rows are re-scored.
    assert len(model.neighbours.index) == 1200
    assert (model.pool.a, model.pool.b) != (whole.a, whole.b)
    assert model.pool.a == pytest.approx(whole.a, rel=0.3)
    assert model.pool.b == pytest.approx(whole.b, rel=0.3)


@pytest.mark.parametrize("case", ["one class", "constant", "one row each", "separable"])
def test_extreme_rows_give_finite_scores(case: str) -> None:
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
        model = fit(ranking, y, x, score_type)  # type: ignore[arg-type]
        for rescored in (model(ranking, x), model.out_of_fold(ranking, x)):
            log_p = rescored.top(4)[1]
            assert torch.isfinite(log_p).all()
            mass = log_p.exp().masked_fill(rescored.top(4)[0] < 0, 0).sum(dim=1)
            assert float(mass.max()) <= 1 + 1e-5


def test_large_stacks_are_evaluated_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a block is limited by the hidden layers of all members, not by the outputs."""
    scores, y, x = draw_rows()
    ranking = Ranking.from_scores(scores)
    model = fit(ranking, y, x, "logits")
    whole = model(ranking, x).scores_of(slice(None))
    block_sizes: list[int] = []
    model.network.register_forward_hook(
        lambda module, inputs, outputs: block_sizes.append(len(inputs[0]))
    )
    blocks = _rescoring.row_blocks
    monkeypatch.setattr(_rescoring, "row_blocks", lambda n, w, _: blocks(n, w, elements=4800))
    assert torch.allclose(model(ranking, x).scores_of(slice(None)), whole)
    assert block_sizes == [100, 100, 40]  # 3 members of 16 hidden units.


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
